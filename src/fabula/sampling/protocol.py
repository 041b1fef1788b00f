"""What a sampler must provide, and the registry of samplers.

A new sampler is one file with a settings class and a class with `name`, `about`, `settings`, `runs_on` and `run`, and
one line that registers it: `register_sampler(MySampler())`, or in another package's pyproject.toml

    [project.entry-points."fabula.samplers"]
    mine = "my_package.my_file:MySampler"

Command line, HTTP and Python offer every registered sampler with its settings. Nothing here imports torch, and a
sampler's file should import it inside `run`: the command line loads all samplers to print its help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from fabula.errors import UserError
from fabula.registry import Registry
from fabula.sampling.settings import (
    CANDIDATES,
    FillSettings,
    GibbsSettings,
    RerankSettings,
    ServedSettings,
    SMCSettings,
    check_seed,
    choose,
    offered,
    whole_number,
)  # fmt: skip

if TYPE_CHECKING:
    import torch

    from fabula.models.protocol import Model
    from fabula.sampling.batch import InfillBatch
    from fabula.sampling.cast import Cast
    from fabula.sampling.rules import WordRules
    from fabula.sampling.samples import Rounds

DEFAULT = "smc"
Defaults = Mapping[str, Mapping[str, Any]]
"""Settings by sampler that a model prefers (`models/defaults.py`)."""
RunsOn = Literal["latent", "no latent", "looks ahead", "any", "server"]
"""The models that a sampler can draw from: those with latent variables, those without, those whose latents or decoder
look ahead to given lines, all, or language models on servers (`fabula.served`)."""


@runtime_checkable
class Sampler(Protocol):
    """A way of drawing the missing sentences of stories."""

    @property
    def name(self) -> str:
        """As the user types it."""

    @property
    def about(self) -> str:
        """A few words for the help page."""

    @property
    def settings(self) -> type[FillSettings]:
        """Its settings, in a class that no other sampler has."""

    @property
    def runs_on(self) -> RunsOn: ...

    def run(
        self, model: Model, batch: InfillBatch, settings: Any, generators: Sequence[torch.Generator], *,
        rules: WordRules, cast: Cast | None = None,
    ) -> Rounds:  # fmt: skip
        """Rounds of complete stories, `settings.samples` for each task in all; diagnostics come with the last round.

        `generators` has one generator for each task, and a task's stories may depend on its own alone. `rules` says
        which words may stand where, `cast` who is named.
        """


SAMPLERS: Registry[Sampler] = Registry("fabula.samplers", "sampler")


def register_sampler(sampler: Sampler) -> Sampler:
    """Make a sampler known under its name; a second one of the same name or settings class is refused."""
    for other in SAMPLERS.implementations.values():
        if other.settings is sampler.settings:
            raise ValueError(f"the sampler {other.name} has this settings class already")
    sampler.settings.sampler = SAMPLERS.register(sampler.name)(sampler)
    return sampler


def samplers() -> dict[str, Sampler]:
    """Every registered sampler by name: those of this file first, then those of installed packages."""
    return SAMPLERS.load_all(lambda cls: register_sampler(cls()))


def sampler_named(name: object) -> Sampler:
    """The sampler of this name, or a `UserError` that names all."""
    by_name = samplers()
    if not isinstance(name, str) or name not in by_name:
        raise UserError(f"unknown sampler {name!r}; there are {', '.join(by_name)}", field="sampler")
    return by_name[name]


def able_samplers(has_latent: bool, reads_ahead: bool) -> list[Sampler]:
    """The samplers that can draw from such a model."""
    kinds = {"any", "latent" if has_latent else "no latent"} | ({"looks ahead"} if has_latent or reads_ahead else set())
    return [sampler for sampler in samplers().values() if sampler.runs_on in kinds]


def settings_for(sampler: Sampler, defaults: Defaults, chosen: Mapping[str, Any]) -> FillSettings:
    """A sampler's settings: what a person chose, else the model's defaults, else the sampler's."""
    values = {key: value for key, value in chosen.items() if value is not None}
    return choose(sampler.name, sampler.settings, {**defaults.get(sampler.name, {}), **values})


def resolve(sampler: Sampler, defaults: Defaults, options: Mapping[str, Any]) -> tuple[FillSettings, int, int]:
    """The settings, the candidates and the seed of a call, checked.

    Where nobody chose how many samples to draw, they are enough for the candidates: twice as many as those, at least.
    """
    chosen = {key: value for key, value in options.items() if key not in ("candidates", "sampler", "seed")}
    candidates = whole_number("candidates", options.get("candidates", CANDIDATES), at_least=1)
    settings, seed = settings_for(sampler, defaults, chosen), check_seed(options.get("seed", 0))
    if chosen.get("samples") is None and settings.samples < 2 * candidates:
        settings = settings_for(sampler, defaults, {**chosen, "samples": 2 * candidates})
    return settings, candidates, seed


def shown_settings(sampler: Sampler, defaults: Defaults) -> dict[str, Any]:
    """The value of every setting that Python offers, where nobody chooses: null where the sampler decides itself."""
    values = settings_for(sampler, defaults, {})
    return {name: getattr(values, name) for name in offered(sampler.settings, "python")}


class LazySampler:
    """A sampler whose module, `smc.py`, `gibbs.py` or `rerank.py`, is imported when it runs: it imports torch."""

    def __init__(self, name: str, about: str, settings: type[FillSettings], runs_on: RunsOn) -> None:
        self.name, self.about, self.settings, self.runs_on = name, about, settings, runs_on

    def run(self, *args: Any, **options: Any) -> Rounds:
        rounds: Rounds = import_module(f"fabula.sampling.{self.name}").run(*args, **options)
        return rounds


register_sampler(LazySampler("smc", "sequential Monte Carlo, guided by later sentences", SMCSettings, "looks ahead"))
register_sampler(LazySampler("gibbs", "the paper's", GibbsSettings, "latent"))
register_sampler(LazySampler("rerank", "models without latents", RerankSettings, "no latent"))
register_sampler(LazySampler("served", "language models on servers", ServedSettings, "server"))

"""Fabula's own samplers as the registry lists them; the work is done in `smc.py`, `gibbs.py` and `rerank.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabula.sampling.protocol import RunsOn, register_sampler
from fabula.sampling.settings import FillSettings, GibbsSettings, RerankSettings, SMCSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabula.sampling.samples import Diagnostics, SampledStories


class LazySampler:
    """A sampler whose module is imported when it runs, because the module imports torch."""

    def __init__(self, name: str, about: str, settings: type[FillSettings], runs_on: RunsOn) -> None:
        self.name, self.about, self.settings, self.runs_on = name, about, settings, runs_on

    def run(self, *args: Any, **options: Any) -> Iterator[tuple[SampledStories, Diagnostics | None]]:
        from importlib import import_module

        rounds: Iterator[tuple[SampledStories, Diagnostics | None]]
        rounds = import_module(f"fabula.sampling.{self.name}").run(*args, **options)
        return rounds


register_sampler(LazySampler("smc", "looks ahead first", SMCSettings, "looks ahead"))
register_sampler(LazySampler("gibbs", "the paper's", GibbsSettings, "latent"))
register_sampler(LazySampler("rerank", "models without latents", RerankSettings, "no latent"))

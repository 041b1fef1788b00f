"""Every setting of every sampler, declared once.

A sampler has one frozen dataclass of settings. The options of the command line (`cli/options.py`), the fields of HTTP
requests (`apps/serve/bodies.py`) and the keyword arguments of `fill` derive from its fields. A model may prefer other
defaults (`models/defaults.py`); `plain` switches off everything that changes the model's own distribution.
Nothing here imports torch: the command line reads this file to print its help.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from types import NoneType
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from fabula.errors import UserError

TagSource = Literal["read", "free"]
"""How the tags that the user did not give are determined.

`read`: a given sentence's tag is inferred from it, argmax q(S_i | X+); a missing sentence's is drawn.
`free`: all are drawn.
"""
Door = Literal["cli", "http", "python"]
EVERYWHERE: tuple[Door, ...] = ("cli", "http", "python")

CANDIDATES = 3
"""Stories that `fill` shows."""
WRITE_CANDIDATES, WRITE_SAMPLES = 1, 10
"""Stories that `write` shows, and draws to choose from: it has no given sentences to suit."""
WAVE = 125
"""Samples of rerank at a time: enough for the matrices to be worth it, few enough for a first answer to come soon."""
MOST_OVER_HTTP = 200
"""Samples of a request, at most: others wait in the queue."""
CHAINS, SWEEPS = 17, 3
"""Gibbs chains by default, fewer where each would keep fewer states than `SWEEPS`: 50 samples are 17 chains of 3
states, the last round one chain short. Scores of 17 rows cost little more than of 10: 15 to 30 % faster than 10 x 5."""


@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """How the next word of a missing sentence is chosen."""

    top_k: int = 1
    """Words to choose among: 1 is greedy (the paper's Gibbs step), 15 the paper's baselines', 0 all of them."""
    temperature: float = 1.0
    end_temperature: float | None = None
    """Of the choice to end a sentence; None: the words' own."""
    max_words: int = 30
    """A written sentence's length with its `<eos>`, at most. The authors' code: 30."""
    no_repeat: int = 0
    """Word n-grams of this length occur once within eight sentences, given ones included; 0 disables the rule."""
    guidance: float = 0.0
    """How many times more than once the given lines count, for decoders that read ahead (`guidance.py`)."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a field of a settings class says about itself, beside its type and its default."""

    help: str
    """One line, for the help page, the OpenAPI document and the docstring of `fill`."""
    at_least: int | float | None = None
    above: int | float | None = None
    http: tuple[int | float, int | float] | None = None
    """The range over HTTP, where people wait for each other; None: the same as elsewhere."""
    doors: tuple[Door, ...] = ("python",)
    """The interfaces that offer it; evaluations may set everything."""
    plain: Any = None
    """The value that leaves the model's distribution and the paper's ranking as they are; None: the default does."""
    shown: str | None = None
    """How the default reads where it is None."""


def setting(default: Any, help: str, **declared: Any) -> Any:
    """A field of a settings class."""
    return field(default=default, metadata={"declared": Declared(help=help, **declared)})


def declared(entry: Field[Any]) -> Declared:
    """What a field says about itself; a field without a declaration is Python's alone."""
    declaration: Declared = entry.metadata.get("declared", Declared(help=""))
    return declaration


def redefault(name: str, default: Any, **changes: Any) -> Any:
    """The field `name` of `FillSettings` with another default."""
    inherited = declared(FillSettings.__dataclass_fields__[name])
    return field(default=default, metadata={"declared": replace(inherited, **changes)})


S = TypeVar("S", bound="FillSettings")  # the shape checks of the tests cannot read `Self`


@dataclass(frozen=True, kw_only=True)
class FillSettings:
    """What every sampler has."""

    sampler: ClassVar[Any]
    """The sampler that has this class, since its registration (`protocol.register_sampler`)."""

    samples: int = setting(
        50, "stories to draw and choose from", at_least=1, http=(1, MOST_OVER_HTTP), doors=EVERYWHERE
    )
    """Complete stories drawn for each task, burn-in included. The paper: 50, and 1,000 for its baselines."""
    top_k: int = setting(
        15, "words to choose among; 1 greedy, 0 all", at_least=0, http=(0, 1_000_000), doors=EVERYWHERE
    )
    """The paper: 15 for its baselines, greedy for Gibbs."""
    temperature: float = setting(
        0.9, "sampling temperature: lower is safer, higher more varied, 1 unchanged", above=0, http=(0.05, 5),
        doors=EVERYWHERE, plain=1.0,
    )  # fmt: skip
    """Scores are divided by this before a draw. Ours, because lines read better than at 1, where one unlikely word
    derails a story; the distribution so sharpened is then the target."""
    end_temperature: float | None = setting(
        None, "temperature of the choice to end a sentence: below the words' own, lines are shorter", above=0,
        shown="temperature",
    )  # fmt: skip
    """At 1 lines are as long as people's; low temperatures otherwise make them short."""
    max_words: int = setting(
        30, "words of a written sentence, its end among them, at most; parts of words where a model has such tokens",
        at_least=3, doors=("cli", "python"),
    )  # fmt: skip
    """The authors' code: 30."""
    at_once: bool = setting(False, "whether to skip early answers, so that the last comes sooner", doors=())

    def __post_init__(self) -> None:
        hints = types_of(type(self))
        for entry in fields(self):
            value = checked(entry.name, getattr(self, entry.name), hints[entry.name], declared(entry))
            object.__setattr__(self, entry.name, value)

    @classmethod
    def plain(cls: type[S], **chosen: Any) -> S:
        """The model's own distribution and the paper's ranking, with the values that are chosen."""
        off = {f.name: declared(f).plain for f in fields(cls) if declared(f).plain is not None}
        return cls(**{**off, **chosen})

    @property
    def rows(self) -> int:
        """Stories of one task that are written at the same time, at most."""
        return self.samples

    @property
    def decoding(self) -> DecodingConfig:
        """How words are chosen; among 15 where the settings do not say."""
        return DecodingConfig(
            top_k=self.top_k, temperature=self.temperature, max_words=self.max_words,
            end_temperature=self.end_temperature, no_repeat=getattr(self, "no_repeat", 0),
            guidance=getattr(self, "guidance", 0.0),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RuledSettings(FillSettings):
    """Samplers that write left to right and can keep rules about words on the way."""

    no_repeat: int = setting(
        4, "length of the word n-grams that may occur only once in eight sentences; 0: no rule", plain=0
    )
    allow_new_names: bool = setting(
        False, "whether sentences may introduce names that no given one has, if the given ones have any", plain=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.no_repeat < 0 or self.no_repeat == 1:
            raise UserError(f"no_repeat must be 0 or at least 2, not {self.no_repeat}", field="no_repeat")


@dataclass(frozen=True, kw_only=True)
class RerankSettings(RuledSettings):
    """The baselines' sampler: many samples left to right, the best of them by the given sentences."""

    samples: int = redefault("samples", 1000)
    """The paper's value."""

    @property
    def rows(self) -> int:
        return min(self.samples, WAVE)


@dataclass(frozen=True, kw_only=True)
class TaggedSettings(FillSettings):
    """Samplers of models with tags."""

    tags: TagSource = setting(  # noqa: RUF009 (a field, which ruff cannot see)
        "read", "tags that the user did not give: inferred from given sentences, or sampled"
    )


@dataclass(frozen=True, kw_only=True)
class SMCSettings(RuledSettings, TaggedSettings):
    """All Z jointly given the given sentences, then the missing sentences by particles, one for each sample."""

    fluency: float = setting(
        3.0, "weight of the mean log-probability per written word in the ranking", at_least=0, plain=0.0
    )
    """Ours, because at 0 only the given sentences' log-probability counts, however odd the written sentences are."""
    twist_weight: float = setting(
        0.5, "exponent of the next given sentence's probability in earlier particle weights", at_least=0, plain=0.0
    )
    """Exponent of the next given sentence's probability in the weights before it is reached; 0: no twisting."""
    guidance: float = setting(
        0.0, "how many times more than once the given lines count when words are chosen, if the model reads ahead",
        at_least=0, plain=0.0,
    )  # fmt: skip
    """At 0.5 middles lead to their endings more often; above 1 they say the ending too early."""
    context: float = setting(
        5.0, "weight in the ranking of what the story so far adds to the log-probability per written word",
        at_least=0, plain=0.0,
    )  # fmt: skip
    agreement: float = setting(
        3.0, "what a repeated sentence or word, or a pronoun without a possible antecedent, costs in the ranking",
        at_least=0, plain=0.0,
    )  # fmt: skip
    rank: Literal["critic", "ending"] = setting(
        "ending", "ranking score. critic: coherence by the critic network plus a small weight of the other; ending: "
        "log-probability of the given sentences after the first blank",
        doors=EVERYWHERE, plain="ending",
    )  # fmt: skip
    arc_weight: float = setting(
        0.0, "what a written sentence costs in weights and ranking when its tagger does not give it the tag asked for",
        at_least=0, plain=0.0,
    )  # fmt: skip
    correct: bool = setting(False, "whether weights undo the truncation, so that the target is p itself", doors=())
    resample_below: float = setting(0.5, "share of effective particles below which they are resampled", doors=())


@dataclass(frozen=True, kw_only=True)
class GibbsSettings(TaggedSettings):
    """The paper's sampler (Section 4), which draws from the model itself."""

    top_k: int = redefault("top_k", 1)
    """The paper's X step decodes greedily."""
    temperature: float = redefault("temperature", 1.0, plain=None)
    chains: int | None = setting(
        None, "chains, which share the samples", at_least=1, doors=("cli", "python"), shown=f"{CHAINS} at most"
    )
    """None: `CHAINS`, or fewer for few samples. The paper: 1."""

    @property
    def rows(self) -> int:
        """How many chains share the samples."""
        return min(self.samples, self.chains or min(CHAINS, -(-self.samples // SWEEPS)))


@dataclass(frozen=True, kw_only=True)
class ServedSettings(FillSettings):
    """Stories by a language model on a server (`fabula.served`), which chooses its words itself."""

    samples: int = redefault("samples", 4)  # each is a request, or several, that somebody pays or waits for
    top_k: int = redefault("top_k", 0, doors=())
    end_temperature: float | None = redefault("end_temperature", None, doors=())
    temperature: float = redefault("temperature", 0.8)
    max_words: int = redefault("max_words", 40)
    arc_weight: float = setting(4.0, "what a tag of the arc that no tagger finds costs in the ranking", at_least=0)


types_of: Callable[[type], Mapping[str, Any]] = cache(get_type_hints)
"""The type of every field of a class; worked out once, for that takes a millisecond."""


def choices(hint: Any) -> tuple[str, ...]:
    """The values of a `Literal`; none of another type."""
    return get_args(hint) if get_origin(hint) is Literal else ()


def offered(cls: type[FillSettings], door: Door) -> dict[str, Field[Any]]:
    """The settings of a class that an interface offers."""
    return {entry.name: entry for entry in fields(cls) if door in declared(entry).doors}


def choose(name: str, cls: type[FillSettings], chosen: Mapping[str, Any]) -> FillSettings:
    """A sampler's settings as a person chose them; None is "not chosen", and a setting it does not have is an error."""
    available, hints, values = offered(cls, "python"), types_of(cls), {}
    for key, value in chosen.items():
        if value is None:
            continue
        if key not in available:
            raise UserError(f"{name} has no setting {key!r}; it has {', '.join(available)}", field=key)
        values[key] = checked(key, value, hints[key], declared(available[key]))
    return cls(**values)


def checked(name: str, value: Any, hint: Any, rule: Declared) -> Any:
    """The value in its declared type, or a `UserError`: numpy's numbers are converted, text is not."""
    options = () if choices(hint) else get_args(hint)
    if NoneType in options:
        if value is None:
            return None
        (hint,) = (option for option in options if option is not NoneType)
    if choices(hint):
        if not isinstance(value, str) or value not in choices(hint):
            raise UserError(f"{name} must be {' or '.join(choices(hint))}, not {value!r}", field=name)
        return value
    if hint is bool:
        if type(value).__name__ not in ("bool", "bool_"):
            raise UserError(f"{name} must be True or False, not {value!r}", field=name)
        return bool(value)
    number = whole_number(name, value) if hint is int else real_number(name, value) if hint is float else value
    if rule.at_least is not None and not number >= rule.at_least:
        raise UserError(f"{name} must be at least {rule.at_least:g}, not {number}", field=name)
    if rule.above is not None and not number > rule.above:
        raise UserError(f"{name} must be above {rule.above:g} and finite, not {number}", field=name)
    return number


def whole_number(name: str, value: Any, at_least: int | None = None) -> int:
    """An int, numpy's too; a bool, a float or a text is a mistake."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or type(value).__name__ in ("bool", "bool_"):
        raise UserError(f"{name} must be a whole number, not {value!r}", field=name)
    if at_least is not None and number < at_least:
        raise UserError(f"{name} must be at least {at_least}, not {number}", field=name)
    return number


def check_seed(seed: Any) -> int:
    number = whole_number("seed", seed)
    if not -(2**63) <= number < 2**63:
        raise UserError(f"seed must be a number of 64 bits, not {number}"[:100], field="seed")
    return number


def real_number(name: str, value: Any) -> float:
    """A finite float from any real number; a bool or a text is a mistake."""
    try:
        number = None if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None:
        raise UserError(f"{name} must be a number, not {value!r}"[:200], field=name)
    if not math.isfinite(number):
        raise UserError(f"{name} must be finite, not {number}", field=name)
    return number

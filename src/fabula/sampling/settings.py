"""Every setting of every sampler, declared once.

A sampler has one frozen dataclass of settings. From its fields derive the options of the command line
(`cli/options.py`), the fields of HTTP requests (`studio/bodies.py`) and the keyword arguments of `Narrator.fill`. The
defaults are what a person who fills in a story gets; `plain` switches off everything that is not the model's own law.
Nothing here imports torch: the command line reads this file to print its help.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from fabula.errors import UserError

TagSource = Literal["read", "free", "peek"]
"""Where the tags that nobody gave come from.

`read`: a given sentence's tag is read off it, argmax q(S_i | X+); a missing sentence's is drawn.
`free`: all are drawn.
`peek`: the authors' way, argmax q(S_i | X) with the true missing sentences in X. For reproduction only.
"""

Settings = TypeVar("Settings", bound="FillSettings")
Door = Literal["cli", "http", "python"]
EVERYWHERE: tuple[Door, ...] = ("cli", "http", "python")

WAVE = 125
"""Samples of rerank at a time: enough for the matrices to be worth it, few enough for a first answer to come soon."""

MOST_OVER_HTTP = 200
"""Samples of a request, at most: others wait in the queue."""

CHAINS, SWEEPS = 17, 3
"""Gibbs chains where nobody says otherwise, fewer where each would keep fewer states than `SWEEPS`. 50 samples are 17
chains of 3 states, the last round one chain short. A word's scores cost the host little more for 17 rows than for 10,
so this is 15 to 30 % faster than 10 x 5; the first candidate comes with the first round, later the wider it is."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a field of a settings class says about itself, beside its type and its default."""

    help: str
    """One line, for the help page, the OpenAPI document and the docstring of `Narrator.fill`."""
    at_least: int | float | None = None
    above: int | float | None = None
    http: tuple[int | float, int | float] | None = None
    """The range over HTTP, where people wait for each other; None: the same as elsewhere."""
    doors: tuple[Door, ...] = ("python",)
    """Who may set it; evaluations may set everything."""
    plain: Any = None
    """The value that leaves the model's law and the paper's ranking as they are; None: the default does."""
    shown: str | None = None
    """How the default reads where it is None."""
    not_for_people: tuple[str, ...] = ()
    """Choices that only evaluations have."""


def setting(default: Any, help: str, **declared: Any) -> Any:
    """A field of a settings class."""
    return field(default=default, metadata={"declared": Declared(help=help, **declared)})


@dataclass(frozen=True, kw_only=True)
class FillSettings:
    """What every sampler has."""

    samples: int = setting(
        50, "stories to draw and choose from", at_least=1, http=(1, MOST_OVER_HTTP), doors=EVERYWHERE
    )
    """Complete stories drawn for each task, burn-in included. The paper: 50, and 1,000 for its baselines."""
    top_k: int | None = setting(
        15, "words to choose among; 1 greedy, 0 all", at_least=0, http=(0, 1_000_000), doors=EVERYWHERE
    )
    """The paper: 15 for its baselines, greedy for Gibbs."""
    temperature: float = setting(
        0.9, "of the words that are drawn: lower safer, higher bolder, 1 the model's own", above=0, http=(0.05, 5),
        doors=EVERYWHERE, plain=1.0,
    )  # fmt: skip
    """Scores are divided by this before a draw. Ours, because lines read better than at 1, where one unlikely word
    derails a story; the law so sharpened is then the target."""
    max_words: int = setting(30, "words of a written sentence, its end among them, at most", at_least=3)
    """The authors' code: 30."""
    bf16: bool = setting(False, "whether the decoder's products run in bf16, on CUDA")
    """Latents and log-probabilities stay in single precision."""

    def __post_init__(self) -> None:
        hints = types_of(type(self))
        for entry in fields(self):
            value = checked(entry.name, getattr(self, entry.name), hints[entry.name], declared(entry))
            object.__setattr__(self, entry.name, value)

    @classmethod
    def plain(cls: type[Settings], **chosen: Any) -> Settings:
        """The model's own law and the paper's ranking, with the values that are chosen."""
        off = {f.name: declared(f).plain for f in fields(cls) if declared(f).plain is not None}
        return cls(**{**off, **chosen})

    @property
    def rows(self) -> int:
        """Stories of one task that are written at the same time, at most."""
        return self.samples

    def for_last_answer(self: Settings) -> Settings:
        """The same for whoever waits for the last answer only: nothing is done for the sake of an early one."""
        return self


@dataclass(frozen=True, kw_only=True)
class RuledSettings(FillSettings):
    """Samplers that write left to right and can keep rules about words on the way."""

    no_repeat: int = setting(4, "runs of so many words stand only once in a story; 0: no such rule", plain=0)
    allow_new_names: bool = setting(
        False, "whether people may be named whom no given sentence names, where any names somebody", plain=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.no_repeat < 0 or self.no_repeat == 1:
            raise UserError(f"no_repeat must be 0 or at least 2, not {self.no_repeat}", field="no_repeat")


@dataclass(frozen=True, kw_only=True)
class RerankFillSettings(RuledSettings):
    """The baselines' sampler: many samples left to right, the best of them by the given sentences."""

    samples: int = setting(
        1000, "stories to draw and choose from", at_least=1, http=(1, MOST_OVER_HTTP), doors=EVERYWHERE
    )
    """The paper's value."""

    @property
    def rows(self) -> int:
        return min(self.samples, WAVE)


@dataclass(frozen=True, kw_only=True)
class TaggedSettings(FillSettings):
    """Samplers of models with tags."""

    tags: TagSource = setting(  # noqa: RUF009 (a field, which ruff cannot see)
        "read", "tags that nobody gave: read off the given sentences, or all free", not_for_people=("peek",)
    )


@dataclass(frozen=True, kw_only=True)
class BridgeFillSettings(RuledSettings, TaggedSettings):
    """All Z jointly given the given sentences, then the missing sentences by particles."""

    fluency: float = setting(
        3.0, "weight of the mean log-probability per written word in the ranking", at_least=0, plain=0.0
    )
    """Ours, because at 0 the story wins whose ending is most expected, however odd the way there."""
    twist_weight: float = setting(
        0.5, "how much the next given sentence weighs what is written on the way to it", at_least=0, plain=0.0
    )
    context: float = setting(
        5.0, "weight in the ranking of what the story so far adds to the log-probability per written word",
        at_least=0, plain=0.0,
    )  # fmt: skip
    agreement: float = setting(
        3.0, "what a repeated sentence or word, or a pronoun without a possible antecedent, costs in the ranking",
        at_least=0, plain=0.0,
    )  # fmt: skip
    rank: Literal["critic", "ending", "density"] = setting(
        "ending", "what candidates are ranked by: the critic (how well the story holds together, with a little of the "
        "other two), how well they lead to what is given after them, or how probable they are",
        doors=EVERYWHERE, plain="ending", shown="critic where the model has one, else ending",
    )  # fmt: skip
    arc_weight: float = setting(
        0.0, "what a written sentence costs in weights and ranking when its tagger does not give it the tag asked for",
        at_least=0, plain=0.0,
    )  # fmt: skip
    guide: float = setting(
        0.0, "how much the critic's value of the story so far weighs, while more is to be written; 0: it ranks only",
        at_least=0, plain=0.0,
    )  # fmt: skip
    z_observes: Literal["given", "past"] = setting(
        "given", "what Z is drawn knowing: all given sentences, or those before the first blank", doors=()
    )
    at_once: bool = setting(False, "whether all samples are drawn side by side, without an early answer", doors=())

    def for_last_answer(self) -> BridgeFillSettings:
        return replace(self, at_once=True)


@dataclass(frozen=True, kw_only=True)
class GibbsFillSettings(TaggedSettings):
    """The paper's sampler (Section 4), which draws from the model itself."""

    top_k: int | None = setting(
        None, "words to choose among; 1 greedy, 0 all", at_least=0, http=(0, 1_000_000), doors=EVERYWHERE,
        shown="1, or 15 where sentences are sampled",
    )  # fmt: skip
    temperature: float = setting(
        1.0, "of the words that are drawn: lower safer, higher bolder, 1 the model's own", above=0, http=(0.05, 5),
        doors=EVERYWHERE,
    )  # fmt: skip
    """An X step decodes greedily, or undoes the temperature in its weights: it proposes at 1."""
    chains: int | None = setting(
        None, "chains, which share the samples", at_least=1, doors=("cli", "python"), shown=f"{CHAINS} at most"
    )
    """None: `CHAINS`, or fewer for few samples. The paper: 1."""
    x_step: Literal["greedy", "sampled"] = setting(
        "greedy", "decode missing sentences greedily (the paper) or draw them given all that follows",
        doors=("cli", "python"),
    )  # fmt: skip
    score: Literal["given", "last"] = setting(
        "given", "rank by all given sentences (the paper) or the last one (the authors' code)", doors=("cli", "python")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.x_step == "sampled" and self.top_k == 1:
            raise UserError("a sampled X step needs words to choose among: top_k is 1", field="top_k")

    @property
    def rows(self) -> int:
        """How many chains share the samples."""
        return min(self.samples, self.chains or min(CHAINS, -(-self.samples // SWEEPS)))


def declared(entry: Field[Any]) -> Declared:
    """What a field says about itself; a field without a declaration is Python's alone."""
    found: Declared = entry.metadata.get("declared", Declared(help=""))
    return found


_types: dict[type, Mapping[str, Any]] = {}


def types_of(cls: type) -> Mapping[str, Any]:
    """The type of every field; worked out once for a class, for that takes a millisecond."""
    if cls not in _types:
        _types[cls] = get_type_hints(cls)
    return _types[cls]


def choices(hint: Any) -> tuple[str, ...]:
    """The values of a `Literal`; none of another type."""
    return get_args(hint) if get_origin(hint) is Literal else ()


def offered(cls: type[FillSettings], door: Door) -> dict[str, Field[Any]]:
    """The settings of a class that may be set through a door."""
    return {entry.name: entry for entry in fields(cls) if door in declared(entry).doors}


def choose(name: str, cls: type[FillSettings], chosen: Mapping[str, Any]) -> FillSettings:
    """A sampler's settings as a person chose them; None is "not chosen", and a setting it does not have is an error."""
    has, hints, said = offered(cls, "python"), types_of(cls), {}
    for key, value in chosen.items():
        if value is None:
            continue
        if key not in has:
            raise UserError(f"{name} has no setting {key!r}; it has {', '.join(has)}", field=key)
        rule = declared(has[key])
        said[key] = checked(key, value, hints[key], rule, barred=rule.not_for_people)
    return cls(**said)


def checked(name: str, value: Any, hint: Any, rule: Declared, barred: Sequence[str] = ()) -> Any:
    """The value in its declared type, or a `UserError`: numpy's numbers are converted, text is not."""
    options = () if choices(hint) else get_args(hint)
    if NoneType in options:
        if value is None:
            return None
        (hint,) = (option for option in options if option is not NoneType)
    if choices(hint):
        allowed = [choice for choice in choices(hint) if choice not in barred]
        if not isinstance(value, str) or value not in allowed:
            raise UserError(f"{name} must be {' or '.join(allowed)}, not {value!r}", field=name)
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

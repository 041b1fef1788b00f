"""What a recipe may say about a model: sizes and choices, each with whose value it is."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from fabula.errors import UserError


@dataclass(frozen=True, kw_only=True)
class LanguageSettings:
    """p(X_i | Z_i, X_:i), and the LM, which is the same without Z."""

    embedding: int = 512
    """Width of the word vectors. The paper's SLDS: 300. Ours 512, tied to the output."""
    hidden: int = 1024
    """Width of each GRU layer. The paper's SLDS: 1024; its LM and S2S: 512."""
    layers: int = 1
    """GRU layers. The paper's SLDS: 1; its LM and S2S: 2."""
    tied: bool = True
    """Whether the output layer is the embedding, behind a projection. Ours: better and half the size."""
    dropout: float = 0.5
    """On embeddings, between layers and before the output; one mask per story. The authors' code: 0.25."""
    latent_to_output: bool = True
    """Whether Z also enters before the output layer (ours) or only beside each word (the authors' code)."""

    def __post_init__(self) -> None:
        check(self, "above 0", "embedding", "hidden", "layers")
        check(self, "at least 0 and below 1", "dropout")


@dataclass(frozen=True, kw_only=True)
class DynamicsSettings:
    """p(Z_i | Z_{i-1}, S_i)."""

    latent: int = 64
    """D. The authors' code: 32."""
    noise: Literal["diagonal"] = "diagonal"
    """B, as in the authors' code."""
    primitives: int = 0
    """Shared primitives that every state's A, bias and Sigma are mixed of; 0: each state has its own (the paper)."""
    rank: int = 8
    """Of each primitive beside its diagonal; 0: full matrices. Ours."""
    factors: str = ""
    """The numbers of labels of the state's factors, such as "3,6"; empty: one factor."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the factors; none said: ()."""
        return tuple(int(size) for size in self.factors.split(",")) if self.factors else ()

    def __post_init__(self) -> None:
        check(self, "above 0", "latent")
        check(self, "at least 0", "primitives", "rank")
        if self.factors and not all(size.strip().isdigit() and int(size) for size in self.factors.split(",")):
            raise ValueError(f'factors must be whole numbers such as "3,6", not {self.factors!r}')


@dataclass(frozen=True, kw_only=True)
class RecognitionSettings:
    """q(S_i | X) and the evidence potential phi_i of q(Z_i | Z_{i-1}, S_i, X)."""

    encoder: Literal["sentence", "story"] = "sentence"
    """`sentence`: phi_i reads X_i alone, so that a given sentence's evidence never depends on a missing one (ours).
    `story`: one GRU carried from sentence to sentence (the paper)."""
    hidden: int = 512
    """Width of the encoder. The paper: 1024."""
    dropout: float = 0.3
    """On the encoder's embeddings and its output. Ours."""

    def __post_init__(self) -> None:
        check(self, "above 0", "hidden")
        check(self, "at least 0 and below 1", "dropout")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Which system, and the sizes of its parts; parts a system does not have are left at their defaults."""

    kind: str = "slds"
    """`slds`, `lds`, `lm`, `s2s`, or a kind that an installed package adds (`models/protocol.py`)."""
    language: LanguageSettings = field(default_factory=LanguageSettings)
    dynamics: DynamicsSettings = field(default_factory=DynamicsSettings)
    recognition: RecognitionSettings = field(default_factory=RecognitionSettings)


LARGEST = 2**63 - 1
"""What a seed may be at most; it also keeps out TOML's inf and nan."""
RANGES: dict[str, Callable[[float], bool]] = {
    "above 0": lambda value: 0 < value <= LARGEST,
    "at least 0": lambda value: 0 <= value <= LARGEST,
    "at least 0 and below 1": lambda value: 0 <= value < 1,
    "between 0 and 1": lambda value: 0 <= value <= 1,
}
T = TypeVar("T")


def check(settings: object, limits: str, *names: str) -> None:
    """That these settings are within one of `RANGES`."""
    for name in names:
        if not RANGES[limits](getattr(settings, name)):
            raise ValueError(f"{name} must be {limits}, not {getattr(settings, name)}")


def parse(kind: type[T], content: Any, path: str, ignore_unknown: bool = False) -> T:
    """A frozen settings dataclass from plain data; an unknown key and a wrong type fail with their path."""
    if not isinstance(content, dict):
        raise UserError(f"setting {path} must be a table")
    hints = typing.get_type_hints(kind)
    names = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in content.items():
        if key in names:
            values[key] = _value(hints[key], value, _join(path, key), ignore_unknown)
        elif not ignore_unknown:
            raise UserError(f"unknown setting {_join(path, key)}; known here: {', '.join(sorted(names))}")
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise UserError(f"setting {_join(path, str(error))}") from error


def _value(hint: Any, value: Any, path: str, ignore_unknown: bool) -> Any:
    if dataclasses.is_dataclass(hint):
        return parse(hint, value, path, ignore_unknown)  # type: ignore[arg-type]
    if typing.get_origin(hint) is Literal:
        if value not in typing.get_args(hint):
            choices = ", ".join(map(repr, typing.get_args(hint)))
            raise UserError(f"setting {path} must be one of {choices}, not {value!r}")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        expected = hint.__name__ if isinstance(hint, type) else str(hint)
        raise UserError(f"setting {path} must be a {expected}, not {value!r}")
    return value


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key

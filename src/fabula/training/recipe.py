"""A recipe: one TOML file that says everything about a training run."""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from fabula.errors import UserError
from fabula.models.settings import ModelSettings, not_negative, positive, shares

Law = Literal["filtering", "smoothing", "switching"]
"""What q(Z | X) a bound is measured with; `switching` is filtering under a state that each sentence commits to."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings:
    """What is maximised, and how much of S it may see."""

    kind: Literal["paper", "collapsed"] = "collapsed"
    """`paper`: L and L_S with a sampled S. `collapsed` (ours): S summed out exactly, no sample of it."""
    gumbel: Literal["soft", "hard"] = "soft"
    """How S is sampled in the paper's objective where it is not labelled. The paper: soft."""
    temperature: float = 1.0
    """Of the Gumbel-Softmax. The authors' code: 1."""
    labelled: float = 1.0
    """Share of stories whose tags are seen; the rest are unlabelled. The paper: 1, 0.01, 0.1, 0.25, 0.5."""
    factor_shares: str = ""
    """Of a state of several factors (`model.dynamics.factors`), the share of stories in which each is seen, such as
    "1,0.01"; empty: all that `labelled` leaves. Collapsed objective only. Ours."""
    label_seed: int = 0
    """Draws which stories are labelled."""
    alpha: float = 1.0
    """Weight of log q(S_i) where labelled. The paper: 1."""
    labelled_per_step: int = 0
    """Labelled stories read again at every step for the log q(S_i) term alone; for small shares. Ours."""
    labelled_share: float = 0.0
    """Labelled stories added to every batch, as a share of it, with all terms of L_S: at 1 % of labels the dynamics
    would meet five labelled stories in a batch of 512. Ours."""
    valence_penalty: float = 0.0
    """Weight of the absolute value of each word's free weight towards a tag, which keeps them sparse. Ours."""
    clamp_tags: bool = True
    """Whether labelled tags also enter p(Z, S) (the paper), or teach q(S | X) alone and S stays summed out."""
    posterior: Literal["filtering", "smoothing"] = "filtering"
    """`filtering`: Z_i is given X_i and Z_{i-1} (the paper). `smoothing`: all Z jointly, given every sentence."""
    evidence_dropout: float = 0.0
    """Share of sentences whose phi_i is left out of q(Z | X) in training: their words must then be told by the Z of
    the others, which is what infilling asks. Any q gives a bound, so the objective stays one. Ours."""
    whole_stories: float = 0.0
    """Share of stories that evidence dropout leaves alone, so that q(Z | X) of a whole story is trained too. Ours."""
    target_kl: float = 0.0
    """Nats of KL(Z) per story below which the KL costs nothing: max(KL, target). Ours."""
    kl_weight: float = 1.0
    """Final weight of KL(Z); 1 is the bound. The authors' code: about 0.8."""
    kl_warmup: float = 1.0
    """Epochs over which the KL's weight rises from 0."""
    other_words: float = 0.0
    """Weight of a head that predicts, from Z_i, the content words of the story's other sentences. Ours."""

    @property
    def law(self) -> Law:
        """The q(Z | X) with which the trained model's bound is measured.

        After training with a sampled S (`paper`), S is drawn for every sentence (`switching`). After training with S
        summed out, q is as in training: the dynamics are mixed by q(S | X).
        """
        return "switching" if self.kind == "paper" and self.posterior == "filtering" else self.posterior

    def __post_init__(self) -> None:
        positive(self, "temperature")
        not_negative(self, "label_seed", "alpha", "labelled_per_step", "valence_penalty", "target_kl", "kl_weight")
        not_negative(self, "kl_warmup", "other_words")
        shares(self, "evidence_dropout", "whole_stories", "labelled_share")
        if self.factor_shares and self.kind != "collapsed":
            raise ValueError("factor_shares needs the collapsed objective: the paper's samples whole states")
        if not 0 <= self.labelled <= 1:
            raise ValueError(f"labelled must be between 0 and 1, not {self.labelled}")
        for name in ("labelled_per_step", "labelled_share"):
            if getattr(self, name) and not self.labelled:
                raise ValueError(f"{name} needs labelled stories: labelled is 0")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How it is maximised."""

    epochs: int = 30
    """At most. The paper stops by patience alone."""
    patience: int = 3
    """Epochs without a better validation figure before stopping (the paper's rule)."""
    keep: Literal["best", "last"] = "best"
    """Whose weights a run ends with. The figure pays for a hard S; where training mixes states softly it may rise while
    the objective still improves: then `last` keeps what the objective made, and patience never stops a run."""
    batch: int = 256
    """Stories per step. The authors' code: 100."""
    learning_rate: float = 1e-3
    """Of the networks (Adam). The paper: PyTorch's default, 1e-3."""
    learning_rate_dynamics: float = 1e-3
    """Of A, bias and B. The authors' code: 5e-4."""
    schedule: Literal["plateau", "cosine"] = "plateau"
    """`plateau`: x decay when an epoch is no better. `cosine`: from the full rate to nothing over all epochs."""
    decay: float = 0.3
    """What a plateau multiplies the rates by. Ours."""
    warmup_steps: int = 0
    """Steps over which the rates rise to their full height. Ours."""
    weight_decay: float = 0.0
    """Decoupled (AdamW); 0 is Adam, the paper's."""
    clip: float = 5.0
    """Gradient norm. The authors' code: 5."""
    average: float = 0.0
    """Decay per step of the running average of the weights that is evaluated and kept; 0 keeps the last weights."""
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """Of the matrix products on CUDA; the CPU always computes in float32."""
    swap_names: float = 0.0
    """Share of stories in which every step trades names for others of like use and frequency. Ours."""
    seed: int = 0
    parts: int = 0
    """Parts that a batch is worked on in, which processes share (`training/parallel.py`); 0: one for each process.
    Ours: the same number gives the same parameters in any number of processes. The KL's target is each part's."""

    def __post_init__(self) -> None:
        shares(self, "swap_names")
        positive(self, "epochs", "patience", "batch", "learning_rate", "learning_rate_dynamics", "clip", "decay")
        not_negative(self, "warmup_steps", "weight_decay", "seed", "parts")
        shares(self, "average")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything a run needs besides the corpus."""

    name: str
    model: ModelSettings = field(default_factory=ModelSettings)
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    train: TrainSettings = field(default_factory=TrainSettings)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def read_recipe(path: Path) -> Recipe:
    """A recipe from its file; what is wrong in it is named by its path."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the recipe {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error
    content.setdefault("name", Path(path).stem)
    return recipe_from(content)


RETIRED: dict[str, Any] = {
    "model.language.word_dropout": 0.0,
    "model.language.history_dropout": 0.0,
    "model.scaffold": {"learn": False},
    "objective.hide_tags": 0.0,
    "objective.own_gain": 1.0,
    "objective.link_gain": 1.0,
    "objective.contrast": 0.0,
    "objective.own_words": 0.0,
}
"""Settings of training that did not help (docs/log.md), each with the value at which it did nothing."""


def recipe_from(content: Any, *, trained: bool = False) -> Recipe:
    """A recipe from plain data, which may be older than this code.

    Retired settings are dropped where they did nothing. With another value they are an error, but not in the recipe of
    a model that is `trained` already: they changed its weights, not the way it is used.
    """
    return parse(Recipe, content, "", trained)


T = TypeVar("T")


def parse(kind: type[T], content: Any, path: str, trained: bool = False) -> T:
    """A frozen settings dataclass from plain data, strictly: unknown keys and wrong types fail with their path."""
    if not isinstance(content, dict):
        raise UserError(f"setting {path} must be a table")
    hints = typing.get_type_hints(kind)
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in content.items():
        place = _join(path, key)
        if key in known:
            values[key] = _value(hints[key], value, place, trained)
        elif place not in RETIRED:
            raise UserError(f"unknown setting {place}; known here: {', '.join(sorted(known))}")
        elif not trained and value != RETIRED[place]:
            raise UserError(f"setting {place} is retired, because it did not help (docs/log.md); leave it out")
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise UserError(f"setting {_join(path, str(error))}") from error


def _value(hint: Any, value: Any, path: str, trained: bool) -> Any:
    if dataclasses.is_dataclass(hint):
        return parse(hint, value, path, trained)  # type: ignore[arg-type]
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

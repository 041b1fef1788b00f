"""A recipe: one TOML file that says everything about a training run besides its stories.

Recipes of models that train on a prepared corpus have the tables [model], [objective] and [train]. Recipes that adapt
the pretrained base are flat and name their `kind`: narrator, preference or critic.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fabula.corpus.taggers.protocol import DEFAULT_TAGGER
from fabula.errors import UserError, file_errors
from fabula.models.settings import ModelSettings, check, parse


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
    """Share of stories whose tags are seen. The paper: 1, 0.01, 0.1, 0.25, 0.5."""
    label_seed: int = 0
    """Draws which stories are labelled."""
    alpha: float = 1.0
    """Weight of log q(S_i) where labelled. The paper: 1."""
    labelled_per_step: int = 0
    """Labelled stories read again at every step for the log q(S_i) term alone; for small shares. Ours."""
    clamp_tags: bool = True
    """Whether labelled tags also enter p(Z, S) (the paper), or teach q(S | X) alone and S stays summed out."""
    posterior: Literal["filtering", "smoothing"] = "filtering"
    """`filtering`: Z_i is given X_i and Z_{i-1} (the paper). `smoothing`: all Z jointly, given every sentence."""
    evidence_dropout: float = 0.0
    """Share of sentences whose phi_i is left out of q(Z | X) in training, as infilling does; still a bound. Ours."""
    target_kl: float = 0.0
    """Nats of KL(Z) per story below which the KL costs nothing: max(KL, target). Ours."""
    kl_weight: float = 1.0
    """Final weight of KL(Z); 1 is the bound. The authors' code: about 0.8."""
    kl_warmup: float = 1.0
    """Epochs over which the KL's weight rises from 0."""

    def __post_init__(self) -> None:
        check(self, "above 0", "temperature")
        check(self, "at least 0", "label_seed", "alpha", "labelled_per_step", "target_kl", "kl_weight", "kl_warmup")
        check(self, "at least 0 and below 1", "evidence_dropout")
        check(self, "between 0 and 1", "labelled")
        if self.labelled_per_step and not self.labelled:
            raise ValueError("labelled_per_step needs labelled stories: labelled is 0")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How the objective is maximised."""

    epochs: int = 30
    """At most. The paper stops by patience alone."""
    patience: int = 3
    """Epochs without a better validation figure before stopping (the paper's rule)."""
    keep: Literal["best", "last"] = "best"
    """Whose weights a run ends with. `last`: patience never stops a run, and its validation figure may rise."""
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
    seed: int = 0

    def __post_init__(self) -> None:
        check(self, "above 0", "epochs", "patience", "batch")
        check(self, "above 0", "learning_rate", "learning_rate_dynamics", "clip", "decay")
        check(self, "at least 0", "warmup_steps", "weight_decay", "seed")
        check(self, "at least 0 and below 1", "average")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that a model of a prepared corpus (SLDS, LDS, LM, S2S) needs besides the corpus."""

    name: str
    model: ModelSettings = field(default_factory=ModelSettings)
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    train: TrainSettings = field(default_factory=TrainSettings)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True, kw_only=True)
class AdapterRecipe:
    """What all adapters of the pretrained base share; all values are ours."""

    name: str
    kind: str
    base: str = ""
    """The base to adapt, a GGUF file or a Hugging Face folder; empty is SmolLM2 as installed."""
    start: str = ""
    """The folder of an adapter of the same rank and scale to begin from; empty: anew."""
    rank: int = 16
    """Of the adapters."""
    scale: float = 2.0
    """What b a is multiplied by."""
    top: int = 0
    """Only the last so many layers learn, which a CPU can do; 0: all. `start` then has the adapter of the others."""
    epochs: int = 1
    batch: int = 64
    """Rows, or pairs, of a step."""
    learning_rate: float = 3e-4
    """Of a and the special tokens; b's is four times it (as LoRA+)."""
    seed: int = 0

    def __post_init__(self) -> None:
        check(self, "above 0", "rank", "scale", "epochs", "batch", "learning_rate")
        check(self, "at least 0", "seed", "top")

    @property
    def train(self) -> TrainSettings:
        """How the loop trains an adapter: through all epochs, and the last weights are kept."""
        return TrainSettings(
            epochs=self.epochs, keep="last", schedule="cosine", weight_decay=0.01, clip=1.0, seed=self.seed
        )

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True, kw_only=True)
class NarratorRecipe(AdapterRecipe):
    """The narrator's adapter, trained on raw stories."""

    kind: str = "narrator"
    tagger: str = DEFAULT_TAGGER
    """Whose tags the rows carry; several joined by commas, each a factor of the state (`vader,emotion,verb`)."""
    epochs: int = 2
    batch: int = 32
    learning_rate: float = 4e-4
    schedule: Literal["cosine"] = "cosine"
    """After the warm-up a half cosine to a twentieth."""
    plain: float = 0.4
    """Share of the rows without a header."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "at least 0 and below 1", "plain")


@dataclass(frozen=True, kw_only=True)
class PreferenceRecipe(NarratorRecipe):
    """A narrator that learns which of two versions of a story is the better one."""

    kind: str = "preference"
    epochs: int = 1
    learning_rate: float = 5e-5
    beta: float = 4.0
    """Of the length-normalised preference loss: how far a token's log probability may move."""
    imitation: float = 0.1
    """Weight of the better version's own mean log probability."""
    hold: float = 1.0
    """Weight of KL(r_0 || r) on people's stories."""
    held: int = 32
    """Rows of people's stories of a step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "above 0", "beta", "held")
        check(self, "at least 0", "imitation", "hold")
        if not self.start:
            raise UserError("a recipe of kind preference needs the folder of a narrator: `start`", field="start")


@dataclass(frozen=True, kw_only=True)
class CriticRecipe(AdapterRecipe):
    """The critic: it tells people's stories from corrupted and machine-written ones."""

    kind: str = "critic"
    narrator: str = ""
    """The folder of the narrator that the critic adds to."""
    rank: int = 8
    without: str = ""
    """Kinds of negatives that are left out, with blanks between: corrupted, cloze, and those of the data."""
    share: float = 1.0
    """Share of the pairs that is used."""
    readings: int = 0
    """Readings of a step, of the data's readings*.jsonl; 0: none."""
    ending: float = 0.1
    """Weight, when candidates are ranked, of log p of the given sentences that follow the writing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "above 0", "share")
        check(self, "at least 0", "readings")
        if not self.narrator:
            raise UserError("a recipe of kind critic adds to a narrator: give the folder `narrator`", field="narrator")


STEPS_PER_EPOCH = 20
"""At least so many are advised where stories are few."""
ADAPTERS: dict[str, type[AdapterRecipe]] = {
    "narrator": NarratorRecipe, "preference": PreferenceRecipe, "critic": CriticRecipe,
}  # fmt: skip


def read_any_recipe(path: Path, settings: Mapping[str, Any] | None = None) -> Recipe | AdapterRecipe:
    """A recipe of any kind from its file, with changed settings by path; a mistake in it is named by its path."""
    try:
        with file_errors(f"cannot read the recipe {path}"):
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error
    content = changed({"name": Path(path).stem, **content}, settings or {})
    if "kind" not in content:
        return recipe_from(content)
    if content["kind"] not in ADAPTERS:
        kinds = f"there are {', '.join(ADAPTERS)}; a recipe of the paper's models names none"
        raise UserError(f"{path} is of kind {content['kind']}: {kinds}", field="recipe")
    return parse(ADAPTERS[content["kind"]], content, "")


def changed(content: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's plain data with other values: `{"train.batch": 16}`."""
    copy: dict[str, Any] = json.loads(json.dumps(content))
    for path, value in settings.items():
        *tables, key = path.split(".")
        table: Any = copy
        for name in tables:
            table = table.setdefault(name, {}) if isinstance(table, dict) else None
        if not isinstance(table, dict):
            raise UserError(f"no recipe has a setting {path}", field="set")
        table[key] = value
    return copy


def check_steps(recipe: Recipe, stories: int) -> None:
    """Refuse a recipe for far more stories than there are: its warm-up would not end, or take half of the run."""
    settings = recipe.train
    steps = settings.epochs * math.ceil(stories / settings.batch)
    if 2 * settings.warmup_steps <= steps:
        return
    batch = min(settings.batch, max(8, 2 ** int(math.log2(max(1, stories / STEPS_PER_EPOCH)))))
    better = settings.epochs * math.ceil(stories / batch)
    advice = {"train.batch": batch, "train.warmup_steps": min(settings.warmup_steps, better // 10)}
    if settings.average:
        advice["train.average"] = min(settings.average, round(1 - 10 / better, 4))
    words = " ".join(f"--set {key}={value}" for key, value in advice.items())
    raise UserError(
        f"{stories:,} stories make {steps:,} steps, of which the rates would rise for {settings.warmup_steps:,}: "
        f"the recipe is for more stories. For {better:,} steps add {words}",
        field="recipe",
    )


def recipe_from(content: Any, *, trained: bool = False) -> Recipe:
    """A recipe from plain data; settings that an older Fabula had are ignored if the model is `trained` already."""
    return parse(Recipe, content, "", trained)

"""What a unit works with: the corpus, the chosen test stories, also in English, and the models, loaded once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fabula.corpus.dataset import Corpus, Stories
from fabula.corpus.tokenize import detokenise
from fabula.device import pick_device
from fabula.errors import UserError
from fabula.metrics.measure import check_same_corpus
from fabula.models.decoders.tokenizer import WordTokenizer
from fabula.models.io import Checkpoint, load, read_config
from fabula.sampling.rules import WordRules
from fabula.training.recipe import Recipe, changed, read_any_recipe, recipe_from
from fabula_paper.plan import FULL, HUMAN, MIDDLE, SENTENCES, SETTINGS, Scale, System, Unit
from fabula_paper.records import Records

UNKNOWN_WORD = "UNK"
"""How the paper prints a rare word; used where only the prepared corpus is at hand."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One call of `fabula reproduce`."""

    data: Path
    out: Path
    recipes: Path
    scale: Scale = FULL
    device: str = "auto"
    models: Mapping[str, Path] = field(default_factory=dict)
    """Checkpoints that are there already, by system."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings changed in every recipe that is trained; recorded."""
    as_it_stands: bool = False
    """Trainings that the clock stopped are noted with the weights of their best epoch, and not trained on."""
    seed: int = 0
    memory_gib: float = 2.0
    """Memory for the scores of a sampler; several samplers share a card."""


@dataclass
class Outcome:
    """What became of the units, by their names."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Done by an earlier call."""
    waiting: list[str] = field(default_factory=list)
    """Not begun: a unit that they need is missing."""
    failed: dict[str, str] = field(default_factory=dict)
    """Scores that a scorer refused."""


class Bench:
    """Corpus, stories and models of one process."""

    def __init__(self, job: Job) -> None:
        self.job, self.records, self.device = job, Records(job.out), pick_device(job.device)
        self._loaded: dict[str, Checkpoint] = {}

    @cached_property
    def corpus(self) -> Corpus:
        return Corpus.open(self.job.data)

    @cached_property
    def test(self) -> Stories:
        return self.corpus.split("test")

    @cached_property
    def rows(self) -> list[int]:
        """The test stories that everyone fills in: of the usual length, in random order."""
        rows = np.flatnonzero(np.diff(self.test.story_offsets) == SENTENCES)
        if not len(rows):
            raise UserError(f"no story has {SENTENCES} sentences")
        return [int(row) for row in np.random.default_rng(self.job.seed).permutation(rows)[: self.job.scale.stories]]

    @cached_property
    def rules(self) -> WordRules:
        return WordRules.of(WordTokenizer(self.corpus.vocabulary), self.device)

    def words(self, row: int) -> list[list[int]]:
        """A test story as word ids."""
        return [sentence.tolist() for sentence in self.test.sentences(row)]

    def text(self, X: Tensor, lengths: Tensor, places: Sequence[int]) -> list[str]:
        """Some sentences of one story, words separated by blanks."""
        return [" ".join(self.corpus.vocabulary.decode(X[i, : int(lengths[i]) - 1].tolist())) for i in places]

    def tags(self, row: int) -> list[int]:
        return [int(tag) for tag in self.test.story_tags(row)]

    def folder(self, system: System) -> Path:
        """Where the system's checkpoint is or will be."""
        return Path(self.job.models.get(system.name) or self.job.out / "runs" / system.name)

    def changes(self, system: System) -> dict[str, Any]:
        """Settings that differ from the recipe's file: of the scale, of the caller, of the system."""
        return {**self.job.scale.changes, **self.job.changes, **system.changes}

    def recipe(self, system: System) -> Recipe:
        """The system's recipe, changed."""
        content = changed(read_recipe(self.job.recipes / system.recipe).to_dict(), self.changes(system))
        content["name"] = system.name if system.changes else content["name"]
        return recipe_from(content)

    def checkpoint(self, system: System) -> Checkpoint:
        """The system's model; the one loaded last stays in memory."""
        if system.name not in self._loaded:
            self._loaded.clear()
            checkpoint = load(self.folder(system), self.device)
            check_same_corpus(checkpoint, self.corpus)
            checkpoint.model.requires_grad_(False)
            self._loaded[system.name] = checkpoint
        return self._loaded[system.name]

    def write(self, unit: Unit, record: dict[str, Any], texts: Texts | None, began: float) -> None:
        """Write what was made, with the fields that every record has."""
        common = {
            "stage": unit.stage, "system": unit.system, "detail": unit.detail, "scale": self.job.scale.name,
            "seed": self.job.seed, "data_hash": self.corpus.hash, "seconds": round(time.perf_counter() - began, 2),
        }  # fmt: skip
        self.records.write(unit.name, {**common, **record}, texts)

    def made_by(self, system: System) -> dict[str, Any]:
        """The fields of every record that a model made."""
        device = torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu"
        weights = read_config(self.folder(system))["weights"].values()
        digests = ",".join(sorted(entry["sha256"][:12] for entry in weights))  # the beginnings
        return {"recipe": self.checkpoint(system).name, "weights": digests, "device": device}


Texts = list[dict[str, Any]]
Made = tuple[dict[str, Any], Texts | None]
"""A unit's record, and what it wrote."""


class EnglishStories:
    """The test stories in English, and the answers of units put into them."""

    def __init__(self, bench: Bench, raw: Path | None = None) -> None:
        self.bench, self.raw = bench, raw
        self.row_of = {name: row for row, name in enumerate(bench.test.ids)}

    @cached_property
    def typed(self) -> dict[str, list[str]]:
        """The sentences as they were typed, from the raw file."""
        if self.raw is None:
            return {}
        from fabula.corpus.read import Story, read_stories

        stories = {story.id: list(story.sentences) for story in read_stories(self.raw) if isinstance(story, Story)}
        if not set(stories) & set(self.bench.test.ids):
            raise UserError(f"--raw {self.raw} has none of the corpus's test stories", field="raw")
        return stories

    def true(self, story_id: str) -> list[str]:
        """The sentences of a test story."""
        if story_id in self.typed:
            return list(self.typed[story_id])
        decode = self.bench.corpus.vocabulary.decode
        return [
            detokenise([UNKNOWN_WORD if word == "<unk>" else word for word in decode(words)])
            for words in self.bench.words(self.row_of[story_id])
        ]

    def filled(self, story_id: str, lines: list[str], setting: str) -> list[str]:
        """The story with written lines in the places of a setting."""
        story = self.true(story_id)
        for place, line in zip(SETTINGS[setting], lines, strict=True):
            story[place] = english(line)
        return story

    def middles(self, name: str) -> list[list[str]]:
        """Whole stories of the middle-three setting by `system.sampler`, or people's own."""
        ids = [self.bench.test.ids[row] for row in self.bench.rows]
        if name == HUMAN:
            return [self.true(story_id) for story_id in ids]
        lines = {text["id"]: text["lines"] for text in self.bench.records.texts(middle_unit(name))}
        return [self.filled(story_id, lines[story_id], MIDDLE) for story_id in ids if story_id in lines]


def middle_unit(name: str) -> str:
    """The unit that wrote the middle three sentences by `system.sampler`."""
    system, _, sampler = name.partition(".")
    return f"sample/{system}.{MIDDLE}.{sampler}"


def english(line: str) -> str:
    """Words separated by blanks as a written sentence."""
    return detokenise(line.split(" "))


def read_recipe(path: Path) -> Recipe:
    """The recipe of a model of a prepared corpus, from its file."""
    recipe = read_any_recipe(path)
    if not isinstance(recipe, Recipe):
        raise UserError(f"{path} is of kind {recipe.kind}: it adapts the pretrained base", field="recipe")
    return recipe

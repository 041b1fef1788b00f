"""Learning of a narrator from preferences between versions of stories (`losses/preference.py`).

The folder holds train.csv and valid.csv, and pairs.jsonl with lines
{"sentences": [...], "missing": [1, 2, 3], "better": [...], "worse": [...]}: a story, the numbers of its missing lines
(from 0), and two versions of these. Readers and critics prefer short lines, so lengths are held: a pair of unequal
lengths is refused, and so are pairs that are unequal on average.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fabula.errors import UserError
from fabula.models.decoders.rows import FREE, Row, row
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.training.learner import batches_of_like_lengths
from fabula.training.losses.lm import log_p_of, scores_of
from fabula.training.losses.preference import Preference, divergence, preference_loss, row_means
from fabula.training.narrator import POOL, WORDS, NarratorLearner
from fabula.training.recipe import PreferenceRecipe

UNEQUAL, ON_AVERAGE = 0.1, 0.1
"""By which share the words of two versions may differ, and by how many words a line on average over all pairs."""


def words(lines: Sequence[str]) -> int:
    return sum(len(line.split()) for line in lines)


def equal_lengths(better: Sequence[str], worse: Sequence[str]) -> bool:
    """Whether two versions are of about one length."""
    longer, shorter = max(words(better), words(worse)), min(words(better), words(worse))
    return longer - shorter <= UNEQUAL * longer


def read_pairs(file: Path, encode: SubwordTokenizer) -> list[Preference]:
    """Pairs of equal length as rows; otherwise one line that says what is wrong."""
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        pairs, difference, written = [], 0, 0
        for number, entry in enumerate(lines, 1):
            versions = entry["better"], entry["worse"]
            if not equal_lengths(*versions):
                raise UserError(f"{file}, line {number}: the versions differ in length by over a tenth", field="data")
            difference += words(versions[0]) - words(versions[1])
            written += len(entry["missing"])
            rows = (version_row(entry["sentences"], entry["missing"], version, encode) for version in versions)
            pairs.append(Preference(*rows))
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}", field="data") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} does not hold pairs: {error}", field="data") from error
    if not pairs or abs(difference) >= ON_AVERAGE * written:
        mean = f"{difference / max(1, written):+.2f} words a line"
        raise UserError(f"{file}: the better versions are longer or shorter on average ({mean})", field="data")
    return pairs


def version_row(story: Sequence[str], missing: Sequence[int], version: Sequence[str], encode: SubwordTokenizer) -> Row:
    """The row of a story with a version of its missing lines, its moods free."""
    sentences = list(story)
    for i, line in zip(missing, version, strict=True):
        sentences[i] = line
    ids = [tokens[:WORDS] for tokens in encode.encode_all(sentences)]
    whole = row(ids, [FREE] * len(ids), set(missing), set(missing))
    end = len(whole.counted) - whole.counted[::-1].index(1)  # what follows the last missing line is in the header
    return Row(whole.ids[:end], whole.counted[:end])


class PreferenceLearner(NarratorLearner):
    """A narrator on the pairs of a folder, held to what it was on people's stories."""

    terms: ClassVar[tuple[str, ...]] = ("preference", "divergence", "preferred")
    recipe: PreferenceRecipe

    def __init__(self, recipe: PreferenceRecipe, data: Path, device: torch.device) -> None:
        super().__init__(recipe, data, device)
        self.pairs = read_pairs(data / "pairs.jsonl", self.encode)
        self.log_p_before: dict[tuple[int, ...], Tensor] = {}
        self.before = {
            name: tensor.detach().clone() for name, tensor in self.network.named_parameters() if tensor.requires_grad
        }

    def batches(self, epoch: int) -> list[list[Any]]:
        """Every pair once, with rows of people's stories behind the pairs of a batch."""
        rng, recipe = random.Random(f"{self.recipe.seed} {epoch}"), self.recipe
        order = rng.sample(self.pairs, len(self.pairs))
        batches = batches_of_like_lengths(order, recipe.batch, POOL, lambda pair: len(pair.better.ids), rng)
        stories = itertools.cycle(rng.sample(range(len(self.train.X)), len(self.train.X)))
        return [[*batch, *(self.random_row(next(stories), rng) for _ in range(recipe.held))] for batch in batches]

    def loss(self, batch: list[Any], step: int, per_epoch: int) -> tuple[Tensor, Float[Tensor, " term"]]:
        pairs = [example for example in batch if isinstance(example, Preference)]
        held = [example for example in batch if isinstance(example, Row)]
        rows = [pair.better for pair in pairs] + [pair.worse for pair in pairs]
        with torch.no_grad():
            self.exchange()
            new = [row for row in rows if tuple(row.ids) not in self.log_p_before]
            if new:
                means = row_means(log_p_of(self.network, new), new)
                self.log_p_before |= dict(zip((tuple(row.ids) for row in new), means, strict=True))
            before = torch.stack([self.log_p_before[tuple(row.ids)] for row in rows])
            held_before = scores_of(self.network, held)[0].log_softmax(-1)
            self.exchange()
        now = row_means(log_p_of(self.network, rows), rows)
        loss, margin = preference_loss(before, now, self.recipe.beta, self.recipe.imitation)
        kept = divergence(held_before, scores_of(self.network, held)[0].log_softmax(-1))
        terms = torch.stack([loss.detach(), kept.detach(), (margin > 0).float().mean()])
        return loss + self.recipe.hold * kept, terms

    @torch.no_grad()
    def exchange(self) -> None:
        """The weights now against those of the beginning, in place: called twice, everything is as it was."""
        for name, parameter in self.network.named_parameters():
            if name in self.before:
                now = parameter.detach().clone()
                parameter.copy_(self.before[name])
                self.before[name] = now

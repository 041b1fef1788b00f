"""Expert iteration: a narrator learns from the better and the worse of its own samples (`losses/preference.py`)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from fabula.errors import UserError
from fabula.models.decoders.rows import FREE, row
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.training.adapter import WORDS
from fabula.training.losses.preference import Preference, log_r, pair_loss, people_loss
from fabula.training.narrator import NarratorLearner
from fabula.training.recipe import PreferenceRecipe


def read_preferences(file: Path, encode: SubwordTokenizer) -> list[Preference]:
    """Of lines {"missing": numbers, "better": sentences, "worse": sentences}."""
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}", field="data") from error
    pairs = []
    for line in lines:
        stories = [[tokens[:WORDS] for tokens in encode.encode_all(line[which])] for which in ("better", "worse")]
        better, worse = (row(story, [FREE] * len(story), line["missing"], line["missing"]) for story in stories)
        pairs.append(Preference(better, worse))
    return pairs


class PreferenceLearner(NarratorLearner):
    """The narrator on train.csv, valid.csv and preferences.jsonl of a folder."""

    terms = ("loss", "preferred")
    recipe: PreferenceRecipe

    def __init__(self, recipe: PreferenceRecipe, data: Path, device: torch.device) -> None:
        super().__init__(recipe, data, device)
        pairs = read_preferences(data / "preferences.jsonl", self.encode)
        pairs.sort(key=lambda pair: len(pair.better.ids))
        parts = [pairs[i : i + recipe.batch] for i in range(0, len(pairs), recipe.batch)]
        self.network.eval()
        self.pairs = [self.with_log_r0(part) for part in parts]
        self.anchor = self.new_network(recipe.anchor_to or recipe.start).eval() if recipe.anchor else None

    @torch.no_grad()
    def with_log_r0(self, pairs: list[Preference]) -> list[Preference]:
        """The pairs with log r_0 of the narrator as it is now."""
        log_r0 = log_r(self.network, pairs)[0].T.tolist()
        return [Preference(pair.better, pair.worse, *both) for pair, both in zip(pairs, log_r0, strict=True)]

    def batches(self, epoch: int) -> list[list[Any]]:
        """Every pair once, with rows of people's stories behind the pairs of a batch."""
        rng = random.Random(self.recipe.seed + epoch)
        count = min(self.recipe.human_rows, len(self.train.X))
        batches = []
        for number in rng.sample(range(len(self.pairs)), len(self.pairs)):
            stories = rng.sample(range(len(self.train.X)), count)
            batches.append([*self.pairs[number], *(self.random_row(story, rng) for story in stories)])
        return batches

    def weigh(self, batch: list[Any]) -> float:
        return float(len(batch))

    def loss(self, batch: list[Any], step: int, per_epoch: int) -> tuple[Tensor, Float[Tensor, " term"]]:
        pairs = [example for example in batch if isinstance(example, Preference)]
        rows = [example for example in batch if not isinstance(example, Preference)]
        loss, preferred = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        if pairs:
            loss, margin = pair_loss(self.network, pairs, self.recipe)
            preferred = (margin > 0).float().mean()
        if rows:
            loss = loss + people_loss(self.network, rows, self.recipe, self.anchor)
        return loss, torch.stack([loss.detach(), preferred])

    def figures(self, step: int, last: dict[str, Any]) -> dict[str, Any]:
        """`preferred` is the share of pairs of the last epoch whose better sample had gained on the worse."""
        pairs, preferred = sum(map(len, self.pairs)), last["train"]["preferred"]
        return {"valid_nll": last["valid_nll"], "steps": step, "pairs": pairs, "preferred": preferred}

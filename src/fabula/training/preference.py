"""Expert iteration: a narrator learns from the better and the worse of its own tellings (DPO, Rafailov et al. 2023).

For a prompt with the tellings b (better) and w (worse) of its missing sentences, with r the narrator in training and
r_0 as it began,

    loss = -log sigmoid(beta [log r(b)/r_0(b) - log r(w)/r_0(w)])  -  imitation * log r(b) per token
           - people * (log-likelihood per token of people's stories, in rows as in training)
           + anchor * KL(r_0 || r) per token of the same rows (r_0 here: the narrator `anchor_to`)

The last two keep p and r what they were learnt for: without them the narrator forgets how people tell. The likelihood
goes on learning from stories that were learnt from before, and comes to know them by heart; the divergence does not.
With a `plain` near 1 these rows have no header: p stays, and r, which proposes where lines are given, may move.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from fabula.device import pick_device
from fabula.errors import UserError
from fabula.models.decoders.rows import FREE, Row, row
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Transformer
from fabula.training.narrator import WORDS, Run, log_p_of, logits_of, random_row_of
from fabula.training.recipe import PreferenceRecipe
from fabula.training.stories import Stories


class Preference(NamedTuple):
    """Two tellings as rows that count their missing sentences."""

    better: Row
    worse: Row


def read_preferences(file: Path, encode: SubwordTokenizer) -> list[Preference]:
    """Of lines {"missing": numbers, "better": sentences, "worse": sentences}."""
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}", field="data") from error
    found = []
    for line in lines:
        rows = []
        for telling in (line["better"], line["worse"]):
            story = [tokens[:WORDS] for tokens in encode.encode_all(telling)]
            rows.append(row(story, [FREE] * len(story), line["missing"], line["missing"]))
        found.append(Preference(*rows))
    return found


def log_r(run: Run, rows: Sequence[Row]) -> tuple[Float[Tensor, " row"], Tensor]:
    """log r of the counted tokens of every row, and how many there are."""
    log_p, counts = log_p_of(run.network, list(rows), run.device.type == "cuda")
    number = torch.repeat_interleave(torch.arange(len(rows)), counts).to(log_p.device)
    return log_p.new_zeros(len(rows)).index_add(0, number, log_p), counts.to(log_p.device)


def train_on_preferences(
    recipe: PreferenceRecipe, data: Path, out: Path, *, device: str = "cpu", bar: bool = True
) -> dict[str, Any]:
    """One narrator more: `data` holds train.csv, valid.csv and preferences.jsonl."""
    run = Run(recipe, out, pick_device(device))
    train, valid = run.read_stories(data)
    pairs = read_preferences(data / "preferences.jsonl", run.encode)
    pairs.sort(key=lambda pair: len(pair.better.ids))
    parts = [pairs[i : i + recipe.batch] for i in range(0, len(pairs), recipe.batch)]
    run.network.eval()
    with torch.no_grad():  # r_0, once and for all
        begun = [log_r(run, [*(p.better for p in part), *(p.worse for p in part)])[0] for part in parts]
    held_to = replace(recipe, start=recipe.anchor_to or recipe.start)
    before = Run(held_to, out, run.device).network.eval() if recipe.anchor else None
    rng = random.Random(recipe.seed)
    steps, margins = len(parts) * recipe.epochs, []
    for epoch in range(recipe.epochs):
        order = rng.sample(range(len(parts)), len(parts))
        for number in tqdm(order, desc=f"epoch {epoch + 1}", disable=not bar, leave=False):
            human = human_rows(run, train, recipe, rng)
            margins.append(take_step(run, recipe, parts[number], begun[number], human, before, steps))
    run.keep()
    right = torch.stack(margins[-max(1, len(margins) // 5) :]).mean()
    return {"valid_nll": run.valid_nll(valid), "steps": run.step, "pairs": len(pairs), "preferred": float(right)}


def human_rows(run: Run, train: Stories, recipe: PreferenceRecipe, rng: random.Random) -> list[Row]:
    chosen = rng.sample(range(len(train.X)), min(recipe.human_rows, len(train.X)))
    return [random_row_of(train, i, recipe, rng, run.tokens) for i in chosen]


def take_step(
    run: Run, recipe: PreferenceRecipe, pairs: Sequence[Preference], begun: Tensor, human: list[Row],
    before: Transformer | None, steps: int,
) -> Tensor:  # fmt: skip
    """One step; the share of its pairs whose better telling has gained on the worse. `before` is the network of r_0."""
    run.network.train()
    found, counts = log_r(run, [*(p.better for p in pairs), *(p.worse for p in pairs)])
    gain = (found - begun).view(2, -1)
    margin = gain[0] - gain[1]
    better = found[: len(pairs)].sum() / counts[: len(pairs)].sum()
    total = -F.logsigmoid(recipe.beta * margin).mean() - recipe.imitation * better
    if human:
        logits, target, _ = logits_of(run.network, human, run.device.type == "cuda")
        total = total + recipe.people * F.cross_entropy(logits, target)
        if before is not None:
            total = total + recipe.anchor * divergence(before, human, logits, run.device.type == "cuda")
    run.descend(total, steps)
    return (margin > 0).float().mean().detach()


def divergence(before: Transformer, rows: list[Row], logits: Float[Tensor, "token vocab"], bf16: bool) -> Tensor:
    """KL(r_0 || r) per counted token."""
    with torch.no_grad():
        known = logits_of(before, rows, bf16)[0].log_softmax(-1)
    return F.kl_div(logits.log_softmax(-1), known, reduction="batchmean", log_target=True)

"""Learning of the critic: to tell people's stories from corrupted and machine-written versions (`losses/critic.py`).

What readers said of stories may be learnt beside it: v is then less "a person wrote it" and more "it is coherent".
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fabula.corpus.dataset import digest
from fabula.errors import UserError
from fabula.models.critic import WINDOW
from fabula.models.decoders.gguf import GGUF
from fabula.models.decoders.rows import END, SPECIALS, Row, collate
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Transformer, compile_blocks
from fabula.models.io import write_file
from fabula.models.io.pretrained import ABOUT_CRITIC
from fabula.training.adapter import WORDS, AdapterLearner
from fabula.training.corrupt import Corrupter
from fabula.training.learner import batches_of_like_lengths
from fabula.training.losses.critic import Pair, Reading, pair_loss, plain_row, reading_loss
from fabula.training.readings import endless, held_out_readings, hold_out, read_readings
from fabula.training.recipe import CriticRecipe
from fabula.training.stories import read_text

CORRUPTED, CLOZE = 30_000, 3
"""Stories that are corrupted; how often each wrong ending of cloze_valid.csv is used."""
POOL = 16
"""Batches whose pairs are sorted by length together."""
WARMUP = 0.05
"""Share of the steps over which the rates rise."""
HELD_OUT = 2000
"""Pairs that are held out, but at most a twentieth of them."""
CHUNK = 256
"""Pairs or readings that are measured together."""


class Texts(NamedTuple):
    """A `Pair` in words."""

    good: list[str]
    bad: list[str]
    first: int
    kind: str


def pairs_of(recipe: CriticRecipe, data: Path, encode: SubwordTokenizer) -> list[Pair]:
    """Corruptions of train.csv, the stories in negatives*.jsonl and the wrong endings of cloze_valid.csv."""
    people = read_text(data / "train.csv")
    rng, without = random.Random(recipe.seed), recipe.without.split()
    texts: list[Texts] = []
    for file in sorted(data.glob("negatives*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            negative = json.loads(line)
            if negative["kind"] not in without:
                of = people[negative["of"]]
                texts.append(Texts(of, negative["sentences"], negative["first"], negative["kind"]))
    if "corrupted" not in without:
        corrupt = Corrupter(people, rng)
        for number in rng.sample(range(len(people)), min(CORRUPTED, len(people))):
            broken = corrupt(people[number])
            texts.append(Texts(people[number], broken.sentences, broken.first, "corrupted"))
    if (data / "cloze_valid.csv").is_file() and "cloze" not in without:
        texts += cloze_pairs(data / "cloze_valid.csv") * CLOZE
    if not texts:
        raise UserError(f"{data}: nothing for a critic to learn from", field="data")
    sentences = [sentence for text in texts for sentence in (*text.good, *text.bad)]
    ids = iter([tokens[:WORDS] for tokens in encode.encode_all(sentences)])
    return [Pair([next(ids) for _ in t.good], [next(ids) for _ in t.bad], t.first, t.kind) for t in texts]


def cloze_pairs(file: Path) -> list[Texts]:
    """The right and the wrong ending of every story in the format of the Story Cloze Test."""
    pairs = []
    with file.open(encoding="utf-8", newline="") as rows:
        for line in csv.DictReader(rows):
            beginning = [line[f"InputSentence{i}"] for i in range(1, 5)]
            endings = [line[f"RandomFifthSentenceQuiz{i}"] for i in (1, 2)]
            right = int(line["AnswerRightEnding"]) - 1
            pairs.append(Texts([*beginning, endings[right]], [*beginning, endings[1 - right]], 4, "cloze"))
    return pairs


class CriticNetwork(nn.Module):
    """The adapted base with one output in place of the vocabulary's."""

    def __init__(self, recipe: CriticRecipe, file: GGUF) -> None:
        super().__init__()
        self.transformer = Transformer(file, recipe.rank, recipe.scale, SPECIALS, recipe.layers or None)
        self.critic = nn.Linear(self.transformer.sizes.width, 1)
        nn.init.zeros_(self.critic.weight)

    def forward(self, rows: Sequence[Row]) -> tuple[Float[Tensor, " end"], Int[Tensor, " end"]]:
        """The value at every sentence's end, row after row, and the rows they belong to (on the host)."""
        ids, _ = collate(rows, 8)
        row, place = (ids == END).nonzero(as_tuple=True)
        device = self.critic.weight.device
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            features = self.transformer(ids.to(device, non_blocking=True))
        return self.critic(features[row.to(device), place.to(device)].float()).squeeze(1), row


class CriticLearner(AdapterLearner):
    """The critic on train.csv, negatives*.jsonl, cloze_valid.csv and readings*.jsonl of a folder."""

    terms = ("loss",)
    recipe: CriticRecipe
    network: CriticNetwork

    def __init__(self, recipe: CriticRecipe, data: Path, device: torch.device) -> None:
        super().__init__(recipe, device)
        self.network = CriticNetwork(recipe, self.file)
        self.sizes = self.network.transformer.sizes
        if recipe.start:
            self.begin_from(self.network, recipe.start)
        self.network.to(device)
        if device.type == "cuda":
            compile_blocks(self.network.transformer)
        pairs = pairs_of(recipe, data, self.encode)
        readings = read_readings(data, self.encode, WORDS) if recipe.readings else []
        self.held_readings, self.readings = hold_out(readings)
        if recipe.readings and not (self.readings and self.held_readings):
            raise UserError(f"{data}: no readings*.jsonl, or too few", field="data")
        random.Random(recipe.seed).shuffle(pairs)
        held = min(HELD_OUT, len(pairs) // 20)
        self.held, pairs = pairs[:held], pairs[held:]
        self.pairs = pairs[: max(1, round(recipe.share * len(pairs)))]
        self.held_out: dict[str, Any] = {}
        self.data_hash = f"{digest((data / 'train.csv').read_bytes())} {self.base_sha256}"

    def batches(self, epoch: int) -> list[list[Pair | Reading]]:
        """Every pair once, with readings behind the pairs of a batch."""
        rng = random.Random(f"{self.recipe.seed} {epoch}")
        order = rng.sample(self.pairs, len(self.pairs))
        batches = batches_of_like_lengths(
            order, self.recipe.batch, POOL, lambda pair: sum(map(len, pair.good + pair.bad)), rng
        )
        readings = endless(self.readings, self.recipe.readings, self.recipe.seed + epoch)
        return [[*batch, *(next(readings) if self.recipe.readings else ())] for batch in batches]

    def loss(self, batch: list[Pair | Reading], step: int, per_epoch: int) -> tuple[Tensor, Float[Tensor, " term"]]:
        pairs = [example for example in batch if isinstance(example, Pair)]
        readings = [example for example in batch if isinstance(example, Reading)]
        loss = torch.zeros((), device=self.device)
        if pairs:
            loss = pair_loss(self.network, pairs)[0]
        if readings:
            loss = loss + reading_loss(self.network, readings)[0]
        return loss, loss.detach().view(1)

    def rate(self, step: int, steps: int) -> float:
        """A linear rise, and a linear fall to a twentieth."""
        return min(1.0, (step + 1) / max(1.0, WARMUP * steps)) * (1 - 0.95 * step / steps)

    @torch.no_grad()
    def validate(self) -> tuple[float, dict[str, float]]:
        """The mean loss of pairs that are held out; of each kind, how often the person's version has the higher v."""
        right: dict[str, list[float]] = {}
        total = 0.0
        for first in range(0, len(self.held), CHUNK):
            pairs = self.held[first : first + CHUNK]
            loss, (good, bad) = pair_loss(self.network, pairs)
            total += float(loss) * len(pairs)
            for pair, better in zip(pairs, (good > bad).float().tolist(), strict=True):
                right.setdefault(pair.kind, []).append(better)
        shares = {kind: round(sum(each) / len(each), 3) for kind, each in sorted(right.items())}
        self.held_out = {"held_out": {kind: [share, len(right[kind])] for kind, share in shares.items()}}
        if self.recipe.readings:
            self.held_out["held_out_readings"] = held_out_readings(self.network, self.held_readings, CHUNK)
        return total / max(1, len(self.held)), shares

    @torch.no_grad()
    def mean_values(self) -> list[float]:
        """Of people's stories of five lines, the mean value after each line; 0 where there is no such story."""
        stories = [pair.good for pair in self.held if len(pair.good) == WINDOW]
        total = torch.zeros(WINDOW)
        for story in stories:
            total += self.network([plain_row(story)])[0].cpu()
        return [round(value / max(1, len(stories)), 3) for value in total.tolist()]

    def save(self, out: Path, figures: dict[str, Any], weights: dict[str, Tensor]) -> None:
        self.save_adapter(out, weights, labels=("free",), tagger="none", layers=self.recipe.layers, critic=True)
        measured = {"pairs": len(self.pairs), **self.held_out}
        record = {"recipe": self.recipe.to_dict(), "figures": measured, "people": self.mean_values()}
        write_file(out / ABOUT_CRITIC, (json.dumps(record, indent=1) + "\n").encode())

    def figures(self, step: int, last: dict[str, Any]) -> dict[str, Any]:
        return {"pairs": len(self.pairs), "steps": step, **self.held_out}

"""Learning of the critic: to tell people's stories from corrupted and machine-written versions (`losses/critic.py`).

What readers said of stories may be learnt beside it: v is then less "a person wrote it" and more "it is coherent".
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fabula.errors import UserError
from fabula.models.critic import WINDOW
from fabula.models.decoders.bases import check_base, need_base, sha256
from fabula.models.decoders.rows import END, SPECIALS, Row, collate
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Sizes, Transformer, freeze
from fabula.models.io import write_file
from fabula.models.io.pretrained import ABOUT_CRITIC, WEIGHTS, load_adapter
from fabula.training.corrupt import Corrupter
from fabula.training.learner import batches_of_like_lengths
from fabula.training.losses.critic import Pair, Reading, compared, pair_loss, plain_row, reading_loss
from fabula.training.narrator import WORDS, AdapterLearner
from fabula.training.recipe import CriticRecipe
from fabula.training.stories import read_text

CORRUPTED, CLOZE = 30_000, 3
"""Stories that are corrupted; how often each wrong ending of cloze_valid.csv is used."""
COHERENCE = 3
"""The highest coherence a reader can give."""
HELD_PAIRS, HELD_STORIES = 2000, 10
"""Pairs that are held out, at most a twentieth of them; one read story in so many, with all of its versions."""
POOL, CHUNK = 16, 256
"""Batches whose pairs are sorted by length together; pairs or readings that are measured together."""
WARMUP = 0.05
"""Share of the steps over which the rates rise."""


def pairs_of(recipe: CriticRecipe, data: Path, encode: SubwordTokenizer) -> list[Pair]:
    """Corruptions of train.csv, the stories in negatives*.jsonl and the wrong endings of cloze_valid.csv."""
    people = read_text(data / "train.csv")
    rng, without = random.Random(recipe.seed), recipe.without.split()
    texts: list[Pair] = []
    for file in sorted(data.glob("negatives*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            negative = json.loads(line)
            texts.append(Pair(people[negative["of"]], negative["sentences"], negative["first"], negative["kind"]))
    if "corrupted" not in without:
        corrupt = Corrupter(people, rng)
        for number in rng.sample(range(len(people)), min(CORRUPTED, len(people))):
            texts.append(Pair(people[number], *corrupt(people[number]), "corrupted"))
    if (data / "cloze_valid.csv").is_file():
        texts += cloze_pairs(data / "cloze_valid.csv") * CLOZE
    texts = [pair for pair in texts if pair.kind not in without]
    if not texts:
        raise UserError(f"{data}: nothing for a critic to learn from", field="data")
    sentences = [sentence for pair in texts for sentence in (*pair.good, *pair.bad)]
    ids = iter([tokens[:WORDS] for tokens in encode.encode_all(sentences)])
    return [Pair([next(ids) for _ in p.good], [next(ids) for _ in p.bad], p.first, p.kind) for p in texts]


def cloze_pairs(file: Path) -> list[Pair]:
    """The right and the wrong ending of every story in the format of the Story Cloze Test."""
    pairs = []
    with file.open(encoding="utf-8", newline="") as rows:
        for line in csv.DictReader(rows):
            beginning = [line[f"InputSentence{i}"] for i in range(1, 5)]
            endings = [line[f"RandomFifthSentenceQuiz{i}"] for i in (1, 2)]
            right = int(line["AnswerRightEnding"]) - 1
            pairs.append(Pair([*beginning, endings[right]], [*beginning, endings[1 - right]], 4, "cloze"))
    return pairs


def read_readings(data: Path, encode: SubwordTokenizer) -> list[Reading]:
    """Of lines {"of": number, "sentences": [...], "coherence": 0 to 3, "line": from 1, or 0} in readings*.jsonl.

    A line may have "values" in place of the last two: another critic's, one for each sentence. Readers prefer short
    lines, so what length explains of coherence among the versions of one story is taken out (`without_length`).
    """
    readings: list[Reading] = []
    read: list[tuple[int, float, int]] = []
    for file in sorted(data.glob("readings*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            entry = json.loads(line)
            sentences = entry["sentences"]
            story = [tokens[:WORDS] for tokens in encode.encode_all(sentences)]
            if "values" in entry:
                targets = torch.tensor(entry["values"]).sigmoid().tolist()
                readings.append(Reading(story, tuple(targets), entry["of"]))
                continue
            coherence, first_wrong = entry["coherence"], entry["line"]
            if not 0 <= coherence <= COHERENCE or not 0 <= first_wrong <= len(sentences):
                raise UserError(f"{file}, line {number}: coherence or line is out of range", field="data")
            read.append((len(readings), coherence / COHERENCE, (first_wrong or len(sentences)) - 1))
            readings.append(Reading(story, (), entry["of"]))
    words = [sum(map(len, readings[n].story)) / len(readings[n].story) for n, _, _ in read]
    adjusted = without_length([t for _, t, _ in read], words, [readings[n].of for n, _, _ in read])
    for (n, _, first_wrong), t in zip(read, adjusted, strict=True):
        so_far = tuple(1.0 if i < first_wrong else t for i in range(len(readings[n].story)))
        readings[n] = readings[n]._replace(targets=so_far)
    return readings


def without_length(values: Sequence[float], words: Sequence[float], of: Sequence[int]) -> list[float]:
    """Values between 0 and 1 less what the words of a line explain among the versions of one story (least squares)."""
    story = torch.tensor(of).unique(return_inverse=True)[1] if of else torch.zeros(0, dtype=torch.int64)
    t, w = torch.tensor(values).double(), torch.tensor(words).double()
    count = torch.bincount(story).clamp(min=1)
    around = [x - (torch.bincount(story, x) / count)[story] for x in (t, w)]
    slope = (around[0] * around[1]).sum() / (around[1] ** 2).sum().clamp(min=1e-12)
    adjusted: list[float] = (t - slope * around[1]).clamp(0, 1).tolist()
    return adjusted


def endless(readings: Sequence[Reading], number: int, seed: int) -> Iterator[list[Reading]]:
    """Batches of about so many, the versions of one story together, all stories in a new order each time round."""
    rng = random.Random(seed)
    stories: dict[int, list[Reading]] = {}
    for reading in readings:
        stories.setdefault(reading.of, []).append(reading)
    batch: list[Reading] = []
    while True:
        for of in rng.sample(sorted(stories), len(stories)):
            batch += stories[of]
            if len(batch) >= number:
                yield batch
                batch = []


class CriticNetwork(nn.Module):
    """A narrator with an adapter, and one output in place of the vocabulary's."""

    def __init__(self, recipe: CriticRecipe, narrator: Mapping[str, Tensor], sizes: Sizes) -> None:
        super().__init__()
        self.transformer = Transformer(narrator, sizes, recipe.rank, recipe.scale, SPECIALS, top=recipe.top)
        self.critic = nn.Linear(sizes.width, 1)
        nn.init.zeros_(self.critic.weight)

    def forward(self, rows: Sequence[Row]) -> tuple[Float[Tensor, " end"], Int[Tensor, " end"]]:
        """The value at every sentence's end, row after row, and the rows they belong to (on the host)."""
        ids, _ = collate(rows, 8)
        row, place = (ids == END).nonzero(as_tuple=True)
        device = self.critic.weight.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.transformer.embedding.dtype == torch.bfloat16):
            features = self.transformer(ids.to(device, non_blocking=True))
        return self.critic(features[row.to(device), place.to(device)].float()).squeeze(1), row


class CriticLearner(AdapterLearner):
    """The critic on train.csv, negatives*.jsonl, cloze_valid.csv and readings*.jsonl of a folder."""

    terms = ("loss",)
    recipe: CriticRecipe
    network: CriticNetwork

    def __init__(self, recipe: CriticRecipe, data: Path, device: torch.device) -> None:
        narrator = load_adapter(Path(recipe.narrator))
        base = recipe.base or str(need_base(narrator.config.base_sha256))
        super().__init__(replace(recipe, base=base), device)
        check_base(Path(base), narrator.config.base_sha256, self.base.sha256)
        self.narrator_sha256 = sha256(Path(recipe.narrator) / WEIGHTS)
        self.network = CriticNetwork(recipe, narrator.merge(self.base.tensors), self.base.sizes)
        if recipe.start:
            self.begin_from(self.network, recipe.start)
        freeze(self.network, device, self.half)
        pairs = pairs_of(recipe, data, self.encode)
        self.hash_data(data)
        random.Random(recipe.seed).shuffle(pairs)
        held = min(HELD_PAIRS, len(pairs) // 20)
        self.held, pairs = pairs[:held], pairs[held:]
        self.pairs = pairs[: max(1, round(recipe.share * len(pairs)))]
        readings = read_readings(data, self.encode) if recipe.readings else []
        self.held_readings = [reading for reading in readings if reading.of % HELD_STORIES == 0]
        self.readings = [reading for reading in readings if reading.of % HELD_STORIES]
        if recipe.readings and not (self.readings and self.held_readings):
            raise UserError(f"{data}: no readings*.jsonl, or too few", field="data")
        self.measured: dict[str, Any] = {}

    def batches(self, epoch: int) -> list[list[Pair | Reading]]:
        """Every pair once, with readings behind the pairs of a batch."""
        rng, recipe = random.Random(f"{self.recipe.seed} {epoch}"), self.recipe
        order = rng.sample(self.pairs, len(self.pairs))
        batches = batches_of_like_lengths(order, recipe.batch, POOL, lambda p: sum(map(len, p.good + p.bad)), rng)
        readings = endless(self.readings, recipe.readings, recipe.seed + epoch)
        return [[*batch, *(next(readings) if recipe.readings else ())] for batch in batches]

    def loss(self, batch: list[Pair | Reading], step: int, per_epoch: int) -> tuple[Tensor, Float[Tensor, " term"]]:
        pairs = [example for example in batch if isinstance(example, Pair)]
        readings = [example for example in batch if isinstance(example, Reading)]
        loss = pair_loss(self.network, pairs)[0] if pairs else torch.zeros((), device=self.device)
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
        self.measured = {"held_out": {kind: [share, len(right[kind])] for kind, share in shares.items()}}
        if self.recipe.readings:
            self.measured["held_out_readings"] = self.agreement()
        return total / max(1, len(self.held)), shares

    def agreement(self) -> dict[str, float]:
        """Correlation of v_N with coherence, and of two versions how often the better one has the higher v_N."""
        readings = self.held_readings
        parts = [readings[i : i + CHUNK] for i in range(0, len(readings), CHUNK)]
        v = torch.cat([reading_loss(self.network, part)[1] for part in parts]).cpu()
        better, worse = compared(readings)
        pearson = float(torch.corrcoef(torch.stack([v, torch.tensor([r.targets[-1] for r in readings])]))[0, 1])
        wins = float((v[better] > v[worse]).float().mean())
        return {"readings": float(len(readings)), "pearson": round(pearson, 3), "better_wins": round(wins, 3)}

    @torch.no_grad()
    def mean_values(self) -> list[float]:
        """Of people's stories of five lines, the mean value after each line; 0 where there is no such story."""
        stories = [pair.good for pair in self.held if len(pair.good) == WINDOW]
        total = torch.zeros(WINDOW)
        for first in range(0, len(stories), CHUNK):
            values, _ = self.network([plain_row(story) for story in stories[first : first + CHUNK]])
            total += values.cpu().view(-1, WINDOW).sum(0)
        return [round(value / max(1, len(stories)), 3) for value in total.tolist()]

    def save(self, out: Path, figures: dict[str, Any], weights: dict[str, Tensor]) -> None:
        self.save_adapter(
            out, weights, labels=("free",), tagger="none", critic=True, narrator_sha256=self.narrator_sha256
        )
        measured = {"pairs": len(self.pairs), **self.measured}
        record = {"recipe": self.recipe.to_dict(), "figures": measured, "people": self.mean_values()}
        write_file(out / ABOUT_CRITIC, (json.dumps(record, indent=1) + "\n").encode())

    def figures(self, step: int, last: dict[str, Any]) -> dict[str, Any]:
        return {"pairs": len(self.pairs), "steps": step, **self.measured}

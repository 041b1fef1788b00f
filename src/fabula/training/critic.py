"""Training of the critic: to tell a story as people told it from the same story broken or written by a machine.

A pair is a person's story and another telling that goes wrong from its line k on. With v_i the critic's value after
line i (`models/critic.py`), a pair's loss is

    softplus(v'_N - v_N)  +  BCE of v_N and v'_N  +  half the mean BCE of the v_i and of the v'_i from k on

where people's values are to be above 0 and the others' below. What readers said of stories may be learnt beside it
(`training/readings.py`); v is then less "a person told it" and more "it holds together".
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from fabula.device import pick_device
from fabula.errors import UserError
from fabula.models.critic import WINDOW
from fabula.models.decoders.adapter import Adapter, AdapterConfig
from fabula.models.decoders.base import SHA256, check_base, find_base, sha256
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.rows import END, FREE, SPECIALS, Row, collate, row
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Transformer, compile_blocks
from fabula.models.io import write_file
from fabula.models.io.pretrained import ABOUT_CRITIC, load_adapter, save_adapter
from fabula.training.corrupt import Corrupter
from fabula.training.narrator import CLIP, WEIGHT_DECAY, WORDS
from fabula.training.readings import endless, held_out_readings, hold_out, loss_of_readings, read_readings
from fabula.training.recipe import CriticRecipe
from fabula.training.stories import read_text

Story = list[list[int]]


CORRUPTED, CLOZE = 30_000, 3
"""Stories corrupted on purpose; how often each wrong ending of cloze_valid.csv is used."""
WARMUP = 0.05
"""Share of the steps over which the rates rise."""


class Pair(NamedTuple):
    """A story as people told it, another telling of it, and the number of the first line that went wrong."""

    good: Story
    bad: Story
    first: int
    kind: str


class Texts(NamedTuple):
    good: list[str]
    bad: list[str]
    first: int
    kind: str


def pairs_of(recipe: CriticRecipe, data: Path, encode: SubwordTokenizer) -> list[Pair]:
    """Corruptions of train.csv, the tellings in negatives*.jsonl and the wrong endings of cloze_valid.csv."""
    people = read_text(data / "train.csv")
    rng, without = random.Random(recipe.seed), recipe.without.split()
    found: list[Texts] = []
    for file in sorted(data.glob("negatives*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            told = json.loads(line)
            if told["kind"] not in without:
                found.append(Texts(people[told["of"]], told["sentences"], told["first"], told["kind"]))
    if "corrupted" not in without:
        corrupt = Corrupter(people, rng)
        for number in rng.sample(range(len(people)), min(CORRUPTED, len(people))):
            broken = corrupt(people[number])
            found.append(Texts(people[number], broken.sentences, broken.first, "corrupted"))
    if (data / "cloze_valid.csv").is_file() and "cloze" not in without:
        found += cloze_pairs(data / "cloze_valid.csv") * CLOZE
    if not found:
        raise UserError(f"{data}: nothing for a critic to learn from", field="data")
    flat = [sentence for texts in found for sentence in (*texts.good, *texts.bad)]
    ids = iter([tokens[:WORDS] for tokens in encode.encode_all(flat)])
    tokens = [([next(ids) for _ in t.good], [next(ids) for _ in t.bad]) for t in found]
    return [Pair(good, bad, t.first, t.kind) for (good, bad), t in zip(tokens, found, strict=True)]


def cloze_pairs(file: Path) -> list[Texts]:
    """The right and the wrong ending of every story in the format of the Story Cloze Test."""
    found = []
    with file.open(encoding="utf-8", newline="") as rows:
        for line in csv.DictReader(rows):
            begun = [line[f"InputSentence{i}"] for i in range(1, 5)]
            endings = [line[f"RandomFifthSentenceQuiz{i}"] for i in (1, 2)]
            right = int(line["AnswerRightEnding"]) - 1
            found.append(Texts([*begun, endings[right]], [*begun, endings[1 - right]], 4, "cloze"))
    return found


class CriticNetwork(nn.Module):
    """The adapted base with one output in place of the vocabulary's."""

    def __init__(self, recipe: CriticRecipe, path: Path) -> None:
        super().__init__()
        self.transformer = Transformer(read_gguf(path), recipe.rank, recipe.scale, SPECIALS, recipe.layers or None)
        self.critic = nn.Linear(self.transformer.sizes.width, 1)
        nn.init.zeros_(self.critic.weight)

    def forward(self, rows: Sequence[Row], bf16: bool) -> tuple[Float[Tensor, " end"], Int[Tensor, " end"]]:
        """The value at every sentence's end, row after row, and the rows they belong to (on the host)."""
        ids, _ = collate(rows, 8)
        row, place = (ids == END).nonzero(as_tuple=True)
        device = self.critic.weight.device
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            features = self.transformer(ids.to(device, non_blocking=True))
        return self.critic(features[row.to(device), place.to(device)].float()).squeeze(1), row

    @torch.no_grad()
    def begin_from(self, recipe: CriticRecipe) -> None:
        start = load_adapter(Path(recipe.start))
        if not start.config.critic or (start.config.rank, start.config.scale) != (recipe.rank, recipe.scale):
            raise UserError(f"{recipe.start} is no critic, or has another rank or scale", field="start")
        start.check(self.transformer.sizes, recipe.start)
        for name, p in self.named_parameters():
            p.copy_(start.tensors[name.removeprefix("transformer.")])

    def adapter(self, recipe: CriticRecipe, base_sha256: str) -> Adapter:
        config = AdapterConfig(
            base_sha256=base_sha256, rank=recipe.rank, scale=recipe.scale, labels=("free",), tagger="none",
            layers=recipe.layers, critic=True,
        )  # fmt: skip
        tensors = {name.removeprefix("transformer."): p.detach().cpu() for name, p in self.named_parameters()}
        return Adapter(config, tensors)


def loss_of(network: CriticNetwork, pairs: Sequence[Pair], bf16: bool) -> tuple[Tensor, Float[Tensor, "2 pair"]]:
    """The mean loss of the pairs, and v_N of people's and of the other tellings."""
    stories = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
    firsts = torch.tensor([0] * len(pairs) + [pair.first for pair in pairs])
    values, rows = network([row(story, [FREE] * len(story), None, ()) for story in stories], bf16)
    counts = torch.tensor([len(story) for story in stories])
    line = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
    last = (line == counts[rows] - 1).to(values.device)
    goal = (rows < len(pairs)).float().to(values.device)
    # Lines before the first wrong one are people's own, met in the other story of the pair.
    weight = (line >= firsts[rows]).float()
    weight = (weight / torch.zeros(len(stories)).index_add(0, rows, weight)[rows]).to(values.device)
    each = F.binary_cross_entropy_with_logits(values, goal, reduction="none")
    whole = values[last].view(2, len(pairs))
    loss = each[last].mean() + 0.5 * (each * weight).sum() / len(stories) + F.softplus(whole[1] - whole[0]).mean()
    return loss, whole.detach()


def train_critic(
    recipe: CriticRecipe, data: Path, out: Path, *, device: str = "cpu", bar: bool = True
) -> dict[str, Any]:
    """Train through all epochs; `out` then holds the critic's folder, and the figures are returned."""
    where = pick_device(device)
    path = Path(recipe.base) if recipe.base else find_base()
    if not recipe.base:
        check_base(path, SHA256)
    torch.manual_seed(recipe.seed)
    network = CriticNetwork(recipe, path)
    if recipe.start:
        network.begin_from(recipe)
    network.to(where)
    gpu = where.type == "cuda"
    if gpu:
        compile_blocks(network.transformer)
    encode = SubwordTokenizer.from_metadata(read_gguf(path).metadata)
    pairs = pairs_of(recipe, data, encode)
    held_readings, readings = hold_out(read_readings(data, encode, WORDS) if recipe.readings else [])
    if recipe.readings and not (readings and held_readings):
        raise UserError(f"{data}: no readings*.jsonl, or too few", field="data")
    read = endless(readings, recipe.readings, recipe.seed)
    rng = random.Random(recipe.seed)
    rng.shuffle(pairs)
    held, pairs = pairs[: min(2000, len(pairs) // 20)], pairs[min(2000, len(pairs) // 20) :]
    pairs = pairs[: max(1, round(recipe.share * len(pairs)))]
    fast = [p for name, p in network.named_parameters() if name.endswith(".b")]
    slow = [p for name, p in network.named_parameters() if not name.endswith(".b")]
    groups = [{"params": slow, "peak": recipe.learning_rate}, {"params": fast, "peak": 4 * recipe.learning_rate}]
    optimiser = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY, fused=gpu)
    per_epoch = -(-len(pairs) // recipe.batch)
    steps, step = per_epoch * recipe.epochs, 0
    for epoch in range(recipe.epochs):
        network.train()
        for batch in tqdm(batches(pairs, recipe, epoch), desc=f"epoch {epoch + 1}", disable=not bar, leave=False):
            rate = min(1.0, (step + 1) / max(1.0, WARMUP * steps)) * (1 - 0.95 * step / steps)
            for group in optimiser.param_groups:
                group["lr"] = group["peak"] * rate
            loss, _ = loss_of(network, batch, gpu)
            if recipe.readings:
                loss = loss + loss_of_readings(network, next(read), gpu)[0]
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            step += 1
    figures = {"pairs": len(pairs), "steps": step, **held_out(network.eval(), held, gpu)}
    if recipe.readings:
        figures["held_out_readings"] = held_out_readings(network, held_readings, gpu)
    save_adapter(network.adapter(recipe, sha256(path)), out)
    record = {"recipe": asdict(recipe), "figures": figures, "people": mean_values(network, held, gpu)}
    write_file(out / ABOUT_CRITIC, (json.dumps(record, indent=1) + "\n").encode())
    return figures


def batches(pairs: Sequence[Pair], recipe: CriticRecipe, epoch: int) -> list[list[Pair]]:
    """Every pair once, those of like lengths together."""
    rng = random.Random(f"{recipe.seed} {epoch}")
    order = rng.sample(pairs, len(pairs))
    found = []
    for first in range(0, len(order), 16 * recipe.batch):
        pool = sorted(order[first : first + 16 * recipe.batch], key=lambda p: sum(map(len, p.good + p.bad)))
        found += [pool[i : i + recipe.batch] for i in range(0, len(pool), recipe.batch)]
    return rng.sample(found, len(found))


@torch.no_grad()
def mean_values(network: CriticNetwork, pairs: Sequence[Pair], bf16: bool) -> list[float]:
    """Of people's stories of five lines, the mean value after each line; 0 where there is no such story."""
    stories = [pair.good for pair in pairs if len(pair.good) == WINDOW]
    found = torch.zeros(WINDOW)
    for story in stories:
        found += network([row(story, [FREE] * WINDOW, None, ())], bf16)[0].cpu()
    return [round(value / max(1, len(stories)), 3) for value in found.tolist()]


@torch.no_grad()
def held_out(network: CriticNetwork, pairs: Sequence[Pair], bf16: bool) -> dict[str, Any]:
    """Of pairs that were not trained on: how often the person's telling has the higher value, by kind."""
    right: dict[str, list[float]] = {}
    for first in range(0, len(pairs), 256):
        part = pairs[first : first + 256]
        good, bad = loss_of(network, part, bf16)[1].cpu()
        for pair, better in zip(part, (good > bad).float().tolist(), strict=True):
            right.setdefault(pair.kind, []).append(better)
    return {"held_out": {kind: [round(sum(v) / len(v), 3), len(v)] for kind, v in sorted(right.items())}}

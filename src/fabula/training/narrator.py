"""Training of the narrator's adapter on raw stories, by the rows of `models/decoders/rows.py`."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from fabula.corpus.dataset import digest
from fabula.corpus.taggers.protocol import build_tagger, named, states_of
from fabula.device import pick_device
from fabula.errors import UserError
from fabula.models.decoders.adapter import Adapter, AdapterConfig
from fabula.models.decoders.base import SHA256, check_base, find_base, sha256
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.rows import FREE, SPECIALS, Row, TagTokens, collate, random_row, row
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Sizes, Transformer, compile_blocks
from fabula.models.io import write_file
from fabula.models.io.pretrained import FACTS, load_adapter, save_adapter
from fabula.training.parallel import ALONE, Processes, joined, own_device, seed_part
from fabula.training.recipe import NarratorRecipe
from fabula.training.resume import interruptible
from fabula.training.stories import Stories

POOL = 8
"""Batches whose rows are sorted by length together, so that those of one batch are of like lengths."""


WARMUP = 0.02
"""Share of the steps over which the rates rise."""
WEIGHT_DECAY, CLIP = 0.01, 1.0
WORDS = 40
"""Tokens of a sentence at most; longer ones are cut in training."""


def factor(done: float) -> float:
    """What the rates are multiplied by when this share of the steps is done."""
    return min(1.0, done / WARMUP) * (0.05 + 0.95 * (0.5 + 0.5 * math.cos(math.pi * done)))


def random_row_of(stories: Stories, i: int, recipe: NarratorRecipe, rng: random.Random, tokens: TagTokens) -> Row:
    tags, further = stories.tags(i)
    return random_row(stories.X[i], tags, rng, recipe.plain, tokens=tokens, further=further)


def batches_of(stories: Stories, recipe: NarratorRecipe, epoch: int, tokens: TagTokens) -> list[list[Row]]:
    """An epoch's batches: every story once, in rows of like lengths, the same at every call."""
    rng = random.Random(f"{recipe.seed} {epoch}")
    order = rng.sample(range(len(stories.X)), len(stories.X))
    rows = [random_row_of(stories, i, recipe, rng, tokens) for i in order]
    batches = []
    for first in range(0, len(rows), POOL * recipe.batch):
        pool = sorted(rows[first : first + POOL * recipe.batch], key=lambda r: len(r.ids))
        batches += [pool[i : i + recipe.batch] for i in range(0, len(pool), recipe.batch)]
    return rng.sample(batches, len(batches))


def named_vectors(names: list[str], encode: SubwordTokenizer, embedding: Tensor) -> Float[Tensor, "name width"]:
    """Where the vectors of further tokens begin: the mean of the base's vectors of the words of each name."""
    return torch.stack([embedding[torch.tensor(encode.encode(name))].mean(0) for name in names])


def nats_of(network: Transformer, rows: list[Row], bf16: bool = False) -> tuple[Tensor, Tensor]:
    """The loss summed over the counted tokens, and how many there are."""
    log_p, counted = log_p_of(network, rows, bf16)
    return -log_p.sum(), counted.sum().to(log_p.device, non_blocking=True)


def log_p_of(network: Transformer, rows: list[Row], bf16: bool = False) -> tuple[Float[Tensor, " token"], Tensor]:
    """log p of every counted token, row after row, and how many each row has (on the host)."""
    logits, target, counts = logits_of(network, rows, bf16)
    return -F.cross_entropy(logits, target, reduction="none"), counts


def logits_of(
    network: Transformer, rows: list[Row], bf16: bool = False
) -> tuple[Float[Tensor, "token vocab"], Int[Tensor, " token"], Tensor]:
    """What is predicted for each counted token, row after row; the tokens; how many each row has (on the host)."""
    device = network.embedding.device
    ids, counted = collate(rows, 8)
    # Which places count is known here: the device is not asked, and the host may run ahead of it.
    row, place = counted[:, 1:].nonzero(as_tuple=True)
    target = ids[row, place + 1].to(device, non_blocking=True)
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        features = network(ids.to(device, non_blocking=True))
        logits = network.logits(features[row.to(device), place.to(device)])
    return logits.float(), target, counted.sum(1)


class Run:
    """A network in training with its optimiser and its folder; resumed = uninterrupted, to the bit on a CPU."""

    def __init__(self, recipe: NarratorRecipe, out: Path, device: torch.device, processes: Processes = ALONE) -> None:
        self.processes, self.parts = processes, processes.parts(recipe.parts)
        path = Path(recipe.base) if recipe.base else find_base()
        if not recipe.base:
            check_base(path, SHA256)
        file = read_gguf(path)
        torch.manual_seed(recipe.seed)
        self.recipe, self.out, self.device, self.step = recipe, out, device, 0
        self.facts: dict[str, Any] = {}
        self.base_sha256 = sha256(path)
        self.encode = SubwordTokenizer.from_metadata(file.metadata)
        self.states = states_of(build_tagger(named(recipe.tagger)))
        self.tokens = TagTokens(self.states, Sizes.of(file.metadata).vocabulary)
        further = self.tokens.names
        self.network = Transformer(file, recipe.rank, recipe.scale, SPECIALS, further=len(further))
        if further:
            with torch.no_grad():
                self.network.further_in.copy_(named_vectors(further, self.encode, self.network.embedding))
        self.network.to(device)
        self.parameters = dict(self.network.named_parameters())
        if recipe.start:
            self.begin_from(load_adapter(Path(recipe.start)))
        groups = [
            {"params": [p for n, p in self.parameters.items() if n.endswith(".b") == fast], "peak": rate}
            for fast, rate in ((False, recipe.learning_rate), (True, 4 * recipe.learning_rate))
        ]
        gpu = device.type == "cuda"
        self.optimiser = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY, fused=gpu)
        if gpu:
            compile_blocks(self.network)

    def read_stories(self, data: Path) -> tuple[Stories, Stories]:
        """The splits for training and validation; what the corpus says is kept with the adapter."""
        splits = (data / f"{split}.csv" for split in ("train", "valid"))
        train, valid = (Stories(file, self.encode, WORDS, self.recipe.tagger) for file in splits)
        corpus_hash = digest((data / "train.csv").read_bytes())
        self.facts = {"name": self.recipe.name, "figures": {}, "corpus_hash": corpus_hash, **train.facts}
        return train, valid

    @torch.no_grad()
    def begin_from(self, adapter: Adapter) -> None:
        adapter.check(self.network.sizes, self.recipe.start)
        if (adapter.config.rank, adapter.config.scale) != (self.recipe.rank, self.recipe.scale):
            raise UserError(f"{self.recipe.start} has another rank or scale than the recipe", field="start")
        for name, p in self.parameters.items():  # an adapter of fewer factors begins the others as a new one does
            if name in adapter.tensors and adapter.tensors[name].shape == p.shape:
                p.copy_(adapter.tensors[name])

    def take_step(self, rows: list[Row], steps: int) -> Tensor:
        """One batch; nats per counted token, on the device."""
        torch.manual_seed(1_000_003 * self.recipe.seed + self.step)  # dropout's, so that a resumed run draws the same
        self.network.train()
        bf16 = self.device.type == "cuda"
        if self.parts == 1:
            loss, count = nats_of(self.network, rows, bf16)
            self.descend(loss / count, steps)
            return loss.detach() / count
        both = torch.zeros(2, device=self.device, dtype=torch.float64)  # nats and tokens of the whole batch
        for part in self.processes.own(self.parts):
            seed_part(self.recipe.seed, self.step, part)
            if own := rows[part :: self.parts]:
                loss, count = nats_of(self.network, own, bf16)
                loss.backward()
                both += torch.stack([loss.detach().double(), count.double()])
        self.processes.total(both)
        self.processes.add_gradients(self.parameters.values())
        for p in self.parameters.values():
            if p.grad is not None:
                p.grad /= both[1].to(p.grad.dtype)
        self.descend(None, steps)
        return both[0] / both[1]

    def descend(self, loss: Tensor | None, steps: int) -> None:
        """Down the gradient of a loss, or the one that is there, at the rates of this step."""
        for group in self.optimiser.param_groups:
            group["lr"] = group["peak"] * factor((self.step + 1) / steps)
        if loss is not None:
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), CLIP)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.step += 1

    @torch.no_grad()
    def valid_nll(self, stories: Stories) -> float:
        """Nats per story of plain telling, S free."""
        self.network.eval()
        rows = [row(story, [FREE] * len(story), None, range(len(story))) for story in stories.X]
        parts = [rows[i : i + self.recipe.batch] for i in range(0, len(rows), self.recipe.batch)]
        return sum(float(nats_of(self.network, part, self.device.type == "cuda")[0]) for part in parts) / len(rows)

    def keep(self) -> None:
        """The adapter as it is used, and all that a resumed run needs."""
        factors = self.states.factors
        config = AdapterConfig(
            base_sha256=self.base_sha256, rank=self.recipe.rank, scale=self.recipe.scale, labels=factors[0].labels,
            tagger=self.recipe.tagger, factors=factors if len(factors) > 1 else (),
        )  # fmt: skip
        tensors = {name: p.detach().cpu().contiguous() for name, p in self.parameters.items()}
        save_adapter(Adapter(config, tensors), self.out)
        write_file(self.out / FACTS, (json.dumps(self.facts, ensure_ascii=False) + "\n").encode())
        for name, p in self.parameters.items():
            for key, value in self.optimiser.state[p].items():
                tensors[f"{key}/{name}"] = value.detach().cpu().contiguous()
        temporary = self.out / "resume.safetensors.tmp"
        about = {"recipe": json.dumps(asdict(self.recipe)), "step": str(self.step), "base": self.base_sha256}
        save_file(tensors, temporary, metadata=about)
        temporary.replace(self.out / "resume.safetensors")

    def restore(self) -> None:
        from safetensors import safe_open

        path = self.out / "resume.safetensors"
        try:
            with safe_open(path, "pt") as file:
                about = file.metadata()
            tensors = load_file(path, device=str(self.device))
        except (OSError, SafetensorError) as error:
            raise UserError(f"{self.out} holds no run of the narrator to continue") from error
        if about.get("recipe") != json.dumps(asdict(self.recipe)) or about.get("base") != self.base_sha256:
            raise UserError(f"the run in {self.out} has another recipe or base; start again with --force")
        self.step = int(about["step"])
        with torch.no_grad():
            for name, p in self.parameters.items():
                p.copy_(tensors[name])
                found = {
                    k: tensors[f"{k}/{name}"] for k in ("step", "exp_avg", "exp_avg_sq") if f"{k}/{name}" in tensors
                }
                if found:
                    step = found["step"].to("cuda" if self.device.type == "cuda" else "cpu")  # fused or not
                    self.optimiser.state[p] = found | {"step": step}


def train_narrator(
    recipe: NarratorRecipe, data: Path, out: Path, *, device: str = "cpu", resume: bool = False, bar: bool = True
) -> dict[str, Any]:
    """Train through all epochs; `out` then holds the adapter, and the figures are returned."""
    where = own_device(pick_device(device))
    with joined(where) as processes:
        return _train(Run(recipe, out, where, processes), data, resume, bar and processes.first)


def _train(run: Run, data: Path, resume: bool, bar: bool) -> dict[str, Any]:
    recipe, processes = run.recipe, run.processes
    train, valid = run.read_stories(data)
    if resume:
        run.restore()
    per_epoch = len(batches_of(train, recipe, 0, run.tokens))
    steps = per_epoch * recipe.epochs
    log = run.out / "log.jsonl"
    with interruptible() as interrupted:
        for epoch in range(run.step // per_epoch, recipe.epochs):
            batches = batches_of(train, recipe, epoch, run.tokens)[run.step - epoch * per_epoch :]
            with tqdm(batches, desc=f"epoch {epoch + 1}", unit="batch", disable=not bar, leave=False) as shown:
                for number, rows in enumerate(shown):
                    nats = run.take_step(rows, steps)
                    if number % 20 == 0:
                        shown.set_postfix(nats=f"{float(nats):.3f}")
                    if processes.any(interrupted(), run.device):
                        if processes.first:
                            run.keep()
                        raise KeyboardInterrupt
            if not processes.first:
                continue
            run.keep()
            with open(log, "a", encoding="utf-8") as file:
                print(json.dumps({"epoch": epoch + 1, "step": run.step, "valid_nll": run.valid_nll(valid)}), file=file)
    return {"valid_nll": run.valid_nll(valid), "steps": run.step, "stories": len(train.X)}

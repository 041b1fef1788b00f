"""Train the narrator's adapter on a CPU, for as long as one likes: how the shipped one was made.

    FABULA_DATA=... python benchmarks/narrator_cpu.py OUT --minutes 110 --processes 2

Rows are those of `recipes/narrator.toml`. The learning rate follows the clock, not a number of steps: it rises for
the first 2 % of the time, stays, and falls to a twentieth over the last 30 %. Processes average their gradients (gloo).
Every five minutes OUT/adapter.safetensors and OUT/state.json are written anew.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import time
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.multiprocessing.spawn import spawn
from torch.nn import functional as F

from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.models.decoders.base import find_base
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.rows import FREE, SPECIALS, Row, collate, random_row, row
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Transformer

RANK, SCALE = 16, 2.0


def nats(model: Transformer, rows: list[Row]) -> tuple[torch.Tensor, int]:
    """The loss summed over the counted tokens, and how many there are."""
    ids, counted = collate(rows)
    features = model(ids)[:, :-1][counted[:, 1:]]
    return F.cross_entropy(model.logits(features), ids[:, 1:][counted[:, 1:]], reduction="sum"), int(counted.sum())


def stories(
    path: Path, encode: SubwordTokenizer, limit: int | None = None
) -> tuple[list[list[list[int]]], list[list[int]]]:
    with open(path, newline="", encoding="utf-8") as file:
        flat = [" ".join(s.split()) for line in list(csv.reader(file))[1:][:limit] for s in line[2:7]]
    ids = [tokens[:40] for tokens in encode.encode_all(flat)]
    tags = [s or 0 for s in VaderTagger().tag(flat)]
    return [ids[i : i + 5] for i in range(0, len(ids), 5)], [tags[i : i + 5] for i in range(0, len(tags), 5)]


def work(rank: int, options: argparse.Namespace) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    dist.init_process_group("gloo", rank=rank, world_size=options.processes)
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    file = read_gguf(find_base())
    model = Transformer(file, RANK, SCALE, SPECIALS)
    encode = SubwordTokenizer.from_metadata(file.metadata)
    folder = Path(os.environ["FABULA_DATA"])
    X, S = stories(folder / "train.csv", encode, options.limit)
    valid, _ = stories(folder / "valid.csv", encode, 48)
    slow = [p for name, p in model.named_parameters() if not name.endswith(".b")]
    fast = [p for name, p in model.named_parameters() if name.endswith(".b")]
    groups = [{"params": slow, "peak": options.rate}, {"params": fast, "peak": 4 * options.rate}]
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01)
    parameters = [*slow, *fast]
    shuffled = random.Random(options.seed).sample(range(len(X)), len(X))
    rng = random.Random(1000 * options.seed + rank)
    begun, saved, step, seen, paid, log = time.time(), time.time(), 0, 0, 0.0, []
    pool: list[list[Row]] = []
    while True:
        share = torch.tensor([(time.time() - begun) / (60 * options.minutes)])
        dist.broadcast(share, 0)
        done = float(share)
        if done >= 1:
            break
        if not pool:  # eight batches of like lengths at a time
            size = options.batch * 8
            at = [shuffled[(seen + i * options.processes + rank) % len(X)] for i in range(size)]
            rows = sorted((random_row(X[i], S[i], rng) for i in at), key=lambda r: len(r[0]))
            pool = [rows[i : i + options.batch] for i in range(0, size, options.batch)]
            random.Random(seen).shuffle(pool)
            seen += size * options.processes
        factor = min(1.0, done / 0.02) * min(1.0, 0.05 + 0.95 * (1 - done) / 0.3)
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * factor
        loss, count = nats(model, pool.pop())
        loss.backward()
        flat = torch.cat([p.grad.flatten() if p.grad is not None else p.new_zeros(p.numel()) for p in parameters])
        both = torch.cat([flat, torch.tensor([loss.item(), float(count)])])
        dist.all_reduce(both)
        total, place = both[-1], 0
        paid = float(both[-2] / total)
        for p in parameters:
            p.grad = (both[place : place + p.numel()] / total).view_as(p)
            place += p.numel()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step += 1
        if rank == 0:
            log.append(paid)
            if step % 10 == 0:
                mean = sum(log[-10:]) / len(log[-10:])
                print(f"{time.time() - begun:7.0f} s  step {step}  seen {seen}  loss {mean:.3f}", flush=True)
            if time.time() - saved > 300:
                saved = time.time()
                keep(model, options.out, {"step": step, "seen": seen, "share": done})
    if rank == 0:
        with torch.no_grad():
            free = [FREE] * 5
            plain = [float(nats(model, [row(s, free, None, set(range(5)))])[0]) for s in valid]
        figure = sum(plain) / len(plain)
        keep(model, options.out, {"step": step, "seen": seen, "share": 1.0, "valid_nats": figure})
        print(f"done: {step} steps, {seen} stories; {figure:.2f} nats a story on {len(valid)} validation stories")
    dist.destroy_process_group()


def keep(model: Transformer, out: Path, state: dict[str, float]) -> None:
    temporary = out / "adapter.safetensors.tmp"
    save_file({name: p.detach().contiguous() for name, p in model.named_parameters()}, temporary)
    temporary.rename(out / "adapter.safetensors")
    (out / "state.json").write_text(json.dumps(state))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=110)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16, help="rows of a step and process")
    parser.add_argument("--rate", type=float, default=4e-4, help="peak rate of a; that of b is four times it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--port", type=int, default=29511)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    spawn(work, (chosen,), chosen.processes)

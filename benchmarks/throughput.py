"""Training throughput: whole epochs of a recipe, in stories per second.

    PYTHONPATH=src python benchmarks/throughput.py --data prepared/roc recipes/paper/slds.toml --batch 128 256 512

Each row trains one warm-up epoch part and then a whole epoch, timed with the device waited for at both ends.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fabula.corpus.dataset import Corpus
from fabula.device import pick_device
from fabula.metrics.record import commit
from fabula.training.loop import Run
from fabula.training.recipe import Recipe, read_recipe


def measure(recipe: Recipe, corpus: Corpus, device: torch.device, limit: int | None) -> dict[str, object]:
    """Stories per second over a whole epoch (or `limit` batches of it), after a warm-up of 20 steps."""
    with tempfile.TemporaryDirectory() as out:
        run = Run(recipe, corpus, Path(out), device)
        batches = list(run.train_stories.bucketed(recipe.train.batch, np.random.default_rng(0)))[:limit]
        for rows in batches[:20]:
            run.step(rows, len(batches))
        wait(device)
        began = time.perf_counter()
        for rows in batches:
            run.step(rows, len(batches))
        wait(device)
        seconds = time.perf_counter() - began
    stories = sum(len(rows) for rows in batches)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    return {
        "recipe": recipe.name,
        "batch": recipe.train.batch,
        "precision": recipe.train.precision,
        "stories": stories,
        "seconds": round(seconds, 2),
        "stories_per_second": round(stories / seconds),
        "peak_gib": round(peak, 2),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "commit": commit(),
    }


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--batch", type=int, nargs="*", default=[], help="batch sizes; default: the recipe's own")
    parser.add_argument("--precision", nargs="*", default=[], help="float32, bfloat16; default: the recipe's own")
    parser.add_argument("--limit", type=int, help="batches at most")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="append the records to this JSONL file")
    args = parser.parse_args()
    corpus, device = Corpus.open(args.data), pick_device(args.device)
    rows = []
    for path in args.recipes:
        recipe = read_recipe(path)
        for batch in args.batch or [recipe.train.batch]:
            for precision in args.precision or [recipe.train.precision]:
                changed = replace(recipe, train=replace(recipe.train, batch=batch, precision=precision))
                rows.append(measure(changed, corpus, device, args.limit))
                print(json.dumps(rows[-1]), flush=True)
    if args.out:
        with args.out.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    print(f"{'recipe':<16}{'batch':>6} {'precision':<10}{'stories/s':>11}{'GiB':>7}")
    for row in rows:
        rate, peak = row["stories_per_second"], row["peak_gib"]
        print(f"{row['recipe']:<16}{row['batch']:>6} {row['precision']:<10}{rate:>11,}{peak:>7}")


if __name__ == "__main__":
    main()

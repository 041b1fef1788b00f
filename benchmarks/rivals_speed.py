"""Seconds a story of every way to fill in the middle three, each story by each in turn, so that all meet the same load.

    PYTHONPATH=src python benchmarks/rivals_speed.py --data prepared/roc --model lm=runs/lm \\
        --model lm-1024=runs/lm-1024 --stories 5 --out benchmarks/records/rivals_speed_cpu.json

The settings are those of `fabula reproduce` (500 samples for `bridge-more` and `bridge-sharp`, 1,000 for the language
models); the shipped model is there by itself. The first story is a warm-up and is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from fabula import api
from fabula.metrics.record import commit
from fabula.sampling.noise import seeded
from fabula_paper.bench import Bench, Job
from fabula_paper.plan import BY_NAME, MIDDLE, SETTINGS
from fabula_paper.run import recipes_folder
from fabula_paper.writing import blanked, tell

WAYS = (
    ("default", "gibbs"), ("default", "bridge"), ("default", "bridge-more"), ("default", "bridge-sharp"),
    ("default", "fill"), ("lm", "rerank"), ("lm-1024", "rerank"),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", action="append", default=[], help="system=folder")
    parser.add_argument("--stories", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    models = {"default": api.find("default")} | {
        name: Path(path) for name, _, path in (m.partition("=") for m in args.model)
    }
    with tempfile.TemporaryDirectory() as folder:
        job = Job(data=args.data, out=Path(folder), recipes=recipes_folder(None), models=models, device=args.device)
        # A bench each: loading is not part of it.
        benches = {name: Bench(job) for name in models}
        taken = timed(benches, [way for way in WAYS if way[0] in models], args.stories)
    load = os.getloadavg()[0]
    rows = {name: {"median": statistics.median(own), "all": [round(s, 3) for s in own]} for name, own in taken.items()}
    record = {
        "commit": commit(),
        "device": args.device,
        "stories": args.stories,
        "load_at_the_end": load,
        "seconds": rows,
    }
    args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name, row in rows.items():
        print(f"{name.ljust(22)} {row['median']:8.3f} s a story")


def timed(benches: dict[str, Bench], ways: list[tuple[str, str]], stories: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {f"{name}.{sampler}": [] for name, sampler in ways}
    for n in range(stories + 1):
        for name, sampler in ways:
            bench = benches[name]
            bench.checkpoint(BY_NAME[name])
            blank, gold = blanked(bench, BY_NAME[name], [bench.rows[n]], SETTINGS[MIDDLE])
            began = time.perf_counter()
            tell(bench, BY_NAME[name], blank, sampler, [seeded(0, n).initial_seed()], gold)
            if n:
                taken[f"{name}.{sampler}"].append(time.perf_counter() - began)
    return taken


if __name__ == "__main__":
    main()

"""The rate of `fill_many`, in rows a second and against a loop of `fill`: stories of the toy grammar, three missing.

    OMP_NUM_THREADS=1 python benchmarks/fleet_ratio.py --model small --rows 32 --loop 8 --blocks 2
    OMP_NUM_THREADS=1 python benchmarks/fleet_ratio.py --model small --workers 2 --rows 128 --loop 8 --blocks 1
    python benchmarks/fleet_ratio.py --model default --device cuda --rows 512 --loop 0 --together 256

Blocks alternate: some rows one by one, then all rows together. The loop loads the model once; a loop over the command
line would also start Python and load the model for every row. With --workers the rows are a whole job (`fill-many
--workers`), whose workers load the model. Processor seconds of a row say more than the clock on a busy machine.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import fabula
from fabula.corpus.toy import toy_stories
from fabula.sampling import many
from speed import now

MISSING = (1, 2, 3)


def toy_rows(n: int) -> list[dict[str, Any]]:
    """n stories of five sentences without their middle."""
    stories = [story for story in toy_stories(3 * n + 50, 0) if len(story.sentences) == 5][:n]
    return [
        {"id": story.id, "sentences": [None if i in MISSING else s for i, s in enumerate(story.sentences)]}
        for story in stories
    ]


def job(rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    """The rows as a job of the command line with worker processes."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = ["fill-many", str(source), "--out", f"{folder}/out", "--workers", args.workers]
        words += ["--model", args.model, "--samples", args.samples]
        subprocess.run([sys.executable, "-m", "fabula", *map(str, words), "--quiet"], check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--loop", type=int, default=8, help="rows that are filled in one by one in each block")
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--together", type=int, help="rows of a group, instead of the device's default")
    parser.add_argument("--workers", type=int, default=0, help="0: in this process")
    args = parser.parse_args()
    settings: dict[str, Any] = {"samples": args.samples, "candidates": 3}
    if args.together:
        many.TOGETHER[args.device.split(":")[0]] = args.together
    begin = now(args.device)
    model = fabula.load(args.model, args.device)
    print(json.dumps({"model": args.model, "load_seconds": now(args.device)[0] - begin[0]}))
    if model.notes:  # another model stands in
        raise SystemExit(f"{args.model}: {model.notes[0]}")
    rows = toy_rows(args.rows)
    list(model.fill_many(rows[:16], samples=2, candidates=3))
    totals: dict[str, list[float]] = {"loop": [0.0, 0.0, 0.0], "together": [0.0, 0.0, 0.0]}
    for block in range(args.blocks):
        alone = [rows[(block * args.loop + n) % len(rows)] for n in range(args.loop)]
        times = [now(args.device)]
        for row in alone:
            model.fill(row["sentences"], seed=many.row_seed(0, row["id"]), **settings)
        times.append(now(args.device))
        if args.workers:
            job(rows, args)
        else:
            assert not any(result.error for result in model.fill_many(rows, **settings))
        times.append(now(args.device))
        for name, count, first in (("loop", len(alone), 0), ("together", len(rows), 1)):
            spent = [end - start for start, end in zip(times[first], times[first + 1], strict=True)]
            totals[name] = [total + value for total, value in zip(totals[name], [*spent, count], strict=True)]
    per_row = {name: (clock / n, cpu / n) for name, (clock, cpu, n) in totals.items() if n}
    record: dict[str, Any] = {"rows_per_second": 1 / per_row["together"][0], "seconds_per_row": per_row}
    if "loop" in per_row:
        record["ratio"] = [a / b for a, b in zip(per_row["loop"], per_row["together"], strict=True)]
    if args.device.startswith("cuda"):
        record["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    print(json.dumps(record))


if __name__ == "__main__":
    main()

"""`fill_many` against a loop of `fill`: rows of the toy grammar, 16 samples, three candidates, one run.

    OMP_NUM_THREADS=1 python benchmarks/fleet_ratio.py --model small --rows 32 --loop 8 --blocks 2
    OMP_NUM_THREADS=1 python benchmarks/fleet_ratio.py --model small --workers 2 --rows 128 --loop 8 --blocks 1

Blocks alternate: some rows one by one, then a group together. A loop is a Python loop with the model loaded once; a
loop of the command line would also start Python and load the model for every row. What is compared is processor seconds
of a row, which on a busy machine say more than the clock. With --workers the group is a whole job (`fill-many --engine
local`), whose workers load the model; its clock ratio holds on quiet cores only.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import fabula
from fabula.apps.fleet.job import Job, run
from fabula.sampling import many
from fleet_gpu import rows


def seconds() -> tuple[float, float]:
    """The clock, and the processor seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime


def took(began: tuple[float, float], n: int) -> tuple[float, float]:
    now = seconds()
    return (now[0] - began[0]) / n, (now[1] - began[1]) / n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--loop", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0, help="0: in this process")
    parser.add_argument("--blanks", default="middle")
    args = parser.parse_args()
    settings: dict[str, Any] = {"samples": args.samples, "candidates": 3}
    began = seconds()
    narrator = fabula.load(args.model)
    loading = took(began, 1)
    if narrator.notes:
        raise SystemExit(f"{args.model}: {narrator.notes[0]}")
    source = rows(args.rows, args.blanks)
    narrator.fill(source[0]["sentences"], candidates=3, samples=2)
    alone, together = [], []
    for block in range(args.blocks):
        own = [source[(block * args.loop + n) % len(source)] for n in range(args.loop)]
        began = seconds()
        for row in own:
            narrator.fill(row["sentences"], seed=many.row_seed(0, row["id"]), **settings)
        alone.append(took(began, len(own)))
        began = seconds()
        if args.workers:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "rows.jsonl"
                file.write_text("".join(json.dumps(row) + "\n" for row in source))
                size = many.together(narrator.device)
                run(Job(files=[file], out=Path(folder) / "out", model=args.model, engine="local", workers=args.workers,
                        batch_size=size, defaults=settings))  # fmt: skip
        else:
            assert not any("error" in result for result in narrator.fill_many(source, **settings))
        together.append(took(began, len(source)))
        clock, processor = (sum(a[i] for a in alone) / sum(t[i] for t in together) for i in range(2))
        told = {
            "model": args.model, "block": block, "load_seconds": loading[0], "loop": alone[-1],
            "together": together[-1], "ratio_clock": clock, "ratio_processor": processor,
        }  # fmt: skip
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()

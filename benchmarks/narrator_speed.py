"""Filling in with the narrator on a CPU, all in one run: writing, reading, ranking, the small model, the whole command.

    python benchmarks/narrator_speed.py --rounds 5 --threads 1 2

The middle three of five sentences are missing. In turns: `--samples` of the narrator without its critic (its reading
under p is timed apart), the same with it, 50 samples of the small model, and `fabula fill` as a command: medians by the
clock, and of all threads' work (what is ours where other programs share the cores). A number of threads has a process
of its own, whose idle threads sleep, as the command's do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

STORY = ["Tom was afraid of dogs.", None, None, None, "Now the two of them sleep in the same bed."]
COMMAND = ["-m", "fabula", "fill", *(sentence or "_" for sentence in STORY)]
MUST = {"narrator to small": 1.0, "ranking to writing": 0.4, "whole command": 5.0}


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    begin, busy = time.perf_counter(), sum(os.times()[:4])
    work()
    return time.perf_counter() - begin, sum(os.times()[:4]) - busy


def measure(rounds: int, samples: int) -> dict[str, dict[str, float]]:
    """The medians of one process."""
    import fabula

    threads = int(os.environ["OMP_NUM_THREADS"])
    narrator, small = fabula.load("default", threads=threads), fabula.load("small", threads=threads)
    command = [sys.executable, *COMMAND, "--samples", str(samples)]
    decoder, reading = narrator.model.decoder, [0.0, 0.0]
    assert decoder is not None
    read = decoder.read

    def watched(*arguments: Any) -> Any:
        found: list[Any] = []
        for i, seconds in enumerate(timed(lambda: found.append(read(*arguments)))):
            reading[i] += seconds
        return found[0]

    decoder.read = watched  # type: ignore[assignment, method-assign]
    taken: dict[str, list[tuple[float, float]]] = {}
    for seed in range(rounds + 1):  # the first one warms up
        reading[:] = [0.0, 0.0]
        works: dict[str, Callable[[], Any]] = {
            "writing": lambda: narrator.fill(STORY, seed=seed, rank="ending", samples=samples),  # noqa: B023
            "reading": lambda: None,
            "with the critic": lambda: narrator.fill(STORY, seed=seed, samples=samples),  # noqa: B023
            "small's 50": lambda: small.fill(STORY, seed=seed),  # noqa: B023
            "whole command": lambda: subprocess.run(command, check=True, capture_output=True),
        }
        for name, work in works.items():
            seconds = timed(work)
            if seed:
                taken.setdefault(name, []).append((reading[0], reading[1]) if name == "reading" else seconds)
    medians = {name: [statistics.median(each) for each in zip(*pairs, strict=True)] for name, pairs in taken.items()}
    return {name: {"seconds": round(clock, 2), "work": round(busy, 2)} for name, (clock, busy) in medians.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--samples", type=int, default=16, metavar="N", help="of the narrator; fill's own default is 8")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.rounds, options.samples)))
        return
    record: dict[str, Any] = {"rounds": options.rounds, "cores": os.cpu_count()}
    for threads in options.threads:
        record[f"load before {threads}"] = round(os.getloadavg()[0], 2)
        chosen = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
        program = [
            sys.executable,
            __file__,
            "--child",
            "--rounds",
            str(options.rounds),
            "--samples",
            str(options.samples),
        ]
        told = subprocess.run(program, env=chosen, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(told.stdout.splitlines()[-1])
        writing, critic = found["writing"], found["with the critic"]
        for unit in ("seconds", "work"):
            found.setdefault("narrator to small", {})[unit] = round(writing[unit] / found["small's 50"][unit], 2)
            found.setdefault("ranking to writing", {})[unit] = round(critic[unit] / writing[unit] - 1, 2)
        record[f"threads {threads}"] = found
        if not options.json:
            print(f"{threads} threads, load before {record[f'load before {threads}']}:{'clock':>19}{'work':>9}")
            for name, figures in found.items():
                must = f"   at most {MUST[name]:g} wanted" if name in MUST else ""
                print(f"  {name:<32}{figures['seconds']:9.2f}{figures['work']:9.2f}{must}", flush=True)
    if options.json:
        print(json.dumps(record))


if __name__ == "__main__":
    main()

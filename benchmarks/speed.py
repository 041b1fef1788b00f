"""How long one fill takes, on a CPU or a GPU: five sentences, the middle three missing.

    python benchmarks/speed.py                                     both shipped models with their own settings
    python benchmarks/speed.py --models default --samples 16 --threads 2 --device cuda

For each model: the first candidate, the whole answer and, where the model has a critic, the answer without it. Printed
are medians by the clock and of the processor, after one run that does not count. Processor time is what the program
used itself, so read it where other programs share the cores.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import fabula

STORY = ["Tom was afraid of dogs.", None, None, None, "Now the two of them sleep in the same bed."]


def now(device: str) -> tuple[float, float]:
    """The clock, and the processor seconds of this process and of its children that have ended."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime


def timed(work: Callable[[int], Any], rounds: int, device: str) -> str:
    """Median seconds of `work(seed)`, by the clock and of the processor."""
    taken = []
    for seed in range(rounds + 1):
        begin = now(device)
        work(seed)
        taken.append([after - before for before, after in zip(begin, now(device), strict=True)])
    clock, processor = (statistics.median(seconds) for seconds in zip(*taken[1:], strict=True))
    return f"{clock:8.2f} s{processor:8.2f} s of processor"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["small", "default"], metavar="NAME|DIR")
    parser.add_argument("--samples", type=int, help="instead of each model's own number")
    parser.add_argument("--sampler", default="", help="smc or gibbs, where the model has both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--command", action="store_true", help="also `fabula fill` as a process of its own")
    args = parser.parse_args()
    settings: dict[str, Any] = {} if args.samples is None else {"samples": args.samples}
    settings |= {"sampler": args.sampler} if args.sampler else {}
    print(f"load {os.getloadavg()[0]:.1f}, {args.threads} threads, {args.device}, settings {settings or 'the models'}")
    for name in args.models:
        model = fabula.load(name, args.device, threads=args.threads)
        works: dict[str, Callable[[int], Any]] = {
            "first candidate": lambda seed: next(iter(model.fill_iter(STORY, seed=seed, **settings))),  # noqa: B023
            "whole answer": lambda seed: model.fill(STORY, seed=seed, **settings),  # noqa: B023
        }
        if model.model.critic is not None:
            works["without the critic"] = lambda seed: model.fill(STORY, seed=seed, rank="ending", **settings)  # noqa: B023
        if args.command:
            words = [sys.executable, "-m", "fabula", "fill", *(s or "_" for s in STORY), "--model", name]
            works["whole command"] = lambda _: subprocess.run(words, check=True, capture_output=True)  # noqa: B023
        for label, work in works.items():
            print(f"{name:<10}{label:<20}{timed(work, args.rounds, args.device)}", flush=True)


if __name__ == "__main__":
    main()

"""How long a command takes before it does what it was called for.

    python benchmarks/startup.py                      the default model
    python benchmarks/startup.py --model small --runs 9

Four programs, each in a process of its own, the median and the fastest of several runs after one that warms the disk's
cache: an empty Python, `fabula --help`, `import torch`, and `fabula fill` up to its first draw (imports, the model, the
sentences). A machine's speed and its other work cancel in the ratios. Python writes no bytecode where
PYTHONDONTWRITEBYTECODE is set: where an installer wrote none either, every start compiles torch again, which is said.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

FIRST_DRAW = """
import os, time
from fabula.cli import begin, main
def stop(*arguments):
    print(time.time(), flush=True)
    os._exit(0)
def started(threads, start=begin.start_torch):  # after it, because the command starts torch in its own way
    threads = start(threads)
    from fabula import api
    api.fill_stories = stop
    return threads
begin.start_torch = started
main(["fill", "Tom was afraid of dogs.", "_", "_", "_", "Now the two of them sleep in the same bed.", "--model", {!r}])
"""
MUST = {"help": 0.3, "first draw": 2.0}


def seconds(program: list[str], at_mark: bool = False) -> float:
    """From the start of a process to its end, or to the time that it prints."""
    begin = time.time()
    ended = subprocess.run([sys.executable, *program], capture_output=True, text=True, check=True)
    return (float(ended.stdout) if at_mark else time.time()) - begin


def has_bytecode() -> bool:
    """Whether torch's own files lie there compiled."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    return spec.cached is not None and Path(spec.cached).exists()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default", metavar="NAME|DIR")
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    programs = {
        "pass": ["-c", "pass"],
        "help": ["-m", "fabula", "--help"],
        "torch": ["-c", "import torch"],
        "first draw": ["-c", FIRST_DRAW.format(options.model)],
    }
    found: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(options.runs + 1):  # in turns, so that other work on the machine touches all alike
        for name, program in programs.items():
            taken = seconds(program, at_mark=name == "first draw")
            if turn:
                found[name].append(taken)
    median = {name: statistics.median(taken) for name, taken in found.items()}
    record = {
        "model": options.model, "runs": options.runs, "torch_has_bytecode": has_bytecode(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "seconds": {name: round(value, 3) for name, value in median.items()},
        "fastest": {name: round(min(taken), 3) for name, taken in found.items()},
        "help_to_pass": round(median["help"] / median["pass"], 2),
        "first_draw_to_torch": round(median["first draw"] / median["torch"], 2),
    }  # fmt: skip
    if options.json:
        print(json.dumps(record))
        return
    print(f"model {options.model}, {options.runs} runs, load {record['load']}, cores {os.cpu_count()}")
    if not has_bytecode():
        print("torch lies here without bytecode: each start compiles it (python -m compileall, or make demo anew)")
    for name, value in median.items():
        must = f", at most {MUST[name]:g} wanted" if name in MUST else ""
        print(f"{name:<11}{value:7.2f} s, fastest {min(found[name]):.2f} s{must}")
    print(
        f"help is {record['help_to_pass']} times an empty Python; the first draw {record['first_draw_to_torch']}",
        end="",
    )
    print(" times `import torch`")


if __name__ == "__main__":
    main()

"""How long a command takes before it does what it was called for.

    python benchmarks/startup.py                      the default model
    python benchmarks/startup.py --model small --runs 9

Four programs run in turns, each in a process of its own: an empty Python, `fabula --help`, `import torch`, and `fabula
fill` up to its first draw. The first turn warms the disk's cache and does not count. The machine's speed cancels in the
ratios. Where torch lies without bytecode, every start compiles it, and the output says so.
"""

import argparse
import importlib.util
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
    from fabula import filling
    filling.fill_stories = stop
    return threads
begin.start_torch = started
main(["fill", "Tom was afraid of dogs.", "_", "_", "_", "Now the two of them sleep in the same bed.", "--model", {!r}])
"""


def seconds(program: list[str], until_printed: bool) -> float:
    """From the start of a process to its end, or to the time that it prints."""
    begin = time.time()
    ended = subprocess.run([sys.executable, *program], capture_output=True, text=True, check=True)
    return (float(ended.stdout) if until_printed else time.time()) - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default", metavar="NAME|DIR")
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    args = parser.parse_args()
    programs = {
        "empty Python": ["-c", "pass"],
        "fabula --help": ["-m", "fabula", "--help"],
        "import torch": ["-c", "import torch"],
        "first draw": ["-c", FIRST_DRAW.format(args.model)],
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(args.runs + 1):
        for name, program in programs.items():
            taken = seconds(program, name == "first draw")
            if turn:
                times[name].append(taken)
    print(f"model {args.model}, {args.runs} runs, load {os.getloadavg()[0]:.1f}, cores {os.cpu_count()}")
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.cached is None or not Path(spec.cached).exists():
        print("torch lies here without bytecode: each start compiles it (python -m compileall, or make demo anew)")
    median = {name: statistics.median(taken) for name, taken in times.items()}
    for name, value in median.items():
        print(f"{name:<15}{value:7.2f} s, fastest {min(times[name]):.2f} s")
    help_ratio = median["fabula --help"] / median["empty Python"]
    draw_ratio = median["first draw"] / median["import torch"]
    print(f"help takes {help_ratio:.2f} times an empty Python, the first draw {draw_ratio:.2f} times `import torch`")


if __name__ == "__main__":
    main()

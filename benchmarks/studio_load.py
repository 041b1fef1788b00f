"""How the studio feels: seconds to the first candidate, requests a second, memory over a thousand requests.

    python benchmarks/studio_load.py                  the shipped model
    python benchmarks/studio_load.py --requests 200 --model runs/slds

Starts `fabula studio` in a process of its own, asks it, prints a table, stops it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psutil  # type: ignore[import-untyped]

STORY = ["Our roof began to leak during the storm.", None, None, None, "We slept well that night."]
TOLD = ["Our roof began to leak.", "We called a man who could mend it.", "We slept well that night."]


def first_candidate(client: httpx.Client, process: psutil.Process, seed: int) -> tuple[float, float, float]:
    """Seconds to the first candidates, what they cost the processor, and seconds to the last."""
    begun, first, cost = time.perf_counter(), 0.0, cpu(process)
    with client.stream("POST", "/api/fill/stream", json={"sentences": STORY, "seed": seed}) as answer:
        for line in answer.iter_lines():
            if line == "event: candidates" and not first:
                first, cost = time.perf_counter() - begun, cpu(process) - cost
    return first, cost, time.perf_counter() - begun


def cpu(process: psutil.Process) -> float:
    """Seconds of processor time so far: what a busy machine leaves as it is."""
    times = process.cpu_times()
    return float(times.user + times.system)


def megabytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="default", help="an installed model or a checkpoint")
    parser.add_argument("--requests", type=int, default=1000, help="cheap requests to watch the memory over (1000)")
    parser.add_argument("--repeats", type=int, default=10, help="streams to time (10)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        words = ["--port", "0", "--model", args.model, "--db", str(Path(folder) / "load.db")]
        begun = time.perf_counter()
        server = subprocess.Popen([sys.executable, "-m", "fabula", "studio", *words], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = re.findall(r"http://\S+", server.stdout.readline())[0]
            figures = {"ready_s": round(time.perf_counter() - begun, 2)}
            with httpx.Client(base_url=url, timeout=600) as client:
                figures |= measure(client, psutil.Process(server.pid), args.requests, args.repeats)
        finally:
            server.terminate()
            server.wait()
    figures["load_average"] = round(os.getloadavg()[0], 2)
    if args.json:
        print(json.dumps(figures))
    for name, value in figures.items() if not args.json else ():
        print(f"{name:<28} {value:>10}")


def measure(client: httpx.Client, process: psutil.Process, requests: int, repeats: int) -> dict[str, float]:
    """All figures of one running studio."""
    timed = [first_candidate(client, process, seed) for seed in range(repeats)]
    figures = {
        "first_fill_first_s": round(timed[0][0], 3),
        "first_candidate_s": round(statistics.median(first for first, _, _ in timed), 3),
        "first_candidate_cpu_s": round(statistics.median(cost for _, cost, _ in timed), 3),
        "whole_fill_s": round(statistics.median(whole for _, _, whole in timed), 3),
    }
    for name, sentences in (("explain", TOLD), ("posterior", STORY)):
        spent = []
        for _ in range(3):
            begun = time.perf_counter()
            client.post(f"/api/{name}", json={"sentences": sentences}).raise_for_status()
            spent.append(time.perf_counter() - begun)
        figures[f"{name}_s"] = round(statistics.median(spent), 3)
    state = {"lines": [{"text": text} for text in TOLD]}
    story = client.post("/api/stories", json={"title": "load", "state": state}).json()
    at, revision = f"/api/stories/{story['id']}/branches/{story['branch']['id']}", 1
    memory = []
    begun = time.perf_counter()
    for n in range(requests):
        if n % 4 == 0:
            answer = client.put(at, json={"state": {**state, "seed": n}, "revision": revision})
            revision += 1
        elif n % 4 == 1:
            answer = client.post("/api/tag", json={"sentences": TOLD})
        elif n % 4 == 2:
            answer = client.post("/api/score", json={"sentences": TOLD[:2], "samples": 1})
        else:
            answer = client.get("/api/stories")
        answer.raise_for_status()
        memory.append(megabytes(process))
    figures["requests_per_s"] = round(requests / (time.perf_counter() - begun), 1)
    tenth = max(1, requests // 10)
    figures["rss_after_first_tenth_mib"] = round(statistics.median(memory[tenth : 2 * tenth] or memory), 1)
    figures["rss_at_end_mib"] = round(statistics.median(memory[-tenth:]), 1)
    return figures


if __name__ == "__main__":
    main()

"""The studio under load, in ratios of one run: small fills beside a long one, and a writer beside silent connections.

python benchmarks/studio_load.py --model default
"""

from __future__ import annotations

import argparse
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

SMALL = ["Tom was afraid of dogs.", None, "Tom was happy."]
STATE = {"lines": [{"text": "A."}, {"text": "B."}]}


def fill(client: httpx.Client, sentences: list[str | None], samples: int, seed: int) -> tuple[int, float]:
    begun = time.perf_counter()
    body = {"sentences": sentences, "samples": samples, "candidates": 1, "seed": seed}
    status = client.post("/api/fill", json=body).status_code
    return status, time.perf_counter() - begun


def small_beside_long(url: str, clients: int, each: int, samples: int) -> None:
    """The long fill is left when the others are done; lone ones are timed before and after, for a load that changes."""
    long = {"sentences": ["Tom was afraid of dogs.", *[None] * 62, "Tom was happy."], "samples": 50, "candidates": 1}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    # One client for all: making one takes as long as a quarter of a small fill.
    with httpx.Client(base_url=url, timeout=900, limits=limits) as client:
        lone, enough = [fill(client, SMALL, samples, n)[1] for n in range(5)], threading.Event()

        def hold() -> bool:
            """Whether the long fill was still going on when it was left."""
            with client.stream("POST", "/api/fill/stream", json=long) as held:
                return any(enough.is_set() for _ in held.iter_text())

        with ThreadPoolExecutor(clients + 1) as pool:
            holding = pool.submit(hold)
            time.sleep(1)
            beside = statistics.median(fill(client, SMALL, samples, n)[1] for n in range(5))
            told = list(pool.map(lambda n: fill(client, SMALL, samples, n), range(clients * each)))
            enough.set()
            running = holding.result()
        lone += [fill(client, SMALL, samples, n)[1] for n in range(5)]
    one = statistics.median(lone)
    times = sorted(seconds for _, seconds in told)
    refused = sum(code == 429 for code, _ in told)
    print(f"a small fill alone: {one:.2f} s; beside a 64-line fill: {beside:.2f} s ({beside / one:.1f} x)")
    print(
        f"{clients} clients x {each}: median {statistics.median(times) / one:.1f} x, p95 "
        f"{times[int(0.95 * len(times))] / one:.1f} x a lone one's, {refused} times 429; the long fill "
        f"{'was still running' if running else 'had ended'}"
    )


def saves(url: str, seconds: float) -> list[float]:
    """How long each save takes, one after another."""
    with httpx.Client(base_url=url, timeout=60) as client:
        made: dict[str, Any] = client.post("/api/stories", json={"title": "x", "state": STATE}).json()
        at = f"/api/stories/{made['id']}/branches/{made['branch']['id']}"
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begun = time.perf_counter()
            answer = client.put(at, json={"state": STATE, "revision": len(times) + 1})
            assert answer.status_code == 200, answer.text
            times.append(time.perf_counter() - begun)
            time.sleep(0.2)
    return times


def beside_silent_ones(url: str, number: int, seconds: float, log: Path) -> None:
    alone = saves(url, 5)
    port, silent = int(url.rsplit(":", 1)[1]), []
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(saves, url, seconds)
        for _ in range(number):
            line = socket.socket()
            line.settimeout(5)
            try:
                line.connect(("127.0.0.1", port))
            except OSError:
                continue
            silent.append(line)
        times = writer.result()
    for line in silent:
        line.close()
    print(
        f"{len(silent)} silent connections for {seconds:.0f} s: a save takes {statistics.median(times) * 1000:.0f} ms, "
        f"at most {max(times) * 1000:.0f} ms (alone {statistics.median(alone) * 1000:.0f}, {max(alone) * 1000:.0f}); "
        f"log {log.stat().st_size} bytes"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="default")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--silent", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * args.silent + 500), hard))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        words = ["studio", "--port", "0", "--no-open", "--model", args.model, "--db", f"{folder}/s.db"]
        with log.open("w") as errors:
            server = subprocess.Popen(
                [sys.executable, "-m", "fabula", *words], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert server.stdout is not None
        url = re.findall(r"http://\S+\d", server.stdout.readline())[0]
        try:
            beside_silent_ones(url, args.silent, args.seconds, log)
            small_beside_long(url, args.clients, 3, args.samples)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()

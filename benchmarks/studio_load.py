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
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

SMALL = ["Tom was afraid of dogs.", None, "Tom was happy."]
STATE = {"lines": [{"text": "A."}, {"text": "B."}]}


def fill(url: str, sentences: list[str | None], samples: int, seed: int) -> tuple[int, float]:
    begun = time.perf_counter()
    body = {"sentences": sentences, "samples": samples, "candidates": 1, "seed": seed}
    status = httpx.post(f"{url}/api/fill", json=body, timeout=900).status_code
    return status, time.perf_counter() - begun


def small_beside_long(url: str, clients: int, each: int, samples: int) -> None:
    lone = statistics.median(fill(url, SMALL, samples, n)[1] for n in range(5))
    with ThreadPoolExecutor(clients + 1) as pool:
        long = pool.submit(fill, url, ["Tom was afraid of dogs.", *[None] * 62, "Tom was happy."], 50, 0)
        time.sleep(1)
        beside = statistics.median(fill(url, SMALL, samples, n)[1] for n in range(5))
        told = list(pool.map(lambda n: fill(url, SMALL, samples, n), range(clients * each)))
        running = not long.done()
        status, seconds = long.result()
    times = sorted(seconds for _, seconds in told)
    refused = sum(code == 429 for code, _ in told)
    print(f"a small fill alone: {lone:.2f} s; beside a 64-line fill: {beside:.2f} s ({beside / lone:.1f} x)")
    print(
        f"{clients} clients x {each}: median {statistics.median(times) / lone:.1f} x, p95 "
        f"{times[int(0.95 * len(times))] / lone:.1f} x a lone one's, {refused} times 429; the long fill "
        f"({status}, {seconds:.0f} s) {'was still running' if running else 'had ended'}"
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

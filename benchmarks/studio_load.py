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
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx

SMALL = ["Tom was afraid of dogs.", None, "Tom was happy."]
STATE = {"lines": [{"text": "A."}, {"text": "B."}]}


def fill(client: httpx.Client, samples: int, seed: int) -> tuple[int, float]:
    """The status and the seconds of a small fill."""
    begin = time.perf_counter()
    body = {"sentences": SMALL, "samples": samples, "candidates": 1, "seed": seed}
    return client.post("/api/fill", json=body).status_code, time.perf_counter() - begin


def small_beside_long(url: str, clients: int, each: int, samples: int) -> None:
    """The long fill is left when the others are done; lone fills are timed before and after, since load changes."""
    long = {"sentences": ["Tom was afraid of dogs.", *[None] * 62, "Tom was happy."], "samples": 50, "candidates": 1}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    with httpx.Client(base_url=url, timeout=900, limits=limits) as client:
        lone, enough = [fill(client, samples, n)[1] for n in range(5)], threading.Event()

        def hold() -> bool:
            """Whether the long fill was still running when it was left."""
            with client.stream("POST", "/api/fill/stream", json=long) as held:
                return any(enough.is_set() for _ in held.iter_text())

        with ThreadPoolExecutor(clients + 1) as pool:
            holding = pool.submit(hold)
            time.sleep(1)
            beside = statistics.median(fill(client, samples, n)[1] for n in range(5))
            answers = list(pool.map(lambda n: fill(client, samples, n), range(clients * each)))
            enough.set()
            running = holding.result()
        lone += [fill(client, samples, n)[1] for n in range(5)]
    one, times = statistics.median(lone), sorted(seconds for _, seconds in answers)
    p95, refused = times[int(0.95 * len(times))], sum(code == 429 for code, _ in answers)
    print(f"a small fill alone: {one:.2f} s; beside a 64-line fill: {beside:.2f} s ({beside / one:.1f} x)")
    print(
        f"{clients} clients x {each}: median {statistics.median(times) / one:.1f} x, p95 {p95 / one:.1f} x a lone one"
    )
    print(f"{refused} times 429; the long fill {'was still running' if running else 'had ended'}")


def saves(url: str, seconds: float) -> list[float]:
    """How long each save takes, one after another."""
    with httpx.Client(base_url=url, timeout=60) as client:
        made: dict[str, Any] = client.post("/api/stories", json={"title": "x", "state": STATE}).json()
        path = f"/api/stories/{made['id']}/branches/{made['branch']['id']}"
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begin = time.perf_counter()
            client.put(path, json={"state": STATE, "revision": len(times) + 1}).raise_for_status()
            times.append(time.perf_counter() - begin)
            time.sleep(0.2)
    return times


def beside_silent_connections(url: str, number: int, seconds: float, log: Path) -> None:
    def milliseconds(times: list[float]) -> str:
        return f"{statistics.median(times) * 1000:.0f} ms, at most {max(times) * 1000:.0f} ms"

    alone, connected = saves(url, 5), 0
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        writer = pool.submit(saves, url, seconds)
        for _ in range(number):
            line = stack.enter_context(socket.socket())
            line.settimeout(5)
            with suppress(OSError):
                line.connect(("127.0.0.1", int(url.rsplit(":", 1)[1])))
                connected += 1
        times = writer.result()
    print(f"{connected} silent connections for {seconds:.0f} s: a save takes {milliseconds(times)}")
    print(f"alone {milliseconds(alone)}; the log has {log.stat().st_size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
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
        command = [sys.executable, "-m", "fabula", *words]
        with log.open("w") as errors, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as server:  # fmt: skip
            assert server.stdout is not None
            url = re.findall(r"http://\S+\d", server.stdout.readline())[0]
            try:
                beside_silent_connections(url, args.silent, args.seconds, log)
                small_beside_long(url, args.clients, 3, args.samples)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()

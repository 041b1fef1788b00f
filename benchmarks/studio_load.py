"""The studio under load, in ratios of one run: fills per second of 4 and of 20 clients, small fills beside a long one.

python benchmarks/studio_load.py --model default
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

SMALL = ["Tom was afraid of dogs.", None, "Tom was happy."]


def fill(client: httpx.Client, samples: int | None, seed: int) -> tuple[int, float]:
    """The status and the seconds of a small fill, every one of another client's as a proxy would name it."""
    begin = time.perf_counter()
    body = {"sentences": SMALL, "samples": samples, "candidates": 1, "seed": seed}
    headers = {"X-Forwarded-For": f"10.0.0.{seed % 250}"}
    return client.post("/api/fill", json=body, headers=headers).status_code, time.perf_counter() - begin


def throughput(url: str, clients: int, each: int) -> float:
    """Fills per second when so many clients ask `each` times, one after the other, with the model's usual samples."""
    with httpx.Client(base_url=url, timeout=900) as client, ThreadPoolExecutor(clients) as pool:
        begin = time.perf_counter()
        codes = list(pool.map(lambda n: [fill(client, None, n * each + k)[0] for k in range(each)], range(clients)))
        assert all(code == 200 for one in codes for code in one), "a fill was refused"
        return clients * each / (time.perf_counter() - begin)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--samples", type=int, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        words = ["studio", "--port", "0", "--no-open", "--model", args.model, "--db", f"{folder}/s.db"]
        command = [sys.executable, "-m", "fabula", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = re.findall(r"http://\S+\d", server.stdout.readline())[0]
            try:
                for clients, each in ((4, 5), (20, 3), (4, 5)):  # in between, since load changes
                    print(f"{clients} clients x {each}: {throughput(url, clients, each):.2f} fills/s", flush=True)
                small_beside_long(url, args.clients, 3, args.samples)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()

"""Workers and drivers of fill-many killed at random: every row is there once, equal to an undisturbed run.

SIGKILL, so nobody can tidy up. The model is a stub: what is tested is the machinery around it.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from fabula.apps.fleet.shards import read_results

SUPPORT = Path(__file__).parents[1] / "support"


def rows(path: Path, n: int) -> Path:
    """Stories, and among them rows that are wrong."""
    lines = [json.dumps({"id": i, "sentences": ["Tom was sad.", None, f"Day {i} came."]}) for i in range(n)]
    lines[n // 3], lines[n // 2] = '{"id": ', json.dumps({"id": 0, "sentences": "A."})
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def begin(source: Path, out: Path, workers: int, pause: float) -> subprocess.Popen[str]:
    environment = {
        **os.environ, "STUB_PAUSE": str(pause), "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path]),
    }  # fmt: skip
    words = [sys.executable, str(SUPPORT / "stub_job.py"), str(source), str(out), str(workers), "8"]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def workers(driver: int) -> list[psutil.Process]:
    try:
        below = psutil.Process(driver).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    found = []
    for process in below:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "spawn_main" in " ".join(process.cmdline()):
                found.append(process)
    return found


def disturbed(source: Path, out: Path, kills: int, pause: float, gap: float) -> dict[str, int]:
    """Run a job to its end, killing its driver or one of its workers again and again."""
    rng, killed = random.Random(7), {"driver": 0, "worker": 0}
    deadline = time.monotonic() + 60 * 30
    while time.monotonic() < deadline:
        # Two of three kills hit a worker: a killed driver takes its workers along.
        driver = begin(source, out, 2, pause)
        while driver.poll() is None:
            shards = len(list(out.glob("part-*")))
            # It is let on until it has done something, so that the job comes to an end.
            while driver.poll() is None and len(list(out.glob("part-*"))) == shards and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(rng.random() * gap)
            if sum(killed.values()) == kills or driver.poll() is not None:
                break
            alive = workers(driver.pid)
            if rng.random() < 1 / 3 or not alive:
                driver.send_signal(signal.SIGKILL)
                driver.wait()
                killed["driver"] += 1
                # No worker is left behind.
                _, left = psutil.wait_procs(alive, timeout=60)
                assert not left, [process.cmdline() for process in left]
            else:
                rng.choice(alive).kill()
                killed["worker"] += 1
        _, error = driver.communicate(timeout=1200)
        if driver.returncode == 0:
            return killed
        assert driver.returncode == -signal.SIGKILL, error
    pytest.fail("the job did not come to an end")


@pytest.mark.system
def test_kills_lose_no_row_and_change_none(tmp_path: Path) -> None:
    """FABULA_KILLS sets the number of kills."""
    kills = int(os.environ.get("FABULA_KILLS", 3))
    n = 48 + 16 * kills
    source = rows(tmp_path / "in.jsonl", n)
    calm = begin(source, tmp_path / "calm", 0, 0)
    assert calm.wait(300) == 0, calm.stderr and calm.stderr.read()
    killed = disturbed(source, tmp_path / "out", kills, pause=0.1, gap=0.1)
    assert sum(killed.values()) == kills
    shards = [{path.name: path.read_bytes() for path in (tmp_path / out).glob("part-*")} for out in ("calm", "out")]
    assert shards[0] == shards[1]
    results = list(read_results(tmp_path / "out"))
    assert [result["row"] for result in results] == list(range(1, n + 1))
    assert sum("error" in result for result in results) == 2
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["rows"], manifest["errors"], manifest["finished"]) == (n, 2, True)

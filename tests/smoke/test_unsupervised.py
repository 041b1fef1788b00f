"""benchmarks/unsupervised_gpu.sh to its last line, on a CPU, a toy corpus and three updates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_all_variants_are_trained_measured_and_compared(toy_corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "carry").mkdir()
    with tarfile.open(tmp_path / "carry" / "roc.tar.xz", "w:xz") as tar:
        tar.add(toy_corpus, arcname="roc")
    settings = {"PYTHON": sys.executable, "WORK": str(tmp_path / "work"), "DEVICE": "cpu", "MPS": "0", "SEEDS": "0"}
    settings["WEIGHTS"] = "1"
    out = tmp_path / "out"
    command = ["bash", "benchmarks/unsupervised_gpu.sh", str(tmp_path / "carry"), str(out), "900"]
    small = ["--steps", "3", "--hidden", "12", "--latent", "2", "--batch", "16", "--samples", "2"]
    ended = subprocess.run(
        [*command, *small], cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert ended.stdout.splitlines()[-1].startswith("5 variants, "), ended.stdout[-2000:] + ended.stderr[-2000:]
    runs = {path.stem: json.loads(path.read_text()) for path in out.glob("*.json")}
    assert set(runs) == {"one-0", "eight-0", "eight-bias-0", "tags-0", "tags-bias-0"}
    assert all(run["steps"] == 3 and run["bound"] >= run["elbo"] for run in runs.values())
    rows = {line.split(" | ")[0]: line.split(" | ") for line in (out / "table.txt").read_text().splitlines()}
    gained = runs["eight-bias-0"]["bound"] - runs["one-0"]["bound"]
    assert float(rows["eight-bias-0"][3].split()[0]) == pytest.approx(gained, abs=0.02)
    assert (out / "one-0.safetensors").exists()

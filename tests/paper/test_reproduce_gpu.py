"""benchmarks/reproduce_gpu.sh to its last line, on a CPU, a toy corpus and one epoch."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.system
def test_latents_run_to_the_last_line(toy_corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "carry").mkdir()
    with tarfile.open(tmp_path / "carry" / "roc.tar.xz", "w:xz") as tar:
        tar.add(toy_corpus, arcname="roc")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"PATH": path, "WORK": str(tmp_path / "work"), "DEVICE": "cpu", "EPOCHS": "1", "JOBS": "2"}
    command = ["bash", "benchmarks/reproduce_gpu.sh", "latents", str(tmp_path / "carry"), str(tmp_path / "out"), "3000"]
    ended = subprocess.run(
        [*command, "--small", "--only", "train,likelihood"], cwd=ROOT, env={**os.environ, **settings},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert " records, " in ended.stdout.splitlines()[-1], ended.stdout[-2000:] + ended.stderr[-2000:]
    with tarfile.open(tmp_path / "out" / "latents.tar.xz") as tar:
        names = set(tar.getnames())
    assert {"./records/likelihood/slds-1-seed2.json", "./records/likelihood/slds.json"} <= names
    assert not [name for name in names if name.endswith(".safetensors")]

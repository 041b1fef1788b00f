"""benchmarks/reproduce_gpu.sh to its last line, on a CPU, a toy corpus and one epoch."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        ("alive", {"./alpha10-taught/records/write/slds-1.json", "./alpha10-taught/records/likelihood/slds-1.json"}),
        ("latents", {"./records/likelihood/slds-1-seed2.json", "./records/likelihood/slds.json", "./packed.sha256"}),
    ],
)
def test_a_part_runs_to_its_last_line(part: str, wanted: set[str], toy_corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "carry").mkdir()
    with tarfile.open(tmp_path / "carry" / "roc.tar.xz", "w:xz") as tar:
        tar.add(toy_corpus, arcname="roc")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"PATH": path, "WORK": str(tmp_path / "work"), "DEVICE": "cpu", "MPS": "0", "EPOCHS": "1", "JOBS": "2"}
    command = ["bash", "benchmarks/reproduce_gpu.sh", part, str(tmp_path / "carry"), str(tmp_path / "out"), "3000"]
    only = ["--small"] + (["--only", "train,likelihood"] if part == "latents" else [])
    ended = subprocess.run(
        [*command, *only], cwd=ROOT, env={**os.environ, **settings, "ALPHAS": "10"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert " records, " in ended.stdout.splitlines()[-1], ended.stdout[-2000:] + ended.stderr[-2000:]
    with tarfile.open(tmp_path / "out" / f"{part}.tar.xz") as tar:
        names = set(tar.getnames())
    assert wanted <= names
    assert not [name for name in names if name.endswith(".safetensors")]
    assert part == "alive" or list((tmp_path / "out").glob("slds.tar.*"))

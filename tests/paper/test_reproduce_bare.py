"""What of `fabula reproduce` wants a GPU runs on a bare machine, where nothing reads raw text, tags or scores."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ABSENT = (
    "spacy",
    "vaderSentiment",
    "rouge_score",
    "pyrouge",
    "pycocoevalcap",
    "transformers",
    "mauve",
    "afinn",
    "nrclex",
)
PROGRAM = """
import sys
from importlib.machinery import PathFinder
class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {absent!r} else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Bare
from fabula.cli import main
words = ["reproduce", "--small", "--data", {data!r}, "--out", "report", "--device", "cpu"]
only = "train/lm,likelihood/lm,write/lm,score,report"
assert main([*words, "--only", only, "--set", "train.epochs=1", "--set", "train.batch=200"]) == 0
"""


@pytest.mark.system
def test_trains_writes_and_reports_without_the_scorers(toy_corpus: Path, tmp_path: Path) -> None:
    program = PROGRAM.format(absent=set(ABSENT), data=str(toy_corpus))
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "3 units done now" in ended.stdout
    told = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "| 196.30 |" in told

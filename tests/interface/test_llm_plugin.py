"""The plugin of plugins/llm-fabula in llm itself: built, found by its entry point, asked by llm's command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fabula

pytest.importorskip("llm")
ROOT = Path(__file__).parents[2] / "plugins" / "llm-fabula"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin's wheel, built and unpacked where Python finds it and its entry point."""
    folder = tmp_path_factory.mktemp("llm-fabula")
    build = [sys.executable, "-m", "build", "--quiet", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
    subprocess.run([*install, str(folder / "site"), str(wheel)], check=True, capture_output=True)
    return folder


def llm(home: Path, models: Path, *words: str) -> subprocess.CompletedProcess[str]:
    here = os.pathsep.join([str(home / "site"), str(Path(fabula.__file__).parents[1])])
    told = {"PYTHONPATH": here, "LLM_USER_PATH": str(home / "user"), "LLM_LOAD_PLUGINS": "llm-fabula"}
    environment = {**os.environ, **told, "FABULA_MODELS": str(models)}
    program = [sys.executable, "-m", "llm", *words]
    return subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_llm_lists_the_models_and_fills_in(home: Path, random_models: Path) -> None:
    listed = llm(home, random_models, "models", "list", "--options").stdout
    assert "Fabula: fabula/default (aliases: fabula)" in listed
    assert "Fabula: fabula/lm" in listed
    assert "ending" in listed
    asked = [
        "-m",
        "fabula/lds",
        "Tom was sad.",
        "-o",
        "ending",
        "Tom was glad.",
        "-o",
        "sentences",
        "2",
        "-o",
        "seed",
        "7",
    ]
    streamed = llm(home, random_models, *asked)
    assert streamed.returncode == 0, streamed.stderr
    whole = llm(home, random_models, *asked, "--no-stream")
    assert streamed.stdout == whole.stdout != ""
    filled = fabula.load(random_models / "lds").fill(
        ["Tom was sad.", None, None, "Tom was glad."], candidates=1, seed=7
    )
    assert streamed.stdout.strip() == " ".join(s.text for s in filled.candidates[0].sentences[1:3])


def test_mistakes_are_one_line(home: Path, random_models: Path) -> None:
    wrong = llm(home, random_models, "-m", "fabula/lds", "Tom was sad.", "-o", "arc", "purple")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("Error: unknown tag 'purple'")
    told = llm(home, random_models, "-m", "fabula/lds", "Tom was sad.", "-s", "Be nice.")
    assert "takes no system prompt" in told.stderr

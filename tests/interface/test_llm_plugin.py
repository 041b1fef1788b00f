"""The plugin of plugins/llm-fabula in llm itself: registered in this process, and built, installed and run."""

import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fabula

llm = pytest.importorskip("llm")
ROOT = Path(__file__).parents[2] / "plugins" / "llm-fabula"
DOCS = Path(__file__).parents[2] / "docs"
STORY = ["Tom was sad.", None, None, "Tom was glad."]


@pytest.fixture
def models(installed: Path) -> dict[str, Any]:
    """The plugin's models by name, as it registers them."""
    registered: dict[str, Any] = {}
    plugin = runpy.run_path(str(ROOT / "llm_fabula.py"))
    plugin["register_models"](lambda model, aliases: registered.update({model.model_id: model}))
    return registered


def test_it_writes_what_fill_does(models: dict[str, Any], random_models: Path) -> None:
    assert set(models) == {"fabula/default", "fabula/lds", "fabula/lm", "fabula/s2s"}
    asked = {"prompt": "Tom was sad.", "ending": "Tom was glad.", "sentences": 2, "seed": 7}
    streamed, whole = (models["fabula/lds"].prompt(**asked, stream=stream) for stream in (True, False))
    filling = fabula.load(random_models / "lds").fill(STORY, candidates=1, seed=7)
    assert "".join(streamed) == whole.text() == " ".join(s.text for s in filling.candidates[0].sentences[1:3])
    assert whole.response_json["seed"] == 7


def test_mistakes_are_one_line(models: dict[str, Any]) -> None:
    model = models["fabula/lds"]
    for said, message in ({"arc": "purple"}, "unknown tag 'purple'"), ({"system": "Be nice."}, "no system prompt"):
        with pytest.raises(llm.ModelError, match=message):
            model.prompt("Tom was sad.", **said).text()


@pytest.mark.system
def test_the_wheel_is_found_by_llm(random_models: Path, tmp_path: Path) -> None:
    """Built and unpacked where Python finds its entry point."""
    build = [sys.executable, "-m", "build", "--quiet", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
    subprocess.run([*install, str(tmp_path / "site"), str(wheel)], check=True, capture_output=True)
    path = os.pathsep.join([str(tmp_path / "site"), str(Path(fabula.__file__).parents[1])])
    variables = {"PYTHONPATH": path, "LLM_USER_PATH": str(tmp_path / "user"), "LLM_LOAD_PLUGINS": "llm-fabula"}
    environment = {**os.environ, **variables, "FABULA_MODELS": str(random_models)}
    listing = [sys.executable, "-m", "llm", "models", "list", "--options"]
    listed = subprocess.run(listing, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "Fabula: fabula/default (aliases: fabula)" in listed
    assert "ending" in listed
    # The command that the docs print, as they print it.
    line = next(line for line in (DOCS / "programs.md").read_text().splitlines() if " llm -m fabula" in line)
    variable, command, *words = shlex.split(line)
    del environment["LLM_LOAD_PLUGINS"]
    environment |= {variable.partition("=")[0]: variable.partition("=")[2]}
    assert command == "llm"
    called = [sys.executable, "-m", "llm", *words]
    written = subprocess.run(called, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert (written.returncode, written.stderr) == (0, "")
    assert written.stdout.strip()

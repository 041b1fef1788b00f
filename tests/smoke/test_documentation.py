"""The site builds without a warning and documents every public name; the notebooks run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fabula

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.system
def test_the_site_builds_without_a_warning_and_has_every_public_name(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("_build", "generated"))
    for name in ("README.md", "CHANGELOG.md"):  # copied, not linked: their links are about where they lie
        shutil.copy(ROOT / name, tmp_path)
    for name in ("src", "plugins"):
        (tmp_path / name).symlink_to(ROOT / name)
    words = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", "site"]
    environment = {**os.environ, "PYTHONPATH": str(Path(fabula.__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    reference = (tmp_path / "site" / "python.html").read_text(encoding="utf-8")
    for name in set(fabula.__all__) - {"__version__"}:
        shown = getattr(fabula, name).__name__  # of an alias the name that it stands for
        assert re.search(rf'id="fabula\.[\w.]+\.{shown}"', reference), name
    routes = (tmp_path / "site" / "generated" / "http.html").read_text(encoding="utf-8")
    assert "POST /v1/completions" in routes


def test_there_are_five_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["fill-in", "inside", "oscillator", "own-decoder", "own-labels"]


@pytest.mark.system
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(Path(fabula.__file__).parents[1]))
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert shown, "kept with outputs: python docs/notebooks/run.py"
    assert (path.stem in ("inside", "oscillator")) == any("image/png" in output.get("data", ()) for output in shown)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()

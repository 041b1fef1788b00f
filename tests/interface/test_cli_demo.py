"""`fabula demo` fills in a story with what is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabula import catalogue, cli
from fabula.cli import demo


def test_it_fills_in_its_story(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With the small model, which stands in where the default one's base is not installed."""
    monkeypatch.setattr(catalogue, "find_base", lambda *_: None)
    assert cli.main(["demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[1] == ">" for line in lines[:5]] == [False, True, True, True, False]
    assert (lines[0].endswith(str(demo.STORY[0])), lines[4].endswith(str(demo.STORY[4]))) == (True, True)
    assert all("●" in line for line in lines[:5])  # the arc


def test_without_any_model_it_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model called demo, which an older version trained, is not taken for the default one."""
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "config.json").write_text("{}")
    monkeypatch.setenv("FABULA_MODELS", str(tmp_path))
    monkeypatch.setattr(catalogue, "PACKAGED", tmp_path / "packaged")
    assert cli.main(["demo"]) == 2
    assert capsys.readouterr().err == "fabula demo: no model is installed: name a checkpoint's folder\n"

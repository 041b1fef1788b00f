"""The same stories give the same bytes: in other blocks, and through either door."""

import json
from pathlib import Path

import pytest

import fabula.cli
import fabula.corpus.prepare as preparation
from fabula.corpus.toy import toy_stories


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three splits; the first with rows that are kept out, so that their order is compared too."""
    folder = tmp_path_factory.mktemp("stories")
    paths = {}
    for seed, name in enumerate(("train", "valid", "test")):
        stories = ["\n".join(story.sentences) for story in toy_stories(90, seed)]
        if name == "train":
            stories[7] = stories[50] = "Alone."
            stories[51] = "Mira ran.\n" + "a.b," * 150
        paths[name] = folder / f"{name}.txt"
        paths[name].write_text("\n\n".join(stories))
    return paths


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def _prepare(files: dict[str, Path], out: Path) -> preparation.Report:
    return preparation.prepare(
        [files["train"]], out, valid=files["valid"], test=files["test"], cutoff=2, progress=False
    )


def test_blocks_do_not_show(files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = _prepare(files, tmp_path / "one")
    assert len(_bytes(tmp_path / "one")) == 2 + 3 * 6
    monkeypatch.setattr("fabula.corpus.encode.BLOCK", 7)
    small = _prepare(files, tmp_path / "small")
    assert _bytes(tmp_path / "one") == _bytes(tmp_path / "small")
    assert one.rejected == small.rejected
    assert [row.reason.split(" has ")[0] for row in one.rejected] == ["one sentence only"] * 2 + ["sentence 2"]
    assert one.splits["train"].rejected == 3


def test_the_command_is_the_function(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = _prepare(files, tmp_path / "function")
    rest = ["--valid", str(files["valid"]), "--test", str(files["test"]), "--cutoff", "2", "--json"]
    assert fabula.cli.main(["prepare", str(files["train"]), "--out", str(tmp_path / "command"), *rest]) == 0
    assert _bytes(tmp_path / "function") == _bytes(tmp_path / "command")
    assert json.loads(capsys.readouterr().out) == json.loads(report.to_json()) | {"folder": str(tmp_path / "command")}

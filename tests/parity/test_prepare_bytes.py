"""The same stories give the same bytes: run again, by more processes, in other pieces, through either door."""

import json
from pathlib import Path

import numpy as np
import pytest

import fabula.cli
import fabula.corpus.prepare as preparation
from fabula.corpus.dataset import ARRAYS, Corpus
from fabula.corpus.toy import toy_stories
from fabula.errors import UserError
from fabula.models.batch import StoryDataset


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


def _prepare(files: dict[str, Path], out: Path, jobs: int = 1, shard_rows: int = 1000) -> preparation.Report:
    return preparation.prepare(
        [files["train"]], out, valid=files["valid"], test=files["test"], cutoff=2, jobs=jobs, progress=False,
        shard_rows=shard_rows,
    )  # fmt: skip


def test_processes_and_pieces_do_not_show(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = _prepare(files, tmp_path / "one")
    assert len(_bytes(tmp_path / "one")) == 2 + 3 * 6
    monkeypatch.setattr("fabula.corpus.pieces.PIECE", 7)
    small = _prepare(files, tmp_path / "small")
    monkeypatch.setattr(preparation, "INLINE_BYTES", 0)  # or so little text would stay in this process
    many = _prepare(files, tmp_path / "many", jobs=2)
    assert _bytes(tmp_path / "one") == _bytes(tmp_path / "small") == _bytes(tmp_path / "many")
    assert one.rejected == small.rejected == many.rejected
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


def test_shards_are_the_same_stories(files: dict[str, Path], tmp_path: Path) -> None:
    """Cut by rows of the input, of which some hold no story; read as one, to the same batches."""
    _prepare(files, tmp_path / "whole")
    _prepare(files, tmp_path / "cut", shard_rows=25)
    whole, cut = Corpus.open(tmp_path / "whole"), Corpus.open(tmp_path / "cut")
    assert len(list((tmp_path / "cut").glob("train-0000?.tokens.npy"))) == 4
    assert (whole.manifest["schema"], cut.manifest["schema"]) == (1, 2)
    different = {key for key in whole.manifest if whole.manifest[key] != cut.manifest[key]}
    assert different == {"schema", "files", "digest"}
    for split in whole.splits:
        one, many = whole.split(split), cut.split(split)
        for array in ARRAYS:
            np.testing.assert_array_equal(np.asarray(getattr(many, array)), getattr(one, array))
            assert getattr(many, array).dtype == getattr(one, array).dtype
        assert (many.ids, len(many)) == (one.ids, len(one))
        for story in range(len(one)):
            assert [s.tolist() for s in many.sentences(story)] == [s.tolist() for s in one.sentences(story)]
            assert many.story_tags(story).tolist() == one.story_tags(story).tolist()
        rows = np.arange(0, len(one), 3)
        batches = (StoryDataset(stories, "cpu").batch(rows) for stories in (one, many))
        assert all(np.array_equal(a, b) for a, b in zip(*batches, strict=True))
    (tmp_path / "cut" / "train-00002.tags.npy").unlink()
    with pytest.raises(UserError, match=r"train-00002.tags.npy is missing"):
        Corpus.open(tmp_path / "cut")

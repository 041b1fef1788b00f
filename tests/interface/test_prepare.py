"""`fabula prepare` from the outside: what it prints, what it refuses, and that it leaves nothing half-written."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import fabula.cli
from doors import Refused
from fabula.corpus.dataset import Corpus

HEADER = "storyid,storytitle,sentence1,sentence2,sentence3,sentence4,sentence5\n"
GOOD = "id,Title,Mira ran.,She fell.,She cried.,Tom came.,She was happy.\n"

Fabula = Callable[..., tuple[int, str, str]]


@pytest.fixture
def fabula_prepare(capsys: pytest.CaptureFixture[str]) -> Fabula:
    """Run `fabula prepare` here: exit code, standard output, standard error."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = fabula.cli.main(["prepare", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "good.csv"
    path.parent.mkdir()
    path.write_text(HEADER + GOOD * 3)
    return path


FILE_FAULTS = {
    "empty": (b"", "is empty"),
    "blank": (b"\xef\xbb\xbf\n \n", "is empty"),
    "header only": (HEADER.encode(), "is empty: it holds no story"),
    "header without sentences": (b"name,text\na,b\n", "its header has no sentence columns"),
    "not UTF-8": ((HEADER + GOOD).encode() + b"id,T,Caf\xe9.,B.,C.,D.,E.\n", "line 3: not valid UTF-8"),
    "no usable story": ((HEADER + "id,T,A.,,C.,D.,E.\n" * 2).encode(), "no usable story left; the first of 2 rejected"),
}


@pytest.mark.parametrize(("fault", "role"), [*((fault, "train") for fault in FILE_FAULTS), ("empty", "test")])
def test_a_fault_of_a_file(refused: Refused, good: Path, tmp_path: Path, fault: str, role: str) -> None:
    """One clear line that names the file, exit 2, nothing left: not even the folders above the target."""
    content, reason = FILE_FAULTS[fault]
    bad = tmp_path / "in" / "bad.csv"
    bad.write_bytes(content)
    files = [bad] if role == "train" else [good, f"--{role}", bad]
    error = refused("prepare", *files, "--out", tmp_path / "new" / "deep" / "out")
    assert "bad.csv" in error
    assert reason in error
    assert os.listdir(tmp_path) == ["in"]


def test_a_missing_file_or_a_folder_in_its_place(
    fabula_prepare: Fabula, refused: Refused, good: Path, tmp_path: Path
) -> None:
    to = ("--out", tmp_path / "out")
    (tmp_path / "story.docx").write_text("A.\nB.\n")
    assert "absent.csv does not exist" in refused("prepare", good, "--test", tmp_path / "absent.csv", *to)
    assert "Is a directory" in refused("prepare", tmp_path, *to)
    assert "ends in .csv, .jsonl or .txt" in refused("prepare", tmp_path / "story.docx", *to)
    assert not (tmp_path / "out").exists()


BAD_OPTIONS = [
    "--cutoff 0",
    "--paragraphs",
    "--tagger own",
    "--toy 9",
]


@pytest.mark.parametrize("options", BAD_OPTIONS)
def test_an_option_that_makes_no_sense(refused: Refused, good: Path, tmp_path: Path, options: str) -> None:
    assert refused("prepare", good, *options.split(), "--out", tmp_path / "out")
    assert os.listdir(tmp_path) == ["in"]


def test_faults_of_rows_are_kept_out_counted_and_listed(fabula_prepare: Fabula, good: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    long = "word " * 10_000
    punctuated = "a.b," * 150  # few blanks, many words
    bad = ["id,T,A.,,C.,D.,E.\n", f"id,T,A.,{long},C.,D.,E.\n", f'id,T,A.,"{punctuated}",C.,D.,E.\n']
    path.write_text(HEADER + GOOD + "".join(bad) + GOOD + "id,T,A.\n" * 12)
    text = tmp_path / "one.txt"
    text.write_text("Alone.\n\nMira ran.\nShe fell.\n")
    code, out, error = fabula_prepare(path, text, "--valid", good, "--out", tmp_path / "out")
    assert (code, error) == (0, "")
    assert "3 stories" in out
    assert "rejected rows: 16" in out
    listed = [line.strip() for line in out.splitlines() if ", line " in line]
    assert len(listed) == 10
    assert listed[0] == "rows.csv, line 3: sentence 2 is empty"
    assert listed[1] == "rows.csv, line 4: sentence 2 has 10,000 words, more than 200"
    assert listed[2].startswith("rows.csv, line 5: sentence 2 has ")
    assert listed[3] == "rows.csv, line 7: 3 fields where the header has 7"
    assert "and 6 more" in out
    report = json.loads(fabula_prepare(path, text, "--valid", good, "--out", tmp_path / "again", "--json")[1])
    assert report["splits"]["train"]["rejected"] == 16
    assert len(report["rejected"]) == 10
    assert len(Corpus.open(tmp_path / "out").split("train")) == 3


def test_only_a_corpus_is_replaced_and_with_force_only(
    fabula_prepare: Fabula, refused: Refused, good: Path, tmp_path: Path
) -> None:
    """The manifest says nothing of the machine."""
    out = tmp_path / "out"
    assert fabula_prepare(good, "--out", out)[0] == 0
    before = (out / "manifest.json").read_text()
    assert str(tmp_path) not in before
    source = {"name": "good.csv", "bytes": good.stat().st_size}
    assert json.loads(before)["provenance"]["sources"]["train"][0].items() >= source.items()
    assert "--force" in refused("prepare", good, "--out", out, "--cutoff", "1")
    assert (out / "manifest.json").read_text() == before
    assert fabula_prepare(good, "--out", out, "--cutoff", "1", "--force")[0] == 0
    assert Corpus.open(out).manifest["settings"]["cutoff"] == 1
    assert "not a prepared corpus" in refused("prepare", good, "--out", tmp_path / "in", "--force")
    assert "not a folder" in refused("prepare", good, "--out", good, "--force")
    assert good.exists()
    assert "Not a directory" in refused("prepare", good, "--out", good / "below" / "a" / "file")
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


def test_a_failed_replacement_leaves_the_old_corpus(
    fabula_prepare: Fabula, refused: Refused, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    fabula_prepare(good, "--out", out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    rename = Path.rename

    def fails(path: Path, target: Path) -> Path:
        if Path(target) == out and path.name != "replaced":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fails)
    assert "Input/output error" in refused("prepare", good, "--out", out, "--cutoff", "1", "--force")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


def test_a_full_disk_or_a_stop_leaves_nothing(
    fabula_prepare: Fabula, refused: Refused, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills at the fourth file, as the operating system would tell it."""
    written = []

    def full(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in refused("prepare", good, "--out", tmp_path / "deep" / "out")
    assert os.listdir(tmp_path) == ["in"]
    monkeypatch.setattr("fabula.corpus.encode.Split.write", stop)
    assert fabula_prepare(good, "--out", tmp_path / "deep" / "out")[0] == 130
    assert os.listdir(tmp_path) == ["in"]


def test_stories_to_validate_on_are_drawn_and_said(fabula_prepare: Fabula, tmp_path: Path) -> None:
    """The examples of the help name no --valid, and what they prepare has to be trainable."""
    stories = [f"Tom saw {number} dogs.\nHe ran home.\n" for number in range(40)]
    (tmp_path / "mine.txt").write_text("\n".join(stories))
    code, _, told = fabula_prepare(tmp_path / "mine.txt", "--out", tmp_path / "out", "--cutoff", "1")
    assert code == 0
    assert "2 of the stories were drawn (seed 0) to validate on; name others with --valid" in told
    corpus = Corpus.open(tmp_path / "out")
    first = (tmp_path / "out" / "valid.ids.txt").read_text()
    assert (len(corpus.split("train")), len(corpus.split("valid"))) == (38, 2)
    assert fabula_prepare(tmp_path / "mine.txt", "--out", tmp_path / "same", "--cutoff", "1")[0] == 0
    assert (tmp_path / "same" / "valid.ids.txt").read_text() == first
    assert fabula_prepare(tmp_path / "mine.txt", "--out", tmp_path / "other", "--cutoff", "1", "--seed", "1")[0] == 0
    assert (tmp_path / "other" / "valid.ids.txt").read_text() != first
    (tmp_path / "one.txt").write_text(stories[0])
    code, _, told = fabula_prepare(tmp_path / "one.txt", "--out", tmp_path / "single", "--cutoff", "1")
    assert (code, "name some with --valid" in told) == (0, True)

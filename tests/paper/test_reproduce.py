"""`fabula reproduce` at toy size: a slice from training to the page, its plan and its records; all of it (system)."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fabula.cli import main
from fabula.corpus.dataset import Corpus
from fabula.corpus.tokenize import detokenise
from fabula.errors import UserError
from fabula_paper.plan import SYSTEMS, TABLE_SETTINGS, narrowed, systems_for, units_of
from fabula_paper.readers import read_lines
from fabula_paper.records import Records
from fabula_paper.report import mixed_weights

FAST = ["--small", "--device", "cpu", "--set", "train.epochs=1", "--set", "train.batch=128"]
SLICE = ("train/slds", "train/lm", "likelihood/lm", "sample/slds.234.gibbs-peek", "sample/slds.2.gibbs", "write/slds")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy corpus that --small prepares for itself."""
    out = tmp_path_factory.mktemp("reproduce")
    assert main(["reproduce", *FAST, "--out", str(out), "--only", "report"]) == 0
    return out / "toy"


@pytest.fixture(scope="module")
def done(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report folder in which a slice of all units is done."""
    out = tmp_path_factory.mktemp("slice")
    words = ["--data", str(toy), "--out", str(out), "--only", ",".join((*SLICE, "report"))]
    assert main(["reproduce", *FAST, *words]) == 0
    return out


def untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: untimed(v) for k, v in value.items() if "second" not in k and k != "commit"}
    return [untimed(v) for v in value] if isinstance(value, list) else value


def compared(folder: Path) -> dict[str, Any]:
    """Texts byte for byte; records without their times and commits."""
    texts = {path: path.read_bytes() for path in (folder / "texts").rglob("*.jsonl")}
    records = {path: untimed(json.loads(path.read_text())) for path in (folder / "records").rglob("*.json")}
    return {str(path.relative_to(folder)): content for path, content in {**texts, **records}.items()}


def test_records_and_page_of_a_slice(toy: Path, done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = Records(done)
    for name in SLICE:
        assert {"commit", "seed", "n", "data_hash", "kind", "seconds", "weights"} <= set(records.read(name) or {})
    assert mixed_weights([records.read(name) or {} for name in SLICE]) == []
    html, markdown = ((done / name).read_text(encoding="utf-8") for name in ("index.html", "report.md"))
    assert "no figure here says anything about the paper" in html
    # Nothing is fetched, and every link leads to a line of this page.
    assert not re.search(r"https?://(?!www.w3.org/)|@import|src=", html)
    targets = set(re.findall(r"<a href=\"([^\"]+)", html))
    assert "#likelihood/lm" in targets
    assert targets <= {f"#{name}" for name in re.findall(r"id=\"([^\"]+)", html)}
    # Written sentences are shown, given ones are not.
    text = records.texts("sample/slds.234.gibbs-peek")[0]
    corpus = Corpus.open(toy)
    test = corpus.split("test")
    first = test.sentences(list(test.ids).index(text["id"]))[0].tolist()
    given = detokenise(corpus.vocabulary.decode(first)).replace("'", "&#39;")
    assert len(text["lines"]) == 3
    assert f"<code>{text['id']}</code> [given] " in html
    assert given not in html
    words = ["reproduce", *FAST, "--data", str(toy), "--out", str(done)]
    # A second call finds everything done, and makes the same report.
    capsys.readouterr()
    assert main([*words, "--json", "--only", ",".join((*SLICE, "report"))]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["done"], set(again["skipped"]), again["failed"]) == ([], set(SLICE), {})
    assert (done / "index.html").read_text(encoding="utf-8") == html
    # Packed into one file it makes the same report, also where the texts are gone.
    for _ in range(2):
        assert main(["reproduce", "--out", str(done), "--pack"]) == 0
        assert not list((done / "records").rglob("*.json"))
        assert (done / "report.md").read_text(encoding="utf-8") == markdown
        if (done / "texts").exists():
            (done / "texts").rename(done / "gone")
    assert main(["reproduce", "--out", str(done), "--check"]) == 0
    assert records.done("likelihood/lm")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--data is missing"),
        (["--data", "nowhere"], "nowhere does not exist"),
        (["--small", "--only", "trian"], "neither a stage"),
        (["--small", "--set", "train.epoch=3"], "unknown setting train.epoch"),
        (["--small", "--set", "train.epochs=0"], "epochs must be above 0"),
        (["--small", "--set", "epochs"], "--set wants KEY=VALUE"),
        (["--small", "--model", "slds"], "--model wants NAME=RUN"),
        (["--small", "--model", "slds=nowhere"], "not a checkpoint"),
        (["--small", "--recipes", "nowhere"], "it has no paper/slds.toml"),
        (["--ratings", "nowhere"], "has no key/key.json"),
        (["--small", "--out", "file/r"], "cannot write"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], message: str, tmp_path: Path, toy: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    data = ["--data", str(toy)] if "--small" in words and "file/r" not in words else []
    assert main(["reproduce", "--out", "r", *data, *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_units_need_only_units_that_come() -> None:
    """Whatever a unit needs is a unit itself, and never one that needs it in turn."""
    units = units_of(systems_for([]))
    assert len({unit.name for unit in units}) == len(units)
    done: set[str] = set()
    while len(done) < len(units):
        ready = {unit.name for unit in units if unit.name not in done and unit.needs in {"", *done}}
        assert ready
        done |= ready
    wanted = {f"sample/{s.name}.{setting}" for s in SYSTEMS if s.paper for setting in TABLE_SETTINGS}
    assert wanted <= {unit.name.rsplit(".", 1)[0] for unit in units if unit.stage == "sample"}
    assert {unit.stage for unit in narrowed(units, ["likelihood"])} == {"likelihood"}
    assert [unit.name for unit in narrowed(units, ["train/lm", "bound/lds"])] == ["train/lm", "bound/lds"]


def test_a_record_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(tmp_path)
    records.write("write/slds", {"n": 1}, [{"id": "a", "lines": ["Tom sang ."]}])
    assert records.done("write/slds")
    assert records.texts("write/slds") == [{"id": "a", "lines": ["Tom sang ."]}]
    records.texts_path("write/slds").write_text("{}\n")
    with pytest.raises(UserError, match="not what its record says"):
        records.texts("write/slds")
    records.texts_path("write/slds").unlink()
    assert not records.done("write/slds")

    def broken(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(UserError, match="disk is full"):
        records.write("write/lm", {"n": 1}, [{"id": "a", "lines": []}])
    assert not records.done("write/lm")
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_record_file_goes_before_the_packed_one(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.write("train/lm", {"n": 1})
    records.write("train/s2s", {"n": 2})
    assert records.pack(shown=0) == 2
    records.write("train/lm", {"n": 3})
    assert [(records.read(name) or {})["n"] for name in records.names()] == [3, 2]
    records.path("train/lm").write_text('{"unit": "train/lm", ')
    with pytest.raises(UserError, match="delete it to do its unit again"):
        records.done("train/lm")
    records.archive.write_bytes(b"no archive")
    with pytest.raises(UserError, match="is damaged"):
        Records(tmp_path).names()


def command(toy: Path, out: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "fabula", "reproduce", *FAST, "--data", str(toy), "--out", str(out), *words]


@pytest.mark.system
def test_killed_and_resumed_leaves_the_same_bytes(toy: Path, tmp_path: Path) -> None:
    """The process is killed as it reports its first unit; the next call does the others, and only those."""
    only = ("--only", "train/lm,likelihood/lm,sample/lm.2.rerank,sample/lm.4.rerank,report")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command(toy, whole, *only), check=True, capture_output=True)
    process = subprocess.Popen(command(toy, killed, *only), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("train/lm ")
    process.kill()
    process.wait()
    process.stdout.close()
    before = {path: path.read_bytes() for path in (killed / "records").rglob("*.json")}
    assert 1 <= len(before) < 4
    ended = subprocess.run(command(toy, killed, *only), check=True, capture_output=True, text=True)
    assert "train/lm" not in ended.stdout
    assert {path: path.read_bytes() for path in before} == before
    assert compared(killed) == compared(whole)


@pytest.mark.system
def test_all_of_it_at_toy_size(tmp_path: Path) -> None:
    """Every stage, score and table but the readers', whose blind sheets are written."""
    words = [sys.executable, "-m", "fabula", "reproduce", "--small", "--device", "cpu"]
    ended = subprocess.run([*words, "--out", str(tmp_path)], check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    tables = markdown[markdown.index("## Infilling") : markdown.index("## Readers")]
    assert [line for line in tables.splitlines() if "not run" in line] == []
    sheets = tmp_path / "sheets"
    more = ["--out", str(tmp_path), "--only", "report", "--sheets", str(sheets)]
    assert "12 pairs" in subprocess.run([*words, *more], check=True, capture_output=True, text=True).stdout
    pairs, key = read_lines(sheets / "pairs.jsonl"), json.loads((sheets / "key" / "key.json").read_text())
    assert {pair["id"] for pair in pairs} == set(key)
    assert len({entry["story"] for entry in key.values()}) == len(key)
    assert all(pair["a"][0] == pair["b"][0] and pair["a"][-1] == pair["b"][-1] for pair in pairs)

"""`fabula reproduce` at toy size: a slice from training to the page, its records and its plan; all of it (system)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fabula.cli import main
from fabula.errors import UserError
from fabula_paper.plan import SETTINGS, SYSTEMS, narrowed, systems_for, units_of
from fabula_paper.records import Records
from fabula_paper.report import mixed_weights

SLICE = "train/slds,train/lm,likelihood/lm,sample/slds.234.bridge,write/slds,dynamics/slds,report"
COMMAND = [sys.executable, "-m", "fabula", "reproduce", "--small", "--device", "cpu"]
FAST = ["--set", "train.epochs=1", "--set", "train.batch=128"]
QUICK = "train/lm,likelihood/lm,sample/lm.2.rerank,write/lm,report"


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy corpus that --small prepares for itself, once."""
    out = tmp_path_factory.mktemp("reproduce")
    assert main(["reproduce", "--small", "--out", str(out), "--device", "cpu", "--only", "report"]) == 0
    return out / "toy"


def compared(folder: Path) -> dict[str, Any]:
    """Texts byte for byte; records without how long they took and which commit the working tree was at."""
    texts = {str(p.relative_to(folder)): p.read_bytes() for p in sorted((folder / "texts").rglob("*.jsonl"))}
    figures: dict[str, Any] = {}
    for path in sorted((folder / "records").rglob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        figures[str(path.relative_to(folder))] = untimed(record)
    return {**texts, **figures}


def untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: untimed(v) for k, v in value.items() if "second" not in k and k != "commit"}
    return [untimed(v) for v in value] if isinstance(value, list) else value


def test_a_slice_from_training_to_the_page(toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "--small", "--data", str(toy), "--out", str(tmp_path), "--device", "cpu", "--json", "--only"]
    assert main([*words, SLICE]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert set(outcome["done"]) == set(SLICE.split(",")) - {"report"}
    assert outcome["failed"] == {}
    records = Records(tmp_path)
    for name in outcome["done"]:
        record = records.read(name)
        assert record is not None
        assert {"commit", "seed", "n", "data_hash", "kind", "seconds", "weights"} <= set(record)
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    # Nothing is fetched, and every link leads to a line of this page.
    assert not re.search(r"https?://(?!www.w3.org/)|@import|src=", html)
    targets = set(re.findall(r"<a href=[\"']([^\"']+)", html))
    assert "#likelihood/lm" in targets
    assert targets <= {f"#{name}" for name in re.findall(r"id=[\"']([^\"']+)", html)}
    assert "no figure here says anything about the paper" in html
    texts = records.texts("sample/slds.234.bridge")
    assert [len(text["lines"]) for text in texts] == [3] * len(texts)
    told = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "[given]" in html
    assert texts[0]["id"] in html
    # A second call finds everything done, and makes the same report.
    assert main([*words, SLICE]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["done"] == []
    assert set(again["skipped"]) == set(outcome["done"])
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == told
    # Packed into one file, with the shown texts, it makes the same report; units packed away are still done.
    assert main(["reproduce", "--out", str(tmp_path), "--pack"]) == 0
    capsys.readouterr()
    assert not list((tmp_path / "records").rglob("*.json"))
    (tmp_path / "texts").rename(tmp_path / "gone")
    assert main(["reproduce", "--out", str(tmp_path), "--pack"]) == 0
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == told
    assert records.done("likelihood/lm")


def test_lines_written_elsewhere_are_shown_and_paired(toy: Path, tmp_path: Path) -> None:
    """The narrator's middles from a file: a record of their own, blind pairs with people's, the stories on the page."""
    from fabula.corpus.dataset import Corpus

    ids = list(Corpus.open(toy).split("test").ids[:3])
    lines = [{"id": name, "lines": ["A cat sang.", "It rained.", "Nobody came."]} for name in ids]
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["reproduce", "--small", "--data", str(toy), "--out", str(tmp_path), "--device", "cpu", "--only", "report"]
    assert main([*words, "--lines", f"narrator={tmp_path / 'lines.jsonl'}"]) == 0
    pairs = [json.loads(line) for line in (tmp_path / "pairs/PAIRS-narrator-human.jsonl").read_text().splitlines()]
    assert [pair["systems"] for pair in pairs] == [["narrator", "people"]] * 3
    assert all(pair["stories"][0][1:4] == ["A cat sang.", "It rained.", "Nobody came."] for pair in pairs)
    assert all(pair["stories"][0][place] == pair["stories"][1][place] for pair in pairs for place in pair["given"])
    assert pairs[0]["stories"][1][1] != "A cat sang."
    assert "Nobody came." in (tmp_path / "index.html").read_text(encoding="utf-8")
    for given, told in (("slds=x", "written elsewhere"), (f"narrator={toy}", "cannot be read")):
        assert main([*words, "--lines", given]) == 2, told


def test_no_sentence_of_the_corpus_is_kept(toy: Path, tmp_path: Path) -> None:
    """Given sentences stand in the texts, the records and the page only where a model wrote the very same one."""
    from fabula.corpus.dataset import Corpus
    from fabula.corpus.tokenize import detokenise

    words = ["reproduce", "--small", "--data", str(toy), "--out", str(tmp_path), "--device", "cpu", "--only"]
    assert main([*words, "train/slds,sample/slds.234.bridge,report"]) == 0
    corpus = Corpus.open(toy)
    test = corpus.split("test")
    row = {name: n for n, name in enumerate(test.ids)}
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    for text in Records(tmp_path).texts("sample/slds.234.bridge")[:3]:
        sentences = test.sentences(row[text["id"]])
        for place in (0, 4):
            given = detokenise(corpus.vocabulary.decode(sentences[place].tolist()))
            assert given.replace("'", "&#39;") not in html
    assert main([*words, "report", "--texts"]) == 0
    assert given.replace("'", "&#39;") not in html
    shown = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert given.replace("'", "&#39;") in shown


@pytest.mark.system
def test_killed_and_resumed_leaves_the_same_bytes(toy: Path, tmp_path: Path) -> None:
    """The process is killed as it says that its first unit is done; the next call does the rest, and only that."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    words = [*COMMAND, *FAST, "--only", QUICK, "--data", str(toy), "--out"]
    subprocess.run([*words, str(whole)], check=True, capture_output=True)
    process = subprocess.Popen([*words, str(killed)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("train/lm ")
    process.kill()
    process.wait()
    process.stdout.close()
    before = {path: path.read_bytes() for path in (killed / "records").rglob("*.json")}
    assert 1 <= len(before) < 4
    assert not (killed / "report.md").exists()
    ended = subprocess.run([*words, str(killed)], check=True, capture_output=True, text=True)
    assert "train/lm" not in ended.stdout
    assert {path: path.read_bytes() for path in before} == before
    assert compared(killed) == compared(whole)


@pytest.mark.system
def test_several_processes_write_what_one_writes(toy: Path, tmp_path: Path) -> None:
    only = "train/lm,train/s2s,write/lm,write/s2s"
    for jobs in (1, 2):
        out = str(tmp_path / str(jobs))
        words = [*COMMAND, *FAST, "--only", only, "--data", str(toy), "--out", out, "--jobs", str(jobs)]
        subprocess.run(words, check=True, capture_output=True)
    assert compared(tmp_path / "1") == compared(tmp_path / "2")


def test_a_deadline_leaves_the_rest_for_later(toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "--small", "--data", str(toy), "--out", str(tmp_path), "--device", "cpu", "--json", "--only"]
    assert main([*words, "train/lm,write/lm", "--deadline", "0.000001"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["done"], set(outcome["waiting"])) == ([], {"train/lm", "write/lm"})
    # Training may end early and be taken as it is; then the record says so.
    assert main([*words, "train/lm", "--train-until", "0.000001"]) == 0
    record = Records(tmp_path).read("train/lm")
    assert record is not None
    assert (record["stopped"], record["epochs"]) == ("time", 1)
    # Every figure of it says so.
    assert main([*words, "report"]) == 0
    assert "| LM (cut after 1 of 3 epochs) |" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_a_change_for_one_system_is_that_systems_alone(toy: Path, tmp_path: Path) -> None:
    words = ["reproduce", "--small", "--data", str(toy), "--out", str(tmp_path), "--device", "cpu", "--only"]
    assert main([*words, "train/lm,train/s2s", "--set", "train.epochs=2", "--set", "lm:train.epochs=1"]) == 0
    records = [Records(tmp_path).read(f"train/{name}") for name in ("lm", "s2s")]
    assert [record["epochs"] for record in records if record is not None] == [1, 2]
    assert [record["changes"]["train.epochs"] for record in records if record is not None] == [1, 2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "r"], "--data is missing"),
        (["--out", "r", "--data", "nowhere"], "nowhere does not exist"),
        (["--out", "r", "--small", "--only", "trian"], "neither a stage"),
        (["--out", "r", "--small", "--set", "train.epoch=3"], "no recipe has a setting train.epoch"),
        (["--out", "r", "--small", "--set", "train.epochs=0"], "epochs must be above 0"),
        (["--out", "r", "--small", "--set", "slsd:train.epochs=2"], "no such system"),
        (["--out", "r", "--small", "--set", "epochs"], "--set wants KEY=VALUE"),
        (["--out", "r", "--small", "--model", "slds"], "--model wants NAME=RUN"),
        (["--out", "r", "--small", "--model", "slds=nowhere"], "not a checkpoint"),
        (["--out", "r", "--small", "--recipes", "nowhere"], "it has no paper/slds.toml"),
        (["--out", "r", "--small", "--cloze", "nowhere.npz"], "does not exist"),
        (["--out", "r", "--small", "--jobs", "0"], "--jobs must be"),
        (["--out", "r", "--small", "--deadline", "-1"], "--deadline must be above 0"),
        (["--out", "file/r", "--small"], "cannot write into"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["reproduce", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


@pytest.mark.system
def test_all_of_it_at_toy_size(tmp_path: Path) -> None:
    """Every stage, score and table; what is missing says `not run` only where people are asked."""
    ended = subprocess.run(
        [*COMMAND, "--jobs", "2", "--out", str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    told = (tmp_path / "report.md").read_text(encoding="utf-8")
    infilling = told[told.index("## Infilling") : told.index("## Human evaluation")]
    # The growth of S2S's bound cannot be measured: it has no samples.
    assert [line[:6] for line in infilling.splitlines() if "not run" in line] == ["| S2S "]
    assert (tmp_path / "index.html").stat().st_size < 4 * 2**20
    pairs = [json.loads(line) for line in (tmp_path / "pairs" / "PAIRS-slds-lm.jsonl").read_text().splitlines()]
    assert len(pairs) == 6
    assert all(pair["stories"][0][place] == pair["stories"][1][place] for pair in pairs for place in pair["given"])


def test_mixed_weights_are_noticed() -> None:
    units = [{"stage": "write", "system": "slds", "weights": w} for w in ("a", "b")]
    assert mixed_weights(units) == ["SLDS"]
    assert mixed_weights(units[:1]) == []


def test_units_need_only_units_that_come() -> None:
    """Whatever a unit needs is a unit itself, and never one that needs it in turn."""
    units = units_of(systems_for([]))
    assert len({unit.name for unit in units}) == len(units)
    done: set[str] = set()
    while len(done) < len(units):
        able = {unit.name for unit in units if unit.name not in done and set(unit.needs) <= done}
        assert able
        done |= able
    wanted = {f"sample/{s.name}.{setting}" for s in SYSTEMS if s.paper for setting in SETTINGS}
    assert wanted <= {unit.name.rsplit(".", 1)[0] for unit in units if unit.stage == "sample"}


def test_only_takes_stages_systems_and_both() -> None:
    units = units_of(systems_for([]))
    assert {unit.stage for unit in narrowed(units, ["likelihood"])} == {"likelihood"}
    assert {unit.system for unit in narrowed(units, ["lds"])} == {"lds"}
    assert [unit.name for unit in narrowed(units, ["train/lm", "write/lm"])] == ["train/lm", "write/lm"]
    with pytest.raises(UserError, match="neither a stage"):
        narrowed(units, ["trian"])


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
    monkeypatch.undo()
    assert not records.done("write/lm")
    assert not list(tmp_path.rglob("*.tmp"))


def test_packed_records_are_read_and_a_file_of_its_own_goes_before(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.write("train/lm", {"n": 1})
    records.write("train/s2s", {"n": 2})
    before = records.read("train/lm")
    assert records.pack(shown=0) == 2
    assert not list((tmp_path / "records").rglob("*.json"))
    assert Records(tmp_path).read("train/lm") == before
    records.write("train/lm", {"n": 3})
    assert [(records.read(name) or {})["n"] for name in records.names()] == [3, 2]
    records.path("train/lm").write_text('{"unit": "train/lm", ')
    with pytest.raises(UserError, match="delete it to do its unit again"):
        records.done("train/lm")
    records.archive.write_bytes(b"no archive")
    with pytest.raises(UserError, match="is damaged"):
        records.names()

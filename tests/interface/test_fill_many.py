"""`fabula fill-many`: every row has one result, in its place; what is wrong with a row is said there; a run goes on."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import fabula
from doors import Refused
from fabula.apps.fleet.shards import read_results
from fabula.cli import main
from fabula.sampling.many import TOGETHER, row_seed

STORY = ["Tom was sad.", None, "The dog was glad."]
FEW = ["--samples", "4", "--candidates", "2"]


@pytest.fixture(autouse=True)
def models(random_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(random_models)


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows(n: int) -> list[dict[str, Any]]:
    """Stories of mixed lengths, blanks and arcs."""
    kinds: list[dict[str, Any]] = [
        {"sentences": STORY},
        {"sentences": [None, "Mia made it to work.", None, "He was glad."], "arc": "-?+?"},
        {"sentences": ["Mia was sad.", None], "starts": {"2": "She was"}},
        {"sentences": ["The car would not start.", None, None, None, "Tom was glad."], "settings": {"samples": 3}},
    ]
    return [{"id": f"r{i}", **kinds[i % len(kinds)]} for i in range(n)]


def run(*words: Any) -> int:
    return main(["fill-many", *map(str, words), "--model", "./default", *FEW])


def test_results_are_those_of_fill_by_the_seed_of_the_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = rows(9)
    assert run(write(tmp_path / "in.jsonl", source), "--out", tmp_path / "out", "--seed", 5, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["errors"], told["finished"]) == (9, 0, True)
    found = list(read_results(tmp_path / "out"))
    assert [result["id"] for result in found] == [row["id"] for row in source]
    narrator = fabula.load("./default")
    for row, result in zip(source, found, strict=True):
        starts = {int(n): words for n, words in row.get("starts", {}).items()}
        settings = {"samples": 4, **row.get("settings", {})}
        seed = row_seed(5, row["id"])
        alone = narrator.fill(row["sentences"], arc=row.get("arc"), starts=starts, candidates=2, seed=seed, **settings)
        assert [c["sentences"] for c in result["candidates"]] == [
            [sentence.text for sentence in candidate.sentences] for candidate in alone.candidates
        ]
    # The Python door.
    again = list(narrator.fill_many(iter(source), candidates=2, samples=4, seed=5))
    assert [row.to_dict() for row in again] == found


BAD: dict[str, tuple[Any, str]] = {
    "65 sentences": ({"id": "x", "sentences": ["Tom was sad.", *[None] * 64]}, "a story has 2 to 64 sentences, not 65"),
    "all missing": ({"id": "x", "sentences": [None, None]}, "every sentence is missing"),
    "nothing missing": ({"id": "x", "sentences": ["A dog.", "A car."]}, "no sentence is missing"),
    "1 MB sentence": ({"id": "x", "sentences": ["a" * 10**6, None]}, "sentence 1 has 1,000,000 characters"),
    "not an object": (["r9"], "not an object"),
    "no sentences": ({"id": "x"}, "no list `sentences`"),
    "a number for a sentence": ({"id": "x", "sentences": [3, None]}, "sentence 1 is not a text"),
    "wrong arc": ({"id": "x", "sentences": STORY, "arc": "+"}, "the arc has 1 tags for 3 sentences"),
    "unknown key": ({"id": "x", "sentences": STORY, "arcs": "+"}, "unknown key 'arcs'"),
    "unknown setting": ({"id": "x", "sentences": STORY, "settings": {"sampels": 3}}, "smc has no setting 'sampels'"),
    "bad setting": ({"id": "x", "sentences": STORY, "settings": {"samples": "many"}}, "samples must be a whole number"),
    "lone surrogate": ({"id": "x", "sentences": ["\ud800 was sad.", None]}, "lone surrogate"),
}  # fmt: skip


def test_a_bad_row_has_its_error_and_the_rest_is_done(tmp_path: Path) -> None:
    good = rows(3)
    bad = [
        {**row, "id": name} if isinstance(row, dict) and row.get("id") == "x" else row for name, (row, _) in BAD.items()
    ]
    lines = [json.dumps(row).encode() for row in [*good, *bad]]
    wrong = [error for _, error in BAD.values()]
    lines += [b'{"id": "u", "sentences": ["Tom \xff was sad.", null]}', b'{"id": "t", "sentences": ["Tom']
    wrong += ["not valid UTF-8", "not valid JSON"]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join([*lines, json.dumps(rows(4)[3]).encode()]))
    assert run(tmp_path / "in.jsonl", "--out", tmp_path / "out") == 3
    found = list(read_results(tmp_path / "out"))
    assert len(found) == len(good) + len(wrong) + 1
    assert all("error" not in result for result in (*found[:3], found[-1]))
    for result, error in zip(found[3:-1], wrong, strict=True):
        assert error in result["error"]
        assert "candidates" not in result
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["errors"] == len(wrong)


def test_csv_holds_sentences_in_columns_or_as_json(tmp_path: Path) -> None:
    wide = b'id,sentence1,sentence2,sentence3,arc\na,Tom was sad.,,"The dog, glad.",-?+\nb,Mia \xff,,x,\nc,one\n'
    (tmp_path / "wide.csv").write_bytes(wide)
    (tmp_path / "json.csv").write_text('id,sentences,settings\nd,"[""Tom was sad."", null]","{""samples"": 2}"\n')
    assert run(tmp_path / "wide.csv", tmp_path / "json.csv", "--out", tmp_path / "out") == 3
    a, b, c, d = read_results(tmp_path / "out")
    assert a["candidates"][0]["sentences"][::2] == ["Tom was sad.", "The dog, glad."]
    assert a["candidates"][0]["asked"] == ["negative", None, "positive"]
    assert b["error"] == "not valid UTF-8"
    assert c["error"] == "not the 5 cells of the header"
    assert len(d["candidates"][0]["sentences"]) == 2


def test_a_job_goes_on_with_the_shards_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TOGETHER, "cpu", 4)
    source, out = write(tmp_path / "in.jsonl", rows(10)), tmp_path / "out"
    assert run(source, "--out", out) == 0
    whole = {path.name: path.read_bytes() for path in out.glob("part-*")}
    assert sorted(whole) == [f"part-0000{n}.jsonl" for n in ("00", "04", "08")]
    kept = (out / "part-000008.jsonl").stat().st_mtime_ns
    (out / "part-000004.jsonl").unlink()
    (out / ".part-000004.jsonl.77.tmp").write_text("half")
    capsys.readouterr()
    assert run(source, "--out", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["already"], told["shards"]) == (10, 6, 3)
    assert {path.name: path.read_bytes() for path in out.glob("part-*")} == whole
    assert (out / "part-000008.jsonl").stat().st_mtime_ns == kept
    assert not list(out.glob(".part*"))
    # A shard of several groups, which earlier versions wrote, counts for all of them.
    parts = [path.read_text() for path in sorted(out.glob("part-*"))]
    (out / "part-000000.jsonl").write_text("".join(parts[:2]))
    (out / "part-000004.jsonl").unlink()
    assert run(source, "--out", out) == 0
    assert len(list(out.glob("part-*"))) == 2
    assert len(list(read_results(out))) == 10


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seed", "1"], "holds a job with another seed"),
        (["--samples", "9"], "holds a job with another settings"),
        (["--model", "./lds"], "holds a job with another model, model_hash"),
        (["--id-column", "name"], "holds a job with another id_column"),
        (["--workers", "0"], "workers must be at least 1"),
    ],
)
def test_another_job_in_the_same_folder_is_refused_in_one_line(
    words: list[str], told: str, tmp_path: Path, refused: Refused
) -> None:
    source = write(tmp_path / "in.jsonl", rows(2))
    assert run(source, "--out", tmp_path / "out") == 0
    assert told in refused("fill-many", source, "--out", tmp_path / "out", "--model", "./default", *FEW, *words)


def test_a_small_job_has_small_shards(tmp_path: Path) -> None:
    """So that a kill costs four stories, not 32."""
    assert run(write(tmp_path / "in.jsonl", rows(7)), "--out", tmp_path / "out") == 0
    assert sorted(path.name[5:11] for path in (tmp_path / "out").glob("part-*")) == ["000000", "000004"]


def test_a_fault_of_ours_in_one_story_does_not_touch_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    narrator = fabula.load("./default")
    fill_together = fabula.StoryModel.fill_together

    def failing(self: fabula.StoryModel, calls: Sequence[dict[str, Any]], at_once: bool = False) -> Any:
        if any(call["sentences"][0] == "Mia was sad." for call in calls):
            raise RuntimeError("a bug")
        return fill_together(self, calls, at_once)

    monkeypatch.setattr(fabula.StoryModel, "fill_together", failing)
    results = list(narrator.fill_many(rows(4), samples=2))
    assert [result.error for result in results] == [None, None, "RuntimeError: a bug", None]


def test_a_row_of_many_is_a_record_with_a_filling() -> None:
    model = fabula.load("./default")
    good, bad = model.fill_many([{"id": "a", "sentences": STORY}, {"id": "b"}], samples=2)
    assert isinstance(good, fabula.FilledRow)
    assert isinstance(good.filling, fabula.Filling)
    assert (bad.filling, bad.error, bad.candidates) == (None, "no list `sentences`", ())


def test_rows_that_fail_show_in_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in.jsonl", [{"sentence": "?"}] * 20)
    assert run(source, "--out", tmp_path / "all") == 3
    told = capsys.readouterr()
    assert "20 rows, 20 of them with an error" in told.out
    assert "row 1: unknown key 'sentence'" in told.err


def test_ids_come_from_a_column_the_corpus_or_the_row(tmp_path: Path) -> None:
    header = "storyid;storytitle;sentence1;sentence2;sentence3"
    (tmp_path / "roc.csv").write_text(f"{header}\ns1;A dog;Tom was sad.;;The dog, glad.\n")
    (tmp_path / "named.csv").write_text("name,sentence1,sentence2\nn1,Tom was sad.,\n")
    for name, words, id in (("roc.csv", [], "s1"), ("named.csv", ["--id-column", "name"], "n1")):
        assert run(tmp_path / name, "--out", tmp_path / f"{name}.out", *words) == 0
        assert [result["id"] for result in read_results(tmp_path / f"{name}.out")] == [id]
    source = write(tmp_path / "bare.jsonl", [{"sentences": STORY}, {"id": "", "sentences": STORY}])
    assert run(source, "--out", tmp_path / "bare") == 0
    assert [result["id"] for result in read_results(tmp_path / "bare")] == [1, 2]
    assert [row.id for row in fabula.load("./default").fill_many([{"sentences": STORY}], samples=1)] == [1]


def test_the_manifest_has_every_setting_that_applied(tmp_path: Path) -> None:
    assert run(write(tmp_path / "in.jsonl", rows(1)), "--out", tmp_path / "out", "--top-k", 7) == 0
    settings = json.loads((tmp_path / "out" / "manifest.json").read_text())["job"]["settings"]
    chosen = {"candidates": 2, "samples": 4, "top_k": 7, "sampler": "smc", "temperature": 0.9, "fluency": 3.0}
    assert {name: settings[name] for name in chosen} == chosen

"""`fabula judge` from the shell: what it makes, and one clear line for every mistake."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from doors import Refused
from fabula import cli
from fabula.apps.judge.pairs import PAIR
from fabula.apps.judge.store import Store
from fabula.apps.studio.store import Store as Studio
from started import Started

TEXTS = ["Kim found a box.", "It was red.", "Kim smiled.", "Kim kept the box."]


def line(n: int, **other: object) -> dict[str, Any]:
    stories = [[TEXTS[0], f"{words} {n}.", TEXTS[2], TEXTS[3]] for words in ("It was red", "It was blue")]
    return {"id": f"pair-{n}", "systems": ["SLDS", "LM"], "given": [0, 3], "stories": stories, **other}


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    return path


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return written(tmp_path / "pairs.jsonl", *[line(n) for n in range(4)])


@pytest.fixture
def db(tmp_path: Path, pairs: Path) -> Path:
    """A study with the answers of two people about two pairs."""
    db = tmp_path / "study.db"
    assert cli.main(["judge", "new", str(pairs), "--db", str(db), "--seed", "3"]) == 0
    store = Store(db)
    for n in range(2):
        for code, better in (("ann", 0), ("bob", None)):
            store.add(f"pair-{n}", code, [[3, 2, 3], [0, 1, 1]], better, 10.25)
    store.close()
    return db


def test_two_systems_files_go_in_as_they_are(
    tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folders of `fabula fill-many`, one of its files, and what `fabula fill --json` prints."""
    rows = [{"id": f"s{n}", "sentences": ["Tom was sad.", None, "Tom smiled."]} for n in range(3)] + [{"id": "bad"}]
    stories = written(tmp_path / "stories.jsonl", *rows)
    for name in ("one", "two"):
        words = ["fill-many", str(stories), "--out", str(tmp_path / name), "--model", "small", "--samples", "2"]
        assert cli.main([*words, "--seed", "1" if name == "one" else "2"]) == 3  # one row is wrong
    (part,) = (tmp_path / "two").glob("part-*")
    for n, results in enumerate(([tmp_path / "one", tmp_path / "two"], [tmp_path / "one", part])):
        db = tmp_path / f"{n}.db"
        assert cli.main(["judge", "new", *map(str, results), "--db", str(db)]) == 0
        assert "3 pairs" in capsys.readouterr().out
        pair = Store(db).items()[0].pair
        assert (set(pair.systems), pair.given) == ({"one", results[1].stem}, (0, 2))
        assert pair.stories[0][::2] == ("Tom was sad.", "Tom smiled.")
    for seed, end in (("1", "\n"), ("2", "\r\n")):
        words = ["fill", "Tom was sad.", "_", "Tom smiled.", "--model", "small", "--samples", "2", "--seed", seed]
        assert cli.main([*words, "--json"]) == 0
        written(tmp_path / f"seed{seed}.json", capsys.readouterr().out.replace("\n", end))
    files = [tmp_path / "seed1.json", tmp_path / "seed2.json"]
    assert cli.main(["judge", "new", *map(str, files), "--db", str(tmp_path / "fill.db")]) == 0
    assert Store(tmp_path / "fill.db").items()[0].pair.given == (0, 2)
    assert "no two different stories" in refused("judge", "new", files[0], files[0], "--db", tmp_path / "x.db")
    assert "neither results" in refused("judge", "new", stories, files[0], "--db", tmp_path / "x.db")
    assert "one file of pairs" in refused("judge", "new", *files, stories, "--db", tmp_path / "x.db")


BAD_LINES = [
    ("{", "Expecting property name"),
    ("[1]", "line 3: "),
    (line(1, extra=1), "extra: is not known here"),
    ({k: v for k, v in line(1).items() if k != "systems"}, "systems: is missing"),
    (line(1, id=7), "id: must be text"),
    (line(1, id="x" * 81), "id: at most 80 characters"),
    (line(1, systems=["LM"]), "systems[1]: is missing"),
    (line(1, systems=["LM", "LM"]), "both stories are of 'LM'"),
    (line(1, stories=[TEXTS]), "stories[1]: is missing"),
    (line(1, stories=[TEXTS, TEXTS]), "the same, word for word"),
    (line(1, stories=[TEXTS, ["One."]]), "stories[1]: one sentence only"),
    (line(1, stories=[TEXTS, ["One.", 2]]), "stories[1]: sentence 2 is not a text"),
    (line(1, given=[0, 4]), "numbered 0 to 3"),
    (line(1, given=[True]), "given[0]: must be a whole number"),
    (line(1, given=[0, 0]), "twice"),
    (line(1, given=[1]), "sentence 1 is given, and yet differs"),
    (line(0), "that of another line already"),
    ("[" * 100_000, "nested too deeply"),
]


def test_a_bad_line_is_told_with_its_number(tmp_path: Path, refused: Refused) -> None:
    for bad, reason in BAD_LINES:
        file = written(tmp_path / "bad.jsonl", line(0), "", bad)
        message = refused("judge", "new", file, "--db", tmp_path / "new.db")
        assert "bad.jsonl, line 3: " in message
        assert reason in message
    assert not (tmp_path / "new.db").exists()


def test_the_pair_of_the_documentation_is_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "judging.md").read_text(encoding="utf-8")
    (example,) = re.findall(r'^\{"id".*$', text, re.MULTILINE)
    assert PAIR.validate_python(json.loads(example)).systems == ("SLDS", "LM")


def test_what_is_wrong_with_a_call_is_one_line(tmp_path: Path, pairs: Path, db: Path, refused: Refused) -> None:
    new: list[str | Path] = ["new", pairs, "--db", tmp_path / "other.db"]
    assert "No such file" in refused("judge", "new", tmp_path / "none.jsonl", "--db", tmp_path / "other.db")
    assert "holds no pair" in refused("judge", "new", written(tmp_path / "empty.jsonl"), "--db", tmp_path / "other.db")
    assert "--annotators is 1 to" in refused("judge", *new, "--annotators", "0")
    for word in ("serve", "report"):
        assert "fabula judge new" in refused("judge", word, "--db", tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    noise = tmp_path / "noise.db"
    noise.write_bytes(b"This is no database, however long it goes on. " * 40)
    assert "not a database" in refused("judge", "report", "--db", noise)
    assert "--bootstrap" in refused("judge", "report", "--db", db, "--bootstrap", "-1")
    assert "--seed" in refused("judge", "report", "--db", db, "--seed", "-1")
    assert "cannot write" in refused("judge", "report", "--db", db, "--bootstrap", "0", "--out", pairs)
    assert "token" in refused("judge", "serve", "--db", db, "--host", "0.0.0.0")
    assert "port" in refused("judge", "serve", "--db", db, "--port", "70000")


def test_a_file_that_holds_something_is_not_overwritten(
    db: Path, pairs: Path, tmp_path: Path, refused: Refused
) -> None:
    assert f"{db} holds a study already: name another file with --db" in refused("judge", "new", pairs, "--db", db)
    assert len(Store(db).judgements()) == 4
    studio = tmp_path / "studio.db"
    Studio(studio)
    for word in ("serve", "report"):
        assert f"{studio} belongs to fabula studio: choose another" in refused("judge", word, "--db", studio)
    assert f"{studio} belongs to fabula studio" in refused("judge", "new", pairs, "--db", studio)


def test_a_study_of_another_version_is_refused(db: Path, refused: Refused) -> None:
    store = Store(db)
    with store.write() as connection:
        connection.execute("UPDATE judge_study SET format = 9")
    assert "written by another version of Fabula (format 9)" in refused("judge", "report", "--db", db)


def test_the_report_is_printed_and_written(db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["judge", "report", "--db", str(db), "--bootstrap", "50", "--out", str(tmp_path / "out")]
    for format, suffix in (("table", "txt"), ("json", "json")):
        capsys.readouterr()
        assert cli.main([*words, "--format", format]) == 0
        assert capsys.readouterr().out == (tmp_path / "out" / f"report.{suffix}").read_text(encoding="utf-8")
    (one,) = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["comparisons"]
    assert (one["judgements"], one["ties"]["value"]) == (4, 50)


@pytest.mark.system
def test_what_was_acknowledged_is_there_after_the_server_is_killed(tmp_path: Path) -> None:
    """Four people answer at once; the server is killed in the middle (SIGKILL), and started again."""
    pairs = written(tmp_path / "pairs.jsonl", *[line(n) for n in range(60)])
    db = tmp_path / "study.db"
    assert cli.main(["judge", "new", str(pairs), "--db", str(db), "--annotators", "4"]) == 0
    acknowledged: set[tuple[str, int]] = set()
    enough = threading.Event()

    def annotate(code: str, url: str, want: int) -> None:
        try:
            with httpx.Client(base_url=f"{url}/api/judge") as client:
                while (task := client.post("/tasks", json={"code": code}).json()["task"]) is not None:
                    answer = {"ratings": [[1, 1, 1], [2, 2, 2]], "choice": "tie", "seconds": 1}
                    kept = client.post("/answers", json={"code": code, "item": task["item"], **answer})
                    assert kept.json()["kept"] is True
                    acknowledged.add((code, task["item"]))
                    if len(acknowledged) >= want:
                        enough.set()
        except httpx.TransportError:
            pass  # the server is gone

    for _ in range(2):
        server = Started("judge", "serve", "--db", db, "--port", 0)
        enough.clear()
        want = len(acknowledged) + 12
        people = [threading.Thread(target=annotate, args=(f"p{n}", server.url, want)) for n in range(4)]
        for one in people:
            one.start()
        assert enough.wait(60)
        server.stop()
        for one in people:
            one.join()
    store = Store(db)
    numbers = {item.pair.id: item.number for item in store.items()}
    kept = [(one.annotator, numbers[one.pair]) for one in store.judgements()]
    assert len(kept) == len(set(kept))
    assert acknowledged <= set(kept)
    # At most one answer of each person was on its way when the server died.
    assert len(kept) - len(acknowledged) <= 4 * 2

"""Every command and every Python example that the docs and the help pages print is run as it is printed."""

import functools
import io
import json
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fabula
from doors import Serving
from fabula.apps.serve.app import create_server
from fabula.apps.serve.settings import ServerSettings
from fabula.cli import main
from fabula.corpus.toy import toy_splits
from raw_stories import write_raw_stories
from small import TINY

ROOT = Path(__file__).parents[2]
DOCS = runpy.run_path(str(ROOT / "tests" / "parity" / "test_docs.py"))
OFF_COLOUR = runpy.run_path(str(ROOT / "docs" / "picture.py"))["OFF_COLOUR"]
ELSEWHERE = {
    "reproduce": "tests/paper", "mcp": "tests/interface/test_mcp.py", "judge": "tests/interface/test_judge_commands.py",
    "train --from": "tests/interface/test_train_from.py and tests/smoke/test_narrator_training.py",
    "fabula bases": "tests/parity/test_bases.py", "--base ": "tests/parity/test_bases.py",
    "--model large": "tests/parity/test_bases.py", "--model runs/mine": "tests/parity/test_bases.py",
    "served:": "tests/interface/test_served.py", "models add-server": "tests/interface/test_served.py",
    "models check": "tests/interface/test_served_system.py",
    "--factors verb": "tests/parity/test_three_factors.py",
}  # fmt: skip
"""Commands that take hours, wait for standard input, or need what is not installed here, and where they are tested."""
FIRST = ("prepare", "train recipes", "train", "evaluate")
"""What others need comes first."""
COMMANDS = [line for line in DOCS["shown_commands"]() if not any(part in line for part in ELSEWHERE)]
COMMANDS.sort(key=lambda line: next((i for i, part in enumerate(FIRST) if f"fabula {part}" in line), len(FIRST)))
PYTHON = [
    pytest.param(page.name, block, id=f"{page.stem}-{number}")
    for page in DOCS["PAGES"]
    if page.name != "extending.md"  # tests/parity/test_extending.py
    for number, block in enumerate(DOCS["blocks"](page.read_text(encoding="utf-8"), "python"))
]
WHOLE, BLANKS = ["Tom lost his dog.", "He cried.", "The dog came home."], ["Tom was sad.", "_", "_", "Tom smiled."]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the files that the commands name; every model is loaded once."""
    folder = tmp_path_factory.mktemp("printed")
    (folder / "recipes").mkdir()
    (folder / "recipes" / "slds.toml").write_text(TINY.replace("epochs = 1", "epochs = 6"))
    stories = toy_splits(120, 1)["train"]
    write_raw_stories(folder, 120)
    lines = [json.dumps({"sentences": s.sentences, "tags": ["a", *["b"] * (len(s.sentences) - 1)]}) for s in stories]
    (folder / "tagged.jsonl").write_text("\n".join(lines))
    (folder / "mine.jsonl").write_text("\n".join(lines[:3]))
    (folder / "mine.txt").write_text("\n\n".join(" ".join(story.sentences) for story in stories))
    (folder / "stories.jsonl").write_text(json.dumps({"id": "a", "sentences": ["Tom was sad.", None, "Tom smiled."]}))
    for name in ("a", "b"):
        row = {"id": name, "sentences": ["Tom was sad.", None, "Tom smiled."]}
        (folder / f"{name}.jsonl").write_text(json.dumps(row))
    (folder / "stories.csv").write_text("name,sentence1,sentence2\na,Tom was sad.,\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("fabula.api.load", functools.lru_cache(fabula.load))
        patch.setattr("fabula.apps.web.serve.serve", lambda *_, **__: None)
        patch.setenv("XDG_DATA_HOME", str(folder))
        yield folder


@pytest.mark.system
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_runs(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the CPU where a GPU is named. A story for a newcomer is not off-colour."""
    words = [word if word != "cuda" else "cpu" for word in shlex.split(line)[1:]]
    sentences = BLANKS if words[0] == "fill" else WHOLE
    (place / "story.txt").write_text("\n".join(sentences))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(" ".join(sentences).encode())))
    if words[0] == "fill-many":  # each is about a folder of its own
        words[words.index("--out") + 1] = f"filled-{abs(hash(line))}"
    assert main(words) == 0
    assert not OFF_COLOUR.search(capsys.readouterr().out)


@pytest.mark.system
@pytest.mark.parametrize(("page", "example"), PYTHON)
def test_an_example_runs(
    page: str, example: str, place: Path, serving: Serving,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Each by itself. Those of programs.md ask a server."""
    if page == "programs.md":
        with serving(create_server(ServerSettings(model="small"))) as url:
            example = example.replace("http://localhost:8001", url).replace('model="default"', 'model="small"')
            exec(compile(example, page, "exec"), {})
    else:
        exec(compile(example, page, "exec"), {})
    assert capsys.readouterr().out.strip()


def test_what_is_left_out_is_tested_elsewhere() -> None:
    for named in ELSEWHERE.values():
        assert all((ROOT / file).exists() for file in named.split(" and ")), named
    assert len(COMMANDS) > 40

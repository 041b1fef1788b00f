"""docs/extending.md is true: its files, installed by its own lines of registration, go through the commands."""

import json
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import fabula
from fabula.cli import main
from fabula.corpus.dataset import Corpus
from fabula.corpus.taggers.protocol import TAGGERS
from fabula.models.protocol import MODELS
from fabula.sampling import protocol
from fabula_paper.scores.quality import MEASURES, Reader, quality

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))

RECIPE = """
name = "tiny"
[model]
kind = "slds"
language = { embedding = 8, hidden = 12 }
dynamics = { latent = 2 }
recognition = { hidden = 6 }
[train]
epochs = 1
"""
"""In place of the page's recipe, which would take too long."""


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def files() -> dict[str, str]:
    """Every Python block of the page, by the name in its first line."""
    return {code.splitlines()[0].removeprefix("# "): code for code in blocks(PAGE, "python")}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's files installed beside Fabula, which has imported none of them."""
    groups: dict[str, dict[str, str]] = {}
    for block in blocks(PAGE, "toml"):
        groups |= tomllib.loads(block)["project"]["entry-points"]
    metadata = tmp_path / "extension-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: extension\nVersion: 1\n")
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in groups.items()]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    for name, code in files().items():
        (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    protocol.SAMPLERS.loaded = False
    yield tmp_path
    for registry in REGISTRIES:
        for name in groups[registry.group]:
            registry.implementations.pop(name, None)
    for name in files():
        sys.modules.pop(name.removesuffix(".py"), None)
    protocol.SAMPLERS.loaded = False


REGISTRIES = (MODELS, TAGGERS, MEASURES, protocol.SAMPLERS)


def commands(section: str) -> Iterator[list[str]]:
    """The section's commands, Python programs run on the way."""
    for block in blocks(SECTIONS[section], "console"):
        for line in block.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            if words[0] == "python":
                runpy.run_path(words[1])
            else:
                yield words[1:]


def test_the_decoder(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`fill` keeps what is given and writes words; `score` is the sum over letters that a hand would make."""
    fill, score = commands("Add a decoder")
    assert main(fill) == 0
    answer = json.loads(capsys.readouterr().out)
    for candidate in answer["candidates"]:
        texts = [sentence["text"] for sentence in candidate["sentences"]]
        assert (texts[0], texts[2]) == ("Tom ran.", "Tom was glad.")
        assert re.fullmatch(r"\S.*[.!?]", texts[1])
        assert candidate["sentences"][1]["asked"] == "positive"
    assert main(score) == 0
    found = json.loads(capsys.readouterr().out)
    from letters import END, LetterTokenizer  # type: ignore[import-not-found]

    model: Any = fabula.load(package / "runs" / "letters").model

    def by_hand(text: str, s: int) -> float:
        tokens = [END, *LetterTokenizer().encode(text), END]
        return sum(float(model.letters.log_p(s, before)[after]) for before, after in pairwise(tokens))

    assert found["log_p"] == pytest.approx(by_hand("Tom ran.", -1) + by_hand("Tom was glad.", -1), abs=1e-3)
    written = answer["candidates"][0]["sentences"][1]
    assert written["log_p"] == pytest.approx(by_hand(written["text"], 2), abs=1e-3), "written without its tag"
    assert LetterTokenizer().decode(LetterTokenizer().encode("Tom's dog ran, he said.")) == "Tom's dog ran, he said."


def test_the_tagger(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its labels are those of the prepared folder, of the model trained on it, and of arcs."""
    (package / "recipes").mkdir()
    (package / "recipes" / "slds.toml").write_text(RECIPE)
    prepare, train, fill = commands("Add a tagger")
    assert main(prepare) == 0
    corpus = Corpus.open(package / "prepared" / "person")
    assert corpus.labels == ("other", "pronoun")
    assert {int(tag) for tag in corpus.split("train").tags} == {0, 1}
    assert main(train) == 0
    capsys.readouterr()
    assert main(fill) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {candidate["sentences"][1]["asked"] for candidate in answer["candidates"]} == {"pronoun"}


def test_the_sampler(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is offered with its setting, and the best candidate comes closest to the length that was asked for."""
    list(commands("Add a decoder"))
    (call,) = commands("Add a sampler")
    lengths = {}
    for tokens in ("5", "25"):
        call[call.index("--tokens") + 1] = tokens
        assert main(call) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["sampler"] == "length"
        best, *others = answer["candidates"]
        assert all(best["score"] >= other["score"] for other in others)
        lengths[tokens] = sum(len(sentence["text"]) for sentence in best["sentences"])
    assert lengths["5"] < lengths["25"]
    assert main([*call, "--chains", "2"]) == 2
    assert "length has no setting 'chains'" in capsys.readouterr().err


def test_the_measure(package: Path, toy_corpus: Path) -> None:
    """Beside Fabula's own, over written sentences alone."""
    stories = [["Tom ran!", "He fell!", "He cried."], ["Mia sang.", "She won!", "All were glad."]]
    given = [[True, False, False], [True, False, False]]
    found = quality(stories, Reader.of(Corpus.open(toy_corpus)), given)
    assert (found["exclaimed"]["value"], found["exclaimed"]["of"]) == (0.5, 4)
    assert "distinct_2" in found


def test_the_command(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is listed in the help, and its answer is one of `fill`'s."""
    list(commands("Add a decoder"))
    (call,) = commands("Add a command")
    assert main(call) == 0
    text = json.loads(capsys.readouterr().out)["text"]
    filling = fabula.load(package / "runs" / "letters").fill(["Tom ran.", None, "Tom was glad."], candidates=5)
    assert text == max((candidate.text for candidate in filling.candidates), key=len)
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "fill in a story as long as possible" in capsys.readouterr().out

"""Files that version 0.1 wrote (commit ffcf88c, `support/version-0.1.tar.xz`): all open, and mean what they meant.

A prepared folder of 40 toy stories, a checkpoint trained on it, databases of a studio and a study, an exported story.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

import fabula
from fabula.apps.judge.report import report
from fabula.apps.judge.store import Store as JudgeStore
from fabula.apps.studio.document import State
from fabula.apps.studio.store import Store
from fabula.apps.web.errors import RefusedError
from fabula.cli import main
from fabula.corpus.dataset import Corpus

FILES = Path(__file__).parents[1] / "support" / "version-0.1.tar.xz"
LINES = ["Karl rented a green boat.", "The boat was safe."]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(FILES) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


def test_a_prepared_folder_is_read_and_trained_on(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = Corpus.open(old / "prepared")
    assert corpus.labels == ("negative", "neutral", "positive")
    recipe = Path(old / "recipe.toml")
    recipe.write_text(
        'name = "more"\n[model]\nkind = "slds"\nlanguage = {embedding = 6, hidden = 8}\ndynamics = {latent = 2}\n'
        "recognition = {hidden = 4}\n[train]\nepochs = 1\nbatch = 16\n",
        encoding="utf-8",
    )
    words = ["train", str(recipe), "--data", str(old / "prepared"), "--out", str(old / "new"), "--quiet"]
    assert main([*words, "--from", str(old / "run")]) == 0, capsys.readouterr().err


def test_a_checkpoint_reads_as_it_did(old: Path) -> None:
    """The figures are those that version 0.1 printed; log p was a bound by other draws."""
    narrator = fabula.load(old / "run")
    tagging = narrator.tag(LINES)
    assert [shares["negative"] for shares in tagging.probabilities] == pytest.approx([0.3855, 0.3761], abs=2e-4)
    assert narrator.score(LINES).log_p == pytest.approx(-73.66, abs=0.5)
    told = narrator.fill([LINES[0], None, LINES[1]], samples=4, candidates=1).candidates[0]
    assert [told.sentences[i].text for i in (0, 2)] == LINES


def test_a_studios_stories_are_there_and_can_be_saved(old: Path) -> None:
    store = Store(old / "studio.db")
    (told,) = store.stories(10, 0)
    branch = store.story(told["id"])["tree"][0]
    state = store.branch(told["id"], branch["id"])["state"]
    assert (told["title"], state["lines"][0]["text"], state["seed"]) == ("The boat", LINES[0], 4)
    whole = State.model_validate(state).model_dump()
    assert store.save(told["id"], branch["id"], None, whole, branch["revision"])["revision"] == branch["revision"] + 1
    exported = json.loads((old / "story.json").read_text(encoding="utf-8"))
    assert (exported["format"], State.model_validate(exported["state"]).lines[1].write) == ("fabula-story", True)


def test_a_study_goes_on(old: Path) -> None:
    store = JudgeStore(old / "judge.db")
    found = report(store, repeats=0)
    assert (found.pairs, found.finished, found.judgements) == (3, 3, 6)
    assert found.comparisons[0].rows[1].best.value == pytest.approx(100 * 4 / 6)
    assert {one.code.casefold() for one in found.annotators} == {"ann", "bob"}
    with pytest.raises(RefusedError, match="has its 2 judgements already"):
        store.add("p0", "cora", [[1, 1], [2, 2]], 1, 3.0)

"""The critic as one more annotator of a study: its figures against plain counting, and people's figures untouched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.report import report
from fabula.apps.judge.show import as_csv, table
from fabula.apps.judge.store import Store
from fabula.apps.judge.study import StudySettings, lay_out
from fabula.cli import main

VALUES = {"a": (2.0, -1.0), "b": (0.5, 1.5), "c": (-2.0, -1.0), "x": (0.0, 9.0)}
"""Of the two stories of each pair, by the critic."""
# (pair, annotator, ratings of story 0, of story 1, better)
ANSWERS = [
    ("a", "ann", (3, 2), (1, 0), 0),
    ("a", "bob", (2, 2), (1, 1), 0),
    ("b", "ann", (0, 1), (3, 3), 1),
    ("b", "bob", (2, 1), (2, 1), None),
    ("c", "ann", (1, 1), (2, 2), 1),
    ("c", "bob", (3, 3), (0, 0), 0),
    ("x", "ann", (0, 0), (3, 3), 1),
]


def pair(id: str, better: int | None = None) -> Pair:
    first, second = ((f"Kim found {id}.", f"One {n} {id}.", f"Kim kept {id} {n}.") for n in (0, 1))
    systems = ("SLDS", "LM") if better is None else None
    return Pair(id=id, systems=systems, given=(0,), stories=(first, second), better=better)


def critic(sentences: Sequence[str]) -> tuple[float, Sequence[float]]:
    """A line does a fifth, then half of the story's value to it."""
    _, number, id = sentences[1].rstrip(".").split()
    value = VALUES[id][int(number)]
    return value, (0.0, value / 5, value / 2)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    settings, made = StudySettings(annotators=2), Store(tmp_path / "judge.db")
    made.create_study(lay_out([pair("a"), pair("b"), pair("c"), pair("x", better=1)], settings), settings)
    for id, code, first, second, better in ANSWERS:
        made.add(id, code, [list(first), list(second)], better, 4.0)
    return made


def test_the_critic_stands_beside_people_and_changes_nothing_of_theirs(store: Store) -> None:
    alone, beside = report(store, repeats=100), report(store, repeats=100, critic=("toy", critic))
    assert beside.groups == alone.groups
    assert beside.annotators == alone.annotators
    found = beside.machine
    assert found is not None
    assert (found.model, found.pairs) == ("toy", 3)
    # Ties left out, five preferences: both of a, ann's of b and of c are the critic's. Two pairs have two of them.
    assert found.agreement.value == pytest.approx(100 * 4 / 5)
    assert found.between_people.value == pytest.approx(100 * 2 / 4)
    values, ratings, effects, lines = [], [], [], []
    for id in "abc":
        for story in (0, 1):
            given = np.asarray([answer[2 + story] for answer in ANSWERS if answer[0] == id])
            value = VALUES[id][story]
            values.append(value)
            ratings.append(given.mean())
            effects += [value / 5, value / 2]
            lines += given.mean(axis=0).tolist()
    assert found.stories.value == pytest.approx(np.corrcoef(values, ratings)[0, 1])
    assert found.sentences.value == pytest.approx(np.corrcoef(effects, lines)[0, 1])
    people = alone.groups[0].alpha_preference.value
    assert found.alpha_preference.value is not None
    assert people is not None
    assert found.alpha_preference.value > people
    assert "A machine beside them, counted in no figure above: the critic of toy, 3 pairs" in table(beside)
    assert "machine" not in table(alone)
    assert "people's preferences shared by the critic %,80.0" in as_csv(beside)


def test_a_study_without_answers_and_a_model_without_a_critic(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = Store(tmp_path / "empty.db")
    empty.create_study(lay_out([pair("a")], StudySettings()), StudySettings())
    found = report(empty, critic=("toy", critic)).machine
    assert found is not None
    assert (found.pairs, found.agreement.value, found.stories.value) == (0, None, None)
    assert main(["judge", "report", "--db", str(store.path), "--critic", "small"]) == 2
    assert "has no critic; the default model has one" in capsys.readouterr().err

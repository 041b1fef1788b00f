"""Who judges what, in whatever order people come, stay away and come back; and a pair is what its line says."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fabula.apps.judge.pairs import PAIR, Pair
from fabula.apps.judge.store import Store
from fabula.apps.judge.study import StudySettings, lay_out

PEOPLE = ("ann", "bob", "cid", "dot", "eve")
SYSTEMS = ("SLDS", "LM", "S2S")


def made_pairs(number: int) -> list[Pair]:
    """Pairs of three systems in turn, named either way round."""
    pairs = []
    for n in range(number):
        one, other = SYSTEMS[n % 3], SYSTEMS[(n + 1) % 3]
        if n // 3 % 2:
            one, other = other, one
        stories = [
            (f"Kim found box {n}.", f"{name} opened {n}.", f"{name} closed {n}.", f"Kim kept box {n}.")
            for name in (one, other)
        ]
        pairs.append(Pair(id=f"pair-{n}", systems=(one, other), given=(0, 3), stories=(stories[0], stories[1])))
    return pairs


class Study:
    """A study in a folder."""

    def __init__(self, folder: str, pairs: list[Pair], **settings: Any) -> None:
        chosen = StudySettings(**settings)
        self.items = lay_out(pairs, chosen)
        self.store = Store(Path(folder) / "judge.db")
        self.store.create_study(self.items, chosen)

    def shown(self, code: str) -> int | None:
        """The number of the item that this annotator is shown."""
        task = self.store.next_task(code).task
        return None if task is None else task.item

    def answer(self, code: str, number: int) -> None:
        assert self.store.answer(code, number, [[1, 1, 1], [2, 2, 2]], "left", 5.0)

    def judge_all(self, code: str, most: int = 1000) -> list[int]:
        """The items that this annotator judges until nothing is left."""
        judged: list[int] = []
        while len(judged) < most and (number := self.shown(code)) is not None:
            self.answer(code, number)
            judged.append(number)
        return judged


@contextmanager
def new_study(pairs: list[Pair], **settings: Any) -> Iterator[Study]:
    with tempfile.TemporaryDirectory() as folder:
        study = Study(folder, pairs, **settings)
        yield study
        study.store.close()


STEPS = st.lists(st.tuples(st.sampled_from(PEOPLE), st.sampled_from(["answer", "look"])), min_size=1, max_size=60)


@settings(max_examples=25, deadline=None)
@given(pairs=st.integers(2, 7), people=st.integers(1, 4), seed=st.integers(0, 99), steps=STEPS)
def test_every_pair_gets_its_people_and_nobody_a_pair_twice(
    pairs: int, people: int, seed: int, steps: list[tuple[str, str]]
) -> None:
    """Some look and leave; at the end everybody finishes."""
    with new_study(made_pairs(pairs), annotators=people, seed=seed) as study:
        for code, action in steps:
            number = study.shown(code)
            if number is not None and action == "answer":
                study.answer(code, number)
        for code in PEOPLE:
            study.judge_all(code)
        judgements = study.store.judgements()
        assert set(Counter((one.pair, one.annotator) for one in judgements).values()) == {1}
        per_pair = Counter(one.pair for one in judgements)
        assert all(per_pair[item.pair.id] == people for item in study.items)


@settings(max_examples=20, deadline=None)
@given(pairs=st.integers(1, 6), people=st.integers(1, 3), seed=st.integers(0, 99))
def test_those_who_look_at_once_are_all_heard(pairs: int, people: int, seed: int) -> None:
    """Five people look before anybody answers: all answers are taken, and what was shown is shown again."""
    with new_study(made_pairs(pairs), annotators=people, seed=seed) as study:
        for code in PEOPLE:
            assert study.shown(code) == study.shown(code) == 1
        for code in PEOPLE:
            study.answer(code, 1)
        assert len(study.store.judgements()) == len(PEOPLE)


@settings(max_examples=60, deadline=None)
@given(pairs=st.integers(2, 40), seed=st.integers(0, 10_000))
def test_sides_are_balanced_and_drawn_from_the_seed(pairs: int, seed: int) -> None:
    chosen = StudySettings(seed=seed)
    items = lay_out(made_pairs(pairs), chosen)
    assert items == lay_out(made_pairs(pairs), chosen)
    assert [item.number for item in items] == list(range(1, pairs + 1))
    left: dict[tuple[str, ...], Counter[str]] = {}
    for item in items:
        pair = item.pair
        left.setdefault(tuple(sorted(pair.systems)), Counter())[pair.systems[int(item.swapped)]] += 1
        assert item.sides()[0] == pair.stories[int(item.swapped)]
        assert [item.better(side) for side in ("left", "right", "tie")] == [item.swapped, not item.swapped, None]
    for (one, other), counts in left.items():
        assert abs(counts[one] - counts[other]) <= 1


# Anything that can stand in a line: quotes, commas, markup, formulas, other scripts.
TEXT = st.text(
    st.characters(blacklist_categories=("Cc", "Cs", "Zl", "Zp", "Zs"), blacklist_characters="\x85"),
    min_size=1,
    max_size=12,
).map(lambda text: f"{text} <b>,\"' =1+1")


@st.composite
def lines(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The fields of some pairs."""
    made = []
    for n in range(draw(st.integers(2, 5))):
        length = draw(st.integers(2, 4))
        given = tuple(sorted(draw(st.sets(st.integers(0, length - 2)))))
        stories = []
        for story in range(2):
            words = [draw(TEXT) for _ in range(length + story * draw(st.integers(0, 1)))]
            stories.append([*words[:-1], f"{words[-1]} {story}"])
        for place in given:
            stories[1][place] = stories[0][place]
        about = {"id": f"{draw(TEXT)} {n}", "systems": ("A,\"'b", "<B>"), "given": given}
        made.append({**about, "stories": tuple(map(tuple, stories))})
    return made


@settings(max_examples=60, deadline=None)
@given(lines())
def test_a_pair_is_what_its_line_says(drawn: list[dict[str, Any]]) -> None:
    """Whatever text it holds, also after SQLite."""
    pairs = [Pair(**fields) for fields in drawn]
    assert [PAIR.validate_python(json.loads(json.dumps(fields))) for fields in drawn] == pairs
    with new_study(pairs) as study:
        assert study.store.items() == study.items

"""Who judges what: whatever the order in which people come, stay away and come back."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.store import Store, Task
from fabula.apps.judge.study import Item, StudySettings, lay_out

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
    """A study in a folder of its own, with a clock that the test turns."""

    def __init__(self, folder: str, pairs: int, people: int, checks: int, seed: int) -> None:
        self.now = 1_000_000.0
        self.settings = StudySettings(seed=seed, annotators=people, checks=checks)
        self.items = lay_out(made_pairs(pairs), self.settings)
        self.store = Store(Path(folder) / "judge.db", clock=lambda: self.now, lease_seconds=100.0)
        self.store.create_study(self.items, self.settings)

    def answer(self, code: str, item: Item) -> None:
        left, right = item.sides()
        self.store.answer(code, item.number, [[1] * (len(left) - 1), [2] * (len(right) - 1)], "left", 5.0)


STEPS = st.lists(
    st.tuples(st.sampled_from(PEOPLE), st.sampled_from(["answer", "look", "vanish"])), min_size=1, max_size=60
)


@settings(max_examples=40, deadline=None)
@given(
    pairs=st.integers(2, 7), people=st.integers(1, 4), checks=st.integers(0, 2), seed=st.integers(0, 99), steps=STEPS
)
def test_every_pair_gets_its_people_and_nobody_a_pair_twice(
    pairs: int, people: int, checks: int, seed: int, steps: list[tuple[str, str]]
) -> None:
    """Some look and leave, some vanish until their pair is given away; at the end everybody finishes."""
    with tempfile.TemporaryDirectory() as folder:
        study = Study(folder, pairs, people, checks, seed)
        for code, does in steps:
            task = study.store.next_task(code)
            if task.item is None:
                continue
            if does == "answer":
                study.answer(code, task.item)
            if does == "vanish":
                study.now += 1_000
        study.now += 1_000
        for code in PEOPLE:
            while (task := study.store.next_task(code)).item is not None:
                study.answer(code, task.item)
        found, total = study.store.judgements()
        assert total == len(found)
        seen = Counter((one.pair, one.annotator) for one in found)
        assert set(seen.values()) == {1}
        of_pair = Counter(one.pair for one in found)
        for item in study.items:
            if not item.pair.is_check:
                assert of_pair[item.pair.id] == people
        # Whoever judged every pair saw every check on the way.
        for code in PEOPLE:
            mine = {one.pair for one in found if one.annotator == code}
            if sum(not item.pair.is_check for item in study.items if item.pair.id in mine) == pairs:
                assert all(item.pair.id in mine for item in study.items)
        study.store.close()


@settings(max_examples=30, deadline=None)
@given(pairs=st.integers(1, 6), people=st.integers(1, 3), seed=st.integers(0, 99))
def test_those_who_look_at_once_never_hold_more_than_the_places(pairs: int, people: int, seed: int) -> None:
    """Five people look before anybody answers: places that are held are not given away, and all answers are taken."""
    with tempfile.TemporaryDirectory() as folder:
        study = Study(folder, pairs, people, 0, seed)
        tasks: dict[str, Task] = {code: study.store.next_task(code) for code in PEOPLE}
        held = Counter(task.item.number for task in tasks.values() if task.item is not None)
        assert max(held.values()) <= people
        assert sum(held.values()) == min(len(PEOPLE), pairs * people)
        for code, task in tasks.items():
            again = study.store.next_task(code)
            assert again.item == task.item, "what was shown is shown again"
            if task.item is not None:
                study.answer(code, task.item)
            else:
                assert task.waiting
        assert study.store.judgements()[1] == sum(held.values())
        study.store.close()


@settings(max_examples=60, deadline=None)
@given(pairs=st.integers(2, 40), checks=st.integers(0, 5), seed=st.integers(0, 10_000))
def test_sides_are_balanced_and_drawn_from_the_seed(pairs: int, checks: int, seed: int) -> None:
    chosen = StudySettings(seed=seed, checks=checks)
    items = lay_out(made_pairs(pairs), chosen)
    assert items == lay_out(made_pairs(pairs), chosen)
    assert [item.number for item in items] == list(range(1, pairs + checks + 1))
    left: dict[tuple[str, ...], Counter[str]] = {}
    for item in items:
        pair = item.pair
        names = pair.systems or (("better", "worse") if pair.better == 0 else ("worse", "better"))
        left.setdefault(tuple(sorted(names)), Counter())[names[int(item.swapped)]] += 1
        assert item.sides()[0] == pair.stories[int(item.swapped)]
    for (one, other), counts in left.items():
        assert abs(counts[one] - counts[other]) <= 1


def test_the_seed_changes_sides_and_order() -> None:
    """Of 40 pairs, two seeds agree on order or on all sides with probability below 1e-10."""
    one, other = (lay_out(made_pairs(40), StudySettings(seed=seed)) for seed in (1, 2))
    assert [item.pair.id for item in one] != [item.pair.id for item in other]
    sides = [{item.pair.id: item.swapped for item in items} for items in (one, other)]
    assert sides[0] != sides[1]


@settings(max_examples=40, deadline=None)
@given(pairs=st.integers(2, 12), checks=st.integers(1, 15), seed=st.integers(0, 1000))
def test_a_check_keeps_what_was_given_and_takes_the_rest_from_one_other_pair(
    pairs: int, checks: int, seed: int
) -> None:
    source = made_pairs(pairs)
    items = lay_out(source, StudySettings(seed=seed, checks=checks))
    made = [item.pair for item in items if item.pair.is_check]
    assert len(made) == checks
    assert len({pair.id for pair in made} | {pair.id for pair in source}) == pairs + checks
    for check in made:
        assert check.better == 0
        (host,) = [pair for pair in source if check.stories[0] in pair.stories]
        worse = check.stories[1]
        assert (worse[0], worse[3]) == (host.stories[0][0], host.stories[0][3])
        donors = [pair for pair in source for story in pair.stories if worse[1:3] == (story[2], story[1])]
        assert donors
        assert host not in donors


def test_the_same_people_in_the_same_order_get_the_same_pairs() -> None:
    """And an annotator's own order is their own: of 7 pairs, two people agree on it with probability 1/5040."""
    orders: list[list[list[str]]] = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            study = Study(folder, 7, 2, 1, 5)
            orders.append([])
            for code in ("ann", "bob"):
                shown = []
                while (task := study.store.next_task(code)).item is not None:
                    shown.append(task.item.pair.id)
                    study.answer(code, task.item)
                orders[-1].append(shown)
            study.store.close()
    assert orders[0] == orders[1]
    assert sorted(orders[0][0]) == sorted(orders[0][1])
    assert orders[0][0] != orders[0][1]


def test_pairs_that_others_began_come_first() -> None:
    with tempfile.TemporaryDirectory() as folder:
        study = Study(folder, 7, 2, 0, 5)
        begun = []
        for _ in range(3):
            task = study.store.next_task("ann")
            assert task.item is not None
            begun.append(task.item.number)
            study.answer("ann", task.item)
        got = []
        for _ in range(3):
            task = study.store.next_task("bob")
            assert task.item is not None
            got.append(task.item.number)
            study.answer("bob", task.item)
        assert sorted(got) == sorted(begun)
        study.store.close()

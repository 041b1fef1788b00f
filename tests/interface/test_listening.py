"""Words while they are written: one sample's text so far, which is heard and never changed by being heard."""

from itertools import pairwise
from typing import Any

import pytest

import fabula
from fabula import listening

STORY = ["Tom was sad.", None, None, "Tom smiled."]


def written(filling: fabula.Filling) -> dict[int, str]:
    return {i: s.text for i, s in enumerate(filling.candidates[0].sentences, start=1) if s.written}


@pytest.mark.parametrize("call", [{"samples": 8}, {"samples": 40, "seed": 5}, {"samples": 8, "notes": ["It rained."]}])
def test_a_listener_hears_every_word_and_changes_none(monkeypatch: pytest.MonkeyPatch, call: dict[str, Any]) -> None:
    monkeypatch.setattr(listening, "SECONDS", 0.0)
    model = fabula.load("small")
    heard: list[dict[int, str]] = []
    with listening.listening(heard.append):
        answers = model.fill_iter(STORY, candidates=1, **call)
        first, spoken = next(answers), list(heard)
        *_, last = answers
    *_, unheard = model.fill_iter(STORY, candidates=1, **call)
    assert last.to_dict() == unheard.to_dict()
    assert set(spoken[0]) == {2}
    assert len(spoken[0][2].split()) == 1
    for before, after in pairwise(spoken):
        if set(before) == set(after) and call["samples"] == 8:
            assert all(after[line].startswith(before[line].rstrip('"')) for line in before), (before, after)
    if call["samples"] == 8:  # the first answer rests on one sample, which was the one that was heard
        assert spoken[-1] == written(first)
    count = len(heard)
    model.fill(STORY, samples=2)
    assert len(heard) == count  # nobody listens any more

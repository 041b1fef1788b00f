"""Stories broken on purpose: lines before the first wrong one stand as they were, and something after them does not."""

import random

import pytest

from fabula.training.corrupt import HE_SHE, OPPOSITES, Corrupter, negate, swapped

STORIES = [
    ["Anna was happy.", "She had won a prize.", "Her friend Kate was not there.", "She told Kate.", "They laughed."],
    ["Bill bought a boat.", "It was old.", "He fixed it.", "He and Max went out at night.", "They found a whale."],
    ["I lost my keys.", "I could not open the door.", "My wife was at work.", "I called her.", "She came home early."],
    ["The dog ran.", "It was fast.", "A man took it.", "The girl cried.", "Her mother gave her a cat."],
]


@pytest.mark.parametrize("story", [*STORIES, ["Tom slept.", "He woke up."]], ids=lambda story: story[0])
def test_lines_before_the_first_changed_one_stay(story: list[str]) -> None:
    for seed in range(40):
        corrupted = Corrupter(STORIES, random.Random(seed))(story)
        assert len(corrupted.sentences) == len(story)
        assert corrupted.sentences[: corrupted.first] == story[: corrupted.first]
        assert corrupted.sentences[corrupted.first] != story[corrupted.first]
        assert corrupted.first >= 1


def test_every_way_changes_a_story_that_it_fits() -> None:
    for seed in range(20):
        corrupt = Corrupter(STORIES, random.Random(seed))
        for way in corrupt.ways:
            # Lines of another story may be this story's own; every other way must change something.
            assert way(list(STORIES[1])) != STORIES[1] or way in (corrupt.substitute, corrupt.other_ending)


def test_words_are_turned_with_their_capitals() -> None:
    assert swapped("She gave him his book.", HE_SHE) == "He gave her her book."
    assert swapped("Happy people always win.", OPPOSITES) == "Sad people never lose."


@pytest.mark.parametrize(
    ("line", "turned"),
    [
        ("He was late.", "He was not late."),
        ("He wasn't late.", "He was late."),
        ("She could not swim.", "She could swim."),
        ("They went home.", "They did not go home."),
        ("Rain!", "Rain!"),
    ],
)
def test_a_negation_is_put_in_or_taken_out(line: str, turned: str) -> None:
    assert negate(line) == turned

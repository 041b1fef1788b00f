"""What is said beside a story's lines: one line for the model, people and places read off the lines."""

from pathlib import Path

import pytest

import fabula
from fabula.corpus.people import People
from fabula.sampling.context import Person, mentions, read_context

KNOWN = People(("Tom",), ("Ann",))


@pytest.mark.parametrize(
    ("people", "notes", "line"),
    [
        ([], [], None),
        ([{"name": "Tom"}], [], "This is a story about Tom."),
        ([{"name": "Tom"}, {"name": "Ann"}], ["It rains"], "This is a story about Tom and Ann. It rains."),
        (
            [Person("Robin", "she", "a shy baker."), Person("Tom")],
            [" ", "Is it late?"],
            "This is a story about Robin, a shy baker, and Tom. Is it late?",
        ),
        ([], ["It is set in a harbour town."], "It is set in a harbour town."),
    ],
)
def test_the_line_before_the_story(people: list[Person], notes: list[str], line: str | None) -> None:
    assert read_context(people, notes).line == line


def test_people_and_places_are_read_off_the_lines() -> None:
    found = mentions(
        [
            "Tom went to Paris with Zelda on Friday.",
            "She told Ann about her trip.",
            "Then Zorblax came, and Zorblax smiled.",
            "The Eiffel was closed.",
        ],
        KNOWN,
    )
    assert found.people == (Person("Tom", "he"), Person("Zelda", "she"), Person("Ann", "she"), Person("Zorblax"))
    assert found.places == ("Paris",)


def test_the_context_is_read_and_never_shown(random_models: Path) -> None:
    narrator = fabula.load(random_models / "default")
    story = ["Mia's car would not start.", None, "Mia made it to work on time."]
    plain = narrator.fill(story, seed=3, samples=6)
    told = narrator.fill(story, seed=3, samples=6, people=[{"name": "Mia"}], notes=["Her car is old."])
    assert [len(c.sentences) for c in told.candidates] == [3] * len(told.candidates)
    assert all([c.sentences[0].text, c.sentences[2].text] == story[::2] for c in told.candidates)
    assert len(told.diagnostics.changed) == 3
    assert told.candidates[0].sentences[0].log_p != plain.candidates[0].sentences[0].log_p  # it was read before
    begun = narrator.fill([None, story[2]], seed=1, samples=4, starts={1: "Mia"}, notes=["Her car is old."])
    assert all(c.sentences[0].text.startswith("Mia") for c in begun.candidates)
    assert len(narrator.write(3, samples=4, people=[{"name": "Mia"}]).candidates[0].sentences) == 3

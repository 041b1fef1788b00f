"""Names the small model does not know: stand-ins go by the pronouns that were given, and places are left alone."""

import pytest

import fabula
from fabula.corpus.people import People
from fabula.corpus.vocabulary import SPECIALS, Vocabulary
from fabula.sampling.names import pronoun_of, stand_ins, unknown_names

PEOPLE = People(he=("Tom", "Dan"), she=("Mia", "Ann"))
KNOWN = ["Tom", "Dan", "Mia", "Ann"]


def prefers_tom(versions: list[list[list[str]]]) -> list[float]:
    return [float(sum(words.count("Tom") for words in sentences)) for sentences in versions]


@pytest.mark.parametrize(
    ("sentences", "pronoun"),
    [
        ([["Aisha", "lost", "her", "keys"]], "she"),
        ([["Aisha", "ran"], ["Then", "she", "fell"]], "she"),
        ([["Aisha", "called", "her", "brother"]], "she"),
        ([["Aisha", "is", "a", "good", "daughter"]], "she"),
        ([["Aisha", "ran"], ["Tom", "fell"], ["He", "cried"]], None),
        ([["Aisha", "told", "him", "her", "secret"]], None),
        ([["Aisha", "ran"]], None),
    ],
)
def test_the_pronoun_of_somebody(sentences: list[list[str]], pronoun: str | None) -> None:
    assert pronoun_of("Aisha", sentences, {"Tom"}) == pronoun


def test_a_stand_in_goes_with_the_pronoun_whatever_the_model_prefers() -> None:
    story = [["Aisha", "lost", "her", "keys"], ["Siobhan", "ran"]]
    both, one = (story, ["Aisha", "Siobhan"]), (story, ["Aisha"])
    assert stand_ins([both], KNOWN, prefers_tom, PEOPLE) == [{"Aisha": "Mia", "Siobhan": "Tom"}]
    assert stand_ins([one], ["Tom", "Dan"], prefers_tom, PEOPLE) == [{"Aisha": "Mia"}], "not among those tried"
    assert stand_ins([one], KNOWN, prefers_tom)[0]["Aisha"] == "Tom", "nothing is known of names"


def test_a_place_is_no_person() -> None:
    vocabulary = Vocabulary((*SPECIALS, "lived", "in", "he", "came", "from"))
    story = [["Zorblax", "lived", "in", "Tarragona"], ["he", "came", "from", "Zorblax"]]
    assert unknown_names(story, vocabulary) == ["Zorblax"], (
        "what begins a sentence is somebody, wherever else it stands"
    )


def test_the_small_model_keeps_to_what_was_given() -> None:
    story = ["Aisha was nervous about her first day.", None, "She loved her new school."]
    small = fabula.load("small")
    (stand_in,) = small.fill(story, samples=2, candidates=1).names.values()
    assert stand_in in small.checkpoint.people.she

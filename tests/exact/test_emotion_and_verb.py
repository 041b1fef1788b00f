"""The taggers `emotion` and `verb`: what they read off a sentence, and how several judge a partly given state."""

import importlib.util
import pickle

import pytest

from fabula.corpus.taggers.emotion import EmotionTagger
from fabula.corpus.taggers.protocol import Taggers, build_tagger, misses, named, read_values
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.corpus.taggers.verb import MODEL, VerbTagger, keys_of

needs_parser = pytest.mark.skipif(importlib.util.find_spec(MODEL) is None, reason="no parser is installed")


@pytest.mark.parametrize(
    ("sentence", "label"),
    [
        ("Nora was thrilled with her new bike.", "joy"),
        ("She wept all night.", "sadness"),
        ("He was furious and shouted.", "anger"),
        ("I was afraid of the dark.", "fear"),
        ("She couldn’t believe it!", "surprise"),
        ("They could not believe it.", "surprise"),
        ("We walked to the market.", "none"),
        ("She was not happy.", "sadness"),  # a negated joy
        ("He was not afraid.", "none"),  # any other negation says nothing
        ("", "none"),
    ],
)
def test_emotions_are_read_off_words_phrases_and_negations(sentence: str, label: str) -> None:
    tagger = EmotionTagger()
    (tag,) = tagger.tag([sentence])
    assert tag is not None
    assert tagger.labels[tag] == label


def test_confidence_grows_with_evidence() -> None:
    one, two = EmotionTagger().judge("He was glad."), EmotionTagger().judge("He was glad and smiled.")
    assert one[0] == two[0] == 0
    assert one[1] < two[1]


def test_a_verb_is_looked_up_with_what_stands_beside_it_first() -> None:
    tagger = VerbTagger()

    def label(*frame: str | None) -> str:
        return tagger.labels[tagger.judge(keys_of(*frame))[0]]  # type: ignore[arg-type]

    assert label("look", None, "prep", "for") == "find"
    assert label("look", None, "acomp", "happy") == "feel"
    assert label("look", None, "prep", "beyond") == "see"
    assert label("break", "up", "", "") == "leave"
    assert label("frobnicate", None, "", "") == "none"


@needs_parser
def test_the_main_verb_is_that_of_the_complement() -> None:
    tagger = VerbTagger()
    expected = {
        "He decided to buy a car.": "buy", "She was sad.": "feel", "Tom is a plumber.": "be", "They went home.": "go",
        "In the end she forgave him.": "forgive", "He had to try to leave.": "leave", "What a day!": "none",
    }  # fmt: skip
    assert [tagger.labels[tag or 0] for tag in tagger.tag(list(expected))] == list(expected.values())


class NoParser(VerbTagger):
    fault = None  # as where a parser is installed

    def tag(self, sentences: list[str]) -> list[int | None]:
        raise AssertionError("nobody asked for verbs")


def test_only_taggers_that_are_asked_for_run_and_misses_are_counted_by_factor() -> None:
    tagger = Taggers((VaderTagger(), EmotionTagger(), NoParser()))
    texts = ["He was glad and smiled.", "She wept.", "He was glad."]
    #        both right              emotion wrong   nothing asked
    wanted = [(2, 0, -1), (-1, 0, -1), (-1, -1, -1)]
    assert misses(tagger, texts, tagger.states.number(wanted).tolist()) == [0, 1, 0]
    assert misses(tagger, texts[:1], tagger.states.number([(0, 1, -1)]).tolist()) == [2]
    assert read_values(tagger, texts, ["emotion"]) == [[2, 0, -1], [0, 1, -1], [2, 0, -1]]
    with pytest.raises(AssertionError, match="nobody asked"):
        read_values(tagger, texts, ["verb"])


def test_a_tagger_is_made_again_from_its_settings_and_its_name() -> None:
    for tagger in (EmotionTagger(), VerbTagger()):
        assert build_tagger(tagger.settings) == tagger
        assert pickle.loads(pickle.dumps(tagger)) == tagger
    several = build_tagger(named("vader,emotion,verb"))
    assert isinstance(several, Taggers)
    assert several.states.sizes == (3, 6, 31)

"""A verb rules from a small text in which every word's frames are known."""

from __future__ import annotations

from fabula.corpus.dataset import Stories
from fabula.corpus.tokenize import tokenise
from fabula.corpus.vocabulary import Vocabulary
from fabula_paper.scores.verbs import Verbs

TEXT = """
he walked home . she walked to school . they would walk to work . she wanted to walk . the walk was long .
he decided to work . she could work . he quickly walked . they often walked . we go to school . he must go .
she ran . the school was big . it snores . it snores . i want to snore . they will snore . he would rest . to rest .
they wanted to fix it . we could fix it . the dogs saw a rabbit . she saw a bird . he opened the door . a door .
""".strip()


def verbs() -> Verbs:
    sentences = [line.split() for line in TEXT.replace(" . ", " .\n").splitlines()]
    vocabulary = Vocabulary.count(sentences, 1)
    return Verbs.learn(Stories.from_sentences([[vocabulary.encode(s) for s in sentences]]), vocabulary)


def test_forms_are_those_that_stand_where_verbs_do() -> None:
    forms = verbs().forms
    assert {"walked", "walk", "work", "wanted", "decided", "go", "ran", "saw", "opened"} <= forms
    assert {"snore", "snores"} <= forms  # the present of a known verb, seen after `it`
    assert not forms & {"school", "home", "quickly", "often", "door", "dogs", "rabbit", "to", "the", "long"}


def test_what_may_be_a_noun_is_none_after_a_determiner() -> None:
    known = verbs()
    assert known.among(tokenise("They walk home.")) == ["walk"]
    assert known.among(tokenise("The walk home.")) == []
    assert known.among(tokenise("The big school.")) == []


def test_the_closed_class_and_clitics() -> None:
    known = verbs()
    assert known.has_verb("She's glad.")
    assert known.has_verb("They're glad.")
    assert known.has_verb("He didn't.")
    assert not known.has_verb("Tom's big red dog.")
    assert known.has_verb("They wagered their points.")  # not in the text at all
    assert not known.has_verb("A big red dog in the house.")

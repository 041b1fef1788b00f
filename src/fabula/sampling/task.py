"""The task as a person states it: sentences with blanks, an arc, opening words. Every mistake is named in one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fabula.corpus.read import MAX_CHARACTERS, MAX_SENTENCES, MAX_WORDS, MIN_SENTENCES, is_unicode
from fabula.corpus.states import Arc, StateSpace, Values
from fabula.corpus.tokenize import split_paragraph
from fabula.errors import UserError
from fabula.sampling.settings import whole_number

USUAL = 5
"""Sentences of a story of which nobody says how long it is."""
BLANK = "_"
"""What a person types for a missing sentence."""


@dataclass(frozen=True)
class Task:
    """A story with blanks; `None` is a missing sentence."""

    sentences: tuple[str | None, ...]
    arc: Values
    """The value of each factor of the state, for each sentence; -1 where it is free."""
    starts: Mapping[int, str] = field(default_factory=dict)
    """Opening words of missing sentences, by their number from 1."""

    @property
    def missing(self) -> tuple[bool, ...]:
        return tuple(sentence is None for sentence in self.sentences)


def fill_task(
    sentences: Sequence[str | None], states: StateSpace, arc: Arc = None, starts: Mapping[int, str] | None = None
) -> Task:
    """A task for `fill`: at least one sentence given, at least one missing."""
    stated = _stated(sentences)
    if None not in stated:
        raise UserError("no sentence is missing: put _ where one is to be written", field="sentences")
    if not any(stated):
        raise UserError("every sentence is missing: use `fabula write` to begin from nothing", field="sentences")
    return _task(stated, states, arc, starts)


def write_task(N: int | None, states: StateSpace, arc: Arc = None, starts: Mapping[int, str] | None = None) -> Task:
    """A task for `write`: nothing given. The length is the arc's where nobody says it, without an arc `USUAL`."""
    if N is None:
        N = USUAL if arc is None else len(states.parse(arc))
    _check_count(whole_number("sentences", N))
    return _task((None,) * N, states, arc, starts)


def story_task(sentences: Sequence[str], states: StateSpace, arc: Arc = None, fewest: int = MIN_SENTENCES) -> Task:
    """A whole story, nothing missing, of at least so many sentences."""
    stated = _stated(sentences, fewest)
    if None in stated:
        raise UserError(f"sentence {stated.index(None) + 1} is missing: this takes whole stories", field="sentences")
    return _task(stated, states, arc, None)


def partial_task(sentences: Sequence[str | None], states: StateSpace, arc: Arc = None) -> Task:
    """A story of which some, all or no sentences are given."""
    return _task(_stated(sentences), states, arc, None)


def _task(sentences: tuple[str | None, ...], states: StateSpace, arc: Arc, starts: Mapping[int, str] | None) -> Task:
    N = len(sentences)
    tags = states.parse((None,) * N if arc is None else arc)
    if len(tags) != N:
        raise UserError(f"the arc has {len(tags)} tags for {N} sentences", field="arc")
    if not isinstance(starts, Mapping | None):
        raise UserError("starts is a mapping from a sentence's number to its first words", field="starts")
    openings = {whole_number("starts", number): words for number, words in (starts or {}).items()}
    for number, words in openings.items():
        if not 1 <= number <= N:
            raise UserError(f"opening words for sentence {number} of a story of {N}", field="starts")
        if sentences[number - 1] is not None:
            raise UserError(f"sentence {number} is given: opening words are for missing sentences", field="starts")
        _check_words(f"the opening of sentence {number}", words)
    return Task(sentences, tags, openings)


def _stated(sentences: Sequence[str | None], fewest: int = MIN_SENTENCES) -> tuple[str | None, ...]:
    """The sentences as they were typed, None where one is missing."""
    if isinstance(sentences, str | bytes) or not isinstance(sentences, Iterable):
        raise UserError("a story is a list of sentences, not one text or number", field="sentences")
    stated = tuple(None if isinstance(s, str) and is_blank(s) else s for s in sentences)
    _check_count(len(stated), fewest)
    for number, sentence in enumerate(stated, start=1):
        if sentence is not None:
            _check_words(f"sentence {number}", sentence)
    return stated


def is_blank(text: str) -> bool:
    """Whether a person means a missing sentence by this: `_`, or several of them."""
    return text.strip() != "" and not text.strip().strip(BLANK)


def split_story(text: str) -> list[str | None]:
    """Running text as sentences by rule, None for every `_` between two of them.

    >>> split_story("Tom was sad. _ __ Tom smiled.")
    ['Tom was sad.', None, None, 'Tom smiled.']
    """
    parts = re.split(r"(?:(?<=\s)|^)(_+)(?=\s|$)", text)
    return [sentence for part in parts for sentence in ([None] if is_blank(part) else split_paragraph(part))]


def _check_count(N: int, fewest: int = MIN_SENTENCES) -> None:
    if not fewest <= N <= MAX_SENTENCES:
        raise UserError(f"a story has {MIN_SENTENCES} to {MAX_SENTENCES} sentences, not {N}", field="sentences")


def _check_words(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise UserError(f"{what} is not a text", field="sentences")
    words = len(text.split())
    if words == 0:
        raise UserError(f"{what} is empty; put _ where one is to be written", field="sentences")
    for count, most, unit in ((words, MAX_WORDS, "words"), (len(text), MAX_CHARACTERS, "characters")):
        if count > most:
            raise UserError(f"{what} has {count:,} {unit}; the most is {most:,} {unit}", field="sentences")
    if any(is_blank(word) for word in text.split()):
        raise UserError(f"{what} has a blank (_) inside: give each sentence and each _ on its own", field="sentences")
    if not is_unicode(text):
        raise UserError(f"{what} holds half a character (a lone surrogate)", field="sentences")

"""The task as a person states it: sentences with blanks, an arc, opening words. Every mistake is named in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fabula.errors import UserError

MIN_SENTENCES, MAX_SENTENCES = 2, 64
MAX_WORDS = 200
MAX_CHARACTERS = 4_000
BLANK = "_"
"""What a person types for a missing sentence."""

SIGNS = {"+": "positive", "-": "negative", ".": "neutral"}
FREE = "?"


@dataclass(frozen=True)
class Task:
    """A story with blanks; `None` is a missing sentence, a tag that is `None` is free."""

    sentences: tuple[str | None, ...]
    arc: tuple[str | None, ...]
    starts: Mapping[int, str] = field(default_factory=dict)
    """Opening words of missing sentences, by their number from 1."""

    @property
    def missing(self) -> tuple[bool, ...]:
        return tuple(sentence is None for sentence in self.sentences)


def fill_task(
    sentences: Sequence[str | None],
    labels: Sequence[str],
    arc: str | Sequence[str | None] | None = None,
    starts: Mapping[int, str] | None = None,
) -> Task:
    """A task for `fill`: at least one sentence given, at least one missing."""
    stated = tuple(None if s is None or s.strip() == BLANK else s for s in sentences)
    _check_sentences(stated)
    if None not in stated:
        raise UserError("no sentence is missing: put _ where one is to be written", field="sentences")
    if not any(stated):
        raise UserError("every sentence is missing: use `fabula write` to begin from nothing", field="sentences")
    return _task(stated, labels, arc, starts)


def write_task(
    N: int,
    labels: Sequence[str],
    arc: str | Sequence[str | None] | None = None,
    starts: Mapping[int, str] | None = None,
) -> Task:
    """A task for `write`: nothing given."""
    _check_count(N)
    return _task((None,) * N, labels, arc, starts)


def story_task(sentences: Sequence[str], labels: Sequence[str], fewest: int = MIN_SENTENCES) -> Task:
    """A whole story, nothing missing, of at least so many sentences."""
    _check_sentences(tuple(sentences), fewest)
    return _task(tuple(sentences), labels, None, None)


def partial_task(
    sentences: Sequence[str | None], labels: Sequence[str], arc: str | Sequence[str | None] | None = None
) -> Task:
    """A story of which at least one sentence is given."""
    stated = tuple(None if s is None or s.strip() == BLANK else s for s in sentences)
    _check_sentences(stated)
    if not any(stated):
        raise UserError("every sentence is missing", field="sentences")
    return _task(stated, labels, arc, None)


def parse_arc(arc: str | Sequence[str | None], labels: Sequence[str]) -> tuple[str | None, ...]:
    """One tag per sentence: signs `+ - .`, `?` for free, or the labels by name, between blanks or commas.

    An arc of signs needs no blanks: `--.++`.
    """
    if isinstance(arc, str):
        words: Sequence[str | None] = re.split(r"[\s,]+", arc.strip()) if arc.strip() else ()
        if len(words) == 1 and words[0] not in labels and words[0] and set(words[0]) <= {*SIGNS, FREE}:
            words = tuple(words[0])
    else:
        words = arc
    return tuple(_tag(word, labels) for word in words)


def _tag(word: str | None, labels: Sequence[str]) -> str | None:
    if word is None or word == FREE:
        return None
    if word in labels:
        return word
    named = SIGNS.get(word, word.lower())
    if named in labels:
        return named
    signs = [sign for sign, label in SIGNS.items() if label in labels]
    known = ", ".join([*labels, *signs])
    raise UserError(f"unknown tag {word!r} in the arc; this model knows {known} and ? (free)", field="arc")


def _task(
    sentences: tuple[str | None, ...],
    labels: Sequence[str],
    arc: str | Sequence[str | None] | None,
    starts: Mapping[int, str] | None,
) -> Task:
    N = len(sentences)
    tags = (None,) * N if arc is None else parse_arc(arc, labels)
    if len(tags) != N:
        raise UserError(f"the arc has {len(tags)} tags for {N} sentences", field="arc")
    for number, words in (starts or {}).items():
        if not 1 <= number <= N:
            raise UserError(f"opening words for sentence {number} of a story of {N}", field="starts")
        if sentences[number - 1] is not None:
            raise UserError(f"sentence {number} is given: opening words are for missing sentences", field="starts")
        _check_words(f"the opening of sentence {number}", words)
    return Task(sentences, tags, dict(starts or {}))


def _check_sentences(sentences: tuple[str | None, ...], fewest: int = MIN_SENTENCES) -> None:
    _check_count(len(sentences), fewest)
    for number, sentence in enumerate(sentences, start=1):
        if sentence is not None:
            _check_words(f"sentence {number}", sentence)


def _check_count(N: int, fewest: int = MIN_SENTENCES) -> None:
    if not fewest <= N <= MAX_SENTENCES:
        raise UserError(f"a story has {MIN_SENTENCES} to {MAX_SENTENCES} sentences, not {N}", field="sentences")


def _check_words(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise UserError(f"{what} is not a text", field="sentences")
    words = len(text.split())
    if words == 0:
        raise UserError(f"{what} is empty; put _ where one is to be written", field="sentences")
    if words > MAX_WORDS or len(text) > MAX_CHARACTERS:
        size = f"{words:,} words" if words > MAX_WORDS else f"{len(text):,} characters"
        limit = f"{MAX_WORDS} words" if words > MAX_WORDS else f"{MAX_CHARACTERS:,} characters"
        raise UserError(f"{what} has {size}; the most is {limit}", field="sentences")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"{what} holds half a character (a lone surrogate)", field="sentences") from None

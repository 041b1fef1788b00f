"""Sentences to words and back: spaCy's blank English tokeniser, and a detokeniser that needs no library."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from fabula.errors import UserError


def normalise(text: str) -> str:
    """One space between words, none at the ends; every Unicode blank counts as a space."""
    return " ".join(text.split())


@lru_cache(maxsize=1)
def _spacy_tokenizer() -> Any:
    """Imported here, so that training on a prepared corpus needs no spaCy."""
    try:
        import spacy
    except ImportError as error:
        raise UserError("reading raw text needs spaCy: pip install spacy") from error
    return spacy.blank("en").tokenizer


def tokenise(sentence: str) -> list[str]:
    """The words of one sentence, cased, punctuation split off; no word holds a blank."""
    # A blank is never part of a word, but after some emoticon rules spaCy may still return one as a token.
    return [token.text for token in _spacy_tokenizer()(normalise(sentence)) if not token.text.isspace()]


def tokenise_many(sentences: Iterable[str]) -> list[list[str]]:
    """`tokenise` for each sentence."""
    return [tokenise(sentence) for sentence in sentences]


def detokenise(words: list[str]) -> str:
    """Placeholder."""
    return " ".join(words)

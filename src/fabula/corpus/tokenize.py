"""Sentences to words and back: spaCy's blank English tokeniser, and a detokeniser that needs no library."""

import re
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
    # spaCy makes a token of every blank beyond the first between two words; normalised text has none.
    return [token.text for token in _spacy_tokenizer()(normalise(sentence))]


def listed(words: str) -> frozenset[str]:
    """A set of words written as a line."""
    return frozenset(words.split())


# What leans on its left neighbour, on its right one, or on both. Straight quotes are settled by looking around.
_LEANS_LEFT = listed(
    ". , ! ? ; : % ) ] } ” ’ » ... … ° ¢ ` 's 'm 're 've 'll 'd 'S 'M 'RE 'VE 'LL 'D ’s ’m ’re ’ve ’ll ’d"
)
_LEANS_RIGHT = listed("$ £ € # ( [ { “ ‘ « ¿ ¡")
_LEANS_BOTH = listed("/ _ ~ ^ \\ @ -- —")
_STRAIGHT_QUOTES = frozenset(['"', "'"])
_DECADE = re.compile(r"\d0s")
_NEGATION = re.compile(r"n['’]?t")
_AUXILIARIES = listed(
    "ai are ca can could dare did do does had has have is may might must need ought sha should was were wo would"
)
# Words that spaCy cuts in two without an apostrophe: "cannot", "gonna", and the hurried "thats" and "im".
_WHOLE = frozenset([("can", "not"), ("gon", "na"), ("got", "ta"), ("wan", "na"), ("lem", "me"), ("gim", "me")])
_BARE_CLITICS = {
    "m": frozenset(["i"]),
    "ve": listed("i you we they could should would might must who"),
    "re": listed("you they what who where"),
    "ll": listed("you they it that there who what"),
    "d": listed("i you he she we they it that there who"),
    "s": listed("he she that there what where who how when why let"),
}
# A hyphen before one of these begins an aside ("good - and filling") unless it sits in a chain ("cut-and-paste").
_ASIDE = listed(
    "and but it he she they we you i his her the this that so just then even which who by with without or as again "
    "especially except at my their its until"
)


def detokenise(words: list[str]) -> str:
    """Written English from words: every character of every word is kept, only the blanks are chosen.

    The inverse of `tokenise` wherever English spelling decides ("did" + "n't", "$" + "5", quotes); where it does not
    ("5pm" or "5 pm", both two words to spaCy) the more usual spelling is taken.
    """
    pieces: list[str] = []
    glued = True  # nothing stands before the first word
    open_quotes: set[str] = set()
    for position, word in enumerate(words):
        if word in _STRAIGHT_QUOTES:
            leans_left, leans_right = _quote(words, position, open_quotes)
        elif word in ("-", "–"):
            leans_left = leans_right = not _aside(words, position)
        elif word in _LEANS_BOTH:
            leans_left = leans_right = True
        else:
            leans_left = word in _LEANS_LEFT or (position > 0 and _joins(words[position - 1], word))
            leans_right = word in _LEANS_RIGHT
        if not (glued or leans_left):
            pieces.append(" ")
        pieces.append(word)
        glued = leans_right
    return "".join(pieces)


def _quote(words: list[str], position: int, open_quotes: set[str]) -> tuple[bool, bool]:
    """Whether a straight mark leans left (it closes) or right (it opens); `open_quotes` is brought up to date."""
    mark = words[position]
    closes, opens = (True, False), (False, True)
    if mark in open_quotes:
        open_quotes.discard(mark)
        return closes
    if mark == "'" and _before_decade(words, position):
        return opens  # "the '90s"
    previous = words[position - 1] if position else ""
    later = [place for place in range(position + 1, len(words)) if words[place] == mark]
    later = [place for place in later if mark == '"' or not _before_decade(words, place)]
    if mark == "'" and previous[-1:] in ("s", "S", "z", "x"):
        # The owners' apostrophe ("the boys' room"), unless this mark and the later ones pair up into quotations.
        paired = len(later) % 2 == 1 and words[later[0] - 1][-1:] != "s"
        if not paired:
            return closes
    if not later and position > 0 and (mark == "'" or previous[-1:].isdigit() or position + 1 == len(words)):
        return closes  # nothing will close it: a dropped letter ("Dunkin'"), an inch mark, a stray
    open_quotes.add(mark)
    return opens


def _before_decade(words: list[str], position: int) -> bool:
    return position + 1 < len(words) and _DECADE.fullmatch(words[position + 1]) is not None


def _aside(words: list[str], position: int) -> bool:
    """Whether a hyphen stands between clauses, with a blank on both sides, rather than inside a word."""
    if position == 0 or position + 1 == len(words) or words[position + 1].lower() not in _ASIDE:
        return False
    neighbours = words[max(position - 2, 0) : position] + words[position + 1 : position + 3]
    return "-" not in neighbours and "–" not in neighbours


def _joins(previous: str, word: str) -> bool:
    """Whether `word` is the second half of one written word."""
    before, after = previous.lower(), word.lower()
    if _NEGATION.fullmatch(after):
        return before in _AUXILIARIES
    if word == "K":
        return previous.isdigit()  # "a 5K race"
    return (before, after) in _WHOLE or before in _BARE_CLITICS.get(after, ())


_TITLES = listed(
    "mr mrs ms dr prof st sr jr rev hon gen col capt lt sgt maj gov sen rep pres mt ft no vs etc fig vol approx "
    "e.g i.e a.k.a cf inc ltd co corp jan feb mar apr jun jul aug sep sept oct nov dec ave blvd rd"
)
_END = re.compile(r"""(?:[.!?]+|…)["'”’)\]]*\s+(?=["'“‘(\[]*[A-Z0-9])""")


def split_paragraph(text: str) -> list[str]:
    """The sentences of a paragraph, by rule: a full stop, a blank, a capital; but not after a title or an initial.

    A mark of exclamation or question inside a quotation that goes on in lower case ("Stop!" he said) does not end one.
    """
    text = normalise(text)
    sentences, start = [], 0
    for match in _END.finditer(text):
        before = text[start : match.start()].rsplit(" ", 1)[-1].lstrip("\"'“‘([")
        stop = match.group().strip()
        if stop == "." and (before.lower() in _TITLES or _INITIAL.fullmatch(before)):
            continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    if text[start:]:
        sentences.append(text[start:])
    return sentences


_INITIAL = re.compile(r"(?:[A-Z]|(?:[A-Za-z]\.)+[A-Z])")  # "J." of "J. Smith", "U.S."; "p.m." may well end a sentence

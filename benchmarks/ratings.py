"""The stories of the UNION metric (EMNLP 2020) with people's ratings, as the critic can read them.

A line of the file is `id ||| story ||| seven labels`; label 0 means reasonable, and a story's rating is its share of
zeros. The text is lower-cased and tokenised and its names are masked, so names and capitals are put back.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from fabula.corpus.tokenize import detokenise

NAMES = {
    "[MALE]": ("Tom", "Bob", "Sam", "Dan", "Max"),
    "[FEMALE]": ("Amy", "Sue", "Jane", "Anna", "Kate"),
    "[NEUTRAL]": ("Alex", "Jamie", "Robin"),
}
_CAPITAL = """i english american monday tuesday wednesday thursday friday saturday sunday january february april june
july august september october november december christmas halloween thanksgiving easter"""
PROPER = frozenset(_CAPITAL.split())
"""Words with a capital wherever they stand; `march` and `may` are more often none."""
_RELATIONS = """wife husband mom dad mother father son daughter sister brother niece nephew friend friends family
girlfriend boyfriend boss dog cat parents"""
AFTER_MY = frozenset(_RELATIONS.split())
_STOPS, _QUOTES = (".", "!", "?"), ('"', "''")


def read_ratings(file: Path) -> list[tuple[list[str], float]]:
    """The sentences and the rating of every story of a file."""
    rated = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            _, story, labels = (part.strip() for part in line.split("|||"))
            rated.append((restore(story, number), labels.split().count("0") / len(labels.split())))
    return rated


def restore(text: str, number: int = 0) -> list[str]:
    """The sentences of a masked story as written English: names, capitals, blanks.

    `number` chooses the names. The same mask is the same person throughout a story: who was who is lost. Before a
    relation of the speaker (`wife`) the mask stood for `my`.
    """
    words = re.sub(r"([.!?])(?=[a-z\[])", r"\1 ", text).split()
    sentences: list[list[str]] = [[]]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in NAMES:
            word = "my" if following in AFTER_MY else NAMES[word][number % len(NAMES[word])]
        sentences[-1].append(word)
        ended = word in _STOPS and following not in (*_STOPS, *_QUOTES)
        if ended or (word in _QUOTES and len(sentences[-1]) > 1 and sentences[-1][-2] in _STOPS):
            sentences.append([])
    return [_sentence(sentence) for sentence in sentences if sentence]


def _sentence(tokens: Sequence[str]) -> str:
    words = [word.capitalize() if word in PROPER else word for word in tokens]
    first = 1 if words[0] in ('"', "''", "``") and len(words) > 1 else 0
    words[first] = words[first][:1].upper() + words[first][1:]
    return detokenise(['"' if word in ("``", "''") else word for word in words])

"""Emotion tags: joy, sadness, anger, fear, surprise or none, by a list of words and phrases that may be shipped.

    score_e = sum of the weights of e's words in the sentence,   confidence = score_e / (1/2 + sum over all emotions)

The list (emotion.txt) was spread from seeds by WordNet and sentence embeddings: benchmarks/make_taggers.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fabula.corpus.taggers.protocol import register_tagger

FILE = Path(__file__).with_name("emotion.txt")
SEED, DERIVED, NEAR = 1.0, 0.7, 0.6
"""Weights of a word that is a seed, that WordNet derives from one, that is used like some."""
EMOTIONS = ("joy", "sadness", "anger", "fear", "surprise")
NONE = "none"
NEGATIONS = frozenset(["not", "no", "never", "n't", "nothing", "neither", "nor", "without", "hardly"])
REACH = 3
"""Words before a word of emotion in which a negation turns it."""
LONGEST = 4
"""Words of a phrase at most."""
LEAST = 0.4
"""Confidence below which there is no emotion; ours, because a derived word alone reaches it."""


@lru_cache(maxsize=1)
def weights() -> dict[tuple[str, ...], tuple[int, float]]:
    """Every word or phrase with the number of its emotion and its weight."""
    rows = (line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines())
    return {tuple(words(text)): (EMOTIONS.index(name), float(weight)) for text, name, weight in rows}


def words(text: str) -> list[str]:
    """In small letters, `n't` apart."""
    text = text.lower().replace("’", "'")
    text = re.sub(r"\b(ca|wo)n't\b", lambda match: {"ca": "can", "wo": "will"}[match[1]] + " n't", text)
    return re.findall(r"n't|[a-z]+(?=n't)|[a-z]+(?:-[a-z]+)*", text.replace("cannot", "can not"))


@dataclass(frozen=True)
class EmotionTagger:
    """Six states; a sentence whose likeliest emotion is less sure than `LEAST` has none."""

    @property
    def labels(self) -> tuple[str, ...]:
        return (*EMOTIONS, NONE)

    @property
    def settings(self) -> dict[str, object]:
        return {"tagger": "emotion", "least": LEAST}

    def tag(self, sentences: list[str]) -> list[int | None]:
        """Every sentence has an answer, `none` more often than not."""
        return [self.judge(sentence)[0] for sentence in sentences]

    def judge(self, sentence: str) -> tuple[int, float]:
        """The label's number, and how sure it is: between 0 and 1."""
        totals = scores(words(sentence))
        best = max(range(len(totals)), key=totals.__getitem__)
        confidence = totals[best] / (0.5 + sum(totals))
        return (best, confidence) if confidence >= LEAST else (len(EMOTIONS), 1 - confidence)


def scores(tokens: list[str]) -> list[float]:
    """The score of each emotion. A negated joy is half a sadness; other negated emotions count nothing.

    Phrases come before their words, and later words count a little more: a sentence tells what it ends with.
    """
    totals, i, listed = [0.0] * len(EMOTIONS), 0, weights()
    while i < len(tokens):
        length = next((n for n in range(LONGEST, 0, -1) if tuple(tokens[i : i + n]) in listed), 0)
        if length:
            emotion, weight = listed[tuple(tokens[i : i + length])]
            weight *= 1 + 0.2 * i / len(tokens)
            if not NEGATIONS.isdisjoint(tokens[max(0, i - REACH) : i]):
                emotion, weight = 1, (0.5 * weight if emotion == 0 else 0.0)
            totals[emotion] += weight
        i += max(1, length)
    return totals


register_tagger("emotion")(lambda settings: EmotionTagger())

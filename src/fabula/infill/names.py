"""Names the model does not know: each gets a known name for the model's eyes, and comes back in what is written.

What is a name is decided by rule, not by a list. In a text: a word the vocabulary lacks that is written like a name
(a capital, then small letters), whose lower-case form the vocabulary lacks too, and which no article or possessive
stands before. In the vocabulary: a word written like a name whose lower-case form is absent, and that the model expects
as the first word of a story; the most expected ones come first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fabula.corpus.people import looks_like_a_name
from fabula.corpus.vocabulary import Vocabulary
from fabula.models.protocol import Model
from fabula.ties import first_best, ranking

TRIED = 24
"""How many known names are tried for each unknown one."""
NOT_BEFORE_A_NAME = frozenset(
    ["a", "an", "the", "my", "your", "his", "her", "its", "our", "their", "this", "that", "some", "no"]
)


def unknown_names(sentences: Sequence[Sequence[str]], vocabulary: Vocabulary) -> list[str]:
    """The unknown names of tokenised sentences, in the order of their first appearance."""
    found: dict[str, None] = {}
    for words in sentences:
        for place, word in enumerate(words):
            before = words[place - 1].lower() if place else ""
            if (
                looks_like_a_name(word)
                and word not in vocabulary.index
                and word.lower() not in vocabulary.index
                and before not in NOT_BEFORE_A_NAME
            ):
                found[word] = None
    return list(found)


def known_names(model: Model, vocabulary: Vocabulary) -> list[str]:
    """The names that a story may well begin with, the most expected first."""
    words = vocabulary.words
    names = [n for n, w in enumerate(words) if looks_like_a_name(w) and w.lower() not in vocabulary.index]
    order = ranking(model.first_word_scores()[names].tolist())
    return [words[names[place]] for place in order[:TRIED]]


def stand_ins(
    sentences: Sequence[Sequence[str]],
    unknown: Sequence[str],
    known: Sequence[str],
    fit: Callable[[list[list[list[str]]]], list[float]],
) -> dict[str, str]:
    """A known name for each unknown one: of those the story does not use, the one under which `fit` of it is best.

    With `fit` the log-probability of the given sentences, pronouns decide: "Zorblax lost her keys" becomes a woman's.
    """
    used = {word for words in sentences for word in words}
    free = [name for name in known if name not in used]
    chosen: dict[str, str] = {}
    for name in unknown[: len(free)]:
        options = [other for other in free if other not in chosen.values()]
        tried = [renamed(sentences, {**chosen, name: other}) for other in options]
        figures = fit(tried)
        chosen[name] = options[int(first_best(figures))]
    return chosen


def renamed(sentences: Sequence[Sequence[str]], names: Mapping[str, str]) -> list[list[str]]:
    """The words with some of them replaced; a possessive is a word of its own, so it follows its name."""
    return [[names.get(word, word) for word in words] for words in sentences]

"""Names the model does not know: each gets a known name for the model's eyes, and comes back in what is written.

What is a name is decided by rule, not by a list. In a text: a word the vocabulary lacks that is written like a name
(a capital, then small letters), whose lower-case form the vocabulary lacks too, and which no article or possessive
stands before. In the vocabulary: a word written like a name whose lower-case form is absent, and that the model expects
as the first word of a story; the most expected ones come first. A word behind a preposition of place ("in Tarragona")
is taken for a place and left alone. Where the sentences about somebody say `she` (or a daughter, a wife) and not `he`,
only names that go with `she` are tried, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from fabula.corpus.people import HE, HE_NOUNS, NOBODY, SHE, SHE_NOUNS, People, looks_like_a_name
from fabula.corpus.vocabulary import Vocabulary
from fabula.models.protocol import Model
from fabula.ties import first_best, ranking

TRIED = 24
"""How many known names are tried for each unknown one."""
NOT_BEFORE_A_NAME = frozenset(
    ["a", "an", "the", "my", "your", "his", "her", "its", "our", "their", "this", "that", "some", "no"]
)

PLACES = frozenset(["in", "at", "near", "from", "into", "toward", "towards", "across", "outside", "around", "through"])
"""What stands before a place: an unknown word that is met behind one of these, and never begins a sentence, is one."""


def unknown_names(sentences: Sequence[Sequence[str]], vocabulary: Vocabulary) -> list[str]:
    """The unknown names of tokenised sentences, in the order of their first appearance."""
    unknown: dict[str, None] = {}
    begin = {words[0] for words in sentences if words}
    for words in sentences:
        for place, word in enumerate(words):
            before = words[place - 1].lower() if place else ""
            known = word in vocabulary.index or word.lower() in vocabulary.index
            is_place = before in PLACES and word not in begin
            if looks_like_a_name(word) and not (known or is_place or before in NOT_BEFORE_A_NAME):
                unknown[word] = None
    return list(unknown)


def known_names(model: Model, vocabulary: Vocabulary) -> list[str]:
    """The names that a story may well begin with, the most expected first."""
    words = vocabulary.words
    names = [n for n, w in enumerate(words) if looks_like_a_name(w) and w.lower() not in vocabulary.index]
    order = ranking(model.first_word_scores()[names].tolist())
    return [words[names[place]] for place in order[:TRIED]]


def pronoun_of(name: str, sentences: Sequence[Sequence[str]], others: Collection[str]) -> Literal["he", "she"] | None:
    """What is said of somebody: in the sentences with the name, and after them until another name comes; else None."""
    nearby: set[str] = set()
    about = False
    for words in sentences:
        if name in words or any(word in others for word in words):
            about = name in words
        if about:
            nearby |= {word.lower() for word in words}
    # Pronouns first: "Aisha called her brother" has a man's noun in it, and is about her.
    for he, she in ((HE, SHE), (HE_NOUNS, SHE_NOUNS)):
        is_he, is_she = not nearby.isdisjoint(he), not nearby.isdisjoint(she)
        if is_he or is_she:
            return None if is_he and is_she else "he" if is_he else "she"
    return None


Fit = Callable[[list[list[list[str]]]], list[float]]
"""How probable versions of given sentences are."""


def stand_ins(
    stories: Sequence[tuple[Sequence[Sequence[str]], Sequence[str]]], known: Sequence[str], fit: Fit,
    people: People = NOBODY,
) -> list[dict[str, str]]:  # fmt: skip
    """A known name for each unknown one of every story: of those it does not use, the one under which `fit` is best.

    `people` says which names go with the pronoun that is used of somebody; among those the model's `fit`, the
    log-probability of the given sentences, decides. It is asked about the n-th names of all stories at once.
    """
    chosen_names: list[dict[str, str]] = [{} for _ in stories]
    for n in range(max((len(unknown) for _, unknown in stories), default=0)):
        open_names: list[tuple[dict[str, str], str, list[str]]] = []
        tried: list[list[list[str]]] = []
        for (sentences, unknown), chosen in zip(stories, chosen_names, strict=True):
            used = {word for words in sentences for word in words}
            free = [name for name in known if name not in used]
            if n < min(len(unknown), len(free)):
                options = _options(unknown[n], sentences, unknown, used | set(chosen.values()), free, people)
                open_names.append((chosen, unknown[n], options))
                tried += [renamed(sentences, {**chosen, unknown[n]: other}) for other in options]
        figures = fit(tried) if tried else []
        for chosen, name, options in open_names:
            chosen[name] = options[int(first_best(figures[: len(options)]))]
            figures = figures[len(options) :]
    return chosen_names


def _options(
    name: str, sentences: Sequence[Sequence[str]], unknown: Sequence[str], used: Collection[str], free: Sequence[str],
    people: People,
) -> list[str]:  # fmt: skip
    """The known names that may stand for an unknown one."""
    pronoun = pronoun_of(name, sentences, {*unknown, *people.names} - {name})
    fitting = people.he if pronoun == "he" else people.she if pronoun == "she" else ()
    others = [other for other in fitting if other not in used]
    options = [other for other in free if other not in used]
    return [other for other in options if other in fitting] or others[:TRIED] or options


def renamed(sentences: Sequence[Sequence[str]], names: Mapping[str, str]) -> list[list[str]]:
    """The words with some of them replaced; a possessive is a word of its own, so it follows its name."""
    return [[names.get(word, word) for word in words] for words in sentences]

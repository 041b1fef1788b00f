"""Which sentences have a finite verb, by a lexicon learned from the training text: no tagger is needed.

A word is a verb form if it often stands where verbs do, after a subject pronoun (`she ran`), or after both `to` and a
modal verb (`to run`, `would run`; `to school` has no `would school`), and more often there than after a determiner
(`the run`). Regular pasts of such verbs, and presents that stand in that place now and then, are added. In a sentence a
word that may be a noun too does not count right after a determiner or possessive.
Against a trained tagger it misses the verb of 0.65 % of sentences by people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fabula.corpus.dataset import Stories
from fabula.corpus.tokenize import tokenise
from fabula.corpus.vocabulary import EOS, Vocabulary


def _listed(words: str) -> frozenset[str]:
    """A set of words written as a line."""
    return frozenset(words.split())


SUBJECTS = _listed("i he she we they who")
MODALS = _listed("would could should will can must might may shall 'll ca wo")
DETERMINERS = _listed("a an the my his her their our its your these those some no every another")
ALWAYS = _listed(
    "am is are was were be been 'm 're 've 'd 'll has have had do does did done will would can could shall should may "
    "might must ca wo ai"
)
"""The closed class: forms of be, have and do, and the modals."""
IS_AFTER = _listed("he she it that there here what who where how when let everyone someone everything something")
"""Words after which `'s` is a verb; after others it is a possessive."""
NEVER = _listed(
    "and or but the a an to of in on at for with from by as if so than all both each not n't never also always just "
    "still even soon then now once only almost often already ever first too either neither again later instead maybe "
    "perhaps sometimes usually rather quite nearly there here up down out off over away back around together that this "
    "it me him her us them his my our their your its i he she we they you who what which when where why how because "
    "while no very more most much well alone ourselves himself herself themselves myself"
)
"""Words that stand in a verb's place and are none, adverbs first of all."""
SHARE = 0.05
"""Of a word's uses, in a verb's place."""
NOUN = 0.02
"""Of a verb form's uses, after a determiner: it may be a noun."""


@dataclass(frozen=True)
class Verbs:
    """Finite verb forms, in small letters."""

    forms: frozenset[str]
    nouns: frozenset[str]
    """Those that are seen after a determiner, too."""

    @classmethod
    def learn(cls, stories: Stories, vocabulary: Vocabulary) -> Verbs:
        """From a split of a prepared corpus."""
        small: dict[str, int] = {}
        of_word = np.array([small.setdefault(word.lower(), len(small)) for word in vocabulary.words])
        words = of_word[np.asarray(stories.tokens)]
        previous = np.concatenate([[of_word[EOS]], words[:-1]])
        uses = np.bincount(words, minlength=len(small))

        def after(frame: frozenset[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
            ids = [small[word] for word in frame if word in small]
            return np.bincount(words[np.isin(previous, ids)], minlength=len(small)) / np.maximum(uses, 1)

        subject, modal, to, determiner = after(SUBJECTS), after(MODALS), after(_listed("to")), after(DETERMINERS)
        finite = subject >= SHARE
        base = (to + modal >= 2 * SHARE) & (modal >= SHARE / 5)
        chosen = (finite | base) & (subject + modal + to > determiner)
        names = list(small)
        forms = {names[i] for i in np.flatnonzero(chosen) if names[i].isalpha() and not names[i].endswith("ly")}
        # A form in -ing is no finite one: `bring` stays, since no `br` is a verb.
        forms -= {w for w in forms if w.endswith("ing") and forms & {w[:-3], w[:-3] + "e", w[:-4]}}
        now_and_then = subject + after(_listed("it")) >= SHARE / 5
        for i, word in enumerate(names):
            regular = forms & _bases(word)
            if regular and (word.endswith("d") or now_and_then[i]) and determiner[i] < 4 * SHARE:
                forms.add(word)
        forms = (forms - NEVER) | ALWAYS
        return cls(frozenset(forms), frozenset(word for word in forms if determiner[small.get(word, 0)] >= NOUN))

    def among(self, words: Sequence[str]) -> list[str]:
        """The finite verbs among a sentence's words."""
        low = [word.lower().replace("’", "'") for word in words]
        return [word for place, word in enumerate(low) if self._is_verb(word, low[place - 1] if place else "")]

    def has_verb(self, sentence: str) -> bool:
        """Whether an English sentence has a finite verb."""
        return bool(self.among(tokenise(sentence)))

    def _is_verb(self, word: str, before: str) -> bool:
        if word == "'s":
            return before in IS_AFTER
        if word in ALWAYS:
            return True
        if word in self.forms:
            return word not in self.nouns or before not in DETERMINERS
        # A rare verb: `they wagered`.
        return before in SUBJECTS and word.endswith("ed")


def _bases(word: str) -> set[str]:
    """What a word may be a regular past or present of: `tried` of `try`, `stopped` of `stop`, `fixes` of `fix`."""
    if word.endswith(("ied", "ies")):
        return {word[:-3] + "y"}
    if word.endswith("ed"):
        doubled = {word[:-3]} if len(word) > 4 and word[-3] == word[-4] else set()
        return {word[:-1], word[:-2]} | doubled
    if word.endswith("s") and not word.endswith("ss"):
        return {word[:-1]} | ({word[:-2]} if word.endswith("es") else set())
    return set()

"""Who is in a story: names that may be written, and pronouns that somebody in it may be meant by.

Counted names (`corpus.people`) and a closed list of kin and role words decide, nothing else; both rules are off in the
evaluations, and a model whose names were not counted has none.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from fabula.corpus.people import EITHER_NOUNS, HE, HE_NOUNS, ME, SHE, SHE_NOUNS, People
from fabula.sampling.batch import InfillBatch
from fabula.sampling.rules import WordRules
from fabula.shapes import PerStory


class Cast:
    """What words say about who is there."""

    def __init__(self, people: People, rules: WordRules) -> None:
        self.rules = rules

        def numbers(*lists: Collection[str]) -> Int[Tensor, " word"]:
            listed = {word for one in lists for word in one}
            return rules.spelling.numbers(sorted(listed | {word.capitalize() for word in listed}))

        self.pronouns = (numbers(HE), numbers(SHE), numbers(ME))
        """Words that stand for somebody: he, she, the narrator."""
        self.brings = (
            numbers(HE_NOUNS, people.he, EITHER_NOUNS), numbers(SHE_NOUNS, people.she, EITHER_NOUNS), numbers()
        )  # fmt: skip
        """Words that bring somebody in, for a pronoun to stand for."""

        self.listed = False
        """Whether a writer said who is there: then nobody else is."""

    def with_people(self, pronouns: Mapping[str, str | None]) -> Cast:
        """The same where these people are there, by name; the pronoun that a writer gives them is theirs alone."""
        if not pronouns:
            return self
        cast = copy.copy(self)
        cast.listed = True

        def names_with(pronoun: str, same: bool) -> Int[Tensor, " word"]:
            names = [name for name, theirs in pronouns.items() if theirs is not None and (theirs == pronoun) == same]
            return self.rules.spelling.numbers(names)

        he, she = (
            torch.cat([words[~torch.isin(words, names_with(pronoun, same=False))], names_with(pronoun, same=True)])
            for words, pronoun in zip(self.brings[:2], ("he", "she"), strict=True)
        )
        cast.brings = (he, she, self.brings[2])
        return cast

    def without_new_names(self, blanks: InfillBatch) -> InfillBatch:
        """The batch in which nobody may be named whom no given sentence names, where any names somebody or a writer
        has said who is there."""
        if not len(self.rules.names):
            return blanks
        words = torch.cat([self.rules.spelling.words(t).flatten(1) for t in (blanks.X, blanks.opening)], 1)
        given = (words.unsqueeze(1) == self.rules.names.view(1, -1, 1)).any(-1)
        return replace(blanks, barred_names=~given & (given.any(1, keepdim=True) | self.listed))

    def faults(self, X: Int[Tensor, "batch sent word"], blanks: InfillBatch) -> PerStory:
        """Faults of the written sentences: repeated ones, words twice in one, pronouns without an antecedent."""
        words = self.rules.spelling.words(X)
        return repeated(X, blanks) + echoed(words, self.rules.common, blanks) + self.clashes(words, blanks)

    def clashes(self, words: Int[Tensor, "batch sent word"], blanks: InfillBatch) -> PerStory:
        """How many written sentences have a pronoun without a possible antecedent in the story.

        A given sentence vouches for its pronouns and everybody in it, throughout the story; a written one for those it
        brings in, from there on.
        """
        given, present = blanks.given.to(words.device), blanks.present.to(words.device)
        total = torch.zeros(len(words), device=words.device)
        for pronouns, brings in zip(self.pronouns, self.brings, strict=True):
            spoken, brought = torch.isin(words, pronouns).any(-1), torch.isin(words, brings).any(-1)
            vouched = ((spoken | brought) & given).any(1, keepdim=True)
            introduced = vouched | (brought.long().cumsum(1) > 0)
            total = total + (spoken & ~introduced & ~given & present).sum(1)
        return total


def echoed(words: Int[Tensor, "batch sent word"], common: Int[Tensor, " common"], blanks: InfillBatch) -> PerStory:
    """How many words of content, all but the common ones, stand again in their own written sentence."""
    content = words.masked_fill(torch.isin(words, common), 0).sort(-1).values
    again = (content[..., 1:] == content[..., :-1]) & (content[..., 1:] != 0)
    return (again.sum(-1) * blanks.missing.to(words.device)).sum(1).float()


def repeated(X: Int[Tensor, "batch sent word"], blanks: InfillBatch) -> PerStory:
    """How many written sentences say word for word what another sentence of their story says."""
    same = (X.unsqueeze(1) == X.unsqueeze(2)).all(-1)
    here = blanks.present.to(X.device)
    same = same & here.unsqueeze(1) & here.unsqueeze(2) & ~torch.eye(X.shape[1], dtype=torch.bool, device=X.device)
    return (same.any(-1) & blanks.missing.to(X.device)).sum(1).float()

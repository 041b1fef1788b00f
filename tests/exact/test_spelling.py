"""Words in rows of subword tokens: each has one number, runs of words are found, names are barred at their end."""

from collections.abc import Sequence

import torch

from fabula.sampling.rules import WordRules
from fabula.sampling.spelling import hash_of

TEXTS = ("", "", "", "", ".", "run", "ning", "To", "m", "sat", "he", "Tom")
STARTS = (True, True, True, True, True, True, False, True, False, True, True, True)
END = 3


class Subwords:
    """`running` is run + ning, `Tom` may be To + m (as names are here) or one token."""

    end = END
    texts: Sequence[str] = TEXTS
    starts_word: Sequence[bool] = STARTS
    unknown: int | None = None
    common: Sequence[str] = ("he",)

    def encode(self, text: str) -> list[int]:
        return [token for word in text.split() for token in self.encode_word(word)]

    def encode_word(self, word: str) -> list[int]:
        return {"running": [5, 6], "run": [5], "Tom": [7, 8], "sat": [9], "he": [10], ".": [4], "Tos": [7]}[word]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(("" if not STARTS[t] else " ") + TEXTS[t] for t in tokens).strip()


RULES = WordRules.of(Subwords())
SPELLING = RULES.spelling


def row(text: str) -> torch.Tensor:
    return torch.tensor([[*Subwords().encode(text), END]])


def barred(story: str, sentence: str, run: int) -> set[str]:
    scores = RULES.bar_repeats(torch.zeros(1, len(TEXTS)), row(story), row(sentence)[:, :-1], run)
    return {TEXTS[i] for i in range(len(TEXTS)) if scores[0, i] == float("-inf")}


def test_a_word_has_one_number_wherever_it_stands() -> None:
    words = SPELLING.words(row("Tom running sat Tom"))[0].tolist()
    tom, running, sat = hash_of([7, 8]), hash_of([5, 6]), hash_of([9])
    assert words == [0, tom, 0, running, sat, 0, tom, 0]
    assert SPELLING.numbers(["Tom", "running"]).tolist() == [tom, running]


def test_a_run_is_barred_by_the_last_token_of_its_last_word() -> None:
    assert barred("he sat running .", "he sat", 3) == set()  # `run` alone is another word
    assert barred("he sat running .", "he sat run", 3) == {"ning"}
    assert barred("he running sat .", "he running", 3) == {"sat"}
    assert barred("he running sat .", "he run", 3) == set()
    assert barred("he running sat .", "Tom running", 3) == set()
    assert barred("he sat . Tom", "he sat .", 4) == set()
    assert barred("he sat . Tom", "he sat . Tos", 4) == {"m"}  # To + m is Tom
    assert barred("he sat run .", "he sat", 3) == {"run"}


def test_runs_do_not_cross_sentences() -> None:
    story = torch.cat([row("he sat"), row("running .")], 1)
    scores = RULES.bar_repeats(torch.zeros(1, len(TEXTS)), story, row("he sat run")[:, :-1], 3)
    assert scores.eq(0).all()


def test_a_name_is_barred_where_its_last_token_would_complete_it() -> None:
    rules = WordRules.of(Subwords(), names=("Tom", "Tos"))
    both = torch.tensor([[True, True]])

    def out(written: str, barred: torch.Tensor) -> set[str]:
        tokens = torch.tensor([Subwords().encode(written)], dtype=torch.int64).view(1, -1)
        scores = rules.bar_names(torch.zeros(1, len(TEXTS)), barred, tokens)
        return {TEXTS[i] for i in range(len(TEXTS)) if scores[0, i] == float("-inf")}

    assert out("", torch.tensor([[True, False]])) == set()
    assert out("he Tos", torch.tensor([[True, False]])) == {"m"}  # To + m is Tom
    assert out("he", both) == {"To"}
    assert out("he Tos", both) == {"m", "To"}
    assert out("he Tos", torch.tensor([[False, False]])) == set()

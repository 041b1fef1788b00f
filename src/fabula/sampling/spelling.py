"""Words in rows of tokens, whatever the tokenizer: each run of tokens that spells a word has one number, a hash.

    H(t_a ... t_{b-1}) = sum_j (t_j + 1) B^(j - a)   modulo 2^64, with B odd

Prefix sums of (t_j + 1) B^j give the number of every run at once: the difference of two, times B^-a. Equal words have
equal numbers, and other words other ones, but for a probability of about 2^-60.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from fabula.corpus.vocabulary import PAD
from fabula.models.decoders.protocol import Tokenizer
from fabula.shapes import Tokens

BASE = 6364136223846793005
INVERSE = pow(BASE, -1, 1 << 64)


def signed(number: int) -> int:
    """A number modulo 2^64 as an int64 holds it."""
    number %= 1 << 64
    return number - (1 << 64) if number >= 1 << 63 else number


def hash_of(tokens: Sequence[int]) -> int:
    """The number of one word."""
    return signed(sum((token + 1) * pow(BASE, j, 1 << 64) for j, token in enumerate(tokens)))


class Spelling:
    """Which tokens begin words, and the numbers of the words in rows of tokens."""

    def __init__(self, tokenizer: Tokenizer, device: torch.device | str) -> None:
        self.tokenizer, self.end = tokenizer, tokenizer.end
        self.starts: Bool[Tensor, " vocab"] = torch.tensor(list(tokenizer.starts_word), device=device)
        self.whole = bool(self.starts.all())
        """Whether every token is a word of its own."""
        self._powers = self._inverses = torch.ones(0, dtype=torch.int64, device=device)

    def numbers(self, words: Iterable[str]) -> Int[Tensor, " word"]:
        """The numbers of words as they stand inside a sentence, without those that the tokenizer cannot spell."""
        spelled = [self.tokenizer.encode_word(word) for word in words]
        hashes = [hash_of(tokens) for tokens in spelled if self.tokenizer.unknown not in tokens]
        return torch.tensor(hashes, dtype=torch.int64, device=self.starts.device)

    def runs(
        self, tokens: Int[Tensor, "*batch token"], begins: Int[Tensor, "*batch token"]
    ) -> Int[Tensor, "*batch token"]:
        """The number of the tokens from `begins` up to each place, which is left out."""
        powers, inverses = self._tables(tokens.shape[-1] + 1)
        sums = ((tokens + 1) * powers[:-1]).cumsum(-1)
        before = torch.cat([torch.zeros_like(sums[..., :1]), sums], -1)
        return (before[..., :-1] - before.gather(-1, begins)) * inverses[begins]

    def words(self, tokens: Int[Tensor, "*batch token"]) -> Int[Tensor, "*batch token"]:
        """The number of each word at its last token, 0 elsewhere: at tokens that are carried on, `end`, padding."""
        spelled = (tokens != PAD) & (tokens != self.end)
        if self.whole:
            return torch.where(spelled, tokens + 1, 0)
        places = torch.arange(tokens.shape[-1] + 1, device=tokens.device).expand(*tokens.shape[:-1], -1)
        begins = torch.where(self.starts[tokens] | ~spelled, places[..., :-1], 0).cummax(-1).values
        begins = torch.cat([begins[..., :1] * 0, begins], -1)
        longer = torch.cat([tokens, torch.full_like(tokens[..., :1], PAD)], -1)
        last = spelled & ~self._carried_on(tokens, spelled)
        return torch.where(last, self.runs(longer, begins)[..., 1:], 0)

    def _carried_on(self, tokens: Tensor, spelled: Tensor) -> Bool[Tensor, "*batch token"]:
        """Whether the next token belongs to the same word."""
        onward = spelled & ~self.starts[tokens]
        return torch.cat([onward[..., 1:], torch.zeros_like(onward[..., :1])], -1)

    def followers(
        self, story: Tokens, sentence: Int[Tensor, "batch written"], run: int
    ) -> tuple[Bool[Tensor, "batch place"], Int[Tensor, "batch place"]]:
        """Tokens of `story` that, chosen next in `sentence`, would complete a run of `run` words that it has.

        A mask over the places of `story + sentence`, and the tokens there. A run lies in one sentence; a word of many
        tokens is completed by its last one.
        """
        tokens = torch.cat([story, sentence, torch.full_like(story[:, :1], PAD)], 1)
        spelled = (tokens != PAD) & (tokens != self.end)
        spelled[:, -1] = True  # the place of the token to come, which may begin a word or carry one on
        starts = self.starts[tokens] & spelled
        starts[:, -1] = True
        met = starts & self._same_as_last(self._runs_before(tokens, spelled, starts, run))
        if not self.whole:
            onward = starts.clone()
            onward[:, -1] = False
            met |= spelled & ~starts & self._same_as_last(self._runs_before(tokens, spelled, onward, run))
        met &= ~self._carried_on(tokens, spelled)
        return met[:, :-1], tokens[:, :-1]

    @staticmethod
    def _same_as_last(numbers: Tokens) -> Bool[Tensor, "batch token"]:
        return (numbers == numbers[:, -1:]) & (numbers[:, -1:] != 0)

    def _runs_before(self, tokens: Tensor, spelled: Tensor, starts: Tensor, run: int) -> Tokens:
        """For every place the number of the run - 1 words before its word, with what stands of that word; 0 without."""
        n = tokens.shape[1]
        place = torch.arange(n, device=tokens.device).expand_as(tokens)
        word = starts.long().cumsum(1) - 1
        wanted = word - (run - 1)
        begin_of_word = torch.zeros_like(tokens).scatter_reduce(
            1, torch.where(starts, word, n - 1).clamp(min=0), torch.where(starts, place, 0), "amax", include_self=True
        )
        begins = begin_of_word.gather(1, wanted.clamp(min=0))
        broken = torch.where(spelled, 0, place + 1).cummax(1).values  # just behind the last token that is no word's
        inside = (wanted >= 0) & (begins >= broken)
        return torch.where(inside, self.runs(tokens, begins), 0)

    def _tables(self, size: int) -> tuple[Tensor, Tensor]:
        if len(self._powers) < size:
            device = self.starts.device
            sizes = range(2 * size)
            self._powers = torch.tensor([signed(pow(BASE, j, 1 << 64)) for j in sizes], device=device)
            self._inverses = torch.tensor([signed(pow(INVERSE, j, 1 << 64)) for j in sizes], device=device)
        return self._powers[:size], self._inverses[:size]

"""Which tokens may stand where in a written sentence, by the words that they spell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.vocabulary import PAD
from fabula.models.decoders.protocol import Tokenizer
from fabula.sampling.spelling import Spelling, hash_of
from fabula.shapes import Integers, Scores, Tokens, Words

FINAL_MARKS = (".", "!", "?")
QUOTES = ('"', "“", "'", "``")


@dataclass(frozen=True)
class WordRules:
    """What a tokenizer's tokens may do, as scores to add: 0 or minus infinity."""

    anywhere: Float[Tensor, " vocab"]
    """Never a special token, but `end`."""
    first: Float[Tensor, " vocab"]
    """Nor does a sentence begin with `end` or a mark other than a quote: no sentence is empty."""
    ending: Float[Tensor, " vocab"]
    """Only what ends a sentence: `. ! ?` where the tokenizer has them, else `end`."""
    end: Float[Tensor, " vocab"]
    """Only `end`."""
    is_final: Bool[Tensor, " vocab"]
    """The marks that end a sentence."""
    new_word: Float[Tensor, " vocab"]
    """What begins a word or is a mark, `'s` too: no letters that carry a word on."""
    quote: Int[Tensor, ""]
    """The straight quotation mark's token, -1 where there is none."""
    spelling: Spelling
    names: Int[Tensor, " name"]
    """The number of each of the people's names that a batch may rule out."""
    name_prefix: Int[Tensor, " name"]
    """The number of a name's tokens but its last, 0 for a name of one token."""
    name_last: Int[Tensor, " last"]
    """The last tokens of names, each once."""
    last_of_name: Int[Tensor, " name"]
    """Where in `name_last` a name's is."""
    common: Int[Tensor, " word"]
    """The numbers of the words that may stand twice in a sentence."""

    @staticmethod
    def of(tokenizer: Tokenizer, device: torch.device | str = "cpu", names: Sequence[str] = ()) -> WordRules:
        texts, end = tokenizer.texts, tokenizer.end
        final = torch.tensor([text in FINAL_MARKS for text in texts])
        special = torch.tensor([text == "" for text in texts])
        starts = torch.tensor(list(tokenizer.starts_word))
        spoken = torch.tensor([text in QUOTES or any(c.isalnum() for c in text) for text in texts]) & starts
        only_end = torch.arange(len(texts)) == end

        def scores(allowed: Tensor) -> Tensor:
            return torch.zeros(len(texts)).masked_fill(~allowed, float("-inf")).to(device)

        spelling = Spelling(tokenizer, device)
        spelled = [tokenizer.encode_word(name) for name in names]

        def numbers(values: list[int]) -> Int[Tensor, " name"]:
            return torch.tensor(values, dtype=torch.int64, device=device)

        lasts, last_of_name = numbers([tokens[-1] for tokens in spelled]).unique(return_inverse=True)
        return WordRules(
            anywhere=scores(~special | only_end),
            first=scores(spoken if spoken.any() else ~special),
            ending=scores(final if final.any() else only_end),
            end=scores(only_end),
            is_final=final.to(device),
            new_word=scores(
                torch.tensor([not (text[:1].isalnum() or text[:1] == "\ufffd") for text in texts]) | starts
            ),
            quote=torch.tensor(next((i for i, t in enumerate(texts) if t == '"' and starts[i]), -1), device=device),
            spelling=spelling,
            names=numbers([hash_of(tokens) for tokens in spelled]),
            name_prefix=numbers([hash_of(tokens[:-1]) for tokens in spelled]),
            name_last=lasts,
            last_of_name=last_of_name,
            common=spelling.numbers(tokenizer.common),
        )

    def allowed(self, scores: Tensor, previous: Integers | None, t: int, limit: int) -> Tensor:
        """The scores with what may not stand at place t ruled out; a sentence has at most `limit` tokens."""
        if t == limit - 1:
            return scores + self.end
        if t == 0 or previous is None:
            return scores + self.first
        if t == limit - 2:
            return scores + torch.where(self.is_final[previous].unsqueeze(-1), self.end, self.ending)
        return scores + self.anywhere

    def after_opening(self, scores: Scores, opening: Int[Tensor, "batch opening"], t: int) -> Scores:
        """The scores at place t, where behind the last token of an opening its last word may not be carried on."""
        if not 0 < t <= opening.shape[1]:
            return scores
        ends = opening[:, t - 1] != PAD
        ends = ends & (opening[:, t] == PAD) if t < opening.shape[1] else ends
        return torch.where(ends[:, None], scores + self.new_word, scores)

    def bar_names(self, scores: Scores, barred: Bool[Tensor, "batch name"], written: Words) -> Scores:
        """The scores without the tokens that would complete a barred name after those written so far; in place."""
        if not self.spelling.whole:
            barred = barred & (self.name_prefix == self._unfinished(written)) | barred & (self.name_prefix == 0)
        worst = scores.new_zeros(len(scores), len(self.name_last)).index_add_(
            1, self.last_of_name, barred.to(scores.dtype)
        )
        scores[:, self.name_last] = scores[:, self.name_last].masked_fill_(worst > 0, float("-inf"))
        return scores

    def _unfinished(self, written: Words) -> Int[Tensor, "batch 1"]:
        """The number of the tokens of the last word, which the next token may carry on."""
        if written.shape[1] == 0:
            return written.new_zeros(len(written), 1)
        place = torch.arange(written.shape[1], device=written.device)
        begin = torch.where(self.spelling.starts[written], place, 0).amax(1, keepdim=True)
        longer = torch.cat([written, torch.zeros_like(written[:, :1])], 1)
        return self.spelling.runs(longer, begin.expand(-1, longer.shape[1]))[:, -1:]

    def bar_repeats(self, scores: Scores, story: Tokens, sentence: Int[Tensor, "batch written"], run: int) -> Scores:
        """The scores without the tokens that would complete a run of `run` words that the story already has; in place,
        because a copy of the scores of a whole vocabulary costs more than the rule."""
        met, tokens = self.spelling.followers(story, sentence, run)
        end = scores[:, self.spelling.end].clone()
        scores.scatter_(1, torch.where(met, tokens, self.spelling.end), float("-inf"))
        scores[:, self.spelling.end] = end
        return scores

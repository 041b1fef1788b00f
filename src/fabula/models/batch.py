"""Stories as tensors: a batch of flat token rows with the place of every sentence in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from fabula.corpus.dataset import Stories
from fabula.corpus.vocabulary import BOS, PAD
from fabula.shapes import Latents, Mask, PerSentence, PerToken, Tags, Tokens

IntArray = NDArray[np.int64]


class Batch(NamedTuple):
    """Stories of mixed lengths side by side.

    `tokens` holds a story's sentences one after another, each with its `<eos>`, then `<pad>`; `sentence` says which
    sentence a token belongs to. The language model runs along `tokens` in one pass: that is X_:i.
    """

    tokens: Tokens
    sentence: Tokens
    starts: Tags
    lengths: Tags
    """Words of each sentence with its `<eos>`; 0 where the story has no such sentence."""
    S: Tags
    """The tag of each sentence, -1 where unknown."""
    words: int
    """The longest sentence's length, known without asking the device."""

    @property
    def present(self) -> Mask:
        return self.lengths > 0

    @property
    def previous(self) -> Tokens:
        """The language model's input: the token before each token, `<bos>` at the story's start."""
        return torch.cat([torch.full_like(self.tokens[:, :1], BOS), self.tokens[:, :-1]], dim=1)

    def X(self) -> Int[Tensor, "batch sent word"]:
        """The sentences apart, padded."""
        word = torch.arange(self.words, device=self.tokens.device)
        place = (self.starts.unsqueeze(-1) + word).clamp(max=self.tokens.shape[1] - 1)
        X = self.tokens.gather(1, place.flatten(1)).view(place.shape)
        return X.masked_fill(word >= self.lengths.unsqueeze(-1), PAD)

    def per_sentence(self, per_token: PerToken) -> PerSentence:
        """Sums of a figure per token over each sentence; `<pad>` counts for nothing."""
        figure = per_token.masked_fill(self.tokens == PAD, 0.0)
        return figure.new_zeros(self.lengths.shape).scatter_add(1, self.sentence, figure)

    def repeat(self, n: int) -> Batch:
        """Every story n times over, copies side by side."""
        return self.rows(torch.arange(len(self.tokens), device=self.tokens.device).repeat_interleave(n))

    def rows(self, at: Int[Tensor, " chosen"]) -> Batch:
        """The stories at these rows."""
        tokens, sentence, starts, lengths, S = (tensor[at] for tensor in self[:-1])
        return Batch(tokens, sentence, starts, lengths, S, self.words)


class StoryDataset:
    """A split on the device, from which batches are cut without touching the host."""

    def __init__(self, stories: Stories, device: torch.device | str) -> None:
        offsets = np.asarray(stories.sentence_offsets)
        story_offsets = np.asarray(stories.story_offsets)
        self.sentences = np.diff(story_offsets)
        lengths = np.diff(offsets)
        first = offsets[story_offsets[:-1]]
        self.token_counts = offsets[story_offsets[1:]] - first
        story_of_sentence = np.repeat(np.arange(len(self.sentences)), self.sentences)
        rank = np.arange(len(lengths)) - story_offsets[:-1][story_of_sentence]
        self.longest_sentence = np.zeros(len(self.sentences), dtype=np.int64)
        np.maximum.at(self.longest_sentence, story_of_sentence, lengths)

        def put(array: NDArray[np.generic]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array).astype(np.int64)).to(device)

        self.device = torch.device(device)
        self.tokens = torch.cat([put(np.asarray(stories.tokens)), torch.zeros(1, dtype=torch.int64, device=device)])
        self.rank_of_token = torch.cat([put(np.repeat(rank, lengths)), self.tokens.new_zeros(1)])
        self.first_token = put(first)
        self.first_sentence = put(story_offsets[:-1])
        self.n_sentences = put(self.sentences)
        self.n_tokens = put(self.token_counts)
        self.sentence_start = torch.cat([put(offsets[:-1]), self.tokens.new_zeros(1)])
        self.sentence_length = torch.cat([put(lengths), self.tokens.new_zeros(1)])
        self.tags = torch.cat([put(np.asarray(stories.tags)), self.tokens.new_full((1,), -1)])

    def __len__(self) -> int:
        return len(self.sentences)

    def batch(self, rows: IntArray) -> Batch:
        """The batch of these stories, in this order."""
        at = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.int64)).to(self.device)
        token = torch.arange(int(self.token_counts[rows].max()), device=self.device)
        beyond = token >= self.n_tokens[at, None]
        place = (self.first_token[at, None] + token).masked_fill(beyond, len(self.tokens) - 1)
        slot = torch.arange(int(self.sentences[rows].max()), device=self.device)
        absent = slot >= self.n_sentences[at, None]
        sentence = (self.first_sentence[at, None] + slot).masked_fill(absent, len(self.tags) - 1)
        lengths = self.sentence_length[sentence].masked_fill(absent, 0)
        return Batch(
            tokens=self.tokens[place].masked_fill(beyond, PAD),
            sentence=self.rank_of_token[place].masked_fill(beyond, 0),
            starts=(self.sentence_start[sentence] - self.first_token[at, None]).masked_fill(absent, 0),
            lengths=lengths,
            S=self.tags[sentence].masked_fill(absent, -1),
            words=int(self.longest_sentence[rows].max()),
        )

    def bucketed(self, size: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Every story once, in random batches of like lengths: sorted within windows of fifty batches."""
        order = rng.permutation(len(self))
        window = size * 50
        batches: list[IntArray] = []
        for start in range(0, len(order), window):
            part = order[start : start + window]
            part = part[np.argsort(self.token_counts[part], kind="stable")]
            batches.extend(part[i : i + size] for i in range(0, len(part), size))
        for i in rng.permutation(len(batches)):
            yield batches[i]

    def in_order(self, size: int) -> Iterator[IntArray]:
        """Every story once, longest first, so that the largest batch is the first to meet the memory."""
        order = np.argsort(-self.token_counts, kind="stable")
        for start in range(0, len(order), size):
            yield order[start : start + size]


def gather_latent(Z: Latents, sentence: Tokens) -> Float[Tensor, "batch token latent"]:
    """Z_i for every token of sentence i."""
    return Z.gather(1, sentence.unsqueeze(-1).expand(-1, -1, Z.shape[-1]))

"""A decoder for tests: two tokens a word, a key-value cache, and an own law r for rows that know the lines ahead.

Words are `ab`, `ac`, `bb`, `bc` (first token a or b, then its ending) and the mark `.`. One head of attention over all
tokens read so far; in a row that has read given lines ahead, those are read first. This file and one line,
`register_model("toy-decoder")`, are all that a model needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fabula.models.batch import Batch
from fabula.models.decoders.protocol import Given
from fabula.models.protocol import Model, register_model
from fabula.models.settings import ModelSettings

END, MARK, A, B, ENDING_B, ENDING_C = 1, 2, 3, 4, 5, 6
TEXTS = ("", "", ".", "a", "b", "b", "c", "")
HEADER = 7
WIDTH = 6


class PairTokenizer:
    """`ab ac .` <-> a b a c . in tokens."""

    end = END
    texts: Sequence[str] = TEXTS
    starts_word: Sequence[bool] = (True, True, True, True, True, False, False, True)
    unknown: int | None = None
    common: Sequence[str] = ("ab",)

    def encode(self, text: str) -> list[int]:
        return [token for word in text.replace(".", " .").split() for token in self.encode_word(word)]

    def encode_word(self, word: str) -> list[int]:
        if word == ".":
            return [MARK]
        first = B if word.lower().startswith("b") else A
        return [first, ENDING_B if word.lower().endswith("b") else ENDING_C]

    def decode(self, tokens: Sequence[int]) -> str:
        spelled = "".join((" " if self.starts_word[t] and t != MARK else "") + TEXTS[t] for t in tokens if TEXTS[t])
        return spelled.strip()


class Cache(NamedTuple):
    """Keys and values of what was read, ragged: a row's own length says what counts."""

    keys: Tensor
    values: Tensor
    lengths: Tensor
    previous: Tensor
    mood: Tensor

    def then(self, tokens: Tensor) -> Cache:
        return self._replace(previous=tokens)

    def select(self, rows: Tensor) -> Cache:
        return Cache(*(t[rows] for t in self))

    def put(self, rows: Tensor, other: Cache) -> Cache:
        mine, theirs = alike(self, other)
        return Cache(*(a.index_copy(0, rows, b) for a, b in zip(mine, theirs, strict=True)))

    def join(self, other: Cache) -> Cache:
        return Cache(*(torch.cat(pair) for pair in zip(*alike(self, other), strict=True)))


def alike(a: Cache, b: Cache) -> tuple[Cache, Cache]:
    width = max(a.keys.shape[1], b.keys.shape[1])

    def wide(c: Cache) -> Cache:
        more = (0, 0, 0, width - c.keys.shape[1])
        return c._replace(keys=nn.functional.pad(c.keys, more), values=nn.functional.pad(c.values, more))

    return wide(a), wide(b)


class ToyDecoder(nn.Module):
    """p(X_i | S_i, X_:i) and, after given lines, r(X_missing | X_given, S)."""

    D = 0
    sees = 9
    """Sentences that are read ahead of the one that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer = PairTokenizer()
        self.strict = True
        """Whether a first half must be followed by an ending, and an ending by nothing of its word."""
        self.token = nn.Embedding(len(TEXTS), WIDTH)
        self.mood = nn.Embedding(4, WIDTH)  # the last is "free"
        self.query, self.output = nn.Linear(WIDTH, WIDTH), nn.Linear(2 * WIDTH, len(TEXTS))

    def start(self, rows: int, z: Tensor | None = None, given: Given | None = None) -> Cache:
        none = torch.zeros(rows, dtype=torch.int64)
        state = Cache(torch.zeros(rows, 0, WIDTH), torch.zeros(rows, 0, WIDTH), none, none + END, none - 1)
        if given is not None:
            for i in range(given.X.shape[1]):
                for t in range(given.X.shape[2]):
                    there = given.lengths[:, i] > t
                    state = self._read(state.then(torch.where(there, given.X[:, i, t], HEADER)), ~there)
            state = state.then(torch.where(given.present.any(1), HEADER, END))
        return state

    def reads_until(self, i: int) -> int:
        return i + self.sees

    def without_history(self, state: Cache) -> Cache:
        return self.start(len(state.lengths))

    def begin_sentence(self, state: Cache, s: Tensor | None) -> Cache:
        return state._replace(mood=torch.full_like(state.mood, -1) if s is None else s)

    def _read(self, state: Cache, done: Tensor) -> Cache:
        """The token that waits, into the cache of the rows that are not done."""
        x = self.token(state.previous) + self.mood(torch.where(state.mood < 0, 3, state.mood))
        if int(state.lengths.max()) == state.keys.shape[1]:
            state, _ = alike(state, state._replace(keys=nn.functional.pad(state.keys, (0, 0, 0, 8))))
        rows = (~done).nonzero().squeeze(1)
        place = (rows, state.lengths[rows])
        keys, values = state.keys.index_put(place, x[rows]), state.values.index_put(place, x[rows].flip(-1))
        return state._replace(keys=keys, values=values, lengths=state.lengths + (~done).long())

    def step(self, state: Cache, z: Tensor | None, done: Tensor) -> tuple[Tensor, Cache]:
        state = self._read(state, done)
        last = state.keys[torch.arange(len(done)), (state.lengths - 1).clamp(min=0)]
        weights = (state.keys @ self.query(last).unsqueeze(-1)).squeeze(-1)
        inside = torch.arange(state.keys.shape[1]) < state.lengths[:, None]
        weights = weights.masked_fill(~inside, float("-inf")).softmax(-1)
        attended = (weights.unsqueeze(1) @ state.values).squeeze(1)
        scores = self.output(torch.cat([last, attended], -1))
        wrong = torch.zeros(len(done), len(TEXTS), dtype=torch.bool)
        wrong[:, [0, HEADER]] = True
        if self.strict:
            begun = (state.previous == A) | (state.previous == B)
            wrong[:, [ENDING_B, ENDING_C]] |= ~begun[:, None]
            wrong[:, [END, MARK, A, B]] |= begun[:, None]
        return scores.masked_fill(wrong, float("-inf")), state

    def read(self, state: Cache, tokens: Tensor, lengths: Tensor, z: Tensor | None) -> tuple[Cache, Tensor]:
        state, log_p = self.read_tokens(state, tokens, lengths)
        return state, log_p.sum(1)

    def read_tokens(self, state: Cache, tokens: Tensor, lengths: Tensor) -> tuple[Cache, Tensor]:
        log_p = torch.zeros(tokens.shape)
        for t in range(int(lengths.max())):
            done = t >= lengths
            scores, state = self.step(state, None, done)
            each = scores.log_softmax(-1).gather(1, tokens[:, t : t + 1]).squeeze(1)
            log_p[:, t] = torch.where(done, 0.0, each)
            state = state.then(torch.where(done, state.previous, tokens[:, t]))
        return state, log_p


class ToyModel(Model):
    def __init__(self, K: int) -> None:
        super().__init__()
        self.toy, self.states = ToyDecoder(), K

    @property
    def K(self) -> int:
        return self.states

    @property
    def decoder(self) -> ToyDecoder:
        return self.toy

    @property
    def tokenizer(self) -> PairTokenizer:
        return self.toy.tokenizer

    def log_p_words(self, batch: Batch, Z: Tensor | None = None) -> Tensor:
        X, state, found = batch.X(), self.toy.start(len(batch.tokens)), torch.zeros(batch.tokens.shape)
        for i in range(X.shape[1]):
            state = self.toy.begin_sentence(state, batch.S[:, i])
            state, log_p = self.toy.read_tokens(state, X[:, i], batch.lengths[:, i])
            row, place = (torch.arange(X.shape[2]) < batch.lengths[:, i, None]).nonzero(as_tuple=True)
            found[row, batch.starts[row, i] + place] = log_p[row, place]
        return found


@register_model("toy-decoder")
def build_toy(settings: ModelSettings, vocabulary: int, p_initial: Tensor, p_next: Tensor) -> ToyModel:
    return ToyModel(len(p_initial))

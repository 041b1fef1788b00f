"""What a decoder is: p(X_i | Z_i, S_i, X_:i), read, scored and written one sentence at a time.

A decoder has a tokenizer of its own and a state that only it understands (a GRU's vectors, a key-value cache). Samplers
move states from sentence to sentence:

    state = decoder.start(rows, z)                               before the story
    state = decoder.begin_sentence(state, s)                     S_i is known from here on
    state, log_p = decoder.read(state, tokens, lengths, z)       over a given sentence
    scores, state = decoder.step(state, z, done); state.then(token)    over a missing one, by tokens (`infill.decode`)

Every tensor of tokens is padded with `PAD` (0), whatever the tokenizer: no sentence contains it. To add a decoder, see
docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from jaxtyping import Int
from torch import Tensor

from fabula.shapes import Flags, Integers, Latent, Mask, PerStory, Rows, Scores, Tags, Words


@runtime_checkable
class Tokenizer(Protocol):
    """Sentences to tokens and back. A token belongs to one word; a mark of punctuation is a word of its own."""

    @property
    def end(self) -> int:
        """The token that ends a sentence."""

    @property
    def texts(self) -> Sequence[str]:
        """What each token spells, without the blank before it; a special token spells nothing ("")."""

    @property
    def starts_word(self) -> Sequence[bool]:
        """Whether a token begins a word or mark, or carries one on."""

    @property
    def unknown(self) -> int | None:
        """The token for words that cannot be spelled; None where every text can."""

    @property
    def common(self) -> Sequence[str]:
        """The commonest words of stories, which may well stand twice in a sentence."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a sentence, without `end`."""

    def encode_word(self, word: str) -> list[int]:
        """The tokens of one word as it stands inside a sentence."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of a sentence; `end` spells nothing."""


class Given(NamedTuple):
    """The given lines of stories, for a decoder that reads ahead."""

    X: Int[Tensor, "batch sent word"]
    lengths: Tags
    """Tokens of each given sentence with its `end`; 0 where missing or absent."""
    present: Mask
    missing: Mask


Own = TypeVar("Own")


@runtime_checkable
class State(Protocol):
    """What is remembered of the stories so far, a row for each."""

    def then(self: Own, tokens: Integers) -> Own:
        """The same with these tokens chosen: the next `step` reads them."""

    def select(self: Own, rows: Rows) -> Own:
        """Rows in another order or number: a part of the batch, copies, resampling."""

    def put(self: Own, rows: Rows, other: Own) -> Own:
        """These rows replaced by another state's."""

    def join(self: Own, other: Own) -> Own:
        """The rows of both, one after the other."""


DecoderState = TypeVar("DecoderState", bound=State)


@runtime_checkable
class Decoder(Protocol[DecoderState]):
    """p(X_i | Z_i, S_i, X_:i) for many stories at once."""

    D: int
    """The latent's size; 0 where there is none, and z is then None."""

    def start(self, rows: int, z: Latent | None = None, given: Given | None = None) -> DecoderState:
        """Before the first sentence; rows of `given` that have no line follow p."""

    def reads_until(self, i: int) -> int:
        """Given lines before this one are known while sentence i is written: i, or more for a decoder that reads ahead.

        The state of one that reads ahead follows r(X_missing | X_given, S), a proposal that knows lines to come, not p.
        """

    def without_history(self, state: DecoderState) -> DecoderState:
        """As many rows that remember nothing, before a sentence that is not a story's first."""

    def begin_sentence(self, state: DecoderState, s: Integers | None) -> DecoderState:
        """Before a sentence whose switching state is `s`, -1 where it is free."""

    def read(
        self, state: DecoderState, tokens: Words, lengths: Integers, z: Latent | None
    ) -> tuple[DecoderState, PerStory]:
        """Over a known sentence: log p(X_i | X_:i, Z_i, S_i), exact. A row of length 0 stays as it is."""

    def step(self, state: DecoderState, z: Latent | None, done: Flags) -> tuple[Scores, DecoderState]:
        """One token on: scores of the next one. Rows that are `done` stay where they are."""

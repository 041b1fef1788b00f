"""The narrator's tokenizer: byte-level BPE, built from the vocabulary and merges that stand in its base's GGUF file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fabula.errors import UserError
from fabula.models.decoders.rows import END, SPECIALS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BLANK = "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"
"""How byte-level BPE spells a blank."""


class SubwordTokenizer:
    """Sentences to subword tokens and back. A sentence begins with a blank, as in running text.

    A token that is a blank and letters begins a word; a mark of punctuation is a word of its own; other letters carry a
    word on. Rare words are spelled byte by byte; a few bytes of rare scripts are no tokens of the base, and drop out.
    """

    end = END
    unknown: int | None = None

    def __init__(self, inner: Tokenizer, common: Sequence[str] = ()) -> None:
        self.inner, self.common = inner, common

    @staticmethod
    def from_metadata(metadata: Mapping[str, Any]) -> SubwordTokenizer:
        """As SmolLM2's own: every digit alone, then GPT-2's split into words and marks, then merges."""
        # Only here: machines that train the other models need not have the library.
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        try:
            if metadata["tokenizer.ggml.pre"] != "smollm":
                raise KeyError("tokenizer.ggml.pre")
            vocabulary = {token: number for number, token in enumerate(metadata["tokenizer.ggml.tokens"])}
            merges = [(left, right) for left, _, right in (p.partition(" ") for p in metadata["tokenizer.ggml.merges"])]
        except KeyError as error:
            raise UserError(f"the base's file has no tokenizer that Fabula knows ({error})") from error
        inner = Tokenizer(models.BPE(vocabulary, merges))
        inner.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        inner.decoder = decoders.ByteLevel()
        return SubwordTokenizer(inner)

    def __len__(self) -> int:
        return int(self.inner.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """The tokens of a sentence, without `end`; blanks at its ends, and doubled ones, do not count."""
        return list(self.inner.encode(" " + " ".join(text.split())).ids)

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(e.ids) for e in self.inner.encode_batch([" " + " ".join(text.split()) for text in texts])]

    def encode_word(self, word: str) -> list[int]:
        """The tokens of one word as it stands inside a sentence."""
        return self.encode(word)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of a sentence; special tokens spell nothing."""
        return str(self.inner.decode([t for t in tokens if t >= SPECIALS])).strip()

    @cached_property
    def pieces(self) -> list[str]:
        """Every token as BPE writes it, a character per byte."""
        return [self.inner.id_to_token(number) or "" for number in range(len(self))]

    @cached_property
    def texts(self) -> list[str]:
        """What each token spells, without the blank before it; a special token spells nothing."""
        byte = str.maketrans({character: chr(number) for number, character in _characters().items()})

        def spelled(piece: str) -> str:
            bare = piece.removeprefix(BLANK)
            # Nearly all are ASCII, which BPE writes as it is: the long way round would take 0.3 s of a start.
            return (
                bare if bare.isascii() else piece.translate(byte).encode("latin-1").decode("utf-8", "replace").strip()
            )

        return ["" if i < SPECIALS else spelled(piece) for i, piece in enumerate(self.pieces)]

    @cached_property
    def starts_word(self) -> list[bool]:
        """Whether a token begins a word or mark, or carries one on (letters, digits and bytes without a blank)."""
        return [
            i >= SPECIALS and (piece.startswith(BLANK) or not (text[:1].isalnum() or text[:1] in ("'", "’", "\ufffd")))
            for i, (piece, text) in enumerate(zip(self.pieces, self.texts, strict=True))
        ]

    def words(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """The words and marks of a sentence: where each begins and ends. Letters after a mark are a word."""
        texts = [self.texts[token] for token in tokens]
        starts = [
            i
            for i, token in enumerate(tokens)
            if i == 0 or self.starts_word[token] or (_is_mark(texts[i - 1]) and texts[i][:1].isalpha())
        ]
        return list(zip(starts, [*starts[1:], len(tokens)], strict=True))


def _is_mark(text: str) -> bool:
    return text != "" and not text[-1].isalnum() and text[-1] not in ("'", "’", "\ufffd")


def _characters() -> dict[int, str]:
    """GPT-2's printable character for every byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}

"""Tokenizers: of words as a corpus counts them; of a base, built from the vocabulary in its file.

A base has byte-level BPE, or SentencePiece's BPE.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fabula.corpus.tokenize import detokenise, tokenise
from fabula.corpus.vocabulary import EOS, UNK, Vocabulary
from fabula.errors import UserError
from fabula.models.decoders.rows import END, SPECIALS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

COMMON = 150
"""How many of the commonest words may stand twice in a sentence without a fault."""

BYTES, PIECES = "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}", "\N{LOWER ONE EIGHTH BLOCK}"
"""How byte-level BPE and SentencePiece spell a blank."""

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Llama 3 splits a text before merges."""


class WordTokenizer:
    """Words as the corpus counts them; what the vocabulary lacks is read as `<unk>`."""

    end = EOS
    unknown: int | None = UNK

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.texts: Sequence[str] = ("",) * (EOS + 1) + vocabulary.words[EOS + 1 :]
        self.starts_word: Sequence[bool] = (True,) * len(vocabulary)
        self.common: Sequence[str] = vocabulary.words[EOS + 1 : EOS + 1 + COMMON]  # sorted by frequency

    def encode(self, text: str) -> list[int]:
        return self.vocabulary.encode(tokenise(text))

    def encode_word(self, word: str) -> list[int]:
        return self.vocabulary.encode([word])

    def decode(self, tokens: Sequence[int]) -> str:
        return detokenise([self.vocabulary.words[token] for token in tokens if token > EOS])


class SubwordTokenizer:
    """Sentences to subword tokens and back. A sentence begins with a blank, as in running text.

    A token that is a blank and letters begins a word; a mark of punctuation is a word of its own; other letters carry a
    word on. Rare words are spelled byte by byte; a few bytes of rare scripts are no tokens of the base, and drop out.
    """

    end = END
    unknown: int | None = None

    def __init__(self, inner: Tokenizer, size: int, blank: str = BYTES, common: Sequence[str] = ()) -> None:
        """`size` is the base's number of tokens, a few of which text may never use."""
        self.inner, self.size, self.blank, self.common = inner, size, blank, common

    @staticmethod
    def from_metadata(metadata: Mapping[str, Any], order: Sequence[int]) -> SubwordTokenizer:
        """Of a GGUF file; token `order[i]` of the file is token i here."""
        # Only here: machines that train the other models need not have the library.
        from tokenizers import Regex, pre_tokenizers

        tokens = metadata["tokenizer.ggml.tokens"]
        vocabulary = {tokens[place]: number for number, place in enumerate(order)}
        if metadata["tokenizer.ggml.model"] == "llama":
            scores = dict(zip(tokens, metadata["tokenizer.ggml.scores"], strict=True))
            return _pieces(vocabulary, merges_of(scores))
        merges = [(left, right) for left, _, right in (p.partition(" ") for p in metadata["tokenizer.ggml.merges"])]
        splits: dict[str, list[Any]] = {
            "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
            "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
            "llama-bpe": [
                pre_tokenizers.Split(Regex(LLAMA_3), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ],
        }
        split = splits.get(metadata.get("tokenizer.ggml.pre", "gpt-2"))
        if split is None:
            raise UserError(f"the base's file has no tokenizer that Fabula knows ({metadata['tokenizer.ggml.pre']})")
        return _byte_level(vocabulary, merges, pre_tokenizers.Sequence(split), len(order))

    @staticmethod
    def from_json(content: Mapping[str, Any], order: Sequence[int]) -> SubwordTokenizer:
        """Of a Hugging Face folder's tokenizer.json; token `order[i]` of the file is token i here."""
        from tokenizers import Tokenizer

        model = content["model"]
        if model["type"] != "BPE":
            raise UserError(f"the base's tokenizer is of kind {model['type']}, and Fabula reads BPE only")
        names = {number: token for token, number in model["vocab"].items()}
        names |= {token["id"]: token["content"] for token in content["added_tokens"]}
        vocabulary = {names[place]: number for number, place in enumerate(order) if place in names}
        merges = [tuple(pair.split(" ", 1)) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
        if model.get("byte_fallback"):
            return _pieces(vocabulary, merges)
        # An empty tokenizer of the same kind has the same way to split a text.
        empty = {**content, "model": {**model, "vocab": {}, "merges": []}, "added_tokens": [], "post_processor": None}
        return _byte_level(vocabulary, merges, Tokenizer.from_str(json.dumps(empty)).pre_tokenizer, len(order))

    def encode(self, text: str) -> list[int]:
        """The tokens of a sentence, without `end`; blanks at its ends, and doubled ones, do not count."""
        return list(self.inner.encode(" " + " ".join(text.split())).ids)

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(e.ids) for e in self.inner.encode_batch([" " + " ".join(text.split()) for text in texts])]

    def encode_word(self, word: str) -> list[int]:
        return self.encode(word)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.inner.decode([t for t in tokens if t >= SPECIALS])).strip()

    @cached_property
    def pieces(self) -> list[str]:
        """Every token as BPE writes it, a character per byte."""
        return [self.inner.id_to_token(number) or "" for number in range(self.size)]

    @cached_property
    def texts(self) -> list[str]:
        from tokenizers import decoders

        bytes_of = decoders.ByteLevel()

        def spelled(piece: str) -> str:
            bare = piece.removeprefix(self.blank)
            if self.blank == PIECES:
                return chr(code) if (code := _byte(bare)) is not None and code < 128 else "\ufffd" if code else bare
            # Nearly all are ASCII, which BPE writes as it is: the long way round would take 0.3 s of a start.
            return bare if bare.isascii() else str(bytes_of.decode([piece])).strip()

        return ["" if i < SPECIALS else spelled(piece) for i, piece in enumerate(self.pieces)]

    @cached_property
    def starts_word(self) -> list[bool]:
        """Whether a token begins a word or mark, or carries one on (letters, digits and bytes without a blank)."""
        return [
            i >= SPECIALS
            and (piece.startswith(self.blank) or not (text[:1].isalnum() or text[:1] in ("'", "’", "\ufffd")))
            for i, (piece, text) in enumerate(zip(self.pieces, self.texts, strict=True))
        ]


def _byte(piece: str) -> int | None:
    """The byte that a piece of SentencePiece stands for, `<0x0A>` for one."""
    return int(piece[3:5], 16) if len(piece) == 6 and piece.startswith("<0x") else None


def _byte_level(vocabulary: dict[str, int], merges: list[Any], split: Any, size: int) -> SubwordTokenizer:
    from tokenizers import Tokenizer, decoders, models

    inner = Tokenizer(models.BPE(vocabulary, merges))
    inner.pre_tokenizer, inner.decoder = split, decoders.ByteLevel()
    return SubwordTokenizer(inner, size)


def _pieces(vocabulary: dict[str, int], merges: list[Any]) -> SubwordTokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    inner = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    inner.normalizer = normalizers.Replace(" ", PIECES)
    inner.decoder = decoders.Sequence([decoders.Replace(PIECES, " "), decoders.ByteFallback(), decoders.Fuse()])
    return SubwordTokenizer(inner, len(vocabulary), PIECES)


def merges_of(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """SentencePiece joins the two neighbours whose joined piece has the highest score: as merges, in their order."""
    number = {piece: i for i, piece in enumerate(scores)}
    ranked = []
    for piece, score in scores.items():
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in scores and piece[i:] in scores]
        ranked += [(-score, number[left], number[right], left, right) for left, right in pairs]
    return [(left, right) for *_, left, right in sorted(ranked)]

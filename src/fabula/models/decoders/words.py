"""The tokenizer of word-level decoders: a token is a word of the corpus's vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from fabula.corpus.tokenize import detokenise, tokenise
from fabula.corpus.vocabulary import EOS, UNK, Vocabulary

COMMON = 150
"""How many of the commonest words may stand twice in a sentence without a fault."""


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

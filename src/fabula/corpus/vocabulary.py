"""The word types of a corpus and their ids."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")


@dataclass(frozen=True)
class Vocabulary:
    """Word types in the order of their ids; ids 0 to 3 are `<pad> <unk> <bos> <eos>`."""

    words: tuple[str, ...]
    index: dict[str, int] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        if self.words[: len(SPECIALS)] != SPECIALS:
            raise ValueError(f"a vocabulary begins with {' '.join(SPECIALS)}")
        index = {word: number for number, word in enumerate(self.words)}
        if len(index) != len(self.words):
            raise ValueError("a vocabulary holds each word once")
        object.__setattr__(self, "index", index)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], cutoff: int) -> "Vocabulary":
        """The words seen at least `cutoff` times, the most frequent first, equal counts by the alphabet."""
        kept = [word for word, count in counts.items() if count >= cutoff and word not in SPECIALS]
        kept.sort(key=lambda word: (-counts[word], word))
        return cls(SPECIALS + tuple(kept))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Iterable[str]) -> list[int]:
        """The ids of `words`, without `<eos>`; a word that is not listed, or spells a special, becomes `<unk>`."""
        ids = (self.index.get(word, UNK) for word in words)
        return [number if number > EOS else UNK for number in ids]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of `ids`, specials spelled out."""
        return [self.words[number] for number in ids]

    def to_json(self) -> str:
        """The words as JSON, one line each, the specials included."""
        return json.dumps(list(self.words), ensure_ascii=False, indent=0) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Vocabulary":
        """The inverse of `to_json`."""
        return cls(tuple(json.loads(text)))

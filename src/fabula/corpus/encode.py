"""One split: its stories as columns of numbers in memory, and the columns as the prepared arrays.

The vocabulary and the label set are known when all training stories have been read. Until then a word is its place
among the split's word types, and a label its place among its labels. Memory holds four bytes a word.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.dataset import file_entry, offsets, tag_dtype, token_dtype
from fabula.corpus.folder import write
from fabula.corpus.read import MAX_WORDS, Rejected, Story
from fabula.corpus.taggers.protocol import Tagger
from fabula.corpus.tokenize import tokenise
from fabula.corpus.transitions import Transitions
from fabula.corpus.vocabulary import EOS, UNK, Vocabulary

BLOCK = 1_000
"""Rows that are tagged together."""
LISTED = 10
"""Rejected rows that the report lists; the others are counted."""
COLUMNS = ("tokens", "sentence_lengths", "story_lengths", "own_tags", "tags", "characters")


class Split:
    """The encoded stories of one split, what they hold together, and its files."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.types: dict[str, int] = {}
        self.words: Counter[str] = Counter()
        self.labels: dict[str, int] = {}
        """The labels that the stories bring along."""
        self.columns = {column: array("i") for column in COLUMNS}
        self.ids: list[str] = []
        self.unknown = self.rejections = 0
        self.rejected: list[Rejected] = []
        """The first rejected rows, at most `LISTED`."""

    def encode(self, rows: Iterator[Story | Rejected], tagger: Tagger | None) -> None:
        """Tokenise and tag every story, block by block."""
        while block := list(islice(rows, BLOCK)):
            sentences = [sentence for row in block for sentence in self._add(row)]
            tags = [] if tagger is None else tagger.tag(sentences)
            self.columns["tags"].extend(-1 if tag is None else tag for tag in tags)

    def _add(self, row: Story | Rejected) -> Sequence[str]:
        """Put a story into the columns; returns its sentences, none where it is rejected."""
        columns = self.columns
        tokenised = [] if isinstance(row, Rejected) else [tokenise(sentence) for sentence in row.sentences]
        number, words = max(enumerate(tokenised, 1), key=lambda pair: len(pair[1]), default=(0, []))
        if len(words) > MAX_WORDS:
            row = Rejected(row.file, row.line, f"sentence {number} has {len(words):,} words, more than {MAX_WORDS}")
        if isinstance(row, Rejected):
            self.rejections += 1
            if len(self.rejected) < LISTED:
                self.rejected.append(row)
            return ()
        for words in tokenised:
            self.words.update(words)
            columns["tokens"].extend(self.types.setdefault(word, len(self.types)) for word in words)
            columns["tokens"].append(-1)  # <eos>
            columns["sentence_lengths"].append(len(words) + 1)
        columns["story_lengths"].append(len(row.sentences))
        for tag in row.tags or [None] * len(row.sentences):
            columns["own_tags"].append(-1 if tag is None else self.labels.setdefault(tag, len(self.labels)))
        columns["characters"].extend(len(sentence) for sentence in row.sentences)
        self.ids.append(row.id)
        return row.sentences

    def write(
        self, folder: Path, vocabulary: Vocabulary, labels: Sequence[str], own: bool, smoothing: float
    ) -> tuple[dict[str, Any], NDArray[np.int64], Transitions]:
        """Write the split's files in `folder`.

        Returns the files' entries for the manifest, the sentences without a state and of each state, and the counts of
        S. With `own` the states are the labels of the stories themselves.
        """
        K, columns = len(labels), {name: np.asarray(column) for name, column in self.columns.items()}
        # <eos> and "no tag" are -1: the last entries of these tables.
        word_ids = np.asarray([*vocabulary.encode(self.types), EOS], dtype=token_dtype(len(vocabulary)))
        states = np.asarray([*(labels.index(label) if label in labels else -1 for label in self.labels), -1])
        tags = states[columns["own_tags"]] if own else columns["tags"]
        arrays = {
            "tokens": word_ids[columns["tokens"]], "sentence_offsets": offsets(columns["sentence_lengths"]),
            "story_offsets": offsets(columns["story_lengths"]), "tags": tags.astype(tag_dtype(K)),
            "characters": columns["characters"],
        }  # fmt: skip
        paths = {name: folder / f"{self.name}.{name}.npy" for name in arrays}
        for name, values in arrays.items():
            with paths[name].open("wb") as stream:
                np.save(stream, values)
                stream.flush()
                os.fsync(stream.fileno())
        paths["ids"] = folder / f"{self.name}.ids.txt"
        write(paths["ids"], "".join(f"{name}\n" for name in self.ids).encode())
        self.unknown = int(np.count_nonzero(arrays["tokens"] == UNK))
        transitions = Transitions.count(tags, arrays["story_offsets"], K, smoothing)
        counts = np.bincount(tags.astype(np.int64) + 1, minlength=K + 1)
        return {path.name: file_entry(path) for path in paths.values()}, counts, transitions

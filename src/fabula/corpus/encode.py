"""One split, streamed: stories to blocks of words and tags in one file on disk, and blocks to the prepared arrays.

The vocabulary and the label set are known when all training stories have been read. Until then a word is its place
among the split's word types, and a label its place among its labels. Memory holds the word types and one block.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.dataset import file_entry, offsets, tag_dtype, token_dtype
from fabula.corpus.read import MAX_WORDS, Rejected, Story
from fabula.corpus.taggers.protocol import Tagger
from fabula.corpus.tokenize import tokenise_many
from fabula.corpus.transitions import Transitions
from fabula.corpus.vocabulary import EOS, UNK, Vocabulary

BLOCK = 1_000
"""Rows that are tagged together."""
LISTED = 10
"""Rejected rows that the report lists; the others are counted."""


class Split:
    """The encoded stories of one split, what they hold together, and its files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file, self.name = folder / f"{name}.blocks", name
        self.types: dict[str, int] = {}
        self.words: Counter[str] = Counter()
        self.labels: dict[str, int] = {}
        """The labels that the stories bring along."""
        self.stories = self.sentences = self.tokens = self.unknown = self.rejections = 0
        self.rejected: list[Rejected] = []
        """The first rejected rows, at most `LISTED`."""

    def encode(self, rows: Iterator[Story | Rejected], tagger: Tagger | None) -> None:
        """Tokenise and tag every story, block by block."""
        with self.file.open("wb") as stream:
            while block := list(islice(rows, BLOCK)):
                pickle.dump(self._encode_block(block, tagger), stream)

    def _encode_block(self, rows: Sequence[Story | Rejected], tagger: Tagger | None) -> dict[str, Any]:
        names = ("tokens", "sentence_lengths", "story_lengths", "own_tags", "tags", "characters")
        columns: dict[str, list[int]] = {name: [] for name in names}
        sentences: list[str] = []
        ids: list[str] = []
        for row in rows:
            if isinstance(row, Rejected):
                self._reject(row)
                continue
            tokenised = tokenise_many(row.sentences)
            longest = max(range(len(tokenised)), key=lambda place: len(tokenised[place]))
            if len(tokenised[longest]) > MAX_WORDS:
                reason = f"sentence {longest + 1} has {len(tokenised[longest]):,} words, more than {MAX_WORDS}"
                self._reject(Rejected(row.file, row.line, reason))
                continue
            for words in tokenised:
                self.words.update(words)
                columns["tokens"] += [*(self.types.setdefault(word, len(self.types)) for word in words), -1]  # <eos>
                columns["sentence_lengths"].append(len(words) + 1)
            columns["story_lengths"].append(len(row.sentences))
            tags = row.tags or [None] * len(row.sentences)
            columns["own_tags"] += [
                -1 if tag is None else self.labels.setdefault(tag, len(self.labels)) for tag in tags
            ]
            sentences += row.sentences
            ids.append(row.id)
        columns["tags"] = [] if tagger is None else [-1 if tag is None else tag for tag in tagger.tag(sentences)]
        columns["characters"] = [len(sentence) for sentence in sentences]
        self.stories += len(ids)
        self.sentences += len(sentences)
        self.tokens += len(columns["tokens"])
        return {"ids": ids} | {name: np.asarray(values, dtype=np.int32) for name, values in columns.items()}

    def _reject(self, row: Rejected) -> None:
        self.rejections += 1
        if len(self.rejected) < LISTED:
            self.rejected.append(row)

    def _blocks(self) -> Iterator[dict[str, Any]]:
        with self.file.open("rb") as stream:
            while stream.peek(1):
                yield pickle.load(stream)

    def write(
        self, folder: Path, vocabulary: Vocabulary, labels: Sequence[str], own: bool, smoothing: float
    ) -> tuple[dict[str, Any], NDArray[np.int64], Transitions]:
        """Write the split's files in `folder`.

        Returns the files' entries for the manifest, the sentences without a state and of each state, and the counts of
        S. With `own` the states are the labels of the stories themselves.
        """
        K = len(labels)
        # <eos> and "no tag" are -1: the last entries of these tables.
        word_ids = np.asarray([*vocabulary.encode(self.types), EOS])
        states = np.asarray([*(labels.index(label) if label in labels else -1 for label in self.labels), -1])
        arrays = {
            "tokens": (token_dtype(len(vocabulary)), self.tokens), "sentence_offsets": (np.int64, self.sentences + 1),
            "story_offsets": (np.int64, self.stories + 1), "tags": (tag_dtype(K), self.sentences),
            "characters": (np.int32, self.sentences),
        }  # fmt: skip
        paths = {array: folder / f"{self.name}.{array}.npy" for array in arrays}
        paths["ids"] = folder / f"{self.name}.ids.txt"
        tag_counts = np.zeros(K + 1, dtype=np.int64)
        transitions = Transitions(np.zeros(K, dtype=np.int64), np.zeros((K, K), dtype=np.int64), smoothing)
        with ExitStack() as stack:
            streams = {array: stack.enter_context(path.open("wb")) for array, path in paths.items()}

            def append(array: str, values: NDArray[Any]) -> None:
                streams[array].write(np.ascontiguousarray(values, dtype=arrays[array][0]).tobytes())

            for array, (kind, length) in arrays.items():  # the header of `numpy.save`
                header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": (length,)}
                np.lib.format.write_array_header_1_0(streams[array], header)
            first_token = first_sentence = 0
            for block in self._blocks():
                tokens, tags = word_ids[block["tokens"]], states[block["own_tags"]] if own else block["tags"]
                stories_begin, sentences_begin = offsets(block["story_lengths"]), offsets(block["sentence_lengths"])
                self.unknown += int(np.count_nonzero(tokens == UNK))
                tag_counts += np.bincount(tags + 1, minlength=K + 1)
                transitions += Transitions.count(tags, stories_begin, K)
                append("tokens", tokens)
                append("sentence_offsets", first_token + sentences_begin[:-1])
                append("story_offsets", first_sentence + stories_begin[:-1])
                append("tags", tags)
                append("characters", block["characters"])
                streams["ids"].write("".join(f"{name}\n" for name in block["ids"]).encode())
                first_token, first_sentence = first_token + len(tokens), first_sentence + len(tags)
            append("sentence_offsets", np.asarray([first_token]))
            append("story_offsets", np.asarray([first_sentence]))
            for stream in streams.values():
                stream.flush()
                os.fsync(stream.fileno())
        return {path.name: file_entry(path) for path in paths.values()}, tag_counts, transitions

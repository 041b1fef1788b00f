"""A split on its way to its arrays: kept on disk as it comes in, so that memory does not grow with the stories.

Only what depends on the vocabulary and the label set waits: words are numbered as they are met, and renumbered when all
are counted. Memory holds the word types, a block of rows, and the first rejected rows.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.dataset import array_file, ids_file, tag_dtype, token_dtype
from fabula.corpus.encode import Encoded
from fabula.corpus.read import Rejected
from fabula.corpus.transitions import Transitions
from fabula.corpus.vocabulary import EOS, UNK, Vocabulary

BLOCK = 1 << 16
"""Numbers that are held at a time."""
RAW = {"tokens": np.int32, "sentence_lengths": np.int32, "story_lengths": np.int32, "tags": np.int16,
       "own_tags": np.int32, "characters": np.int32}  # fmt: skip
"""What is kept of a split while it comes in, and how."""
Entry = dict[str, Any]
"""Size and hash of a file, for the manifest."""


class Words:
    """All word types met so far, by provisional ids; 0 stands for `<eos>`."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.counts = np.zeros(1, dtype=np.int64)
        """How often each was met in training."""

    def provisional(self, encoded: Encoded, count: bool) -> NDArray[np.int32]:
        """The batch's tokens by the ids that hold across batches."""
        places = self.places
        table = [places.setdefault(word, len(places) + 1) for word in encoded.types]
        tokens = np.asarray([*table, 0], dtype=np.int32)[encoded.tokens]  # <eos> is -1: the table's last
        if count and len(tokens):
            new = np.bincount(tokens)
            if len(new) > len(self.counts):
                self.counts = np.pad(self.counts, (0, 2 * len(new) - len(self.counts)))
            self.counts[: len(new)] += new
        return tokens

    def vocabulary(self, cutoff: int) -> tuple[Vocabulary, NDArray[np.int64]]:
        """The vocabulary of the training tokens, and the table from provisional to final ids."""
        counts = np.pad(self.counts, (0, max(0, len(self.places) + 1 - len(self.counts))))
        vocabulary = Vocabulary.from_counts({word: int(counts[place]) for word, place in self.places.items()}, cutoff)
        final = [EOS, *vocabulary.encode(self.places)]
        return vocabulary, np.asarray(final, dtype=np.int64)


class Spilled:
    """One split as it comes in, batch by batch."""

    def __init__(self, folder: Path, split: str, listed: int) -> None:
        self.folder, self.split, self.listed = folder, split, listed
        self.labels: dict[str, int] = {}
        """The stories' own labels, by the order in which they were met."""
        self.stories = self.sentences = self.tokens = self.rejections = 0
        self.rejected: list[Rejected] = []
        """The first ones, as many as are listed."""
        self._files: dict[str, BinaryIO] = {name: self._raw(name).open("wb") for name in RAW}
        self._ids = (folder / ids_file(split)).open("wb")

    def _raw(self, name: str) -> Path:
        return self.folder / f"{self.split}.{name}.raw"

    def add(self, encoded: Encoded, words: Words) -> None:
        own = [-1 if tag is None else self.labels.setdefault(tag, len(self.labels)) for tag in encoded.own_tags]
        values: dict[str, Any] = {
            "tokens": words.provisional(encoded, count=self.split == "train"), "own_tags": own,
            **{name: getattr(encoded, name) for name in ("sentence_lengths", "story_lengths", "tags", "characters")},
        }  # fmt: skip
        for name, kind in RAW.items():
            self._files[name].write(np.asarray(values[name], dtype=kind).tobytes())
        self._ids.write("".join(f"{name}\n" for name in encoded.ids).encode())
        self.stories += len(encoded.story_lengths)
        self.sentences += len(encoded.sentence_lengths)
        self.tokens += len(encoded.tokens)
        self.rejections += len(encoded.rejected)
        self.rejected += encoded.rejected[: self.listed - len(self.rejected)]

    def close(self) -> None:
        """All of it is there."""
        for file in (*self._files.values(), self._ids):
            file.close()

    def _blocks(self, name: str) -> Iterator[NDArray[Any]]:
        kind = np.dtype(RAW[name])
        with self._raw(name).open("rb") as stream:
            while data := stream.read(BLOCK * kind.itemsize):
                yield np.frombuffer(data, dtype=kind)

    def _tags(self, labels: Sequence[str], own: bool) -> Iterator[NDArray[Any]]:
        kind = tag_dtype(len(labels))
        if not own:
            yield from (block.astype(kind) for block in self._blocks("tags"))
            return
        number: Mapping[str, int] = {label: state for state, label in enumerate(labels)}
        table = np.asarray([*(number.get(label, -1) for label in self.labels), -1], dtype=kind)  # none is -1: the last
        yield from (table[block] for block in self._blocks("own_tags"))

    def _offsets(self, lengths: str) -> Iterator[NDArray[np.int64]]:
        """Where each piece begins, and where the last one ends."""
        end = np.int64(0)
        yield np.zeros(1, dtype=np.int64)
        for block in self._blocks(lengths):
            found = end + np.cumsum(block, dtype=np.int64)
            end = found[-1]
            yield found

    def write(
        self, final: NDArray[np.int64], vocabulary_size: int, labels: Sequence[str], *, own: bool
    ) -> tuple[dict[str, Entry], int, NDArray[np.int64]]:
        """The split's files; their entries in the manifest, the unknown words, and the sentences of each state."""
        kind = token_dtype(vocabulary_size)
        unknown, counts = 0, np.zeros(len(labels) + 1, dtype=np.int64)

        def tokens() -> Iterator[NDArray[Any]]:
            nonlocal unknown
            for block in self._blocks("tokens"):
                found = final[block].astype(kind)
                unknown += int(np.count_nonzero(found == UNK))
                yield found

        def tags() -> Iterator[NDArray[Any]]:
            for block in self._tags(labels, own):
                counts[:] += np.bincount(block.astype(np.int64) + 1, minlength=len(counts))
                yield block

        arrays: dict[str, tuple[Iterator[NDArray[Any]], Any, int]] = {
            "tokens": (tokens(), kind, self.tokens),
            "sentence_offsets": (self._offsets("sentence_lengths"), np.int64, self.sentences + 1),
            "story_offsets": (self._offsets("story_lengths"), np.int64, self.stories + 1),
            "tags": (tags(), tag_dtype(len(labels)), self.sentences),
            "characters": (self._blocks("characters"), np.int32, self.sentences),
        }
        files = {array_file(self.split, name): self._write(name, *array) for name, array in arrays.items()}
        files[ids_file(self.split)] = _entry(self.folder / ids_file(self.split))
        for name in RAW:
            self._raw(name).unlink()
        return files, unknown, counts

    def _write(self, name: str, blocks: Iterator[NDArray[Any]], kind: Any, length: int) -> Entry:
        """The bytes that `numpy.save` would write."""
        path = self.folder / array_file(self.split, name)
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(kind)), "fortran_order": False, "shape": (length,)}
        with path.open("wb") as stream:
            np.lib.format.write_array_header_1_0(stream, header)
            for block in blocks:
                stream.write(np.ascontiguousarray(block, dtype=kind).tobytes())
            stream.flush()
            os.fsync(stream.fileno())
        return _entry(path)

    def transitions(self, labels: Sequence[str], smoothing: float, *, own: bool) -> Transitions:
        """Counted some whole stories at a time."""
        K = len(labels)
        initial, following = np.zeros(K, dtype=np.int64), np.zeros((K, K), dtype=np.int64)
        tags, waiting = self._tags(labels, own), np.zeros(0, dtype=np.int64)
        for lengths in self._blocks("story_lengths"):
            need = int(lengths.sum())
            held = [waiting]
            have = len(waiting)
            while have < need:
                block = next(tags).astype(np.int64)
                held.append(block)
                have += len(block)
            found = np.concatenate(held)
            ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])
            part = Transitions.count(found[:need], ends, K, smoothing)
            initial, following, waiting = initial + part.initial, following + part.following, found[need:]
        return Transitions(initial, following, smoothing)


def _entry(path: Path) -> Entry:
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    return {"bytes": path.stat().st_size, "blake2b": found}

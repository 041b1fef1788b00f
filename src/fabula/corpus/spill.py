"""A split on its way to its arrays: kept on disk in numbered pieces, so that memory does not grow with the stories.

    FOLDER/train-000000.npz      the encoded stories of the first rows of a split; its words are numbered by themselves

A piece is renamed into place when it is whole, so a run that was killed goes on with the pieces that are not there.
What depends on the vocabulary and the label set waits until all are. Memory holds the word types and a piece.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.dataset import array_file, ids_file, offsets, shard_name, tag_dtype, token_dtype
from fabula.corpus.encode import Encoded
from fabula.corpus.folder import write_whole
from fabula.corpus.read import Rejected
from fabula.corpus.transitions import Transitions
from fabula.corpus.vocabulary import EOS, UNK, Vocabulary

LISTS = {"sentence_lengths": np.int32, "story_lengths": np.int32, "tags": np.int16, "characters": np.int32}
"""What a piece keeps of `Encoded` as it is, and how."""
Entry = dict[str, Any]
"""Size and hash of a file, for the manifest."""


class Spilled:
    """One split as it comes in, piece by piece, and its arrays."""

    def __init__(self, folder: Path, split: str, listed: int) -> None:
        self.folder, self.split, self.listed = folder, split, listed
        self.labels: set[str] = set()
        """The stories' own labels."""
        self.stories = self.sentences = self.tokens = self.rejections = 0
        self.rejected: list[Rejected] = []
        """The first ones, as many as are listed."""
        self.words: Counter[str] = Counter()
        """How often each word was met, of the training split."""
        self._sizes: list[tuple[int, int, int]] = []
        """Stories, sentences and tokens of each piece."""

    def path(self, number: int) -> Path:
        return self.folder / f"{self.split}-{number:06d}.npz"

    def add(self, number: int, batches: Sequence[Encoded]) -> None:
        """Write the piece with this number."""
        types: dict[str, int] = {}
        labels: dict[str, int] = {}
        tokens = [np.zeros(0, dtype=np.int32)]
        for batch in batches:
            table = [types.setdefault(word, len(types)) for word in batch.types]
            tokens.append(np.asarray([*table, -1], dtype=np.int32)[batch.tokens])  # <eos> is -1: the table's last
        own = [tag for batch in batches for tag in batch.own_tags]
        arrays: dict[str, NDArray[Any]] = {
            name: np.asarray([value for batch in batches for value in getattr(batch, name)], dtype=kind)
            for name, kind in LISTS.items()
        }
        arrays["tokens"] = np.concatenate(tokens)
        arrays["counts"] = np.bincount(arrays["tokens"] + 1, minlength=len(types) + 1)[1:]
        arrays["own_tags"] = np.asarray(
            [-1 if tag is None else labels.setdefault(tag, len(labels)) for tag in own], dtype=np.int32
        )
        rejected = [row for batch in batches for row in batch.rejected]
        texts: dict[str, Any] = {
            "head": {
                "sizes": [len(arrays[name]) for name in ("story_lengths", "sentence_lengths", "tokens")],
                "labels": list(labels), "rejections": len(rejected),
                "rejected": [astuple(row) for row in rejected[: self.listed]],
            },
            "types": list(types), "ids": [name for batch in batches for name in batch.ids],
        }  # fmt: skip
        arrays |= {name: np.frombuffer(json.dumps(text).encode(), dtype=np.uint8) for name, text in texts.items()}
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        write_whole(self.path(number), content.getvalue())

    def close(self) -> None:
        """All pieces are there: count."""
        while (path := self.path(len(self._sizes))).exists():
            with np.load(path) as piece:
                head = _text(piece, "head")
                if self.split == "train":
                    self.words.update(dict(zip(_text(piece, "types"), piece["counts"].tolist(), strict=True)))
            self._sizes.append(head["sizes"])
            self.labels.update(head["labels"])
            self.rejections += head["rejections"]
            self.rejected += [Rejected(*row) for row in head["rejected"]][: self.listed - len(self.rejected)]
        self.stories, self.sentences, self.tokens = (sum(size[i] for size in self._sizes) for i in range(3))

    def write(self, folder: Path, vocabulary: Vocabulary, labels: Sequence[str], *, own: bool, pieces: int) -> Written:
        """The split's files in `folder`, in shards of so many pieces: the same arrays, cut between two stories."""
        K, last = len(labels), len(self._sizes) - 1
        kinds = {"tokens": token_dtype(len(vocabulary)), "sentence_offsets": np.int64, "story_offsets": np.int64,
                 "tags": tag_dtype(K), "characters": np.int32}  # fmt: skip
        state = {label: number for number, label in enumerate(labels)} if own else None
        written = Written({}, 0, *(np.zeros(size, dtype=np.int64) for size in (K + 1, K, (K, K))))
        token, sentence = 0, 0
        for first in range(0, last + 1, pieces):
            numbers = range(first, min(first + pieces, last + 1))
            stories, sentences, tokens = (sum(self._sizes[number][i] for number in numbers) for i in range(3))
            final = int(last in numbers)  # the end of all offsets stands in the last shard
            lengths = dict(zip(kinds, (tokens, sentences + final, stories + final, sentences, sentences), strict=True))
            shard = self.split if last < pieces else shard_name(self.split, first // pieces)
            paths = {array: folder / array_file(shard, array) for array in kinds} | {"ids": folder / ids_file(shard)}
            with ExitStack() as stack:
                streams = {array: stack.enter_context(path.open("wb")) for array, path in paths.items()}
                for array, kind in kinds.items():  # the bytes that `numpy.save` would write
                    shape = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": (lengths[array],)}
                    np.lib.format.write_array_header_1_0(streams[array], shape)
                for number in numbers:
                    with np.load(self.path(number)) as piece:
                        found = written.count(piece, vocabulary, state)
                        streams["ids"].write("".join(f"{name}\n" for name in _text(piece, "ids")).encode())
                    end = None if number == last else -1
                    starts = found["sentence_offsets"], found["story_offsets"]
                    found |= {
                        "sentence_offsets": (token + starts[0])[:end],
                        "story_offsets": (sentence + starts[1])[:end],
                    }
                    token, sentence = token + starts[0][-1], sentence + starts[1][-1]
                    for array, kind in kinds.items():
                        streams[array].write(np.ascontiguousarray(found[array], dtype=kind).tobytes())
                for stream in streams.values():
                    stream.flush()
                    os.fsync(stream.fileno())
            written.files |= {path.name: _entry(path) for path in paths.values()}
        return written


@dataclass
class Written:
    """What was written of a split."""

    files: dict[str, Entry]
    unknown: int
    """Words below the cut-off."""
    tags: NDArray[np.int64]
    """Sentences without a state, then of each state."""
    initial: NDArray[np.int64]
    following: NDArray[np.int64]
    """The counts of `Transitions`."""

    def count(
        self, piece: Mapping[str, NDArray[Any]], vocabulary: Vocabulary, state: Mapping[str, int] | None
    ) -> dict[str, NDArray[Any]]:
        """A piece's arrays by the final ids, its offsets from 0; they are counted here."""
        words = np.asarray([*vocabulary.encode(_text(piece, "types")), EOS])[piece["tokens"]]
        tags = _tags(piece, state).astype(np.int64)
        stories = offsets(piece["story_lengths"])
        self.unknown += int(np.count_nonzero(words == UNK))
        self.tags += np.bincount(tags + 1, minlength=len(self.tags))
        found = Transitions.count(tags, stories, len(self.initial))
        self.initial, self.following = self.initial + found.initial, self.following + found.following
        return {"tokens": words, "sentence_offsets": offsets(piece["sentence_lengths"]), "story_offsets": stories,
                "tags": tags, "characters": piece["characters"]}  # fmt: skip


def _text(piece: Mapping[str, NDArray[Any]], name: str) -> Any:
    return json.loads(piece[name].tobytes())


def _tags(piece: Mapping[str, NDArray[Any]], state: Mapping[str, int] | None) -> NDArray[Any]:
    """The tagger's, or the stories' own by the number of each label."""
    if state is None:
        return piece["tags"]
    table: NDArray[Any] = np.asarray([*(state.get(label, -1) for label in _text(piece, "head")["labels"]), -1])
    return np.take(table, piece["own_tags"])  # none is -1: the table's last


def _entry(path: Path) -> Entry:
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    return {"bytes": path.stat().st_size, "blake2b": found}

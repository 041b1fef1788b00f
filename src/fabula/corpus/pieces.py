"""Stories to words and tags in numbered pieces on disk, and pieces to the arrays of a prepared split.

    FOLDER/train-000000.npz      encoded rows of a split; a word is its place in the piece's own list of types

What depends on the vocabulary and the label set waits until all pieces are there: memory holds the word types and one
piece. A piece is renamed into place when it is whole: a run that was killed makes only the pieces that are missing.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import astuple
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.dataset import array_file, file_entry, ids_file, offsets, shard_name, tag_dtype, token_dtype
from fabula.corpus.folder import write_whole
from fabula.corpus.read import MAX_WORDS, Rejected, Story
from fabula.corpus.taggers.protocol import Tagger
from fabula.corpus.tokenize import tokenise_many
from fabula.corpus.transitions import Transitions
from fabula.corpus.vocabulary import EOS, UNK, Vocabulary

PIECE = 1_000
"""Rows of a piece, at most: what each process can lose to a kill."""
LISTED = 10
"""Rejected rows that the report lists; the others are counted."""
Rows = list[Story | Rejected]
Arrays = Mapping[str, NDArray[Any]]


def encode_piece(path: Path, rows: Rows, tagger: Tagger | None) -> None:
    """Tokenise and tag rows, and write them as one piece. The reader's rejected rows pass through in their order."""
    types: dict[str, int] = {}
    labels: dict[str, int] = {}
    columns: dict[str, list[int]] = {name: [] for name in ("tokens", "sentence_lengths", "story_lengths", "own_tags")}
    sentences: list[str] = []
    ids: list[str] = []
    rejected: list[Rejected] = []
    for row in rows:
        if isinstance(row, Rejected):
            rejected.append(row)
            continue
        tokenised = tokenise_many(row.sentences)
        longest = max(range(len(tokenised)), key=lambda place: len(tokenised[place]))
        if len(tokenised[longest]) > MAX_WORDS:
            reason = f"sentence {longest + 1} has {len(tokenised[longest]):,} words, more than {MAX_WORDS}"
            rejected.append(Rejected(row.file, row.line, reason))
            continue
        for words in tokenised:
            columns["tokens"] += [*(types.setdefault(word, len(types)) for word in words), -1]  # <eos> is -1
            columns["sentence_lengths"].append(len(words) + 1)
        columns["story_lengths"].append(len(row.sentences))
        tags = row.tags or [None] * len(row.sentences)
        columns["own_tags"] += [-1 if tag is None else labels.setdefault(tag, len(labels)) for tag in tags]
        sentences += row.sentences
        ids.append(row.id)
    columns["tags"] = [] if tagger is None else [-1 if tag is None else tag for tag in tagger.tag(sentences)]
    columns["characters"] = [len(sentence) for sentence in sentences]
    listed = [astuple(row) for row in rejected[:LISTED]]
    text = {"types": list(types), "labels": list(labels), "ids": ids, "rejections": len(rejected), "rejected": listed}
    arrays: dict[str, Any] = {name: np.asarray(values, dtype=np.int32) for name, values in columns.items()}
    content = io.BytesIO()
    np.savez(content, **arrays, text=np.frombuffer(json.dumps(text).encode(), dtype=np.uint8))
    write_whole(path, content.getvalue())


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with_parent() -> None:
    """A worker process ends when its parent does, even where the parent is killed outright."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Encoders:
    """Worker processes that encode pieces; with one process the work is done here."""

    def __init__(self, processes: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.executor = ProcessPoolExecutor(processes, spawn, _end_with_parent) if processes > 1 else None
        self.most_waiting = 3 * processes  # enough to keep everyone busy, few enough to keep memory flat

    def encode(self, pieces: Iterator[tuple[Path, Rows]], tagger: Tagger | None) -> None:
        """Encode every piece; an error of a worker is raised here."""
        if self.executor is None:
            for path, rows in pieces:
                encode_piece(path, rows, tagger)
            return
        waiting: deque[Future[None]] = deque()
        try:
            for path, rows in pieces:
                # Workers are born with Ctrl-C blocked: it is this process that stops them, without their tracebacks.
                previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                try:
                    waiting.append(self.executor.submit(encode_piece, path, rows, tagger))
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, previous)
                if len(waiting) > self.most_waiting:
                    waiting.popleft().result()
            while waiting:
                waiting.popleft().result()
        except BrokenProcessPool as error:  # the system's doing, as a full disk is: out of memory, or a signal
            raise ChildProcessError("a worker process was killed; the same command goes on") from error

    def __enter__(self) -> Encoders:
        return self

    def __exit__(self, *_: object) -> None:
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)


class Split:
    """The pieces of one split, what they hold together, and its files."""

    def __init__(self, folder: Path, name: str, shard_rows: int) -> None:
        self.folder, self.name, self.shard_rows = folder, name, shard_rows
        self.shard_pieces = -(-shard_rows // PIECE)
        self.labels: set[str] = set()
        """The labels that the stories bring along."""
        self.words: Counter[str] = Counter()
        self.sizes: list[tuple[int, int, int]] = []
        """Stories, sentences and tokens of each piece."""
        self.rejections = 0
        self.rejected: list[Rejected] = []
        """The first rejected rows, at most `LISTED`."""
        self.unknown = 0

    def path(self, number: int) -> Path:
        return self.folder / f"{self.name}-{number:06d}.npz"

    def encode(self, rows: Iterator[Story | Rejected], encoders: Encoders, tagger: Tagger | None) -> None:
        """Encode the pieces that are not there yet, then count what all of them hold."""
        encoders.encode(self._missing(rows), tagger)
        while (path := self.path(len(self.sizes))).exists():
            with np.load(path) as piece:
                text, tokens = _text(piece), piece["tokens"]
                self.sizes.append((len(text["ids"]), len(piece["sentence_lengths"]), len(tokens)))
            counts = np.bincount(tokens + 1, minlength=len(text["types"]) + 1)[1:].tolist()
            self.words.update(dict(zip(text["types"], counts, strict=True)))
            self.labels.update(text["labels"])
            self.rejections += text["rejections"]
            self.rejected += [Rejected(*row) for row in text["rejected"]][: LISTED - len(self.rejected)]

    def _missing(self, rows: Iterator[Story | Rejected]) -> Iterator[tuple[Path, Rows]]:
        for number in count():
            length = min(PIECE, self.shard_rows - number % self.shard_pieces * PIECE)
            if self.path(number).exists():
                deque(islice(rows, length), maxlen=0)  # read past them
            elif piece := list(islice(rows, length)):
                yield self.path(number), piece
            else:
                return

    @property
    def totals(self) -> tuple[int, int, int]:
        """Stories, sentences and tokens."""
        stories, sentences, tokens = (sum(size[i] for size in self.sizes) for i in range(3))
        return stories, sentences, tokens

    def write(
        self, folder: Path, vocabulary: Vocabulary, labels: Sequence[str], own: bool, smoothing: float
    ) -> tuple[dict[str, Any], NDArray[np.int64], Transitions]:
        """Write the split's files in `folder`, in shards where it has more than `shard_rows` rows.

        Returns the files' entries for the manifest, the sentences without a state and of each state, and the counts of
        S. With `own` the states are the labels of the stories themselves.
        """
        K, last = len(labels), len(self.sizes) - 1
        kinds = {"tokens": token_dtype(len(vocabulary)), "sentence_offsets": np.int64, "story_offsets": np.int64,
                 "tags": tag_dtype(K), "characters": np.int32}  # fmt: skip
        state = {label: number for number, label in enumerate(labels)} if own else None
        files: dict[str, Any] = {}
        tag_counts = np.zeros(K + 1, dtype=np.int64)
        transitions = Transitions(np.zeros(K, dtype=np.int64), np.zeros((K, K), dtype=np.int64), smoothing)
        first_token = first_sentence = 0
        for first in range(0, last + 1, self.shard_pieces):
            numbers = range(first, min(first + self.shard_pieces, last + 1))
            final = int(last in numbers)  # the end of all offsets stands in the last shard
            stories, sentences, tokens = (sum(self.sizes[number][i] for number in numbers) for i in range(3))
            lengths = (tokens, sentences + final, stories + final, sentences, sentences)
            shard = self.name if last < self.shard_pieces else shard_name(self.name, first // self.shard_pieces)
            paths = {array: folder / array_file(shard, array) for array in kinds} | {"ids": folder / ids_file(shard)}
            with ExitStack() as stack:
                streams = {array: stack.enter_context(path.open("wb")) for array, path in paths.items()}
                for (array, kind), length in zip(kinds.items(), lengths, strict=True):  # the header of `numpy.save`
                    header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": (length,)}
                    np.lib.format.write_array_header_1_0(streams[array], header)
                for number in numbers:
                    with np.load(self.path(number)) as piece:
                        ids, arrays = _arrays(piece, vocabulary, state)
                    tags, stories_begin = arrays["tags"], arrays["story_offsets"]
                    self.unknown += int(np.count_nonzero(arrays["tokens"] == UNK))
                    tag_counts += np.bincount(tags + 1, minlength=K + 1)
                    transitions += Transitions.count(tags, stories_begin, K)
                    end = None if number == last else -1
                    arrays["sentence_offsets"] = (first_token + arrays["sentence_offsets"])[:end]
                    arrays["story_offsets"] = (first_sentence + stories_begin)[:end]
                    first_token, first_sentence = first_token + len(arrays["tokens"]), first_sentence + len(tags)
                    streams["ids"].write("".join(f"{name}\n" for name in ids).encode())
                    for array, kind in kinds.items():
                        streams[array].write(np.ascontiguousarray(arrays[array], dtype=kind).tobytes())
                for stream in streams.values():
                    stream.flush()
                    os.fsync(stream.fileno())
            files |= {path.name: file_entry(path) for path in paths.values()}
        return files, tag_counts, transitions


def _text(piece: Arrays) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(piece["text"].tobytes())
    return record


def _arrays(
    piece: Arrays, vocabulary: Vocabulary, state: Mapping[str, int] | None
) -> tuple[list[str], dict[str, NDArray[Any]]]:
    """The ids of a piece's stories, and its arrays by the final numbers of words and states; offsets begin at 0."""
    text, tags = _text(piece), piece["tags"].astype(np.int64)
    if state is not None:
        table = np.asarray([*(state.get(label, -1) for label in text["labels"]), -1])
        tags = table[piece["own_tags"]]  # none is -1: the table's last entry
    return text["ids"], {
        "tokens": np.asarray([*vocabulary.encode(text["types"]), EOS])[piece["tokens"]],
        "sentence_offsets": offsets(piece["sentence_lengths"]),
        "story_offsets": offsets(piece["story_lengths"]),
        "tags": tags,
        "characters": piece["characters"],
    }

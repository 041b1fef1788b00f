"""Stories to words and tags, a batch at a time, here or in worker processes."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.read import MAX_WORDS, Rejected, Story
from fabula.corpus.taggers.protocol import Tagger
from fabula.corpus.tokenize import tokenise_many


@dataclass(frozen=True)
class Encoded:
    """A batch of stories as a worker sends it back: words by their place in the batch's own list of types."""

    types: list[str]
    tokens: NDArray[np.int32]
    """Places in `types`, `<eos>` as -1."""
    sentence_lengths: list[int]
    story_lengths: list[int]
    tags: list[int]
    own_tags: list[str | None]
    characters: list[int]
    ids: list[str]
    rejected: list[Rejected]


def encode_batch(batch: list[Story | Rejected], tagger: Tagger | None) -> Encoded:
    """Tokenise and tag a batch; what the reader rejected passes through, in its place."""
    types: dict[str, int] = {}
    encoded = Encoded([], np.empty(0, np.int32), [], [], [], [], [], [], [])
    tokens: list[int] = []
    sentences: list[str] = []
    for item in batch:
        if isinstance(item, Rejected):
            encoded.rejected.append(item)
            continue
        tokenised = tokenise_many(item.sentences)
        longest = max(range(len(tokenised)), key=lambda place: len(tokenised[place]))
        if len(tokenised[longest]) > MAX_WORDS:
            reason = f"sentence {longest + 1} has {len(tokenised[longest]):,} words, more than {MAX_WORDS}"
            encoded.rejected.append(Rejected(item.file, item.line, reason))
            continue
        for sentence in tokenised:
            tokens.extend(types.setdefault(word, len(types)) for word in sentence)
            tokens.append(-1)
            encoded.sentence_lengths.append(len(sentence) + 1)
        sentences.extend(item.sentences)
        encoded.story_lengths.append(len(item.sentences))
        encoded.own_tags.extend(item.tags if item.tags is not None else [None] * len(item.sentences))
        encoded.characters.extend(map(len, item.sentences))
        encoded.ids.append(item.id)
    if tagger is not None:
        encoded.tags.extend(-1 if tag is None else tag for tag in tagger.tag(sentences))
    return replace(encoded, types=list(types), tokens=np.asarray(tokens, dtype=np.int32))


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Encoder = Callable[[Iterable[list[Story | Rejected]]], Iterator[Encoded]]
_worker_tagger: Tagger | None = None


def _start_worker(tagger: Tagger | None) -> None:
    """Once per process: keep the tagger, and end with the parent even where it is killed outright."""
    global _worker_tagger
    _worker_tagger = tagger
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _encode_in_worker(batch: list[Story | Rejected]) -> Encoded:
    return encode_batch(batch, _worker_tagger)


@contextmanager
def encoder(processes: int, tagger: Tagger | None) -> Iterator[Encoder]:
    """A function from batches to encoded batches in the same order, here or in worker processes."""
    if processes == 1:
        yield lambda batches: (encode_batch(batch, tagger) for batch in batches)
        return
    executor = ProcessPoolExecutor(
        processes, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(tagger,)
    )

    def encode(batches: Iterable[list[Story | Rejected]]) -> Iterator[Encoded]:
        waiting: deque[Future[Encoded]] = deque()
        for batch in batches:
            # Workers are born with Ctrl-C blocked: it is this process that stops them, without their tracebacks.
            old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                waiting.append(executor.submit(_encode_in_worker, batch))
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, old)
            if len(waiting) > 3 * processes:  # enough to keep everyone busy, few enough to keep memory flat
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    try:
        yield encode
    except BrokenProcessPool as error:  # the system's doing, as a full disk is: out of memory, or somebody's signal
        raise ChildProcessError("a worker process was killed; the same command goes on") from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)

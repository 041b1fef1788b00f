"""Story files to a prepared corpus: tokenise, tag, count, write; in parallel, and to the same bytes every time."""

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from itertools import count, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from fabula import __version__
from fabula.corpus.dataset import (
    MANIFEST,
    SCHEMA,
    VOCABULARY,
    content_hash,
    digest,
    ids_file,
    seal,
)
from fabula.corpus.encode import Encoder, cores, encoder
from fabula.corpus.folder import check_target, faults_of, move_into_place, work_folder, write
from fabula.corpus.holdout import hold_out_stories
from fabula.corpus.read import MAX_WORDS, Rejected, Story, describe_source, read_stories
from fabula.corpus.spill import Spilled
from fabula.corpus.states import StateSpace
from fabula.corpus.taggers.protocol import OWN, Tagger, states_of
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.corpus.transitions import SMOOTHING, Transitions
from fabula.corpus.vocabulary import Vocabulary
from fabula.errors import UserError

CUTOFF = 5
"""A word seen less often in the training split becomes `<unk>` (the value that gives the paper's vocabulary)."""
LISTED = 10
"""Rejected rows that the report lists; the rest are counted."""
MAX_LABELS = 1_000
"""Own labels beyond this are a column mistaken for tags: the transition counts alone would be huge."""
SHARD_ROWS = 1_000_000
"""Rows of a shard of the output where nobody says otherwise; a split with fewer is not cut."""
PIECE = 10_000
"""Rows of a piece, at most: as much as a kill can cost."""
_BATCH = 400
_INLINE_BYTES = 2_000_000
"""Below this much text, starting worker processes costs more than it saves."""


@dataclass(frozen=True)
class SplitReport:
    """What became of one split."""

    stories: int
    sentences: int
    tokens: int
    """Words and the `<eos>` of each sentence."""
    unknown: int
    """Words below the cut-off."""
    tags: dict[str, int]
    """Sentences with each label."""
    untagged: int
    rejected: int

    @property
    def unknown_rate(self) -> float:
        """Share of unknown words among the words, `<eos>` not counted."""
        return self.unknown / max(self.tokens - self.sentences, 1)


@dataclass(frozen=True)
class Report:
    """The end of a preparation, for people and for programs."""

    folder: str
    hash: str
    vocabulary: int
    """Word types with the four specials."""
    labels: tuple[str, ...]
    tagger: str
    splits: dict[str, SplitReport]
    rejected: tuple[Rejected, ...] = field(default=())
    """The first ten rows kept out, in the order of the files."""

    def to_json(self) -> str:
        """The report as JSON, without times: the same input gives the same text."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2)


def prepare(
    files: Sequence[str | Path],
    out: str | Path,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    cutoff: int = CUTOFF,
    tagger: Tagger | None = None,
    own_tags: bool | None = None,
    smoothing: float = SMOOTHING,
    shard_rows: int = SHARD_ROWS,
    paragraphs: bool = False,
    format: str | None = None,
    force: bool = False,
    jobs: int | None = None,
    progress: bool = True,
    hold_out: float = 0.0,
    seed: int = 0,
) -> Report:
    """Prepare story files into the folder `out`, which appears complete or not at all.

    A run that was killed goes on when it is called again with the same files and settings; others are refused unless
    `force` is set. A split of more than `shard_rows` rows is written in shards.

    Without a `valid` file this share of the stories, one at least, is drawn from `files` by `seed` to be that split.

    Tags come from the files themselves where `own_tags` is True, from `tagger` (VADER unless another is given) where it
    is False; None takes the files' own where the training files have any. `jobs` is the number of processes, one per
    core unless given; the result does not depend on it.
    """
    if not files:
        raise UserError("no story file given", field="files")
    paths = {"train": [Path(file) for file in files]}
    paths |= {split: [Path(file)] for split, file in (("valid", valid), ("test", test)) if file is not None}
    sources = {split: [describe_source(path) for path in group] for split, group in paths.items()}
    weight = sum(source["bytes"] for group in sources.values() for source in group)
    with tqdm(total=weight, unit="B", unit_scale=True, desc="reading", disable=not progress) as bar:

        def stories(group: list[Path], watch: Callable[[int], object] | None) -> Iterator[Story | Rejected]:
            for path in group:
                yield from read_stories(path, paragraphs=paragraphs, format=format, watch=watch)

        splits = {split: stories(group, bar.update) for split, group in paths.items()}
        provenance = {"sources": sources, "paragraphs": paragraphs}
        if valid is None and hold_out > 0:
            # Read three times: to count, for training, for validation.
            bar.total += 2 * sum(source["bytes"] for source in sources["train"])
            kept, drawn = hold_out_stories(lambda: stories(paths["train"], bar.update), hold_out, seed)
            splits = {**splits, "train": kept} | ({"valid": drawn} if drawn is not None else {})
            provenance["held_out"] = {"share": hold_out, "seed": seed}
        return _prepare(
            splits,
            out,
            provenance=provenance,
            read={"input": provenance, "format": format},
            weight=weight,
            cutoff=cutoff,
            tagger=tagger,
            own_tags=own_tags,
            smoothing=smoothing,
            shard_rows=shard_rows,
            force=force,
            jobs=jobs,
        )


def prepare_stories(
    splits: Mapping[str, Sequence[Story]],
    out: str | Path,
    *,
    provenance: dict[str, Any],
    cutoff: int = 1,
    tagger: Tagger | None = None,
    smoothing: float = SMOOTHING,
    shard_rows: int = SHARD_ROWS,
    force: bool = False,
    jobs: int | None = None,
    progress: bool = True,
) -> Report:
    """Prepare stories that are in memory, such as the toy corpus; `provenance` is for the manifest."""
    total = sum(len(group) for group in splits.values())
    with tqdm(total=total, unit=" stories", desc="preparing", disable=not progress) as bar:

        def counted(group: Sequence[Story]) -> Iterator[Story | Rejected]:
            for story in group:
                bar.update()
                yield story

        return _prepare(
            {split: counted(group) for split, group in splits.items()},
            out,
            provenance=provenance,
            read={
                "input": digest(json.dumps([asdict(story) for group in splits.values() for story in group]).encode())
            },
            weight=sum(len(sentence) for group in splits.values() for story in group for sentence in story.sentences),
            cutoff=cutoff,
            tagger=tagger,
            own_tags=False,
            smoothing=smoothing,
            shard_rows=shard_rows,
            force=force,
            jobs=jobs,
        )


def _prepare(
    splits: dict[str, Iterator[Story | Rejected]],
    out: str | Path,
    *,
    provenance: dict[str, Any],
    read: dict[str, Any],
    weight: int,
    cutoff: int,
    tagger: Tagger | None,
    own_tags: bool | None,
    smoothing: float,
    shard_rows: int,
    force: bool,
    jobs: int | None,
) -> Report:
    """Encode every split, then count, then write: the vocabulary and the label set are the training split's.

    `read` says what is read and how, so that no run goes on with the pieces of other stories.
    """
    if cutoff < 1:
        raise UserError(f"the cut-off is a count of at least 1, not {cutoff}", field="cutoff")
    if not smoothing > 0 or not np.isfinite(smoothing):
        raise UserError(f"the smoothing constant is above 0, not {smoothing}", field="smoothing")
    if shard_rows < 1:
        raise UserError(f"a shard has at least one row, not {shard_rows}", field="shard_rows")
    if jobs is not None and jobs < 1:
        raise UserError(f"at least one process is needed, not {jobs}", field="jobs")
    processes = (jobs or min(cores(), 8)) if weight > _INLINE_BYTES else 1
    tagger = VaderTagger() if tagger is None else tagger
    target = check_target(Path(out), force)

    pieces = -(-shard_rows // PIECE)
    made_with = _versions("spacy", "vaderSentiment")
    job = {**read, "cutoff": cutoff, "smoothing": smoothing, "tagger": tagger.settings, "tags": own_tags,
           "shard-rows": shard_rows, "version": {"fabula": __version__, **made_with}}  # fmt: skip

    with faults_of(target), work_folder(target, job, force) as work:
        with encoder(processes, None if own_tags else tagger) as encode:
            gathered: dict[str, Spilled] = {}
            for split, items in splits.items():
                part = gathered[split] = Spilled(work, split, LISTED)
                known = _own_labels(gathered["train"], own_tags, tagger) if split != "train" else None
                _encode(_known_labels(items, known), encode, part, shard_rows // pieces)
                part.close()
                _check_usable(split, part, provenance)
        own = _own_labels(gathered["train"], own_tags, tagger)
        labels = tagger.labels if own is None else own

        folder = work / "corpus"
        shutil.rmtree(folder, ignore_errors=True)  # half of it, from a run that was killed
        folder.mkdir()
        vocabulary = Vocabulary.from_counts(gathered["train"].words, cutoff)
        content = vocabulary.to_json().encode()
        write(folder / VOCABULARY, content)
        files = {VOCABULARY: {"bytes": len(content), "blake2b": digest(content)}}
        reports: dict[str, SplitReport] = {}
        for split, part in gathered.items():
            written = part.write(folder, vocabulary, labels, own=own is not None, pieces=pieces)
            files |= written.files
            if split == "train":
                transitions = Transitions(written.initial, written.following, smoothing)
            reports[split] = SplitReport(
                stories=part.stories, sentences=part.sentences, tokens=part.tokens, unknown=written.unknown,
                tags={label: int(count) for label, count in zip(labels, written.tags[1:], strict=True)},
                untagged=int(written.tags[0]), rejected=part.rejections,
            )  # fmt: skip
        files = dict(sorted(files.items()))
        tagging = {"tagger": OWN} if own is not None else tagger.settings
        states = StateSpace.single(OWN, own) if own is not None else states_of(tagger)
        manifest: dict[str, Any] = {
            "schema": SCHEMA if any(ids_file(split) not in files for split in gathered) else 1,
            "provenance": provenance,
            "settings": {"cutoff": cutoff, "smoothing": smoothing, "max_words": MAX_WORDS, **tagging},
            "tagger": tagging,
            "made_with": made_with,
            "vocabulary": len(vocabulary),
            "labels": list(labels),
            "states": states.to_record(),
            "transitions": transitions.to_record(),
            "splits": {split: asdict(report) for split, report in reports.items()},
            "files": files,
        }
        manifest["digest"] = seal(manifest)
        write(folder / MANIFEST, (json.dumps(manifest, ensure_ascii=False, indent=1) + "\n").encode())
        move_into_place(folder, target)
    rejected = [row for part in gathered.values() for row in part.rejected]
    return Report(
        folder=str(out),
        hash=content_hash(files, labels),
        vocabulary=len(vocabulary),
        labels=tuple(labels),
        tagger=str(tagging["tagger"]),
        splits=reports,
        rejected=tuple(rejected[:LISTED]),
    )


# --- Reading and encoding --------------------------------------------------------------------------------------------


def _own_labels(training: Spilled, own_tags: bool | None, tagger: Tagger) -> tuple[str, ...] | None:
    """The label set of the training files' own tags, None where a tagger's are to be used.

    The labels are in the order of the alphabet, unless they are the tagger's: then the tagger's order and all of them,
    so that the hand-made tags of one corpus mean the same states as the automatic tags of another.
    """
    if own_tags is False:
        return None
    labels = set(training.labels)
    if not labels:
        if own_tags:
            raise UserError("the training files have no tags of their own", field="tags")
        return None
    if labels <= set(tagger.labels):
        return tuple(tagger.labels)
    if len(labels) > MAX_LABELS:
        raise UserError(f"the training files have {len(labels):,} labels, more than {MAX_LABELS:,}", field="tags")
    return tuple(sorted(labels))


def _known_labels(items: Iterable[Story | Rejected], labels: tuple[str, ...] | None) -> Iterator[Story | Rejected]:
    """Keep out stories of the other splits with a label that training never shows."""
    known = None if labels is None else {None, *labels}
    for item in items:
        strange = [] if known is None or isinstance(item, Rejected) else [t for t in item.tags or () if t not in known]
        if strange and isinstance(item, Story):
            yield Rejected(item.file, item.line, f"the training files have no tag {strange[0]!r}")
        else:
            yield item


def _check_usable(split: str, part: Spilled, provenance: dict[str, Any]) -> None:
    if part.stories:
        return
    names = ", ".join(source["name"] for source in provenance.get("sources", {}).get(split, ())) or split
    first = f"; the first of {part.rejections:,} rejected rows: {part.rejected[0]}" if part.rejected else ""
    raise UserError(f"{names}: no usable story left{first}")


def _encode(items: Iterator[Story | Rejected], encode: Encoder, part: Spilled, rows: int) -> None:
    """Encode the pieces, of so many rows, that are not there yet."""
    numbers: deque[int] = deque()

    def batches() -> Iterator[list[Story | Rejected]]:
        for number in count():
            piece = islice(items, rows)
            if part.path(number).exists():
                deque(piece, maxlen=0)  # read past
                continue
            batch = list(islice(piece, _BATCH))
            if not batch:
                return
            while batch:
                numbers.append(number)
                yield batch
                batch = list(islice(piece, _BATCH))

    encoded = ((numbers.popleft(), batch) for batch in encode(batches()))  # they come back in their order
    for number, group in groupby(encoded, key=itemgetter(0)):
        part.add(number, [batch for _, batch in group])


def _versions(*packages: str) -> dict[str, str]:
    """The installed versions of what decides tokens and tags."""
    found: dict[str, str] = {}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found

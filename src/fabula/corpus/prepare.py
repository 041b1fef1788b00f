"""Story files to a prepared corpus: tokenise, tag, count, write; in parallel, and to the same bytes every time."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from fabula import __version__
from fabula.corpus.dataset import MANIFEST, SCHEMA, VOCABULARY, content_hash, digest, file_entry, ids_file, seal
from fabula.corpus.folder import check_target, move_into_place, work_folder, write, write_errors_for_user
from fabula.corpus.pieces import LISTED, Encoders, Split, cores
from fabula.corpus.read import MAX_WORDS, Rejected, Story, describe_source, read_stories
from fabula.corpus.states import StateSpace
from fabula.corpus.taggers.protocol import OWN, Tagger, states_of
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.corpus.transitions import SMOOTHING
from fabula.corpus.vocabulary import Vocabulary
from fabula.errors import UserError

CUTOFF = 5
"""A word seen less often in the training split becomes `<unk>` (the value that gives the paper's vocabulary)."""
SHARD_ROWS = 1_000_000
MAX_LABELS = 1_000
"""More distinct labels suggest that the tags are not labels; the transition counts alone would be huge."""
INLINE_BYTES = 2_000_000
"""Below this much text, starting worker processes costs more than it saves."""
Items = Iterator[Story | Rejected]


@dataclass(frozen=True, kw_only=True)
class PrepareSettings:
    """How stories become a prepared corpus."""

    cutoff: int = CUTOFF
    tagger: Tagger = field(default_factory=VaderTagger)
    own_tags: bool | None = None
    """True: the stories' own tags; False: the tagger's; None: their own where the training files have any."""
    smoothing: float = SMOOTHING
    shard_rows: int = SHARD_ROWS
    """A split with more rows is written in shards of so many."""
    force: bool = False
    """Replace a corpus that is there, or an unfinished one of other settings."""
    jobs: int | None = None
    """Processes, one per core (at most 8) where it is None; the result does not depend on it."""
    progress: bool = True

    def __post_init__(self) -> None:
        if self.cutoff < 1:
            raise UserError(f"the cut-off is a count of at least 1, not {self.cutoff}", field="cutoff")
        if not self.smoothing > 0 or not np.isfinite(self.smoothing):
            raise UserError(f"the smoothing constant is above 0, not {self.smoothing}", field="smoothing")
        if self.shard_rows < 1:
            raise UserError(f"a shard has at least one row, not {self.shard_rows}", field="shard_rows")
        if self.jobs is not None and self.jobs < 1:
            raise UserError(f"at least one process is needed, not {self.jobs}", field="jobs")


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
    """The result of a preparation: what was written, and which rows were rejected."""

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
    paragraphs: bool = False,
    format: str | None = None,
    hold_out: float = 0.0,
    seed: int = 0,
    **settings: Any,
) -> Report:
    """Prepare story files into the folder `out`, which appears complete or not at all; settings: `PrepareSettings`.

    A run that was killed goes on when it is called again with the same files and settings. Without a `valid` file the
    share `hold_out` of the stories, one at least, is drawn from `files` by `seed` to be that split.
    """
    chosen = PrepareSettings(**settings)
    if not files:
        raise UserError("no story file given", field="files")
    paths = {"train": [Path(file) for file in files]}
    paths |= {split: [Path(file)] for split, file in (("valid", valid), ("test", test)) if file is not None}
    sources = {split: [describe_source(path) for path in group] for split, group in paths.items()}
    size = sum(source["bytes"] for group in sources.values() for source in group)
    with tqdm(total=size, unit="B", unit_scale=True, desc="reading", disable=not chosen.progress) as bar:

        def stories(group: list[Path]) -> Items:
            for path in group:
                yield from read_stories(path, paragraphs=paragraphs, format=format, on_bytes_read=bar.update)

        splits = {split: stories(group) for split, group in paths.items()}
        provenance = {"sources": sources, "paragraphs": paragraphs}
        if valid is None and hold_out > 0:
            bar.total += 2 * sum(source["bytes"] for source in sources["train"])  # read three times
            training, drawn = hold_out_stories(lambda: stories(paths["train"]), hold_out, seed)
            splits = {**splits, "train": training} | ({"valid": drawn} if drawn is not None else {})
            provenance["held_out"] = {"share": hold_out, "seed": seed}
        return _prepare(splits, Path(out), chosen, provenance, {"input": provenance, "format": format}, size)


def prepare_stories(
    splits: Mapping[str, Sequence[Story]], out: str | Path, *, provenance: dict[str, Any], **settings: Any
) -> Report:
    """Prepare stories that are in memory, such as the toy corpus; `provenance` is for the manifest.

    The settings are those of `PrepareSettings`, with a cut-off of 1; the stories' own tags are not used.
    """
    chosen = PrepareSettings(**{"cutoff": 1, **settings, "own_tags": False})
    everything = [story for group in splits.values() for story in group]
    source = {"input": digest(json.dumps([asdict(story) for story in everything]).encode())}
    size = sum(len(sentence) for story in everything for sentence in story.sentences)
    items: dict[str, Items] = {split: iter(group) for split, group in splits.items()}
    return _prepare(items, Path(out), chosen, provenance, source, size)


def _prepare(
    splits: Mapping[str, Items],
    out: Path,
    settings: PrepareSettings,
    provenance: dict[str, Any],
    source: dict[str, Any],
    size: int,
) -> Report:
    """Encode every split, then count, then write: the vocabulary and the label set are the training split's.

    `source` identifies the input, so that no run resumes from the partial output of another input.
    """
    tagger, target = settings.tagger, check_target(out, settings.force)
    processes = (settings.jobs or min(cores(), 8)) if size > INLINE_BYTES else 1
    made_with = _versions("spacy", "vaderSentiment")
    job = {**source, "cutoff": settings.cutoff, "smoothing": settings.smoothing, "tagger": tagger.settings,
           "tags": settings.own_tags, "shard-rows": settings.shard_rows,
           "version": {"fabula": __version__, **made_with}}  # fmt: skip
    with write_errors_for_user(target), work_folder(target, job, settings.force) as work:
        encoded: dict[str, Split] = {}
        own_labels: tuple[str, ...] | None = None
        with Encoders(processes) as encoders:
            for name, items in splits.items():
                split = encoded[name] = Split(work, name, settings.shard_rows)
                split.encode(_check_labels(items, own_labels), encoders, None if settings.own_tags else tagger)
                _check_usable(split, provenance)
                own_labels = _own_labels(encoded["train"], settings)
        folder = work / "corpus"
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        folder.mkdir()
        report = _write(
            folder, encoded, settings, own_labels, {"provenance": provenance, "made_with": made_with}, str(out)
        )
        move_into_place(folder, target)
    return report


def _write(
    folder: Path,
    splits: Mapping[str, Split],
    settings: PrepareSettings,
    own_labels: tuple[str, ...] | None,
    about: dict[str, Any],
    out: str,
) -> Report:
    """All files of the prepared folder, the manifest last."""
    labels = settings.tagger.labels if own_labels is None else own_labels
    tagging = settings.tagger.settings if own_labels is None else {"tagger": OWN}
    states = states_of(settings.tagger) if own_labels is None else StateSpace.single(OWN, own_labels)
    vocabulary = Vocabulary.from_counts(splits["train"].words, settings.cutoff)
    write(folder / VOCABULARY, vocabulary.to_json().encode())
    files = {VOCABULARY: file_entry(folder / VOCABULARY)}
    reports: dict[str, SplitReport] = {}
    transitions = {}
    for name, split in splits.items():
        entries, tags, transitions[name] = split.write(
            folder, vocabulary, labels, own_labels is not None, settings.smoothing
        )
        files |= entries
        by_label = dict(zip(labels, tags[1:].tolist(), strict=True))
        reports[name] = SplitReport(*split.totals, split.unknown, by_label, int(tags[0]), split.rejections)
    files = dict(sorted(files.items()))
    manifest: dict[str, Any] = {
        "schema": SCHEMA if any(ids_file(name) not in files for name in splits) else 1,
        "provenance": about["provenance"],
        "settings": {
            "cutoff": settings.cutoff, "smoothing": settings.smoothing, "max_words": MAX_WORDS, **tagging,
        },
        "tagger": tagging,
        "made_with": about["made_with"],
        "vocabulary": len(vocabulary),
        "labels": list(labels),
        "states": states.to_record(),
        "transitions": transitions["train"].to_record(),
        "splits": {name: asdict(report) for name, report in reports.items()},
        "files": files,
    }  # fmt: skip
    manifest["digest"] = seal(manifest)
    write(folder / MANIFEST, (json.dumps(manifest, ensure_ascii=False, indent=1) + "\n").encode())
    rejected = tuple(row for split in splits.values() for row in split.rejected)[:LISTED]
    tagger = str(tagging["tagger"])
    return Report(out, content_hash(files, labels), len(vocabulary), tuple(labels), tagger, reports, rejected)


def hold_out_stories(read: Callable[[], Items], share: float, seed: int) -> tuple[Items, Items | None]:
    """The items without this share of the stories (one at least), and those stories; a single story is not drawn.

    `read` reopens the files to count and for each split, so that no story is kept in memory. Each story is drawn with
    probability (still wanted) / (still to come), so every set of the wanted size is equally probable.
    """
    stories = sum(isinstance(item, Story) for item in read())
    if stories < 2:
        return read(), None

    def side(drawn: bool) -> Items:
        rng, to_come, wanted = random.Random(seed), stories, max(1, round(share * stories))
        for item in read():
            if isinstance(item, Story):
                chosen = rng.random() * to_come < wanted
                to_come, wanted = to_come - 1, wanted - chosen
                if chosen == drawn:
                    yield item
            elif not drawn:
                yield item

    return side(False), side(True)


def _own_labels(training: Split, settings: PrepareSettings) -> tuple[str, ...] | None:
    """The label set of the training files' own tags, None where a tagger's are to be used.

    The labels are in the order of the alphabet, unless they are the tagger's: then the tagger's order and all of them,
    so that the hand-made tags of one corpus mean the same states as the automatic tags of another.
    """
    labels = training.labels
    if settings.own_tags is False or not (labels or settings.own_tags):
        return None
    if not labels:
        raise UserError("the training files have no tags of their own", field="tags")
    if labels <= set(settings.tagger.labels):
        return tuple(settings.tagger.labels)
    if len(labels) > MAX_LABELS:
        raise UserError(f"the training files have {len(labels):,} labels, more than {MAX_LABELS:,}", field="tags")
    return tuple(sorted(labels))


def _check_labels(items: Iterable[Story | Rejected], labels: tuple[str, ...] | None) -> Items:
    """Reject stories of the other splits with a label that training never shows."""
    for item in items:
        tags = () if labels is None or isinstance(item, Rejected) else item.tags or ()
        unseen = [tag for tag in tags if tag is not None and tag not in (labels or ())]
        if unseen and isinstance(item, Story):
            yield Rejected(item.file, item.line, f"the training files have no tag {unseen[0]!r}")
        else:
            yield item


def _check_usable(split: Split, provenance: dict[str, Any]) -> None:
    if split.totals[0]:
        return
    names = ", ".join(source["name"] for source in provenance.get("sources", {}).get(split.name, ())) or split.name
    first = f"; the first of {split.rejections:,} rejected rows: {split.rejected[0]}" if split.rejected else ""
    raise UserError(f"{names}: no usable story left{first}")


def _versions(*packages: str) -> dict[str, str]:
    """The installed versions of what decides tokens and tags."""
    versions: dict[str, str] = {}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions

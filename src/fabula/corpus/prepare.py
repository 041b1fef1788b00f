"""Story files to a prepared corpus: tokenise, tag, count, write; to the same bytes every time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from fabula.corpus.dataset import MANIFEST, SCHEMA, VOCABULARY, content_hash, file_entry, seal
from fabula.corpus.encode import LISTED, Split
from fabula.corpus.folder import check_target, move_into_place, work_folder, write, write_errors_for_user
from fabula.corpus.read import MAX_WORDS, Rejected, Story, describe_source, read_stories
from fabula.corpus.states import StateSpace
from fabula.corpus.taggers.protocol import OWN, Tagger, states_of
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.corpus.transitions import SMOOTHING
from fabula.corpus.vocabulary import Vocabulary
from fabula.errors import UserError

CUTOFF = 5
"""A word seen less often in the training split becomes `<unk>` (the value that gives the paper's vocabulary)."""
MAX_LABELS = 1_000
"""More distinct labels suggest that the tags are not labels; the transition counts alone would be huge."""
Items = Iterator[Story | Rejected]


@dataclass(frozen=True, kw_only=True)
class PrepareSettings:
    """How stories become a prepared corpus."""

    cutoff: int = CUTOFF
    tagger: Tagger = field(default_factory=VaderTagger)
    own_tags: bool | None = None
    """True: the stories' own tags; False: the tagger's; None: their own where the training files have any."""
    smoothing: float = SMOOTHING
    force: bool = False
    """Replace a corpus that is there."""
    progress: bool = True

    def __post_init__(self) -> None:
        if self.cutoff < 1:
            raise UserError(f"the cut-off is a count of at least 1, not {self.cutoff}", field="cutoff")
        if not self.smoothing > 0 or not np.isfinite(self.smoothing):
            raise UserError(f"the smoothing constant is above 0, not {self.smoothing}", field="smoothing")


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
    hold_out: float = 0.0,
    seed: int = 0,
    **settings: Any,
) -> Report:
    """Prepare story files into the folder `out`, which appears complete or not at all; settings: `PrepareSettings`.

    Without a `valid` file the share `hold_out` of the stories, one at least, is drawn from `files` by `seed` to be that
    split.
    """
    chosen = PrepareSettings(**settings)
    if not files:
        raise UserError("no story file given", field="files")
    paths = {"train": [Path(file) for file in files]}
    paths |= {split: [Path(file)] for split, file in (("valid", valid), ("test", test)) if file is not None}
    sources = {split: [describe_source(path) for path in group] for split, group in paths.items()}

    def stories(group: list[Path]) -> Items:
        for path in group:
            yield from read_stories(path, paragraphs=paragraphs)

    splits = {split: stories(group) for split, group in paths.items()}
    provenance: dict[str, Any] = {"sources": sources, "paragraphs": paragraphs}
    if valid is None and hold_out > 0:
        training, drawn = hold_out_stories(lambda: stories(paths["train"]), hold_out, seed)
        splits = {**splits, "train": training} | ({"valid": drawn} if drawn is not None else {})
        provenance["held_out"] = {"share": hold_out, "seed": seed}
    return _prepare(splits, Path(out), chosen, provenance)


def prepare_stories(
    splits: Mapping[str, Sequence[Story]], out: str | Path, *, provenance: dict[str, Any], **settings: Any
) -> Report:
    """Prepare stories that are in memory, such as the toy corpus; `provenance` is for the manifest.

    The settings are those of `PrepareSettings`, with a cut-off of 1; the stories' own tags are not used.
    """
    chosen = PrepareSettings(**{"cutoff": 1, **settings, "own_tags": False})
    items: dict[str, Items] = {split: iter(group) for split, group in splits.items()}
    return _prepare(items, Path(out), chosen, provenance)


def _prepare(splits: Mapping[str, Items], out: Path, settings: PrepareSettings, provenance: dict[str, Any]) -> Report:
    """Encode every split, then count, then write: the vocabulary and the label set are the training split's."""
    target = check_target(out, settings.force)
    with write_errors_for_user(target), work_folder(target) as work:
        encoded: dict[str, Split] = {}
        own_labels: tuple[str, ...] | None = None
        for name, items in splits.items():
            split = encoded[name] = Split(name)
            rows = tqdm(_check_labels(items, own_labels), unit=" stories", desc=name, disable=not settings.progress)
            split.encode(iter(rows), None if settings.own_tags else settings.tagger)
            _check_usable(split, provenance)
            own_labels = _own_labels(encoded["train"], settings)
        folder = work / "corpus"
        folder.mkdir()
        report = _write(folder, encoded, settings, own_labels, provenance, str(out))
        move_into_place(folder, target)
    return report


def _write(
    folder: Path,
    splits: Mapping[str, Split],
    settings: PrepareSettings,
    own_labels: tuple[str, ...] | None,
    provenance: dict[str, Any],
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
        sizes = (len(split.ids), len(split.columns["characters"]), len(split.columns["tokens"]), split.unknown)
        by_label = dict(zip(labels, tags[1:].tolist(), strict=True))
        reports[name] = SplitReport(*sizes, by_label, int(tags[0]), split.rejections)
    files = dict(sorted(files.items()))
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "provenance": provenance,
        "settings": {
            "cutoff": settings.cutoff, "smoothing": settings.smoothing, "max_words": MAX_WORDS, **tagging,
        },
        "tagger": tagging,
        "made_with": _versions("spacy", "vaderSentiment"),
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
    labels = set(training.labels)
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
    if split.ids:
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

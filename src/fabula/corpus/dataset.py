"""The prepared corpus: the folder's layout, its reader, and the arrays that models train on.

    DIR/manifest.json            schema, sources, settings, counts, states, transition counts, each file's size and hash
    DIR/vocabulary.json          the words in the order of their ids
    DIR/train.tokens.npy         ids of all words, each sentence closed by <eos>
    DIR/train.sentence_offsets.npy   where each sentence begins in tokens, and the end
    DIR/train.story_offsets.npy      where each story begins among the sentences, and the end
    DIR/train.tags.npy           one state per sentence, -1 = none
    DIR/train.characters.npy     characters of each sentence as written, for bits per character
    DIR/train.ids.txt            one story id per line
    (and the same for valid and test, where they were given)

Reading needs numpy only, and the arrays are memory-mapped.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.states import StateSpace
from fabula.corpus.transitions import Transitions
from fabula.corpus.vocabulary import Vocabulary
from fabula.errors import UserError, file_errors

SCHEMA = 1
"""Raised whenever the layout or the meaning of a file changes. Version 2 was a folder in shards."""
MANIFEST = "manifest.json"
VOCABULARY = "vocabulary.json"
SPLITS = ("train", "valid", "test")
ARRAYS = ("tokens", "sentence_offsets", "story_offsets", "tags", "characters")


@dataclass(frozen=True)
class Stories:
    """Stories of mixed lengths as flat arrays; story i is sentences `story_offsets[i]` up to `story_offsets[i + 1]`."""

    tokens: NDArray[np.unsignedinteger[Any]]
    """Ids of all words with the `<eos>` of each sentence: uint16 where the vocabulary allows, else uint32."""
    sentence_offsets: NDArray[np.int64]
    """[sentences + 1], into `tokens`."""
    story_offsets: NDArray[np.int64]
    """[stories + 1], into the sentences."""
    tags: NDArray[np.signedinteger[Any]]
    """[sentences], -1 where there is none."""
    characters: NDArray[np.int32]
    """[sentences], characters of the sentence as written."""
    ids_source: Sequence[str] | Path = field(repr=False)
    """The stories' names, or the file that holds them."""

    def __len__(self) -> int:
        return len(self.story_offsets) - 1

    @cached_property
    def ids(self) -> list[str]:
        """The stories' names, read from their file when first asked for."""
        source = self.ids_source
        return source.read_text(encoding="utf-8").split("\n")[:-1] if isinstance(source, Path) else list(source)

    def sentences(self, story: int) -> list[NDArray[np.unsignedinteger[Any]]]:
        """The word ids of one story's sentences, without `<eos>`."""
        first, last = self.story_offsets[story], self.story_offsets[story + 1]
        bounds = self.sentence_offsets[first : last + 1]
        return [self.tokens[start : end - 1] for start, end in pairwise(bounds)]

    def story_tags(self, story: int) -> NDArray[np.signedinteger[Any]]:
        """The tags of one story's sentences, -1 where there is none."""
        return self.tags[self.story_offsets[story] : self.story_offsets[story + 1]]


def offsets(lengths: Sequence[int] | NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Where each of consecutive pieces begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def token_dtype(vocabulary_size: int) -> type[np.uint16] | type[np.uint32]:
    """The smallest unsigned type that holds every id."""
    return np.uint16 if vocabulary_size <= 2**16 else np.uint32


def tag_dtype(K: int) -> type[np.int8] | type[np.int16]:
    """The smallest signed type that holds every state and -1."""
    return np.int8 if K <= 2**7 else np.int16


@dataclass(frozen=True)
class Corpus:
    """A prepared folder, checked against its manifest when it is opened."""

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    vocabulary: Vocabulary = field(repr=False)
    labels: tuple[str, ...]
    """The values of the switching state, in the order of their ids."""
    transitions: Transitions = field(repr=False)

    @classmethod
    def open(cls, folder: str | Path) -> "Corpus":
        """The corpus of a prepared folder. A missing, cut or altered file raises a `UserError` that names it."""
        path = Path(folder)
        manifest = _read_manifest(path)
        for name, expected in manifest["files"].items():
            _check_file(path / name, expected)
        return cls(
            folder=path,
            manifest=manifest,
            vocabulary=Vocabulary.from_json((path / VOCABULARY).read_text(encoding="utf-8")),
            labels=tuple(manifest["labels"]),
            transitions=Transitions.from_record(manifest["transitions"]),
        )

    @property
    def tagger(self) -> dict[str, Any]:
        """The settings of the tagger that made the tags."""
        return dict(self.manifest["tagger"])

    @cached_property
    def states(self) -> StateSpace:
        """What the labels are the product of."""
        return StateSpace.from_record(self.manifest["states"])

    @property
    def hash(self) -> str:
        """A hex digest of the content: words, labels, arrays; the same for the same stories under another file name."""
        return content_hash(self.manifest["files"], self.labels)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that this corpus has."""
        return tuple(name for name in SPLITS if name in self.manifest["splits"])

    def split(self, name: str) -> Stories:
        """The stories of `train`, `valid` or `test`."""
        if name not in self.splits:
            raise UserError(f"{self.folder} has no split {name!r}, only {', '.join(self.splits)}", field="split")
        files = {array: self.folder / f"{name}.{array}.npy" for array in ARRAYS}
        arrays: dict[str, Any] = {array: np.load(file, mmap_mode="r") for array, file in files.items()}
        return Stories(**arrays, ids_source=self.folder / f"{name}.ids.txt")


def digest(content: bytes) -> str:
    """The hash that the manifest keeps of each file."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def file_entry(path: Path) -> dict[str, Any]:
    """Size and hash of a file, as the manifest keeps them; the content is not held in memory."""
    with path.open("rb") as stream:
        value = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    return {"bytes": path.stat().st_size, "blake2b": value}


def content_hash(files: dict[str, Any], labels: Sequence[str]) -> str:
    """One digest over the files' digests and the label set."""
    record = [sorted((name, entry["blake2b"]) for name, entry in files.items()), list(labels)]
    return digest(json.dumps(record, ensure_ascii=False).encode())


def seal(manifest: dict[str, Any]) -> str:
    """The digest of a manifest without its own `digest` entry, so that an edited manifest is noticed too."""
    unsealed = {key: value for key, value in manifest.items() if key != "digest"}
    return digest(json.dumps(unsealed, ensure_ascii=False, sort_keys=True).encode())


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        raise UserError(f"{folder} does not exist: prepare a corpus first (fabula prepare FILE --out {folder})")
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(f"{folder} is not a prepared corpus: it has no {MANIFEST}")
    try:
        with file_errors(f"cannot read {path}"):
            manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        schema = manifest["schema"]
    except ValueError as error:
        raise UserError(f"{path} is damaged: it is not valid JSON; prepare the corpus again") from error
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is not the manifest of a prepared corpus") from error
    if schema != SCHEMA:
        versions = f"has schema version {schema!r}, and this Fabula reads version {SCHEMA}"
        raise UserError(f"{path} {versions}; prepare the corpus again")
    if manifest.get("digest") != seal(manifest):
        raise UserError(f"{path} is damaged: it does not match its own digest; prepare the corpus again")
    return manifest


def _check_file(path: Path, expected: dict[str, Any]) -> None:
    """Compares the size first, because a wrong one says more."""
    with file_errors(f"cannot read {path}"):
        try:
            entry = file_entry(path)
        except FileNotFoundError as error:
            raise UserError(f"{path} is missing; prepare the corpus again") from error
    if entry["bytes"] != expected["bytes"]:
        sizes = f"{entry['bytes']:,} bytes instead of {expected['bytes']:,}"
        raise UserError(f"{path} is damaged: {sizes}; prepare the corpus again")
    if entry["blake2b"] != expected["blake2b"]:
        raise UserError(f"{path} is damaged: its content has changed; prepare the corpus again")

"""Story files to stories: ROCStories CSV, JSON lines, plain text.

A fault of a file (missing, empty, not UTF-8, a header without sentences) raises `UserError`; a fault of a row yields a
`Rejected` record in its place, and reading goes on.
"""

import csv
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import count, groupby, takewhile
from pathlib import Path
from typing import Any

from fabula.corpus.tokenize import normalise, split_paragraph
from fabula.errors import UserError, file_errors

MIN_SENTENCES, MAX_SENTENCES = 2, 64
MAX_WORDS = 200
"""Words of one sentence, counted at blanks on reading and again as tokens: a longer one is a broken row."""
MAX_CHARACTERS = 4_000
"""Characters of one sentence, at most: a longer one is a broken row, even if it has few spaces."""

Fields = dict[str, Any] | str
"""`sentences` and what else a row says (`tags`, `id`), or what is wrong with it."""
Row = tuple[int, Fields]
"""The line where a row begins, and its fields."""
_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".txt": "text", ".text": "text"}


@dataclass(frozen=True)
class Story:
    """One story as its file tells it, blanks normalised."""

    id: str
    sentences: list[str]
    tags: list[str | None] | None = None
    """The user's own label of each sentence, None where there is none."""
    file: str = ""
    """The name of its file, without the folder."""
    line: int = 0
    """Where it begins in its file, from 1; 0 for a story that no file holds."""


@dataclass(frozen=True)
class Rejected:
    """One story that was kept out: where it begins, and why."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}"


def read_stories(file: str | Path, *, paragraphs: bool = False) -> Iterator[Story | Rejected]:
    """The stories of one file in its order, a `Rejected` in the place of each row that holds none.

    `paragraphs` splits the sentences of plain text by rule instead of by line.
    """
    path = Path(file)
    chosen = _SUFFIXES.get(path.suffix.lower())
    if chosen is None:
        raise UserError(f"{path}: a story file ends in .csv, .jsonl or .txt", field="files")
    if paragraphs and chosen != "text":
        raise UserError(f"{path}: --paragraphs splits plain text, and this is {chosen}", field="paragraphs")
    try:
        with file_errors(f"cannot read {path}"), path.open("rb") as stream:
            text, empty = TextIOWrapper(stream, encoding="utf-8-sig", newline=""), True
            for line, fields in _READERS[chosen](path, iter(text), paragraphs):
                empty = False
                yield _story_or_reason(path, line, fields)
            if empty:
                raise UserError(f"{path} is empty: it holds no story")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, line {_first_bad_line(path)}: not valid UTF-8") from error


def _story_or_reason(path: Path, line: int, fields: Fields) -> Story | Rejected:
    if isinstance(fields, str):
        return Rejected(path.name, line, fields)
    identity = fields.get("id")
    name = normalise(str(identity)) if isinstance(identity, (str, int)) else ""
    name = name or f"{path.stem}:{line}"
    try:
        return check_story(fields.get("sentences") or [], fields.get("tags"), id=name, file=path.name, line=line)
    except ValueError as error:
        return Rejected(path.name, line, str(error))


def describe_source(path: Path) -> dict[str, Any]:
    """Name, size and hash of a source file; a missing one is said before any work is done."""
    try:
        with path.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            size = stream.tell()
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist", field="files") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}", field="files") from error
    if size == 0:
        raise UserError(f"{path} is empty: it holds no story", field="files")
    return {"name": path.name, "bytes": size, "sha256": sha256}


def check_story(sentences: list[object], tags: object = None, *, id: str, file: str = "", line: int = 0) -> Story:
    """A `Story` of raw sentences, or a ValueError whose text says what is wrong with them."""
    texts = []
    for number, sentence in enumerate(sentences, start=1):
        if not isinstance(sentence, str):
            raise ValueError(f"sentence {number} is not a text")
        text = normalise(sentence)
        if not text:
            raise ValueError(f"sentence {number} is empty")
        words = text.count(" ") + 1
        if words > MAX_WORDS:
            raise ValueError(f"sentence {number} has {words:,} words, more than {MAX_WORDS}")
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"sentence {number} has {len(text):,} characters, more than {MAX_CHARACTERS:,}")
        if not is_unicode(text):
            raise ValueError(f"sentence {number} holds half a character (a lone surrogate)")
        texts.append(text)
    if len(texts) < MIN_SENTENCES:
        raise ValueError("no sentence" if not texts else "one sentence only")
    if len(texts) > MAX_SENTENCES:
        raise ValueError(f"{len(texts):,} sentences, more than {MAX_SENTENCES}")
    name = normalise(id).encode("utf-8", "replace").decode()  # half a character becomes a question mark
    labels = None if tags is None else _check_tags(tags, len(texts))
    return Story(name, texts, labels, file, line)


def _check_tags(tags: object, sentences: int) -> list[str | None]:
    if not isinstance(tags, list) or not all(tag is None or isinstance(tag, str) for tag in tags):
        raise ValueError("its tags are not a list of labels and nulls")
    if len(tags) != sentences:
        raise ValueError(f"{len(tags)} tags for {sentences} sentences")
    labels = [None if tag is None else normalise(tag) for tag in tags]
    if any(label is not None and (not label or not is_unicode(label)) for label in labels):
        raise ValueError("one of its tags is blank")
    return labels


def is_unicode(text: str) -> bool:
    """False if the text has a lone surrogate, which JSON can escape and UTF-8 cannot encode."""
    return text.encode("utf-8", "ignore").decode() == text


def _first_bad_line(path: Path) -> int:
    """The first line that is not UTF-8; found by a second reading, because the first one decodes in blocks."""
    with path.open("rb") as stream:
        lines = enumerate(stream, start=1)
        return next((number for number, line in lines if line.decode("utf-8", "ignore").encode() != line), 1)


def _read_csv(path: Path, lines: Iterator[str], paragraphs: bool) -> Iterator[Row]:
    """ROCStories: storyid, storytitle, sentence1 …; of two columns of one name the first is read."""
    csv.field_size_limit(2**31 - 1)  # so that an overlong field rejects its row only
    reader = csv.reader(lines, strict=True)
    header: list[str] = []
    columns: list[str] = []
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                fault = "a quotation mark opens a field here and is never closed"
                raise UserError(f"{path}, line {line}: {fault}") from error
            yield line, f"its quotation marks do not pair up ({error})"
            continue
        if not any(field.strip() for field in row):
            continue  # a blank line
        if not header:
            header = [name.strip().lower() for name in row]
            columns = list(takewhile(header.__contains__, (f"sentence{number}" for number in count(1))))
            if not columns:
                shown = ", ".join(name.strip() for name in row[:8])[:80]
                raise UserError(f"{path}: its header has no sentence columns (sentence1, sentence2, …): {shown}")
        elif len(row) != len(header):
            yield line, f"{len(row)} fields where the header has {len(header)}"
        else:
            fields = dict(reversed(list(zip(header, row, strict=True))))
            sentences = [fields[name] for name in columns]
            yield line, {"sentences": sentences, "id": fields.get("storyid")}


def _read_jsonl(path: Path, lines: Iterator[str], paragraphs: bool) -> Iterator[Row]:
    """One object per line: {"sentences": […], "tags"?: [label|null, …], "id"?}; other keys are ignored."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            yield number, "not valid JSON"
        except ValueError as error:  # a number of too many digits
            yield number, str(error)
        else:
            if not isinstance(record, dict):
                yield number, 'not a JSON object like {"sentences": ["…", "…"]}'
            else:
                yield number, record if isinstance(record.get("sentences"), list) else 'no list "sentences"'


def _read_text(path: Path, lines: Iterator[str], paragraphs: bool) -> Iterator[Row]:
    """A sentence per line, a blank line between stories; with `paragraphs`, the block's sentences are split by rule."""
    numbered = enumerate(lines, start=1)
    for blank, group in groupby(numbered, key=lambda pair: not pair[1].strip()):
        if not blank:
            block = list(group)
            texts = [line for _, line in block]
            yield block[0][0], {"sentences": split_paragraph(" ".join(texts)) if paragraphs else texts}


_READERS: dict[str, Callable[[Path, Iterator[str], bool], Iterator[Row]]] = {
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "text": _read_text,
}

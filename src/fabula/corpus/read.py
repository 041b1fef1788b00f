"""Story files to stories: ROCStories CSV, Story Cloze CSV, JSON lines, plain text.

A fault of a file (missing, empty, not UTF-8, a header without sentences) raises `UserError`; a fault of a row yields a
`Rejected` record in its place, and reading goes on.
"""

import csv
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from fabula.corpus.tokenize import normalise, split_paragraph
from fabula.errors import UserError

MIN_SENTENCES, MAX_SENTENCES = 2, 64
MAX_WORDS = 200
"""Words of one sentence, counted at blanks on reading and again as tokens: a longer one is a broken row."""
MAX_CHARACTERS = 4_000
"""Of one sentence: a page of text without a blank is no sentence either."""

FORMATS = ("csv", "jsonl", "text")
_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".txt": "text", ".text": "text"}


@dataclass(frozen=True)
class Story:
    """One story as its file tells it, blanks normalised."""

    id: str
    sentences: list[str]
    title: str | None = None
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


def read_stories(
    file: str | Path,
    *,
    paragraphs: bool = False,
    format: str | None = None,
    watch: Callable[[int], object] | None = None,
) -> Iterator[Story | Rejected]:
    """The stories of one file in its order, a `Rejected` in the place of each row that holds none.

    `format` is one of `FORMATS`, taken from the file's name where it is None. `paragraphs` splits the sentences of
    plain text by rule instead of by line. `watch` is told how many more bytes have been read, every now and then.
    """
    path = Path(file)
    chosen = format if format is not None else _SUFFIXES.get(path.suffix.lower())
    if chosen not in FORMATS:
        raise UserError(
            f"{path}: a story file ends in .csv, .jsonl or .txt; otherwise name its format with --format",
            field="format",
        )
    if paragraphs and chosen != "text":
        raise UserError(f"{path}: --paragraphs splits plain text, and this is {chosen}", field="paragraphs")
    try:
        with path.open("rb") as stream, TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            lines = _watched(text, stream.tell, watch)
            found = False
            for item in _READERS[chosen](path, lines, paragraphs):
                found = True
                yield item
            if not found:
                raise UserError(f"{path} is empty: it holds no story")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, line {_first_bad_line(path)}: not valid UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


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


def check_story(
    sentences: list[object], tags: object = None, *, id: str, title: object = None, file: str = "", line: int = 0
) -> Story:
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
        if not _is_unicode(text):
            raise ValueError(f"sentence {number} holds half a character (a lone surrogate)")
        texts.append(text)
    if len(texts) < MIN_SENTENCES:
        raise ValueError("no sentence" if not texts else "one sentence only")
    if len(texts) > MAX_SENTENCES:
        raise ValueError(f"{len(texts):,} sentences, more than {MAX_SENTENCES}")
    labels: list[str | None] | None = None
    if tags is not None:
        if not isinstance(tags, list) or not all(tag is None or isinstance(tag, str) for tag in tags):
            raise ValueError("its tags are not a list of labels and nulls")
        if len(tags) != len(texts):
            raise ValueError(f"{len(tags)} tags for {len(texts)} sentences")
        labels = [None if tag is None else normalise(tag) for tag in tags]
        if any(label is not None and (not label or not _is_unicode(label)) for label in labels):
            raise ValueError("one of its tags is blank")
    name = normalise(id)
    return Story(
        id=name if _is_unicode(name) else name.encode("utf-8", "replace").decode(),
        sentences=texts,
        title=(normalise(title) or None) if isinstance(title, str) else None,
        tags=labels,
        file=file,
        line=line,
    )


def _is_unicode(text: str) -> bool:
    """JSON can spell half of a surrogate pair, which no file can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _watched(text: TextIOWrapper, tell: Callable[[], int], watch: Callable[[int], object] | None) -> Iterator[str]:
    """The lines of a file; every thousand of them, `watch` is told of the bytes read since."""
    told = 0
    for number, line in enumerate(text):
        if watch is not None and number % 1000 == 0:
            watch(tell() - told)
            told = tell()
        yield line
    if watch is not None:
        watch(tell() - told)


def _first_bad_line(path: Path) -> int:
    """The first line that is not UTF-8; found by a second reading, because the first one decodes in blocks."""
    with path.open("rb") as stream:
        return next((number for number, line in enumerate(stream, start=1) if not _is_utf8(line)), 1)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# --- CSV -------------------------------------------------------------------------------------------------------------

_CLOZE_ENDINGS = ("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2")
_CLOZE_ANSWER = "AnswerRightEnding"


def _read_csv(path: Path, lines: Iterator[str], paragraphs: bool) -> Iterator[Story | Rejected]:
    """ROCStories (storyid, storytitle, sentence1 …) or Story Cloze (InputSentence1 …, two endings, the right one)."""
    previous_limit = csv.field_size_limit(
        min(sys.maxsize, 2**31 - 1)
    )  # a 10,000-word field is a row's fault, not csv's
    try:
        yield from _csv_rows(path, lines)
    finally:
        csv.field_size_limit(previous_limit)


def _csv_rows(path: Path, lines: Iterator[str]) -> Iterator[Story | Rejected]:
    reader = csv.reader(lines, strict=True)
    header: list[str] | None = None
    columns: _Columns | None = None
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise UserError(
                    f"{path}, line {line}: a quotation mark opens a field here and is never closed"
                ) from error
            yield Rejected(path.name, line, f"its quotation marks do not pair up ({error})")
            continue
        if not any(field.strip() for field in row):
            continue  # a blank line
        if header is None:
            header = [name.strip() for name in row]
            columns = _Columns.of_header(path, header)
            continue
        assert columns is not None
        try:
            if len(row) != len(header):
                raise ValueError(f"{len(row)} fields where the header has {len(header)}")
            yield columns.story(row, path, line)
        except ValueError as error:
            yield Rejected(path.name, line, str(error))


@dataclass(frozen=True)
class _Columns:
    """Where a CSV file keeps what."""

    sentences: tuple[int, ...]
    endings: tuple[int, int] | None
    answer: int | None
    id: int | None
    title: int | None

    @classmethod
    def of_header(cls, path: Path, header: list[str]) -> "_Columns":
        lower = {name.lower(): position for position, name in reversed(list(enumerate(header)))}

        def numbered(stem: str) -> tuple[int, ...]:
            found: list[int] = []
            while f"{stem}{len(found) + 1}" in lower:
                found.append(lower[f"{stem}{len(found) + 1}"])
            return tuple(found)

        context = numbered("inputsentence")
        if context:
            endings = [lower.get(name.lower()) for name in _CLOZE_ENDINGS]
            answer = lower.get(_CLOZE_ANSWER.lower())
            if endings[0] is None or endings[1] is None or answer is None:
                raise UserError(
                    f"{path}: a Story Cloze file needs the columns {', '.join(_CLOZE_ENDINGS)} and {_CLOZE_ANSWER}"
                )
            return cls(context, (endings[0], endings[1]), answer, lower.get("inputstoryid"), None)
        sentences = numbered("sentence")
        if not sentences:
            shown = ", ".join(header[:8])[:80]
            raise UserError(
                f"{path}: its header has no sentence columns (sentence1, sentence2, … or InputSentence1, …): {shown}"
            )
        return cls(sentences, None, None, lower.get("storyid"), lower.get("storytitle"))

    def story(self, row: list[str], path: Path, line: int) -> Story:
        sentences: list[object] = [row[position] for position in self.sentences]
        if self.endings is not None and self.answer is not None:
            answer = row[self.answer].strip()
            if answer not in ("1", "2"):
                raise ValueError(f"{_CLOZE_ANSWER} is {answer[:20]!r}, neither 1 nor 2")
            sentences.append(row[self.endings[int(answer) - 1]])
        identity = row[self.id].strip() if self.id is not None else ""
        title = row[self.title] if self.title is not None else None
        return check_story(sentences, id=identity or f"{path.stem}:{line}", title=title, file=path.name, line=line)


# --- JSON lines and plain text ---------------------------------------------------------------------------------------


def _read_jsonl(path: Path, lines: Iterator[str], paragraphs: bool) -> Iterator[Story | Rejected]:
    """One object per line: {"sentences": […], "title"?, "tags"?: [label|null, …], "id"?}; other keys are ignored."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _json_story(line, path, number)
        except (ValueError, RecursionError) as error:
            reason = "not valid JSON" if isinstance(error, (json.JSONDecodeError, RecursionError)) else str(error)
            yield Rejected(path.name, number, reason)


def _json_story(line: str, path: Path, number: int) -> Story:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError('not a JSON object like {"sentences": ["…", "…"]}')
    sentences = record.get("sentences")
    if not isinstance(sentences, list):
        raise ValueError('no list "sentences"')
    identity = record.get("id")
    name = normalise(str(identity)) if isinstance(identity, (str, int)) else ""
    return check_story(
        sentences,
        record.get("tags"),
        id=name or f"{path.stem}:{number}",
        title=record.get("title"),
        file=path.name,
        line=number,
    )


def _read_text(path: Path, lines: Iterator[str], paragraphs: bool) -> Iterator[Story | Rejected]:
    """A sentence per line, a blank line between stories; with `paragraphs`, the block's sentences are split by rule."""

    def story(block: list[str], start: int) -> Story | Rejected:
        sentences: list[object] = list(split_paragraph(" ".join(block)) if paragraphs else block)
        try:
            return check_story(sentences, id=f"{path.stem}:{start}", file=path.name, line=start)
        except ValueError as error:
            return Rejected(path.name, start, str(error))

    block: list[str] = []
    number = 0
    for number, line in enumerate(lines, start=1):
        if line.strip():
            block.append(line)
        elif block:
            yield story(block, number - len(block))
            block = []
    if block:
        yield story(block, number + 1 - len(block))


_READERS: dict[str, Callable[[Path, Iterator[str], bool], Iterator[Story | Rejected]]] = {
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "text": _read_text,
}

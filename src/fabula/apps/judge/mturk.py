"""A study in the CSV form of Amazon Mechanical Turk.

The file of HITs has a row for each item: `item`, `left_1` … and `right_1` …, names for a HIT's layout to use. A file of
results has a row for each answer: WorkerId, WorkTimeInSeconds, what the HIT showed as Input.item, Input.left_1 …, and
what the worker answered as Answer.left_2 … Answer.right_2 … (0 to 3) and Answer.choice (left, right or tie).

Our own results carry two columns more, Fabula.seconds and Fabula.updated, because Mechanical Turk counts whole seconds
and knows no corrections: with them, what is exported and imported is exactly what it was.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from fabula.apps.judge.judgement import Judgement, check_code, check_ratings, check_seconds
from fabula.apps.judge.study import Item
from fabula.errors import UserError

SIDES = ("left", "right")
REJECTED = "Rejected"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
ZONES = {"UTC": 0, "GMT": 0, "PST": -8, "PDT": -7}
"""Mechanical Turk writes times of the American west coast."""


def hits(items: Sequence[Item]) -> str:
    """The file of HITs to publish: one for each item, `annotators` assignments each."""
    names, rows = ["item", *_texts(items)], [[str(item.number), *_sentences(item, items)] for item in items]
    return _csv(names, rows)


def results(items: Sequence[Item], judgements: Iterable[Judgement]) -> str:
    """The file of results."""
    by_pair = {item.pair.id: item for item in items}
    fixed = ["HITId", "AssignmentId", "WorkerId", "AssignmentStatus", "AcceptTime", "SubmitTime", "WorkTimeInSeconds"]
    header = [
        *fixed,
        *(f"Input.{name}" for name in ("item", *_texts(items))),
        *(f"Answer.{name}" for name in (*_rated(items), "choice")),
        "Fabula.seconds",
        "Fabula.updated",
    ]
    rows = []
    for one in judgements:
        item = by_pair[one.pair]
        given: dict[str, str] = {}
        for side, story in zip(SIDES, (1, 0) if item.swapped else (0, 1), strict=True):
            given |= {f"{side}_{place}": str(rating) for place, rating in enumerate(one.ratings[story], start=2)}
        choice = "tie" if one.better is None else SIDES[int(one.better != int(item.swapped))]
        rows.append(
            [
                f"fabula-{item.number}",
                f"fabula-{item.number}-{one.annotator}",
                one.annotator,
                "Submitted",
                _written(one.created - round(one.seconds)),
                _written(one.created),
                str(round(one.seconds)),
                str(item.number),
                *_sentences(item, items),
                *(given.get(name, "") for name in _rated(items)),
                choice,
                repr(one.seconds),
                _written(one.updated),
            ]
        )
    return _csv(header, rows)


def read_results(file: str | Path, items: Sequence[Item]) -> list[Judgement]:
    """The judgements of a file of results, each of the study's own item; rejected assignments are left out."""
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    found: list[Judgement] = []
    try:
        for name in ("WorkerId", "WorkTimeInSeconds", "SubmitTime", "Input.item", "Answer.choice"):
            if name not in (reader.fieldnames or ()):
                raise UserError(f"{path} is no file of results: it has no column {name}")
        for row in reader:
            if None in row or None in row.values():
                raise ValueError("it has not as many fields as the header")
            if row.get("AssignmentStatus") != REJECTED:
                found.append(_judgement(row, items))
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}") from error
    except (ValueError, UserError) as error:
        if isinstance(error, UserError) and not found and reader.line_num <= 1:
            raise
        raise UserError(f"{path}, line {reader.line_num}: {error}") from error
    return found


def _judgement(row: dict[str, str], items: Sequence[Item]) -> Judgement:
    number = _whole(row["Input.item"], "Input.item")
    if not 1 <= number <= len(items):
        raise ValueError(f"the study has no item {number}")
    item = items[number - 1]
    for name, sentence in zip(_texts(items), _sentences(item, items), strict=True):
        if row.get(f"Input.{name}", "") != sentence:
            raise ValueError(f"Input.{name} is not what item {number} of this study shows; is it another study's file?")
    sides = [
        [_whole(row.get(f"Answer.{side}_{place}", ""), f"Answer.{side}_{place}") for place in range(2, len(story) + 1)]
        for side, story in zip(SIDES, item.sides(), strict=True)
    ]
    choice = row["Answer.choice"]
    if choice not in (*SIDES, "tie"):
        raise ValueError(f"Answer.choice is left, right or tie, not {choice[:40]!r}")
    seconds = row.get("Fabula.seconds") or row["WorkTimeInSeconds"]
    try:
        shown = check_seconds(float(seconds))
    except ValueError as error:
        raise ValueError(f"{seconds[:40]!r} is no time in seconds") from error
    created = _read(row["SubmitTime"])
    return Judgement(
        id=0,
        pair=item.pair.id,
        annotator=check_code(row["WorkerId"]),
        ratings=check_ratings(item.pair, (sides[1], sides[0]) if item.swapped else sides),
        better=None if choice == "tie" else int((choice == "right") != item.swapped),
        seconds=shown,
        created=created,
        updated=_read(row["Fabula.updated"]) if row.get("Fabula.updated") else created,
    )


def _whole(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ValueError(f"{name} is not a whole number: {text[:40]!r}")
    return int(text)


def _texts(items: Sequence[Item]) -> list[str]:
    """The columns of sentences, as many as the longest story has."""
    return [f"{side}_{place}" for side in SIDES for place in range(1, _longest(items) + 1)]


def _rated(items: Sequence[Item]) -> list[str]:
    return [name for name in _texts(items) if not name.endswith("_1")]


def _sentences(item: Item, items: Sequence[Item]) -> list[str]:
    """What both sides show, blank where a story is shorter than the longest."""
    longest = _longest(items)
    return [text for story in item.sides() for text in (*story, *[""] * (longest - len(story)))]


def _longest(items: Sequence[Item]) -> int:
    return max(len(story) for item in items for story in item.pair.stories)


def _csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n", quoting=csv.QUOTE_ALL)
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def _written(seconds: int) -> str:
    """`Tue Nov 03 10:11:12 UTC 2020`, whatever the language of the machine."""
    at = datetime.fromtimestamp(seconds, UTC)
    return f"{DAYS[at.weekday()]} {MONTHS[at.month - 1]} {at:%d %H:%M:%S} UTC {at:%Y}"


def _read(text: str) -> int:
    """Seconds since 1970 of a time as Mechanical Turk writes it."""
    try:
        _, month, day, clock, zone, year = text.split()
        hour, minute, second = (int(part) for part in clock.split(":"))
        at = datetime(int(year), MONTHS.index(month) + 1, int(day), hour, minute, second, tzinfo=UTC)
        return int(at.timestamp()) - 3600 * ZONES[zone]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{text[:40]!r} is no time like 'Tue Nov 03 10:11:12 UTC 2020'") from error

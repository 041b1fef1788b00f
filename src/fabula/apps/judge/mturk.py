"""A study in the CSV form of Amazon Mechanical Turk.

The file of HITs has a row for each item: `item`, `left_1` … and `right_1` …, names for a HIT's layout to use. A file of
results has a row for each answer: WorkerId, WorkTimeInSeconds, what the HIT showed as Input.item, Input.left_1 …, and
what the worker answered as Answer.left_2 … Answer.right_2 … (0 to 3) and Answer.choice (left, right or tie).

Our exported results have two more columns, Fabula.seconds and Fabula.updated. Mechanical Turk counts whole seconds and
has no corrections; with these columns an export is imported exactly.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from email.utils import mktime_tz, parsedate_tz
from pathlib import Path

from fabula.apps.judge.judgement import Judgement, check_code, check_ratings, check_seconds
from fabula.apps.judge.pairs import read_text
from fabula.apps.judge.study import Item
from fabula.errors import UserError

SIDES = ("left", "right")
REQUIRED = ("WorkerId", "WorkTimeInSeconds", "SubmitTime", "Input.item", "Answer.choice")
ZONES = {"UTC", "GMT", "PST", "PDT"}
"""Mechanical Turk writes times of the American west coast."""


def hits(items: Sequence[Item]) -> str:
    """The file of HITs to publish: one for each item, `annotators` assignments each."""
    return _csv(["item", *_columns(items)], ({"item": str(item.number), **_shown(item)} for item in items))


def results(items: Sequence[Item], judgements: Iterable[Judgement]) -> str:
    """The file of results."""
    item_of = {item.pair.id: item for item in items}
    columns = _columns(items)
    header = [
        *("HITId", "AssignmentId", "WorkerId", "AssignmentStatus", "AcceptTime", "SubmitTime", "WorkTimeInSeconds"),
        *(f"Input.{name}" for name in ("item", *columns)),
        *(f"Answer.{name}" for name in columns if not name.endswith("_1")),
        *("Answer.choice", "Fabula.seconds", "Fabula.updated"),
    ]
    return _csv(header, (_result(one, item_of[one.pair]) for one in judgements))


def _result(one: Judgement, item: Item) -> dict[str, str]:
    ratings = zip(SIDES, one.ratings[::-1] if item.swapped else one.ratings, strict=True)
    return {
        "HITId": f"fabula-{item.number}",
        "AssignmentId": f"fabula-{item.number}-{one.annotator}",
        "WorkerId": one.annotator,
        "AssignmentStatus": "Submitted",
        "AcceptTime": _format_time(one.created - round(one.seconds)),
        "SubmitTime": _format_time(one.created),
        "WorkTimeInSeconds": str(round(one.seconds)),
        "Input.item": str(item.number),
        **{f"Input.{name}": text for name, text in _shown(item).items()},
        **{f"Answer.{side}_{n}": str(rating) for side, given in ratings for n, rating in enumerate(given, start=2)},
        "Answer.choice": item.choice(one.better),
        "Fabula.seconds": repr(one.seconds),
        "Fabula.updated": _format_time(one.updated),
    }


def read_results(file: str | Path, items: Sequence[Item]) -> list[Judgement]:
    """The judgements of a file of results about this study's items; rejected assignments are left out."""
    path = Path(file)
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    judgements: list[Judgement] = []
    try:
        header = reader.fieldnames or ()
        for name in REQUIRED:
            if name not in header:
                raise UserError(f"{path} is no file of results: it has no column {name}")
        for row in reader:
            try:
                if None in row or None in row.values():
                    raise ValueError("it has not as many fields as the header")
                if row.get("AssignmentStatus") != "Rejected":
                    judgements.append(_judgement(row, items))
            except (ValueError, UserError) as error:
                raise UserError(f"{path}, line {reader.line_num}: {error}") from error
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}") from error
    return judgements


def _judgement(row: dict[str, str], items: Sequence[Item]) -> Judgement:
    number = _whole_number(row, "Input.item")
    if not 1 <= number <= len(items):
        raise ValueError(f"the study has no item {number}")
    item = items[number - 1]
    shown = _shown(item)
    for name in _columns(items):
        if row.get(f"Input.{name}", "") != shown.get(name, ""):
            raise ValueError(f"Input.{name} is not what item {number} of this study shows; is it another study's file?")
    sides = [
        [_whole_number(row, f"Answer.{side}_{place}") for place in range(2, len(story) + 1)]
        for side, story in zip(SIDES, item.sides(), strict=True)
    ]
    choice = row["Answer.choice"]
    if choice not in (*SIDES, "tie"):
        raise ValueError(f"Answer.choice is left, right or tie, not {choice[:40]!r}")
    seconds = row.get("Fabula.seconds") or row["WorkTimeInSeconds"]
    try:
        duration = float(seconds)
    except ValueError as error:
        raise ValueError(f"{seconds[:40]!r} is no time in seconds") from error
    code, ratings = check_code(row["WorkerId"]), check_ratings(item.pair, sides[::-1] if item.swapped else sides)
    created, updated = row["SubmitTime"], row.get("Fabula.updated") or row["SubmitTime"]
    times = check_seconds(duration), _parse_time(created), _parse_time(updated)
    return Judgement(0, item.pair.id, code, ratings, item.better(choice), *times)


def _whole_number(row: dict[str, str], name: str) -> int:
    text = row.get(name, "")
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ValueError(f"{name} is not a whole number: {text[:40]!r}")
    return int(text)


def _columns(items: Sequence[Item]) -> list[str]:
    """The columns of sentences, as many as the longest story has."""
    longest = max(len(story) for item in items for story in item.pair.stories)
    return [f"{side}_{place}" for side in SIDES for place in range(1, longest + 1)]


def _shown(item: Item) -> dict[str, str]:
    sides = zip(SIDES, item.sides(), strict=True)
    return {f"{side}_{place}": text for side, story in sides for place, text in enumerate(story, start=1)}


def _csv(header: Sequence[str], rows: Iterable[dict[str, str]]) -> str:
    """A table; a cell is blank where a story is shorter than the longest."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, header, lineterminator="\r\n", quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _format_time(seconds: int) -> str:
    """`Tue Nov 03 10:11:12 UTC 2020`."""
    return f"{datetime.fromtimestamp(seconds, UTC):%a %b %d %H:%M:%S UTC %Y}"


def _parse_time(text: str) -> int:
    """Seconds since 1970 of a time as Mechanical Turk writes it."""
    parsed = parsedate_tz(text)
    if parsed is None or not ZONES & set(text.split()):
        raise ValueError(f"{text[:40]!r} is no time like 'Tue Nov 03 10:11:12 UTC 2020'")
    return int(mktime_tz(parsed))

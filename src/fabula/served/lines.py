"""The lines of an answer: read strictly as JSON, else repaired from numbered or plain lines; never made up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fabula.corpus.tokenize import normalise, split_paragraph
from fabula.sampling.text import close_quotes

NUMBERED = re.compile(r"^\W*(?:line\s*)?(\d{1,2})\s*[.):-]+\s*(\S.*)$", re.IGNORECASE)
DECLINES = re.compile(r"\W*(I('m| am) (sorry|unable|not able)|sorry|as an AI|I (cannot|can't|can’t) )", re.IGNORECASE)
LABEL = re.compile(r"\s*[(\[](?:positive|negative|neutral|mood|emotion)\b[^)\]]*[)\]]\s*$", re.IGNORECASE)


def read_lines(text: str, numbers: Sequence[int], given: Iterable[str | None]) -> dict[int, str]:
    """The lines asked for that an answer has, by number; none where it has too many or too few to tell them apart."""
    listed = _from_json(text, numbers)
    if not listed:
        rows = [row.strip() for row in text.splitlines() if row.strip() and "```" not in row]
        matches = [match for row in rows if (match := NUMBERED.match(row))]
        listed = {int(match[1]): match[2] for match in reversed(matches)}
        if not matches:
            rows = [row for row in rows if not (copies(row, given) or row.endswith(":") or DECLINES.match(row))]
            rows = split_paragraph(rows[0]) if len(rows) == 1 < len(numbers) else rows
            listed = dict(zip(numbers, rows, strict=True)) if len(rows) == len(numbers) else {}
    cleaned = {number: clean(line) for number, line in listed.items() if number in numbers}
    return {number: line for number, line in cleaned.items() if any(letter.isalpha() for letter in line)}


def _from_json(text: str, numbers: Sequence[int]) -> dict[int, str]:
    """`{"2": "...", "3": "..."}`, `{"lines": [...]}` or `[...]` anywhere in a text."""
    for start, end in ((text.find(opens), text.rfind(closes)) for opens, closes in ("{}", "[]")):
        try:
            content: Any = json.loads(text[start : end + 1], strict=False) if 0 <= start < end else None
        except (ValueError, RecursionError):
            continue
        if isinstance(content, Mapping) and len(content) == 1 and not isinstance(next(iter(content.values())), str):
            (content,) = content.values()
        if isinstance(content, list) and len(content) == len(numbers):
            content = dict(zip(numbers, content, strict=True))
        if isinstance(content, Mapping):
            pairs = [(re.search(r"\d+", str(key)), line) for key, line in content.items()]
            return {int(key[0]): line for key, line in pairs if key and isinstance(line, str)}
    return {}


def clean(line: str) -> str:
    """One sentence as it stands in a story: no marks of a list, no label, no quotation marks around the whole."""
    text = normalise(re.sub(r"\*\*|__", "", line)).strip()
    text = LABEL.sub("", re.sub(r"^(?:[-*•]\s+|\d{1,2}[.)]\s+)", "", text))
    if len(text) > 1 and text[0] in "\"“'" and text[-1] in "\"”'" and not re.search('["“”]', text[1:-1]):
        text = text[1:-1].strip()
    text = close_quotes(text)
    return f"{text}." if text and text[-1].isalnum() else text


def fitting(text: str, words: int) -> str | None:
    """The line, cut to its first sentences where it has too many words; None where even the first is too long."""
    kept = split_paragraph(text)
    while len(" ".join(kept).split()) > words:
        kept.pop()
    return " ".join(kept) or None


def with_opening(text: str, opening: str, *, force: bool) -> str | None:
    """The line with its opening words as they were typed; one without them is None, or with `force` put behind them."""
    pattern = r"\s+".join(re.escape(word) for word in opening.split()) + r"(?!\w)"
    match = re.match(pattern, text, re.IGNORECASE) if opening else None
    if match or not opening:
        return opening + text[match.end() :] if match else text
    name = re.match(r"I\b|[A-Z]\w*[A-Z]", text)
    return f"{opening} {text if name else text[:1].lower() + text[1:]}" if force else None


def copies(text: str, others: Iterable[str | None]) -> bool:
    """Whether a line says word for word what another one says."""
    words = re.findall(r"\w+", text.lower())
    return any(words == re.findall(r"\w+", other.lower()) for other in others if other)

"""What a language model is asked, tags in plain words, and what is read from its answer: repaired, never made up."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fabula.corpus.states import Factor, StateSpace
from fabula.corpus.taggers.protocol import meanings_of
from fabula.corpus.tokenize import normalise, split_paragraph
from fabula.sampling.context import Context
from fabula.sampling.text import close_quotes

PROMPT = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
BEFORE, AFTER = 24, 12  # lines that are shown before the first line asked for and after the last
STRING = r'"(?:[^"\\]|\\.)*"'
NUMBERED = re.compile(r"^\W*(?:line\s*)?(\d{1,2})\s*[.):-]+\s*(\S.*)$", re.IGNORECASE)
DECLINES = re.compile(r"\W*(I('m| am) (sorry|unable|not able)|sorry|as an AI|I (cannot|can't|can’t) )", re.IGNORECASE)
LABEL = re.compile(r"\s*[(\[](?:positive|negative|neutral|mood|emotion)\b[^)\]]*[)\]]\s*$", re.IGNORECASE)


class Wish(NamedTuple):
    """What is wanted of one line: of every factor its value, -1 where it is free."""

    values: tuple[int, ...]  # those of the arc, and those that were drawn from p(S)
    fixed: tuple[int, ...]  # those of the arc alone, which the taggers check
    opening: str = ""


def in_words(factor: Factor, value: int) -> str:
    """One label as a writer understands it."""
    label = factor.labels[value]
    if factor.name == "verb" and label != "none":
        return f"its main verb is one of these: {meanings_of(factor).get(label, label)}"
    by_name = f"it shows no {factor.name}" if label == "none" else f"{factor.name}: {label}"
    return str(PROMPT["labels"].get(label, by_name))


def describe_line(number: int, wish: Wish, states: StateSpace) -> str:
    """`Line 2: it begins with ...; negative in mood ...`, the tags of the arc before those that were drawn."""
    rows = list(zip(states.factors, wish.values, wish.fixed, strict=True))
    drawn = "; ".join(in_words(f, v) for f, v, fixed in rows if v >= 0 > fixed)
    parts = [f"it begins with exactly these words: {wish.opening}"] * bool(wish.opening)
    parts += [in_words(f, v) for f, _, v in rows if v >= 0]
    parts += [f"preferably, where it suits the story, {drawn}"] * bool(drawn)
    return f"Line {number}: {'; '.join(parts)}." if parts else f"Line {number}."


def messages(
    texts: Sequence[str | None], numbers: Sequence[int], wishes: Mapping[int, Wish], states: StateSpace,
    context: Context, words: int, complaint: str = "", form: str = "json",
) -> list[dict[str, str]]:  # fmt: skip
    """The request for the lines of these numbers, from 1; `complaint` says what was wrong with earlier answers.

    The answer is to be JSON, one plain `sentence`, or a `continuation` of the prompt.
    """
    first, last = max(1, numbers[0] - BEFORE), min(len(texts), numbers[-1] + AFTER)
    blanks = {i: "write this line" if i in numbers else "written later" for i in range(first, last + 1)}
    shown = [f"{i}. {texts[i - 1] or f'______ ({blank})'}" for i, blank in blanks.items()]
    about = ", ".join(f"{p.name} ({p.pronoun})" if p.pronoun else p.name for p in context.people)
    parts = [f"People in the story: {about}."] * bool(about) + [f"What holds: {context.line}"] * bool(context.line)
    voice = [PROMPT["voices"][value] for value in context.voice if value]
    parts += [" ".join(["How it is told:", *voice])] if voice else []
    parts += [f"The story has {len(texts)} lines:", *["..."] * (first > 1), *shown, *["..."] * (last < len(texts)), ""]
    parts += ["The lines to write:", *(describe_line(number, wishes[number], states) for number in numbers), ""]
    parts += [complaint, ""] * bool(complaint)
    system = PROMPT["system"].format(words=words)
    if form == "continuation":
        begun = f"{numbers[0]}. {wishes[numbers[0]].opening}".strip()
        return [{"role": "user", "content": "\n".join([system, "", *parts, "The written lines:", begun])}]
    parts.append(PROMPT[form].format(example="{" + ", ".join(f'"{number}": "..."' for number in numbers) + "}"))
    return [{"role": "system", "content": system}, {"role": "user", "content": "\n".join(parts)}]


def schema(numbers: Sequence[int]) -> dict[str, Any]:
    """The JSON schema of an answer."""
    lines = {str(number): {"type": "string"} for number in numbers}
    return {"type": "object", "properties": lines, "required": [*lines], "additionalProperties": False}


def ask_for_words(lines: Sequence[str], line: str, word: str) -> list[dict[str, str]]:
    """The request for other words than the one in brackets."""
    system = PROMPT["words"].format(example='{"words": ["...", "..."]}')
    shown = "\n".join([*lines[-BEFORE:], line, "", f"Other words for [{word}]:"])
    return [{"role": "system", "content": system}, {"role": "user", "content": shown}]


def read_words(text: str) -> list[str]:
    """The words of an answer: of a JSON list, else of rows or between commas; whole sentences are none."""
    listed = re.findall(STRING, text[text.find("[") :]) if "[" in text else re.split(r"[,\n]", text)
    words = (re.sub(r"^\W*(?:\d+\W+)?|[^\w']+$", "", entry) for entry in listed)
    return [word for word in words if word and len(word.split()) <= 3]


def read_lines(text: str, numbers: Sequence[int], given: Iterable[str | None]) -> dict[int, str]:
    """The lines asked for that an answer has, by number; none where it has too many or too few to tell them apart."""
    listed = _from_json(text, numbers)
    if not listed:
        rows = [row.strip() for row in text.splitlines() if row.strip() and "```" not in row]
        matches = [match for row in rows if (match := NUMBERED.match(row))]
        listed = {int(match[1]): match[2] for match in reversed(matches)}
        if listed.keys().isdisjoint(numbers) and (not matches or len(numbers) == 1):
            rows = [row for row in rows if not (copies(row, given) or row.endswith(":") or DECLINES.match(row))]
            rows = split_paragraph(rows[0]) if len(rows) == 1 < len(numbers) else rows
            rows = rows[:1] if len(numbers) == 1 else rows  # a sentence comes first, whatever follows it
            listed = dict(zip(numbers, rows, strict=True)) if len(rows) == len(numbers) else {}
    cleaned = {number: clean(line) for number, line in listed.items() if number in numbers}
    return {number: line for number, line in cleaned.items() if any(letter.isalpha() for letter in line)}


def unfinished_lines(text: str, numbers: Sequence[int]) -> dict[int, str]:
    """The lines asked for as far as an answer has come; those that it cannot be read from yet are left out."""
    pairs = re.findall(r'"(\d{1,2})"\s*:\s*"((?:[^"\\]|\\.)*)', text) or re.findall(NUMBERED.pattern, text, re.M | re.I)
    lines = {int(number): re.sub(r'\\(["/\\])', r"\1", line) for number, line in pairs}
    return {number: line for number, line in lines.items() if number in numbers and line}


def _from_json(text: str, numbers: Sequence[int]) -> dict[int, str]:
    """`{"2": "...", "3": "..."}`, whole or cut off, or a list of as many lines, anywhere in a text."""
    pairs = [(int(number), line) for number, line in re.findall(rf'"[^"\d]*(\d{{1,2}})"\s*:\s*({STRING})', text)]
    listed = re.findall(STRING, text[text.find("[") :]) if "[" in text and not pairs else ()
    pairs = pairs or (list(zip(numbers, listed, strict=True)) if len(listed) == len(numbers) else [])
    if len(numbers) == len(pairs) == 1:
        pairs = [(numbers[0], pairs[0][1])]  # the one line, whatever its number
    with suppress(ValueError):
        return {number: json.loads(line, strict=False) for number, line in reversed(pairs)}
    return {}


def clean(line: str) -> str:
    """One sentence as it stands in a story: no marks of a list, no label, no quotation marks around the whole."""
    text = normalise(re.sub(r"\*\*|__", "", line)).strip()
    text = LABEL.sub("", re.sub(r"^(?:[-*•]\s+|\W?\d{1,2}[.):]\s+)", "", text))
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

"""The pairs to be judged, from a file of JSON lines.

    {"id": "roof-1", "systems": ["SLDS", "LM"], "given": [0, 4], "stories": [["Our roof ...", ...], ["Our ...", ...]]}

`given` numbers, from 0, the sentences that both systems were given.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabula.corpus.read import check_story
from fabula.corpus.tokenize import normalise
from fabula.errors import UserError

MAX_NAME = 80
"""Characters of a pair's id or a system's name, which are headings in the report."""

Sentences = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two stories and the systems that wrote them."""

    id: str
    systems: tuple[str, str]
    """The system of each story."""
    given: tuple[int, ...]
    """The sentences, from 0, that were given and not written."""
    stories: tuple[Sentences, Sentences]

    def written(self, story: int) -> list[int]:
        """The sentences of one of the two stories that a system wrote."""
        return [i for i in range(len(self.stories[story])) if i not in self.given]


def systems_of(pairs: Sequence[Pair]) -> list[str]:
    """The names of all compared systems, sorted."""
    return sorted({name for pair in pairs for name in pair.systems})


def read_pairs(path: Path) -> list[Pair]:
    """Every pair of a UTF-8 file; the first invalid line raises `UserError` with its number."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    pairs: list[Pair] = []
    line_of_id: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            pair = parse_pair(json.loads(line))
            if pair.id in line_of_id:
                raise ValueError(f"its id {pair.id!r} is that of line {line_of_id[pair.id]} already")
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number}: not JSON ({error.msg} at character {error.pos + 1})") from error
        except RecursionError as error:
            raise UserError(f"{path}, line {number}: nested too deeply") from error
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}") from error
        line_of_id[pair.id] = number
        pairs.append(pair)
    if not pairs:
        raise UserError(f"{path} holds no pair to judge; a line is {{'id', 'systems', 'given', 'stories'}}")
    return pairs


def parse_pair(value: Any) -> Pair:
    """The pair that a JSON object describes; a ValueError says what is wrong with it."""
    _require(isinstance(value, dict), "not an object with id, systems, given and stories")
    keys = ("id", "systems", "given", "stories")
    for key in keys:
        _require(key in value, f"it has no {key!r}")
    for key in value:
        _require(key in keys, f"unknown key {key!r}; known are {', '.join(keys)}")
    stories = _stories(value["stories"])
    systems, given = _systems(value["systems"]), _given(value["given"], stories)
    return Pair(id=_name(value["id"], "its id"), systems=systems, given=given, stories=stories)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _name(value: Any, what: str) -> str:
    name = normalise(value) if isinstance(value, str) else ""
    _require(bool(name), f"{what} is not a text")
    _require(len(name) <= MAX_NAME, f"{what} has {len(name)} characters, more than {MAX_NAME}")
    return _printable(name, what)


def _printable(text: str, what: str) -> str:
    """The text, unless it holds control characters or lone surrogates, which CSV and HTML do not preserve."""
    for character in text:
        is_control = unicodedata.category(character) in ("Cc", "Cs")
        _require(not is_control, f"{what} holds the control character U+{ord(character):04X}")
    return text


def _systems(value: Any) -> tuple[str, str]:
    _require(isinstance(value, list) and len(value) == 2, "'systems' is not a list of two names")
    first, second = (_name(name, f"system {number}") for number, name in enumerate(value, start=1))
    _require(first != second, f"both stories are of {first!r}; a pair compares two systems")
    return first, second


def _stories(value: Any) -> tuple[Sentences, Sentences]:
    is_two_lists = isinstance(value, list) and len(value) == 2 and all(isinstance(story, list) for story in value)
    _require(is_two_lists, "'stories' is not a list of two lists of sentences")
    first, second = (_story(sentences, number) for number, sentences in enumerate(value, start=1))
    _require(first != second, "its two stories are the same, word for word")
    return first, second


def _story(value: list[object], number: int) -> Sentences:
    try:
        sentences = check_story(value, id="").sentences
    except ValueError as error:
        raise ValueError(f"story {number}: {error}") from error
    return tuple(_printable(text, f"story {number}: sentence {i}") for i, text in enumerate(sentences, start=1))


def _given(value: Any, stories: tuple[Sentences, Sentences]) -> tuple[int, ...]:
    is_numbers = isinstance(value, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in value)
    _require(is_numbers, "'given' is not a list of sentence numbers from 0")
    _require(len(set(value)) == len(value), "'given' names a sentence twice")
    shortest = min(map(len, stories))
    for i in sorted(value):
        _require(0 <= i < shortest, f"'given' names sentence {i}; they are numbered 0 to {shortest - 1}")
        _require(stories[0][i] == stories[1][i], f"sentence {i} is given, and yet differs between the two stories")
    return tuple(sorted(value))

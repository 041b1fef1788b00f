"""The pairs to be judged, from a file of JSON lines.

    {"id": "roof-1", "systems": ["SLDS", "LM"], "given": [0, 4], "stories": [["Our roof ...", ...], ["Our ...", ...]]}

`given` numbers, from 0, the sentences that both systems were given. A line with `"check": {"better": 0}` is an
attention check: a pair whose better story is plain to see; it names no systems, and no figure counts it.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabula.corpus.read import check_story
from fabula.corpus.tokenize import normalise
from fabula.errors import UserError

KEYS = frozenset({"id", "systems", "given", "stories", "check"})
MAX_NAME = 80
"""Characters of a pair's id or a system's name: they head columns and label the picture."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two stories, and who wrote which."""

    id: str
    systems: tuple[str, str] | None
    """Who wrote each story; None for an attention check."""
    given: tuple[int, ...]
    """The sentences, from 0, that were given and not written."""
    stories: tuple[tuple[str, ...], tuple[str, ...]]
    better: int | None = None
    """Of an attention check: the story that is plainly better. None for a pair proper."""

    @property
    def is_check(self) -> bool:
        return self.better is not None

    def written(self, story: int) -> list[int]:
        """The sentences of one of the two stories that a system wrote."""
        return [i for i in range(len(self.stories[story])) if i not in self.given]


def read_pairs(file: str | Path) -> list[Pair]:
    """Every pair of a file; the first line that is not one raises `UserError` with its number."""
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    pairs: list[Pair] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            pair = parse_pair(json.loads(line))
            if pair.id in lines:
                raise ValueError(f"its id {pair.id!r} is that of line {lines[pair.id]} already")
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number}: not JSON ({error.msg} at character {error.pos + 1})") from error
        except RecursionError as error:
            raise UserError(f"{path}, line {number}: nested too deeply") from error
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}") from error
        lines[pair.id] = number
        pairs.append(pair)
    if all(pair.is_check for pair in pairs):
        raise UserError(f"{path} holds no pair to judge; a line is {{'id', 'systems', 'given', 'stories'}}")
    return pairs


def parse_pair(value: object) -> Pair:
    """A pair of its JSON, or a ValueError whose text says what is wrong with it."""
    if not isinstance(value, dict):
        raise ValueError("not an object with id, systems, given and stories")
    _only(value, KEYS)
    is_check = "check" in value
    for key in ("id", "given", "stories") if is_check else ("id", "systems", "given", "stories"):
        if key not in value:
            raise ValueError(f"it has no {key!r}")
    better = _better(value["check"]) if is_check else None
    systems = _systems(value["systems"]) if "systems" in value else None
    stories = _stories(value["stories"])
    return Pair(
        id=_name(value["id"], "its id"),
        systems=None if is_check else systems,
        given=_given(value["given"], stories),
        stories=stories,
        better=better,
    )


def _only(value: dict[str, Any], known: Iterable[str]) -> None:
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")


def _name(value: object, what: str) -> str:
    if not isinstance(value, str) or not normalise(value):
        raise ValueError(f"{what} is not a text")
    name = normalise(value)
    if len(name) > MAX_NAME:
        raise ValueError(f"{what} has {len(name)} characters, more than {MAX_NAME}")
    _plain(name, what)
    return name


def _plain(text: str, what: str) -> None:
    """No control characters and no half characters: neither CSV nor a page can carry them back as they were."""
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise ValueError(f"{what} holds the control character U+{ord(character):04X}")


def _systems(value: object) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("'systems' is not a list of two names")
    first, second = (_name(name, f"system {number}") for number, name in enumerate(value, start=1))
    if first == second:
        raise ValueError(f"both stories are of {first!r}; a pair compares two systems")
    return first, second


def _stories(value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(story, list) for story in value):
        raise ValueError("'stories' is not a list of two lists of sentences")
    read = []
    for number, sentences in enumerate(value, start=1):
        try:
            story = tuple(check_story(sentences, id="").sentences)
        except ValueError as error:
            raise ValueError(f"story {number}: {error}") from error
        for place, sentence in enumerate(story, start=1):
            _plain(sentence, f"story {number}: sentence {place}")
        read.append(story)
    if read[0] == read[1]:
        raise ValueError("its two stories are the same, word for word")
    return read[0], read[1]


def _given(value: object, stories: tuple[tuple[str, ...], tuple[str, ...]]) -> tuple[int, ...]:
    if not isinstance(value, list) or any(not isinstance(i, int) or isinstance(i, bool) for i in value):
        raise ValueError("'given' is not a list of sentence numbers from 0")
    if len(set(value)) != len(value):
        raise ValueError("'given' names a sentence twice")
    shortest = min(map(len, stories))
    for i in sorted(value):
        if not 0 <= i < shortest:
            raise ValueError(f"'given' names sentence {i}; they are numbered 0 to {shortest - 1}")
        if stories[0][i] != stories[1][i]:
            raise ValueError(f"sentence {i} is given, and yet differs between the two stories")
    return tuple(sorted(value))


def _better(value: object) -> int:
    if not isinstance(value, dict):
        raise ValueError("'check' is not an object with 'better'")
    _only(value, {"better"})
    better = value.get("better")
    if isinstance(better, bool) or better not in (0, 1):
        raise ValueError("'check' names its better story as 0 or 1")
    return int(better)

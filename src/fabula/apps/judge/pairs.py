"""The pairs to be judged, from a file of JSON lines.

    {"id": "roof-1", "systems": ["SLDS", "LM"], "given": [0, 4], "stories": [["Our roof ...", ...], ["Our ...", ...]]}

`given` numbers, from 0, the sentences that both systems were given. `pair_results` makes pairs of two systems' results.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, StrictInt, StringConstraints, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from fabula.apps.fleet.shards import read_results
from fabula.apps.web.errors import explain
from fabula.cli.options import read_text
from fabula.corpus.read import check_story
from fabula.errors import UserError

MAX_NAME = 80
"""Characters of a pair's id or a system's name, which are headings in the report."""

NO_CONTROLS = r"^[^\x00-\x1f]*$"
Sentences = tuple[str, ...]


def _story(sentences: Any) -> Sentences:
    if not isinstance(sentences, list | tuple):
        raise ValueError("is not a list of sentences")
    return tuple(check_story(list(sentences), id="").sentences)


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME, pattern=NO_CONTROLS)]
Story = Annotated[Sentences, BeforeValidator(_story)]


@dataclass(frozen=True, kw_only=True, config={"extra": "forbid"})
class Pair:
    """Two stories and the systems that wrote them."""

    id: Name
    systems: tuple[Name, Name]
    """The system of each story."""
    given: tuple[StrictInt, ...]
    """The sentences, from 0, that were given and not written."""
    stories: tuple[Story, Story]

    @model_validator(mode="after")
    def _check(self) -> Pair:
        first, second = self.stories
        if self.systems[0] == self.systems[1]:
            raise ValueError(f"both stories are of {self.systems[0]!r}; a pair compares two systems")
        if first == second:
            raise ValueError("its two stories are the same, word for word")
        if len(set(self.given)) < len(self.given):
            raise ValueError("'given' names a sentence twice")
        shortest = min(len(first), len(second))
        for i in self.given:
            if not 0 <= i < shortest:
                raise ValueError(f"'given' names sentence {i}; they are numbered 0 to {shortest - 1}")
            if first[i] != second[i]:
                raise ValueError(f"sentence {i} is given, and yet differs between the two stories")
        return self


PAIR = TypeAdapter(Pair)


def pair_results(first: Path, second: Path) -> list[Pair]:
    """Pairs of the first candidates that two systems wrote for stories of the same id, the systems named by files."""
    systems = (first.stem, second.stem)
    if systems[0] == systems[1]:
        systems = (f"{first.parent.name} {first.stem}", f"{second.parent.name} {second.stem}")
    results, others = _results(first), _results(second)
    pairs = {}
    for id, stories in ((id, (story, others[id])) for id, story in results.items() if id in others):
        if stories[0] != stories[1]:
            given = [i for i, lines in enumerate(zip(*stories, strict=False)) if lines[0] == lines[1]]
            content = {"id": id[-MAX_NAME:], "systems": systems, "given": given, "stories": stories}
            try:
                pairs[content["id"]] = PAIR.validate_python(content)
            except ValidationError as error:
                raise UserError(f"{first} and {second}, story {id}: {explain(error.errors())[0]}") from error
    if not pairs:
        raise UserError(f"{first} and {second} have no two different stories of the same id")
    return list(pairs.values())


def _results(path: Path) -> dict[str, list[str]]:
    """The first candidate of every story by its id, of a folder or a file of results; failed rows are left out."""
    if path.is_dir():
        rows: list[Any] = list(read_results(path))
    else:
        text = read_text(path)
        try:
            lines = [line.strip() for line in text.split("\n") if line.strip()]
            rows = [json.loads(text)] if lines[:1] == ["{"] else [json.loads(line) for line in lines]
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: neither results of `fabula fill-many` nor of `fabula fill --json`") from error
    stories = {}
    for number, row in enumerate(rows, start=1):
        with suppress(LookupError, TypeError, AttributeError):
            story, id = row["candidates"][0]["sentences"], str(row.get("id", number))
            if id in stories:
                raise UserError(f"{path}: the id {id!r} stands twice")
            stories[id] = [s if isinstance(s, str) else s["text"] for s in story]
    if not stories:
        raise UserError(f"{path} has no story: neither results of `fabula fill-many` nor of `fabula fill --json`")
    return stories


def read_pairs(path: Path) -> list[Pair]:
    """Every pair of a UTF-8 file; the first invalid line raises `UserError` with its number."""
    lines = read_text(path).split("\n")
    pairs: dict[str, Pair] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            pair = PAIR.validate_python(json.loads(line))
            if pairs.setdefault(pair.id, pair) is not pair:
                raise ValueError(f"its id {pair.id!r} is that of another line already")
        except RecursionError as error:
            raise UserError(f"{path}, line {number}: nested too deeply") from error
        except ValueError as error:
            wrong = explain(error.errors())[0] if isinstance(error, ValidationError) else error
            raise UserError(f"{path}, line {number}: {wrong}") from error
    if not pairs:
        raise UserError(f"{path} holds no pair to judge; a line is {{'id', 'systems', 'given', 'stories'}}")
    return list(pairs.values())

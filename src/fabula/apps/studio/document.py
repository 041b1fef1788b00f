"""The story document, and the bodies of requests about stories.

`State` is the only list of a story's fields: schema/make.py writes page/schema.js from it, by which the page saves,
compares, copies, imports and exports.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from fabula.apps.serve.bodies import Body, Model, PersonBody, Seed, Tag
from fabula.apps.serve.settings import CANDIDATES, CHARACTERS, SEEDS
from fabula.sampling.settings import CANDIDATES as SHOWN

LINES = (1, 400)  # sentences of a story on the page; a model reads a part of a long one
TRAY = 60  # candidates that a branch keeps
BRANCHES = 500  # branches of one story, at most


def _is_json(value: Any) -> Any:
    """The value, which we store without reading it; a `ValueError` where it cannot be written as JSON in UTF-8."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise ValueError("holds something that JSON cannot: NaN, half a character, or too deep a nest") from None
    return value


Opaque = Annotated[Any, AfterValidator(_is_json)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Id = Annotated[int, Field(ge=1, le=SEEDS)]


class Line(Body):
    """One sentence on the page, or a gap in the text."""

    id: str = Field("", max_length=40, description="Stays with the sentence while others come and go.")
    text: str = Field("", max_length=4 * CHARACTERS)
    write: bool = Field(False, description="Whether the model is to write it.")
    locked: bool = False
    start: str = Field("", max_length=CHARACTERS, description="Words that the model has to begin with.")
    tag: Tag | None = None
    paragraph: bool = Field(False, description="Whether it begins a paragraph.")


CONTENT_FIELDS = ("lines", "people", "notes")
"""Fields of `State` that a writer fills: a story with any of them is saved, and a version brings all of them back."""


class State(Body):
    """What a branch keeps: the story on the page, its cast and notes, and how candidates are asked for."""

    lines: list[Line] = Field(min_length=LINES[0], max_length=LINES[1])
    seed: Seed = 0
    candidates: int = Field(SHOWN, ge=1, le=CANDIDATES)
    temperature: float | None = Field(None, ge=0.05, le=5)
    model: Model = None
    tense: Literal["past", "present"] | None = None
    person: Literal["first", "third"] | None = None
    length: Literal["short", "medium", "long"] | None = None
    people: list[PersonBody] = Field(default_factory=list, max_length=20)
    notes: str = Field("", max_length=4 * CHARACTERS, description="Places and facts, a line each.")
    tray: list[Opaque] = Field(default_factory=list, max_length=TRAY, description="Candidates kept with the branch.")


class StoryChange(Body):
    title: Name
    automatic: bool = Field(False, description="Whether the title was made from the first line, not given.")


class NewStory(StoryChange):
    state: State


class NewBranch(Body):
    parent: Id | None = Field(None, description="The branch it grows from; null: none.")
    name: Name
    state: State


class BranchChange(Body):
    name: Name | None = Field(None, description="null: as it was.")
    state: State
    revision: Id = Field(description="The revision that this one follows: a stale one is refused with 409.")

"""The answers about models and stories, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fabula.apps.studio.document import State
from fabula.apps.web.errors import Answer


class FactorFacts(Answer):
    name: str
    labels: list[str]
    meanings: dict[str, str] | None = Field(None, description="What labels stand for: of verb classes their members.")


class ModelFacts(BaseModel):
    """What `fabula models` says of a model."""

    model_config = ConfigDict(extra="allow")

    name: str
    loaded: bool
    default: bool
    recipe: str | None = None
    kind: str | None = None
    labels: list[str] | None = Field(None, description="Of the mood, the first factor of the state.")
    factors: list[FactorFacts] | None = Field(None, description="Every factor of the state, where there are several.")
    words: int | None = None
    bytes: int | None = None
    figures: dict[str, Any] | None = None
    settings: dict[str, dict[str, Any]] | None = Field(
        None, description="The settings that apply where a request does not say them, by sampler."
    )
    damaged: str | None = Field(None, description="Why it cannot be used, if so.")


class Models(Answer):
    models: list[ModelFacts]


class Limits(Answer):
    sentences: list[int] = Field(description="The least and the most.")
    words: int = Field(description="Of one sentence.")
    characters: int = Field(description="Of one sentence.")
    candidates: int
    samples: int
    body: int = Field(description="Bytes.")
    snapshots: int = Field(description="Of undo, redo and taken, each.")
    branches: int = Field(description="Of one story.")


class BranchFacts(Answer):
    id: int
    story: int
    parent: int | None
    name: str
    revision: int
    created: str
    updated: str


class BranchAnswer(BranchFacts):
    state: State


class Branches(Answer):
    branches: list[BranchFacts]


class StoryFacts(Answer):
    id: int
    title: str
    created: str
    updated: str
    branches: int = Field(description="How many.")
    automatic: bool | None = Field(None, description="Whether the title was made from the first line; null: not known.")
    deleted: str | None = Field(None, description="When it was put into the trash.")


class StoryEntry(StoryFacts):
    preview: str = Field(description="How its branch that was changed last begins.")
    words: int


class Stories(Answer):
    stories: list[StoryEntry]


class VersionFacts(Answer):
    id: int
    branch: int
    revision: int
    saved: str
    preview: str
    words: int
    line: int | None = Field(None, description="The first line that is another than in the version before; in lists.")
    changed: str = Field("", description="What that line says.")


class Versions(Answer):
    versions: list[VersionFacts]


class VersionAnswer(VersionFacts):
    state: State


class StoryAnswer(StoryFacts):
    tree: list[BranchFacts] = Field(description="Its branches, without their states.")


class StoryMade(StoryAnswer):
    branch: BranchAnswer

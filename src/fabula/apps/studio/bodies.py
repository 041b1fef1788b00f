"""What requests may say. Strict: an unknown key, a number as text or a line that is too long is refused by name."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from fabula.api import Narrator
from fabula.apps.studio.settings import (
    CANDIDATES,
    CHARACTERS,
    PIECES,
    SAMPLES,
    SEEDS,
    SENTENCES,
    SNAPSHOTS,
    TRAY,
    USUAL_SAMPLES,
    WORDS,
)  # fmt: skip
from fabula.sampling.protocol import DEFAULT, samplers
from fabula.sampling.settings import declared, offered, types_of


def sentence_fits(text: str) -> str:
    """A `ValueError` where one sentence is longer than others may be made to wait for."""
    words = len(text.split())
    if words > WORDS:
        raise ValueError(f"has {words} words; the most is {WORDS}")
    pieces = len(re.findall(r"\w+|[^\w\s]", text))
    if pieces > PIECES:
        raise ValueError(f"has {pieces} words and marks; the most is {PIECES}")
    return text


def _sayable(value: Any) -> Any:
    """Of what we keep without reading: it can be written as JSON in UTF-8 again."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise ValueError("holds something that JSON cannot: NaN, half a character, or too deep a nest") from None
    return value


Text = Annotated[str, Field(max_length=CHARACTERS), AfterValidator(sentence_fits)]
Tag = Annotated[str, Field(max_length=100)]
Number = Annotated[str, Field(pattern=r"^[1-9][0-9]?$")]
Seed = Annotated[int, Field(ge=0, le=SEEDS, description="The same seed gives the same answer.")]
Model = Annotated[str | None, Field(max_length=200, description="An installed model's name; null is the studio's own.")]
Tags = Annotated[list[Tag | None], Field(max_length=SENTENCES[1])] | Annotated[str, Field(max_length=CHARACTERS)]
Arc = Annotated[
    Tags | Annotated[dict[Tag, Tags], Field(max_length=10)] | None,
    Field(
        description="A label for each sentence, null where it is free, in a list or as on the command line ('- ? +', "
        "'emotion=joy,?,fear'); or such labels by factor of the state; null: all are free."
    ),
]
Story = Annotated[list[Text], Field(min_length=SENTENCES[0], max_length=SENTENCES[1])]
Blanks = Annotated[
    list[Text | None],
    Field(min_length=SENTENCES[0], max_length=SENTENCES[1], description="The sentences, null where one is missing."),
]
Opaque = Annotated[Any, AfterValidator(_sayable)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


B = TypeVar("B", bound=Body)


def with_settings(body: type[B]) -> type[B]:
    """The same body with the samplers' names and every setting that HTTP offers (`sampling/settings.py`)."""
    made: dict[str, Any] = {"sampler": (cast(Any, Literal)[tuple(samplers())], DEFAULT)}
    for sampler in samplers().values():
        for name, entry in offered(sampler.settings, "http").items():
            if name not in body.model_fields:
                rule, hint = declared(entry), types_of(sampler.settings)[name]
                least, most = rule.http or (rule.at_least, None)
                about = f"{rule.help[0].upper()}{rule.help[1:]}; null: the sampler's own."
                made[name] = hint | None, Field(None, ge=least, le=most, description=about)
    return create_model(body.__name__, __base__=body, __module__=__name__, __doc__=body.__doc__, **made)


class PersonBody(Body):
    """Somebody in the story."""

    name: Annotated[str, Field(min_length=1, max_length=60)]
    pronoun: Literal["he", "she", "they"] | None = None
    about: str = Field("", max_length=200, description="A word of description.")


Cast = Annotated[list[PersonBody], Field(max_length=20, description="Who is in the story: no line shows it.")]
Notes = Annotated[list[Text], Field(max_length=20, description="Places and facts that hold: no line shows them.")]


class Sampling(Body):
    """How stories are drawn."""

    arc: Arc = None
    seed: Seed = 0
    starts: dict[Number, Text] | None = Field(
        None, max_length=SENTENCES[1], description="Words that a missing sentence has to begin with, by its number."
    )
    people: Cast = Field(default_factory=list)
    notes: Notes = Field(default_factory=list)
    model: Model = None

    def arguments(self) -> dict[str, Any]:
        """As `Narrator.fill` and `Narrator.write` take them."""
        said = self.model_dump(exclude={"model"})
        if self.starts is not None:
            said["starts"] = {int(number): words for number, words in self.starts.items()}
        return said


@with_settings
class FillBody(Sampling):
    """A story with blanks."""

    sentences: Blanks
    candidates: int = Field(3, ge=1, le=CANDIDATES)
    samples: int | None = Field(
        None, ge=1, le=SAMPLES, description="Stories to draw and choose from; null: the model's own number, at most 50."
    )

    def arguments_for(self, narrator: Narrator) -> dict[str, Any]:
        """As this narrator's `fill` takes them."""
        said = self.arguments()
        if self.samples is None:
            said["samples"] = min(narrator.usual_samples(said["sampler"]), USUAL_SAMPLES)
        return said


@with_settings
class WriteBody(Sampling):
    """A story from nothing."""

    sentences: int | None = Field(
        None, ge=SENTENCES[0], le=SENTENCES[1], description="How many; null: the arc's length, else 5."
    )
    candidates: int = Field(1, ge=1, le=CANDIDATES)
    samples: int | None = Field(None, ge=1, le=SAMPLES, description="Stories to draw and choose from; null: 10.")


class TagBody(Body):
    """A whole story, or a sentence alone, to tag."""

    sentences: Annotated[list[Text], Field(min_length=1, max_length=SENTENCES[1])]
    factors: Annotated[list[str], Field(max_length=8)] = Field(
        [], description="Factors to read although they need a parser: verb."
    )
    model: Model = None


class MentionsBody(Body):
    """Lines of which people and places are asked."""

    sentences: Annotated[list[Text], Field(max_length=SENTENCES[1])]
    model: Model = None


class ScoreBody(Body):
    """A whole story to score."""

    sentences: Story
    samples: int = Field(100, ge=1, le=SAMPLES, description="Importance samples of the bound.")
    seed: Seed = 0
    model: Model = None


class PosteriorBody(Body):
    """A story with or without blanks, whose free moods are asked for."""

    sentences: Blanks
    arc: Arc = None
    seed: Seed = 0
    model: Model = None


class ExplainBody(Body):
    """A whole story of which every sentence is to be accounted for."""

    sentences: Story
    arc: Arc = None
    seed: Seed = 0
    model: Model = None


class Line(Body):
    """One line on the page."""

    text: str = Field("", max_length=4 * CHARACTERS)
    write: bool = Field(False, description="Whether the model is to write it.")
    locked: bool = False
    start: str = Field("", max_length=CHARACTERS, description="Words that the model has to begin with.")
    tag: Tag | None = None


CONTENT_FIELDS = ("lines", "people", "notes")
"""Fields of `State` that a writer fills: a story with any of them is saved, and a version brings all of them back."""
HISTORY_FIELDS = ("undo", "redo")
"""Fields of `State` that change only with others: they are stored, but neither compared nor kept in versions."""


class State(Body):
    """The story document of a branch. schema/make.py writes page/schema.js, the page's list of fields, from it."""

    lines: list[Line] = Field(min_length=SENTENCES[0], max_length=SENTENCES[1])
    seed: Seed = 0
    candidates: int = Field(3, ge=1, le=CANDIDATES)
    temperature: float | None = Field(None, ge=0.05, le=5)
    model: Model = None
    undo: list[Opaque] = Field(default_factory=list, max_length=SNAPSHOTS)
    redo: list[Opaque] = Field(default_factory=list, max_length=SNAPSHOTS)
    taken: list[Opaque] = Field(default_factory=list, max_length=SNAPSHOTS)
    people: list[PersonBody] = Field(default_factory=list, max_length=20)
    notes: str = Field("", max_length=4 * CHARACTERS, description="Places and facts, a line each.")
    tray: list[Opaque] = Field(default_factory=list, max_length=TRAY, description="Candidates kept with the branch.")


Name = Annotated[str, Field(min_length=1, max_length=200)]
Id = Annotated[int, Field(ge=1, le=SEEDS)]


Automatic = Annotated[bool, Field(description="Whether the title was made from the first line, not given.")]


class NewStory(Body):
    title: Name
    state: State
    automatic: Automatic = False


class StoryChange(Body):
    title: Name
    automatic: Automatic = False


class NewBranch(Body):
    parent: Id | None = Field(None, description="The branch it grows from; null: none.")
    name: Name
    state: State


class BranchChange(Body):
    name: Name | None = Field(None, description="null: as it was.")
    state: State
    revision: Id = Field(description="The revision that this one follows: a stale one is refused with 409.")

"""The bodies of requests to a model. An unknown key, a number as text or a line that is too long is an error."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from fabula.api import StoryModel
from fabula.apps.serve.settings import CANDIDATES, CHARACTERS, PIECES, SAMPLES, SEEDS, SENTENCES, USUAL_SAMPLES, WORDS
from fabula.sampling.context import GrammaticalPerson, SentenceLength, Tense
from fabula.sampling.protocol import DEFAULT, samplers
from fabula.sampling.settings import CANDIDATES as SHOWN
from fabula.sampling.settings import WRITE_CANDIDATES, WRITE_SAMPLES, declared, offered, types_of


def sentence_fits(text: str) -> str:
    """The text; a `ValueError` where one sentence is longer than others may be made to wait for."""
    words = len(text.split())
    if words > WORDS:
        raise ValueError(f"has {words} words; the most is {WORDS}")
    pieces = len(re.findall(r"\w+|[^\w\s]", text))
    if pieces > PIECES:
        raise ValueError(f"has {pieces} words and marks; the most is {PIECES}")
    return text


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


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


B = TypeVar("B", bound=Body)


def with_settings(body: type[B]) -> type[B]:
    """The same body with the samplers' names and every setting that HTTP offers (`sampling/settings.py`)."""
    extra: dict[str, Any] = {"sampler": (cast(Any, Literal)[(*samplers(),)], DEFAULT)}
    for sampler in samplers().values():
        for name, entry in offered(sampler.settings, "http").items():
            if name not in body.model_fields:
                rule, hint = declared(entry), types_of(sampler.settings)[name]
                least, most = rule.http or (rule.at_least, None)
                about = f"{rule.help[0].upper()}{rule.help[1:]}; null: the model's own (/api/models)."
                extra[name] = hint | None, Field(None, ge=least, le=most, description=about)
    return create_model(body.__name__, __base__=body, __module__=__name__, __doc__=body.__doc__, **extra)


class PersonBody(Body):
    """Somebody in the story."""

    name: Annotated[str, Field(min_length=1, max_length=60)]
    pronoun: Literal["he", "she", "they"] | None = None
    about: str = Field("", max_length=200, description="A word of description.")


class VoiceBody(Body):
    """How a story is told; null where it is free."""

    tense: Tense | None = None
    person: GrammaticalPerson | None = None
    length: SentenceLength | None = Field(None, description="Of sentences.")


Cast = Annotated[list[PersonBody], Field(max_length=20, description="Who is in the story: no line shows it.")]
Notes = Annotated[list[Text], Field(max_length=20, description="Places and facts that hold: no line shows them.")]


class ModelBody(Body):
    """A request to one model."""

    model: Model = None

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of the model's method."""
        return self.model_dump(exclude={"model"})


class Sampling(ModelBody):
    """How stories are drawn."""

    arc: Arc = None
    seed: Seed = 0
    starts: dict[Number, Text] | None = Field(
        None, max_length=SENTENCES[1], description="Words that a missing sentence has to begin with, by its number."
    )
    people: Cast = Field(default_factory=list)
    notes: Notes = Field(default_factory=list)
    voice: VoiceBody | None = Field(None, description="For models that can follow one (`voice` of /api/models).")

    def arguments(self) -> dict[str, Any]:
        arguments = super().arguments()
        if self.starts is not None:
            arguments["starts"] = {int(number): words for number, words in self.starts.items()}
        return arguments


@with_settings
class FillBody(Sampling):
    """A story with blanks."""

    sentences: Blanks
    candidates: int = Field(SHOWN, ge=1, le=CANDIDATES)
    samples: int | None = Field(
        None, ge=1, le=SAMPLES, description="Stories to draw and choose from; null: the model's own number, at most 50."
    )

    def arguments_for(self, model: StoryModel) -> dict[str, Any]:
        """The keyword arguments of this model's `fill`."""
        arguments = self.arguments()
        if self.samples is None:
            arguments["samples"] = min(model.usual_samples(arguments["sampler"], self.candidates), USUAL_SAMPLES)
        return arguments


@with_settings
class WriteBody(Sampling):
    """A story from nothing."""

    sentences: int | None = Field(
        None, ge=SENTENCES[0], le=SENTENCES[1], description="How many; null: the arc's length, else 5."
    )
    candidates: int = Field(WRITE_CANDIDATES, ge=1, le=CANDIDATES)
    samples: int | None = Field(
        None, ge=1, le=SAMPLES, description=f"Stories to draw and choose from; null: {WRITE_SAMPLES}."
    )


class TagBody(ModelBody):
    """A whole story, or a sentence alone, to tag."""

    sentences: Annotated[list[Text], Field(min_length=1, max_length=SENTENCES[1])]
    factors: Annotated[list[str], Field(max_length=8)] = Field(
        [], description="Factors to read although they need a parser: verb."
    )


class MentionsBody(ModelBody):
    """Lines of which people and places are asked."""

    sentences: Annotated[list[Text], Field(max_length=SENTENCES[1])]


class WordsBody(ModelBody):
    """A word of a line, for which others are asked."""

    sentences: Blanks
    line: int = Field(ge=1, le=SENTENCES[1], description="The line's number from 1.")
    before: Text = Field("", description="The line up to the word.")
    word: Annotated[str, Field(min_length=1, max_length=100)]
    after: Text = Field("", description="The line behind the word.")
    seed: Seed = 0


class ScoreBody(ModelBody):
    """A whole story to score."""

    sentences: Story
    samples: int = Field(100, ge=1, le=SAMPLES, description="Importance samples of the bound.")
    seed: Seed = 0


class PosteriorBody(ModelBody):
    """A story with or without blanks, whose free moods are asked for."""

    sentences: Blanks
    arc: Arc = None
    seed: Seed = 0


class ExplainBody(ModelBody):
    """A whole story of which every sentence is to be accounted for."""

    sentences: Story
    arc: Arc = None
    seed: Seed = 0

"""Fabula's models in llm: the prompt is how a story begins, the option `ending` how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import llm
from pydantic import Field


@llm.hookimpl
def register_models(register: Any) -> None:
    """A model for each that is installed: `fabula` is the default one, others are `fabula/NAME`."""
    from fabula.api import installed

    for name in installed():
        register(FabulaModel(name), aliases=("fabula",) if name == "default" else ())


@cache
def _model(name: str) -> Any:
    import fabula

    return fabula.load(name)


class FabulaModel(llm.Model):
    """One model of Fabula's. It writes a story between the prompt and the ending; it follows no instructions."""

    can_stream = True

    class Options(llm.Options):
        ending: str | None = Field(None, description="How the story ends")
        sentences: int | None = Field(None, ge=1, le=64, description="How many sentences to write")
        arc: str | None = Field(None, description="A mood for each of them, such as '- . +'")
        seed: int | None = Field(None, ge=0, description="The same seed gives the same story (0)")
        temperature: float | None = Field(None, ge=0.05, le=5, description="Lower is safer, higher bolder")

    def __init__(self, name: str) -> None:
        self.name, self.model_id = name, f"fabula/{name}"

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: llm.Conversation | None
    ) -> Iterator[str]:
        """The written sentences one by one; their moods and the seed are kept with the response."""
        from fabula import UserError
        from fabula.completion import complete

        if prompt.system:
            raise llm.ModelError("Fabula follows no instructions: it takes no system prompt")
        options = prompt.options
        settings = {} if options.temperature is None else {"temperature": options.temperature}
        try:
            completion = complete(
                _model(self.name), prompt.prompt or "", options.ending or "", sentences=options.sentences,
                arc=options.arc, seed=options.seed or 0, **settings,
            )  # fmt: skip
        except UserError as error:
            raise llm.ModelError(str(error)) from error
        best = completion.passages[0]
        response.set_usage(input=completion.prompt_tokens, output=best.tokens)
        notes = list(completion.filling.notes)
        response.response_json = {"tags": list(best.tags), "seed": options.seed or 0, "notes": notes}
        pieces = [best.pieces[0].lstrip(), *best.pieces[1:-1], *(piece.rstrip() for piece in best.pieces[1:][-1:])]
        yield from pieces if stream else ["".join(pieces)]

    def __str__(self) -> str:
        return f"Fabula: {self.model_id}"

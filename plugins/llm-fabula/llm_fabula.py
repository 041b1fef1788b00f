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
def _narrator(name: str) -> Any:
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
        chosen = prompt.options
        settings = {} if chosen.temperature is None else {"temperature": chosen.temperature}
        try:
            found = complete(
                _narrator(self.name), prompt.prompt or "", chosen.ending or "", sentences=chosen.sentences,
                arc=chosen.arc, seed=chosen.seed or 0, **settings,
            )  # fmt: skip
        except UserError as error:
            raise llm.ModelError(str(error)) from error
        best = found.passages[0]
        response.set_usage(input=found.prompt_tokens, output=best.tokens)
        response.response_json = {"tags": list(best.tags), "seed": chosen.seed or 0, "notes": list(found.filling.notes)}
        pieces = [best.pieces[0].lstrip(), *best.pieces[1:-1], *(piece.rstrip() for piece in best.pieces[1:][-1:])]
        yield from pieces if stream else ["".join(pieces)]

    def __str__(self) -> str:
        return f"Fabula: {self.model_id}"

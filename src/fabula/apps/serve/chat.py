"""OpenAI-style chats: /v1/chat/completions. The last message of the user is the story, `_` where a sentence is missing.

A message without a blank is how the story begins; one that is a JSON object has the arguments of `fill`: {"sentences":
["Tom was sad.", null, "Tom smiled."], "arc": "- ? +"}. The answer is the whole story. Other messages mean nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from fastapi import Request as HTTPRequest
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fabula.api import StoryModel
from fabula.apps.serve.bodies import Arc, Blanks, Body, Cast, Notes
from fabula.apps.serve.completions import REFUSAL, STREAMED, Answer, Prose, Request, respond
from fabula.apps.serve.jobs import WorkerPool
from fabula.apps.serve.models import ModelCache
from fabula.apps.web.errors import explain
from fabula.completion import Completion, Gap, complete_story_iter
from fabula.errors import UserError
from fabula.sampling.task import split_story


class Message(BaseModel):
    model_config = ConfigDict(extra="allow")

    role: str
    content: Prose | list[dict[str, Any]] | None = Field(None, description="A text, or parts with a `text` each.")

    @property
    def text(self) -> str:
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return " ".join(str(part.get("text", "")) for part in self.content)


class Structured(Body):
    """A story as data, in the message's text."""

    sentences: Blanks
    arc: Arc = None
    starts: dict[int, str] | None = None
    people: Cast = Field(default_factory=list)
    notes: Notes = Field(default_factory=list)


class ChatBody(Request):
    """A request as OpenAI's clients send it."""

    messages: list[Message] = Field(min_length=1, max_length=1000)
    max_completion_tokens: int | None = Field(None, ge=1, le=100_000, description="The newer name of max_tokens.")

    @property
    def ignored(self) -> list[str]:
        others = [f"messages.{message.role}" for message in self.messages if message.role != "user"]
        return [*super().ignored, *dict.fromkeys(others)]

    def story(self) -> dict[str, Any]:
        """The arguments of `fill` for the last message of the user."""
        text = next((message.text for message in reversed(self.messages) if message.role == "user"), "").strip()
        if not text:
            raise UserError(
                "no message of the user has a text: it is the story, _ where a sentence is missing", field="messages"
            )
        if text.startswith("{"):
            try:
                return Structured.model_validate_json(text, strict=False).model_dump(exclude_unset=True)
            except ValidationError as error:
                raise UserError(f"the message's JSON: {explain(error.errors())[0]}", field="messages") from error
        sentences = split_story(text)
        if None in sentences:
            return {"sentences": sentences}
        gap = Gap.of(text, "", self.fabula.sentences)
        starts = {len(gap.before) + 1: gap.opening} if gap.opening else None
        return {"sentences": [*gap.before, *[None] * gap.count], "starts": starts}

    def complete(self, model: StoryModel, **options: Any) -> Iterator[Completion]:
        chosen = {**self.options, **options, **self.story()}
        chosen["max_tokens"] = chosen["max_tokens"] or self.max_completion_tokens
        return complete_story_iter(model, chosen.pop("sentences"), **chosen)


class ChatAnswer(Answer):
    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def choice(self, text: str, finish: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}, "finish_reason": finish}

    def piece(self, text: str, finish: str | None) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": text} if text else {}, "finish_reason": finish}


def router(models: ModelCache, pool: WorkerPool) -> APIRouter:
    """The route over these models and this queue."""
    routes = APIRouter(prefix="/v1", tags=["completions"], responses=REFUSAL)

    @routes.post("/chat/completions", summary="A story with blanks, filled in", responses={200: STREAMED})
    async def chat(http: HTTPRequest, body: ChatBody) -> Response:
        """As OpenAI's chat completions: the last user message is the story, the answer the whole of it."""
        return await respond(http, ChatAnswer(body, models.default if body.model is None else body.model), models, pool)

    return routes

"""OpenAI's API, so that its clients can fill in stories: /v1/completions, /v1/chat/completions and /v1/models.

Of a completion `prompt` is how the story begins and `suffix` how it ends. Of a chat the last message of the user is the
story, `_` where a sentence is missing, and the answer the whole story; a message without a blank is how the story
begins; one that is a JSON object has the arguments of `fill`: {"sentences": ["Tom was sad.", null, "Tom smiled."],
"arc": "- ? +"}. Other messages mean nothing here.

What that API has no parameter for stands under `fabula`: the number of sentences to write, and their moods. Parameters
that mean nothing to these models are listed in the answer. A stream has the chosen text sentence by sentence; before it
only comments that keep the connection alive are sent, because candidates are ranked when all are drawn.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Request as HTTPRequest
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from sse_starlette import ServerSentEvent

from fabula.api import StoryModel
from fabula.apps.serve.bodies import Arc, Blanks, Body, Cast, Notes, sentence_fits
from fabula.apps.serve.jobs import Job, WorkerPool
from fabula.apps.serve.models import ModelCache
from fabula.apps.serve.settings import CANDIDATES, CHARACTERS, SEEDS, SENTENCES, USUAL_SAMPLES
from fabula.apps.serve.writing import event_stream, last_answer
from fabula.apps.web import errors
from fabula.apps.web.errors import RefusedError, explain
from fabula.completion import Completion, Gap, complete_iter, complete_story_iter
from fabula.corpus.tokenize import split_paragraph
from fabula.errors import UserError
from fabula.sampling.task import split_story

EVENT = {"type": "object", "required": ["data"], "properties": {"data": {"type": "string"}}}
"""One server-sent event, for the OpenAPI document: its data is JSON, and `[DONE]` in the last."""
GREEDY = 0.05  # a temperature below this is greedy decoding, as 0 is in OpenAI's API
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


def _sentences_fit(text: str) -> str:
    for sentence in split_paragraph(text):
        sentence_fits(sentence)
    return text


Prose = Annotated[str, Field(max_length=SENTENCES[1] * CHARACTERS), AfterValidator(_sentences_fit)]


class Extra(Body):
    """What Fabula asks beyond OpenAI's API."""

    sentences: int | None = Field(
        default=None, ge=1, le=SENTENCES[1], description="How many to write; null: up to 5 in all."
    )
    arc: Arc = Field(default=None, description="A mood for each sentence that is written.")


class Request(BaseModel):
    """What requests for completions and for chats share."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    model: str | None = Field(None, max_length=200, description="A name of /v1/models; null: this server's own.")
    n: int | None = Field(None, ge=1, le=CANDIDATES, description="How many texts; null: 1.")
    stream: bool | None = None
    seed: int | None = Field(None, ge=0, le=SEEDS, description="null: another one each time, told in the answer.")
    temperature: float | None = Field(None, ge=0, le=5, description="null: the model's own; 0 is greedy.")
    max_tokens: int | None = Field(None, ge=1, le=100_000, description="null: as long as its sentences are.")
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    stream_options: dict[str, Any] | None = None
    fabula: Extra = Extra()

    @property
    def ignored(self) -> list[str]:
        """The names of parameters that were sent and mean nothing here."""
        return sorted(str(name)[:100] for name, value in (self.model_extra or {}).items() if value is not None)[:50]

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `fill` and of the completions."""
        settings: dict[str, Any] = {"arc": self.fabula.arc, "candidates": self.n or 1, "max_tokens": self.max_tokens}
        if self.temperature is not None:
            settings |= {"top_k": 1} if self.temperature < GREEDY else {"temperature": self.temperature}
        return {**settings, "stop": [self.stop] if isinstance(self.stop, str) else self.stop or []}

    def complete(self, model: StoryModel, **options: Any) -> Iterator[Completion]:
        """The completions, each at least as good as the one before."""
        raise NotImplementedError


class CompletionBody(Request):
    """A request as OpenAI's clients send it."""

    prompt: Prose | Annotated[list[Prose], Field(min_length=1, max_length=1)] = Field(
        "", description="How the story begins; a sentence that is not ended is gone on with."
    )
    suffix: Prose | None = Field(None, description="How the story ends.")

    def complete(self, model: StoryModel, **options: Any) -> Iterator[Completion]:
        prompt = self.prompt if isinstance(self.prompt, str) else self.prompt[0]
        options = {**self.options, **options, "sentences": self.fabula.sentences}
        return complete_iter(model, prompt, self.suffix or "", **options)


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


REFUSAL: dict[int | str, dict[str, Any]] = {"default": {"description": "A mistake, as OpenAI's clients read it"}}
STREAMED = {"content": {"text/event-stream": {"schema": EVENT}}, "description": "An answer, or events"}


class Answer:
    """The answer to one request: its fields, whole or as events."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, body: Request, models: ModelCache) -> None:
        self.body, self.models, name = body, models, models.default if body.model is None else body.model
        self.seed = secrets.randbelow(SEEDS) if body.seed is None else body.seed
        self.head = {"id": f"{self.prefix}-{secrets.token_hex(12)}", "created": int(time.time()), "model": name}

    def completions(self) -> Iterator[Completion]:
        """The completions, each at least as good as the one before."""
        try:
            model = self.models.get(self.body.model)
        except UserError as error:
            raise RefusedError(404, str(error), field=error.field) if error.field == "model" else error from error
        samples = min(model.usual_samples(candidates=self.body.n or 1), USUAL_SAMPLES)
        yield from self.body.complete(model, samples=samples, seed=self.seed)

    def choice(self, text: str, finish: str | None) -> dict[str, Any]:
        """A whole text."""
        return {"text": text, "finish_reason": finish}

    piece = choice
    """A part of a text, in a stream."""

    def usage(self, completion: Completion) -> dict[str, int]:
        written = sum(passage.tokens for passage in completion.passages)
        total = completion.prompt_tokens + written
        return {"prompt_tokens": completion.prompt_tokens, "completion_tokens": written, "total_tokens": total}

    def extra(self, completion: Completion) -> dict[str, Any]:
        columns = {
            column: [[getattr(sentence, name) for sentence in passage.sentences] for passage in completion.passages]
            for column, name in (("tags", "tag"), ("asked", "asked"), ("met", "met"))
        }
        return {"seed": self.seed, **columns, "notes": list(completion.filling.notes), "ignored": self.body.ignored}

    def whole(self, completion: Completion) -> dict[str, Any]:
        choices = [
            {"index": i, "logprobs": None, **self.choice(passage.text, passage.finish)}
            for i, passage in enumerate(completion.passages)
        ]
        more = {"choices": choices, "usage": self.usage(completion), "fabula": self.extra(completion)}
        return {**self.head, "object": self.kind, **more}

    async def events(self, job: Job) -> AsyncIterator[ServerSentEvent]:
        """The chosen texts sentence by sentence, then `[DONE]`."""
        head = {**self.head, "object": self.chunk_kind}

        def event(data: Any) -> ServerSentEvent:
            return ServerSentEvent(json.dumps(data, ensure_ascii=False), sep="\n")

        def chunk(text: str, index: int, finish: str | None = None, **more: Any) -> ServerSentEvent:
            return event({**head, "choices": [{"index": index, "logprobs": None, **self.piece(text, finish)}], **more})

        with closing(job):
            try:
                completion: Completion = await job.last()
                for index, passage in enumerate(completion.passages):
                    for text in passage.pieces:
                        yield chunk(text, index)
                    is_last = index == len(completion.passages) - 1
                    yield chunk("", index, passage.finish, **({"fabula": self.extra(completion)} if is_last else {}))
                if (self.body.stream_options or {}).get("include_usage"):
                    yield event({**head, "choices": [], "usage": self.usage(completion)})
            except Exception as error:
                yield event(converted(errors.of(error))[1])
            yield ServerSentEvent("[DONE]", sep="\n")


class ChatAnswer(Answer):
    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def choice(self, text: str, finish: str | None) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}, "finish_reason": finish}

    def piece(self, text: str, finish: str | None) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": text} if text else {}, "finish_reason": finish}


def router(models: ModelCache, pool: WorkerPool) -> APIRouter:
    """The routes over these models and this queue."""
    routes = APIRouter(prefix="/v1", tags=["completions"], responses=REFUSAL)
    started = int(time.time())

    @routes.get("/models", summary="The models")
    def list_models() -> dict[str, Any]:
        names = [facts["name"] for facts in models.listed() if not facts.get("damaged")]
        entry = {"object": "model", "created": started, "owned_by": "fabula"}
        return {"object": "list", "data": [{"id": name, **entry} for name in names]}

    @routes.get("/models/{name}", summary="One model")
    def one_model(name: str) -> dict[str, Any]:
        for entry in list_models()["data"]:
            if entry["id"] == name:
                return dict(entry)
        raise RefusedError(404, f"no model is called {name!r} here", field="model")

    @routes.post("/completions", summary="The text between a prompt and a suffix", responses={200: STREAMED})
    async def completions(http: HTTPRequest, body: CompletionBody) -> Response:
        """As OpenAI's legacy completions: `prompt` is the opening, `suffix` the ending, `n` candidates, best first."""
        return await respond(http, Answer(body, models), pool)

    @routes.post("/chat/completions", summary="A story with blanks, filled in", responses={200: STREAMED})
    async def chat(http: HTTPRequest, body: ChatBody) -> Response:
        """As OpenAI's chat completions: the last user message is the story, the answer the whole of it."""
        return await respond(http, ChatAnswer(body, models), pool)

    return routes


async def respond(http: HTTPRequest, answer: Answer, pool: WorkerPool) -> Response:
    """The answer whole, or as a stream where the request wants one."""
    if answer.body.stream:
        job = pool.submit(answer.completions)
        return event_stream(job, answer.events(job))

    def work() -> Iterator[dict[str, Any]]:
        *_, last = answer.completions()
        yield answer.whole(last)

    return await last_answer(http, pool.submit(work))


def converted(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The status and the body of our error shape as OpenAI's clients read them: a wrong request is 400, not 422."""
    message, field, status = (body["error"][name] for name in ("message", "field", "status"))
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code = "model_not_found" if status == 404 and field == "model" else CODES.get(status)
    content = {"error": {"message": message, "type": kind, "param": field, "code": code}}
    return 400 if status == 422 else status, content

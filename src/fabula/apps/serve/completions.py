"""OpenAI-style completions: /v1/completions and /v1/models, so that clients of that API can fill in stories.

`prompt` is how the story begins and `suffix` how it ends. What that API has no word for stands under `fabula`: how many
sentences to write, and their moods. Parameters that mean nothing to these models are listed in the answer, not dropped
in silence. A stream has the chosen text sentence by sentence: candidates are ranked when all are drawn, so nothing can
be sent before that but comments that keep the connection alive.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fabula.apps.studio.bodies import Arc, sentence_fits
from fabula.apps.studio.jobs import Job, Jobs
from fabula.apps.studio.narrators import Narrators
from fabula.apps.studio.settings import CANDIDATES, CHARACTERS, SEEDS, SENTENCES, USUAL_SAMPLES
from fabula.apps.studio.writing import PING_SECONDS, answered
from fabula.apps.web import errors
from fabula.apps.web.errors import RefusedError
from fabula.completion import Completion, complete_iter
from fabula.corpus.tokenize import split_paragraph
from fabula.errors import UserError

EVENT = {"type": "object", "required": ["data"], "properties": {"data": {"type": "string"}}}
"""One server-sent event, for the OpenAPI document: its data is JSON, and `[DONE]` in the last."""

GREEDY = 0.05
"""Temperatures below this are greedy decoding, as 0 is there."""
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


def _sentences_fit(text: str) -> str:
    for sentence in split_paragraph(text):
        sentence_fits(sentence)
    return text


Prose = Annotated[str, Field(max_length=SENTENCES[1] * CHARACTERS), AfterValidator(_sentences_fit)]


class Extra(BaseModel):
    """What Fabula asks beyond OpenAI's API."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sentences: int | None = Field(
        default=None, ge=1, le=SENTENCES[1], description="How many to write; null: up to 5 in all."
    )
    arc: Arc = Field(default=None, description="A mood for each sentence that is written.")


class CompletionBody(BaseModel):
    """A request as OpenAI's clients send it."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    model: str | None = Field(None, max_length=200, description="A name of /v1/models; null: this server's own.")
    prompt: Prose | Annotated[list[Prose], Field(min_length=1, max_length=1)] = Field(
        "", description="How the story begins; a sentence that is not ended is gone on with."
    )
    suffix: Prose | None = Field(None, description="How the story ends.")
    n: int | None = Field(None, ge=1, le=CANDIDATES, description="How many texts; null: 1.")
    stream: bool | None = None
    seed: int | None = Field(None, ge=0, le=SEEDS, description="null: another one each time, told in the answer.")
    temperature: float | None = Field(None, ge=0, le=5, description="null: the model's own; 0 is greedy.")
    max_tokens: int | None = Field(None, ge=1, le=100_000, description="null: as long as its sentences are.")
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    echo: bool | None = Field(None, description="Whether the prompt comes back before the text.")
    stream_options: dict[str, Any] | None = None
    fabula: Extra = Extra()

    @property
    def beginning(self) -> str:
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]

    @property
    def ignored(self) -> list[str]:
        """What was sent and means nothing here."""
        return sorted(str(name)[:100] for name, value in (self.model_extra or {}).items() if value is not None)[:50]


class Choice(BaseModel):
    text: str
    index: int
    logprobs: None = None
    finish_reason: Literal["stop", "length"] | None


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Told(BaseModel):
    """What Fabula adds to an answer."""

    seed: int
    tags: list[list[str | None]] = Field(description="The moods of the written sentences, for each choice.")
    notes: list[str]
    ignored: list[str] = Field(description="Parameters of the request that mean nothing to this model.")


class CompletionAnswer(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None = None
    fabula: Told | None = None


class ModelEntry(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[ModelEntry]


class OpenAIFault(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """The body of every answer with a status of 400 or more, as OpenAI's clients read it."""

    error: OpenAIFault


def router(narrators: Narrators, jobs: Jobs) -> APIRouter:
    """The routes over these models and this queue."""
    refusal: dict[int | str, dict[str, Any]] = {"default": {"model": OpenAIError, "description": "A mistake"}}
    routes = APIRouter(prefix="/v1", tags=["completions"], responses=refusal)
    begun = int(time.time())

    def entries() -> list[dict[str, Any]]:
        names = [facts["name"] for facts in narrators.listed() if not facts.get("damaged")]
        return [{"id": name, "object": "model", "created": begun, "owned_by": "fabula"} for name in names]

    @routes.get("/models", summary="The models", response_model=ModelList)
    def models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": entries()})

    @routes.get("/models/{name}", summary="One model", response_model=ModelEntry)
    def model(name: str) -> JSONResponse:
        found = [entry for entry in entries() if entry["id"] == name]
        if not found:
            raise RefusedError(404, f"no model is called {name!r} here", field="model")
        return JSONResponse(found[0])

    @routes.post(
        "/completions",
        summary="The text between a prompt and a suffix",
        response_model=CompletionAnswer,
        responses={
            200: {
                "content": {"text/event-stream": {"schema": EVENT}},
                "description": "An answer, or events",
            }
        },
    )
    async def completions(request: Request, body: CompletionBody) -> Response:
        """As OpenAI's legacy completions: `prompt` is the opening, `suffix` the ending, `n` candidates, best first."""
        seed = secrets.randbelow(SEEDS) if body.seed is None else body.seed
        name = narrators.default if body.model is None else body.model
        head = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(time.time())}
        head["model"] = name

        def work() -> Iterator[Completion]:
            yield from answers(narrators, name, body, seed)

        def told() -> Iterator[dict[str, Any]]:
            *_, last = work()
            yield {**head, **whole(last, body, seed)}

        if not body.stream:
            return await answered(request, jobs.submit(told))
        job = jobs.submit(work)

        async def gone(_: Message) -> None:
            job.close()

        return EventSourceResponse(
            events(job, head, body, seed), ping=PING_SECONDS, sep="\n", headers={"Cache-Control": "no-store"},
            client_close_handler_callable=gone,
        )  # fmt: skip

    return routes


def answers(narrators: Narrators, name: str, body: CompletionBody, seed: int) -> Iterator[Completion]:
    """The completions of a request, each at least as good as the one before."""
    try:
        narrator = narrators.get(name)
    except UserError as error:
        raise RefusedError(404, str(error), field=error.field) if error.field == "model" else error from error
    settings: dict[str, Any] = {"samples": min(narrator.usual_samples(), USUAL_SAMPLES)}
    if body.temperature is not None:
        settings |= {"top_k": 1} if body.temperature < GREEDY else {"temperature": body.temperature}
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    yield from complete_iter(
        narrator, body.beginning, body.suffix or "", sentences=body.fabula.sentences, arc=body.fabula.arc,
        candidates=body.n or 1, max_tokens=body.max_tokens, stop=stop, seed=seed, **settings,
    )  # fmt: skip


def whole(found: Completion, body: CompletionBody, seed: int) -> dict[str, Any]:
    """The fields of an answer that is not streamed."""
    before = body.beginning if body.echo else ""
    choices = [
        {"text": before + passage.text, "index": i, "logprobs": None, "finish_reason": passage.finish}
        for i, passage in enumerate(found.passages)
    ]
    return {"choices": choices, "usage": usage(found), "fabula": added(found, body, seed)}


def usage(found: Completion) -> dict[str, int]:
    written = sum(passage.tokens for passage in found.passages)
    return {
        "prompt_tokens": found.prompt_tokens, "completion_tokens": written,
        "total_tokens": found.prompt_tokens + written,
    }  # fmt: skip


def added(found: Completion, body: CompletionBody, seed: int) -> dict[str, Any]:
    tags = [list(passage.tags) for passage in found.passages]
    return {"seed": seed, "tags": tags, "notes": list(found.filling.notes), "ignored": body.ignored}


async def events(job: Job, head: dict[str, Any], body: CompletionBody, seed: int) -> AsyncIterator[ServerSentEvent]:
    """The chosen texts sentence by sentence, then `[DONE]`."""

    def chunk(text: str, index: int, finish: str | None = None, **more: Any) -> ServerSentEvent:
        choice = {"text": text, "index": index, "logprobs": None, "finish_reason": finish}
        return ServerSentEvent(json.dumps({**head, "choices": [choice], **more}, ensure_ascii=False), sep="\n")

    async with job:
        try:
            found = await job.last()
            for index, passage in enumerate(found.passages):
                for text in (*([body.beginning] if body.echo else []), *passage.pieces):
                    yield chunk(text, index)
                last = index == len(found.passages) - 1
                yield chunk("", index, passage.finish, **({"fabula": added(found, body, seed)} if last else {}))
            if (body.stream_options or {}).get("include_usage"):
                yield ServerSentEvent(json.dumps({**head, "choices": [], "usage": usage(found)}), sep="\n")
        except UserError as error:
            yield ServerSentEvent(json.dumps(converted(errors.of(error))), sep="\n")
        except Exception:
            errors.logger.exception("a stream failed")
            fault = errors.body(500, "a fault of Fabula's: see the terminal it runs in")
            yield ServerSentEvent(json.dumps(converted(fault)), sep="\n")
        yield ServerSentEvent("[DONE]", sep="\n")


def converted(told: dict[str, Any]) -> dict[str, Any]:
    """Our error shape as OpenAI's clients read it."""
    fault = told["error"]
    status = fault["status"]
    usual = "server_error" if status >= 500 else "invalid_request_error"
    code = "model_not_found" if status == 404 and fault["field"] == "model" else CODES.get(status)
    kind = TYPES.get(status, usual)
    return {"error": {"message": fault["message"], "type": kind, "param": fault["field"], "code": code}}


def install(app: FastAPI) -> None:
    """Errors below /v1 in OpenAI's shape, the guard's too. After `guard.protect`."""
    app.add_middleware(OpenAIErrors)


class OpenAIErrors:
    """Rewrites refusals on their way out; what is wrong with a request is 400 there, not 422."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self.app(scope, receive, send)
            return
        start: Message | None = None

        async def rewritten(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and message["status"] >= 400:
                start = message
                return
            if start is None:
                await send(message)
                return
            try:  # every refusal of ours is one short body
                content = converted(json.loads(message["body"]))
            except (ValueError, KeyError, TypeError):
                content = converted(errors.body(start["status"], "this was refused"))
            data = json.dumps(content, ensure_ascii=False).encode()
            kept = [(k, v) for k, v in start["headers"] if k.lower() not in (b"content-length", b"content-type")]
            start["headers"] = [
                *kept, (b"content-length", str(len(data)).encode()), (b"content-type", b"application/json"),
            ]  # fmt: skip
            start["status"] = 400 if start["status"] == 422 else start["status"]
            await send(start)
            await send({"type": "http.response.body", "body": data, "more_body": False})

        await self.app(scope, receive, rewritten)

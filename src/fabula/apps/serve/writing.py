"""The routes that use a model: fill, write, tag, score, posterior, explain. Each request is a job in the queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, nullcontext, suppress
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import Field
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message

from fabula.api import Explanation, Filling, OtherWords, Score, Tagging
from fabula.apps.serve import bodies
from fabula.apps.serve.bodies import FillBody
from fabula.apps.serve.jobs import Job, WorkerPool, current_job
from fabula.apps.serve.models import ModelCache
from fabula.apps.web import errors
from fabula.listening import listening

PING_SECONDS = 15
WAITING_SECONDS = 0.3  # how often a stream tells how many jobs come before its own
REFUSALS = errors.responses(400, 401, 403, 413, 422, 429, 503)
EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["waiting", "progress", "writing", "candidates", "done", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
"""One server-sent event, for the OpenAPI document."""


class Moods(errors.Answer):
    """p(S_i | X+): the band of free points."""

    tags: list[dict[str, float]] = Field(description="The share of each label of the mood, by sentence.")
    factors: list[dict[str, dict[str, float]]] | None = Field(
        None, description="The same of further factors by name, for a model that has them."
    )
    samples: int
    seed: int
    model: str


class Mentioned(errors.Answer):
    """Whom and what the lines name."""

    people: list[bodies.PersonBody]
    places: list[str]


def answers(models: ModelCache, body: FillBody, *, at_once: bool = False) -> Iterator[dict[str, Any]]:
    """The answers of a fill as they come. With `at_once` only the last one counts, which comes sooner."""
    model = models.get(body.model)
    with nullcontext() if at_once else listening(partial(current_job().send, "writing")):
        for answer in model.fill_iter(at_once=at_once, **body.arguments_for(model)):
            yield answer.to_dict(4)


def add_fill(routes: APIRouter, models: ModelCache, pool: WorkerPool) -> None:
    """Add the routes that fill in."""

    @routes.post("/fill", summary="Fill in the missing sentences", response_model=Filling)
    async def fill(request: Request, body: FillBody) -> JSONResponse:
        """What `fabula fill --json` prints for the same seed."""
        return await last_answer(request, pool.submit(partial(answers, models, body, at_once=True)))

    @routes.post(
        "/fill/stream",
        summary="Fill in the missing sentences, as they come",
        response_class=EventSourceResponse,
        responses={200: {"content": {"text/event-stream": {"schema": EVENT}}, "description": "Events, one by one"}},
    )
    async def fill_stream(body: FillBody) -> EventSourceResponse:
        """Server-sent events: `waiting` {ahead} while others have their turn, `progress` {drawn, samples}, `writing`
        {lines} (before the first answer: the text so far of one sample, by number of the line from 1), `candidates` (an
        answer so far, each at least as good as the one before), at last `done` (what /api/fill answers) or `error`
        (the error shape). Whoever leaves ends the job.
        """
        job = pool.submit(partial(answers, models, body))
        return event_stream(job, events(job, body.samples or 1))


ROUTES: tuple[tuple[str, type[bodies.ModelBody], type[Any], str, str], ...] = (
    ("write", bodies.WriteBody, Filling, "Write a story from nothing", "What `fabula write --json` prints for a seed."),
    ("tag", bodies.TagBody, Tagging, "The mood of every sentence", "What `fabula tag --json` prints."),
    (
        *("mentions", bodies.MentionsBody, Mentioned, "Who and where: people and places that the lines name"),
        "The pronoun is the name's in the training corpus, else the one that the lines around it have more of.",
    ),
    (
        *("words", bodies.WordsBody, OtherWords, "Another word"),
        "Up to eight words for a place in a line, the best first, by p(word | what is before) p(what follows | it).",
    ),
    ("score", bodies.ScoreBody, Score, "How probable a story is", "What `fabula score --json` prints for a seed."),
    (
        *("posterior", bodies.PosteriorBody, Moods, "The moods that a story leaves open"),
        "p(S_i | X+) of every sentence, missing ones included: the band around the free points of the arc.",
    ),
    (
        *("explain", bodies.ExplainBody, Explanation, "Why each sentence"),
        "The probability of every word, and how each sentence fits what came before (nats a word), what follows (nats; "
        "above 0: more expected with it than without it) and the arc (log q of the tag asked for).",
    ),
)
"""The name of a route and of the method of `StoryModel` that it calls, its body, its answer, and what it does."""


def router(models: ModelCache, pool: WorkerPool) -> APIRouter:
    """The routes over these models and this queue."""
    routes = APIRouter(prefix="/api", tags=["writing"], responses=REFUSALS)
    add_fill(routes, models, pool)

    def add(name: str, kind: type[bodies.ModelBody], answer: type[Any], summary: str, about: str) -> None:
        fields = getattr(answer, "model_fields", None)  # of a posterior, some are not for this route

        async def route(request: Request, body: Any) -> JSONResponse:
            def work() -> Iterator[dict[str, Any]]:
                content = getattr(models.get(body.model), name)(**body.arguments()).to_dict(4)
                yield {key: value for key, value in content.items() if fields is None or key in fields}

            return await last_answer(request, pool.submit(work))

        route.__annotations__["body"] = kind
        named: dict[str, Any] = {"name": name, "summary": summary, "description": about, "response_model": answer}
        routes.add_api_route(f"/{name}", route, methods=["POST"], **named)

    for route in ROUTES:
        add(*route)
    return routes


async def last_answer(request: Request, job: Job) -> JSONResponse:
    """The job's last answer; the job ends if the client leaves before it is there."""

    async def client_leaves() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    with closing(job):
        answer, leaving = asyncio.create_task(job.last()), asyncio.create_task(client_leaves())
        try:
            await asyncio.wait({answer, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise errors.RefusedError(499, "the client left")
            return JSONResponse(answer.result())
        finally:
            for task in (answer, leaving):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await leaving


def event_stream(job: Job, events: AsyncIterator[ServerSentEvent]) -> EventSourceResponse:
    """The events of a job, which ends if the client leaves, even before its first event."""

    async def close(_: Message) -> None:
        job.close()

    headers = {"Cache-Control": "no-store"}
    return EventSourceResponse(
        events, ping=PING_SECONDS, sep="\n", headers=headers, client_close_handler_callable=close
    )


async def events(job: Job, samples: int) -> AsyncIterator[ServerSentEvent]:
    """A job's answers as events, the last of them twice: as `candidates` at once, as `done` when it is known to be."""
    last, ahead = None, 0
    with closing(job):
        try:
            yield event("progress", {"drawn": 0, "samples": samples})
            while (received := await job.next(WAITING_SECONDS))[0] != "end":
                kind, value = received
                if kind == "answer":
                    last = value
                    yield event("progress", {"drawn": last["drawn"], "samples": last["samples"]})
                    yield event("candidates", last)
                elif kind == "writing" and last is None:
                    yield event("writing", {"lines": value})
                elif (now_ahead := job.pool.ahead(job)) != ahead:
                    ahead = now_ahead
                    yield event("waiting", {"ahead": ahead})
            yield event("done", last)
        except Exception as error:
            yield event("error", errors.of(error))


def event(name: str, data: Any) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(data, ensure_ascii=False), event=name, sep="\n")

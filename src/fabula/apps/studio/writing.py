"""The routes that use a model: fill, write, tag, score, posterior, explain. Each is a job in the queue."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message

from fabula.api import Explanation, Filling, Narrator, Score, Tagging
from fabula.apps.studio.answers import Mentioned, Moods
from fabula.apps.studio.bodies import ExplainBody, FillBody, MentionsBody, PosteriorBody, ScoreBody, TagBody, WriteBody
from fabula.apps.studio.jobs import ROWS, Job, Jobs, Together
from fabula.apps.studio.narrators import Narrators
from fabula.apps.web import errors
from fabula.errors import UserError

LONG = 16
"""Lines of a story above which it is filled in alone: the others would wait for its end."""
NARRATOR_SAMPLES = 8
"""What a story counts in a batch where the number of its samples is left to the model."""
PING_SECONDS = 15
TOLD_SECONDS = 0.3
"""How often a stream says where its job stands."""
REFUSALS = errors.responses(400, 401, 403, 413, 422, 429, 503)
EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["waiting", "progress", "candidates", "done", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
"""One server-sent event, for the OpenAPI document."""


def router(narrators: Narrators, jobs: Jobs) -> APIRouter:
    """The routes over these models and this queue."""
    routes = APIRouter(prefix="/api", tags=["writing"], responses=REFUSALS)

    async def one(request: Request, model: str | None, call: Callable[[Narrator], Any]) -> JSONResponse:
        """The one answer of a job, unless the client leaves before it is there."""

        def work() -> Iterator[dict[str, Any]]:
            yield call(narrators.get(model)).to_json()

        return await answered(request, jobs.submit(work))

    def filled(body: FillBody, *, at_once: bool = False) -> Together:
        """Filling in, together with others of about this length who want the same of the same model.

        With `at_once` only the last answer is wanted, and comes sooner.
        """

        def work(bodies: Sequence[FillBody]) -> Iterator[list[dict[str, Any] | UserError]]:
            narrator = narrators.get(body.model)
            for answers in narrator.fill_together([one.arguments_for(narrator) for one in bodies], at_once):
                yield [one if isinstance(one, UserError) else one.to_json() for one in answers]

        own = {"sentences", "arc", "starts", "seed", "candidates", "notes"}
        length = math.ceil(math.log2(len(body.sentences)))
        rows = ROWS if len(body.sentences) > LONG else body.samples or NARRATOR_SAMPLES
        return Together((length, at_once, body.model_dump_json(exclude=own)), rows, body, work)

    @routes.post("/fill", summary="Fill in the missing sentences", response_model=Filling)
    async def fill(request: Request, body: FillBody) -> JSONResponse:
        """What `fabula fill --json` prints for the same seed."""
        return await answered(request, jobs.submit(filled(body, at_once=True)))

    @routes.post(
        "/fill/stream",
        summary="Fill in the missing sentences, as they come",
        response_class=EventSourceResponse,
        responses={200: {"content": {"text/event-stream": {"schema": EVENT}}, "description": "Events, one by one"}},
    )
    async def fill_stream(body: FillBody) -> EventSourceResponse:
        """Server-sent events: `waiting` {ahead} while others have their turn, `progress` {drawn, samples}, `candidates`
        (an answer so far, each at least as good as the one before), at last `done` (what /api/fill answers) or `error`
        (the error shape). Whoever leaves ends the job.
        """
        job = jobs.submit(filled(body))

        async def gone(_: Message) -> None:
            job.close()  # also where the client has left before its first event

        return EventSourceResponse(
            events(job, body.samples or 1), ping=PING_SECONDS, sep="\n", headers={"Cache-Control": "no-store"},
            client_close_handler_callable=gone,
        )  # fmt: skip

    @routes.post("/write", summary="Write a story from nothing", response_model=Filling)
    async def write(request: Request, body: WriteBody) -> JSONResponse:
        """What `fabula write --json` prints for the same seed."""
        return await one(request, body.model, lambda narrator: narrator.write(**body.arguments()))

    @routes.post("/tag", summary="The mood of every sentence", response_model=Tagging)
    async def tag(request: Request, body: TagBody) -> JSONResponse:
        """What `fabula tag --json` prints."""
        return await one(request, body.model, lambda narrator: narrator.tag(body.sentences, factors=body.factors))

    @routes.post("/mentions", summary="Who and where: people and places that the lines name", response_model=Mentioned)
    async def mentions(request: Request, body: MentionsBody) -> JSONResponse:
        """The pronoun is the name's in the training corpus, else the one that the lines around it have more of."""
        return await one(request, body.model, lambda narrator: narrator.mentions(body.sentences))

    @routes.post("/score", summary="How probable a story is", response_model=Score)
    async def score(request: Request, body: ScoreBody) -> JSONResponse:
        """What `fabula score --json` prints for the same seed."""
        arguments = body.model_dump(exclude={"model"})
        return await one(request, body.model, lambda narrator: narrator.score(**arguments))

    @routes.post("/posterior", summary="The moods that a story leaves open", response_model=Moods)
    async def posterior(request: Request, body: PosteriorBody) -> JSONResponse:
        """p(S_i | X+) of every sentence, missing ones included: the band around the free points of the arc."""
        arguments = body.model_dump(exclude={"model"})

        def work() -> Iterator[dict[str, Any]]:
            told = narrators.get(body.model).posterior(**arguments).to_json()
            yield {name: told[name] for name in Moods.model_fields if name in told}

        return await answered(request, jobs.submit(work))

    @routes.post("/explain", summary="Why each sentence", response_model=Explanation)
    async def explain(request: Request, body: ExplainBody) -> JSONResponse:
        """The probability of every word, and how each sentence fits what came before (nats a word), what follows (nats;
        above 0: more expected with it than without it) and the arc (log q of the tag asked for).
        """
        arguments = body.model_dump(exclude={"model"})
        return await one(request, body.model, lambda narrator: narrator.explain(**arguments))

    return routes


async def answered(request: Request, job: Job) -> JSONResponse:
    """The job's last answer. Whoever leaves before it is there takes the job along."""
    async with job:
        waiting = asyncio.create_task(job.last())
        leaving = asyncio.create_task(left(request))
        try:
            await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return errors.answer(499, "the client left")
            return JSONResponse(waiting.result())
        finally:
            for task in (waiting, leaving):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await leaving


async def left(request: Request) -> None:
    """Until the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def events(job: Job, samples: int) -> AsyncIterator[ServerSentEvent]:
    """A job's answers as events, the last of them twice: as `candidates` at once, as `done` when it is known to be.

    Between them, how many wait before it, and how far it is: the second round of samples takes about as many operations
    as the first, whatever their number, and is mostly the last.
    """
    async with job:
        last, ahead, round_steps, round_begun = None, 0, 0, 0
        drawn = shown = 0
        try:
            yield event("progress", {"drawn": 0, "samples": samples})
            while True:
                kind, value = await job.next(TOLD_SECONDS)
                if kind == "end":
                    break
                if kind == "answer":
                    steps = job.leader.steps
                    last, round_steps, round_begun = value, steps - round_begun, steps
                    samples = last["samples"]
                    drawn, shown = last["drawn"], max(shown, last["drawn"])
                    yield event("progress", {"drawn": shown, "samples": last["samples"]})
                    yield event("candidates", last)
                elif (now_ahead := job.jobs.ahead(job) if not job.started else 0) != ahead:
                    ahead = now_ahead
                    yield event("waiting", {"ahead": ahead})
                elif round_steps and drawn < samples:
                    share = min(0.95, (job.leader.steps - round_begun) / round_steps)
                    guess = drawn + int(share * (samples - drawn))
                    if guess > shown:
                        shown = guess
                        yield event("progress", {"drawn": shown, "samples": samples})
            yield event("done", last)
        except UserError as error:
            yield event("error", errors.of(error))
        except Exception:
            errors.logger.exception("a stream failed")
            yield event("error", errors.body(500, "a fault of Fabula's: see the terminal it runs in"))


def event(name: str, data: Any) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(data, ensure_ascii=False), event=name, sep="\n")

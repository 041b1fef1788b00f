"""The judge over HTTP: tasks and answers for annotators, error sheets for the curator.

What an annotator is sent names no system and no pair. The curator's routes do, so they require the curator's key.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Header, Query
from pydantic import Field, JsonValue
from starlette.responses import FileResponse

from fabula import __version__
from fabula.apps.judge import tasks
from fabula.apps.judge.judgement import CODE, LOWEST_STORIES, MAX_SECONDS, SCALE, ErrorSheet, SheetAnswers
from fabula.apps.judge.judgement import lowest_stories as lowest
from fabula.apps.judge.pairs import systems_of
from fabula.apps.judge.store import Store
from fabula.apps.judge.study import Choice
from fabula.apps.judge.tasks import Task
from fabula.apps.web import errors, guard, static
from fabula.apps.web.errors import Answer, RefusedError, responses

PAGE = Path(__file__).parent / "page"
MAX_BODY = 64 * 1024
"""An answer of 64 sentences a side is far below it."""

Rating = Annotated[int, Field(ge=SCALE[0], le=SCALE[-1], strict=True)]
Ratings = Annotated[list[Annotated[list[Rating], Field(max_length=63)]], Field(min_length=2, max_length=2)]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False, description="Time the pair was looked at.")]
# The pattern is documented here and checked in the store, whose refusal says it in words.
PATTERN: dict[str, JsonValue] = {"pattern": f"^{CODE.pattern}$"}
Code = Annotated[str, Field(max_length=64, description="The annotator's code.", json_schema_extra=PATTERN)]


class TaskRequest(Answer):
    code: Code


class AnswerRequest(Answer):
    code: Code
    item: int = Field(strict=True)
    ratings: Ratings = Field(description="Of the left story, then the right: a rating of every sentence but the first.")
    choice: Choice
    seconds: Seconds


def create_app(
    store: Store, *, curator: str, host: str = "127.0.0.1", token: str | None = None, names: Collection[str] = ()
) -> FastAPI:
    """The application of `fabula judge serve`; `curator` is the key to what annotators must not see."""
    store.settings()  # a file without a study is refused before the server starts

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        store.close()

    app = FastAPI(
        title="Fabula judge", version=__version__, description="People judge two stories side by side.",
        openapi_url="/api/openapi.json", docs_url=None, redoc_url=None, lifespan=lifespan,
    )  # fmt: skip
    app.include_router(router(store, curator=curator), prefix="/api/judge")

    @app.api_route("/errors", methods=["GET", "HEAD"], include_in_schema=False)
    async def curator_page() -> FileResponse:
        return FileResponse(PAGE / "errors.html", media_type="text/html", headers=static.CACHE)

    static.mount(app, PAGE)
    errors.install(app)
    guard.protect(app, hosts=guard.hosts_of(host, names), token=token, max_body=MAX_BODY)
    return app


def router(store: Store, *, curator: str) -> APIRouter:
    """Every route of the judge; the curator's routes require the key `curator` in X-Fabula-Curator."""

    def require_key(x_fabula_curator: Annotated[str, Header()] = "") -> None:
        if not hmac.compare_digest(x_fabula_curator.encode(), curator.encode()):
            raise RefusedError(403, "this is the curator's: give the key that the server printed")

    routes = APIRouter(tags=["judge"], responses=responses(400, 401, 403, 404, 409, 413, 422, 503))
    only_curator = [Depends(require_key)]

    @routes.post("/tasks")
    def next_task(request: TaskRequest) -> Task:
        """What this annotator judges next. Asked again before an answer, it is the same."""
        return tasks.next_task(store, request.code)

    @routes.post("/answers")
    def answer(request: AnswerRequest) -> dict[Literal["kept", "new"], bool]:
        """Keep an answer. The same answer sent again is acknowledged again and kept once: `new` is then false."""
        content = request.model_dump(exclude={"item", "ratings"})
        return {"kept": True, "new": tasks.answer(store, number=request.item, sides=request.ratings, **content)}

    @routes.get("/errors", dependencies=only_curator)
    def list_lowest_stories(
        system: Annotated[str | None, Query(max_length=80)] = None,
        number: Annotated[int, Query(ge=1, le=1000)] = LOWEST_STORIES,
    ) -> dict[str, Any]:
        """The lowest-rated stories with what the error sheet says of them; who wrote one stays hidden."""
        pairs = [item.pair for item in store.items()]
        sheets = {(sheet.pair, sheet.story): sheet for sheet in store.error_sheets()}
        stories = []
        for pair, story, mean in lowest(pairs, store.judgements(), system=system, number=number):
            content = {"sentences": pair.stories[story], "written": pair.written(story)}
            sheet = sheets.get((pair.id, story))
            stories.append({"pair": pair.id, "story": story, "mean": mean, **content, "sheet": sheet})
        filled = sum(story["sheet"] is not None for story in stories)
        return {"systems": systems_of(pairs), "stories": stories, "answered": filled}

    @routes.put("/errors", dependencies=only_curator)
    def keep_sheet(sheet: ErrorSheet) -> SheetAnswers:
        """Keep the answers about one story, in the place of earlier ones."""
        store.keep_errors(sheet)
        return sheet

    return routes

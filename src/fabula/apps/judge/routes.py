"""The judge over HTTP: tasks and answers for annotators. What they are sent names no system and no pair."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

from fastapi import FastAPI
from pydantic import AfterValidator, Field

from fabula import __version__
from fabula.apps.judge.store import Store, Task
from fabula.apps.judge.study import SCALE, Choice
from fabula.apps.web import errors, guard, static
from fabula.apps.web.errors import Answer

PAGE = Path(__file__).parent / "page"
MAX_BODY = 64 * 1024
"""An answer of 64 sentences a side is far below it."""
CODE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


def _check_code(code: str) -> str:
    if not re.fullmatch(CODE, code):
        raise ValueError("has 1 to 64 letters, digits, dots, hyphens or underscores; the first is a letter or digit")
    return code


Rating = Annotated[int, Field(ge=SCALE[0], le=SCALE[-1], strict=True)]
Ratings = Annotated[list[Annotated[list[Rating], Field(max_length=63)]], Field(min_length=2, max_length=2)]
Code = Annotated[
    str,
    AfterValidator(_check_code),
    Field(max_length=64, description="The annotator's code.", json_schema_extra={"pattern": CODE}),
]


class TaskRequest(Answer):
    code: Code


class AnswerRequest(TaskRequest):
    item: int = Field(strict=True)
    ratings: Ratings = Field(description="Of the left story, then the right: a rating of every sentence but the first.")
    choice: Choice
    seconds: float = Field(ge=0, le=86_400, allow_inf_nan=False, description="Time the pair was looked at.")


def create_app(
    store: Store, *, host: str = "127.0.0.1", token: str | None = None, names: Collection[str] = ()
) -> FastAPI:
    """The application of `fabula judge serve`."""
    store.study()  # a file without a study is refused before the server starts

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        store.close()

    app = FastAPI(
        title="Fabula judge", version=__version__, description="People judge two stories side by side.",
        openapi_url="/api/openapi.json", docs_url=None, redoc_url=None, lifespan=lifespan,
        responses=errors.responses(400, 401, 403, 404, 409, 413, 422, 503),
    )  # fmt: skip

    @app.post("/api/judge/tasks", tags=["judge"])
    def next_task(request: TaskRequest) -> Task:
        """What this annotator judges next. Asked again before an answer, it is the same."""
        return store.next_task(request.code)

    @app.post("/api/judge/answers", tags=["judge"])
    def answer(request: AnswerRequest) -> dict[Literal["kept", "new"], bool]:
        """Keep an answer. The same answer sent again is acknowledged again and kept once: `new` is then false."""
        new = store.answer(request.code, request.item, request.ratings, request.choice, request.seconds)
        return {"kept": True, "new": new}

    static.mount(app, PAGE)
    errors.install(app)
    app.add_middleware(guard.Guard, hosts=guard.hosts_of(host, names), token=token, max_body=MAX_BODY)
    return app

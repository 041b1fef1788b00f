"""`fabula judge serve` as one application: the routes, the two pages, the guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import FileResponse

from fabula import __version__
from fabula.apps.judge.routes import router
from fabula.apps.judge.store import Store
from fabula.apps.web import errors, guard, static

PAGE = Path(__file__).parent / "page"
MAX_BODY = 64 * 1024
"""An answer of 64 sentences a side is far below it."""


def create_app(
    store: Store,
    *,
    curator: str,
    host: str = "127.0.0.1",
    token: str | None = None,
    names: Collection[str] = (),
) -> FastAPI:
    """The application of one study; `curator` is the key to what annotators must not see."""
    store.settings()  # a file without a study is told before the server starts

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        store.close()

    app = FastAPI(
        title="Fabula judge",
        version=__version__,
        description="People judge two stories side by side.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.include_router(router(store, curator=curator), prefix="/api/judge")

    async def error_sheet() -> FileResponse:
        return FileResponse(PAGE / "errors.html", media_type="text/html", headers=static.CACHE)

    async def how_far() -> FileResponse:
        return FileResponse(PAGE / "progress.html", media_type="text/html", headers=static.CACHE)

    app.add_api_route("/errors", error_sheet, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/progress", how_far, methods=["GET", "HEAD"], include_in_schema=False)
    static.mount(app, PAGE)
    errors.install(app)
    guard.protect(app, hosts=guard.hosts_of(host, names), token=token, max_body=MAX_BODY)
    return app

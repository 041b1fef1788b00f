"""`fabula serve`: the routes that use a model, with no page and no file of stories; for other programs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.middleware.cors import CORSMiddleware

from fabula import __version__
from fabula.apps.serve import completions
from fabula.apps.studio import writing
from fabula.apps.studio.answers import Health
from fabula.apps.studio.jobs import Jobs
from fabula.apps.studio.narrators import Narrators
from fabula.apps.studio.settings import StudioSettings
from fabula.apps.web import errors, guard
from fabula.device import use_threads


def create_server(settings: StudioSettings) -> FastAPI:
    """The application; its model is loaded when this returns, so that mistakes come before."""
    narrators = Narrators(settings.model, settings.device, settings.loaded, settings.threads)
    narrators.get(None)
    jobs = Jobs(settings.workers, settings.queue, lambda: use_threads(settings.threads), settings.limit)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        jobs.close()

    app = FastAPI(
        title="Fabula", version=__version__, description="Fill in short stories along an emotional arc.",
        openapi_url="/api/openapi.json", docs_url=None, redoc_url=None, lifespan=lifespan,
    )  # fmt: skip

    @app.get("/api/health", tags=["server"], response_model=Health, responses=errors.responses(401, 403))
    async def health() -> JSONResponse:
        told = {"status": "ok", "version": __version__, "model": settings.model, "jobs": jobs.counts}
        return JSONResponse(told)

    app.include_router(completions.router(narrators, jobs))
    app.include_router(writing.router(narrators, jobs))
    errors.install(app)
    guard.protect(
        app, hosts=guard.hosts_of(settings.host, settings.names), token=settings.token, max_body=settings.max_body,
        origins=settings.origins,
    )  # fmt: skip
    completions.install(app)
    if settings.origins:  # outermost, so that a page also reads why it was refused
        app.add_middleware(
            CORSMiddleware, allow_origins=sorted(settings.origins), allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )  # fmt: skip
    return app

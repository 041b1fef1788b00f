"""The application of `fabula serve`: the routes that use a model, for other programs. The studio adds its own to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from fabula import __version__
from fabula.apps.serve import completions, writing
from fabula.apps.serve.jobs import WorkerPool
from fabula.apps.serve.models import ModelCache
from fabula.apps.serve.settings import ServerSettings
from fabula.apps.web import errors, guard
from fabula.device import use_threads
from fabula.servers import PREFIX


def create_server(
    settings: ServerSettings, title: str = "Fabula", about: str = "Fill in short stories along an emotional arc."
) -> FastAPI:
    """The application. Its model is loaded when this returns, so that mistakes are told before.

    `app.state.models` is its `ModelCache`; what is pushed on `app.state.resources` is closed at the end.
    """
    models = ModelCache(settings.model, settings.device, settings.loaded, settings.threads)
    models.get(None)
    pool = WorkerPool(settings.workers, settings.queue, lambda: use_threads(settings.threads))
    resources = ExitStack()
    resources.callback(pool.close)

    def warm_up() -> Iterator[None]:
        """A small fill: the first one of a process takes a second longer than later ones."""
        for _ in models.get(None).fill_iter(["We went home.", None, "We slept."], samples=2):
            yield None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if not settings.model.startswith(PREFIX):  # another's server is asked for nothing that nobody wants
            pool.submit(warm_up)
        with resources:
            yield

    app = FastAPI(
        title=title, version=__version__, description=about, openapi_url="/api/openapi.json", lifespan=lifespan,
        docs_url=None, redoc_url=None,  # these pages load files from other hosts
    )  # fmt: skip
    app.state.models, app.state.resources = models, resources

    refusals = errors.responses(401, 403)

    @app.get("/api/health", tags=["server"], summary="Whether it works", responses=refusals)
    async def health() -> dict[str, Any]:
        return {"status": "ok", "version": __version__, "model": settings.model, "jobs": pool.counts}

    @app.get("/api/models", tags=["server"], summary="The models", responses=refusals)
    def list_models() -> dict[str, Any]:
        """What a request may name as its model."""
        return {"models": models.listed()}

    app.include_router(completions.router(models, pool))
    app.include_router(writing.router(models, pool))
    app.state.error_shapes = {"/v1/": completions.converted}
    errors.install(app)
    app.add_middleware(
        guard.Guard, hosts=guard.hosts_of(settings.host, settings.names), token=settings.token,
        max_body=settings.max_body, origins=settings.origins,
    )  # fmt: skip
    if settings.origins:  # outermost, so that a page also reads why it was refused
        app.add_middleware(
            CORSMiddleware, allow_origins=sorted(settings.origins), allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )  # fmt: skip
    return app

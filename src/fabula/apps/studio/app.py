"""The studio as one application: routes, page, guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from fabula import __version__
from fabula.api import Narrator
from fabula.apps.judge import routes as judging
from fabula.apps.judge.store import Store as JudgeStore
from fabula.apps.serve import completions
from fabula.apps.studio import stories, writing
from fabula.apps.studio.answers import Health, Limits, Models
from fabula.apps.studio.jobs import Jobs
from fabula.apps.studio.narrators import Narrators
from fabula.apps.studio.settings import CANDIDATES, CHARACTERS, SAMPLES, SENTENCES, SNAPSHOTS, WORDS, StudioSettings
from fabula.apps.studio.store import BRANCHES, Store
from fabula.apps.web import errors, guard, static
from fabula.device import use_threads

PAGE = Path(__file__).parent / "page"


def warm(narrator: Narrator) -> Iterator[None]:
    """A small fill as a job, run at the start: a process's first fill takes a second longer than later ones."""
    for _ in narrator.fill_iter(["We went home.", None, "We slept."], samples=2):
        yield None


def create_app(settings: StudioSettings) -> FastAPI:
    """The application of a studio. Its model is loaded and its file open when this returns: mistakes come before."""
    narrators = Narrators(settings.model, settings.device, settings.loaded, settings.threads)
    narrators.get(None)
    store, judgements = Store(settings.db), JudgeStore(settings.db)  # last: a mistake leaves no new file behind
    jobs = Jobs(settings.workers, settings.queue, lambda: use_threads(settings.threads), settings.limit)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        jobs.submit(lambda: warm(narrators.get(None)))
        yield
        jobs.close()
        judgements.close()
        store.close()

    app = FastAPI(
        title="Fabula studio",
        version=__version__,
        description="Write and fill in short stories along an emotional arc.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # the usual pages of documentation come from elsewhere, and this server has no elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    refusals = errors.responses(401, 403)

    @app.get("/api/health", tags=["studio"], summary="Whether it works", response_model=Health, responses=refusals)
    async def health() -> JSONResponse:
        told = {"status": "ok", "version": __version__, "model": settings.model, "jobs": jobs.counts}
        return JSONResponse(told)

    @app.get("/api/models", tags=["studio"], summary="The models", response_model=Models, responses=refusals)
    def models() -> JSONResponse:
        """What a request may name as its model."""
        return JSONResponse({"models": narrators.listed()})

    @app.get("/api/limits", tags=["studio"], summary="The limits", response_model=Limits, responses=refusals)
    async def limits() -> Limits:
        return Limits(
            sentences=list(SENTENCES), words=WORDS, characters=CHARACTERS, candidates=CANDIDATES, samples=SAMPLES,
            body=settings.max_body, snapshots=SNAPSHOTS, branches=BRANCHES,
        )  # fmt: skip

    app.include_router(writing.router(narrators, jobs))
    app.include_router(completions.router(narrators, jobs))
    app.include_router(stories.router(store))
    app.include_router(judging.router(judgements), prefix="/api/judge")
    static.mount(app, PAGE)
    errors.install(app)
    guard.protect(
        app, hosts=guard.hosts_of(settings.host, settings.names), token=settings.token, max_body=settings.max_body
    )
    completions.install(app)
    return app

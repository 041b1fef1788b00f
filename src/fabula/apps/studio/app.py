"""The application of the studio: a model's server with a page, and the routes of stories and their branches."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Response
from fastapi import Path as InPath

from fabula.apps.serve.app import create_server
from fabula.apps.serve.settings import SEEDS, ServerSettings
from fabula.apps.studio import document as doc
from fabula.apps.studio.store import Store
from fabula.apps.web import errors, static
from fabula.apps.web.database import default_path

PAGE = Path(__file__).parent / "page"
PathId = Annotated[int, InPath(ge=1, le=SEEDS)]
REFUSALS = errors.responses(400, 401, 403, 404, 409, 413, 422, 429, 503)
BRANCH = "/{story}/branches/{branch}"
Answer = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class StudioSettings(ServerSettings):
    """One studio."""

    db: Path = field(default_factory=lambda: default_path("studio.db"))


def create_app(settings: StudioSettings) -> FastAPI:
    """The application of a studio. Its model is loaded and its file open when this returns: mistakes come before."""
    app = create_server(settings, "Fabula studio", "Write and fill in short stories along an emotional arc.")
    store = Store(settings.db)  # last: a mistake leaves no new file behind
    app.state.resources.callback(store.close)
    app.include_router(router(store))
    static.mount(app, PAGE)
    return app


def router(store: Store) -> APIRouter:
    """The routes over this store. Plain functions run in threads, so that the disk delays no other request."""
    routes = APIRouter(prefix="/api/stories", tags=["stories"], responses=REFUSALS)
    add_branches(routes, store)

    @routes.get("", summary="Stories, lately changed ones first")
    def stories(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        offset: Annotated[int, Query(ge=0, le=SEEDS)] = 0,
        query: Annotated[str, Query(max_length=200, description="Words in the title or in a line.")] = "",
        trash: Annotated[bool, Query(description="Those that were deleted.")] = False,
    ) -> Answer:
        return {"stories": store.stories(limit, offset, query, trash)}

    @routes.post("", status_code=201, summary="Begin a story")
    def new_story(body: doc.NewStory) -> Answer:
        """The story with its first branch, on disk."""
        return store.new_story(body.title, body.state.model_dump(), body.automatic)

    @routes.get("/{story}", summary="A story and its branches")
    def story(story: PathId) -> Answer:
        return store.story(story)

    @routes.patch("/{story}", summary="Rename a story")
    def rename(story: PathId, body: doc.StoryChange) -> Answer:
        return store.rename(story, body.title, body.automatic)

    @routes.delete("/{story}", status_code=204, response_class=Response, summary="Put a story into the trash")
    def delete_story(
        story: PathId, forever: Annotated[bool, Query(description="Out of the trash, with all its branches.")] = False
    ) -> None:
        store.delete_story(story, forever)

    @routes.post("/{story}/restore", summary="Take a story out of the trash")
    def restore_story(story: PathId) -> Answer:
        return store.restore_story(story)

    @routes.post("/{story}/copy", status_code=201, summary="A story once more")
    def copy_story(story: PathId) -> Answer:
        return store.copy_story(story)

    return routes


def add_branches(routes: APIRouter, store: Store) -> None:
    """Add the routes of branches and their versions."""

    @routes.post("/{story}/branches", status_code=201, summary="Grow a branch")
    def new_branch(story: PathId, body: doc.NewBranch) -> Answer:
        return store.new_branch(story, body.parent, body.name, body.state.model_dump())

    @routes.get(BRANCH, summary="A branch")
    def branch(story: PathId, branch: PathId) -> Answer:
        return store.branch(story, branch)

    @routes.put(BRANCH, summary="Save a branch")
    def save(story: PathId, branch: PathId, body: doc.BranchChange) -> Answer:
        """The branch as it is on disk, one revision on. A stale revision is refused with 409, and nothing written."""
        return store.save(story, branch, body.name, body.state.model_dump(), body.revision)

    @routes.delete(BRANCH, status_code=204, response_class=Response, summary="Delete a branch")
    def delete_branch(story: PathId, branch: PathId) -> None:
        """Its children grow from its parent then."""
        store.delete_branch(story, branch)

    @routes.get(BRANCH + "/versions", summary="What a branch was")
    def versions(story: PathId, branch: PathId) -> Answer:
        return {"versions": store.versions(story, branch)}

    @routes.get(BRANCH + "/versions/{version}", summary="A version")
    def version(story: PathId, branch: PathId, version: PathId) -> Answer:
        return store.version(story, branch, version)

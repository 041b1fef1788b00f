"""The application of the studio: a model's server with a page, and a file of stories."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fastapi import FastAPI

from fabula.apps.serve.app import create_server
from fabula.apps.serve.settings import ServerSettings
from fabula.apps.studio import stories
from fabula.apps.studio.store import Store
from fabula.apps.web import static
from fabula.apps.web.database import default_path

PAGE = Path(__file__).parent / "page"


@dataclass(frozen=True, kw_only=True)
class StudioSettings(ServerSettings):
    """One studio."""

    db: Path = field(default_factory=lambda: default_path("studio.db"))


def create_app(settings: StudioSettings) -> FastAPI:
    """The application of a studio. Its model is loaded and its file open when this returns: mistakes come before."""
    app = create_server(settings, "Fabula studio", "Write and fill in short stories along an emotional arc.")
    store = Store(settings.db)  # last: a mistake leaves no new file behind
    app.state.resources.callback(store.close)
    app.include_router(stories.router(store))
    static.mount(app, PAGE)
    return app

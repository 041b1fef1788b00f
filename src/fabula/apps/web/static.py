"""The files of a page, from the package: with the right types on every system, and checked for changes each time."""

from __future__ import annotations

import mimetypes
import os
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

CACHE = {"Cache-Control": "no-cache"}
"""A browser may keep a file, but asks each time whether it has changed (ETag): an upgrade shows at once."""
SHARED = Path(__file__).parent / "page"  # the files that the pages of all servers share
mimetypes.add_type("text/javascript", ".js")  # some systems name another type, which browsers refuse


class PageFiles(StaticFiles):
    """The files of one folder, none above it."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(CACHE)
        return response


def mount(app: FastAPI, folder: Path) -> None:
    """Serve `folder`/index.html at /, all its files below /page, the shared ones below /shared."""

    async def index() -> FileResponse:
        return FileResponse(folder / "index.html", media_type="text/html", headers=CACHE)

    app.add_api_route("/", index, methods=["GET", "HEAD"], include_in_schema=False)
    app.mount("/page", PageFiles(directory=folder), name="page")
    app.mount("/shared", PageFiles(directory=SHARED), name="shared")

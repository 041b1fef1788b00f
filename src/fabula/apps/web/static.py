"""The page's files from the package: the right types whatever the system thinks, and never an old copy."""

from __future__ import annotations

import os
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
CACHE = {"Cache-Control": "no-cache"}
"""A browser may keep a file, but asks each time whether it is still right (ETag): an upgrade shows at once."""


class PageFiles(StaticFiles):
    """Files of one folder, none above it."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(CACHE)
        kind = TYPES.get(Path(full_path).suffix)
        if kind is not None and response.status_code == 200:
            response.headers["Content-Type"] = kind
        return response


SHARED = Path(__file__).parent / "page"
"""What every server's pages share."""


def mount(app: FastAPI, folder: Path) -> None:
    """`folder`/index.html at /, all its files below /page, the shared ones below /shared."""

    async def index() -> FileResponse:
        return FileResponse(folder / "index.html", media_type="text/html", headers=CACHE)

    app.add_api_route("/", index, methods=["GET", "HEAD"], include_in_schema=False)
    app.mount("/page", PageFiles(directory=folder), name="page")
    app.mount("/shared", PageFiles(directory=SHARED), name="shared")

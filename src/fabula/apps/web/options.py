"""What the commands that start a server share. It imports nothing heavy, for `--help` reads it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from fabula.errors import UserError

MAX_BODY = 4 * 2**20
"""Bytes of a request's body, at most."""
STUDIO = ("fastapi", "uvicorn", "sse_starlette", "krippendorff", "scipy")
EXTRAS = {**dict.fromkeys(STUDIO, "studio"), "mcp": "mcp"}
"""The extra of `fabula-stories` that installs each package."""


def add_server(parser: argparse.ArgumentParser, port: int, *, model: bool = True) -> None:
    """Add the options of a server: where it listens, its model if it has one, and who is let in."""
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="where to listen; 127.0.0.1, unless told, is this machine only")
    add("--port", type=int, default=port, metavar="N", help=f"0 takes any that is free ({port})")
    if model:
        add("--model", default="default", metavar="NAME|DIR", help="an installed model or a checkpoint")
    about = "a secret of 8 characters or more that every client has to know; needed off 127.0.0.1; else FABULA_TOKEN's"
    add("--token", default=os.environ.get("FABULA_TOKEN"), metavar="T", help=about)
    about = "a name that a reverse proxy passes on in Host, as people type it; may be said more than once"
    add("--allow-host", action="append", default=[], metavar="NAME", help=about)


@contextmanager
def needs_extra(what: str) -> Iterator[None]:
    """Turn the absence of a package of the extra into one line; `what` needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        extra = EXTRAS[error.name]
        raise UserError(f"{what} needs {error.name}: pip install 'fabula-stories[{extra}]'") from error

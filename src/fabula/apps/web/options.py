"""What the commands that start a server share. It imports nothing heavy, for `--help` reads it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabula.errors import UserError

EXTRA = ("fastapi", "uvicorn", "sse_starlette", "choix", "krippendorff")
"""The packages that `fabula-stories[studio]` installs."""


def add_address(parser: argparse.ArgumentParser, port: int) -> None:
    """Add the options of a server with a model: where it listens, its model and its token."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="where to listen; 127.0.0.1, unless told, is this machine only"
    )
    parser.add_argument("--port", type=int, default=port, metavar="N", help=f"0 takes any that is free ({port})")
    parser.add_argument("--model", default="default", metavar="NAME|DIR", help="an installed model or a checkpoint")
    parser.add_argument(
        "--token",
        metavar="T",
        help="a secret of 8 characters or more that every client has to know; needed off 127.0.0.1",
    )


def add_door(parser: argparse.ArgumentParser) -> None:
    """Add the further options of every server on who is let in."""
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE",
        help="read the token from here, or make one here; else the variable FABULA_TOKEN is looked at",
    )  # fmt: skip
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a name that a reverse proxy passes on in Host, as people type it; may be said more than once",
    )  # fmt: skip


@contextmanager
def needs_extra(what: str) -> Iterator[None]:
    """Turn the absence of a package of the extra into one line; `what` needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        raise UserError(f"{what} needs {error.name}: pip install 'fabula-stories[studio]'") from error

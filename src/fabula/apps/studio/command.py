"""`fabula studio`: write along an arc in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from fabula.cli import options
from fabula.errors import UserError

ABOUT = "write along an arc in the browser"
EXAMPLES = """examples:
  fabula studio
  fabula studio --port 0 --db stories.db
  fabula studio --host 0.0.0.0 --token a-long-secret-word
"""

EXTRA = ("fastapi", "uvicorn", "sse_starlette", "choix", "krippendorff")
"""What `fabula-stories[studio]` brings."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "studio",
        help=ABOUT,
        description="Serve a page to write along an arc: on this machine only, unless a token is given.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_address(parser, port=8000)
    parser.add_argument(
        "--db", type=Path, metavar="FILE", help="where stories are kept (~/.local/share/fabula/studio.db)"
    )
    add_door(parser)
    options.add_device(parser, "cpu")
    parser.add_argument("--no-open", action="store_true", help="do not open the page in a browser")
    parser.set_defaults(run=run)


def add_address(parser: argparse.ArgumentParser, port: int) -> None:
    """Where a server with a model listens."""
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
    """What all servers are told alike of who may come in."""
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE",
        help="read the token from here, or make one here; else the variable FABULA_TOKEN is looked at",
    )  # fmt: skip
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a name that a reverse proxy passes on in Host, as people type it; may be said more than once",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    try:
        from fabula.apps.web.serve import bind, check, has_screen, serve, token_of

        token = token_of(args.token, args.token_file)
        check(args.host, token)
        bind(args.host, args.port).close()  # told at once, not after a model has been loaded
        from fabula.apps.studio.app import create_app
        from fabula.apps.studio.settings import StudioSettings
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        raise UserError(f"the studio needs {error.name}: pip install 'fabula-stories[studio]'") from error
    file = {} if args.db is None else {"db": args.db}
    names = frozenset(args.allow_host)
    settings = StudioSettings(
        model=args.model, host=args.host, token=token, names=names, device=args.device, threads=args.threads, **file
    )
    app = create_app(settings)
    serve(app, args.host, args.port, token, show=not args.no_open and has_screen())
    return 0

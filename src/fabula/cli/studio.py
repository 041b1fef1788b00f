"""`fabula studio`: write along an arc in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from fabula.errors import UserError

EXAMPLES = """examples:
  fabula studio
  fabula studio --port 0 --db stories.db
  fabula studio --host 0.0.0.0 --token a-long-secret-word
"""

EXTRA = ("fastapi", "uvicorn", "sse_starlette", "choix", "krippendorff")
"""What `fabula[studio]` brings."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "studio",
        help="write along an arc in the browser",
        description="Serve a page to write along an arc: on this machine only, unless a token is given.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="where to listen; 127.0.0.1, unless told, is this machine only"
    )
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="0 takes any that is free (default: 8000)")
    parser.add_argument("--model", default="default", metavar="NAME|DIR", help="an installed model or a checkpoint")
    parser.add_argument(
        "--db", type=Path, metavar="FILE", help="where stories are kept (~/.local/share/fabula/studio.db)"
    )
    parser.add_argument(
        "--token",
        metavar="T",
        help="a secret of 8 characters or more that every client has to know; needed off 127.0.0.1",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        from fabula.web.serve import bind, check, serve

        check(args.host, args.token)
        bind(args.host, args.port).close()  # told at once, not after a model has been loaded
        from fabula.studio.app import create_app
        from fabula.studio.settings import StudioSettings
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        raise UserError(f"the studio needs {error.name}: pip install 'fabula[studio]'") from error
    file = {} if args.db is None else {"db": args.db}
    app = create_app(StudioSettings(model=args.model, host=args.host, token=args.token, **file))
    serve(app, args.host, args.port, args.token)
    return 0

"""`fabula studio`: write along an arc in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from fabula.apps.web.options import add_server, needs_extra
from fabula.cli import add_command, options

ABOUT = "write along an arc in the browser"
EXAMPLES = """examples:
  fabula studio
  fabula studio --port 0 --db stories.db
  fabula studio --host 0.0.0.0 --token a-long-secret-word
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = "Serve a page to write along an arc: on this machine only, unless a token is given."
    parser = add_command(subparsers, "studio", description, EXAMPLES, ABOUT)
    add_server(parser, port=8000)
    about = "where stories are kept (~/.local/share/fabula/studio.db)"
    parser.add_argument("--db", type=Path, metavar="FILE", help=about)
    options.add_device(parser, "cpu")
    parser.add_argument("--no-open", action="store_true", help="do not open the page in a browser")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with needs_extra("the studio"):
        from fabula.apps.web.serve import has_screen, prepare, serve

        chosen = prepare(args)
        from fabula.apps.studio.app import StudioSettings, create_app
    settings = StudioSettings(**chosen, **({} if args.db is None else {"db": args.db}))
    show = not args.no_open and has_screen()
    serve(create_app(settings), args.host, args.port, settings.token, show=show)
    return 0

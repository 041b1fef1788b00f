"""`fabula serve`: fill in for other programs, by OpenAI's completions API and by Fabula's own routes."""

from __future__ import annotations

import argparse

from fabula.apps.web.options import add_server, needs_extra
from fabula.cli import add_command, options

ABOUT = "fill in for other programs, by OpenAI's completions API"
EXAMPLES = """examples:
  fabula serve
  fabula serve --port 0 --model small
  fabula serve --allow-origin http://localhost:3000          a web page of that address may ask
  fabula serve --host 0.0.0.0 --token a-long-secret-word     clients send the token as their API key
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = (
        "Serve /v1/chat/completions (the last message: a story with _ where a sentence is missing), /v1/completions "
        "(prompt: the opening, suffix: the ending) and /v1/models as OpenAI's clients ask for them, and Fabula's own "
        "routes below /api, without a page: on this machine only, unless a token is given."
    )
    parser = add_command(subparsers, "serve", description, EXAMPLES, ABOUT)
    add_server(parser, port=8001)
    about = "a web page's address (scheme, host and port) that may ask from a browser; may be said more than once"
    parser.add_argument("--allow-origin", action="append", default=[], metavar="URL", help=about)
    options.add_device(parser, "cpu")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with needs_extra("the server"):
        from fabula.apps.serve.app import create_server
        from fabula.apps.serve.settings import ServerSettings
        from fabula.apps.web.serve import prepare, serve
    origins = frozenset(origin.rstrip("/") for origin in args.allow_origin)
    settings = ServerSettings(**prepare(args), origins=origins)
    app = create_server(settings)

    @app.get("/", include_in_schema=False)
    def beginning() -> dict[str, str]:
        """What stands at the address that is printed: where to go on."""
        return {name: f"/v1/{name}" for name in ("chat/completions", "completions", "models")} | {
            "routes": "/api/openapi.json"
        }

    serve(app, args.host, args.port, settings.token, name="Fabula")
    return 0

"""`fabula mcp`: tools for assistants that speak the Model Context Protocol, over standard input and output."""

from __future__ import annotations

import argparse

from fabula.apps.web.options import needs_extra
from fabula.cli import add_command, options

ABOUT = "tools for assistants that speak the Model Context Protocol"
EXAMPLES = """examples:
  fabula mcp
  fabula mcp --model small
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = (
        "Serve the tools fill, write, tag, score and explain to one assistant, by the Model Context Protocol over "
        "standard input and output. Assistants start this command themselves: name it in their settings."
    )
    parser = add_command(subparsers, "mcp", description, EXAMPLES, ABOUT)
    parser.add_argument("--model", default="default", metavar="NAME|DIR", help="an installed model or a checkpoint")
    options.add_device(parser, "cpu")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with needs_extra("the MCP server"):
        import mcp  # noqa: F401 (imported first, so that its absence is one line)
    from fabula.apps.serve.mcp import create_mcp_server
    from fabula.catalogue import find

    find(args.model)  # a wrong name is an error now, not at the first call
    create_mcp_server(args.model, args.device, args.threads).run("stdio")
    return 0

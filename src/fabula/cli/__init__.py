"""The command line: one thin file per command, each parsing, calling the library and printing.

Exit codes: 0 done, 2 the user's mistake (one clear line, no traceback), 1 ours.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from fabula import __version__
from fabula.errors import UserError

COMMANDS = (
    "prepare",
    "train",
    "evaluate",
    "reproduce",
    "fill",
    "write",
    "tag",
    "score",
    "models",
    "demo",
    "studio",
    "judge",
)
"""The files of this folder, in the order the help shows them."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, like every other mistake's."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="fabula",
        description="Write and fill in short stories along an emotional arc.",
        epilog="fabula COMMAND --help says more, with examples.",
    )
    parser.add_argument("--version", action="version", version=f"fabula {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"fabula.cli.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every mistake of the user's ends here as one line."""
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"fabula {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"fabula {args.command}: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output went away (| head); that is its right.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0

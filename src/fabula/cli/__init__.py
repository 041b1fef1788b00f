"""The command line: one thin file per command, each parsing, calling the library and printing.

Exit codes: 0 done, 2 the user's mistake (one clear line, no traceback), 3 rows of fill-many failed, 1 ours.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fabula import __version__
from fabula.errors import UserError

COMMANDS = {
    "prepare": "turn story files into a prepared corpus",
    "train": "train a model by a recipe",
    "evaluate": "measure a model",
    "fill": "write the missing sentences of a story",
    "write": "write a story from nothing but its length and its arc",
    "tag": "say the arc of a story",
    "score": "say how probable a story is",
    "models": "list the installed models",
    "bases": "list, add or forget the pretrained networks that models adapt",
}
"""The files of this folder with what the help says of each, in its order; they are imported when they are needed."""

GROUP = "fabula.commands"
"""The entry points of further commands: the apps', the paper's, a plug-in's. Each names a module with `ABOUT`, what the
help says of it, and `add_parser`."""

HELP = ("-h", "--help")
FULL = (errno.ENOSPC, errno.EDQUOT)
"""A disk with no room left: nobody's fault in the code, wherever it happens."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, like every other mistake's."""

    words: Sequence[str] = ()
    """The words that are being parsed."""
    before_help: Callable[[Sequence[str]], None] | None = None
    """What completes the help texts, given those words, when help is asked for."""

    def add(self, name: str, help: str, **how: Any) -> argparse.Action:
        """`add_argument` with the help beside the name."""
        return self.add_argument(name, help=help, **how)

    def add_flag(self, name: str, help: str) -> None:
        self.add_argument(name, help=help, action="store_true")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.words = list(args or ())
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        if self.before_help is not None:
            self.before_help(self.words)
        return super().format_help()


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, or of one alone; with `--help`, of their names and what they do."""
    parser = Parser(
        prog="fabula",
        description="Write and fill in short stories along an emotional arc.",
        epilog="fabula COMMAND --help says more, with examples.",
    )
    parser.add_argument("--version", action="version", version=f"fabula {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    modules = {name: f"fabula.cli.{name}" for name in COMMANDS}
    if command not in COMMANDS:
        modules |= further_commands()
    for name, module in modules.items():
        if command in HELP:
            subparsers.add_parser(name, help=COMMANDS.get(name) or importlib.import_module(module).ABOUT)
        elif command == name or command not in modules:
            importlib.import_module(module).add_parser(subparsers)
    return parser


def add_command(
    subparsers: argparse._SubParsersAction[Any], name: str, description: str, examples: str, about: str = ""
) -> Parser:
    """The parser of one command; the examples keep their lines. `about` is the line of `fabula --help`."""
    about, form = about or COMMANDS[name], argparse.RawDescriptionHelpFormatter
    parser = subparsers.add_parser(name, help=about, description=description, epilog=examples, formatter_class=form)
    assert isinstance(parser, Parser)
    return parser


def further_commands() -> dict[str, str]:
    """The module of every command that is installed beside those of this folder, by name."""
    from importlib import metadata

    return {entry.name: entry.value for entry in sorted(metadata.entry_points(group=GROUP), key=lambda e: e.name)}


def arcs(argv: Sequence[str]) -> list[str]:
    """`--arc -+` as `--arc=-+`: to argparse an arc that begins with a minus is an option."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] == "--arc" and word.startswith("-") and not word.strip("+-.?"):
            words[-1] = f"--arc={word}"
        else:
            words.append(word)
    return words


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every mistake of the user's ends here as one line."""
    words = arcs(sys.argv[1:] if argv is None else argv)
    args = build_parser(words[0] if words else None).parse_args(words)
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
        _hush()
        return 0
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(f"fabula {args.command}: cannot write: {error.strerror}", file=sys.stderr)
        _hush()
        return 2


def _hush() -> None:
    """What is still to be printed goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

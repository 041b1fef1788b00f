"""`fabula bases`: the pretrained networks that models adapt, where they lie, and which models need them."""

from __future__ import annotations

import argparse
from pathlib import Path

from fabula.cli import add_command

EXAMPLES = """examples:
  fabula bases                                 what is installed, what is missing and how to get it
  fabula bases add tinyllama.gguf              a GGUF file of architecture llama, or a Hugging Face folder
  fabula bases add mine.gguf --sha256 9ee11a...   refused if the file has another
  fabula bases remove 9ee11a                   the file itself stays where it is
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = "List the bases that models adapt, add one, or forget one. A base is known by its sha256."
    parser = add_command(subparsers, "bases", description, EXAMPLES)
    parser.add("action", "what to do; without it, list them", nargs="?", choices=("add", "remove"))
    parser.add("base", "a file or folder; to remove one, its path or the beginning of its sha256", nargs="?")
    parser.add("--sha256", "what `add` expects", default="", metavar="HASH")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from fabula.catalogue import installed
    from fabula.errors import UserError
    from fabula.models import io
    from fabula.models.decoders import bases

    if args.action is not None and args.base is None:
        raise UserError(f"fabula bases {args.action} needs a base; see fabula bases --help")
    if args.action == "remove":
        print(f"{bases.remove(args.base)} is forgotten; the file stays")
    elif args.action == "add":
        print(f"{bases.add(Path(args.base), args.sha256)[:12]}  {Path(args.base).resolve()}")
    else:
        users: dict[str, list[str]] = {}
        for name, folder in installed().items():
            if io.adapts_base(folder):
                users.setdefault(io.describe(folder).base, []).append(name)
        for digest in dict.fromkeys([*users, *bases.added()]):
            where = bases.find_base(digest) or f"not installed: {bases.how_to_install(digest)}"
            print(f"{digest[:12]}  {where}  used by {', '.join(users.get(digest, ['no model']))}")
    return 0

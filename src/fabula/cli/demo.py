"""`fabula demo`: a story filled in from its first and last sentence."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from fabula.cli import add_command, options, show

STORY = ("Ben planted a small tree behind the house.", None, None, None, "The whole family ate apples that autumn.")
SEED = 0
"""README's picture is this story by this seed: make picture."""

EXAMPLES = """examples:
  fabula demo
  fabula demo --seed 3             another story
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(subparsers, "demo", "Fill in a story from its first and last sentence.", EXAMPLES)
    parser.add("--seed", "another seed, another story (%(default)s)", type=int, default=SEED, metavar="N")
    options.add_colour(parser)
    options.add_device(parser, None)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from fabula.api import load

    model = load("default", threads=args.threads)
    filling = show.watch(model.fill_iter(STORY, candidates=1, seed=args.seed, at_once=True), quiet=False)
    print(show.show_filling(filling, colour=show.coloured(args.color), verbose=False))
    print("\nThe lines marked > are the model's, the others were given. The dot is the arc: sad, neither, glad.")
    print(f"Again, with more candidates:\n  {command()} fill {typed()} --candidates 3")
    return 0


def typed() -> str:
    """The story as it is typed behind `fabula fill`."""
    return " ".join(f'"{line}"' if line else "_" for line in STORY)


def command() -> str:
    """How to call this `fabula` from here: by its name where the shell finds it, else by its place."""
    here = Path(sys.executable).parent / "fabula"
    on_path = shutil.which("fabula")
    if not here.exists() or (on_path is not None and Path(on_path).resolve() == here.resolve()):
        return "fabula"
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)

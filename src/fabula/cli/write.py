"""`fabula write`: a story from nothing but its length and its arc."""

from __future__ import annotations

import argparse

from fabula.cli import COMMANDS, options, show

EXAMPLES = """examples:
  fabula write --sentences 7
  fabula write --arc "- - . + +" --candidates 3 --seed 7
  fabula write --sentences 5 --starts 1:"Tom" --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "write",
        help=COMMANDS["write"],
        description="Write a story from nothing but its length and, if you like, its arc.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sentences", type=int, metavar="N", help="how many sentences (the arc's length, else 5)")
    options.add_sampling(parser, write=True)
    options.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    chosen = options.chosen(args)
    narrator = options.narrator(args)
    written = (narrator.write(args.sentences, **chosen) for _ in range(1))
    story = show.watch(written, quiet=args.json, doing="writing")
    if args.json:
        show.print_json(story.to_json())
    else:
        factors = options.factors(narrator, chosen["arc"])
        print(show.show_filling(story, colour=show.coloured(args.color), verbose=args.verbose, factors=factors))
    return 0

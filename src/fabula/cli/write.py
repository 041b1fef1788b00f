"""`fabula write`: a story from nothing but its length and its arc."""

from __future__ import annotations

import argparse
import json
import sys

from fabula.cli import show

EXAMPLES = """examples:
  fabula write --sentences 7
  fabula write --arc "- - . + +" --candidates 3 --seed 7
  fabula write --sentences 5 --starts 1:"Tom" --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "write",
        help="write a story from nothing but its length and its arc",
        description="Write a story from nothing but its length and, if you like, its arc.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sentences", type=int, metavar="N", help="how many sentences (the arc's length, else 5)")
    show.add_sampling(parser, candidates=1, samples="10")
    show.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from fabula.infill.task import parse_arc

    starts = show.starts(args)
    narrator = show.narrator(args)
    N = args.sentences
    if N is None:
        N = 5 if args.arc is None else len(parse_arc(args.arc, narrator.labels))
    story = narrator.write(
        N, arc=args.arc, candidates=args.candidates, samples=args.samples, sampler=args.sampler, seed=args.seed,
        starts=starts, top_k=args.top_k, temperature=args.temperature,
    )  # fmt: skip
    if args.json:
        json.dump(story.to_json(), sys.stdout, ensure_ascii=False, indent=1)
        print()
    else:
        print(show.show_filling(story, colour=show.coloured(args.color), verbose=args.verbose))
    return 0

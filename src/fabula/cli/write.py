"""`fabula write`: a story from nothing but its length and its arc."""

from __future__ import annotations

import argparse

from fabula.cli import add_command, options, show

EXAMPLES = """examples:
  fabula write --sentences 7
  fabula write --arc "- - . + +" --candidates 3 --seed 7
  fabula write --sentences 5 --starts 1:"Tom" --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = "Write a story from nothing but its length and, if you like, its arc."
    parser = add_command(subparsers, "write", description, EXAMPLES)
    parser.add_argument("--sentences", type=int, metavar="N", help="how many sentences (the arc's length, else 5)")
    options.add_sampling(parser, write=True)
    options.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from fabula.sampling.task import write_task

    chosen, model = options.chosen(args, write_task, args.sentences), options.load_model(args)
    stories = (model.write(args.sentences, **chosen) for _ in range(1))
    story = show.watch(stories, quiet=args.json, doing="writing")
    show.print_filling(story, args, options.factors(model, chosen["arc"]))
    return 0

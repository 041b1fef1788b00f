"""`fabula fill`: a story with blanks in, complete stories out."""

from __future__ import annotations

import argparse

from fabula.cli import add_command, options, show

EXAMPLES = """examples:
  fabula fill "Mia's car would not start." _ _ _ "Mia made it to work on time."
  fabula fill "Tom was sad." _ _ "Tom smiled." --arc "- ? ? +" --candidates 5 --seed 7
  fabula fill "Tom was sad." _ _ "Tom smiled." --arc=--.+ --starts 2:"He thought" --json
  fabula fill --file story.txt              a sentence per line, _ where one is missing
  echo "Tom was sad. _ _ Tom smiled." | fabula fill - --paragraph
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = "Write the missing sentences of a story (_), given the others and, if you like, an arc."
    parser = add_command(subparsers, "fill", description, EXAMPLES)
    options.add_story(parser, blanks=True)
    options.add_sampling(parser)
    options.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from fabula.sampling.task import fill_task

    sentences = options.story(args)
    chosen, model = options.chosen(args, fill_task, sentences), options.load_model(args)
    filling = show.watch(model.fill_iter(sentences, at_once=True, **chosen), quiet=args.json)
    show.print_filling(filling, args, options.factors(model, chosen["arc"]))
    return 0

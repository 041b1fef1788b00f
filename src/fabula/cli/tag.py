"""`fabula tag`: the tag of every sentence of a story."""

from __future__ import annotations

import argparse

from fabula.cli import add_command, options, show

EXAMPLES = """examples:
  fabula tag "Tom lost his dog." "He cried." "The dog came home."
  fabula tag "The dog came home."
  fabula tag --file story.txt --json
  fabula tag "He forgave her." --factors verb
  echo "Tom lost his dog. He cried. The dog came home." | fabula tag - --paragraph
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = "Say the tag of every sentence of a story, or of one alone: q(S_i | X), the model's own reading."
    parser = add_command(subparsers, "tag", description, EXAMPLES)
    options.add_story(parser, blanks=False)
    parser.add("--factors", "also factors that need a parser: verb; joined by commas", default="", metavar="NAMES")
    options.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    sentences = options.story(args)
    tagging = options.load_model(args).tag(sentences, factors=[name for name in args.factors.split(",") if name])
    if args.json:
        print(tagging.to_json())
        return 0
    colour = show.coloured("auto")
    factors = tagging.factors or ({},) * len(tagging.tags)
    for text, tag, shares, others in zip(tagging.sentences, tagging.tags, tagging.probabilities, factors, strict=True):
        further = "".join(f"{label:<9}" for label in others.values())
        print(f"{show.show_tag(tag, colour)} {tag:<9} {shares[tag]:4.0%}  {further}{text}")
    for note in tagging.notes:
        print(show.paint(f"note: {note}", show.GREY, colour))
    return 0

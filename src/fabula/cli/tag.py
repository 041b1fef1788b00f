"""`fabula tag`: the tag of every sentence of a story."""

from __future__ import annotations

import argparse

from fabula.cli import COMMANDS, options, show

EXAMPLES = """examples:
  fabula tag "Tom lost his dog." "He cried." "The dog came home."
  fabula tag "The dog came home."
  fabula tag --file story.txt --json
  echo "Tom lost his dog. He cried. The dog came home." | fabula tag - --paragraph
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "tag",
        help=COMMANDS["tag"],
        description="Say the tag of every sentence of a story, or of one alone: q(S_i | X), the model's own reading.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_story(parser, blanks=False)
    options.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    sentences = options.story(args)
    tagging = options.narrator(args).tag(sentences)
    if args.json:
        show.print_json(tagging.to_json())
        return 0
    colour = show.coloured("auto")
    for text, tag, shares in zip(tagging.sentences, tagging.tags, tagging.probabilities, strict=True):
        print(f"{show.show_tag(tag, colour)} {tag:<9} {shares[tag]:4.0%}  {text}")
    for note in tagging.notes:
        print(show.paint(f"note: {note}", show.GREY, colour))
    return 0

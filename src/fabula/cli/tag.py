"""`fabula tag`: the tag of every sentence of a story."""

from __future__ import annotations

import argparse
import json
import sys

from fabula.cli import show

EXAMPLES = """examples:
  fabula tag "Tom lost his dog." "He cried." "The dog came home."
  fabula tag "The dog came home."
  fabula tag --file story.txt --json
  echo "Tom lost his dog. He cried. The dog came home." | fabula tag - --paragraph
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "tag",
        help="say the arc of a story",
        description="Say the tag of every sentence of a story, or of one alone: q(S_i | X), the model's own reading.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show.add_story(parser, blanks=False)
    show.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    sentences = show.story(args)
    tagging = show.narrator(args).tag(sentences)
    if args.json:
        json.dump(tagging.to_json(), sys.stdout, ensure_ascii=False, indent=1)
        print()
        return 0
    colour = show.coloured("auto")
    for text, tag, shares in zip(tagging.sentences, tagging.tags, tagging.probabilities, strict=True):
        print(f"{show.show_tag(tag, colour)} {tag:<9} {shares[tag]:4.0%}  {text}")
    for note in tagging.notes:
        print(show.paint(f"note: {note}", show.GREY, colour))
    return 0

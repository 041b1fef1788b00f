"""`fabula score`: the log-probability of a story."""

from __future__ import annotations

import argparse
import json
import sys

from fabula.cli import show

EXAMPLES = """examples:
  fabula score "Tom lost his dog." "He cried." "The dog came home."
  fabula score --file story.txt --samples 500 --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "score",
        help="say how probable a story is",
        description="Say how probable a story is, in nats: exactly, or for a model with latents by a lower bound.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show.add_story(parser, blanks=False)
    parser.add_argument("--samples", type=int, default=100, metavar="N", help="importance samples of the bound (100)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed gives the same bound (0)")
    show.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    sentences = show.story(args)
    score = show.narrator(args).score(sentences, samples=args.samples, seed=args.seed)
    if args.json:
        json.dump(score.to_json(), sys.stdout, ensure_ascii=False, indent=1)
        print()
        return 0
    for text, log_p in zip(score.sentences, score.log_p_sentences, strict=True):
        print(f"{log_p:9.2f}  {text}")
    sign = "=" if score.kind == "exact" else ">="
    print(
        f"{score.log_p:9.2f}  log p {sign} this, in nats; perplexity {score.perplexity:.1f} over {score.words} words",
        end="",
    )
    print(f", {score.unknown} of them unknown" if score.unknown else "")
    return 0

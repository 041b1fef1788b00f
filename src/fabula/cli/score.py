"""`fabula score`: the log-probability of a story."""

from __future__ import annotations

import argparse

from fabula.cli import COMMANDS, options, show
from fabula.results import plain

EXAMPLES = """examples:
  fabula score "Tom lost his dog." "He cried." "The dog came home."
  fabula score --file story.txt --samples 500 --json
  fabula score --file story.txt --words
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "score",
        help=COMMANDS["score"],
        description="Say how probable a story is, in nats: exactly, or for a model with latents by a lower bound.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_story(parser, blanks=False)
    parser.add_argument("--samples", type=int, default=100, metavar="N", help="importance samples of the bound (100)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed gives the same bound (0)")
    parser.add_argument(
        "--words", action="store_true", help="also the log p of every word, and how each sentence fits before and after"
    )
    options.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    sentences, narrator = options.story(args), options.narrator(args)
    score = narrator.score(sentences, samples=args.samples, seed=args.seed)
    why = narrator.explain(sentences, samples=args.samples, seed=args.seed).sentences if args.words else ()
    if args.json:
        told = score.to_json() | ({"why": [plain(reasons) for reasons in why]} if args.words else {})
        show.print_json(told)
        return 0
    for i, (text, log_p) in enumerate(zip(score.sentences, score.log_p_sentences, strict=True)):
        print(f"{log_p:9.2f}  {text}")
        if args.words:
            after = "" if why[i].fits_after is None else f", after {why[i].fits_after:+.2f}"
            print(f"{'':11}{'  '.join(f'{word.text} {word.log_p:.1f}' for word in why[i].words)}")
            print(f"{'':11}fits before {why[i].fits_before:.2f} a word{after}")
    sign = "=" if score.kind == "exact" else ">="
    print(
        f"{score.log_p:9.2f}  log p {sign} this, in nats; perplexity {score.perplexity:.1f} over {score.words} words",
        end="",
    )
    print(f", {score.unknown} of them unknown" if score.unknown else "")
    return 0

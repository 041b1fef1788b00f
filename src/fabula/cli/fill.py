"""`fabula fill`: a story with blanks in, complete stories out."""

from __future__ import annotations

import argparse
import json
import sys

from fabula.cli import show

EXAMPLES = """examples:
  fabula fill "Mia's car would not start." _ _ _ "Mia made it to work on time."
  fabula fill "Tom was sad." _ _ "Tom smiled." --arc "- ? ? +" --candidates 5 --seed 7
  fabula fill "Tom was sad." _ _ "Tom smiled." --arc=--.+ --starts 2:"He thought" --json
  fabula fill --file story.txt              a sentence per line, _ where one is missing
  echo "Tom was sad. _ _ Tom smiled." | fabula fill - --paragraph
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "fill",
        help="write the missing sentences of a story",
        description="Write the missing sentences of a story (_), given the others and, if you like, an arc.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show.add_story(parser, blanks=True)
    show.add_sampling(parser, candidates=3, samples="50; without latents 1000")
    parser.add_argument("--chains", type=int, metavar="N", help="Gibbs chains, which share the samples (17 at most)")
    parser.add_argument(
        "--x-step", choices=("greedy", "sampled"), default="greedy",
        help="gibbs: decode missing sentences greedily (the paper) or draw them given all that follows",
    )  # fmt: skip
    parser.add_argument(
        "--score", choices=("given", "last"), default="given",
        help="gibbs: rank by all given sentences (the paper) or the last one (the authors' code)",
    )  # fmt: skip
    show.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    sentences = show.story(args)
    starts = show.starts(args)
    narrator = show.narrator(args)
    answers = narrator.fill_iter(
        sentences, arc=args.arc, candidates=args.candidates, samples=args.samples, sampler=args.sampler, seed=args.seed,
        starts=starts, top_k=args.top_k, temperature=args.temperature, chains=args.chains, x_step=args.x_step,
        score=args.score,
    )  # fmt: skip
    filling = show.watch(answers, quiet=args.json)
    if args.json:
        json.dump(filling.to_json(), sys.stdout, ensure_ascii=False, indent=1)
        print()
    else:
        print(show.show_filling(filling, colour=show.coloured(args.color), verbose=args.verbose))
    return 0

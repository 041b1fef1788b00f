"""`fabula score`: the log-probability of a story."""

from __future__ import annotations

import argparse

from fabula.cli import add_command, options, show

EXAMPLES = """examples:
  fabula score "Tom lost his dog." "He cried." "The dog came home."
  fabula score --file story.txt --samples 500 --json
  fabula score --file story.txt --words
  fabula score --file story.txt --critic
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = (
        "Say how expected a story is to the model, and how each sentence fits before and after; "
        "--verbose has the figures: log p in nats, exact, or for a model with latents a lower bound."
    )
    parser = add_command(subparsers, "score", description, EXAMPLES)
    options.add_story(parser, blanks=False)
    parser.add("--samples", "importance samples of the bound (100)", type=int, default=100, metavar="N")
    parser.add("--seed", "the same seed gives the same bound (0)", type=int, default=0, metavar="N")
    parser.add_flag("--words", "also the log p of every word, and how each sentence fits before and after")
    parser.add_flag("--verbose", "also the figures: log p of each sentence, in nats")
    parser.add_flag("--critic", "what the critic says: how well it holds together, and the weakest line")
    options.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    sentences, model = options.story(args), options.load_model(args)
    score = model.score(sentences, samples=args.samples, seed=args.seed)
    explained = args.words or (not args.json and model.model.decoder is not None)
    chosen = {"samples": args.samples} if args.words else {}
    why = model.explain(sentences, seed=args.seed, **chosen).sentences if explained else ()
    verdict = model.judge(sentences) if args.critic else None
    if args.json:
        answer = score.to_dict(4) | ({"why": [reasons.to_dict(4) for reasons in why]} if args.words else {})
        answer |= {} if verdict is None else {"critic": verdict.to_dict(4)}
        show.print_json(answer)
        return 0
    figures = args.words or args.verbose
    for i, text in enumerate(score.sentences):
        print(f"{score.log_p_sentences[i]:9.2f}  {text}" if figures else f"  {text}")
        fit = show.verdict(why[i], first=i == 0, last=i + 1 == len(score.sentences)) if why else ""
        if fit:
            print(" " * (11 if figures else 4) + fit)
        if args.words:
            after = "" if why[i].fits_after is None else f", after {why[i].fits_after:+.2f}"
            print(f"{'':11}{'  '.join(f'{word.text} {word.log_p:.1f}' for word in why[i].words)}")
            print(f"{'':11}fits before {why[i].fits_before:.2f} a word{after}")
    unknown = f", {score.unknown} of them new to it" if score.unknown else ""
    print(f"To this model each word was about as uncertain as a choice among {max(score.perplexity, 1):,.0f}", end="")
    print(f" ({score.words} words and sentence ends{unknown}).")
    if figures:
        sign = "=" if score.kind == "exact" else ">="
        apart = "" if score.kind == "exact" else "; sentences are means over draws of Z and need not add up to it"
        print(f"{score.log_p:9.2f}  log p {sign} this, in nats; perplexity {score.perplexity:.1f}{apart}")
    if verdict is not None:
        print(f"{verdict.holds_together:9.2f}  the critic: log-odds that a person wrote the story")
        if verdict.weakest is not None:
            print(f"{verdict.lines[verdict.weakest - 1]:9.2f}  its weakest line: {sentences[verdict.weakest - 1]}")
    return 0

"""`fabula evaluate`: how probable a model finds stories it has not seen."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from fabula.cli import add_command, options

EXAMPLES = """examples:
  fabula evaluate likelihood --model runs/slds --data prepared/roc --split test
  fabula evaluate likelihood --model runs/slds --data prepared/roc --samples 50 --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(subparsers, "evaluate", "Measure a model on stories it has not seen.", EXAMPLES)
    kinds = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    description = (
        "Perplexity by three estimates, KL of Z, and whether Z matters; each figure says whether it is "
        "exact, a bound or an estimate."
    )
    about = "perplexity by three estimates, KL, and the use of Z"
    what = add_command(kinds, "likelihood", description, EXAMPLES, about)
    what.add("--model", "a run's folder or an installed model's name", default="default", metavar="M")
    what.add("--data", "the model's corpus, a folder made by fabula prepare", type=Path, metavar="DIR", required=True)
    what.add("--split", "train, valid or test of --data (default: test)", default="test")
    what.add("--samples", "importance samples per story (default: 20)", type=int, default=20)
    what.add("--seed", "the same seed gives the same figures (default: 0)", type=int, default=0)
    what.add("--limit", "only the first N stories", type=int, metavar="N")
    options.add_device(what, "auto")
    what.add_flag("--json", "print the figures as JSON")
    what.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from fabula.device import use_threads
    from fabula.workflow import evaluate

    use_threads(args.threads)
    record = evaluate(
        args.model, data=args.data, split=args.split, samples=args.samples, seed=args.seed,
        limit=args.limit, device=args.device, bar=not args.json and sys.stderr.isatty(),
    )  # fmt: skip
    print(json.dumps(record, ensure_ascii=False) if args.json else table(record))
    return 0


ROWS = (
    ("ppl", "perplexity"),
    ("ppl_iw", "perplexity, importance-weighted, S summed out"),
    ("ppl_elbo", "perplexity, ELBO with every term"),
    ("ppl_authors", "perplexity as the authors estimate it"),
    ("ppl_with_tags", "perplexity including log p(S)"),
    ("nll_story", "nats per story"),
    ("bits_per_character", "bits per character"),
    ("slack", "nats per story that the bound still lacks"),
    ("q_precision", "factor of phi's precision in q(Z | X)"),
    ("kl_z", "KL of Z, nats per story"),
    ("z_use", "use of Z, nats per story"),
    ("f1_s", "macro-F1 of q(S)"),
)


def table(record: dict[str, Any]) -> str:
    """The figures for a person to read, each saying what kind of figure it is."""
    lines = [f"{record['recipe']} on {record['n']} stories, {record['samples']} samples"]
    for name, words in ROWS:
        value = record.get(name)
        if value is None:
            continue
        sign = "<= " if record["kinds"].get(name) == "bound" else "   "
        error = record.get(f"{name}_se")
        shown = f"{value:,.3f}" if isinstance(value, float) else str(value)
        spread = f" (se {error:.3f})" if error is not None else ""
        lines.append(f"  {words:<48}{sign}{shown}{spread}  {record['kinds'].get(name, '')}")
    return "\n".join(lines)

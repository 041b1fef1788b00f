"""`fabula train`: a recipe and a prepared corpus in, a checkpoint out."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

from fabula.cli import add_command, options
from fabula.errors import UserError

EXAMPLES = """examples:
  fabula train recipes/slds.toml --data prepared/roc --out runs/slds --device cuda
  fabula train recipes/slds.toml --data prepared/roc --out runs/slds --resume
  fabula train --from small --data prepared/mine --out runs/mine
  fabula train --from default --data mine --out runs/stories          a folder with train.csv and valid.csv
  fabula train recipes/narrator.toml --base tinyllama.gguf --data FOLDER --out runs/mine
  fabula train recipes/slds.toml --data prepared/mine --out runs/few --set train.batch=16 --set train.warmup_steps=20
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = "Train a model by a recipe on a prepared corpus. Ctrl-C stops after saving; --resume goes on."
    parser = add_command(subparsers, "train", description, EXAMPLES)
    parser.add("recipe", "what to train, and how", nargs="?", type=Path, metavar="RECIPE.toml")
    parser.add("--data", "a folder made by fabula prepare", type=Path, metavar="DIR")
    parser.add("--out", "where the checkpoint and the log go", type=Path, metavar="RUN")
    begin = "begin from this model's weights, on stories of your own; without RECIPE.toml, by its own recipe"
    parser.add("--from", begin, dest="start", metavar="NAME|RUN")
    parser.add("--base", "of a narrator: the base to adapt, a GGUF file or a Hugging Face folder", metavar="FILE")
    change = "a setting in place of the recipe's, such as train.batch=16; may be repeated"
    parser.add("--set", change, action="append", default=[], metavar="KEY=VALUE")
    options.add_device(parser, "auto")
    parser.add_flag("--resume", "continue the run in RUN, exactly where it stopped")
    parser.add_flag("--force", "start again over a run that is already in RUN")
    parser.add_flag("--quiet", "no progress bar and no line per epoch")
    parser.add_flag("--json", "print the outcome as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    for name in ("recipe", "data", "out"):
        if getattr(args, name) is None and not (name == "recipe" and args.start is not None):
            raise UserError(f"{'RECIPE.toml' if name == 'recipe' else '--' + name} is missing; see fabula train --help")
    from fabula.device import use_threads
    from fabula.workflow import train

    use_threads(args.threads)
    changes = settings(args.set) | ({} if args.base is None else {"base": args.base})
    figures = train(
        args.recipe, args.data, args.out, start=args.start, settings=changes, device=args.device,
        resume=args.resume, force=args.force, bar=not args.quiet, report=None if args.quiet else report,
    )  # fmt: skip
    outcome = ", ".join(f"{name} {value}" for name, value in figures.items() if not isinstance(value, str))
    print(json.dumps(figures) if args.json else f"{args.out}: {outcome}")
    return 0


def report(entry: dict[str, Any]) -> None:
    """One line for each epoch."""
    best = "  best so far" if entry["best"] else ""
    rate = f"{entry['stories_per_second']:,.0f} stories/s"
    print(f"epoch {entry['epoch']}: valid nll {entry['valid_nll']:.2f} nats a story, {rate}{best}", file=sys.stderr)


def settings(entries: list[str]) -> dict[str, Any]:
    """`train.batch=16` as a path and a value of TOML; what is no TOML is a text."""
    chosen: dict[str, Any] = options.pairs("set", "KEY=VALUE", entries)
    for key, text in chosen.items():
        with suppress(tomllib.TOMLDecodeError):
            chosen[key] = tomllib.loads(f"value = {text}")["value"]
    return chosen

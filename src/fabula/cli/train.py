"""`fabula train`: a recipe and a prepared corpus in, a checkpoint out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabula.cli import add_command, options
from fabula.errors import UserError

if TYPE_CHECKING:
    from fabula.models.io import Checkpoint
    from fabula.training.recipe import Recipe

EXAMPLES = """examples:
  fabula train recipes/slds.toml --data prepared/roc --out runs/slds --device cuda
  fabula train recipes/slds.toml --data prepared/roc --out runs/slds --resume
  fabula train --from small --data prepared/mine --out runs/mine
  fabula train recipes/narrator.toml --base tinyllama.gguf --data FOLDER --out runs/mine
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
    from fabula.device import pick_device, use_threads
    from fabula.training.loop import train_adapter
    from fabula.training.recipe import AdapterRecipe, read_any_recipe

    use_threads(args.threads)
    pick_device(args.device)  # before anything of an earlier run is touched
    recipe = read_any_recipe(args.recipe) if args.recipe is not None else None
    if args.base is not None:
        if not isinstance(recipe, AdapterRecipe):
            raise UserError("--base is for a narrator's recipe", field="base")
        recipe = replace(recipe, base=args.base)
    how = {"device": args.device, "resume": args.resume, "bar": not args.quiet}
    how["report"] = None if args.quiet else report
    if isinstance(recipe, AdapterRecipe):
        check_free(args)
        with run_folder(args.out, fresh=not args.resume):
            figures = train_adapter(recipe, args.data, args.out, **how)
        outcome = ", ".join(f"{name} {value}" for name, value in figures.items())
        figures = {"recipe": recipe.name, **figures}
    else:
        figures = train_on_corpus(args, recipe, how)
        outcome = f"{figures['recipe']}, {figures['valid_nll']:.2f} nats a story on the validation split"
    print(json.dumps(figures) if args.json else f"{args.out}: {outcome}")
    return 0


def train_on_corpus(args: argparse.Namespace, recipe: Recipe | None, how: dict[str, Any]) -> dict[str, Any]:
    """Train a model of a prepared corpus, begun from --from where that is given; what is printed of it."""
    from fabula.corpus.dataset import Corpus
    from fabula.device import pick_device
    from fabula.metrics.measure import calibrate_run
    from fabula.training.loop import train
    from fabula.training.recipe import recipe_from

    start = starting_point(args.start) if args.start is not None else None
    if recipe is None:
        assert start is not None
        recipe = recipe_from(start.recipe, trained=True)
    corpus = Corpus.open(args.data)
    check_free(args)
    for split in ("train", "valid"):
        corpus.split(split)
    with run_folder(args.out, fresh=not args.resume):
        checkpoint = train(recipe, corpus, args.out, start=start, **how)
        calibrate_run(args.out, checkpoint, corpus, pick_device(args.device))
    return {"recipe": recipe.name, "corpus_hash": corpus.hash, **checkpoint.figures}


def report(entry: dict[str, Any]) -> None:
    """One line for each epoch."""
    best = "  best so far" if entry["best"] else ""
    rate = f"{entry['stories_per_second']:,.0f} stories/s"
    print(f"epoch {entry['epoch']}: valid nll {entry['valid_nll']:.2f} nats a story, {rate}{best}", file=sys.stderr)


def check_free(args: argparse.Namespace) -> None:
    """A run that is there, finished or stopped however early, is not begun again unless that is asked for."""
    if args.resume or args.force:
        return
    if (args.out / "config.json").exists():
        raise UserError(f"{args.out} already holds a run; continue it with --resume or replace it with --force")
    if (args.out / "resume" / "state.json").exists():
        raise UserError(f"{args.out} holds a run that was stopped; go on with --resume or start anew with --force")


def starting_point(name: str) -> Checkpoint:
    """The model that training begins from; the narrator has its own way."""
    from fabula.catalogue import find
    from fabula.models.io import adapts_base, load

    folder = find(name)
    if adapts_base(folder):
        raise UserError("a narrator is trained by a narrator's recipe; begin from small, or a run", field="from")
    return load(folder)


@contextmanager
def run_folder(out: Path, *, fresh: bool) -> Iterator[None]:
    """The folder of a run, without the log of an earlier one where it is to be fresh.

    Folders that were made for it and in which nothing came to lie are gone at the end.
    """
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
            if fresh:
                for old in ("log.jsonl", "resume/state.json"):
                    (out / old).unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"cannot write into {out}: {error.strerror}", field="out") from error
        yield
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()

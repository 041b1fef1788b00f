"""`fabula demo`: a story filled in from its first and last sentence; a toy model is trained first if there is none."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabula.cli import add_command, options, show
from fabula.errors import UserError

if TYPE_CHECKING:
    from fabula.api import StoryModel
    from fabula.training.recipe import Recipe

NAME = "demo"
"""What the toy model is called among the installed models; it is `default` where no other model is."""
STORIES, SEED = 4_000, 0
"""Of the toy corpus it learns from."""
TOY_STORY = (
    "There was flour at home, so Hugo started an apple cake.",
    "Hugo forgave the dog, and everyone loved the apple cake.",
)
"""For the toy model: the ending asks for a dog that the beginning does not have."""
STORY = ("Tom was afraid of dogs.", "Now the two of them sleep in the same bed.")
"""For a model that knows more of the world."""
SENTENCES = 5

EXAMPLES = """examples:
  fabula demo
  fabula demo --seed 3             another telling
  fabula demo --force              train the toy model again
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = (
        "Fill in a story from its first and last sentence. Where no model is installed, a toy model is "
        "trained first (about a minute, once) and kept under FABULA_MODELS (else ~/.cache/fabula/models)."
    )
    parser = add_command(subparsers, "demo", description, EXAMPLES)
    parser.add_argument("--seed", type=int, default=9, metavar="N", help="another seed, another story (default: 9)")
    parser.add_argument("--force", action="store_true", help="train the toy model again, and use it")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colours (auto: only in a terminal)"
    )
    options.add_device(parser, None)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from fabula.device import use_threads

    use_threads(args.threads)
    model = ready(force=args.force, threads=args.threads)
    first, last = TOY_STORY if model.checkpoint.name == toy_recipe().name else STORY
    blanks = [None] * (SENTENCES - 2)
    answers = model.fill_iter([first, *blanks, last], candidates=1, seed=args.seed, at_once=True)
    filling = show.watch(answers, quiet=False)
    colour = show.coloured(args.color)
    print(show.show_filling(filling, colour=colour, verbose=False))
    typed = " ".join(f'"{line}"' if line else "_" for line in (first, *blanks, last))
    print("\nThe lines marked > are the model's, the others were given. The dot is the arc: sad, neither, glad.")
    print(f"Again, with more candidates:\n  {command()} fill {typed} --candidates 3")
    return 0


def command() -> str:
    """How to call this `fabula` from here: by its name where the shell finds it, else by its place."""
    here = Path(sys.executable).parent / "fabula"
    on_path = shutil.which("fabula")
    if not here.exists() or (on_path is not None and Path(on_path).resolve() == here.resolve()):
        return "fabula"
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)


def ready(*, force: bool = False, threads: int | None = None) -> StoryModel:
    """The default model; the toy model, trained now, where there is none or where the one that is there is outdated."""
    from fabula.api import installed, load, models_folder

    toy = models_folder() / NAME
    default = None if force else installed().get("default")
    if default is not None and (default != toy or _is_current(toy)):
        return load("default", threads=threads)
    train_toy(toy)
    return load(NAME, threads=threads)


def train_toy(folder: Path) -> None:
    """Prepare the toy corpus, train the toy recipe on it, and keep the result in `folder`; whole, or not at all."""
    from fabula.corpus.dataset import Corpus
    from fabula.corpus.prepare import prepare_stories
    from fabula.corpus.toy import toy_splits
    from fabula.models.io import save
    from fabula.training.loop import train

    watched = sys.stderr.isatty()
    recipe = toy_recipe()
    epochs = recipe.train.epochs

    def report(entry: dict[str, Any]) -> None:
        progress = f"epoch {entry['epoch']} of {epochs}: {entry['valid_nll']:.1f} nats a story on stories not seen"
        print(f"  {progress}", file=sys.stderr, flush=True)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fabula-demo-") as scratch:
            corpus, out = Path(scratch) / "corpus", Path(scratch) / "run"
            out.mkdir()
            print("Training a toy model first (about a minute, once).", file=sys.stderr, flush=True)
            prepare_stories(
                toy_splits(STORIES, SEED), corpus, provenance={"toy": STORIES, "seed": SEED}, jobs=1, progress=watched
            )
            checkpoint = train(recipe, Corpus.open(corpus), out, device="cpu", bar=watched, report=report)
            save(folder, checkpoint)
    except OSError as error:
        raise UserError(f"cannot keep the toy model in {folder}: {error.strerror or error}") from error
    print(f"Kept in {folder}.\n", file=sys.stderr, flush=True)


def toy_recipe() -> Recipe:
    """The recipe that lies in the package."""
    from fabula.training.recipe import read_recipe

    with resources.as_file(resources.files("fabula") / "data" / "toy.toml") as path:
        return read_recipe(path)


def _is_current(folder: Path) -> bool:
    """Whether the toy model there can be read and is of today's recipe."""
    from fabula.models.io import load
    from fabula.training.recipe import recipe_from

    try:
        return recipe_from(load(folder).recipe, trained=True) == toy_recipe()
    except UserError:
        return False

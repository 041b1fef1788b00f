"""The way to a model of one's own, from Python: `prepare`, `train` and `evaluate`, which the commands call."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabula.catalogue import find
from fabula.corpus.folder import no_empty_folders, write_errors_for_user
from fabula.corpus.prepare import Report, prepare_stories
from fabula.corpus.prepare import prepare as prepare_files
from fabula.corpus.taggers.protocol import DEFAULT_TAGGER, build_tagger, named
from fabula.corpus.toy import toy_splits
from fabula.device import pick_device
from fabula.errors import UserError

if TYPE_CHECKING:
    from fabula.training.recipe import AdapterRecipe, Recipe

HOLD_OUT = 0.05
"""Share of the stories to validate on where nobody names any: training needs some to know when to stop."""


def prepare(
    files: Sequence[str | Path] = (), out: str | Path = "prepared", *, toy: int | None = None, seed: int = 0,
    tagger: Any = DEFAULT_TAGGER, hold_out: float = HOLD_OUT, progress: bool = False, **settings: Any,
) -> Report:  # fmt: skip
    """Story files, or so many stories of the toy grammar, into a prepared folder, as `fabula prepare` makes it.

    `tagger` is a tagger or the names of some, joined by commas. Other settings: `valid` and `test` (files),
    `paragraphs`, `own_tags`, `cutoff`, `smoothing`, `force` (`corpus/prepare.py`).

    >>> import tempfile
    >>> report = fabula.prepare(toy=40, out=f"{tempfile.mkdtemp()}/toy")
    >>> report.splits["train"].stories
    36
    """
    settings |= {"tagger": build_tagger(named(tagger)) if isinstance(tagger, str) else tagger, "progress": progress}
    if toy is not None:
        provenance = {"toy": toy, "seed": seed}
        return prepare_stories(toy_splits(toy, seed), out, provenance=provenance, **settings)
    return prepare_files(files, out, hold_out=hold_out, seed=seed, **settings)


def train(
    recipe: str | Path | None, data: str | Path, out: str | Path, *, start: str | Path | None = None,
    settings: Mapping[str, Any] | None = None, device: str = "cpu", resume: bool = False, force: bool = False,
    bar: bool = False, report: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Train a model by a recipe's file into the folder `out`, as `fabula train` does; returns its figures.

    `start` is a model to begin from, by whose own recipe where none is named. `settings` change the recipe's:
    `{"train.batch": 16}`. `data` is a prepared folder, for narrators and critics a folder with train.csv and valid.csv.
    """
    from fabula.training.loop import train_adapter
    from fabula.training.recipe import AdapterRecipe

    pick_device(device)  # before anything of an earlier run is touched
    data, out = Path(data), Path(out)
    how: dict[str, Any] = {"device": device, "resume": resume, "bar": bar, "report": report}
    chosen, folder = _recipe(recipe, start, settings or {})
    if not (resume or force):
        check_free(out)
    if isinstance(chosen, AdapterRecipe):
        with run_folder(out, fresh=not resume):
            figures = train_adapter(chosen, data, out, **how)
            if folder is not None:
                _keep_of_start(folder, out)
        return {"recipe": chosen.name, **figures}
    return _train_on_corpus(chosen, folder, data, out, how)


def _recipe(
    recipe: str | Path | None, start: str | Path | None, settings: Mapping[str, Any]
) -> tuple[Recipe | AdapterRecipe, Path | None]:
    """The recipe with its changes, and the folder of the model that training begins from."""
    from fabula.models.decoders.bases import need_base
    from fabula.models.io import adapts_base, load
    from fabula.models.io.pretrained import read_facts
    from fabula.training.recipe import AdapterRecipe, NarratorRecipe, changed, read_any_recipe, recipe_from

    if recipe is None and start is None:
        raise UserError("name a recipe, or a model to begin from", field="recipe")
    folder = None if start is None else find(start)
    chosen: Recipe | AdapterRecipe | None = None if recipe is None else read_any_recipe(Path(recipe), settings)
    if folder is None or not adapts_base(folder):
        if isinstance(chosen, AdapterRecipe) and folder is not None:
            raise UserError(f"{folder.name} is no narrator, and this recipe adapts the pretrained base", field="from")
        if chosen is None:
            assert folder is not None
            chosen = recipe_from(changed(load(folder).recipe, settings), trained=True)
        return chosen, folder
    config, facts = read_facts(folder)
    if chosen is None:
        own = {"name": facts["name"], "rank": config.rank, "scale": config.scale, "tagger": config.tagger}
        chosen = NarratorRecipe(**{**own, **settings})
    if not isinstance(chosen, AdapterRecipe):
        raise UserError("a narrator is trained by a narrator's recipe; begin from small, or a run", field="from")
    return replace(chosen, start=str(folder), base=chosen.base or str(need_base(config.base_sha256))), folder


def _keep_of_start(start: Path, out: Path) -> None:
    """What training does not make anew of a narrator: the names of people, and a critic of the base alone."""
    from fabula.models.io import write_file
    from fabula.models.io.pretrained import CRITIC, read_adapter_config

    before, after = (json.loads((folder / "stories.json").read_text(encoding="utf-8")) for folder in (start, out))
    after["people"] = after.get("people") or before["people"]
    write_file(out / "stories.json", (json.dumps(after, ensure_ascii=False) + "\n").encode())
    if (start / CRITIC).is_dir() and not read_adapter_config(start / CRITIC).narrator_sha256:
        shutil.copytree(start / CRITIC, out / CRITIC, dirs_exist_ok=True)


def _train_on_corpus(recipe: Recipe, folder: Path | None, data: Path, out: Path, how: dict[str, Any]) -> dict[str, Any]:
    """Train a model of a prepared corpus, and calibrate its bound."""
    from fabula.corpus.dataset import Corpus
    from fabula.metrics.measure import calibrate_run
    from fabula.models.io import load
    from fabula.training.loop import train
    from fabula.training.recipe import check_steps

    corpus = Corpus.open(data)
    stories = [len(corpus.split(split).story_offsets) - 1 for split in ("train", "valid")]
    check_steps(recipe, stories[0])
    with run_folder(out, fresh=not how["resume"]):
        checkpoint = train(recipe, corpus, out, start=None if folder is None else load(folder), **how)
        calibrate_run(out, checkpoint, corpus, pick_device(how["device"]))
    return {"recipe": recipe.name, "corpus_hash": corpus.hash, **checkpoint.figures}


def evaluate(model: str | Path = "default", **options: Any) -> dict[str, Any]:
    """How probable a model finds stories: the figures of `fabula evaluate likelihood`.

    `data` is a prepared folder; `split`, `samples`, `seed`, `limit` and `device` are as there.
    """
    from fabula.metrics.measure import measure_likelihood

    return measure_likelihood(find(model), **options)


def check_free(out: Path) -> None:
    """A run that is there, finished or stopped however early, is not begun again unless that is asked for."""
    if (out / "config.json").exists():
        raise UserError(f"{out} already holds a run; continue it with --resume or replace it with --force")
    if (out / "resume" / "state.json").exists():
        raise UserError(f"{out} holds a run that was stopped; go on with --resume or start anew with --force")


@contextmanager
def run_folder(out: Path, *, fresh: bool) -> Iterator[None]:
    """The folder of a run, without the log of an earlier one where it is to be fresh."""
    with no_empty_folders(out):
        with write_errors_for_user(out):
            out.mkdir(parents=True, exist_ok=True)
            if fresh:
                for old in ("log.jsonl", "resume/state.json"):
                    (out / old).unlink(missing_ok=True)
        yield

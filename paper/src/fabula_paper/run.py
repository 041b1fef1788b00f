"""One call of `fabula reproduce`: run the units that are not done yet, score the texts, write the report.

A record is written whole or not at all and training resumes at its last epoch, so a call may be killed at any time, and
several calls with different `--only` may share one folder.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import torch

from fabula import api
from fabula.cli import options
from fabula.cli.train import settings
from fabula.device import pick_device
from fabula.errors import UserError
from fabula.models.io import read_config
from fabula.workflow import prepare
from fabula_paper import measuring, writing
from fabula_paper.bench import Bench, EnglishStories, Job, Made, Outcome
from fabula_paper.plan import BY_NAME, FULL, SMALL, Unit, narrowed, systems_for, units_of
from fabula_paper.readers import write_sheets
from fabula_paper.scoring import SCORES, Scorer

Say = Callable[[str], None]
STAGES: dict[str, Callable[[Bench, Unit], Made | None]] = {
    "train": measuring.train_system, "likelihood": measuring.measure_system, "bound": measuring.tighten,
    "sample": writing.sample, "write": writing.write_stories,
}  # fmt: skip


def run_units(bench: Bench, units: list[Unit], outcome: Outcome, say: Say) -> None:
    """Do everything that is not done yet and can be done, by priority."""
    done = bench.records.done
    outcome.skipped = [unit.name for unit in units if done(unit.name)]
    waiting = [unit for unit in units if unit.name not in set(outcome.skipped)]
    while unit := next((unit for unit in waiting if not unit.needs or done(unit.needs)), None):
        waiting.remove(unit)
        if done(unit.name):  # by another call, meanwhile
            outcome.skipped.append(unit.name)
            continue
        system = BY_NAME[unit.system]
        if unit.stage != "train":
            bench.checkpoint(system)
        if bench.device.type == "cuda":
            # Sampling may use TF32 products; a measurement may not.
            sampling = unit.stage in ("sample", "write")
            torch.set_float32_matmul_precision("high" if sampling else "highest")
        began, made = time.perf_counter(), STAGES[unit.stage](bench, unit)
        if made is not None:
            record, texts = made
            bench.write(unit, {**bench.made_by(system), **record}, texts, began)
            outcome.done.append(unit.name)
            say(f"{unit.name}  {time.perf_counter() - began:.1f} s")
    outcome.waiting = [unit.name for unit in waiting]


def reproduce(args: argparse.Namespace, say: Say = print) -> Outcome:
    """Do every unit that is not done yet, score the texts if the scorers are installed, and write the report."""
    job = job_of(args)
    bench, systems = Bench(job), systems_for(job.models)
    for system in systems:
        bench.recipe(system)  # an error in a recipe or a change is reported at once
    units = units_of(systems)
    words = {word.strip() for word in args.only.split(",")} - {""}
    unit_words = words - {"score", "report", *SCORES}
    outcome = Outcome()
    if not words or unit_words:
        run_units(bench, narrowed(units, unit_words), outcome, say)
    installed = all(importlib.util.find_spec(name) is not None for name in ("vaderSentiment", "rouge_score"))
    if words & set(SCORES) or (installed and (not words or "score" in words)):  # else it trains and writes only
        Scorer(bench, outcome, raw=args.raw, say=say).run(sorted(words))
    if not words or "report" in words:
        from fabula_paper.report import write_pages

        write_pages(bench.records, job.scale)
        say(f"{args.out / 'index.html'}")
    if args.sheets:
        say(f"{write_sheets(EnglishStories(bench, args.raw), args.sheets)} pairs in {args.sheets}")
    return outcome


def job_of(args: argparse.Namespace) -> Job:
    """The job that the options describe."""
    scale, device = SMALL if args.small else FULL, pick_device(args.device)
    models = {name: Path(folder) for name, folder in options.pairs("model", "NAME=RUN", args.model).items()}
    for name, folder in models.items():
        if folder == Path():
            raise UserError(f"--model {name}= names no folder", field="model")
        read_config(folder)  # a folder that is no checkpoint is an error at once
    data = corpus_folder(args.data, args.out, small=args.small)
    return Job(
        data=data,
        out=args.out,
        recipes=recipes_folder(args.recipes),
        scale=scale,
        device=str(device),
        models=models,
        changes=settings(args.set),
        as_it_stands=args.as_it_stands,
        memory_gib=12.0 if device.type == "cuda" else 1.0,
    )


def corpus_folder(data: Path | None, out: Path, *, small: bool) -> Path:
    """The prepared corpus; at the small scale a toy corpus below REPORT if none is given."""
    if data is not None:
        return data
    if not small:
        raise UserError(
            "--data is missing: a folder made by fabula prepare, or --small for the toy corpus", field="data"
        )
    folder = out / "toy"
    if not (folder / "manifest.json").exists():
        prepare(out=folder, toy=SMALL.toy)
    return folder


def recipes_folder(named: Path | None) -> Path:
    """The recipes' folder: as named, or the clone's."""
    folder = named or Path(api.__file__).parents[2] / "recipes"
    if not (folder / "paper" / "slds.toml").is_file():
        hint = "it has no paper/slds.toml" if named else "run from a clone, or name them with --recipes"
        raise UserError(f"the paper's recipes are not in {folder}: {hint}", field="recipes")
    return folder

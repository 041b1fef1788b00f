"""`fabula reproduce`: every table of the paper beside ours, in pieces that can be stopped and resumed."""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

from fabula.cli import options
from fabula.errors import UserError

ABOUT = "every table of the paper side by side with ours"
EXAMPLES = """examples:
  fabula reproduce --small --out report                   all of it on a toy corpus, in minutes, on a CPU
  fabula reproduce --data prepared/roc --out report --device cuda --jobs 5
  fabula reproduce --data prepared/roc --out report --only lm,score,report
  fabula reproduce --data prepared/roc --out report --only train/slds --set train.batch=512 --deadline 540
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "reproduce",
        help=ABOUT,
        description="Train the paper's systems, fill in, write, measure and score, and write REPORT/index.html and "
        "report.md: each figure of the paper beside ours. Every piece has its own record below REPORT; what is done is "
        "skipped, so the command can be stopped and called again; records of several machines can be copied together.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder made by fabula prepare (--small: a toy one)")
    parser.add_argument("--out", type=Path, metavar="REPORT", required=True, help="where records, texts and report go")
    parser.add_argument("--only", default="", metavar="WHAT,…", help="stages, systems or stage/system; default: all")
    parser.add_argument("--small", action="store_true", help="all of it at toy size, in minutes on a CPU")
    options.add_device(parser, "auto")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at once (default: 1)")
    parser.add_argument("--deadline", type=float, metavar="S", help="begin nothing after so many seconds")
    parser.add_argument("--train-until", type=float, metavar="S", help="end every training after so many seconds")
    parser.add_argument("--bound-samples", type=int, metavar="M", help="importance samples a story (default: 200)")
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME=RUN", help="a system's checkpoint that is there already"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a recipe's setting: everyone's, or SYSTEM:KEY=VALUE",
    )
    parser.add_argument("--cloze", type=Path, metavar="FILE", help="Story Cloze: its CSV, or the same encoded (.npz)")
    parser.add_argument("--recipes", type=Path, metavar="DIR", help="the recipes' folder (default: the clone's)")
    parser.add_argument("--raw", type=Path, metavar="FILE", help="the raw test file, for sentences as they were typed")
    parser.add_argument(
        "--ratings", type=Path, metavar="FILE", help="people's ratings (UNION), to calibrate measures on"
    )
    parser.add_argument(
        "--lines", action="append", default=[], metavar="NAME=FILE",
        help="middles written elsewhere, as JSON lines of a story's id and three lines (narrator=FILE)",
    )  # fmt: skip
    parser.add_argument("--texts", action="store_true", help="show given sentences in the report: never publish that")
    parser.add_argument(
        "--pack", action="store_true", help="only put REPORT's records into one file and write the report from it"
    )
    parser.add_argument(
        "--check", action="store_true", help="only make every cell of REPORT's tables again from its record and compare"
    )
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    for name in ("deadline", "train_until"):
        seconds = getattr(args, name)
        if seconds is not None and not 0 < seconds < 1e9:
            raise UserError(f"--{name.replace('_', '-')} must be above 0, not {seconds}", field=name)
    if not 1 <= args.jobs <= 64:
        raise UserError(f"--jobs must be between 1 and 64, not {args.jobs}", field="jobs")
    if args.bound_samples is not None and not 1 <= args.bound_samples <= 100_000:
        raise UserError(
            f"--bound-samples must be between 1 and 100,000, not {args.bound_samples}", field="bound_samples"
        )
    if args.pack:
        from fabula_paper.published import pack

        print(f"{pack(args.out)} records in {args.out / 'records.jsonl.xz'}")
        return 0
    if args.check:
        return checked(args.out, as_json=args.json)
    from fabula.device import use_threads
    from fabula_paper.run import reproduce

    use_threads(args.threads)
    outcome = reproduce(
        args.out, data=args.data, only=[word.strip() for word in args.only.split(",")], small=args.small,
        device=args.device, jobs=args.jobs, deadline=args.deadline, train_until=args.train_until,
        models=models(args.model), changes=changes(args.set), cloze=args.cloze, recipes=args.recipes, texts=args.texts,
        raw=args.raw, ratings=args.ratings, bound_samples=args.bound_samples,
        lines=files(args.lines),
        say=(lambda line: None) if args.json else lambda line: print(line, flush=True),
    )  # fmt: skip
    if args.json:
        print(json.dumps(vars(outcome), ensure_ascii=False))
    else:
        print(f"{len(outcome.done)} units done now, {len(outcome.skipped)} before, {len(outcome.waiting)} not yet")
        for name, why in outcome.failed.items():
            print(f"failed: {name}: {why}")
    return 1 if outcome.failed else 0


def checked(folder: Path, *, as_json: bool) -> int:
    """Compare a published report with its records."""
    from fabula_paper.published import check

    found = check(folder)
    if as_json:
        print(json.dumps({"cells": found.cells, "aggregates": found.aggregates, "wrong": list(found.wrong)}))
    else:
        print(f"{found.cells:,} cells made again from their records, {found.aggregates:,} means from their stories")
        print("\n".join(found.wrong[:20]) if found.wrong else "all of it as published")
    return 1 if found.wrong else 0


def models(given: list[str]) -> dict[str, Path]:
    """NAME=RUN pairs; a RUN that is no checkpoint is told at once."""
    from fabula.models.io import read_config

    found = {}
    for pair in given:
        name, sign, folder = pair.partition("=")
        if not sign or not name or not folder:
            raise UserError(f"--model wants NAME=RUN, not {pair!r}", field="model")
        read_config(Path(folder))
        found[name] = Path(folder)
    return found


def files(given: list[str]) -> dict[str, Path]:
    """NAME=FILE pairs."""
    pairs = [pair.partition("=") for pair in given]
    for (name, _, file), pair in zip(pairs, given, strict=True):
        if not name or not file:
            raise UserError(f"--lines wants NAME=FILE, not {pair!r}", field="lines")
    return {name: Path(file) for name, _, file in pairs}


def changes(given: list[str]) -> dict[str, Any]:
    """KEY=VALUE pairs, the values as TOML writes them; a bare word is a string."""
    found: dict[str, Any] = {}
    for pair in given:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise UserError(f"--set wants KEY=VALUE, not {pair!r}", field="set")
        try:
            found[key] = tomllib.loads(f"v = {value}")["v"]
        except tomllib.TOMLDecodeError:
            found[key] = value
    return found

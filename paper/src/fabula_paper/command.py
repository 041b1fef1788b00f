"""`fabula reproduce`: every table of the paper beside ours, in pieces that can be stopped and resumed."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fabula.cli import add_command, options

ABOUT = "every table of the paper side by side with ours"
EXAMPLES = """examples:
  fabula reproduce --small --out report                   all of it on a toy corpus, in minutes, on a CPU
  fabula reproduce --data prepared/roc --out report --device cuda
  fabula reproduce --data prepared/roc --out report --only lm,score,report
  fabula reproduce --data prepared/roc --out report --only report --sheets sheets
  fabula reproduce --out report --ratings sheets
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = (
        "Train the paper's systems, fill in, write, measure and score, and write REPORT/README.md, "
        "report.md and index.html: each figure of the paper beside ours. Every piece has its own record below REPORT; "
        "what is done is skipped, so the command can be stopped and called again; several calls with "
        "different --only may run at a time, and records of several machines can be copied together."
    )
    parser = add_command(subparsers, "reproduce", description, EXAMPLES, ABOUT)
    add = parser.add_argument
    repeated: dict[str, Any] = {"action": "append", "default": []}
    add("--data", type=Path, metavar="DIR", help="a folder made by fabula prepare (--small: a toy one)")
    add("--out", type=Path, metavar="REPORT", required=True, help="where records, texts and report go")
    add("--only", default="", metavar="WHAT,…", help="stages, systems or stage/system; default: all")
    add("--small", action="store_true", help="all of it at toy size, in minutes on a CPU")
    options.add_device(parser, "auto")
    add("--model", **repeated, metavar="NAME=RUN", help="a system's checkpoint that is there already")
    add("--set", **repeated, metavar="KEY=VALUE", help="change a setting of all recipes")
    add("--recipes", type=Path, metavar="DIR", help="the recipes' folder (default: the clone's)")
    add("--raw", type=Path, metavar="FILE", help="the raw test file, for sentences as they were typed")
    add("--as-it-stands", action="store_true", help="note trainings that the clock stopped, and train no further")
    add("--sheets", type=Path, metavar="DIR", help="write blind pairs for readers, and their key apart")
    add("--ratings", type=Path, metavar="DIR", help="only read the ratings of --sheets back into records")
    add("--pack", action="store_true", help="only put all records into one file and write the report from it")
    add("--check", action="store_true", help="only compute every cell of REPORT again from its record and compare")
    add("--json", action="store_true", help="print what was done as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.pack:
        from fabula_paper.report import pack

        print(f"{pack(args.out)} records in {args.out / 'records.jsonl.xz'}")
        return 0
    if args.ratings:
        from fabula_paper.readers import read_ratings
        from fabula_paper.records import Records

        print("\n".join(read_ratings(Records(args.out), args.ratings)))
        return 0
    if args.check:
        from fabula_paper.report import check

        result = check(args.out)
        if args.json:
            print(json.dumps(asdict(result)))
        else:
            print(f"{result.cells:,} cells computed again from their records, {result.aggregates:,} means from stories")
            print("\n".join(result.wrong[:20]) if result.wrong else "all of it as published")
        return 1 if result.wrong else 0
    from fabula.device import use_threads
    from fabula_paper.run import reproduce

    use_threads(args.threads)
    outcome = reproduce(args, (lambda line: None) if args.json else lambda line: print(line, flush=True))
    if args.json:
        print(json.dumps(vars(outcome), ensure_ascii=False))
    else:
        print(f"{len(outcome.done)} units done now, {len(outcome.skipped)} before, {len(outcome.waiting)} not yet")
        for name, reason in outcome.failed.items():
            print(f"failed: {name}: {reason}")
    return 1 if outcome.failed else 0

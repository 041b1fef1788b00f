"""`fabula fill-many`: a file of stories with blanks in, a folder of shards with complete stories out."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from fabula.cli import add_command, options
from fabula.errors import UserError
from fabula.servers import PREFIX, find_server

DESCRIPTION = """\
Fill in the stories of files, batched, into numbered shards in DIR. A row has "sentences" (null where one is missing),
and may have "id", "arc", "starts", "people", "notes", "voice", "candidates", "sampler", "seed" and "settings". In CSV
the sentences are columns sentence1, sentence2, ...; an empty cell is missing, and those of ROCStories are known. A
row without an id is called by its number. A row that is wrong has its "error" in the output, and then the exit code
is 3. Stopped anywhere and run again, it goes on, and every row is there once. The same seed and id give the same
story with any number of workers.
"""
ROWS_FAILED = 3
"""The exit code of a job of which rows failed."""
ABOUT = "fill in the stories of a file, millions if need be"
EXAMPLES = """examples:
  fabula fill-many stories.jsonl --out filled
  fabula fill-many stories.jsonl --out filled --workers 2 --samples 16
  fabula fill-many stories.csv --out filled --id-column name
  fabula fill-many a.jsonl b.jsonl --out filled --device cuda
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(subparsers, "fill-many", DESCRIPTION, EXAMPLES, ABOUT)
    add = parser.add
    add("files", "rows, in .jsonl or .csv", nargs="+", type=Path, metavar="IN")
    add("--out", "where the shards go; a job in it goes on", required=True, type=Path, metavar="DIR")
    add("--workers", "processes, each with its model (without it, this process alone)", type=int, metavar="N")
    add("--id-column", "the column of the ids (id or storyid; without one, the row's number)", metavar="NAME")
    options.add_sampler(parser)
    options.add_model(parser)
    parser.add_flag("--yes", "do not ask whether a model on a server may cost what it is said to cost")
    parser.add_flag("--quiet", "no progress bar")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from fabula.apps.fleet.job import Job
    from fabula.apps.fleet.job import run as run_job
    from fabula.device import pick_device

    given = vars(args)
    defaults = {key: given[key] for key in ("candidates", "sampler", *args.settings) if given[key] is not None}
    fields = {field.name: given[field.name] for field in dataclasses.fields(Job) if field.name in given}
    job = Job(**{**fields, "device": str(pick_device(args.device)), "defaults": defaults})
    served = args.model.startswith(PREFIX)
    if served and not args.yes:
        confirm(job)
    manifest = run_job(job, bar=not args.quiet and not args.json and sys.stderr.isatty())
    if served:
        from fabula.served.client import client_of

        manifest["usage"] = dict(client_of(find_server(args.model.removeprefix(PREFIX))).usage)
        used = ", ".join(f"{n:,} {name}" for name, n in manifest["usage"].items())
        print(f"{args.model}: {used}", file=sys.stderr)
    errors = manifest["errors"]
    if args.json:
        print(json.dumps(manifest))
    else:
        wrong = f", {errors:,} of them with an error" if errors else ""
        print(f"{args.out}: {manifest['rows']:,} rows{wrong}; {manifest['rows_per_second']:.2f} rows/s")
    if manifest["first_error"]:
        print(f"fabula fill-many: {manifest['first_error']}", file=sys.stderr)
    return ROWS_FAILED if errors else 0


def confirm(job: Any) -> None:
    """Say about what a model on a server will cost, by the first 100 rows, and go on only if a person agrees."""
    from fabula.apps.fleet.rows import read_items
    from fabula.sampling.settings import ServedSettings

    window = find_server(job.model.removeprefix(PREFIX)).window
    stories = [item.row["sentences"] for item in islice(read_items(job.files), 100) if item.row is not None]
    each = job.rows * (job.defaults.get("samples") or ServedSettings().samples) / max(1, len(stories))
    requests = each * sum(-(-story.count(None) // window) for story in stories)
    tokens = each * sum(300 + 70 * story.count(None) + len(" ".join(filter(None, story))) / 4 for story in stories)
    cost = f"about {requests:,.0f} requests and {tokens:,.0f} tokens, more where lines miss"
    print(f"{job.model}: {cost}", file=sys.stderr)
    if not sys.stdin.isatty() or input("Go on? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UserError("nothing was asked of the server; say --yes to go on", field="yes")

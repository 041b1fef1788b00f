"""`fabula judge`: people judge two stories side by side, and their answers are counted."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fabula.apps.web.options import add_server, needs_extra
from fabula.cli import add_command
from fabula.errors import UserError

if TYPE_CHECKING:
    from fabula.apps.judge.store import Store

ABOUT = "let people judge two stories side by side"
EXAMPLES = """examples:
  fabula judge new pairs.jsonl --db study.db --seed 7
  fabula judge new filled/default filled/small --db study.db      two systems' results of fill-many
  fabula judge serve --db study.db
  fabula judge report --db study.db --out report
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "The paper's human evaluation: people rate the sentences of two stories, and say which is better."
    parser = add_command(subparsers, "judge", about, EXAMPLES, ABOUT)
    commands = parser.add_subparsers(dest="what", metavar="WHAT", required=True)

    def command(
        name: str, run: Callable[[argparse.Namespace], int], help: str, about: str
    ) -> Callable[..., argparse.Action]:
        lines = [line for line in EXAMPLES.splitlines() if line.startswith(f"  fabula judge {name} ")]
        made = add_command(commands, name, about, "\n".join(["examples:", *lines, ""]), help)
        about = "where the study is kept (~/.local/share/fabula/judge.db)"
        made.add_argument("--db", type=Path, metavar="FILE", help=about)
        made.set_defaults(run=run)
        if name == "serve":
            add_server(made, port=8001, model=False)
        return made.add_argument

    about = (
        'Begin a study of the pairs in a file of JSON lines: {"id": ..., "systems": ["SLDS", "LM"], "given": [0, 4], '
        '"stories": [[...], [...]]}; or of the same stories by two systems, as `fabula fill-many` (a folder or its '
        "files) or `fabula fill --json` writes them: first candidates are compared, and lines that both have count as "
        "given. Sides and order are drawn from the seed; a study is never overwritten."
    )
    add = command("new", run_new, "begin a study", about)
    add("pairs", type=Path, nargs="+", metavar="FILE", help="pairs, a JSON object a line; or two systems' results")
    add("--seed", type=int, default=0, metavar="N", help="the same seed gives the same study (0)")
    add("--annotators", type=int, default=3, metavar="N", help="different people for each pair (3)")

    command("serve", run_serve, "let people judge", "Serve a study's page to its annotators.")

    about = "The paper's table with intervals, agreement and times."
    add = command("report", run_report, "what people said", about)
    add("--out", type=Path, metavar="DIR", help="write report.txt and report.json there too")
    add("--format", choices=("table", "json"), default="table", help="what to print (default: table)")
    about = "resampled studies for the intervals, 0 for none (2000)"
    add("--bootstrap", type=int, default=2000, metavar="N", help=about)
    add("--seed", type=int, default=0, metavar="N", help="of the resampling (0)")


def _store(args: argparse.Namespace, *, create: bool = False) -> Store:
    with needs_extra("judging"):
        from fabula.apps.judge.store import Store
        from fabula.apps.web.database import default_path
    return Store(args.db or default_path("judge.db"), create=create)


def run_new(args: argparse.Namespace) -> int:
    with needs_extra("judging"):
        from fabula.apps.judge.pairs import pair_results, read_pairs
        from fabula.apps.judge.study import StudySettings, lay_out

    settings = StudySettings(seed=args.seed, annotators=args.annotators)
    if len(args.pairs) > 2:
        raise UserError("give one file of pairs, or the results of two systems", field="pairs")
    items = lay_out(read_pairs(*args.pairs) if len(args.pairs) == 1 else pair_results(*args.pairs), settings)
    store = _store(args, create=True)
    store.create_study(items, settings)
    option = f" --db {shlex.quote(str(args.db))}" if args.db else ""
    print(f"{store.path}: {len(items)} pairs, {args.annotators} annotators a pair; now fabula judge serve{option}")
    return 0


def run_serve(args: argparse.Namespace) -> int:
    store = _store(args)
    from fabula.apps.judge.routes import create_app
    from fabula.apps.web.serve import serve

    app = create_app(store, host=args.host, token=args.token, names=args.allow_host)
    serve(app, args.host, args.port, args.token, name="Fabula judge")
    return 0


def run_report(args: argparse.Namespace) -> int:
    store = _store(args)
    with needs_extra("judging"):
        from fabula.apps.judge.report import report, table
        from fabula.corpus.folder import write_errors_for_user

    result = report(store, repeats=args.bootstrap, seed=args.seed)
    content = json.dumps(asdict(result), ensure_ascii=False)
    if args.out is not None:
        with write_errors_for_user(args.out):
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / "report.txt").write_text(table(result) + "\n", encoding="utf-8")
            (args.out / "report.json").write_text(content + "\n", encoding="utf-8")
    print(content if args.format == "json" else table(result))
    return 0

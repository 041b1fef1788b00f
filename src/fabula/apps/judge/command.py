"""`fabula judge`: people judge two stories side by side, and what they say is counted."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fabula.apps.studio.command import add_door
from fabula.errors import UserError

if TYPE_CHECKING:
    from fabula.apps.judge.machine import Verdict
    from fabula.apps.judge.store import Store

ABOUT = "let people judge two stories side by side"
EXAMPLES = """examples:
  fabula judge new pairs.jsonl --db study.db --seed 7 --checks 4
  fabula judge invite 12 --db study.db
  fabula judge serve --db study.db
  fabula judge report --db study.db --out report
  fabula judge report --db study.db --critic
  fabula judge export --db study.db --out turk
  fabula judge import turk/results.csv --db study.db
"""


def examples(what: str) -> str:
    """Those of one subcommand."""
    lines = [line for line in EXAMPLES.splitlines() if line.startswith(f"  fabula judge {what} ")]
    return "\n".join(["examples:", *lines, ""])


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "judge",
        help=ABOUT,
        description="The paper's human evaluation: people rate the sentences of two stories, and say which is better.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="what", metavar="WHAT", required=True)

    def kind(name: str, help: str, description: str) -> argparse.ArgumentParser:
        made = kinds.add_parser(
            name,
            help=help,
            description=description,
            epilog=examples(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        return made

    new = kind(
        "new",
        "begin a study",
        "Begin a study of the pairs in a file of JSON lines: "
        '{"id": ..., "systems": ["SLDS", "LM"], "given": [0, 4], "stories": [[...], [...]]}. '
        "Sides and order are drawn from the seed; a study that has answers is never overwritten.",
    )
    new.add_argument("pairs", type=Path, metavar="PAIRS.jsonl", help="the pairs, one JSON object a line")
    _add_db(new)
    new.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed gives the same study (0)")
    new.add_argument("--annotators", type=int, default=3, metavar="N", help="different people for each pair (3)")
    new.add_argument(
        "--checks", type=int, default=0, metavar="N",
        help="attention checks to make of the pairs: a story against itself with another's middle (0)",
    )  # fmt: skip
    new.add_argument(
        "--force", action="store_true", help="also where FILE holds a study without answers, or the studio's stories"
    )
    new.set_defaults(run=run_new)

    serve = kind("serve", "let people judge", "Serve a study's pages: / for annotators, /errors for its curator.")
    _add_db(serve)
    serve.add_argument(
        "--host", default="127.0.0.1", help="the address to listen at; another than this machine's wants a --token"
    )
    serve.add_argument("--port", type=int, default=8001, metavar="N", help="0 takes any that is free (default: 8001)")
    serve.add_argument(
        "--token", metavar="T", help="a secret of 8 characters or more that every client knows; needed off 127.0.0.1"
    )
    add_door(serve)
    serve.set_defaults(run=run_serve)

    invite = kind(
        "invite",
        "codes for annotators",
        "Make invitation codes. From then on only they are let in, and whoever has judged here already.",
    )
    invite.add_argument("number", type=int, metavar="N", help="how many codes")
    _add_db(invite)
    invite.set_defaults(run=run_invite)

    report = kind(
        "report", "what people said", "The paper's table with intervals, agreement, strengths, times and error counts."
    )
    _add_db(report)
    report.add_argument("--out", type=Path, metavar="DIR", help="write report.txt, .csv, .json and .svg there too")
    report.add_argument(
        "--format", choices=("table", "csv", "json"), default="table", help="what to print (default: table)"
    )
    report.add_argument(
        "--bootstrap",
        type=int,
        default=2000,
        metavar="N",
        help="resampled studies for the intervals, 0 for none (2000)",
    )
    report.add_argument("--seed", type=int, default=0, metavar="N", help="of the resampling (0)")
    report.add_argument(
        "--pass-share", type=float, default=0.75, metavar="X", help="of the checks that an annotator must pass (0.75)"
    )
    report.add_argument(
        "--critic", nargs="?", const="default", metavar="MODEL",
        help="show this model's critic (default's) as one more, marked, annotator with its agreement",
    )  # fmt: skip
    report.set_defaults(run=run_report)

    export = kind(
        "export",
        "a study for Mechanical Turk",
        "Write hits.csv, one HIT for each pair, and results.csv, the answers so far, in Mechanical Turk's form.",
    )
    _add_db(export)
    export.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write them into")
    export.set_defaults(run=run_export)

    take = kind(
        "import",
        "answers from Mechanical Turk",
        "Add the answers of a file of results (WorkerId, Input.*, Answer.*) to the study that it was exported from.",
    )
    take.add_argument("results", type=Path, metavar="RESULTS.csv", help="a file of results")
    _add_db(take)
    take.set_defaults(run=run_import)


def _add_db(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--db", type=Path, metavar="FILE", help="where the study is kept (~/.local/share/fabula/judge.db)"
    )


@contextmanager
def _extra() -> Iterator[None]:
    """Imports of what only those who judge need."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"judging needs {error.name}: pip install 'fabula-stories[studio]'") from error


def _store(args: argparse.Namespace, *, create: bool = False) -> Store:
    with _extra():
        from fabula.apps.judge.store import Store
        from fabula.apps.web.database import default_path
    return Store(args.db or default_path("judge.db"), create=create)


def run_new(args: argparse.Namespace) -> int:
    from fabula.apps.judge.pairs import read_pairs
    from fabula.apps.judge.study import StudySettings, lay_out

    settings = StudySettings(seed=args.seed, annotators=args.annotators, checks=args.checks)
    items = lay_out(read_pairs(args.pairs), settings)
    store = _store(args, create=True)
    store.create_study(items, settings, force=args.force)
    checks = sum(item.pair.is_check for item in items)
    print(
        f"{store.path}: {len(items) - checks} pairs and {checks} attention checks, {args.annotators} annotators a pair"
        f"; now fabula judge serve{f' --db {shlex.quote(str(args.db))}' if args.db else ''}"
    )
    return 0


def run_serve(args: argparse.Namespace) -> int:
    import secrets

    store = _store(args)
    from fabula.apps.judge.app import create_app
    from fabula.apps.web.serve import TOKEN_BYTES, check, serve, token_of

    token = token_of(args.token, args.token_file)
    check(args.host, token)
    key = secrets.token_urlsafe(TOKEN_BYTES)
    app = create_app(store, curator=key, host=args.host, token=token, names=args.allow_host)
    name = f"Fabula judge (the curator's key, asked for at /progress and /errors: {key})"
    serve(app, args.host, args.port, token, name=name)
    return 0


def run_invite(args: argparse.Namespace) -> int:
    if not 1 <= args.number <= 10_000:
        raise UserError(f"between 1 and 10,000 codes, not {args.number}", field="number")
    store = _store(args)
    from fabula.apps.judge.invite import new_codes

    codes = new_codes(args.number)
    store.invite(codes)
    print("\n".join(codes))
    return 0


def run_report(args: argparse.Namespace) -> int:
    store = _store(args)
    with _extra():
        from fabula.apps.judge.picture import svg
        from fabula.apps.judge.report import report
        from fabula.apps.judge.show import as_csv, table

    critic = None if args.critic is None else _critic(args.critic)
    found = report(store, pass_share=args.pass_share, repeats=args.bootstrap, seed=args.seed, critic=critic)
    shown = {
        "table": table(found) + "\n",
        "csv": as_csv(found),
        "json": json.dumps(found.to_json(), ensure_ascii=False) + "\n",
    }
    if args.out is not None:
        files = {"txt": shown["table"], "csv": shown["csv"], "json": shown["json"], "svg": svg(found)}
        _write(args.out, {f"report.{suffix}": text for suffix, text in files.items()})
    sys.stdout.write(shown[args.format])
    return 0


def _critic(model: str) -> tuple[str, Callable[[Sequence[str]], Verdict]]:
    """A model's name and what its critic says of a story."""
    from fabula.api import load

    narrator = load(model)

    def verdict(sentences: Sequence[str]) -> Verdict:
        told = narrator.judge(sentences)
        return told.holds_together, told.lines

    return narrator.name, verdict


def run_export(args: argparse.Namespace) -> int:
    store = _store(args)
    from fabula.apps.judge import mturk

    items = store.items()
    judgements, total = store.judgements()
    _write(args.out, {"hits.csv": mturk.hits(items), "results.csv": mturk.results(items, judgements)})
    print(f"{args.out}: {len(items)} HITs in hits.csv, {total} answers in results.csv")
    return 0


def run_import(args: argparse.Namespace) -> int:
    store = _store(args)
    from fabula.apps.judge import mturk

    found = mturk.read_results(args.results, store.items())
    new = store.restore(found)
    print(f"{store.path}: {new} new answers, {len(found) - new} that were there already")
    return 0


def _write(folder: Path, files: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise UserError(f"cannot write into {folder}: {error.strerror or error}", field="out") from error

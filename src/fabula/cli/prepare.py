"""`fabula prepare`: story files, or the toy grammar, to a prepared corpus."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING, Any

from fabula.cli import add_command
from fabula.corpus.read import MAX_SENTENCES, MAX_WORDS, MIN_SENTENCES
from fabula.errors import UserError

if TYPE_CHECKING:
    from fabula.corpus.prepare import Report

SHOWN_LABELS = 12
OWN = "own"

DESCRIPTION = f"""\
Read stories, tokenise and tag them, and write a folder that `fabula train` and `fabula evaluate` read.

A story has {MIN_SENTENCES} to {MAX_SENTENCES} sentences of at most {MAX_WORDS} words. Files, by their endings:
  .csv           ROCStories: storyid, storytitle, sentence1 ... sentence5
  .jsonl         one object per line: {{"sentences": [...], "tags": [label or null, ...], "id": ...}}
  .txt           a sentence per line and a blank line between stories; with --paragraphs, running text
A row that is no story is kept out, counted and listed; the folder appears complete or not at all.
"""

EXAMPLES = """\
examples:
  fabula prepare train.csv --valid valid.csv --test test.csv --out prepared/roc
  fabula prepare mine.txt --paragraphs --out prepared/mine
  fabula prepare tagged.jsonl --tagger own --out prepared/tagged
  fabula prepare --toy 2000 --seed 1 --out prepared/toy
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(subparsers, "prepare", DESCRIPTION, EXAMPLES)
    add = parser.add
    add("files", "story files of the training split", nargs="*", metavar="FILE")
    add("--out", "the folder to write; it must not exist yet", required=True, metavar="DIR")
    add("--valid", "stories of the validation split (default: drawn from FILE)", metavar="FILE")
    add("--test", "stories of the test split", metavar="FILE")
    add("--toy", "prepare N stories of the built-in toy grammar instead", type=int, metavar="N")
    text = "of the toy stories, and of the validation stories drawn from FILE (%(default)s)"
    add("--seed", text, type=int, default=0, metavar="S")
    text = "words seen less often in training become <unk> (default: 5; 1 for the toy corpus)"
    add("--cutoff", text, type=int, metavar="N")
    text = (
        "tag every sentence by this tagger, or by several, a,b: vader, emotion, verb or an installed one; own: the "
        "files' own tags (default: own where the files have any, else vader)"
    )
    add("--tagger", text, metavar="NAMES")
    add("--paragraphs", "split plain text into sentences by rule", action="store_true")
    add("--force", "replace a prepared corpus at DIR", action="store_true")
    add("--json", "print the report as JSON", action="store_true")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prepare, then print the report."""
    if (args.toy is None) == (not args.files):
        raise UserError("give story files, or --toy N", field="files")
    if args.toy is not None and (args.valid or args.test or args.paragraphs or args.tagger == OWN):
        raise UserError("--toy makes its own splits and tags: leave out the options that are about files", field="toy")
    from fabula.workflow import prepare

    settings: dict[str, Any] = {"force": args.force, "progress": not args.json and sys.stderr.isatty()}
    settings |= {} if args.cutoff is None else {"cutoff": args.cutoff}
    settings |= {} if args.tagger in (None, OWN) else {"tagger": args.tagger}
    # A polite kill is like Ctrl-C: the temporary folder is removed.
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if args.toy is None:
            own_tags = None if args.tagger is None else args.tagger == OWN
            settings |= {"valid": args.valid, "test": args.test, "own_tags": own_tags, "paragraphs": args.paragraphs}
        report = prepare(args.files, args.out, toy=args.toy, seed=args.seed, **settings)
    finally:
        signal.signal(signal.SIGTERM, previous)
    print(report.to_json() if args.json else render(report))
    if args.toy is None and args.valid is None:
        drawn = report.splits["valid"].stories if "valid" in report.splits else 0
        note = f"note: {drawn:,} of the stories were drawn (seed {args.seed}) to validate on; name others with --valid"
        none = "note: training also needs stories to validate on: name some with --valid"
        print(note if drawn else none, file=sys.stderr)
    return 0


def render(report: Report) -> str:
    """The report for people."""
    lines = [f"{report.folder}: {report.vocabulary:,} word types with the four specials, tags by {report.tagger}"]
    for name, split in report.splits.items():
        lines.append(
            f"  {name:<6}{split.stories:>9,} stories {split.sentences:>10,} sentences {split.tokens:>11,} tokens "
            f"({split.tokens / split.stories:.2f} per story), {100 * split.unknown_rate:.2f} % unknown"
        )
        shares = [f"{label} {100 * count / split.sentences:.1f} %" for label, count in split.tags.items()]
        if split.untagged:
            shares.append(f"no tag {100 * split.untagged / split.sentences:.1f} %")
        more = [f"and {len(shares) - SHOWN_LABELS} more"] if len(shares) > SHOWN_LABELS else []
        lines.append(f"  {'':<6}{', '.join(shares[:SHOWN_LABELS] + more)}")
    rejected = sum(split.rejected for split in report.splits.values())
    lines.append(f"  rejected rows: {rejected:,}")
    lines.extend(f"    {row}" for row in report.rejected)
    if rejected > len(report.rejected):
        lines.append(f"    and {rejected - len(report.rejected):,} more")
    return "\n".join(lines)

"""`fabula prepare`: story files, or the toy grammar, to a prepared corpus."""

import argparse
import signal
import sys
from types import FrameType

from fabula.cli import COMMANDS
from fabula.corpus.prepare import CUTOFF, LISTED, SHARD_ROWS, Report, prepare, prepare_stories
from fabula.corpus.read import FORMATS, MAX_SENTENCES, MAX_WORDS, MIN_SENTENCES
from fabula.corpus.taggers.protocol import DEFAULT_TAGGER, TAGGERS, build_tagger
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.corpus.transitions import SMOOTHING
from fabula.errors import UserError

HOLD_OUT = 0.05
"""Share of the stories to validate on where nobody names any: training needs some to know when to stop."""

_DESCRIPTION = f"""\
Read stories, tokenise and tag them, and write a folder that `fabula train` and `fabula evaluate` read.

A story has {MIN_SENTENCES} to {MAX_SENTENCES} sentences of at most {MAX_WORDS} words. Files, by their endings:
  .csv           ROCStories (storyid, storytitle, sentence1 ... sentence5) or Story Cloze (the right ending is taken)
  .jsonl         one object per line: {{"sentences": [...], "title": ..., "tags": [label or null, ...], "id": ...}}
  .txt           a sentence per line and a blank line between stories; with --paragraphs, running text
A row that is no story is kept out, counted and listed; the folder appears complete or not at all. A run that was killed
or stopped goes on when the same command is given again.
"""

_EXAMPLES = """\
examples:
  fabula prepare train.csv --valid valid.csv --test test.csv --out prepared/roc
  fabula prepare mine.txt --paragraphs --out prepared/mine
  fabula prepare tagged.jsonl --tags own --out prepared/tagged
  fabula prepare --toy 2000 --seed 1 --out prepared/toy
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register `prepare`."""
    parser = subparsers.add_parser(
        "prepare",
        help=COMMANDS["prepare"],
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="story files of the training split")
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder to write; it must not exist yet")
    parser.add_argument("--valid", metavar="FILE", help="stories of the validation split (default: drawn from FILE)")
    parser.add_argument("--test", metavar="FILE", help="stories of the test split")
    parser.add_argument("--toy", type=int, metavar="N", help="prepare N stories of the built-in toy grammar instead")
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="S",
        help="of the toy stories, and of the validation stories drawn from FILE (%(default)s)",
    )
    parser.add_argument(
        "--cutoff",
        type=int,
        metavar="N",
        help=f"words seen less often in training become <unk> (default: {CUTOFF}; 1 for the toy corpus)",
    )
    parser.add_argument(
        "--tags",
        choices=("auto", "vader", "own"),
        default="auto",
        help="VADER's sentiment, the files' own tags, or the files' own where they have any (default: %(default)s)",
    )
    parser.add_argument(
        "--tagger",
        metavar="NAMES",
        help=f"tag every sentence by this tagger, or by several, a,b: {', '.join(TAGGERS.names())} (or --tags)",
    )
    parser.add_argument(
        "--positive",
        type=float,
        default=VaderTagger().threshold_positive,
        metavar="X",
        help="a VADER score of at least X is positive (default: %(default)s)",
    )
    parser.add_argument(
        "--negative",
        type=float,
        default=VaderTagger().threshold_negative,
        metavar="X",
        help="a VADER score of at most X is negative (default: %(default)s)",
    )
    parser.add_argument(
        "--smoothing",
        type=float,
        default=SMOOTHING,
        metavar="X",
        help="added to each count behind p(S_1) and p(S_i | S_i-1) (default: %(default)s)",
    )
    parser.add_argument(
        "--shard-rows",
        type=int,
        default=SHARD_ROWS,
        metavar="N",
        help="a split with more rows is written in shards of so many, at most (default: %(default)s)",
    )
    parser.add_argument("--format", choices=FORMATS, help="read FILE as this, whatever its name ends in")
    parser.add_argument("--paragraphs", action="store_true", help="split plain text into sentences by rule")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core, at most 8)")
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace a prepared corpus at DIR, or an unfinished one with other settings",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prepare, then print the report."""
    if (args.toy is None) == (not args.files):
        raise UserError("give story files, or --toy N", field="files")
    if args.toy is not None and (args.valid or args.test or args.paragraphs or args.format or args.tags == "own"):
        raise UserError("--toy makes its own splits and tags: leave out the options that are about files", field="toy")
    if args.tagger is not None and args.tags != "auto":
        raise UserError("--tagger names a tagger, --tags says whose tags: give one of the two", field="tagger")
    usual = (VaderTagger().threshold_positive, VaderTagger().threshold_negative)
    names = (args.tagger or DEFAULT_TAGGER).split(",")
    if DEFAULT_TAGGER not in names and (args.positive, args.negative) != usual:
        raise UserError(f"--positive and --negative are VADER's, not those of {args.tagger}", field="tagger")
    thresholds = {"threshold_positive": args.positive, "threshold_negative": args.negative}
    parts = [{"tagger": name, **(thresholds if name == DEFAULT_TAGGER else {})} for name in names]
    tagger = build_tagger({"parts": parts} if len(parts) > 1 else parts[0])
    own_tags = False if args.tagger is not None else {"auto": None, "vader": False, "own": True}[args.tags]
    progress = not args.json and sys.stderr.isatty()
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        if args.toy is not None:
            from fabula.corpus.toy import toy_splits

            report = prepare_stories(
                toy_splits(args.toy, args.seed),
                args.out,
                provenance={"toy": args.toy, "seed": args.seed},
                cutoff=1 if args.cutoff is None else args.cutoff,
                tagger=tagger,
                smoothing=args.smoothing,
                shard_rows=args.shard_rows,
                force=args.force,
                jobs=args.jobs,
                progress=progress,
            )
        else:
            report = prepare(
                args.files,
                args.out,
                valid=args.valid,
                test=args.test,
                cutoff=CUTOFF if args.cutoff is None else args.cutoff,
                tagger=tagger,
                own_tags=own_tags,
                smoothing=args.smoothing,
                shard_rows=args.shard_rows,
                paragraphs=args.paragraphs,
                format=args.format,
                force=args.force,
                jobs=args.jobs,
                progress=progress,
                hold_out=HOLD_OUT,
                seed=args.seed,
            )
    finally:
        signal.signal(signal.SIGTERM, previous)
    print(report.to_json() if args.json else render(report))
    if args.toy is None and args.valid is None:
        drawn = report.splits["valid"].stories if "valid" in report.splits else 0
        told = f"note: {drawn:,} of the stories were drawn (seed {args.seed}) to validate on; name others with --valid"
        print(
            told if drawn else "note: training also needs stories to validate on: name some with --valid",
            file=sys.stderr,
        )
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    """A polite kill is like Ctrl-C: the workers end."""
    raise KeyboardInterrupt


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
        shown = shares if len(shares) <= 12 else [*shares[:12], f"and {len(shares) - 12} more"]
        lines.append(f"  {'':<6}{', '.join(shown)}")
    rejected = sum(split.rejected for split in report.splits.values())
    lines.append(f"  rejected rows: {rejected:,}")
    lines.extend(f"    {row}" for row in report.rejected)
    if rejected > LISTED:
        lines.append(f"    and {rejected - LISTED:,} more")
    return "\n".join(lines)

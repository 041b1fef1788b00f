"""`fabula compare`: the same stories by several models, figures beside each other, and pairs to be read blind."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from fabula.cli import add_command, show
from fabula.errors import UserError

ABOUT = "fill in the same stories with several models, and compare"
EXAMPLES = """examples:
  fabula compare stories.jsonl --models default,small,served:local --out compared
  fabula judge new compared/pairs.jsonl --db study.db       read them blind in the browser

critic: mean log-odds, by the default model's critic, that a person wrote the story; control: share of the tags asked
for that the taggers find; copying: share of written 4-grams that stand in the given lines; words: of a written line;
seconds: a story; tokens: in all, as a server counts them.
"""
FIGURES = ("stories", "critic", "control", "copying", "words", "seconds", "tokens")
Row = Mapping[str, Any]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "Fill in stories with each model. DIR gets pairs for `fabula judge`, and the same blind with their key."
    parser = add_command(subparsers, "compare", about, EXAMPLES, ABOUT)
    parser.add("file", "rows as `fabula fill-many` takes them", type=Path, metavar="FILE")
    parser.add("--models", "names with commas between them", required=True)
    parser.add("--out", "the folder to write into", type=Path, required=True, metavar="DIR")
    parser.add("--samples", "of every story (each model's own number)", type=int, metavar="N")
    parser.add("--seed", "the same seed gives the same stories (0)", type=int, default=0, metavar="N")
    parser.add_flag("--json", "print the figures as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from fabula.api import load
    from fabula.apps.fleet.rows import check_files, read_items
    from fabula.served.model import DefaultJudge

    check_files([args.file])
    items, names = list(read_items([args.file])), list(dict.fromkeys(args.models.split(",")))
    rows = [item.row for item in items if item.row is not None]
    if len(names) < 2 or not rows or len(rows) < len(items):
        wrong = next((f"row {item.number}: {item.error}" for item in items if item.row is None), "two models or more")
        raise UserError(f"compare takes a file with stories, and models: {wrong}", field="models")
    judge, figures, written = DefaultJudge(), {}, {}
    for name in names:
        model, began = load(name), time.perf_counter()
        results = list(model.fill_many(rows, candidates=1, seed=args.seed, samples=args.samples))
        seconds = (time.perf_counter() - began) / len(rows)
        written[name] = {str(r.id): [s.text for s in r.candidates[0].sentences] for r in results if r.candidates}
        tokens = model.client.usage["tokens"] if hasattr(model, "client") else None
        figures[name] = dict(zip(FIGURES, (*measure(judge, rows, written[name]), seconds, tokens), strict=True))
    write(args.out, rows, written, args.seed)
    if args.json:
        show.print_json(figures)
        return 0
    print(f"{'':<20}" + "".join(f"{name:>9}" for name in FIGURES))
    for name, values in figures.items():
        print(f"{name:<20}" + "".join(f"{'-' if v is None else f'{v:,.4g}':>9}" for v in values.values()))
    return 0


def measure(judge: Any, rows: Sequence[Row], stories: Mapping[str, Sequence[str]]) -> tuple[float | None, ...]:
    """The first five figures of one model's stories."""
    from fabula.corpus.taggers.protocol import misses
    from fabula.metrics.counting import ngrams, words_of

    asked, missed, copied, grams, words, lines = [0] * 6
    for row in (row for row in rows if str(row["id"]) in stories):
        given = {gram for sentence in row["sentences"] if sentence for gram in ngrams(words_of(sentence), 4)}
        arc = judge.states.parse(row.get("arc") or (None,) * len(row["sentences"]))
        triples = zip(stories[str(row["id"])], arc, row["sentences"], strict=True)
        for text, values in ((text, values) for text, values, sentence in triples if sentence is None):
            asked += sum(value >= 0 for value in values)
            missed += misses(judge.tagger, [text], [int(judge.states.number([values])[0])])[0]
            of_line = ngrams(words_of(text), 4)
            copied, grams = copied + sum(gram in given for gram in of_line), grams + len(of_line)
            words, lines = words + len(text.split()), lines + 1
    verdicts = [judge.critic.read(story).whole for story in stories.values()] if judge.critic else []
    critic, control = sum(verdicts) / len(verdicts) if verdicts else None, 1 - missed / asked if asked else None
    return len(stories), critic, control, copied / max(1, grams), words / max(1, lines)


def write(folder: Path, rows: Sequence[Row], written: Mapping[str, Mapping[str, Any]], seed: int) -> None:
    """Pairs for `fabula judge new`, and the same blind with their key."""
    from fabula.apps.judge.pairs import PAIR
    from fabula.apps.judge.study import StudySettings, lay_out

    pairs: list[dict[str, Any]] = []
    for row in rows:
        given = [i for i, sentence in enumerate(row["sentences"]) if sentence is not None]
        for names in combinations([name for name in written if str(row["id"]) in written[name]], 2):
            stories, id = [written[name][str(row["id"])] for name in names], f"{len(pairs) + 1}: {row['id']}"[:80]
            pair = {"id": id, "systems": [*names], "given": given, "stories": stories}
            pairs += [pair] if stories[0] != stories[1] else []
    items = lay_out([PAIR.validate_python(pair) for pair in pairs], StudySettings(seed=seed))
    blind = [{"item": item.number, **dict(zip(("left", "right"), item.sides(), strict=True))} for item in items]
    key = {item.number: item.pair.systems[:: -1 if item.swapped else 1] for item in items}
    files: dict[str, Sequence[Any]] = {"pairs.jsonl": pairs, "blind.jsonl": blind, "key.json": [key]}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, entries in files.items():
            lines = (json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
            (folder / name).write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write into {folder}: {error.strerror}", field="out") from error

"""`fabula compare`: the same stories by several models, figures beside each other, and pairs to be read blind."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from fabula.cli import add_command, show
from fabula.errors import UserError

ABOUT = "fill in the same stories with several models, and compare"
EXAMPLES = """examples:
  fabula compare stories.jsonl --models default,small,served:local --out compared
  fabula judge new compared/pairs.jsonl --db study.db       read them blind in the browser
"""
FIGURES = {
    "critic": "mean log-odds, by the default model's critic, that a person wrote the story",
    "control": "share of the tags asked for that the taggers find",
    "copying": "share of written 4-grams that stand in the given lines",
    "words": "of a written line",
    "seconds": "a story",
    "tokens": "of a server, as it counts them",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "; ".join(f"{name}: {meaning}" for name, meaning in FIGURES.items())
    description = f"Fill in the stories of a file with each model and compare. {about}. DIR gets the stories, pairs for"
    parser = add_command(
        subparsers, "compare", f"{description} `fabula judge`, and a blind file with its key.", EXAMPLES, ABOUT
    )
    parser.add("file", "rows as `fabula fill-many` takes them", type=Path, metavar="FILE")
    parser.add("--models", "names with commas between them, such as default,small,served:local", required=True)
    parser.add("--out", "the folder to write into", type=Path, required=True, metavar="DIR")
    parser.add("--limit", "read so many rows at most", type=int, metavar="N")
    parser.add("--samples", "of every story (each model's own number)", type=int, metavar="N")
    parser.add("--seed", "the same seed gives the same stories (0)", type=int, default=0, metavar="N")
    parser.add_flag("--json", "print the figures as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from fabula.api import load
    from fabula.apps.fleet.rows import check_files, read_items

    check_files([args.file])
    items = list(islice(read_items([args.file]), args.limit))
    if faults := [f"row {item.number}: {item.error}" for item in items if item.row is None]:
        raise UserError(f"{args.file}, {faults[0]}", field="file")
    rows = [dict(item.row or {}) for item in items]
    names = list(dict.fromkeys(args.models.split(",")))
    if len(names) < 2 or not rows:
        raise UserError("compare takes two models or more, and a file with stories", field="models")
    judge, figures, written = load("default"), {}, {}
    for name in names:
        model, began = load(name), time.perf_counter()
        results = list(model.fill_many(rows, candidates=1, seed=args.seed, samples=args.samples))
        seconds = (time.perf_counter() - began) / len(rows)
        written[name] = {str(r["id"]): r["candidates"][0]["sentences"] for r in results if "candidates" in r}
        usage = model.client.usage if hasattr(model, "client") else {}
        figures[name] = {**measure(judge, rows, written[name]), "seconds": seconds, "tokens": usage.get("tokens")}
    write(args.out, rows, written, args.seed)
    if args.json:
        show.print_json(figures)
        return 0
    print(f"{'':<20}{'stories':>9}" + "".join(f"{name:>9}" for name in FIGURES))
    for name, values in figures.items():
        cells = ("-" if values[key] is None else f"{values[key]:,.2f}" for key in FIGURES)
        print(f"{name:<20}{values['stories']:>9}" + "".join(f"{cell:>9}" for cell in cells))
    return 0


def measure(judge: Any, rows: Sequence[Mapping[str, Any]], stories: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The figures of one model's stories."""
    from fabula.corpus.taggers.protocol import misses
    from fabula.metrics.counting import ngrams, words_of

    asked = missed = copied = grams = words = lines = 0
    verdicts = []
    for row in rows:
        if (story := stories.get(str(row["id"]))) is None:
            continue
        given = {gram for sentence in row["sentences"] if sentence for gram in ngrams(words_of(sentence), 4)}
        arc = judge.states.parse((None,) * len(story) if row.get("arc") is None else row["arc"])
        for text, sentence, values in zip(story, row["sentences"], arc, strict=True):
            if sentence is None:
                asked += sum(value >= 0 for value in values)
                missed += misses(judge.tagger, [text], [int(judge.states.number([values])[0])])[0]
                own = ngrams(words_of(text), 4)
                copied, grams = copied + sum(gram in given for gram in own), grams + len(own)
                words, lines = words + len(text.split()), lines + 1
        verdicts += [] if judge.model.critic is None else [judge.judge(story).holds_together]
    critic = sum(verdicts) / len(verdicts) if verdicts else None
    shares = {"control": 1 - missed / asked if asked else None, "copying": copied / max(1, grams)}
    return {"stories": len(stories), "critic": critic, **shares, "words": words / max(1, lines)}


def write(folder: Path, rows: Sequence[Mapping[str, Any]], written: Mapping[str, Mapping[str, Any]], seed: int) -> None:
    """The stories, pairs for `fabula judge new`, and the pairs blind with their key."""
    from fabula.apps.judge.pairs import parse_pair
    from fabula.apps.judge.study import StudySettings, lay_out

    pairs: list[dict[str, Any]] = []
    for row in rows:
        given = [i for i, sentence in enumerate(row["sentences"]) if sentence is not None]
        for one, other in combinations([name for name in written if str(row["id"]) in written[name]], 2):
            stories = [written[name][str(row["id"])] for name in (one, other)]
            if stories[0] != stories[1]:
                id = f"{row['id']}: {len(pairs) + 1}"
                pairs.append({"id": id[-80:], "systems": [one, other], "given": given, "stories": stories})
    items = lay_out([parse_pair(pair) for pair in pairs], StudySettings(seed=seed))
    blind = [{"item": item.number, **dict(zip(("left", "right"), item.sides(), strict=True))} for item in items]
    key = {item.number: (item.pair.systems or ())[:: -1 if item.swapped else 1] for item in items}
    stories_of = [{"id": row["id"], **{name: of.get(str(row["id"])) for name, of in written.items()}} for row in rows]
    files: dict[str, Sequence[Any]] = {
        "stories.jsonl": stories_of,
        "pairs.jsonl": pairs,
        "blind.jsonl": blind,
        "key.json": [key],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, entries in files.items():
            text = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write into {folder}: {error.strerror}", field="out") from error

"""Nine thousand short readings by language models, which the critic learnt from (`training/readings.py`).

    python benchmarks/readings.py unpack DATA       # DATA/train.csv and records/readings.json.xz -> DATA/readings.jsonl

Stories of the training split with lines missing, which the narrator filled in, and some as people told them. Language
models that were told nothing of who wrote what read them one by one, shuffled, and said how well each holds together
(0 to 3) and which line breaks it first (0: none). The record holds the numbers and the written lines; the given lines
are the corpus's and come from DATA/train.csv by the story's id. Tellings with a line that also stands in the corpus are
left out of it.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "records" / "readings.json.xz"


def corpus(data: Path) -> dict[str, list[str]]:
    with (data / "train.csv").open(encoding="utf-8", newline="") as file:
        return {row["storyid"]: [row[f"sentence{i}"] for i in range(1, 6)] for row in csv.DictReader(file)}


def unpack(data: Path) -> None:
    people = corpus(data)
    lines, unknown = [], 0
    for of, (story, tellings) in enumerate(json.loads(lzma.decompress(RECORD.read_bytes())).items()):
        if story not in people:
            unknown += 1
            continue
        for coherence, line, missing, written in tellings:
            sentences = list(people[story])
            for i, sentence in zip(missing, written, strict=True):
                sentences[i] = sentence
            lines.append({"of": of, "sentences": sentences, "coherence": coherence, "line": line})
    (data / "readings.jsonl").write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in lines))
    print(f"{len(lines)} readings; {unknown} stories are not in {data / 'train.csv'}")


def pack(data: Path, readings: Path) -> None:
    """Of lines {"id": the story's, "missing": numbers, "sentences": all, "coherence": ., "line": .}."""
    known = {sentence for story in corpus(data).values() for sentence in story}
    stories: dict[str, list[Any]] = {}
    left_out = 0
    for entry in map(json.loads, readings.read_text(encoding="utf-8").splitlines()):
        written = [entry["sentences"][i] for i in entry["missing"]]
        if known & set(written):
            left_out += 1
            continue
        stories.setdefault(entry["id"], []).append([entry["coherence"], entry["line"], entry["missing"], written])
    RECORD.write_bytes(lzma.compress(json.dumps(stories, ensure_ascii=False, separators=(",", ":")).encode(), preset=9))
    print(f"{sum(map(len, stories.values()))} readings of {len(stories)} stories, {left_out} left out")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["unpack", "pack"])
    parser.add_argument("data", type=Path)
    parser.add_argument("readings", type=Path, nargs="?", help="what pack reads")
    args = parser.parse_args()
    if args.what == "unpack":
        unpack(args.data)
    else:
        pack(args.data, args.readings)


if __name__ == "__main__":
    main()

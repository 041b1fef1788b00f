"""Blind readings: stories for readers who do not know who wrote them, and the readings that taught the critic.

    FABULA_DATA=... python benchmarks/reading.py write OUT --number 40    OUT/stories.txt, OUT/key.json
    python benchmarks/reading.py report OUT ratings.json                  means, standard errors, pairs
    python benchmarks/reading.py unpack DATA                              DATA/readings.jsonl, for training a critic
    python benchmarks/reading.py frames DATA                              DATA/readings-frames.jsonl, DATA/held.jsonl
    python benchmarks/reading.py rated DATA                               DATA/rated.jsonl, for pairs of preferences
    python benchmarks/reading.py choice judged.jsonl                      a critic's choice among rated samples
    python benchmarks/reading.py measures DATA                            do measures of words find bad middles?
    python benchmarks/reading.py pack DATA readings.jsonl                 records/readings.json.xz

`write`: the first and last sentence of validation stories are given, three are missing. The systems are people, the
default model's answer, its first sample, and the small model's answer. `ratings.json` has for each story number
{"coherence": 0 to 3, "senseless": of the three middle sentences, "interest": 0 to 2}.

records/readings.json.xz holds 9,000 short readings by language models, which did not know the systems: how well a story
of the training split holds together (0 to 3) and which line breaks it first (0: none). It has the numbers and the
written lines only; the given lines come from DATA/train.csv by the story's id.

`frames` does the same with docs/readings/frames.jsonl.xz, eight rated samples of 640 stories of DATA/valid.csv. One
story in ten is held out, for `narrator_gpu.py judge --fills DATA/held.jsonl`, whose output `choice` reads. `rated`
has the samples of both records, less those held out, as `narrator_gpu.py pairs` reads them.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import lzma
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).parent / "records" / "readings.json.xz"
FRAMES = Path(__file__).parents[1] / "docs" / "readings" / "frames.jsonl.xz"
NAMED_THINGS = r"\b(?:the|his|her|their|my|our|its)\s+([a-z]{3,})"
ACTIONS = ("write", "report", "unpack", "frames", "rated", "choice", "measures", "pack")
FIGURES = ("coherence", "senseless", "interest")


def corpus(file: Path) -> dict[str, list[str]]:
    """The five sentences of every story of a ROCStories file, by the story's id."""
    with file.open(encoding="utf-8", newline="") as stream:
        return {row["storyid"]: [row[f"sentence{i}"] for i in range(1, 6)] for row in csv.DictReader(stream)}


def readings() -> dict[str, list[Any]]:
    """By story id: [coherence, breaking line, numbers of the written lines, the written lines] of each sample."""
    content: dict[str, list[Any]] = json.loads(lzma.decompress(RECORD.read_bytes()))
    return content


def write(out: Path, number: int, seed: int) -> None:
    import fabula

    stories = list(corpus(Path(os.environ["FABULA_DATA"]) / "valid.csv").values())
    rng = random.Random(seed)
    chosen = rng.sample(stories, number)
    default, small = fabula.load("default"), fabula.load("small")

    def answer(model: Any, story: list[str], seed: int, **samples: int) -> list[str]:
        blanks = [story[0], None, None, None, story[4]]
        best = model.fill(blanks, candidates=1, seed=seed, **samples).candidates[0]
        return [sentence.text for sentence in best.sentences]

    texts: list[tuple[int, str, list[str]]] = []
    for n, story in enumerate(chosen):
        texts.append((n, "people", [" ".join(sentence.split()) for sentence in story]))
        texts.append((n, "narrator", answer(default, story, n)))
        texts.append((n, "first sample", answer(default, story, 1000 + n, samples=1)))
        texts.append((n, "small", answer(small, story, n)))
        print(f"{n + 1} of {number}", flush=True)
    rng.shuffle(texts)
    out.mkdir(parents=True, exist_ok=True)
    lines = [f"[{k}] " + " / ".join(sentences) for k, (_, _, sentences) in enumerate(texts)]
    (out / "stories.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "key.json").write_text(json.dumps([[n, system] for n, system, _ in texts]))


def report(out: Path, ratings: Path) -> None:
    key = json.loads((out / "key.json").read_text())
    rated = json.loads(ratings.read_text())
    systems = sorted({system for _, system in key})
    table = {system: {n: rated[str(k)] for k, (n, s) in enumerate(key) if s == system} for system in systems}
    for system in systems:
        cells = []
        for figure in FIGURES:
            values = np.array([row[figure] for row in table[system].values()], dtype=float)
            cells.append(f"{figure} {values.mean():.2f} (se {values.std(ddof=1) / len(values) ** 0.5:.2f})")
        good = np.mean([row["coherence"] >= 2 for row in table[system].values()])
        print(f"{system:14}", *cells, f"share at 2 or 3 {good:.2f}", sep="  ")
    gaps = np.array([table["narrator"][n]["coherence"] - table["small"][n]["coherence"] for n in table["narrator"]])
    won, lost = int((gaps > 0).sum()), int((gaps < 0).sum())
    print(f"narrator against small, story by story: {gaps.mean():+.2f}, won {won}, lost {lost} of {len(gaps)}")


def unpacked(data: Path) -> Iterator[dict[str, Any]]:
    """Every reading with its whole story, where DATA/train.csv has the story."""
    people = corpus(data / "train.csv")
    for of, (story, samples) in enumerate(readings().items()):
        for coherence, line, missing, written in samples if story in people else ():
            sentences = list(people[story])
            for i, sentence in zip(missing, written, strict=True):
                sentences[i] = sentence
            yield {"of": of, "sentences": sentences, "coherence": coherence, "line": line}


def rated_frames(data: Path) -> list[dict[str, Any]]:
    """Every story with its eight samples and their mean coherence, in an order of its own."""
    people = corpus(data / "valid.csv")
    lines = [json.loads(line) for line in lzma.decompress(FRAMES.read_bytes()).decode().splitlines()]
    random.Random(3).shuffle(lines)
    by_start = {name[: len(lines[0]["story"])]: sentences for name, sentences in people.items()}
    return [
        {
            "story": n, "sentences": by_start[line["story"]], "missing": [1, 2, 3], "samples": line["written"],
            "coherence": np.mean([[c for c, *_ in reader] for reader in line["readings"]], 0).tolist(),
            "lines": [first_wrong for _, first_wrong, _ in line["readings"][0]],
        }
        for n, line in enumerate(lines)
    ]  # fmt: skip


def frames(data: Path) -> None:
    """What teaches a critic (of each story the three best and the three worst samples), and the stories held out."""
    taught, held = [], []
    for frame in rated_frames(data):
        first, *_, last = frame["sentences"]
        order = sorted(range(len(frame["samples"])), key=frame["coherence"].__getitem__)
        for k in [*order[:3], *order[-3:]]:
            entry = {"of": 100_000 + frame["story"], "sentences": [first, *frame["samples"][k], last]}
            taught.append({**entry, "coherence": frame["coherence"][k], "line": frame["lines"][k]})
        held += [frame] if frame["story"] % 10 == 0 else []
    for name, lines in (("readings-frames", taught), ("held", held)):
        (data / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print(f"{len(taught)} readings, {len(held)} stories held out")


def rated(data: Path) -> None:
    """Every story's rated samples side by side, those that miss the same lines together; ratings are [coherence, 0]."""
    people = corpus(data / "train.csv")
    lines: list[dict[str, Any]] = []
    for of, (story, samples) in enumerate(readings().items()):
        groups: dict[tuple[int, ...], list[Any]] = {}
        for coherence, _, missing, written in samples if story in people else ():
            if missing:  # some readings are of people's stories and of corruptions
                groups.setdefault(tuple(missing), []).append((written, [coherence, 0.0]))
        for missing, group in groups.items():
            versions, ratings = zip(*group, strict=True)
            about = {"story": of, "sentences": people[story], "missing": missing}
            lines.append({**about, "samples": versions, "ratings": ratings})
    for frame in rated_frames(data):
        if frame["story"] % 10:
            lines.append({**frame, "ratings": [[c, 0.0] for c in frame["coherence"]]})
    (data / "rated.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print(f"{sum(len(line['samples']) for line in lines)} samples of {len(lines)} stories")


def within(x: Any, y: Any) -> float:
    """Correlation among the samples of one story: both less their story's mean."""
    a, b = (np.asarray(v) - np.mean(v, 1, keepdims=True) for v in (x, y))
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def choice(judged: Path) -> None:
    """How a critic's values agree with coherence, and what its choice among all samples of a story is worth."""
    lines = [json.loads(line) for line in judged.read_text(encoding="utf-8").splitlines()]
    values = np.array([[v[-1] for v in line["critic"]] for line in lines])
    coherence = np.array([line["coherence"] for line in lines])
    words = [[np.mean([len(s.split()) for s in sample]) for sample in line["samples"]] for line in lines]
    chosen = coherence[np.arange(len(lines)), values.argmax(1)]
    print(f"r within a story {within(values, coherence):.3f}, with words a line {within(values, words):.2f}")
    print(f"coherence: a sample {coherence.mean():.2f}, the critic's choice {chosen.mean():.2f}", end=" ")
    print(f"(se {chosen.std(ddof=1) / len(lines) ** 0.5:.2f}), the reader's {coherence.max(1).mean():.2f}")


def measures(data: Path) -> None:
    """Readers' commonest complaints as measures of words, and their correlation with coherence within a story."""
    from narrator_gpu import content, echo

    rated, figures = rated_frames(data), {}
    figures["line 4 says the ending"] = [[echo(s[-1], f["sentences"][4:]) for s in f["samples"]] for f in rated]
    unmet = figures["the ending's things that were not met"] = []
    for f in rated:
        things = {thing[:5] for thing in re.findall(NAMED_THINGS, f["sentences"][4].lower())}
        texts = [" ".join([f["sentences"][0], *s]).lower() for s in f["samples"]]
        unmet.append([sum(thing not in text for thing in things) / max(1, len(things)) for text in texts])
    stems = [[[content(line) for line in s] for s in f["samples"]] for f in rated]
    figures["lines that say the same"] = [
        [max(len(a & b) / max(1, len(a | b)) for a, b in itertools.pairwise(s)) for s in samples] for samples in stems
    ]
    figures["words a line"] = [[float(np.mean([len(x.split()) for x in s])) for s in f["samples"]] for f in rated]
    for name, values in figures.items():
        print(f"{name:40} mean {np.mean(values):.3f}, r {within(values, [f['coherence'] for f in rated]):+.3f}")


def pack(data: Path, file: Path) -> None:
    """Keeps lines {"id", "missing", "sentences", "coherence", "line"} whose written lines are not in the corpus."""
    known = {sentence for story in corpus(data / "train.csv").values() for sentence in story}
    stories: dict[str, list[Any]] = {}
    for entry in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        written = [entry["sentences"][i] for i in entry["missing"]]
        if not known & set(written):
            stories.setdefault(entry["id"], []).append([entry["coherence"], entry["line"], entry["missing"], written])
    RECORD.write_bytes(lzma.compress(json.dumps(stories, ensure_ascii=False, separators=(",", ":")).encode(), preset=9))
    print(f"{sum(map(len, stories.values()))} readings of {len(stories)} stories")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path, nargs="?", help="the ratings of report, the readings of pack")
    parser.add_argument("--number", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.action == "write":
        write(args.folder, args.number, args.seed)
    elif args.action == "report":
        report(args.folder, args.file)
    elif args.action == "pack":
        pack(args.folder, args.file)
    elif args.action != "unpack":
        {"frames": frames, "rated": rated, "choice": choice, "measures": measures}[args.action](args.folder)
    else:
        lines = [json.dumps(entry, ensure_ascii=False) + "\n" for entry in unpacked(args.folder)]
        (args.folder / "readings.jsonl").write_text("".join(lines), encoding="utf-8")
        print(f"{len(lines)} readings")


if __name__ == "__main__":
    main()

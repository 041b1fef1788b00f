"""Stories for readers who do not know who wrote them: shuffled, without names of systems, and their verdicts.

    FABULA_DATA=... python benchmarks/reading.py write OUT --number 40        OUT/stories.txt, OUT/key.json
    python benchmarks/reading.py report OUT ratings.json                      means, standard errors, pairs

The first and last sentence of validation stories are given, three are missing. Systems: people, the default model's
answer, its first sample, the small model's answer. `ratings.json` has for each story number {"coherence": 0 to 3,
"senseless": of the three middle sentences, "interest": 0 to 2}.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
from pathlib import Path

import numpy as np

import fabula

FIGURES = ("coherence", "senseless", "interest")


def write(out: Path, number: int, seed: int) -> None:
    with open(Path(os.environ["FABULA_DATA"]) / "valid.csv", newline="", encoding="utf-8") as file:
        rows = [[" ".join(s.split()) for s in line[2:7]] for line in list(csv.reader(file))[1:]]
    rng = random.Random(seed)
    chosen = rng.sample(range(len(rows)), number)
    narrator, small = fabula.load("default"), fabula.load("small")
    texts: list[tuple[int, str, list[str]]] = []
    for n, row in enumerate(chosen):
        blanks = [rows[row][0], None, None, None, rows[row][4]]
        found = {
            "people": rows[row],
            "narrator": answer(narrator, blanks, n, 16),
            "first sample": answer(narrator, blanks, 1000 + n, 1),
            "small": answer(small, blanks, n, 50),
        }
        texts += [(n, system, story) for system, story in found.items()]
        print(f"{n + 1} of {number}", flush=True)
    rng.shuffle(texts)
    out.mkdir(parents=True, exist_ok=True)
    lines = [f"[{k}] " + " / ".join(story) for k, (_, _, story) in enumerate(texts)]
    (out / "stories.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "key.json").write_text(json.dumps([[n, system] for n, system, _ in texts]))


def answer(model: fabula.Narrator, blanks: list[str | None], seed: int, samples: int) -> list[str]:
    best = model.fill(blanks, candidates=1, samples=samples, seed=seed).candidates[0]
    return [sentence.text for sentence in best.sentences]


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "report"))
    parser.add_argument("out", type=Path)
    parser.add_argument("ratings", type=Path, nargs="?")
    parser.add_argument("--number", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.what == "write":
        write(options.out, options.number, options.seed)
    else:
        assert options.ratings is not None, "report wants the ratings"
        report(options.out, options.ratings)

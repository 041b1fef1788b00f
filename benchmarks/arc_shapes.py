"""How stories that follow one of the six shapes run in the training corpus: figures for the studio's menu of arcs.

    python benchmarks/arc_shapes.py DATA/train.csv

Each story's arc is VADER's score of its sentences. It belongs to the shape (Reagan et al. 2016: half a wave up or down,
one wave, one and a half) whose curve it correlates with most, where that is above `CLEAR`. Printed for each shape: the
share of stories, the mean arc between 0 (the lowest sixth of all scores) and 1 (the highest), the commonest moods.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

CLEAR = 0.8
SIGNS = "-.+"
SHAPES = {
    "Rags to riches": (1, 1), "Riches to rags": (1, -1), "Man in a hole": (2, -1), "Icarus": (2, 1),
    "Cinderella": (3, 1), "Oedipus": (3, -1),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("stories", type=Path)
    parser.add_argument("--most", type=int, default=30_000)
    args = parser.parse_args()
    judge = SentimentIntensityAnalyzer()
    with args.stories.open(encoding="utf-8", newline="") as file:
        rows = [row for _, row in zip(range(args.most), csv.DictReader(file), strict=False)]
    scores = np.array([[judge.polarity_scores(row[f"sentence{i}"])["compound"] for i in range(1, 6)] for row in rows])
    t = np.linspace(0, 1, 5)
    curves = np.stack([-way * np.cos(np.pi * turns * t) for turns, way in SHAPES.values()])
    flat = scores - scores.mean(1, keepdims=True)
    curves = curves - curves.mean(1, keepdims=True)
    size = np.linalg.norm(flat, axis=1, keepdims=True) * np.linalg.norm(curves, axis=1)
    fit = (flat @ curves.T) / np.maximum(size, 1e-9)
    best, clear = fit.argmax(1), fit.max(1) > CLEAR
    low, high = np.quantile(scores, [1 / 6, 5 / 6])
    tags = np.digitize(scores, [-0.2, 0.2])
    told = []
    for number, name in enumerate(SHAPES):
        own = clear & (best == number)
        arcs = Counter("".join(SIGNS[k] for k in row) for row in tags[own])
        mean = ((scores[own].mean(0) - low) / (high - low)).clip(0, 1)
        told.append({"name": name, "share": round(float(own.mean()), 3), "mean": mean.round(2).tolist(),
                     "commonest": arcs.most_common(1)[0][0], "stories": int(own.sum())})  # fmt: skip
    print(json.dumps({"stories": len(rows), "clear": round(float(clear.mean()), 3), "shapes": told}, indent=1))


if __name__ == "__main__":
    main()

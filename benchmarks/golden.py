"""The shipped GRU model's answers, written once and compared after a change that should not alter them.

    python benchmarks/golden.py make FILE
    python benchmarks/golden.py check FILE        prints every difference; figures agree within 2e-3

Run both on the same machine: a sampled word may hang on the last bit of a float, which another CPU rounds otherwise.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import fabula
from fabula.api import installed

MODEL = "small" if "small" in installed() else "default"
FILLS: list[dict[str, Any]] = [
    {"sentences": ["Tom was afraid of dogs.", None, None, None, "Now they sleep in the same bed."], "seed": 9},
    {"sentences": ["Our roof began to leak.", None, None, "We slept well."], "arc": "- . ? +", "seed": 1},
    {"sentences": ["Sam lost his wallet.", None, "He thanked her.", None], "starts": {2: "He looked"}, "seed": 2},
    {"sentences": ["Siobhan found an old key.", None, None, None, "She cried."], "sampler": "gibbs", "seed": 3},
    {"sentences": ["Ann sang.", None, "She won."], "sampler": "gibbs", "x_step": "sampled", "seed": 4},
    {"sentences": [None, "It rained all day.", None, None, "Mia went home."], "candidates": 5, "seed": 5},
]
STORY = ["Nora got a blue drum.", "She played it all day.", "The stick broke.", "She was upset.", "Dad fixed it."]


def answers() -> dict[str, Any]:
    narrator = fabula.load(MODEL)
    found: dict[str, Any] = {}
    for number, task in enumerate(FILLS):
        filling = narrator.fill(**task)
        found[f"fill {number}"] = [
            {"score": c.score, "sentences": [[s.text, s.tag, s.log_p] for s in c.sentences]} for c in filling.candidates
        ]
    written = narrator.write(6, arc=". . - - . +", seed=6)
    found["write"] = [s.text for s in written.candidates[0].sentences]
    score = narrator.score(STORY, samples=50, seed=7)
    found["score"] = [score.log_p, *score.log_p_sentences]
    found["tags"] = [dict(shares) for shares in narrator.tag(STORY).probabilities]
    found["posterior"] = [dict(shares) for shares in narrator.posterior([STORY[0], None, STORY[4]], seed=8).tags]
    reasons = narrator.explain(STORY, seed=9).sentences
    found["explain"] = [[r.log_p, r.fits_before, r.fits_after] for r in reasons]
    return found


def differences(path: str, before: Any, after: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        return [d for key in {**before, **after} for d in differences(f"{path}/{key}", before.get(key), after.get(key))]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [d for i, pair in enumerate(zip(before, after, strict=True)) for d in differences(f"{path}/{i}", *pair)]
    if isinstance(before, float) and isinstance(after, float):
        return [] if abs(before - after) <= 2e-3 * max(1, abs(before)) else [f"{path}: {before} -> {after}"]
    return [] if before == after else [f"{path}: {before!r} -> {after!r}"]


if __name__ == "__main__":
    what, file = sys.argv[1], Path(sys.argv[2])
    if what == "make":
        file.write_text(json.dumps(answers(), indent=1) + "\n")
    else:
        found = differences("", json.loads(file.read_text()), json.loads(json.dumps(answers())))
        print("\n".join(found) or "no difference")
        sys.exit(bool(found))

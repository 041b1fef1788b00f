"""Answers of both shipped models, saved once and compared after a change that should not alter them.

    python benchmarks/golden.py make FILE
    python benchmarks/golden.py check FILE        prints every difference; figures agree within 1e-4

Run both on the same machine: the last bit of a float can decide a sampled word, and another CPU rounds differently.
"""

import json
import sys
from pathlib import Path
from typing import Any

import fabula

COMMON: list[dict[str, Any]] = [
    {"sentences": ["Tom was afraid of dogs.", None, None, None, "Now they sleep in the same bed."], "seed": 9},
    {"sentences": ["Our roof began to leak.", None, None, "We slept well."], "arc": "- . ? +", "seed": 1},
    {"sentences": ["Sam lost his wallet.", None, "He thanked her.", None], "starts": {2: "He looked"}, "seed": 2},
    {"sentences": [None, "It rained all day.", None, None, "Mia went home."], "candidates": 5, "seed": 5},
]
GIBBS: list[dict[str, Any]] = [
    {"sentences": ["Siobhan found an old key.", None, None, None, "She cried."], "sampler": "gibbs", "seed": 3},
    {"sentences": ["Ann sang.", None, "She won."], "sampler": "gibbs", "top_k": 5, "seed": 4},
]
ANN = ["Ann sang.", None, None, "She won."]
PEOPLE = [{"name": "Ann", "pronoun": "she", "about": "a shy singer"}]
NARRATOR: list[dict[str, Any]] = [
    {"sentences": ANN, "arc": "+ ? ? +;emotion=?,joy,?,?", "seed": 11},
    {"sentences": ANN, "rank": "ending", "samples": 4, "seed": 12},
    {"sentences": ANN, "people": PEOPLE, "notes": ["It is winter."], "seed": 13},
]
STORY = ["Nora got a blue drum.", "She played it all day.", "The stick broke.", "She was upset.", "Dad fixed it."]


def answers(name: str, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """What one model answers to every task and every method of the Python API."""
    model = fabula.load(name)
    result: dict[str, Any] = {
        f"fill {number}": [
            {"score": candidate.score, "sentences": [[s.text, s.tag, s.log_p] for s in candidate.sentences]}
            for candidate in model.fill(**task).candidates
        ]
        for number, task in enumerate(tasks)
    }
    written = model.write(6, arc=". . - - . +", seed=6)
    score = model.score(STORY, samples=50, seed=7)
    reasons = model.explain(STORY, seed=9).sentences
    return result | {
        "write": [[s.text for s in candidate.sentences] for candidate in written.candidates],
        "score": [score.log_p, *score.log_p_sentences],
        "tags": [dict(shares) for shares in model.tag(STORY).probabilities],
        "posterior": [dict(shares) for shares in model.posterior([STORY[0], None, STORY[4]], seed=8).tags],
        "explain": [[r.log_p, r.fits_before, r.fits_after] for r in reasons],
    }


def differences(path: str, before: Any, after: Any) -> list[str]:
    """A line for each value that differs, named by its path."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [d for key in {**before, **after} for d in differences(f"{path}/{key}", before.get(key), after.get(key))]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [d for i, pair in enumerate(zip(before, after, strict=True)) for d in differences(f"{path}/{i}", *pair)]
    if isinstance(before, float) and isinstance(after, float):
        return [] if abs(before - after) <= 1e-4 * max(1, abs(before)) else [f"{path}: {before} -> {after}"]
    return [] if before == after else [f"{path}: {before!r} -> {after!r}"]


if __name__ == "__main__":
    action, file = sys.argv[1], Path(sys.argv[2])
    current = {"small": answers("small", COMMON + GIBBS), "default": answers("default", COMMON + NARRATOR)}
    if action == "make":
        file.write_text(json.dumps(current, indent=1) + "\n")
    else:
        lines = differences("", json.loads(file.read_text()), json.loads(json.dumps(current)))
        print("\n".join(lines) or "no difference")
        sys.exit(bool(lines))

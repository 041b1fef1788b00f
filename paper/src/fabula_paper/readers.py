"""The paper's human table by blind readers: sheets go out without names, ratings come back as records.

    SHEETS/pairs.jsonl       {"id", "a": five sentences, "b": five sentences}, comparisons mixed, sides and order drawn
    SHEETS/errors.jsonl      {"id", "story"}: the SLDS stories that were rated lowest, once ratings are there
    SHEETS/how-to-rate.md    what readers are asked, and the form of an answer
    SHEETS/key/key.json      which system is on which side: not for readers
    SHEETS/ratings/*.jsonl   a file for each reader, called READER.jsonl; for the errors READER.errors.jsonl

Sheets hold sentences of the corpus and are not published. A record holds story ids, sides and every single rating.
"""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fabula.apps.web.options import needs_extra
from fabula.errors import UserError
from fabula.metrics.bootstrap import mean
from fabula.metrics.record import rounded
from fabula.models.io import write_file
from fabula_paper.bench import EnglishStories, middle_unit
from fabula_paper.plan import BY_NAME, MIDDLE, protocol
from fabula_paper.records import Records

RIVALS = ("lm", "s2s")
LOWEST = 20
"""Stories of the error analysis. The paper's value."""
ERRORS = {"ending": 1, "off_topic": 1, "ungrammatical": 3}
"""The errors of the paper's appendix B, with the largest answer."""


def write_sheets(stories: EnglishStories, folder: Path, seed: int = 0) -> int:
    """Write the blind pairs of SLDS with each rival, and their key; returns the number of pairs."""
    records, wanted = stories.bench.records, stories.bench.job.scale.pairs
    rng, entries = np.random.default_rng(seed), []
    for place, rival in enumerate(RIVALS):
        units = [middle_unit(f"{name}.{protocol(BY_NAME[name])}") for name in ("slds", rival)]
        texts = [{text["id"]: text["lines"] for text in records.texts(unit)} for unit in units]
        # Other stories for each rival: a story that comes twice would tell readers which side is SLDS.
        for story in [story for story in texts[0] if story in texts[1]][place * wanted : (place + 1) * wanted]:
            both = [stories.filled(story, lines[story], MIDDLE) for lines in texts]
            entries.append((rival, story, bool(rng.integers(2)), both))
    sheet, key = [], {}
    for number, place in enumerate(rng.permutation(len(entries))):
        rival, story, slds_is_b, (ours, theirs) = entries[place]
        name = f"p{number + 1:03d}"
        sheet.append({"id": name, "a": theirs if slds_is_b else ours, "b": ours if slds_is_b else theirs})
        key[name] = {"rival": rival, "story": story, "slds": "b" if slds_is_b else "a"}
    put_lines(folder / "pairs.jsonl", sheet)
    (folder / "key").mkdir(parents=True, exist_ok=True)
    write_file(folder / "key" / "key.json", (json.dumps(key, indent=1) + "\n").encode())
    write_file(folder / "how-to-rate.md", instructions().encode())
    return len(sheet)


def instructions() -> str:
    return (resources.files("fabula_paper") / "templates" / "how-to-rate.md").read_text(encoding="utf-8")


def put_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())


def read_lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}", field="ratings") from error


def read_ratings(records: Records, folder: Path) -> list[str]:
    """Make the records of the ratings that are there; returns their names. Then errors.jsonl can be written."""
    key = json.loads((folder / "key" / "key.json").read_text()) if (folder / "key" / "key.json").is_file() else None
    files = sorted((folder / "ratings").glob("*.jsonl"))
    paired = [path for path in files if not path.name.endswith(".errors.jsonl")]
    if key is None or not paired:
        raise UserError(f"{folder} has no key/key.json or no ratings/READER.jsonl", field="ratings")
    rated = {name: {**entry, "ratings": {}} for name, entry in key.items()}
    for path in paired:
        for line in read_lines(path):
            rated_pair(path, line, rated)["ratings"][path.stem] = [line["a"], line["b"], line["better"]]
    common = {"stage": "human", "scale": "full", "kind": "estimate", "device": "readers", "readers": len(paired)}
    common["instructions"] = hashlib.sha256(instructions().encode()).hexdigest()[:12]
    names = []
    for rival in RIVALS:
        pairs = [{"id": name, **entry} for name, entry in rated.items() if entry["rival"] == rival and entry["ratings"]]
        if pairs:
            record = {**common, "system": rival, "n": len(pairs), **outcome(pairs), "pairs": pairs}
            records.write(f"human/{rival}", record)
            names.append(f"human/{rival}")
    lowest = sorted(
        (float(np.mean([r["ab".index(e["slds"])] for r in e["ratings"].values()])), name)
        for name, e in rated.items() if e["ratings"]
    )[:LOWEST]  # fmt: skip
    sheet = {line["id"]: line for line in read_lines(folder / "pairs.jsonl")}
    shown = [{"id": f"e{name[1:]}", "story": sheet[name][rated[name]["slds"]]} for _, name in lowest]
    put_lines(folder / "errors.jsonl", shown)
    answers = [line for path in files if path not in paired for line in read_lines(path)]
    if answers:
        wanted = {line["id"] for line in shown}
        for line in answers:
            right = all(line.get(name) in range(most + 1) for name, most in ERRORS.items())
            if line.get("id") not in wanted or not right:
                raise UserError(f"{json.dumps(line)[:80]} is no rating of errors: how-to-rate.md", field="ratings")
        cases = {name: rounded(float(np.mean([line[name] for line in answers])) * len(shown)) for name in ERRORS}
        record = {**common, "system": "slds", "n": len(shown), "errors": cases, "answers": answers}
        records.write("human/errors", record)
        names.append("human/errors")
    return names


def rated_pair(path: Path, line: dict[str, Any], rated: dict[str, Any]) -> dict[str, Any]:
    """The pair of a rating, if the rating has the right form."""
    coherence = [value for side in "ab" for value in line.get(side) or [None]]
    right = len(coherence) == 8 and all(value in (0, 1, 2, 3) for value in coherence)
    if line.get("id") not in rated or not right or line.get("better") not in ("a", "b", "tie"):
        raise UserError(f"{path.name}: {json.dumps(line)[:80]} is no rating of a pair: how-to-rate.md", field="ratings")
    entry: dict[str, Any] = rated[line["id"]]
    return entry


def outcome(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the paper's table, from single ratings: coherence, the share of best stories, agreement."""
    with needs_extra("the agreement of readers"):
        from fabula.apps.judge.report import alpha, value_counts

    sides = {"slds": [entry["slds"] for entry in pairs], "rival": ["ab"["ba".index(entry["slds"])] for entry in pairs]}
    figures: dict[str, Any] = {"coherence": {}, "coherence_sd": {}, "best": {}}
    for name, places in sides.items():
        each = [[r["ab".index(s)] for r in e["ratings"].values()] for e, s in zip(pairs, places, strict=True)]
        single = np.concatenate([np.ravel(ratings) for ratings in each])
        chosen = [np.mean([r[2] == s for r in e["ratings"].values()]) for e, s in zip(pairs, places, strict=True)]
        figures["coherence"][name] = rounded(float(np.mean([np.mean(ratings) for ratings in each])))
        figures["coherence_sd"][name] = rounded(float(single.std(ddof=1)))
        figures["best"][name] = rounded(100 * float(np.mean(chosen)))
        figures[f"{name}_chosen"] = [round(float(share), 4) for share in chosen]
    gap = mean(100 * (np.array(figures["slds_chosen"]) - np.array(figures["rival_chosen"])), draws=2000)
    figures["ahead"] = [rounded(gap.value), rounded(gap.low), rounded(gap.high)]
    readers = sorted({reader for entry in pairs for reader in entry["ratings"]})
    votes = [[["a", "b", "tie"].index(e["ratings"][r][2]) if r in e["ratings"] else -1 for e in pairs] for r in readers]
    agreement = alpha(value_counts(votes, (0, 1, 2)), "nominal")
    return {**figures, "agreement": None if agreement is None else rounded(agreement)}

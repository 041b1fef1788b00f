"""Middles that were written elsewhere, by a system whose weights are not here (the narrator): text that is taken in."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from fabula.errors import UserError
from fabula_paper.bench import Bench
from fabula_paper.plan import BY_NAME, MIDDLE, SETTINGS


def take_lines(bench: Bench, name: str, file: Path) -> str:
    """A record with its texts from a file of `{"id": story, "lines": [three sentences]}`; returns the unit's name."""
    system = BY_NAME.get(name)
    if system is None or not system.outside:
        known = ", ".join(s.name for s in BY_NAME.values() if s.outside)
        raise UserError(f"--lines {name}: no system that is written elsewhere; such systems: {known}", field="lines")
    try:
        content = file.read_bytes()
        texts = [json.loads(line) for line in content.decode("utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise UserError(f"--lines {file} cannot be read: {error}", field="lines") from error
    known_ids, wanted = set(bench.test.ids), len(SETTINGS[MIDDLE])
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, dict) or text.get("id") not in known_ids or len(text.get("lines") or ()) != wanted:
            raise UserError(f"--lines {file}, line {number}: not a test story's id with {wanted} lines", field="lines")
    unit = f"sample/{name}.{MIDDLE}.fill"
    record = {
        "stage": "sample", "system": name, "detail": f"{MIDDLE}.fill", "scale": bench.job.scale.name,
        "seed": bench.job.seed, "n": len(texts), "kind": "estimate", "data_hash": bench.corpus.hash,
        "device": "elsewhere", "setting": MIDDLE, "missing": [i + 1 for i in SETTINGS[MIDDLE]], "sampler": "fill",
        "peeks": False, "file_sha256": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip
    bench.records.write(unit, record, [{"id": text["id"], "lines": list(text["lines"])} for text in texts])
    return unit

"""Writes the JSON schemas of this folder from the code: python schema/make.py. A test sees that they are up to date.

A schema is called NAME.vV.json. V rises when a reader of the old form could not read the new one; then the old file
stays, and a test keeps reading an answer of its form.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fabula.apps.serve.completions import CompletionAnswer, CompletionBody
from fabula.apps.studio.bodies import FillBody, State
from fabula.results import Explanation, Filling, Posterior, Score, Tagging

HERE = Path(__file__).parent
VERSION = 1
TYPES: dict[str, tuple[Any, str]] = {
    "filling": (Filling, "What `fabula fill --json`, `fabula write --json` and POST /api/fill answer: candidates"),
    "tagging": (Tagging, "What `fabula tag --json` and POST /api/tag answer: an arc"),
    "score": (Score, "What `fabula score --json` and POST /api/score answer"),
    "explanation": (Explanation, "What POST /api/explain answers"),
    "posterior": (Posterior, "What Narrator.posterior answers"),
    "story": (State, "The state of a branch: what the studio keeps, exports and imports"),
    "fill-request": (FillBody, "What POST /api/fill takes"),
    "completion-request": (CompletionBody, "What POST /v1/completions takes"),
    "completion": (CompletionAnswer, "What POST /v1/completions answers"),
}


def finite(schema: Any) -> Any:
    """Numbers that are not finite are written as null."""
    if isinstance(schema, dict):
        found = {key: finite(value) for key, value in schema.items()}
        return {**found, "type": ["number", "null"]} if schema.get("type") == "number" else found
    return [finite(item) for item in schema] if isinstance(schema, list) else schema


def schemas() -> dict[str, str]:
    """The text of every schema by its file's name."""
    found = {}
    for name, (kind, about) in TYPES.items():
        schema = TypeAdapter(kind).json_schema(mode="validation" if name.endswith("request") else "serialization")
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"{name}, version {VERSION}"}
        head["description"] = f"{about}."
        text = json.dumps({**finite(schema), **head}, indent=1, sort_keys=True)
        found[f"{name}.v{VERSION}.json"] = text + "\n"
    return found


if __name__ == "__main__":
    for file, text in schemas().items():
        (HERE / file).write_text(text, encoding="utf-8")

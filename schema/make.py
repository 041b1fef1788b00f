"""Writes the JSON schemas of this folder and the studio's page/schema.js from the code: python schema/make.py.

A test checks that they are up to date. A schema is called NAME.vV.json. V rises when a reader of the old form could not
read the new one; then the old file stays, and a test keeps reading an answer of its form.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from fabula.apps.serve.bodies import FillBody, PersonBody
from fabula.apps.serve.completions import CompletionBody
from fabula.apps.serve.settings import SENTENCES, WORDS
from fabula.apps.studio import document
from fabula.apps.studio.document import State
from fabula.results import Explanation, Filling, Posterior, Score, Tagging

HERE = Path(__file__).parent
PAGE_SCHEMA = Path(document.__file__).parent / "page" / "schema.js"
VERSION = 1
TYPES: dict[str, tuple[Any, str]] = {
    "filling": (Filling, "What `fabula fill --json`, `fabula write --json` and POST /api/fill answer: candidates"),
    "tagging": (Tagging, "What `fabula tag --json` and POST /api/tag answer: an arc"),
    "score": (Score, "What `fabula score --json` and POST /api/score answer"),
    "explanation": (Explanation, "What POST /api/explain answers"),
    "posterior": (Posterior, "What StoryModel.posterior answers"),
    "story": (State, "The state of a branch: what the studio keeps, exports and imports"),
    "fill-request": (FillBody, "What POST /api/fill takes"),
    "completion-request": (CompletionBody, "What POST /v1/completions takes"),
}


BOUNDS = ("type", "enum", "minimum", "maximum", "maxLength", "minItems", "maxItems")


def finite(schema: Any) -> Any:
    """The schema with null allowed in place of a number, for numbers that are not finite are written as null."""
    if isinstance(schema, dict):
        converted = {key: finite(value) for key, value in schema.items()}
        return {**converted, "type": ["number", "null"]} if schema.get("type") == "number" else converted
    return [finite(item) for item in schema] if isinstance(schema, list) else schema


def schemas() -> dict[str, str]:
    """The text of every schema by its file's name."""
    texts = {}
    for name, (kind, about) in TYPES.items():
        schema = TypeAdapter(kind).json_schema(mode="validation" if name.endswith("request") else "serialization")
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"{name}, version {VERSION}"}
        head["description"] = f"{about}."
        text = json.dumps({**finite(schema), **head}, indent=1, sort_keys=True)
        texts[f"{name}.v{VERSION}.json"] = text + "\n"
    return texts


def page_fields(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The type, the bounds and the default of every field of a model, as the page reads them."""
    properties, fields = model.model_json_schema()["properties"], {}
    for name, field in model.model_fields.items():
        options = properties[name].get("anyOf", [properties[name]])
        rule = next(option for option in options if option.get("type") != "null")
        fields[name] = {key: rule[key] for key in BOUNDS if key in rule} | {"nullable": len(options) > 1}
        if not field.is_required():
            fields[name]["default"] = field.get_default(call_default_factory=True)
    return fields


def page_schema() -> str:
    """The text of page/schema.js: the one list of a story's fields that the page has."""
    constants = {
        "STORY": page_fields(State),
        "LINE": page_fields(document.Line),
        "PERSON": page_fields(PersonBody),
        "CONTENT_FIELDS": document.CONTENT_FIELDS,
        "SAVED_FIELDS": [*State.model_fields],
        "SENTENCES": SENTENCES[1],
        "WORDS": WORDS,
    }
    lines = [
        "// Written by schema/make.py from fabula.apps.studio.document: change the story's fields there, not here.",
        "",
    ]
    for name, value in constants.items():
        if isinstance(value, dict):
            fields = [f"  {field}: {json.dumps(rule)}," for field, rule in value.items()]
            lines += [f"export const {name} = {{", *fields, "};"]
        else:
            lines.append(f"export const {name} = {json.dumps(value)};")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for file, text in schemas().items():
        (HERE / file).write_text(text, encoding="utf-8")
    PAGE_SCHEMA.write_text(page_schema(), encoding="utf-8")

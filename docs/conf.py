"""The documentation's settings: `make docs` builds it, and a warning is an error."""

from __future__ import annotations

import json
import re
from pathlib import Path

from fastapi import FastAPI
from sphinx.application import Sphinx

import fabula
from fabula.apps.serve import completions, writing
from fabula.apps.studio import app as studio
from fabula.cli import build_parser

HERE = Path(__file__).parent
project, author, copyright = "Fabula", "The Fabula authors", "the Fabula authors"
version = release = fabula.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["readings", "_build", "notebooks"]
exclude_patterns += ["generated/*.json"]
html_theme = "alabaster"
html_theme_options = {"description": "Short stories along an emotional arc", "fixed_sidebar": True}
html_extra_path = ["reproduction/index.html"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "separated"


def http_reference(app: Sphinx) -> None:
    """The routes with their bodies and answers, from the OpenAPI document that the server itself sends."""
    server = FastAPI(title="Fabula", version=fabula.__version__)
    for part in (completions.router, writing.router):
        server.include_router(part(None, None))  # type: ignore[arg-type]
    server.include_router(studio.router(None))  # type: ignore[arg-type]
    document = server.openapi()
    folder = HERE / "generated"
    folder.mkdir(exist_ok=True)
    (folder / "openapi.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    lines = ["# Routes", "", "The document itself is served at `/api/openapi.json`.", ""]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            lines += [f"## {method.upper()} {path}", "", operation.get("summary", ""), ""]
            lines += [operation.get("description", ""), ""]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            name = body.get("$ref", "").rsplit("/", 1)[-1]
            for field, schema in document["components"]["schemas"].get(name, {}).get("properties", {}).items():
                lines.append(f"- `{field}`: {schema.get('description', schema.get('title', ''))}")
            lines.append("")
    (folder / "http.md").write_text("\n".join(lines), encoding="utf-8")


def command_reference(app: Sphinx) -> None:
    """The help pages, as the commands print them."""
    (commands,) = build_parser()._subparsers._group_actions  # type: ignore[union-attr]
    lines = ["# Commands", ""]
    for name, parser in commands.choices.items():  # type: ignore[union-attr]
        lines += [f"## fabula {name}", "", "```text", parser.format_help().rstrip(), "```", ""]
    (HERE / "generated" / "commands.md").write_text("\n".join(lines), encoding="utf-8")


def inside_the_site(app: Sphinx, path: Path, parent: str, content: list[str]) -> None:
    """The README's links to files that are pages here."""
    for file, page in {"src/fabula/data/[a-z]+/CARD.md": "cards.md", "plugins/[a-z-]+/README.md": "llm.md"}.items():
        content[0] = re.sub(rf"\]\({file}\)", f"]({page})", content[0])


def as_markup(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Docstrings are written for readers of the code: `name` is code there, and X_ a letter with an index."""
    for i, line in enumerate(lines):
        code = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line)
        lines[i] = re.sub(r"(?<=\w)_(?=[^\w`])", r"\_", code)


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", http_reference)
    app.connect("builder-inited", command_reference)
    app.connect("include-read", inside_the_site)
    app.connect("autodoc-process-docstring", as_markup)

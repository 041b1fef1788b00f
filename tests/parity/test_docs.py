"""The docs say what the code does: commands parse, links and named files exist, the example runs."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from doors import pages
from fabula.cli import build_parser

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "fabula"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> Iterator[str]:
    """The fenced blocks of a language."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if match[1] == language:
            yield match[2]


def shown_commands() -> list[str]:
    """Every `fabula` line of the docs and of the help pages' examples."""
    lines = [
        line
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"), "sh")
        for line in block.splitlines()
    ]
    for _, parser in pages(build_parser()):
        lines += [line.strip() for line in (parser.epilog or "").splitlines()[1:]]
    # A remark stands behind several blanks, a program before `|` feeds the command, variables are set before it.
    bare = (re.split(r"\s{3,}", line.split("|")[-1].strip())[0] for line in lines)
    commands = {re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line) for line in bare}
    return sorted(line for line in commands if line.startswith("fabula "))


@pytest.mark.parametrize("line", shown_commands())
def test_commands_parse(line: str) -> None:
    words = shlex.split(line)
    assert words[0] == "fabula"
    try:
        args = build_parser().parse_args(words[1:])
    except SystemExit:
        pytest.fail(f"does not parse: {line}")
    for value in vars(args).values():
        if str(value).startswith("recipes/"):
            assert (ROOT / str(value)).is_file(), f"{line}: no such recipe"


def test_the_commands_were_found() -> None:
    """Every command is shown somewhere, so the test above is not about nothing."""
    shown = {line.split()[1] for line in shown_commands()}
    assert shown == {name.split()[0] for name, _ in pages(build_parser()) if name}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([a-z-]+)", text))
    for block in blocks(text, "sh"):
        named |= set(re.findall(r"^make ([a-z-]+)", block, re.MULTILINE))
    for target in named:
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_named_files_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target
    for name in re.findall(r"`([\w./-]+\.(?:py|toml|md))`", text):
        assert any((base / name).exists() for base in (ROOT, PACKAGE, ROOT / "docs", ROOT / "paper" / "src")), name

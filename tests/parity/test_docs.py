"""The docs say what the code does: commands parse, named files exist, the tree and the option table are complete."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def parsers(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every parser that runs something, with the words that lead to it."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        yield name, parser
    for action in inner:
        for word, sub in action.choices.items():
            yield from parsers(sub, f"{name} {word}".strip())


def shown_commands() -> list[str]:
    """Every `fabula` line of the docs and of the help pages' examples."""
    lines = [
        line
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"), "sh")
        for line in block.splitlines()
    ]
    for _, parser in parsers(build_parser()):
        lines += [line.strip() for line in (parser.epilog or "").splitlines()[1:]]
    # A remark stands behind several blanks, a program before `|` feeds the command, variables are set before it.
    bare = (re.split(r"\s{3,}", line.split("|")[-1].strip())[0] for line in lines)
    return sorted({re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line) for line in bare if re.search(r"(?:^| )fabula ", line)})


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
    assert shown == {name.split()[0] for name, _ in parsers(build_parser())}


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
        assert any((base / name).exists() for base in (ROOT, PACKAGE, ROOT / "docs")), name


def folders_of_the_tree() -> set[Path]:
    """The folders that the README's tree names, by their indentation."""
    (tree,) = (block for block in blocks(README, "") if block.startswith("src/fabula/"))
    found, path = set(), [Path()]
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        path = [*path[: depth + 1], path[depth] / name]
        assert (ROOT / path[-1]).exists(), f"the README names {path[-1]}, which is not there"
        assert len(line.split()) > 2 or name in ("src/fabula/", "tests/"), f"{name} has no line of its own"
        found.add(path[-1])
    return found


def folders(base: Path) -> set[Path]:
    """The folders below `base` that hold files of the repository."""
    return {
        file.parent.relative_to(ROOT)
        for file in base.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.suffix in (".py", ".toml")
    }


def test_the_tree_is_the_tree() -> None:
    named = folders_of_the_tree()
    for base in ("src/fabula", "recipes", "tests", "benchmarks"):
        top = {folder for folder in folders(ROOT / base) if len(folder.parts) <= len(Path(base).parts) + 1}
        assert top <= named, f"not in the README: {top - named}"


def test_the_option_table_is_complete() -> None:
    rows = re.findall(r"^\| `([a-z -]+)` \| (.*) \|$", README, re.MULTILINE)
    stated = {name: re.findall(r"`(--[a-z-]+)`", options) for name, options in rows}
    expected = {
        name: [
            option
            for action in parser._actions
            for option in action.option_strings
            if option.startswith("--") and option != "--help"
        ]
        for name, parser in parsers(build_parser())
    }
    assert stated == expected


def test_the_tour_passes_every_file() -> None:
    """Whoever adds a file tells the newcomer where in the story it stands."""
    tour = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    files = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    missing = {name for name in files if not name.endswith(("__init__.py", "__main__.py")) and f"`{name}`" not in tour}
    assert not missing


def test_the_story_of_the_tour_is_told_right() -> None:
    """Its tags, and how many ids it is, are what the code makes of it."""
    from fabula.corpus.taggers.sentiment import VaderTagger
    from fabula.corpus.tokenize import tokenise_many

    tour = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    (Tom rented .*)$", tour, re.MULTILINE)
    sentences = line.split(" / ")
    tagger = VaderTagger()
    tags = [tagger.labels[s] for s in tagger.tag(sentences) if s is not None]
    assert f"Its tags are {', '.join(tags)}." in tour
    words = sum(len(tokenised) + 1 for tokenised in tokenise_many(sentences))
    assert f"it is {words} word ids" in tour


def test_the_glossary_names_what_is_there() -> None:
    """By the alphabet, each word once; what it names in code stands in the code."""
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    _, letters, words = re.split(r"^## (?:Letters|Words)$", page, flags=re.MULTILINE)
    listed = [row.split("|")[1].strip().lower() for row in words.strip().splitlines()[2:]]
    assert listed == sorted(set(listed))
    assert len(listed) > 50
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    for name in re.findall(r"`(\w{2,})`", letters + words):
        assert re.search(rf"\b{name}\b", source), name


def test_the_measures_of_the_maths_are_those_of_the_record() -> None:
    from fabula.metrics.likelihood import Likelihood

    maths = (ROOT / "docs" / "maths.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| measure .*?\n\n", maths, re.MULTILINE | re.DOTALL)
    named = {name for row in table.strip().splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named <= set(Likelihood.__dataclass_fields__)


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a random model that knows the toy grammar's words."""
    import torch

    from fabula.cli.demo import toy_recipe
    from fabula.corpus.tokenize import tokenise
    from fabula.corpus.toy import toy_stories
    from fabula.corpus.vocabulary import Vocabulary
    from fabula.models.build import build
    from fabula.models.io import Checkpoint, save

    words = [tokenise(sentence) for story in toy_stories(200, 0) for sentence in story.sentences]
    vocabulary, recipe = Vocabulary.count(words, 1), toy_recipe()
    torch.manual_seed(0)
    checkpoint = Checkpoint(
        model=build(recipe.model, len(vocabulary), torch.full((3,), 1 / 3), torch.full((3, 3), 1 / 3)),
        vocabulary=vocabulary,
        labels=("negative", "neutral", "positive"),
        recipe=recipe.to_dict(),
        corpus_hash="",
    )
    save(tmp_path / "default", checkpoint)
    monkeypatch.setenv("FABULA_MODELS", str(tmp_path))
    monkeypatch.setattr("fabula.catalogue.PACKAGED", tmp_path / "none")
    example, *_ = blocks(README, "python")  # the others ask a server: tests/interface/test_completions.py
    exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert [line[0] for line in printed] == [" ", ">", ">", " "]
    assert printed[2].split()[1] == "positive"


def test_the_picture_is_of_the_demo() -> None:
    """The picture's given lines are the demo's."""
    from fabula.cli.demo import STORY

    picture = (ROOT / "docs" / "story.svg").read_text(encoding="utf-8")
    lines = re.findall(r'<text x="112" [^>]*?(bold)?"?>([^<]+\.)</text>', picture)[:5]
    assert (lines[0][1], lines[-1][1]) == STORY
    assert [bool(bold) for bold, _ in lines] == [False, True, True, True, False]


def test_the_readme_says_what_the_stories_are_like() -> None:
    """The same counts as on the page with all of them."""
    counts = re.compile(r"\d+ join, \d+ wander, \d+ break")
    (said,) = counts.findall(README)
    assert counts.findall((ROOT / "docs" / "samples.md").read_text(encoding="utf-8")) == [said]

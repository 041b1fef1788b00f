"""Imports point one way: corpus, models, then training and sampling, metrics, api, cli; the core knows no app."""

import ast
from pathlib import Path

import pytest

import fabula

ROOT = Path(fabula.__file__).parent
RANK = {
    "errors": 0, "shapes": 0, "results": 0, "ties": 0, "registry": 0.5, "device": 0.5,
    "listening": 0.5, "statespace": 0.7, "corpus": 1, "models": 2, "servers": 2.5, "training": 3, "sampling": 3,
    "metrics": 4, "catalogue": 4.2, "loaded": 4.2, "rewording": 4.3, "filling": 4.4, "reading": 4.4, "served": 4.6,
    "api": 5, "completion": 5.5, "workflow": 5.5, "cli": 6, "__init__": 6.5, "__main__": 6.5, "apps": 7,
}  # fmt: skip
FILES = sorted(ROOT.rglob("*.py"))


def part(module: str) -> str:
    """The part of Fabula a module belongs to: its first name below the package."""
    return module.split(".")[1] if "." in module else ""


def imported(tree: ast.AST, package: str = "fabula") -> set[str]:
    """Every module of the package that is imported anywhere in a file, inside functions too."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            # `from fabula import api` brings the module; `from fabula import __version__` brings nothing.
            inside = {f"fabula.{alias.name}" for alias in node.names}
            names |= inside if node.module == "fabula" else {node.module or ""}
    return {name for name in names if name.split(".")[0] == package}


def forbidden(here: str, tree: ast.AST) -> set[str]:
    """What a file of part `here` imports and must not: a later part, or another of the same rank."""
    parts = {name: part(name) for name in imported(tree) if part(name) in RANK}
    return {name for name, there in parts.items() if there != here and RANK[there] >= RANK[here]}


def test_every_part_has_its_rank() -> None:
    parts = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES}
    assert parts <= set(RANK)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    here = path.relative_to(ROOT).parts[0].removesuffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not forbidden(here, tree)
    assert not imported(tree, "fabula_paper")


def test_the_check_sees_an_import_that_points_back() -> None:
    assert forbidden("models", ast.parse("def f():\n    from fabula.training.loop import train"))
    assert forbidden("sampling", ast.parse("import fabula.training.recipe"))
    assert forbidden("corpus", ast.parse("from fabula import api"))
    assert not forbidden("api", ast.parse("from fabula import __version__\nfrom fabula.sampling.task import Task"))

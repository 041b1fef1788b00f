"""Fabula's doors: what the fixtures are that open them, and every page of the command line."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

Refused = Callable[..., str]
"""`refused("fill", ...)`: the one line with which a mistaken command ends."""
Serving = Callable[..., AbstractContextManager[str]]
"""`with serving(app) as url`."""


def pages(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every parser with the words that lead to it."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from pages(inner, f"{name} {word}".strip())

"""What the fixtures are that open Fabula's doors."""

from collections.abc import Callable
from contextlib import AbstractContextManager

Refused = Callable[..., str]
"""`refused("fill", ...)`: the one line with which a mistaken command ends."""
Serving = Callable[..., AbstractContextManager[str]]
"""`with serving(app) as url`."""

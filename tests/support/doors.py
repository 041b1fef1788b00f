"""What the fixtures are that open Fabula's doors."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

Refused = Callable[..., str]
"""`refused("fill", ...)`: the one line with which a mistaken command ends."""
Serving = Callable[..., AbstractContextManager[str]]
"""`with serving(app) as url`."""
Toml = Callable[[dict[str, Any]], str]
"""`to_toml(recipe)`."""

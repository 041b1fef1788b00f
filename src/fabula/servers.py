"""Language models on servers, by the names that a person gave them: address, model and limits.

They stand in one file, FABULA_SERVERS (else ~/.config/fabula/servers.toml), a table for each server. Any field may also
be set in the environment, as FABULA_SERVED_<NAME>_<FIELD>. Nothing else sets an address: no request over HTTP can.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from fabula.errors import UserError

PREFIX = "served:"
"""Before the name of a server where the name of a model is expected."""
FILE_VARIABLE, VARIABLE = "FABULA_SERVERS", "FABULA_SERVED_"


@dataclass(frozen=True, kw_only=True)
class Server:
    """One server, and how it is asked."""

    name: str
    address: str
    """Where its API begins, such as http://127.0.0.1:11434/v1."""
    model: str
    key_variable: str = ""
    """The environment variable that holds the key; empty: FABULA_SERVED_<NAME>_KEY."""
    api: Literal["chat", "completions"] = "chat"
    at_once: int = 4
    """Requests at the same time, at most."""
    seconds: float = 120.0
    """Of one request, at most."""
    retries: int = 3
    """How often a request that fails on the way is sent again."""
    again: int = 2
    """How often a line that cannot be used, or misses its tags, is asked for again."""
    window: int = 8
    """Lines that one request asks for, at most."""
    tokens: int = 120
    """Of an answer, for each line asked for, at most; 0: no limit is sent."""
    json_schema: bool = True
    """Whether answers in a JSON schema are asked for. `fabula models check` corrects this and the next two."""
    logprobs: bool = True
    n: bool = True
    """Whether several answers are asked for in one request."""

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z0-9][a-z0-9-]{0,39}", self.name):
            raise UserError(f"a server's name has small letters, digits and hyphens, not {self.name!r}", field="name")
        if urlsplit(self.address).scheme not in ("http", "https") or not urlsplit(self.address).hostname:
            raise UserError(f"the address of a server begins with http:// or https://, not {self.address!r}")
        if urlsplit(self.address).password is not None:
            raise UserError("no password in an address: name the variable that holds the key (--key-variable)")
        if self.api not in ("chat", "completions"):
            raise UserError(f"api is chat or completions, not {self.api!r}")
        least = {"at_once": 1, "window": 1, "retries": 0, "again": 0, "tokens": 0, "seconds": 0}
        for field, limit in least.items():
            if getattr(self, field) < limit:
                raise UserError(f"{field} of served:{self.name} is at least {limit}")

    @property
    def variable(self) -> str:
        return self.key_variable or f"{_variables(self.name)}KEY"

    @property
    def key(self) -> str:
        """The key, read when it is needed and stored nowhere; empty: the server wants none."""
        return os.environ.get(self.variable, "")


def servers_file() -> Path:
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Path(os.environ.get(FILE_VARIABLE) or home / "fabula" / "servers.toml")


def server_names() -> list[str]:
    """Every server that has a name, in the file or in the environment."""
    pattern = re.compile(f"{VARIABLE}(.+)_ADDRESS")
    in_environment = [match[1].lower().replace("_", "-") for key in os.environ if (match := pattern.fullmatch(key))]
    return sorted({*_tables(), *in_environment})


def find_server(name: str) -> Server:
    """The server of this name; what is wrong with its settings is one line."""
    known = {field.name: field.type for field in fields(Server)}
    values: dict[str, Any] = dict(_tables().get(name, {}))
    for field in known:
        if (text := os.environ.get(f"{_variables(name)}{field.upper()}")) is not None:
            values[field] = text
    if unknown := sorted(values.keys() - known.keys()):
        raise UserError(f"{servers_file()}: unknown setting {name}.{unknown[0]}; there are {', '.join(known)}")
    if not values.get("address") or not values.get("model"):
        have = f"; there are {', '.join(server_names())}" if server_names() else ""
        raise UserError(
            f"no server is called {name!r}: fabula models add-server {name} --address ...{have}", field="model"
        )
    return Server(**{**{key: _typed(name, key, value, known[key]) for key, value in values.items()}, "name": name})


def save_server(server: Server) -> Path:
    """Write a server into the file beside the others; fields at their defaults are left out."""
    usual = asdict(Server(name="x", address="http://x", model=""))
    chosen = {key: value for key, value in asdict(server).items() if key != "name" and value != usual[key]}
    tables = {**_tables(), server.name: chosen}
    lines = [
        "\n".join([f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())])
        for name, table in sorted(tables.items())
    ]
    path = servers_file()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    return path


def _variables(name: str) -> str:
    return f"{VARIABLE}{name.upper().replace('-', '_')}_"


def _tables() -> Mapping[str, Mapping[str, Any]]:
    path = servers_file()
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if wrong := [name for name, table in tables.items() if not isinstance(table, dict)]:
        raise UserError(f"{path}: {wrong[0]} is not a table with a server's settings")
    return tables


def _typed(name: str, field: str, value: Any, hint: Any) -> Any:
    """A value of the file or a text of the environment, in its field's type."""
    kind = {"int": int, "float": float, "bool": bool}.get(str(hint), str)
    try:
        if isinstance(value, str) and kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[value.lower()]
        if isinstance(value, bool) != (kind is bool) or isinstance(value, str) < (kind is str):
            raise ValueError
        return kind(value)
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{field} of served:{name} cannot be {value!r}") from None

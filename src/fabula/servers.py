"""Language models on servers, by the names that a person gave them: address, model and limits.

They stand in one file, FABULA_SERVERS (else ~/.config/fabula/servers.toml), a table for each. A field may also be set
in the environment, as FABULA_SERVED_<NAME>_<FIELD>. Nothing else sets an address: no request over HTTP can.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fabula.errors import UserError

PREFIX = "served:"
"""Before the name of a server where the name of a model is expected."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """One server, and how it is asked. `fabula models check` corrects the last three."""

    name: str
    address: str  # where its API begins, such as http://127.0.0.1:11434/v1
    model: str
    key_variable: str = ""  # the environment variable that holds the key; empty: FABULA_SERVED_<NAME>_KEY
    api: str = "chat"  # or completions
    at_once: int = 4  # requests at the same time, at most
    seconds: float = 120.0  # without an answer, or for an answer to be complete
    retries: int = 3  # how often a request that fails on the way is sent again
    again: int = 2  # how often a line that cannot be used, or misses its tags, is asked for again
    window: int = 8  # lines that one request asks for, at most
    tokens: int = 120  # of an answer, for each line asked for, at most; 0: no limit is sent
    json_schema: bool = True  # whether answers in a JSON schema are asked for
    logprobs: bool = True
    n: bool = True  # whether several answers are asked for in one request

    def __post_init__(self) -> None:
        address = urlsplit(self.address)
        if not re.fullmatch("[a-z0-9][a-z0-9-]{0,39}", self.name):
            raise UserError(f"a server's name has small letters, digits and hyphens, not {self.name!r}", field="name")
        if address.scheme not in ("http", "https") or not address.hostname or address.password is not None:
            raise UserError("an address is http:// or https:// and a host, without a password", field="address")
        least = {"at_once": 1, "window": 1, "retries": 0, "again": 0, "tokens": 0, "seconds": 0.01}
        wrong = [f"{field} is at least {n}" for field, n in least.items() if not getattr(self, field) >= n]
        if wrong or self.api not in ("chat", "completions"):
            raise UserError(f"{PREFIX}{self.name}: {(wrong or ['api is chat or completions'])[0]}", field="model")

    @property
    def variable(self) -> str:
        return self.key_variable or f"{_variables(self.name)}KEY"

    @property
    def key(self) -> str:
        """The key, read when it is needed and stored nowhere; empty: the server wants none."""
        return os.environ.get(self.variable, "")


def servers_file() -> Path:
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Path(os.environ.get("FABULA_SERVERS") or home / "fabula" / "servers.toml")


def server_names() -> list[str]:
    """Every server that has a name, in the file or in the environment."""
    named = [match[1] for key in os.environ if (match := re.fullmatch("FABULA_SERVED_(.+)_ADDRESS", key))]
    return sorted({*_tables(), *(name.lower().replace("_", "-") for name in named)})


def find_server(name: str) -> Server:
    """The server of this name; what is wrong with its settings is one line."""
    known = {field.name for field in fields(Server)} - {"name"}
    texts = {field: os.environ.get(_variables(name) + field.upper()) for field in known}
    number = re.compile(r"(?i)true|false|\d+(\.\d+)?")
    chosen = {f: json.loads(text.lower()) if number.fullmatch(text) else text for f, text in texts.items() if text}
    try:
        values: dict[str, Any] = {**_tables().get(name, {}), **chosen}
        if values.get("address") and values.get("model"):
            return Server(name=name, **values)
    except (TypeError, AttributeError, ValueError) as error:
        fault = f"{servers_file()}: {name} is wrong: {str(error).removeprefix('Server.__init__() ')}"
        raise UserError(f"{fault}; it may have {', '.join(sorted(known))}", field="model") from error
    have = f"; there are {', '.join(server_names())}" if server_names() else ""
    fault = f"no server is called {name!r}: fabula models add-server {name} --address ... --model ...{have}"
    raise UserError(fault, field="model")


def save_server(server: Server) -> Path:
    """Write a server into the file beside the others; fields at their defaults are left out."""
    from fabula.models.io import write_file  # imports torch, which help pages do not wait for

    usual = {field.name: field.default for field in fields(Server)} | {"name": server.name}
    chosen = {key: value for key, value in asdict(server).items() if value != usual[key]}
    tables = sorted({**_tables(), server.name: chosen}.items())
    lines = ["\n".join([f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items())]) for name, table in tables]
    servers_file().parent.mkdir(parents=True, exist_ok=True)
    write_file(servers_file(), ("\n\n".join(lines) + "\n").encode())
    return servers_file()


def _variables(name: str) -> str:
    return f"FABULA_SERVED_{name.upper().replace('-', '_')}_"


def _tables() -> dict[str, dict[str, Any]]:
    try:
        return tomllib.loads(servers_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{servers_file()} cannot be read: {getattr(error, 'strerror', None) or error}") from error

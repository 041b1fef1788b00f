"""Files that are written whole or not at all, and tensors in them: single or half precision, or 8-bit integers.

A matrix W in int8 is round(W / scale) with scale = max |row| / 127, kept beside it as `NAME.scale`; vectors stay in
single precision. Large checkpoints are cut into shards, whole tensors each.
"""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from fabula.corpus.folder import write
from fabula.errors import UserError

Storage = Literal["float32", "float16", "int8"]
SCALE = ".scale"


def write_file(path: Path, content: bytes) -> None:
    """Write a temporary file, flush it, then rename it: the file appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary, content)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UserError(f"the disk is full: {path} was not written; what was saved before is untouched") from error
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def read_bytes(path: Path, entry: dict[str, Any] | None) -> bytes:
    """A file's content, checked against its size and digest in config.json; the earliest checkpoints have no entry."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if entry is None:
        return content
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


def pack(tensors: dict[str, Tensor], storage: Storage) -> dict[str, Tensor]:
    """Tensors as they are stored."""
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu()
        if tensor.dim() < 2 or not tensor.is_floating_point() or storage == "float32":
            packed[name] = tensor
        elif storage == "float16":
            packed[name] = tensor.half()
        else:
            scale = tensor.float().abs().amax(-1).clamp(min=1e-12) / 127
            packed[name] = (tensor.float() / scale.unsqueeze(-1)).round().to(torch.int8)
            packed[name + SCALE] = scale
    return packed


def unpack(packed: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `pack`, in single precision."""
    tensors = {}
    for name, tensor in packed.items():
        if name.endswith(SCALE) and name.removesuffix(SCALE) in packed:
            continue
        scale = packed.get(name + SCALE)
        tensors[name] = tensor.float() if scale is None else tensor.float() * scale.float().unsqueeze(-1)
    return tensors


def shards(packed: dict[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    """The tensors in as few groups as keep each under `limit` bytes, in their order; a scale goes with its matrix.

    Only a tensor that is larger than the limit by itself makes a larger group, of itself alone.
    """
    groups: list[dict[str, Tensor]] = [{}]
    size = 0
    for name in packed:
        if name.endswith(SCALE) and name.removesuffix(SCALE) in packed:
            continue
        parts = {key: packed[key] for key in (name, name + SCALE) if key in packed}
        extra = sum(part.numel() * part.element_size() for part in parts.values())
        if groups[-1] and size + extra > limit:
            groups.append({})
            size = 0
        groups[-1] |= parts
        size += extra
    return groups

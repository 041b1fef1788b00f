"""A reader of GGUF files: metadata, and tensors of the three formats that SmolLM2's file holds (F32, Q8_0, Q4_1)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fabula.errors import UserError

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""struct's letter for each scalar type of the format."""
STRING, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8
BLOCK = 32
"""Weights of one quantised block, which share a scale (Q8_0) or a scale and a minimum (Q4_1)."""
BLOCK_BYTES = {F32: 4 * BLOCK, Q4_1: 4 + BLOCK // 2, Q8_0: 2 + BLOCK}


class GGUF(NamedTuple):
    """A file's metadata, and where its tensors lie."""

    metadata: dict[str, Any]
    tensors: dict[str, Tensor]
    """Dequantised to float32."""


def read_gguf(path: Path) -> GGUF:
    """The whole file; one that is truncated, or no GGUF file, is refused in one line."""
    try:
        with open(path, "rb") as file:
            return _read(file, path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (struct.error, ValueError, KeyError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is truncated, or is not a GGUF file of a kind that Fabula reads") from error


def _read(file: BinaryIO, path: Path) -> GGUF:
    magic, version, tensor_count, metadata_count = struct.unpack("<4sIQQ", file.read(24))
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError("not GGUF")
    metadata = {_string(file): _value(file) for _ in range(metadata_count)}
    infos = []
    for _ in range(tensor_count):
        name = _string(file)
        (dimensions,) = struct.unpack("<I", file.read(4))
        shape = struct.unpack(f"<{dimensions}Q", file.read(8 * dimensions))[::-1]  # the file lists the fastest first
        kind, offset = struct.unpack("<IQ", file.read(12))
        infos.append((name, shape, kind, offset))
    alignment = int(metadata.get("general.alignment", 32))
    start = -(-file.tell() // alignment) * alignment
    data = np.memmap(path, np.uint8, "r")
    tensors = {}
    for name, shape, kind, offset in infos:
        count = int(np.prod(shape))
        size = count // BLOCK * BLOCK_BYTES[kind]
        raw = data[start + offset : start + offset + size]
        if len(raw) < size:
            raise ValueError("truncated")
        tensors[name] = torch.from_numpy(_dequantise(raw, kind).reshape(shape))
    return GGUF(metadata, tensors)


def _dequantise(raw: np.ndarray[Any, np.dtype[np.uint8]], kind: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    if kind == F32:
        return raw.view(np.float32).copy()
    blocks = raw.reshape(-1, BLOCK_BYTES[kind])
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if kind == Q8_0:
        return (blocks[:, 2:].view(np.int8) * scale).reshape(-1)
    minimum = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
    pairs = blocks[:, 4:]  # low halves are the block's first sixteen weights, high halves its last
    levels = np.concatenate([pairs & 15, pairs >> 4], 1).astype(np.float32)
    return (levels * scale + minimum).reshape(-1)


def _string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    content = file.read(length)
    if len(content) < length:
        raise ValueError("truncated")
    return content.decode("utf-8")


def _value(file: BinaryIO, kind: int | None = None) -> Any:
    if kind is None:
        (kind,) = struct.unpack("<I", file.read(4))
    if kind == STRING:
        return _string(file)
    if kind == ARRAY:
        inner, count = struct.unpack("<IQ", file.read(12))
        return [_value(file, inner) for _ in range(count)]
    letter = SCALARS[kind]
    return struct.unpack(f"<{letter}", file.read(struct.calcsize(f"<{letter}")))[0]

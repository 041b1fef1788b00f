"""A reader of GGUF files: metadata, and tensors of the three formats that SmolLM2's file holds (F32, Q8_0, Q4_1)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
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
    """A file's metadata and its tensors."""

    metadata: dict[str, Any]
    tensors: Mapping[str, Tensor]
    """Dequantised to float32, each one when it is asked for: together they are five times as large as the file."""


class Place(NamedTuple):
    """Where a tensor lies in the file, and how it is stored."""

    shape: tuple[int, ...]
    kind: int
    start: int
    size: int


class Tensors(Mapping[str, Tensor]):
    """The tensors of a file, read from disk and dequantised when they are asked for."""

    def __init__(self, path: Path, places: dict[str, Place]) -> None:
        self.places = places
        self.data = np.memmap(path, np.uint8, "r")
        if any(place.start + place.size > len(self.data) for place in places.values()):
            raise ValueError("truncated")

    def __getitem__(self, name: str) -> Tensor:
        shape, kind, start, size = self.places[name]
        return torch.from_numpy(_dequantise(self.data[start : start + size], kind).reshape(shape))

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def read_gguf(path: Path) -> GGUF:
    """A file's metadata and tensors; one that is truncated, or no GGUF file, is refused in one line."""
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
    places = {}
    for _ in range(tensor_count):
        name = _string(file)
        (dimensions,) = struct.unpack("<I", file.read(4))
        shape = struct.unpack(f"<{dimensions}Q", file.read(8 * dimensions))[::-1]  # the file lists the fastest first
        kind, offset = struct.unpack("<IQ", file.read(12))
        places[name] = Place(shape, kind, offset, int(np.prod(shape)) // BLOCK * BLOCK_BYTES[kind])
    alignment = int(metadata.get("general.alignment", 32))
    begin = -(-file.tell() // alignment) * alignment
    return GGUF(metadata, Tensors(path, {name: p._replace(start=begin + p.start) for name, p in places.items()}))


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

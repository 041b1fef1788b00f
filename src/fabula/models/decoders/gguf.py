"""A reader of GGUF files: metadata, and tensors of the three formats that SmolLM2's file holds (F32, Q8_0, Q4_1)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

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


Bytes = np.ndarray[Any, np.dtype[np.uint8]]


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

    def __init__(self, data: Bytes, places: dict[str, Place]) -> None:
        self.places, self.data = places, data
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
        return _read(np.memmap(path, np.uint8, "r"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (struct.error, ValueError, KeyError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is truncated, or is not a GGUF file of a kind that Fabula reads") from error


def _read(data: Bytes) -> GGUF:
    header = Header(data)
    magic, version, tensor_count, metadata_count = header.take("4sIQQ")
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError("not GGUF")
    metadata = {header.string(): header.value() for _ in range(metadata_count)}
    places = {}
    for _ in range(tensor_count):
        name = header.string()
        (dimensions,) = header.take("I")
        shape = header.take(f"{dimensions}Q")[::-1]  # the file lists the fastest first
        kind, offset = header.take("IQ")
        places[name] = Place(shape, kind, offset, int(np.prod(shape)) // BLOCK * BLOCK_BYTES[kind])
    alignment = int(metadata.get("general.alignment", 32))
    begin = -(-header.at // alignment) * alignment
    return GGUF(metadata, Tensors(data, {name: p._replace(start=begin + p.start) for name, p in places.items()}))


class Header:
    """Reads a file's values one after the other; arrays at once, for two of them are the vocabulary and the merges."""

    def __init__(self, data: Bytes) -> None:
        self.data, self.at = data.data, 0

    def take(self, letters: str) -> tuple[Any, ...]:
        """Values of these types, in struct's letters."""
        values = struct.unpack_from(f"<{letters}", self.data, self.at)
        self.at += struct.calcsize(f"<{letters}")
        return values

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        strings, at, data, length = [], self.at, self.data, struct.Struct("<Q").unpack_from
        for _ in range(count):
            begin = at + 8
            at = begin + length(data, at)[0]
            if at > len(data):
                raise ValueError("truncated")
            strings.append(str(data[begin:at], "utf-8"))
        self.at = at
        return strings

    def value(self, kind: int | None = None) -> Any:
        if kind is None:
            (kind,) = self.take("I")
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.take(SCALARS[kind])[0]
        inner, count = self.take("IQ")
        if inner == STRING:
            return self.strings(count)
        if inner == ARRAY:
            return [self.value(inner) for _ in range(count)]
        return list(self.take(f"{count}{SCALARS[inner]}"))


def _dequantise(raw: Bytes, kind: int) -> np.ndarray[Any, np.dtype[np.float32]]:
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

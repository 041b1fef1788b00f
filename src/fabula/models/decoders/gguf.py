"""A reader of GGUF files: metadata at once, tensors when they are asked for, dequantised by the package `gguf`.

That package's own reader takes seconds for the metadata of a vocabulary, which every start needs.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fabula.errors import UserError, file_errors

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""struct's letter for each scalar type of the format."""
STRING, ARRAY = 8, 9
F32 = 0
"""The number of the one format that is read without the package."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class GGUF(NamedTuple):
    """A file's metadata and its tensors."""

    metadata: dict[str, Any]
    tensors: LazyTensors
    """Dequantised to float32, each one when it is asked for: together they are five times as large as the file."""


class LazyTensors(Mapping[str, Tensor]):
    """Tensors by name, each made by `read` when it is asked for."""

    def __init__(self, names: Iterable[str], read: Callable[[str], Tensor]) -> None:
        self.names, self.read = dict.fromkeys(names), read

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.names:
            raise KeyError(name)
        return self.read(name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def read_gguf(path: Path) -> GGUF:
    """A file's metadata and tensors; one that is truncated, or no GGUF file, is refused in one line."""
    try:
        with file_errors(f"{path} cannot be read"):
            return _read(path, np.memmap(path, np.uint8, "r"))
    except (struct.error, ValueError, KeyError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is truncated, or is not a GGUF file of a kind that Fabula reads") from error


def _read(path: Path, data: Bytes) -> GGUF:
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
        places[name] = (shape, *header.take("IQ"))
    alignment = int(metadata.get("general.alignment", 32))
    content = data[-(-header.at // alignment) * alignment :]
    return GGUF(metadata, LazyTensors(places, lambda name: _tensor(path, content, name, *places[name])))


def _tensor(path: Path, data: Bytes, name: str, shape: tuple[int, ...], number: int, start: int) -> Tensor:
    """A tensor of the file, dequantised; `number` is that of its block format."""

    def raw(weights: int, size: int) -> Bytes:
        """Its bytes, where blocks are so many weights in so many bytes."""
        end = start + math.prod(shape) // weights * size
        if end > len(data):
            raise UserError(f"{path} is truncated, or is not a GGUF file of a kind that Fabula reads")
        return data[start:end]

    if number == F32:
        return torch.from_numpy(raw(1, 4).view(np.float32).copy().reshape(shape))
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    try:
        kind = GGMLQuantizationType(number)
        rows = raw(*GGML_QUANT_SIZES[kind]).reshape(*shape[:-1], -1)
        return torch.from_numpy(dequantize(rows, kind).astype(np.float32).reshape(shape))
    except (ValueError, KeyError, NotImplementedError) as error:
        raise UserError(f"{path} has a tensor of a format that Fabula cannot read: {name}") from error


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

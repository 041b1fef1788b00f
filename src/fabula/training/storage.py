"""How weights lie on disk: single or half precision, or 8-bit integers with a scale for each row.

A matrix W in int8 is round(W / scale) with scale = max |row| / 127, kept beside it as `NAME.scale`; vectors stay in
single precision. Large checkpoints are cut into shards, whole tensors each.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Storage = Literal["float32", "float16", "int8"]
SCALE = ".scale"


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
            rows = tensor.flatten(0, -2).float()
            scale = rows.abs().amax(-1).clamp(min=1e-12) / 127
            packed[name] = (rows / scale.unsqueeze(-1)).round().to(torch.int8).view(tensor.shape)
            packed[name + SCALE] = scale.view(tensor.shape[:-1])
    return packed


def unpack(packed: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `pack`, in single precision."""
    tensors = {}
    for name, tensor in packed.items():
        if name.endswith(SCALE) and name.removesuffix(SCALE) in packed:
            continue
        scale = packed.get(name + SCALE)
        tensors[name] = tensor.float() if scale is None else tensor.float() * scale.unsqueeze(-1)
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
        whole = {key: packed[key] for key in (name, name + SCALE) if key in packed}
        here = sum(part.numel() * part.element_size() for part in whole.values())
        if groups[-1] and size + here > limit:
            groups.append({})
            size = 0
        groups[-1] |= whole
        size += here
    return groups

"""The weights of the inference network from a base and its adapter: merged, norms folded in, and turned.

A norm's weight vector is folded into the maps that read it. Then any orthogonal matrix R may turn the inner vector x
without a change to the function, because rms_norm(x R) = rms_norm(x) R:

    x' = x R;   maps that read x: W' = W diag(norm) R;   maps that write it: W' = R^T W

SmolLM2 keeps a few very large numbers in x, beside which 7 bits leave little for the others; turned, they are spread
over all places, and quantising costs a tenth of what it did (benchmarks/README.md). Values are turned in the same way
between their map and attention's output map. The inputs of the map down are turned thirty-two at a time: no map stands
before them, so the network does it (`Network.turn`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fabula.models.decoders.gguf import BLOCK
from fabula.models.decoders.quantised import quantise
from fabula.models.decoders.transformer import Sizes

Weights = Mapping[str, Tensor]
"""By name: `embedding`, `head`, and `{layer}.{name}` with FUSED's names; a quantised map's scales as `{name}.scale`."""
FUSED = {
    "qkv": ("attn_q", "attn_k", "attn_v"), "output": ("attn_output",), "gate_up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}  # fmt: skip
"""Maps that read the same vector are one product."""


def fuse(
    tensors: Weights, sizes: Sizes, *, eight_bit: bool, dtype: torch.dtype = torch.float32
) -> Iterator[tuple[str, Tensor]]:
    """The weights, one map at a time; `tensors` has a base's names and the adapter's special vectors."""
    R = orthogonal(sizes.width) if eight_bit else None
    R_value = orthogonal(sizes.width // sizes.heads) if eight_bit else None

    def stored(name: str, weight: Tensor) -> Iterator[tuple[str, Tensor]]:
        if not eight_bit:
            yield name, weight.to(dtype)
            return
        levels, scale = quantise(weight)
        yield name, levels
        yield f"{name}.scale", scale

    def reads(weight: Tensor, norm: Tensor | None) -> Tensor:
        weight = weight if norm is None else weight * norm
        return weight if R is None else weight @ R

    for i in range(sizes.layers):
        layer = {name: f"blk.{i}.{name}.weight" for names in FUSED.values() for name in names}
        attn_norm, ffn_norm = tensors[f"blk.{i}.attn_norm.weight"], tensors[f"blk.{i}.ffn_norm.weight"]
        value, output, down = tensors[layer["attn_v"]], tensors[layer["attn_output"]], tensors[layer["ffn_down"]]
        if R is not None and R_value is not None:
            value = (R_value.T @ value.unflatten(0, (sizes.key_heads, -1))).flatten(0, 1)
            output = R.T @ (output.unflatten(1, (sizes.heads, -1)) @ R_value).flatten(1)
            down = ((R.T @ down).unflatten(1, (-1, BLOCK)) @ hadamard(BLOCK)).flatten(1)
        qkv = torch.cat([tensors[layer["attn_q"]], tensors[layer["attn_k"]], value])
        gate_up = torch.cat([tensors[layer["ffn_gate"]], tensors[layer["ffn_up"]]])
        yield from stored(f"{i}.qkv", reads(qkv, attn_norm))
        yield from stored(f"{i}.output", output)
        yield from stored(f"{i}.gate_up", reads(gate_up, ffn_norm))
        yield from stored(f"{i}.down", down)
    tables = [("embedding", "special_in", None), ("head", "special_out", tensors["output_norm.weight"])]
    if "critic.weight" in tensors:  # a critic has one output in place of the vocabulary's, too few to quantise
        yield "head", reads(tensors["critic.weight"], tables.pop()[2]).to(dtype)
        yield "head.bias", tensors["critic.bias"].to(dtype)
    for name, special, norm in tables:
        table, added = tensors["token_embd.weight"].clone(), tensors[special]
        table[: len(added)] += added
        if name == "embedding" and "further_in" in tensors:
            table = torch.cat([table, tensors["further_in"]])
        yield from stored(name, reads(table, norm))


def hadamard(size: int) -> Float[Tensor, "{size} {size}"]:
    """The symmetric orthogonal matrix of entries +-1/sqrt(size), for a power of two."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(size)


def orthogonal(size: int) -> Float[Tensor, "{size} {size}"]:
    """An orthogonal matrix without large entries, the same at every call."""
    return torch.from_numpy(np.linalg.qr(np.random.default_rng(0).standard_normal((size, size)))[0]).float()

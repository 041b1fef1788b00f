"""The weights of the inference network from a base and its adapters: merged, norms folded in, and turned.

A norm's weight vector is folded into the maps that read it. Then any orthogonal matrix R may turn the inner vector x
without a change to the function, because rms_norm(x R) = rms_norm(x) R:

    x' = x R;   maps that read x: W' = W diag(norm) R;   maps that write it: W' = R^T W

Networks keep a few very large numbers in x, beside which 7 bits leave little for the others; turned, they are spread
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
from torch.nn import functional as F

from fabula.models.decoders.adapter import Adapter
from fabula.models.decoders.quantised import quantise
from fabula.models.decoders.transformer import Sizes

Weights = Mapping[str, Tensor]
"""By name: `embedding`, `head`, and `{layer}.{name}` with FUSED's names; a quantised map's scales as `{name}.scale`."""
FUSED = {
    "qkv": ("attn_q", "attn_k", "attn_v"), "output": ("attn_output",), "gate_up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}  # fmt: skip
"""Maps that read the same vector are one product."""
READS = dict.fromkeys(("attn_q", "attn_k", "attn_v"), "attn_norm") | dict.fromkeys(("ffn_gate", "ffn_up"), "ffn_norm")
"""The maps that read the inner vector, and the norms that stand before them."""
BLOCK = 32
"""Inputs of the map down that are turned together."""


class Turns:
    """How the maps of a network are turned: `inputs` and `outputs` of each, and what is folded into them."""

    def __init__(self, tensors: Weights, sizes: Sizes, turned: bool) -> None:
        self.tensors, self.sizes = tensors, sizes
        self.R = orthogonal(sizes.width) if turned else None
        self.R_value = orthogonal(sizes.width // sizes.heads) if turned else None

    def reads(self, weight: Tensor, norm: str | None) -> Tensor:
        """Of a map that reads the inner vector after a norm."""
        weight = weight if norm is None else weight * self.tensors[norm]
        return weight if self.R is None else weight @ self.R

    def inputs(self, weight: Tensor, layer: int, name: str) -> Tensor:
        """A weight whose second axis is the inputs of the map `name`."""
        if name in READS:
            return self.reads(weight, f"blk.{layer}.{READS[name]}.weight")
        if self.R_value is None:
            return weight
        groups, turn = (self.sizes.heads, self.R_value) if name == "attn_output" else (-1, hadamard(BLOCK))
        turned: Tensor = weight.unflatten(1, (groups, len(turn))) @ turn
        return turned.flatten(1)

    def outputs(self, weight: Tensor, name: str) -> Tensor:
        """A weight whose first axis is the outputs of the map `name`."""
        if self.R is None or self.R_value is None or name in ("attn_q", "attn_k", "ffn_gate", "ffn_up"):
            return weight
        if name != "attn_v":
            return self.R.T @ weight
        turned: Tensor = self.R_value.T @ weight.unflatten(0, (self.sizes.key_heads, -1))
        return turned.flatten(0, 1)


def fuse(
    tensors: Weights, sizes: Sizes, *, eight_bit: bool, dtype: torch.dtype = torch.float32
) -> Iterator[tuple[str, Tensor]]:
    """The weights of a narrator, one map at a time; `tensors` are its base's with the adapter merged."""
    turns = Turns(tensors, sizes, eight_bit)

    def stored(name: str, weight: Tensor) -> Iterator[tuple[str, Tensor]]:
        if not eight_bit:
            yield name, weight.to(dtype)
            return
        levels, scale = quantise(weight)
        yield name, levels
        yield f"{name}.scale", scale

    for i in range(sizes.layers):
        for fused, names in FUSED.items():
            maps = [turns.outputs(turns.inputs(tensors[f"blk.{i}.{n}.weight"], i, n), n) for n in names]
            yield from stored(f"{i}.{fused}", torch.cat(maps))
    yield from stored("embedding", turns.reads(tensors["token_embd.weight"], None))
    yield from stored("head", turns.reads(tensors["output.weight"], "output_norm.weight"))


def fuse_critic(
    critic: Adapter, base: Weights, sizes: Sizes, *, eight_bit: bool, dtype: torch.dtype
) -> dict[str, Tensor]:
    """What a critic adds to a narrator's weights: `{layer}.{name}.a` and `.b`, `special`, and its output map."""
    turns, added = Turns(base, sizes, eight_bit), critic.tensors
    weights = {}
    for i in range(sizes.layers):
        for fused, names in FUSED.items():
            key = [f"blocks.{i}.linears.{name}" for name in names]
            a = [turns.inputs(added[f"{k}.a"], i, name) for k, name in zip(key, names, strict=True)]
            b = [turns.outputs(added[f"{k}.b"], name) for k, name in zip(key, names, strict=True)]
            weights[f"{i}.{fused}.a"] = torch.cat(a)
            weights[f"{i}.{fused}.b"] = critic.config.scale * torch.block_diag(*b)
    weights["special"] = F.pad(turns.reads(added["special_in"], None), (0, 0, 0, 1))
    weights["head"] = turns.reads(added["critic.weight"], "output_norm.weight")
    return {name: weight.to(dtype) for name, weight in weights.items()} | {"head.bias": added["critic.bias"]}


def hadamard(size: int) -> Float[Tensor, "{size} {size}"]:
    """The symmetric orthogonal matrix of entries +-1/sqrt(size), for a power of two."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(size)


def orthogonal(size: int) -> Float[Tensor, "{size} {size}"]:
    """An orthogonal matrix without large entries, the same at every call."""
    return torch.from_numpy(np.linalg.qr(np.random.default_rng(0).standard_normal((size, size)))[0]).float()

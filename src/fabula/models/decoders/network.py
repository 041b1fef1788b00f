"""The narrator's network for inference: merged weights, quantised on a CPU, and a key-value cache with ragged rows.

The same function as `transformer.Transformer`, which is for training. Maps that read the same input are one product
(query, key and value; gate and up), and only tokens that are there are computed: rows of a batch may read different
numbers of tokens, and rows that are finished none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from fabula.models.decoders.fuse import FUSED, Weights, hadamard
from fabula.models.decoders.gguf import BLOCK
from fabula.models.decoders.quantised import LinearMap, linear_maps
from fabula.models.decoders.transformer import Sizes

GROWTH = 32
"""A cache grows by multiples of this many tokens."""


@dataclass
class Cache:
    """Keys and values of every layer, row and place: [layer, key or value, row, head, place, width].

    `version` counts what was written: a state that is older than its cache must copy it before it writes itself.
    """

    entries: Float[Tensor, "layer 2 batch head place width"]
    version: int = 0

    def with_room(self, places: int) -> Cache:
        """The same, or a larger copy with room for `places` tokens in every row."""
        more = places - self.entries.shape[4]
        if more <= 0:
            return self
        return Cache(F.pad(self.entries, (0, 0, 0, -(-more // GROWTH) * GROWTH)), self.version)


class Packed(NamedTuple):
    """New tokens of several rows, one after the other: only those that are there."""

    ids: Int[Tensor, " token"]
    row: Int[Tensor, " token"]
    column: Int[Tensor, " token"]
    """The number of the token among the new ones of its row."""
    place: Int[Tensor, " token"]
    """Its position in its row."""

    @staticmethod
    def of(
        ids: Int[Tensor, "batch token"], there: Bool[Tensor, "batch token"], lengths: Int[Tensor, " batch"]
    ) -> Packed:
        """From padded rows that continue after `lengths` tokens; those that are there stand first in each row."""
        row, column = there.nonzero(as_tuple=True)
        return Packed(ids[row, column], row, column, lengths[row] + column)


class Layer(NamedTuple):
    qkv: LinearMap
    output: LinearMap
    gate_up: LinearMap
    down: LinearMap


class Network:
    """Features of new tokens given those in the cache, and the scores of the next token."""

    def __init__(self, sizes: Sizes, weights: Weights) -> None:
        self.sizes = sizes
        self.embedding, self.scale = weights["embedding"], weights.get("embedding.scale")
        names = [f"{i}.{name}" for i in range(sizes.layers) for name in FUSED]
        self.head, *maps = linear_maps(weights, ["head", *names])
        self.bias = weights.get("head.bias")
        self.layers = [Layer(*maps[begin : begin + len(FUSED)]) for begin in range(0, len(maps), len(FUSED))]
        self.device = self.embedding.device
        self.dtype = self.embedding.dtype if self.scale is None else torch.float32
        self.turn = None if self.scale is None else hadamard(BLOCK)
        width = sizes.width // sizes.heads
        self.frequency = sizes.rotary_base ** (-torch.arange(0, width, 2, device=self.device).float() / width)

    def cache(self, rows: int) -> Cache:
        """Nothing read yet."""
        shape = (self.sizes.layers, 2, rows, self.sizes.key_heads, 0, self.sizes.width // self.sizes.heads)
        return Cache(torch.zeros(shape, device=self.device, dtype=self.dtype))

    def embed(self, ids: Int[Tensor, " token"]) -> Float[Tensor, "token width"]:
        x = self.embedding[ids].to(self.dtype)
        if self.scale is not None:
            x = x * self.scale[ids].unsqueeze(-1)
        return x

    def read(self, cache: Cache, new: Packed) -> Float[Tensor, "token width"]:
        """Features of the new tokens; their keys and values are written into the cache, which must have room."""
        size = self.sizes
        entries = cache.entries
        rows, n, used = entries.shape[2], int(new.column.max()) + 1, int(new.place.max()) + 1
        width, groups = size.width // size.heads, size.heads // size.key_heads
        angle = new.place.unsqueeze(-1).float() * self.frequency
        turn = torch.polar(torch.ones_like(angle), angle).unsqueeze(1)
        # Rows that read nothing see their first place only; their result is not used.
        last = torch.zeros(rows, n, dtype=torch.int64, device=self.device)
        last[new.row, new.column] = new.place
        seen = torch.arange(used, device=self.device) <= last.unsqueeze(-1)
        mask = torch.zeros(rows, 1, n, used, device=self.device, dtype=self.dtype)
        mask.masked_fill_(~seen.unsqueeze(1), float("-inf"))
        mask = mask.repeat(1, 1, groups, 1)
        full = len(new.ids) == rows * n
        x = self.embed(new.ids)
        for layer, kept in zip(self.layers, entries, strict=True):
            h = F.rms_norm(x, (size.width,), eps=size.epsilon)
            heads = layer.qkv(h).unflatten(-1, (-1, width))
            qk, v = heads[:, : size.heads + size.key_heads], heads[:, size.heads + size.key_heads :]
            qk = _turn(qk, turn)
            kept[0][new.row, :, new.place] = qk[:, size.heads :]
            kept[1][new.row, :, new.place] = v
            q = qk[:, : size.heads]
            if full:
                q = q.unflatten(0, (rows, n))
            else:
                q = q.new_zeros(rows, n, size.heads, width).index_put((new.row, new.column), q)
            # Query heads that share a key head stand side by side, as if they were further places.
            q = q.unflatten(2, (size.key_heads, groups)).permute(0, 2, 3, 1, 4).flatten(2, 3)
            a = F.scaled_dot_product_attention(q, kept[0][:, :, :used], kept[1][:, :, :used], attn_mask=mask)
            a = a.unflatten(2, (groups, n)).permute(0, 3, 1, 2, 4).flatten(2)
            x = x + layer.output(a.flatten(0, 1) if full else a[new.row, new.column])
            h = F.rms_norm(x, (size.width,), eps=size.epsilon)
            gate, up = layer.gate_up(h).chunk(2, -1)
            h = F.silu(gate) * up
            if self.turn is not None:
                h = (h.unflatten(-1, (-1, BLOCK)) @ self.turn).flatten(-2)
            x = x + layer.down(h)
        cache.version += 1
        return F.rms_norm(x, (size.width,), eps=size.epsilon)

    def logits(self, features: Float[Tensor, "token width"]) -> Float[Tensor, "token vocab"]:
        scores = self.head(features).float()
        return scores if self.bias is None else scores + self.bias


def _turn(x: Float[Tensor, "token head width"], turn: Tensor) -> Tensor:
    """Rotary positions: neighbouring pairs as complex numbers, turned by their place's angle."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)

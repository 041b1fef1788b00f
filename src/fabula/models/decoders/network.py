"""The narrator's network for inference: merged weights, quantised on a CPU, and a key-value cache with ragged rows.

The same function as `transformer.Transformer`, which is for training. Maps that read the same input are one product
(query, key and value; gate and up), and only tokens that are there are computed: rows of a batch may read different
numbers of tokens, and rows that are finished none.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from fabula.models.decoders.cache import Cache
from fabula.models.decoders.fuse import BLOCK, FUSED, Weights, hadamard
from fabula.models.decoders.quantised import Adapted, LinearMap, Plain, linear_maps
from fabula.models.decoders.transformer import Sizes
from fabula.shapes import Integers, Tokens


class Packed(NamedTuple):
    """New tokens of several rows, one after the other: only those that are there."""

    ids: Int[Tensor, " token"]
    row: Int[Tensor, " token"]
    column: Int[Tensor, " token"]
    """The number of the token among the new ones of its row."""
    place: Int[Tensor, " token"]
    """Its position in its row."""

    @staticmethod
    def of(ids: Tokens, there: Bool[Tensor, "batch token"], lengths: Integers) -> Packed:
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
        self.special: Tensor | None = None
        self.bias: Tensor | None = None
        self.layers = [Layer(*maps[begin : begin + len(FUSED)]) for begin in range(0, len(maps), len(FUSED))]
        self.device = self.embedding.device
        self.dtype = self.embedding.dtype if self.scale is None else torch.float32
        self.turn = None if self.scale is None else hadamard(BLOCK)
        self.head_width = sizes.width // sizes.heads
        self.frequency = torch.tensor(sizes.frequencies, device=self.device)

    def with_critic(self, weights: Weights) -> Network:
        """A critic over this network, which shares its maps: `weights` are those of `fuse_critic`."""
        critic = copy.copy(self)
        critic.head, critic.bias, critic.special = Plain(weights["head"]), weights["head.bias"], weights["special"]
        critic.layers = [
            Layer(
                *(Adapted(m, weights[f"{i}.{n}.a"], weights[f"{i}.{n}.b"]) for m, n in zip(layer, FUSED, strict=True))
            )
            for i, layer in enumerate(self.layers)
        ]
        return critic

    def cache(self, rows: int) -> Cache:
        """Nothing read yet."""
        shape = (self.sizes.layers, 2, rows, self.sizes.key_heads, 0, self.head_width)
        entries = torch.zeros(shape, device=self.device, dtype=self.dtype)
        return Cache(entries, torch.zeros(rows, dtype=torch.int64, device=self.device))

    def embed(self, ids: Int[Tensor, " token"]) -> Float[Tensor, "token width"]:
        x = self.embedding[ids].to(self.dtype)
        if self.scale is not None:
            x = x * self.scale[ids].unsqueeze(-1)
        if self.special is not None:
            x = x + self.special[ids.clamp(max=len(self.special) - 1)]
        return x

    def read(self, cache: Cache, new: Packed, slot: Integers | None = None) -> Float[Tensor, "token width"]:
        """Features of the new tokens; their keys and values are written into the cache, which must have room.

        `slot` says where in the cache each row stands; None: row r in slot r.
        """
        # To a torch function mode this is one operation: to dispatch all of them in Python takes half as long again.
        with torch._C.DisableTorchFunction():
            return self._read(cache, new, slot)

    def _read(self, cache: Cache, new: Packed, slot: Integers | None) -> Float[Tensor, "token width"]:
        size, entries = self.sizes, cache.entries
        slots, room = entries.shape[2], entries.shape[4]
        at = new.row if slot is None else slot[new.row]
        place = new.place - cache.begins[at]
        n, used = int(new.column.max()) + 1, int(place.max()) + 1
        turn = self._angles(new.place)
        # Slots that read nothing see their first place only; their result is not used.
        last = torch.zeros(slots, n, dtype=torch.int64, device=self.device)
        last[at, new.column] = place
        seen = torch.arange(used, device=self.device) <= last.unsqueeze(-1)
        mask = torch.zeros(slots, 1, n, used, device=self.device, dtype=self.dtype)
        mask.masked_fill_(~seen.unsqueeze(1), float("-inf"))
        mask = mask.repeat(1, 1, size.heads // size.key_heads, 1)
        # Where keys and values go in a layer's rows of [key or value, slot, head, place].
        head = torch.arange(2 * size.key_heads, device=self.device)
        kind, head = head // size.key_heads, head % size.key_heads
        target = ((kind * slots + at[:, None]) * size.key_heads + head) * room + place[:, None]
        target = target.flatten()
        full = len(at) == slots * n and bool((at == torch.arange(slots, device=self.device).repeat_interleave(n)).all())
        prefix, shared, outside = cache.prefix, None, None
        if prefix is not None and prefix.ragged:
            outside = torch.arange(prefix.entries.shape[4]) >= prefix.lengths[:, None]
        x = self.embed(new.ids)
        for i, layer in enumerate(self.layers):
            heads = _turn(layer.qkv.normed(x, size.epsilon).view(len(x), -1, self.head_width), turn)
            kept = entries[i]
            kept.view(-1, self.head_width).index_copy_(0, target, heads[:, size.heads :].flatten(0, 1))
            q = heads[:, : size.heads]
            if full:
                q = q.unflatten(0, (slots, n))
            else:
                q = q.new_zeros(slots, n, size.heads, self.head_width).index_put_((at, new.column), q)
            # Query heads that share a key head stand side by side, as if they were further places.
            q = q.unflatten(2, (size.key_heads, -1)).permute(0, 2, 3, 1, 4).flatten(2, 3)
            shared = None if prefix is None else prefix.entries[i]
            a = attend(q, kept[:, :, :, :used], mask, shared, outside)
            a = a.unflatten(2, (-1, n)).permute(0, 3, 1, 2, 4).flatten(2)
            x = x + layer.output(a.flatten(0, 1) if full else a[at, new.column])
            gate, up = layer.gate_up.normed(x, size.epsilon).chunk(2, -1)
            h = F.silu(gate) * up
            if self.turn is not None:
                h = (h.unflatten(-1, (-1, BLOCK)) @ self.turn).flatten(-2)
            x = x + layer.down(h)
        cache.written.scatter_reduce_(0, at, new.place + 1, "amax")
        return F.rms_norm(x, (size.width,), eps=size.epsilon)

    def _angles(self, place: Int[Tensor, " token"]) -> Tensor:
        """What heads are multiplied by, as complex numbers: queries and keys are turned by their place's angle, queries
        scaled for the softmax besides, values left alone."""
        angle = place.unsqueeze(-1).float() * self.frequency
        size = torch.full((self.sizes.heads,), self.head_width**-0.5, device=self.device)
        plain = torch.ones(self.sizes.key_heads, device=self.device)
        turned = torch.cat([size, plain, 0 * plain])[:, None] * torch.polar(torch.ones_like(angle), angle).unsqueeze(1)
        return turned + torch.cat([0 * size, 0 * plain, plain])[:, None]

    def logits(self, features: Float[Tensor, "token width"]) -> Float[Tensor, "token vocab"]:
        scores = self.head(features).float()
        return scores if self.bias is None else scores + self.bias


def attend(
    q: Float[Tensor, "slot head query width"],
    kept: Float[Tensor, "2 slot head place width"],
    mask: Float[Tensor, "slot 1 query place"],
    prefix: Float[Tensor, "2 group head shared width"] | None,
    outside: Bool[Tensor, "group shared"] | None,
) -> Float[Tensor, "slot head query width"]:
    """Attention over the prefix that groups of slots share, up to what is `outside`, and over each slot's own places.

    The prefix is read once for a group: a step's keys and values come from memory, not from the processor's cache.
    """
    k, v = kept
    if prefix is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
    groups, P = prefix.shape[1], prefix.shape[3]
    slots, queries = q.shape[0], q.shape[2]

    def by_group(x: Tensor) -> Tensor:
        return x.view(groups, -1, *x.shape[1:]).transpose(1, 2).reshape(groups * x.shape[1], -1, x.shape[3])

    def by_slot(x: Tensor) -> Tensor:
        return x.view(groups, -1, slots // groups, queries, x.shape[2]).transpose(1, 2).flatten(0, 1)

    shared = by_slot(torch.bmm(by_group(q), prefix[0].flatten(0, 1).transpose(1, 2)))
    if outside is not None:
        shared = shared.masked_fill(outside.repeat_interleave(slots // groups, 0)[:, None, None], float("-inf"))
    unshared = torch.matmul(q, k.transpose(-1, -2)).add_(mask)
    weights = torch.cat([shared, unshared], -1).softmax(-1)
    of_prefix = by_slot(torch.bmm(by_group(weights[..., :P]), prefix[1].flatten(0, 1)))
    return of_prefix + torch.matmul(weights[..., P:], v)


def _turn(x: Float[Tensor, "token head width"], turn: Tensor) -> Tensor:
    """Rotary positions: neighbouring pairs as complex numbers, multiplied."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)

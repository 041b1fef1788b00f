"""A Llama-style transformer in plain PyTorch, over a base's tensors, with an adapter beside each of its linear maps.

    x = x + attention(rms_norm(x)),  x = x + W_down (silu(W_gate h) * W_up h),  h = rms_norm(x)

Grouped-query attention with rotary positions; the output layer is the embedding, or a map of its own. GGUF orders the
rows of the query and key maps so that rotary pairs are neighbours (2i, 2i + 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from fabula.shapes import Tokens

KEPT_TOKENS = 400_000
"""Of which the fixed layers' features are kept at most: 1.6 GB of a base of 1.1 B. The oldest rows go first."""
LINEARS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


class Sizes(NamedTuple):
    """The shape of a network."""

    layers: int
    width: int
    inner: int
    heads: int
    key_heads: int
    vocabulary: int
    epsilon: float
    frequencies: tuple[float, ...]
    """Of rotary positions: by how much each pair of a head turns from one token to the next."""


class AdaptedLinear(nn.Module):
    """W x + scale * b (a x): a frozen map with a low-rank adapter, which begins at 0."""

    weight: Tensor

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.scale = scale
        self.a = nn.Parameter(torch.randn(rank, weight.shape[1]) / math.sqrt(weight.shape[1]))
        self.b = nn.Parameter(torch.zeros(weight.shape[0], rank))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight) + F.linear(F.linear(x, self.a) * self.scale, self.b)


class Block(nn.Module):
    """One layer: attention, then the gated feed-forward map."""

    attn_norm: Tensor
    ffn_norm: Tensor

    def __init__(self, base: Mapping[str, Tensor], number: int, sizes: Sizes, rank: int, scale: float) -> None:
        super().__init__()
        self.sizes = sizes
        tensors = {name: base[f"blk.{number}.{name}.weight"] for name in (*LINEARS, "attn_norm", "ffn_norm")}
        self.linears = nn.ModuleDict({name: AdaptedLinear(tensors[name], rank, scale) for name in LINEARS})
        self.register_buffer("attn_norm", tensors["attn_norm"], persistent=False)
        self.register_buffer("ffn_norm", tensors["ffn_norm"], persistent=False)

    def forward(self, x: Float[Tensor, "batch token width"], rotation: tuple[Tensor, Tensor]) -> Tensor:
        size, width = self.sizes, self.sizes.width // self.sizes.heads
        h = F.rms_norm(x, (size.width,), self.attn_norm, size.epsilon)
        q, k, v = (self.linears[f"attn_{name}"](h).unflatten(-1, (-1, width)).transpose(1, 2) for name in "qkv")
        attended = F.scaled_dot_product_attention(
            rotate(q, *rotation), rotate(k, *rotation), v, is_causal=True, enable_gqa=True
        )
        x = x + self.linears["attn_output"](attended.transpose(1, 2).flatten(2))
        h = F.rms_norm(x, (size.width,), self.ffn_norm, size.epsilon)
        x = x + self.linears["ffn_down"](F.silu(self.linears["ffn_gate"](h)) * self.linears["ffn_up"](h))
        return x


class Transformer(nn.Module):
    """The network. The vectors of its first `specials` tokens are learnt anew (a difference).

    `further` tokens come after the base's vocabulary: they have an input vector each, wholly learnt, and no output.
    With `top`, only the last so many layers learn: what the others make of a row is computed once and kept.
    """

    embedding: Tensor
    output: Tensor
    norm: Tensor

    def __init__(
        self, base: Mapping[str, Tensor], sizes: Sizes, rank: int, scale: float, specials: int, further: int = 0,
        top: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sizes = sizes
        self.fixed = max(0, sizes.layers - top) if top else 0
        self.kept: dict[tuple[int, ...], Tensor] = {}
        self.blocks = nn.ModuleList(Block(base, i, sizes, rank, scale) for i in range(sizes.layers))
        self.register_buffer("embedding", base["token_embd.weight"], persistent=False)
        self.register_buffer("output", base.get("output.weight", self.embedding), persistent=False)
        self.register_buffer("norm", base["output_norm.weight"], persistent=False)
        self.special_in = nn.Parameter(torch.zeros(specials, sizes.width))
        self.special_out = nn.Parameter(torch.zeros(specials, sizes.width))
        if further:
            self.further_in = nn.Parameter(torch.zeros(further, sizes.width))
        if self.fixed:
            for name, parameter in self.named_parameters():
                learns = name.startswith(tuple(f"blocks.{i}." for i in range(self.fixed, sizes.layers)))
                parameter.requires_grad_(learns or name == "special_out")

    def forward(self, ids: Tokens) -> Float[Tensor, "batch token width"]:
        """Features of every place, from which `logits` reads the next token."""
        turns = torch.tensor(self.sizes.frequencies, device=ids.device)
        angle = torch.arange(ids.shape[1], device=ids.device).float()[:, None] * turns
        rotation = angle.cos(), angle.sin()
        x = self.below(ids, rotation) if self.fixed else self.embed(ids)
        for block in self.blocks[self.fixed :]:
            x = block(x, rotation)
        return F.rms_norm(x, (self.sizes.width,), self.norm, self.sizes.epsilon)

    @torch.no_grad()
    def below(self, ids: Tokens, rotation: tuple[Tensor, Tensor]) -> Float[Tensor, "batch token width"]:
        """What the fixed layers make of rows; those that were not met before are computed."""
        lengths = ((ids != 0) * torch.arange(1, ids.shape[1] + 1, device=ids.device)).amax(1).tolist()  # padded with 0
        rows = [tuple(row[:n]) for row, n in zip(ids.tolist(), lengths, strict=True)]
        new = [n for n, row in enumerate(rows) if row not in self.kept]
        if new:
            x = self.embed(ids[new])
            for block in self.blocks[: self.fixed]:
                x = block(x, rotation)
            self.kept |= {rows[n]: each[: lengths[n]].to(self.embedding.dtype) for n, each in zip(new, x, strict=True)}
        features = nn.utils.rnn.pad_sequence([self.kept[row] for row in rows], batch_first=True).float()
        for row in list(self.kept)[: max(0, len(self.kept) - KEPT_TOKENS // ids.shape[1])]:
            del self.kept[row]
        return F.pad(features, (0, 0, 0, ids.shape[1] - features.shape[1]))

    def embed(self, ids: Tokens) -> Float[Tensor, "batch token width"]:
        specials = len(self.special_in)
        vocabulary = len(self.embedding)
        x = F.embedding(ids.clamp(max=vocabulary - 1), self.embedding)
        if hasattr(self, "further_in"):
            further = F.embedding((ids - vocabulary).clamp(min=0), self.further_in)
            x = torch.where((ids < vocabulary).unsqueeze(-1), x, further)
        return x + F.embedding(ids.clamp(max=specials - 1), self.special_in) * (ids < specials).unsqueeze(-1)

    def logits(self, features: Float[Tensor, "*place width"]) -> Float[Tensor, "*place vocab"]:
        scores = F.linear(features, self.output)
        few = F.linear(features, self.special_out)
        return torch.cat([scores[..., : few.shape[-1]] + few, scores[..., few.shape[-1] :]], -1)


def freeze(network: nn.Module, device: torch.device, half: bool = False) -> None:
    """Move a network; on a GPU, and with `half`, its frozen weights become bfloat16, all that products use of them.

    On a GPU blocks are compiled, for to launch small kernels takes longer than they do; they share one compilation.
    """
    network.to(device)
    if device.type == "cuda" or half:
        for module in network.modules():
            for name, tensor in module.named_buffers(recurse=False):
                setattr(module, name, tensor.bfloat16() if tensor.ndim > 1 else tensor)
            if device.type == "cuda" and isinstance(module, Block):
                module.compile(dynamic=True)


def rotate(x: Float[Tensor, "batch head token width"], cos: Tensor, sin: Tensor) -> Tensor:
    """Neighbouring pairs turned by the angle of their position."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

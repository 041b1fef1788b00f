"""The narrator's adapter: what training adds to its base.

    W + scale * b a   for every linear map,   e_t + special_in_t,  u_t + special_out_t   for the special tokens t
    further_in_t   for the tokens that the base does not have (`rows.TagTokens`)

A critic's adapter adds to a narrator that has been merged with its base in this way. Folders are read and written by
`models/io/pretrained.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fabula.corpus.states import Factor, StateSpace
from fabula.errors import UserError
from fabula.models.decoders.gguf import LazyTensors
from fabula.models.decoders.rows import SPECIALS, TagTokens
from fabula.models.decoders.transformer import LINEARS, Sizes
from fabula.models.defaults import SAMPLING

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class AdapterConfig:
    """What an adapter was trained for."""

    base_sha256: str
    """Of the one base that it fits."""
    rank: int
    """Of b a."""
    scale: float
    """What b a is multiplied by."""
    labels: tuple[str, ...]
    """The switching states that the mood tokens stand for, in their order; with `factors`, the first one's labels."""
    tagger: str
    """Which tagger gave the states in training; with `factors` one of each, joined by commas."""
    factors: tuple[Factor, ...] = ()
    """What the states are the product of, where there are several."""
    specials: int = SPECIALS
    """The base's first tokens, whose vectors are learnt."""
    critic: bool = False
    """Whether a critic's output map stands beside the adapter."""
    narrator_sha256: str = ""
    """Of a critic: the adapter file of the narrator that it adds to; empty: it adds to the base alone."""
    format: int = FORMAT
    sampling: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By sampler: settings that suit this model better than the sampler's defaults."""

    def __post_init__(self) -> None:
        if not self.sampling and not self.critic:
            object.__setattr__(self, "sampling", SAMPLING)
        if self.format != FORMAT:
            raise ValueError(f"format {self.format} is not known")
        if self.rank < 1 or not self.labels or self.specials != SPECIALS:
            raise ValueError("rank, labels or specials are out of range")
        if self.factors and self.factors[0].labels != self.labels:
            raise ValueError("the first factor has other labels")

    @property
    def states(self) -> StateSpace:
        return StateSpace(self.factors) if self.factors else StateSpace.single(self.tagger, self.labels)

    def tokens(self, vocabulary: int) -> TagTokens:
        """Of tags, for a base of so many tokens."""
        return TagTokens(self.states, vocabulary)


@dataclass(frozen=True)
class Adapter:
    """An adapter in memory: float32 tensors by the names of `Transformer.named_parameters()`."""

    config: AdapterConfig
    tensors: Mapping[str, Tensor]

    def check(self, sizes: Sizes, path: Path | str = "the adapter") -> None:
        """That every tensor is there and fits the base's shape."""
        present = {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}
        further = 0 if self.config.critic else len(self.config.tokens(sizes.vocabulary).names)
        if present != shapes(sizes, self.config.rank, self.config.critic, further):
            raise UserError(f"{path} does not fit the base: its tensors have other names or shapes")

    def merge(self, base: Mapping[str, Tensor]) -> LazyTensors:
        """A base's tensors with the adapter added; the output map is always there.

        Rows of the further tokens follow those of the base's.
        """
        return LazyTensors([*base, "output.weight"], lambda name: self._merged(base, name))

    def _merged(self, base: Mapping[str, Tensor], name: str) -> Tensor:
        if name in ("token_embd.weight", "output.weight"):
            table = base[name if name in base else "token_embd.weight"].clone()
            special = self.tensors["special_in" if name == "token_embd.weight" else "special_out"]
            table[: len(special)] += special
            further = name == "token_embd.weight" and "further_in" in self.tensors
            return torch.cat([table, self.tensors["further_in"]]) if further else table
        weight = base[name]
        parts = name.split(".")
        if len(parts) == 4 and parts[2] in LINEARS:
            key = f"blocks.{parts[1]}.linears.{parts[2]}"
            weight = weight + self.config.scale * (self.tensors[f"{key}.b"] @ self.tensors[f"{key}.a"])
        return weight

    def less(self, narrator: Adapter) -> Adapter:
        """A critic of the base alone as what it adds to a narrator: b a - b' a', of both ranks together."""
        tensors, share = dict(self.tensors), narrator.config.scale / self.config.scale
        for name in (name for name in self.tensors if name.endswith(".a")):
            other = name.removesuffix("a") + "b"
            tensors[name] = torch.cat([self.tensors[name], narrator.tensors[name]])
            tensors[other] = torch.cat([self.tensors[other], -share * narrator.tensors[other]], 1)
        tensors["special_in"] = self.tensors["special_in"] - narrator.tensors["special_in"]
        return Adapter(replace(self.config, rank=self.config.rank + narrator.config.rank), tensors)


def shapes(sizes: Sizes, rank: int, critic: bool = False, further: int = 0) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of an adapter for such a network."""
    keys = sizes.width // sizes.heads * sizes.key_heads
    outputs = {"attn_k": keys, "attn_v": keys, "ffn_gate": sizes.inner, "ffn_up": sizes.inner}
    expected: dict[str, tuple[int, ...]] = dict.fromkeys(["special_in", "special_out"], (SPECIALS, sizes.width))
    for layer in range(sizes.layers):
        for name in LINEARS:
            inputs, out = sizes.inner if name == "ffn_down" else sizes.width, outputs.get(name, sizes.width)
            key = f"blocks.{layer}.linears.{name}"
            expected |= {f"{key}.a": (rank, inputs), f"{key}.b": (out, rank)}
    if further:
        expected["further_in"] = (further, sizes.width)
    if critic:
        expected |= {"critic.weight": (1, sizes.width), "critic.bias": (1,)}
    return expected

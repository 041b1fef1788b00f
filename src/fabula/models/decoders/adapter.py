"""The narrator's adapter: what training adds to its base.

    W + scale * b a   for every linear map,   e_t + special_in_t,  u_t + special_out_t   for the special tokens t
    further_in_t   for the tokens that the base does not have (`rows.TagTokens`)

or W + d where the maps were learnt whole (rank 0). `models/io/pretrained.py` reads and writes its folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fabula.corpus.states import Factor, StateSpace
from fabula.errors import UserError
from fabula.models.decoders.rows import SPECIALS, TagTokens
from fabula.models.decoders.transformer import LINEARS, Sizes
from fabula.models.defaults import SAMPLING

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class AdapterConfig:
    """What an adapter was trained for."""

    base_sha256: str
    """Of the one GGUF file that it fits."""
    rank: int
    """Of b a; 0: the maps were learnt whole, and d, as large as W, is added to each."""
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
    format: int = FORMAT
    sampling: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By sampler: settings that suit this model better than the sampler's defaults."""

    def __post_init__(self) -> None:
        if not self.sampling and not self.critic:
            object.__setattr__(self, "sampling", SAMPLING)
        if self.format != FORMAT:
            raise ValueError(f"format {self.format} is not known")
        if self.rank < 0 or not self.labels or self.specials != SPECIALS:
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

    def merge(self, tensors: Mapping[str, Tensor]) -> Merged:
        return Merged(tensors, self)


class Merged(Mapping[str, Tensor]):
    """A base's tensors with the adapter added, each one made when it is asked for."""

    def __init__(self, base: Mapping[str, Tensor], adapter: Adapter) -> None:
        self.base, self.adapter = base, adapter

    def __getitem__(self, name: str) -> Tensor:
        added = self.adapter.tensors
        if name.startswith(("special_", "critic.", "further_")):
            return added[name]
        weight = self.base[name]
        parts = name.split(".")
        if len(parts) == 4 and parts[2] in LINEARS:
            key = f"blocks.{parts[1]}.linears.{parts[2]}"
            if self.adapter.config.rank:
                weight = weight + self.adapter.config.scale * (added[f"{key}.b"] @ added[f"{key}.a"])
            else:
                weight = weight + added[f"{key}.d"]
        return weight

    def __iter__(self) -> Iterator[str]:
        return iter([*self.base, *(name for name in self.adapter.tensors if not name.startswith("blocks."))])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def shapes(sizes: Sizes, rank: int, critic: bool = False, further: int = 0) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of an adapter for such a network."""
    keys = sizes.width // sizes.heads * sizes.key_heads
    outputs = {"attn_k": keys, "attn_v": keys, "ffn_gate": sizes.inner, "ffn_up": sizes.inner}
    expected: dict[str, tuple[int, ...]] = dict.fromkeys(["special_in", "special_out"], (SPECIALS, sizes.width))
    for layer in range(sizes.layers):
        for name in LINEARS:
            inputs, out = sizes.inner if name == "ffn_down" else sizes.width, outputs.get(name, sizes.width)
            key = f"blocks.{layer}.linears.{name}"
            expected |= {f"{key}.a": (rank, inputs), f"{key}.b": (out, rank)} if rank else {f"{key}.d": (out, inputs)}
    if further:
        expected["further_in"] = (further, sizes.width)
    if critic:
        expected |= {"critic.weight": (1, sizes.width), "critic.bias": (1,)}
    return expected

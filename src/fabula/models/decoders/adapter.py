"""The narrator's adapter: what training adds to its base, and the file that it is kept in.

    W + scale * b a   for every linear map,   e_t + special_in_t,  u_t + special_out_t   for the special tokens t
    further_in_t   for the tokens that the base does not have (`rows.TagTokens`)

or W + d where the maps were learnt whole (rank 0). A folder holds config.json, and adapter.safetensors with a and b, or
d, as 8-bit numbers, one scale per row.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fabula.corpus.states import Factor, StateSpace
from fabula.errors import UserError
from fabula.models.decoders.quantised import quantise
from fabula.models.decoders.rows import SPECIALS, TagTokens
from fabula.models.decoders.transformer import LINEARS, Sizes

CONFIG, WEIGHTS = "config.json", "adapter.safetensors"
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
    layers: int = 0
    """Layers of the base that are used, from the first; 0: all."""
    critic: bool = False
    """Whether a critic's output map stands beside the adapter."""
    format: int = FORMAT

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"format {self.format} is not known")
        if self.rank < 0 or not self.labels or self.specials != SPECIALS or self.layers < 0:
            raise ValueError("rank, labels, layers or specials are out of range")
        if self.factors and self.factors[0].labels != self.labels:
            raise ValueError("the first factor has other labels")

    @property
    def states(self) -> StateSpace:
        return StateSpace(self.factors) if self.factors else StateSpace.single(self.tagger, self.labels)

    def tokens(self, vocabulary: int) -> TagTokens:
        """Of tags, for a base of so many tokens."""
        return TagTokens(self.states, vocabulary)

    def sizes(self, base: Sizes) -> Sizes:
        """Of the network: the base's, or as many of its layers as are used."""
        return base._replace(layers=min(self.layers or base.layers, base.layers))


@dataclass(frozen=True)
class Adapter:
    """An adapter in memory: float32 tensors by the names of `Transformer.named_parameters()`."""

    config: AdapterConfig
    tensors: Mapping[str, Tensor]

    def check(self, sizes: Sizes, path: Path | str = "the adapter") -> None:
        """That every tensor is there and fits the base's shape."""
        found = {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}
        further = 0 if self.config.critic else len(self.config.tokens(sizes.vocabulary).names)
        if found != shapes(self.config.sizes(sizes), self.config.rank, self.config.critic, further):
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
    found: dict[str, tuple[int, ...]] = {"special_in": (SPECIALS, sizes.width), "special_out": (SPECIALS, sizes.width)}
    for layer in range(sizes.layers):
        for name in LINEARS:
            inputs, out = sizes.inner if name == "ffn_down" else sizes.width, outputs.get(name, sizes.width)
            key = f"blocks.{layer}.linears.{name}"
            found |= {f"{key}.a": (rank, inputs), f"{key}.b": (out, rank)} if rank else {f"{key}.d": (out, inputs)}
    if further:
        found["further_in"] = (further, sizes.width)
    if critic:
        found |= {"critic.weight": (1, sizes.width), "critic.bias": (1,)}
    return found


def save_adapter(adapter: Adapter, folder: Path) -> None:
    """Into a folder, the weights first: a folder with a config is complete."""
    stored: dict[str, Tensor] = {}
    for name, tensor in adapter.tensors.items():
        if not name.startswith("blocks."):
            stored[name] = tensor.half().contiguous()
        else:
            levels, scale = quantise(tensor.float())
            stored[name], stored[f"{name}.scale"] = levels.contiguous(), scale.half()
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / WEIGHTS, lambda path: save_file(stored, path))
    content = json.dumps(dataclasses.asdict(adapter.config), indent=1, ensure_ascii=False) + "\n"
    _replace(folder / CONFIG, lambda path: path.write_text(content, encoding="utf-8"))


def read_config(folder: Path) -> AdapterConfig:
    content: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    factors = StateSpace.from_record(content["factors"]).factors if content.get("factors") else ()
    return AdapterConfig(**{**content, "labels": tuple(content["labels"]), "factors": factors})


def load_adapter(folder: Path) -> Adapter:
    """An adapter from its folder; what is wrong with it is said in one line."""
    try:
        config = read_config(folder)
        stored = load_file(folder / WEIGHTS)
    except OSError as error:
        raise UserError(f"{folder} holds no adapter: {error.strerror}: {Path(str(error.filename)).name}") from error
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder} holds no adapter that Fabula reads: {error}") from error
    tensors = {}
    for name, tensor in stored.items():
        if name.endswith(".scale"):
            continue
        scale = stored.get(f"{name}.scale")
        tensors[name] = tensor.float() if scale is None else tensor.float() * scale.float()[:, None]
    return Adapter(config, tensors)


def _replace(path: Path, write: Any) -> None:
    """A file appears whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        write(temporary)
        temporary.chmod(0o644)  # safetensors writes for the owner only
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)

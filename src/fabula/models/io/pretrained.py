"""A model that adapts the pretrained base: its folder, and the network that base and adapter make together.

FOLDER/config.json, adapter.safetensors     what training adds to the base (decoders/adapter.py)
FOLDER/critic/                              the same of the critic, where there is one, with critic.json
FOLDER/stories.json                         name, people, common words, p(S_1), p(S_i | S_{i-1}), those of further
                                            factors, figures

On a CPU the network's 8-bit weights are made once and stored in the user's cache.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save, save_file
from torch import Tensor

from fabula.corpus.people import People
from fabula.corpus.states import StateSpace
from fabula.corpus.taggers.protocol import named, tagger_of
from fabula.corpus.vocabulary import SPECIALS, Vocabulary
from fabula.errors import UserError
from fabula.models.critic import WINDOW, Critic
from fabula.models.decoders import quantised
from fabula.models.decoders.adapter import Adapter, AdapterConfig
from fabula.models.decoders.base import cache_folder, check_base, find_base, sha256
from fabula.models.decoders.fuse import fuse
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.decoders.network import Network
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Sizes
from fabula.models.defaults import with_critic
from fabula.models.io.checkpoint import CONFIG, DAMAGED, Checkpoint, Description, write_config
from fabula.models.io.tensors import SCALE, unpack, write_file
from fabula.models.narrator import NarratorModel
from fabula.models.scaffold import Scaffold

WEIGHTS, FACTS, CRITIC, ABOUT_CRITIC = "adapter.safetensors", "stories.json", "critic", "critic.json"
KIND = "narrator"
LAYOUT = 1
"""Of the cached weights; to be raised when `fuse` makes other ones."""


def adapts_base(folder: Path) -> bool:
    """Whether a folder holds an adapter, and not a checkpoint with all of its weights."""
    return (folder / WEIGHTS).is_file()


def save_adapter(adapter: Adapter, folder: Path) -> None:
    """Into a folder, the weights first: a folder with a config is complete."""
    stored: dict[str, Tensor] = {}
    for name, tensor in adapter.tensors.items():
        if not name.startswith("blocks."):
            stored[name] = tensor.half().contiguous()
        else:
            levels, scale = quantised.quantise(tensor.float())
            stored[name], stored[name + SCALE] = levels.contiguous(), scale.half()
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / WEIGHTS, save(stored))
    config = dataclasses.asdict(adapter.config)
    write_config(folder, config if config["sampling"] else {k: v for k, v in config.items() if k != "sampling"})


def read_adapter_config(folder: Path) -> AdapterConfig:
    content: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if content.pop("layers", 0):
        raise ValueError("it uses some layers of the base only, which Fabula no longer does")
    factors = StateSpace.from_record(content["factors"]).factors if content.get("factors") else ()
    return AdapterConfig(**{**content, "labels": tuple(content["labels"]), "factors": factors})


def load_adapter(folder: Path) -> Adapter:
    try:
        return Adapter(read_adapter_config(folder), unpack(load_file(folder / WEIGHTS)))
    except OSError as error:
        raise UserError(f"{folder} holds no adapter: {error.strerror}: {Path(str(error.filename)).name}") from error
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder} holds no adapter that Fabula reads: {error}") from error


def load_decoder(folder: Path, device: str = "cpu", base: Path | None = None) -> NarratorDecoder:
    """The decoder of an adapter's folder."""
    network, tokenizer = load_network(folder, device, base)
    return NarratorDecoder(network, tokenizer, read_adapter_config(folder).tokens(network.sizes.vocabulary))


def load_critic(folder: Path, device: str = "cpu", base: Path | None = None) -> Critic:
    try:
        about = json.loads((folder / ABOUT_CRITIC).read_text(encoding="utf-8"))
        recipe, people = about["recipe"], tuple(float(b) for b in about["people"])
        if len(people) != WINDOW:
            raise ValueError("people")
        ending, density = float(recipe["ending"]), float(recipe["density"])
    except (OSError, *DAMAGED) as error:
        raise UserError(f"{folder} is not a critic's folder, or damaged: {ABOUT_CRITIC}") from error
    return Critic(*load_network(folder, device, base), ending, density, people)


class Facts(NamedTuple):
    """config.json and stories.json, read together."""

    config: AdapterConfig
    stories: Mapping[str, Any]


def read_facts(folder: Path) -> Facts:
    try:
        stories = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        return Facts(read_adapter_config(folder), stories)
    except OSError as error:
        raise UserError(f"{folder} is not a narrator's folder: {error.strerror}: {FACTS}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / FACTS} is damaged: {error}") from error


def describe_pretrained(folder: Path) -> Description:
    config, stories = read_facts(folder)
    try:
        return Description(
            name=stories["name"], kind=KIND, factors=config.states.factors, figures=stories["figures"], words=None,
            base=True, sampling=with_critic(config.sampling, adapts_base(folder / CRITIC)),
        )  # fmt: skip
    except KeyError as error:
        raise UserError(str(error)) from error


def load_pretrained(folder: Path, device: str) -> Checkpoint:
    """The model of an adapter's folder, with its critic, which is loaded when somebody asks for it."""
    config, stories = read_facts(folder)
    decoder = load_decoder(folder, device)
    tagger = named(config.tagger)
    try:
        reader = tagger_of(tagger, config.states.labels)
    except UserError:  # a plugin that is not installed: arcs are then left to the mood tokens
        reader = None
    critic = (lambda: load_critic(folder / CRITIC, device)) if adapts_base(folder / CRITIC) else None
    try:
        decoder.tokenizer.common = tuple(stories["common"])
        model = NarratorModel(decoder, scaffold_of([stories, *stories.get("further", ())]), critic, reader)
        model.sampling_defaults = with_critic(config.sampling, critic is not None)
        return Checkpoint(
            model=model.to(device).eval(),
            vocabulary=Vocabulary(SPECIALS),
            labels=config.states.labels,
            recipe={"name": str(stories["name"]), "model": {"kind": KIND}},
            tagger=tagger,
            corpus_hash=str(stories["corpus_hash"]),
            figures=dict(stories["figures"]),
            people=People(**{pronoun: tuple(names) for pronoun, names in stories["people"].items()}),
            factors=config.states.factors,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / FACTS} is damaged: {type(error).__name__}: {error}") from error


def scaffold_of(chains: Sequence[Mapping[str, Any]]) -> Scaffold:
    """p(S) of independent factors: the product of their chains, states in `StateSpace`'s order."""
    p_initial, p_next = torch.ones(1), torch.ones(1, 1)
    for chain in chains:
        p_initial = torch.kron(p_initial, torch.tensor(chain["p_initial"]))
        p_next = torch.kron(p_next, torch.tensor(chain["p_next"]))
    return Scaffold(p_initial, p_next)


class Base(NamedTuple):
    """What the adapters of one base share."""

    sha256: str
    sizes: Sizes
    tensors: Mapping[str, Tensor]
    tokenizer: SubwordTokenizer


def read_base(path: Path) -> Base:
    """The base's file, read once for all that are loaded from it: a narrator and its critic have the same."""
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    return _read_base(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1)
def _read_base(path: Path, size: int, changed: int) -> Base:
    with ThreadPoolExecutor(1) as pool:  # hashing needs no GIL
        digest = pool.submit(sha256, path)
        file = read_gguf(path)
        tokenizer = SubwordTokenizer.from_metadata(file.metadata)
        return Base(digest.result(), Sizes.of(file.metadata), file.tensors, tokenizer)


def load_network(folder: Path, device: str = "cpu", base: Path | None = None) -> tuple[Network, SubwordTokenizer]:
    """The network of an adapter's folder, merged with its base: 8-bit on a CPU, bfloat16 on a GPU."""
    adapter = load_adapter(folder)
    path = base or find_base()
    pretrained = read_base(path)
    check_base(path, adapter.config.base_sha256, pretrained.sha256)
    with ThreadPoolExecutor(1) as pool:  # packing needs no GIL
        network = pool.submit(_network, adapter, pretrained, folder, torch.device(device))
        tokenizer = SubwordTokenizer(pretrained.tokenizer.inner)  # with common words of its own
        tokenizer.starts_word  # noqa: B018 (computed now, while the other thread packs)
        return network.result(), tokenizer


def _network(adapter: Adapter, base: Base, folder: Path, device: torch.device) -> Network:
    adapter.check(base.sizes, folder)
    sizes = base.sizes
    if device.type == "cpu" and quantised.available():
        key = f"{base.sha256[:16]}-{sha256(folder / WEIGHTS)[:16]}-{adapter.config.scale:g}"
        weights = _eight_bit(adapter, base, sizes, key)
    else:
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        fused = fuse(adapter.merge(base.tensors), sizes, eight_bit=False, dtype=dtype)
        weights = {name: weight.to(device) for name, weight in fused}
    return Network(sizes, weights)


def _eight_bit(adapter: Adapter, base: Base, sizes: Sizes, key: str) -> dict[str, Tensor]:
    """Weights from the cache, else made and stored there; where there is no room a note says so."""
    cached = cache_folder() / f"narrator-{LAYOUT}-{key}.safetensors"
    try:
        weights = load_file(cached)
        # What is not packed has memory of its own, so that nothing keeps the file mapped. A critic's head is so small.
        loose = ["embedding", "embedding.scale", *(() if "head.scale" in weights else ("head", "head.bias"))]
        return weights | {name: weights[name].clone() for name in loose}
    except (OSError, SafetensorError, KeyError):  # not there, or damaged: made anew
        pass
    weights = dict(fuse(adapter.merge(base.tensors), sizes, eight_bit=True))
    temporary: Path | None = None
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cached.parent, prefix=cached.stem, suffix=".tmp", delete=False) as file:
            temporary = Path(file.name)
        save_file(weights, temporary)
        temporary.replace(cached)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        note = f"fabula: no room for the narrator's weights in {cached.parent} ({reason}): each start makes them anew"
        print(note, file=sys.stderr)
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return weights

"""A model that adapts a pretrained base: its folder, and the network that base and adapter make together.

FOLDER/config.json, adapter.safetensors     what training adds to the base (decoders/adapter.py)
FOLDER/critic/                              the same of the critic, where there is one, with critic.json
FOLDER/stories.json                         name, people, common words, p(S_1), p(S_i | S_{i-1}), those of further
                                            factors, figures

On a CPU the network's 8-bit weights are made once and stored in the user's cache.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
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
from fabula.models.decoders.bases import Base, cache_folder, check_base, need_base, read_base, sha256
from fabula.models.decoders.fuse import fuse, fuse_critic
from fabula.models.decoders.gguf import LazyTensors
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.decoders.network import Network
from fabula.models.defaults import with_critic
from fabula.models.io.checkpoint import CONFIG, DAMAGED, Checkpoint, Description, write_config
from fabula.models.io.tensors import SCALE, unpack, write_file
from fabula.models.narrator import NarratorModel
from fabula.statespace.markov import MarkovChain

WEIGHTS, FACTS, CRITIC, ABOUT_CRITIC = "adapter.safetensors", "stories.json", "critic", "critic.json"
KIND, TURNED = "narrator", ".T"
LAYOUT = 2
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
        else:  # b with its ranks as rows, so that there are few scales
            key, rows = (name + TURNED, tensor.T) if name.endswith(".b") else (name, tensor)
            levels, scale = quantised.quantise(rows.float())
            stored[key], stored[key + SCALE] = levels.contiguous(), scale.half()
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
        tensors = unpack(load_file(folder / WEIGHTS))
        names = [name.removesuffix(TURNED) for name in tensors]
        turned = LazyTensors(names, lambda n: tensors[n + TURNED].T if n + TURNED in tensors else tensors[n])
        return Adapter(read_adapter_config(folder), turned)
    except OSError as error:
        raise UserError(f"{folder} holds no adapter: {error.strerror}: {Path(str(error.filename)).name}") from error
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder} holds no adapter that Fabula reads: {error}") from error


def load_decoder(folder: Path, device: str = "cpu", base: Path | None = None) -> NarratorDecoder:
    """The decoder of an adapter's folder."""
    adapter = load_adapter(folder)
    path = base or need_base(adapter.config.base_sha256)
    pretrained = read_base(path)
    check_base(path, adapter.config.base_sha256, pretrained.sha256)
    with ThreadPoolExecutor(1) as pool:  # packing needs no GIL
        network = pool.submit(_network, adapter, pretrained, folder, torch.device(device))
        tokenizer = copy.copy(pretrained.tokenizer)  # with common words of its own
        tokenizer.starts_word  # noqa: B018 (computed now, while the other thread packs)
        return NarratorDecoder(network.result(), tokenizer, adapter.config.tokens(pretrained.sizes.vocabulary))


def load_critic(folder: Path, narrator: Path, decoder: NarratorDecoder, base: Path | None = None) -> Critic:
    """The critic of a folder, which adds to the narrator in the folder `narrator`, loaded as `decoder`."""
    try:
        about = json.loads((folder / ABOUT_CRITIC).read_text(encoding="utf-8"))
        ending, people = float(about["recipe"]["ending"]), tuple(float(b) for b in about["people"])
        if len(people) != WINDOW:
            raise ValueError("people")
    except (OSError, *DAMAGED) as error:
        raise UserError(f"{folder} is not a critic's folder, or damaged: {ABOUT_CRITIC}") from error
    adapter, network, rank = load_adapter(folder), decoder.network, 0
    digests = (adapter.config.base_sha256, sha256(folder / WEIGHTS), sha256(narrator / WEIGHTS))
    if not adapter.config.narrator_sha256:
        rank = read_adapter_config(narrator).rank
    elif adapter.config.narrator_sha256 != digests[-1]:
        raise UserError(f"{folder} is the critic of another narrator than {narrator}: train it again")

    def fused(eight_bit: bool) -> dict[str, Tensor]:
        adapter.check(network.sizes, folder)
        tensors = read_base(base or need_base(adapter.config.base_sha256)).tensors
        critic = adapter.less(load_adapter(narrator)) if rank else adapter
        return fuse_critic(critic, tensors, network.sizes, eight_bit=eight_bit, dtype=network.dtype)

    if network.scale is None:
        weights: Mapping[str, Tensor] = {name: weight.to(network.device) for name, weight in fused(False).items()}
    else:
        key = f"{'-'.join(digest[:16] for digest in digests)}-{adapter.config.rank + rank}"
        weights = _cached(key, partial(fused, True))
    return Critic(network.with_critic(weights), decoder.tokenizer, ending, people)


def read_facts(folder: Path) -> tuple[AdapterConfig, Mapping[str, Any]]:
    """What config.json and stories.json say."""
    try:
        stories = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        return read_adapter_config(folder), stories
    except OSError as error:
        raise UserError(f"{folder} is not a narrator's folder: {error.strerror}: {FACTS}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / FACTS} is damaged: {error}") from error


def describe_pretrained(folder: Path) -> Description:
    config, stories = read_facts(folder)
    try:
        return Description(
            name=stories["name"], kind=KIND, factors=config.states.factors, figures=stories["figures"], words=None,
            base=config.base_sha256, sampling=with_critic(config.sampling, adapts_base(folder / CRITIC)),
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
    critic = load_critic(folder / CRITIC, folder, decoder) if adapts_base(folder / CRITIC) else None
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


def scaffold_of(chains: Sequence[Mapping[str, Any]]) -> MarkovChain:
    """p(S) of independent factors: the product of their chains, states in `StateSpace`'s order."""
    p_initial, p_next = torch.ones(1), torch.ones(1, 1)
    for chain in chains:
        p_initial = torch.kron(p_initial, torch.tensor(chain["p_initial"]))
        p_next = torch.kron(p_next, torch.tensor(chain["p_next"]))
    return MarkovChain(p_initial, p_next)


def _network(adapter: Adapter, base: Base, folder: Path, device: torch.device) -> Network:
    def fused(eight_bit: bool, dtype: torch.dtype = torch.float32) -> Iterator[tuple[str, Tensor]]:
        adapter.check(base.sizes, folder)
        return fuse(adapter.merge(base.tensors), base.sizes, eight_bit=eight_bit, dtype=dtype)

    if device.type == "cpu" and quantised.available():
        key = f"{base.sha256[:16]}-{sha256(folder / WEIGHTS)[:16]}-{adapter.config.scale:g}"
        return Network(base.sizes, _cached(key, lambda: dict(fused(True)), _lazy))
    weights = fused(False, torch.bfloat16 if device.type == "cuda" else torch.float32)
    return Network(base.sizes, {name: weight.to(device) for name, weight in weights})


def _lazy(file: Path) -> LazyTensors:
    """The tensors of a file; each maps the file anew, so that its memory is free again when it is no longer used."""

    def read(name: str) -> Tensor:
        with safe_open(file, "pt") as opened:
            tensor: Tensor = opened.get_tensor(name)
            return tensor

    with safe_open(file, "pt") as opened:
        return LazyTensors(opened.keys(), read)


def _cached(
    key: str, make: Callable[[], dict[str, Tensor]], load: Callable[[Path], Mapping[str, Tensor]] = load_file
) -> Mapping[str, Tensor]:
    """Weights from the cache, else made and stored there; where there is no room a note says so."""
    file = cache_folder() / f"narrator-{LAYOUT}-{key}.safetensors"
    try:
        return load(file)
    except (OSError, SafetensorError):  # not there, or damaged: made anew
        pass
    weights = make()
    temporary: Path | None = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=file.stem, suffix=".tmp", delete=False) as stream:
            temporary = Path(stream.name)
        save_file(weights, temporary)
        temporary.replace(file)
        return load(file)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        note = f"fabula: no room for the narrator's weights in {file.parent} ({reason}): each start makes them anew"
        print(note, file=sys.stderr)
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return weights

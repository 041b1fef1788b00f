"""From an adapter's folder to a narrator: on a CPU its 8-bit weights are made once and kept in the user's cache."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fabula.errors import UserError
from fabula.models.decoders import quantised
from fabula.models.decoders.adapter import WEIGHTS, Adapter, load_adapter, read_config
from fabula.models.decoders.base import cache_folder, check_base, find_base, sha256
from fabula.models.decoders.fuse import fuse
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.decoders.network import Network
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Sizes

LAYOUT = 1
"""Of the kept weights; to be raised when `fuse` makes other ones."""


def load_narrator(folder: Path, device: str = "cpu", base: Path | None = None) -> NarratorDecoder:
    """The decoder of an adapter's folder."""
    network, tokenizer = load_network(folder, device, base)
    return NarratorDecoder(network, tokenizer, read_config(folder).tokens(network.sizes.vocabulary))


class Base(NamedTuple):
    """What the adapters of one base share."""

    sha256: str
    sizes: Sizes
    tensors: Mapping[str, Tensor]
    tokenizer: SubwordTokenizer


def read_base(path: Path) -> Base:
    """The base's file, read once for all that are loaded from it: a narrator and its critic have the same."""
    try:
        found = path.stat()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    return _read_base(path, found.st_size, found.st_mtime_ns)


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
    read = read_base(path)
    check_base(path, adapter.config.base_sha256, read.sha256)
    with ThreadPoolExecutor(1) as pool:  # packing needs no GIL
        making = pool.submit(_network, adapter, read, folder, torch.device(device))
        tokenizer = SubwordTokenizer(read.tokenizer.inner)  # with common words of its own
        tokenizer.starts_word  # noqa: B018 (worked out now, while there is time)
        return making.result(), tokenizer


def _network(adapter: Adapter, base: Base, folder: Path, device: torch.device) -> Network:
    adapter.check(base.sizes, folder)
    sizes = adapter.config.sizes(base.sizes)
    if device.type == "cpu" and quantised.available():
        key = f"{base.sha256[:16]}-{sha256(folder / WEIGHTS)[:16]}-{adapter.config.scale:g}"
        weights = _eight_bit(adapter, base, sizes, key)
    else:
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        made = fuse(adapter.merge(base.tensors), sizes, eight_bit=False, dtype=dtype)
        weights = {name: weight.to(device) for name, weight in made}
    return Network(sizes, weights)


def _eight_bit(adapter: Adapter, base: Base, sizes: Sizes, key: str) -> dict[str, Tensor]:
    """From the cache, else made and kept there; without room for them, one note, and they are made anew each time."""
    kept = cache_folder() / f"narrator-{LAYOUT}-{key}.safetensors"
    try:
        weights = load_file(kept)
        # What is not packed has memory of its own, so that nothing keeps the file mapped. A critic's head is so small.
        loose = ["embedding", "embedding.scale", *(() if "head.scale" in weights else ("head", "head.bias"))]
        return weights | {name: weights[name].clone() for name in loose}
    except (OSError, SafetensorError, KeyError):  # not there, or damaged: made anew
        pass
    weights = dict(fuse(adapter.merge(base.tensors), sizes, eight_bit=True))
    temporary: Path | None = None
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, prefix=kept.stem, suffix=".tmp", delete=False) as made:
            temporary = Path(made.name)
        save_file(weights, temporary)
        temporary.replace(kept)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        note = f"fabula: no room for the narrator's weights in {kept.parent} ({reason}): each start makes them anew"
        print(note, file=sys.stderr)
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return weights

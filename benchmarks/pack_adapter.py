"""A trained adapter as it is shipped: 8 bits, with its config.

    python benchmarks/pack_adapter.py OUT/adapter.safetensors FOLDER

`OUT` is what `benchmarks/narrator_cpu.py` wrote.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from safetensors.torch import load_file

from fabula.corpus.sentiment import VaderTagger
from fabula.models.decoders.adapter import WEIGHTS, Adapter, AdapterConfig, save_adapter
from fabula.models.decoders.base import SHA256, find_base
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.transformer import Sizes

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--scale", type=float, default=2.0)
    parser.add_argument("--tagger", default="vader")
    options = parser.parse_args()
    config = AdapterConfig(
        base_sha256=SHA256,
        rank=options.rank,
        scale=options.scale,
        labels=tuple(VaderTagger().labels),
        tagger=options.tagger,
    )
    adapter = Adapter(config, load_file(options.weights))
    adapter.check(Sizes.of(read_gguf(find_base()).metadata), options.weights)
    save_adapter(adapter, options.folder)
    print(f"{options.folder}: {(options.folder / WEIGHTS).stat().st_size / 2**20:.1f} MiB")

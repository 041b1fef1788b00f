"""A trained adapter as it is shipped: 8 bits, with its config.

    python benchmarks/pack_adapter.py OUT/adapter.safetensors FOLDER --corpus-of CHECKPOINT

`OUT` is what `benchmarks/narrator_cpu.py` wrote. Names, common words and p(S) are those of a checkpoint trained
on the same corpus.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from safetensors.torch import load_file

from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.models.decoders.adapter import WEIGHTS, Adapter, AdapterConfig, save_adapter
from fabula.models.decoders.base import SHA256, find_base
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.transformer import Sizes
from fabula.models.decoders.words import WordTokenizer
from fabula.training.adapters import FACTS
from fabula.training.checkpoint import load

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--corpus-of", type=Path, required=True)
    parser.add_argument("--name", default="narrator")
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
    other = load(options.corpus_of)
    assert other.model.latent is not None
    scaffold = other.model.latent.scaffold
    content = {
        "name": options.name,
        "corpus_hash": other.corpus_hash,
        "figures": {},
        "p_initial": [round(p, 6) for p in scaffold.initial().exp().tolist()],
        "p_next": [[round(p, 6) for p in row] for row in scaffold.transition().exp().tolist()],
        "people": {"he": other.people.he, "she": other.people.she},
        "common": WordTokenizer(other.vocabulary).common,
    }
    (options.folder / FACTS).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{options.folder}: {(options.folder / WEIGHTS).stat().st_size / 2**20:.1f} MiB")

"""Which linear maps the narrator should run with on a CPU: time of a step by batch size, and nats of stories.

    FABULA_DATA=... python benchmarks/narrator_kernels.py FOLDER --stories 30 --threads 1

FOLDER holds an adapter. Times of all kernels are taken in turn, the least of several rounds, so that a busy machine
slows all alike; the nats are of the first validation stories, plain telling, S free.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from fabula.models.decoders.adapter import load_adapter
from fabula.models.decoders.base import find_base
from fabula.models.decoders.fuse import FUSED, fuse
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.network import Layer, Network, Packed
from fabula.models.decoders.quantised import Quantised, quantise
from fabula.models.decoders.rows import FREE, Row, collate, row
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Sizes

Map = Callable[[Tensor], Tensor]


def half(weight: Tensor) -> Map:
    packed = torch.ops.quantized.linear_prepack_fp16(weight, None)
    return lambda x: torch.ops.quantized.linear_dynamic_fp16(x, packed)


def per_batch(weight: Tensor) -> Map:
    packed = Quantised(*quantise(weight)).packed
    return lambda x: torch.ops.quantized.linear_dynamic(x, packed, True)


def weight_only(weight: Tensor) -> Map:
    levels, scale = quantise(weight)
    return lambda x: torch._weight_int8pack_mm(x, levels, scale)


def per_row(weight: Tensor) -> Map:
    return Quantised(*quantise(weight))


def with_maps(sizes: Sizes, weights: dict[str, Tensor], kernel: Callable[[Tensor], Map]) -> Network:
    network = Network(sizes, weights)
    network.head = kernel(weights["head"])  # type: ignore[assignment]
    network.layers = [Layer(*(kernel(weights[f"{i}.{name}"]) for name in FUSED)) for i in range(sizes.layers)]  # type: ignore[arg-type]
    return network


def step(network: Network, batch: int, places: int = 60) -> float:
    """Seconds of one step of `batch` rows that remember so many tokens."""
    cache = network.cache(batch)
    cache.make_room(places + 1)
    row = torch.arange(batch)
    new = Packed(torch.full((batch,), 500), row, torch.zeros_like(row), torch.full((batch,), places))
    begun = time.perf_counter()
    network.logits(network.read(cache, new))
    return time.perf_counter() - begun


def nats(network: Network, rows: list[Row]) -> Tensor:
    found = []
    for one in rows:
        ids, counted = collate([one])
        new = Packed.of(ids, torch.ones_like(counted), torch.zeros(1, dtype=torch.int64))
        cache = network.cache(1)
        cache.make_room(ids.shape[1])
        features = network.read(cache, new)[:-1][counted[0, 1:]]
        found.append(F.cross_entropy(network.logits(features), ids[0, 1:][counted[0, 1:]], reduction="sum"))
    return torch.stack(found)


@torch.inference_mode()
def main(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    adapter, file = load_adapter(options.folder), read_gguf(find_base())
    sizes, encode = Sizes.of(file.metadata), SubwordTokenizer.from_metadata(file.metadata)
    merged = adapter.merge(file.tensors)
    plain = dict(fuse(merged, sizes, eight_bit=False))
    networks = {
        "float32": Network(sizes, plain),
        "fp16 weights (fbgemm)": with_maps(sizes, plain, half),
        "int8, a scale per batch (torch's dynamic)": with_maps(sizes, plain, per_batch),
        "int8, a scale per row": with_maps(sizes, plain, per_row),
        "int8, a scale per row, turned": Network(sizes, dict(fuse(merged, sizes, eight_bit=True))),
    }
    if options.weight_only:
        networks["int8 weights only (_weight_int8pack_mm)"] = with_maps(sizes, plain, weight_only)
    for batch in options.batches:
        rounds = [[step(network, batch) for network in networks.values()] for _ in range(options.rounds)]
        for name, times in zip(networks, zip(*rounds, strict=True), strict=True):
            print(f"batch {batch:3}  {1000 * min(times):7.0f} ms  {name}", flush=True)
    with open(Path(os.environ["FABULA_DATA"]) / "valid.csv", newline="", encoding="utf-8") as stories:
        texts = [line[2:7] for line in list(csv.reader(stories))[1 : options.stories + 1]]
    rows = [row([encode.encode(s) for s in story], [FREE] * len(story), None, range(len(story))) for story in texts]
    exact = None
    for name, network in networks.items():
        found = nats(network, rows)
        exact = found if exact is None else exact
        error = (found - exact).std() / len(found) ** 0.5
        loss = 100 * (found.sum() / exact.sum() - 1)
        print(f"{found.mean():8.2f} nats a story  {loss:+6.2f} %  (se {error:.2f} nats)  {name}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stories", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 16, 32])
    parser.add_argument("--weight-only", action="store_true", help="the slow one too")
    main(parser.parse_args())

"""How fast stories are filled in, and how the time grows with N, chains and stories.

    PYTHONPATH=src python benchmarks/infill_speed.py --device cpu --out benchmarks/records/infill_speed_cpu.json
    PYTHONPATH=src python benchmarks/infill_speed.py --device cuda --out benchmarks/records/infill_speed_cuda.json

Weights are random, because time does not depend on them; every written sentence is made to take exactly `--words` words
with its `<eos>` (11 is the corpus's mean), so that the work is known. Needs torch, numpy, safetensors, jaxtyping, tqdm;
with matplotlib it also draws the growth beside the JSON record.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fabula.corpus.vocabulary import EOS, SPECIALS, Vocabulary
from fabula.metrics.record import commit
from fabula.models.build import build
from fabula.models.decoders.words import WordTokenizer
from fabula.models.settings import DynamicsSettings, LanguageSettings, ModelSettings, RecognitionSettings
from fabula.models.slds import SLDS
from fabula.sampling.batch import InfillBatch, infill_batch
from fabula.sampling.driver import draw, fill_batch
from fabula.sampling.noise import seeded
from fabula.sampling.protocol import sampler_named
from fabula.sampling.rules import WordRules

TYPES = 15_603
SIZES = {
    "paper": ModelSettings(
        language=LanguageSettings(embedding=300, hidden=1024, tied=False, latent_to_output=False),
        dynamics=DynamicsSettings(latent=32),
        recognition=RecognitionSettings(encoder="story", hidden=1024),
    ),
    "ours": ModelSettings(language=LanguageSettings(layers=1), dynamics=DynamicsSettings(latent=64)),
}


def a_model(size: str, device: str) -> SLDS:
    torch.manual_seed(0)
    model = build(SIZES[size], TYPES, torch.full((3,), 1 / 3), torch.full((3, 3), 1 / 3))
    assert isinstance(model, SLDS)
    with torch.no_grad():
        model.language.output.bias[EOS] = -50.0  # no sentence ends before its limit
    return model.to(device).eval().requires_grad_(False)


def a_page(stories: int, N: int, words: int, device: str) -> InfillBatch:
    """Stories whose first and last sentence are given."""
    given = torch.arange(10, 10 + words - 1).tolist()
    return infill_batch([[given, *[None] * (N - 2), given]] * stories, device=device)


def timed(work: Callable[[], Any], repeats: int, device: str) -> tuple[float, float]:
    """Median seconds after one run that does not count, by the clock and of all threads' work.

    Where other programs share the cores the clock says how they were loaded; the work says what is ours.
    """
    clock, busy = [], []
    for number in range(repeats + 1):
        start, start_busy = time.perf_counter(), time.process_time()
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        if number:
            clock.append(time.perf_counter() - start)
            busy.append(time.process_time() - start_busy)
    return statistics.median(clock), statistics.median(busy)


class Bench:
    """One model on one device; every figure is a row of the table and an entry of the record."""

    def __init__(self, size: str, device: str, words: int, repeats: int, bf16: bool) -> None:
        self.size, self.device, self.words, self.repeats, self.bf16 = size, device, words, repeats, bf16
        self.model = a_model(size, device)
        self.rules = WordRules.of(
            WordTokenizer(Vocabulary((*SPECIALS, ".", *(f"w{i}" for i in range(TYPES - 5))))), device
        )
        self.rows: list[dict[str, Any]] = []

    def fill(
        self, label: str, stories: int = 1, N: int = 5, first: bool = False, memory_gib: float = 2.0, **chosen: Any
    ) -> float:
        rest = {name: value for name, value in chosen.items() if name != "sampler"}
        kind = sampler_named(chosen.get("sampler", "bridge")).settings
        settings = kind.plain(max_words=self.words, bf16=self.bf16, **rest)
        blanks = a_page(stories, N, self.words, self.device)

        def whole() -> None:
            generators = [seeded(n) for n in range(stories)]
            fill_batch(self.model, self.rules, blanks, settings, generators, memory_gib=memory_gib)

        def begun() -> None:
            with torch.inference_mode():
                next(iter(draw(self.model, self.rules, blanks, settings, [seeded(n) for n in range(stories)])))

        if self.device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
        seconds, busy = timed(begun if first else whole, self.repeats, self.device)
        row = {"label": label, "size": self.size, "stories": stories, "N": N, "seconds": round(seconds, 4), **chosen}
        row |= {"cpu_seconds": round(busy, 4), "load": round(os.getloadavg()[0], 2)}
        if self.device.startswith("cuda"):
            row["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        self.rows.append(row)
        memory = f"  {row['peak_gib']:5.1f} GiB" if "peak_gib" in row else ""
        print(f"{self.size:<6} {label:<58} {seconds:8.3f} s {busy:8.3f} s cpu{memory}", flush=True)
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (1)")
    parser.add_argument("--words", type=int, default=11, help="words of a written sentence with its <eos> (11)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", type=float, default=None, metavar="GIB", help="the sampler's memory setting")
    parser.add_argument("--bf16", action="store_true", help="CUDA: the decoder in bf16")
    parser.add_argument(
        "--growth", nargs="*", choices=list(SIZES), help="also time against N, chains and stories (of these sizes)"
    )
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--out", type=Path, default=None, metavar="FILE.json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    cuda = args.device.startswith("cuda")
    memory: dict[str, Any] = {"memory_gib": args.memory or (24.0 if cuda else 2.0)}
    rows: list[dict[str, Any]] = []
    for size in args.sizes:
        bench = Bench(size, args.device, args.words, args.repeats, args.bf16)
        bench.fill("one story, gibbs 17 chains x 3 (the last 16)", sampler="gibbs", samples=50, **memory)
        bench.fill("one story, gibbs 10 chains x 5", sampler="gibbs", samples=50, chains=10, **memory)
        bench.fill("one story, gibbs 25 chains x 2", sampler="gibbs", samples=50, chains=25, **memory)
        bench.fill("one story, gibbs 1 chain x 50", sampler="gibbs", samples=50, chains=1, **memory)
        bench.fill("one story, gibbs, first candidate", sampler="gibbs", samples=50, first=True, **memory)
        bench.fill("one story, bridge 50", sampler="bridge", samples=50, **memory)
        bench.fill("one story, bridge, first candidate", sampler="bridge", samples=50, first=True, **memory)
        if cuda:
            bench.fill(
                "500 stories, gibbs 10 chains x 5", stories=500, sampler="gibbs", samples=50, chains=10, **memory
            )
            bench.fill("500 stories, bridge 50", stories=500, sampler="bridge", samples=50, **memory)
        if args.growth is not None and size in (args.growth or SIZES):
            few: dict[str, Any] = {"samples": 20, **memory}
            ten: dict[str, Any] = {"sampler": "gibbs", "chains": 10, **few}
            for N in (5, 10, 20, 40, 64):
                bench.fill(f"N = {N}, bridge 20", N=N, sampler="bridge", **few)
                bench.fill(f"N = {N}, gibbs 10 x 2", N=N, **ten)
            for chains in (1, 4, 16, 64, 256):
                bench.fill(f"{chains} chains x 2", sampler="gibbs", samples=2 * chains, chains=chains, **memory)
            for stories in (1, 4, 16, 64):
                bench.fill(f"{stories} stories, gibbs 10 x 2", stories=stories, **ten)
        rows += bench.rows
    if args.out is not None:
        device = torch.cuda.get_device_name() if cuda else "cpu"
        record = {
            "commit": commit(), "torch": torch.__version__, "device": device, "threads": args.threads,
            "words": args.words, "repeats": args.repeats, "bf16": args.bf16, "rows": rows,
        }  # fmt: skip
        args.out.write_text(json.dumps(record, indent=1) + "\n")
        if args.growth is not None:
            picture(rows, args.out.with_suffix(".png"))


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """Seconds against N, chains and stories, on linear axes."""
    try:
        plt: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        print("matplotlib is not installed: no picture")
        return
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
    kinds = (
        ("N sentences", "N", "N ="),
        ("chains", "chains", "chains x 2"),
        ("stories", "stories", "stories, gibbs 10 x 2"),
    )
    for axis, (title, key, mark) in zip(axes, kinds, strict=True):
        for size in sorted({row["size"] for row in rows}):
            for sampler in ("bridge", "gibbs"):
                own = [r for r in rows if r["size"] == size and r["sampler"] == sampler and mark in r["label"]]
                if own:
                    axis.plot([r[key] for r in own], [r["seconds"] for r in own], "o-", label=f"{size}, {sampler}")
        axis.set_xlabel(title)
        axis.set_ylabel("seconds")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()

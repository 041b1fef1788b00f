"""Rows a second of `fill_many` on one device: 16 samples, three candidates, stories of the toy grammar.

    python benchmarks/fleet_gpu.py --device cuda --models small,default --rows 1024 --together 128,256,512

    python benchmarks/fleet_gpu.py --device cpu --models small --rows 32 --together 32 --loop 6

With --loop so many rows are also filled in one by one by `fill`, and the processor seconds of a row are compared: on a
busy machine they say more than the clock. It needs torch, numpy, safetensors, jaxtyping, tqdm and tokenizers; where
spaCy or VADER are not installed a stand-in cuts words at blanks and marks, or calls every sentence neutral, which is
not what costs time. Each line is one JSON object. A first group warms up and is not counted.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

import fabula
from fabula.corpus import tokenize
from fabula.corpus.toy import toy_stories
from fabula.sampling import many

BLANKS = {"middle": (1, 2, 3), "one": (2,), "mixed": None}
"""Which sentences are missing; mixed: another choice in each row."""
MIXED = ((1, 2, 3), (2,), (1, 3), (3, 4), (1, 2))


def stand_ins() -> list[str]:
    """What is not installed here, replaced by something as fast."""
    replaced = []
    if importlib.util.find_spec("spacy") is None:
        pattern = re.compile(r"n't|'\w+|\w+(?=n't)|\w+|[^\w\s]")
        tokenize._spacy_tokenizer = lambda: (
            lambda text: [  # type: ignore[assignment]
                SimpleNamespace(text=word) for word in pattern.findall(text)
            ]
        )
        replaced.append("spacy")
    if importlib.util.find_spec("vaderSentiment") is None:
        module = ModuleType("vaderSentiment.vaderSentiment")
        neutral = SimpleNamespace(polarity_scores=lambda text: {"compound": 0.0})
        module.SentimentIntensityAnalyzer = lambda: neutral  # type: ignore[attr-defined]
        sys.modules["vaderSentiment"] = ModuleType("vaderSentiment")
        sys.modules["vaderSentiment.vaderSentiment"] = module
        replaced.append("vaderSentiment")
    return replaced


def rows(n: int, blanks: str) -> list[dict[str, Any]]:
    """Stories of five sentences."""
    found: list[dict[str, Any]] = []
    for story in toy_stories(3 * n + 50, 0):
        if len(story.sentences) == 5 and len(found) < n:
            missing = BLANKS[blanks] or MIXED[len(found) % len(MIXED)]
            sentences = [None if i in missing else text for i, text in enumerate(story.sentences)]
            found.append({"id": story.id, "sentences": sentences})
    return found


def measure(narrator: fabula.Narrator, source: list[dict[str, Any]], together: int, **settings: Any) -> dict[str, Any]:
    many.TOGETHER[narrator.device.split(":")[0]] = together
    on_gpu = narrator.device.startswith("cuda")
    list(narrator.fill_many(source[: min(together, 16)], **settings))
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began, busy = time.perf_counter(), time.process_time()
    results = list(narrator.fill_many(source, **settings))
    if on_gpu:
        torch.cuda.synchronize()
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    wrong = [result["error"] for result in results if "error" in result]
    return {
        "rows": len(results), "errors": len(wrong), "first_error": wrong[0] if wrong else None, "together": together,
        "rows_per_second": round(len(results) / seconds, 2), "seconds": round(seconds, 2),
        "host_seconds": round(busy, 2), "host_seconds_of_a_row": round(busy / len(results), 3),
        "gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else None,
        "first": " ".join(results[0]["candidates"][0]["sentences"]) if not wrong else None,
    }  # fmt: skip


def one_by_one(narrator: fabula.Narrator, source: list[dict[str, Any]], seed: int, **settings: Any) -> dict[str, Any]:
    narrator.fill(source[0]["sentences"], **settings)
    began, busy = time.perf_counter(), time.process_time()
    for row in source:
        narrator.fill(row["sentences"], seed=many.row_seed(seed, row["id"]), **settings)
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    return {"loop": len(source), "seconds_of_a_row": seconds / len(source), "host_seconds_of_a_row": busy / len(source)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", default="small,default")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--together", default="128,256,512")
    parser.add_argument("--blanks", default="middle", choices=tuple(BLANKS))
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--precisions", default="", help="of small on a GPU: float32,bf16 (default: both there)")
    parser.add_argument("--loop", type=int, default=0, help="rows to fill in one by one, to compare with")
    parser.add_argument("--profile", type=int, default=0, help="also where the time of so many rows goes")
    args = parser.parse_args()
    replaced = stand_ins()
    name = torch.cuda.get_device_name() if args.device.startswith("cuda") else "cpu"
    print(json.dumps({"device": name, "torch": torch.__version__, "replaced": replaced, **vars(args)}), flush=True)
    source, table = rows(args.rows, args.blanks), list[str]()
    for model in args.models.split(","):
        narrator = fabula.load(model, args.device)
        if narrator.notes:  # another model stands in, whose rates nobody asked for
            raise SystemExit(f"{model}: {narrator.notes[0]}")
        both = args.device.startswith("cuda") and model == "small"
        precisions = args.precisions.split(",") if args.precisions else ["float32", "bf16"] if both else ["own"]
        for precision in precisions:
            settings: dict[str, Any] = {"samples": args.samples, "candidates": 3, "seed": 7}
            if precision == "bf16":
                settings["bf16"] = True
            if args.loop:
                told = one_by_one(narrator, source[: args.loop], **settings)
                print(json.dumps({"model": narrator.name, **told}), flush=True)
            for together in map(int, args.together.split(",")):
                try:
                    told = measure(narrator, source, together, **settings)
                except torch.OutOfMemoryError as error:
                    told = {"together": together, "first_error": str(error)[:200]}
                print(json.dumps({"model": narrator.name, "precision": precision, **told}), flush=True)
                table.append(
                    f"{model:8} {precision:8} together {together:4} {told.get('rows_per_second', 0):8.1f} rows/s "
                    f"{told.get('host_seconds_of_a_row', 0):7.3f} host s/row {told.get('gib') or 0:6.1f} GiB "
                    f"{told['first_error'] or ''}"
                )
            if args.profile:
                profile(narrator, source[: args.profile], settings)
    print("\n".join(table), flush=True)


def profile(narrator: fabula.Narrator, source: list[dict[str, Any]], settings: dict[str, Any]) -> None:
    """Where the time of one group goes: the device's by kernel, and the host's by operator and by Python function."""
    import cProfile
    import pstats

    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    on_gpu = narrator.device.startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with torch_profile(activities=activities) as found:
        list(narrator.fill_many(source, **settings))
    averages = found.key_averages()
    for order in ["self_cuda_time_total", "self_cpu_time_total"] if on_gpu else ["self_cpu_time_total"]:
        print(f"-- {order}, ms")
        for event in sorted(averages, key=lambda event: -_time(event, order))[:14]:
            print(f"{_time(event, order) / 1000:9.1f} {event.count:7d} {event.key[:90]}")
    plain = cProfile.Profile()
    plain.enable()
    list(narrator.fill_many(source, **settings))
    plain.disable()
    pstats.Stats(plain).sort_stats("tottime").print_stats(16)


def _time(event: Any, order: str) -> float:
    if order == "self_cuda_time_total":
        return float(getattr(event, "self_device_time_total", 0) or getattr(event, "self_cuda_time_total", 0))
    return float(event.self_cpu_time_total)


if __name__ == "__main__":
    main()

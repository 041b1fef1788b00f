"""Train several recipes side by side on one device, measure each on the test split, and print one table.

    PYTHONPATH=src python benchmarks/train_systems.py --data prepared/roc --out runs \
        recipes/lm-1024.toml recipes/slds.toml --device cuda

A recipe may be changed for this run: recipes/slds.toml:objective.target_kl=15:train.epochs=12 (the run is then named
after the changes). Every run leaves OUT/NAME (checkpoint, log) and a line in OUT/records.jsonl.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


def changed(spec: str, out: Path) -> tuple[str, Path]:
    """A run's name and recipe file from RECIPE[:key=value...]."""
    path, *changes = spec.split(":")
    content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    name = content.get("name", Path(path).stem)
    for change in changes:
        key, value = change.split("=", 1)
        table: dict[str, Any] = content
        *parents, last = key.split(".")
        for parent in parents:
            table = table.setdefault(parent, {})
        table[last] = tomllib.loads(f"v = {value}")["v"]
        name += f"~{last}={value}".replace('"', "")
    content["name"] = name
    folder = out / name.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "recipe.json"
    target.write_text(json.dumps(content), encoding="utf-8")
    return name, folder


def one(folder: Path, data: Path, device: str, samples: int, split: str) -> None:
    """Train and measure one run (in a process of its own)."""
    from fabula.corpus.dataset import Corpus
    from fabula.metrics.measure import measure_likelihood
    from fabula.training.loop import train
    from fabula.training.recipe import recipe_from

    recipe = recipe_from(json.loads((folder / "recipe.json").read_text(encoding="utf-8")))
    began = time.perf_counter()
    checkpoint = train(recipe, Corpus.open(data), folder, device=device, bar=False)
    minutes = (time.perf_counter() - began) / 60
    parameters = sum(p.numel() for p in checkpoint.model.parameters())
    record = measure_likelihood(folder, data=data, split=split, samples=samples, device=device)
    record |= {"minutes": round(minutes, 2), "parameters": parameters, **checkpoint.figures}
    (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")


def train_one(name: str, folder: Path, args: argparse.Namespace, end: float) -> tuple[dict[str, Any] | None, str]:
    """One run in a process of its own, ended at the deadline: its record, or what became of it."""
    left = end - time.monotonic()
    if left < 1:
        return None, f"{name}: not begun"
    command = [sys.executable, __file__, str(folder), "--one", "--data", str(args.data), "--out", str(args.out)]
    command += ["--device", args.device, "--samples", str(args.samples), "--split", args.split]
    with (folder / "errors.txt").open("w") as errors:
        process = subprocess.Popen(command, stderr=errors)
    try:
        code = process.wait(left)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if not code:
        return json.loads((folder / "record.json").read_text(encoding="utf-8")), ""
    tail = (folder / "errors.txt").read_text(encoding="utf-8").strip().splitlines()[-2:]
    log = folder / "log.jsonl"
    epochs = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    best = min((json.loads(line)["valid_nll"] for line in epochs), default=float("nan"))
    return None, f"{name}: ended with {code} after {len(epochs)} epochs, best {best:.2f}; {' | '.join(tail)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--split", default="test")
    parser.add_argument("--deadline", type=float, default=1e9, help="seconds after which what still runs is ended")
    parser.add_argument("--at-once", type=int, default=5, help="runs that share the device at a time")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(Path(args.recipes[0]), args.data, args.device, args.samples, args.split)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    runs = [changed(spec, args.out) for spec in args.recipes]
    end = time.monotonic() + args.deadline
    records = []
    with ThreadPoolExecutor(args.at_once) as pool:
        for record, said in pool.map(lambda run: train_one(run[0], run[1], args, end), runs):
            if record:
                records.append(record)
            else:
                print(said)
    with (args.out / "records.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    print(table(records))


COLUMNS = ("ppl", "ppl_iw", "ppl_elbo", "ppl_authors", "nll_story", "kl_z", "z_use", "lookahead_use", "f1_s")


def table(records: list[dict[str, Any]]) -> str:
    width = max([len(record["recipe"]) for record in records], default=6) + 2
    lines = [f"{'recipe':<{width}}" + "".join(f"{c:>14}" for c in COLUMNS) + f"{'epoch':>7}{'min':>7}{'M par':>7}"]
    for record in records:
        cells = "".join("-".rjust(14) if record.get(c) is None else f"{record[c]:>14.3f}" for c in COLUMNS)
        tail = f"{record['epoch']:>7}{record['minutes']:>7.1f}{record['parameters'] / 1e6:>7.1f}"
        lines.append(f"{record['recipe']:<{width}}{cells}{tail}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

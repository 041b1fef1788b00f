"""Pack checkpoints for carrying between machines: weights as int8, one tar.xz each, cut into pieces.

    PYTHONPATH=src python benchmarks/pack_runs.py runs/slds runs/lm --out carried [--piece-mib 15]

Put together again with: cat carried/slds.tar.* | tar xJ
"""

from __future__ import annotations

import argparse
import io
import tarfile
import tempfile
from pathlib import Path

from fabula.training.checkpoint import load, save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--piece-mib", type=float, default=15)
    parser.add_argument("--storage", default="int8", choices=["float32", "float16", "int8"])
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    size = int(args.piece_mib * 2**20)
    for run in args.runs:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / run.name
            save(target, load(run), storage=args.storage, shard_bytes=size)
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w:xz") as tar:
                tar.add(target, arcname=run.name)
        content = buffer.getvalue()
        for number, start in enumerate(range(0, len(content), size)):
            (args.out / f"{run.name}.tar.{number:02d}").write_bytes(content[start : start + size])
        print(f"{run.name}: {len(content) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()

"""Two adapters as one, or one of lower rank.

    python benchmarks/adapters.py join CRITIC OTHER OUT             the mean of what they add to each map; ranks add up
    python benchmarks/adapters.py cut CRITIC OUT --rank 8           the best b a of that rank for every map (by SVD)
    python benchmarks/adapters.py mean NARRATOR OTHER OUT           of a and of b; both trained from one start
    python benchmarks/adapters.py shrink NARRATOR OUT --share 0.85  b times the share

A reading by the result costs what one adapter's costs. What else the folder holds (critic.json) is the first one's.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fabula.models.decoders.adapter import Adapter
from fabula.models.io.pretrained import ABOUT_CRITIC, load_adapter, save_adapter


def join(first: Adapter, second: Adapter) -> Adapter:
    """scale (b a + b' a') / 2; both have one scale."""
    if first.config.scale != second.config.scale:
        raise SystemExit("the critics have different scales")
    tensors = {}
    for name, x in first.tensors.items():
        y = second.tensors[name]
        if name.endswith(".a"):
            tensors[name] = torch.cat([x, y], 0)
        else:
            tensors[name] = torch.cat([x, y], 1) / 2 if name.endswith(".b") else (x + y) / 2
    return Adapter(replace(first.config, rank=first.config.rank + second.config.rank), tensors)


def mean(first: Adapter, second: Adapter) -> Adapter:
    """Near each other, as trainings from one start are, their mean is a narrator too."""
    return Adapter(first.config, {name: (x + second.tensors[name]) / 2 for name, x in first.tensors.items()})


def shrink(adapter: Adapter, share: float) -> Adapter:
    """An adapter that overfits its stories writes others better when it is turned down."""
    return Adapter(adapter.config, {n: x * share if n.endswith(".b") else x for n, x in adapter.tensors.items()})


def cut(adapter: Adapter, rank: int) -> tuple[Adapter, float]:
    """The adapter, and the share of the squared norm of b a that is kept, on average over maps."""
    tensors: dict[str, Tensor] = dict(adapter.tensors)
    kept = []
    for name in (name for name in adapter.tensors if name.endswith(".a")):
        a, b = adapter.tensors[name].float(), adapter.tensors[name[:-1] + "b"].float()
        left, inner = torch.linalg.qr(b)
        right, outer = torch.linalg.qr(a.T)
        u, s, v = torch.linalg.svd(inner @ outer.T)
        root = s[:rank].sqrt()
        tensors[name[:-1] + "b"], tensors[name] = left @ u[:, :rank] * root, root[:, None] * (v[:rank] @ right.T)
        kept.append(float((s[:rank] ** 2).sum() / (s**2).sum()))
    return Adapter(replace(adapter.config, rank=rank), tensors), sum(kept) / len(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["join", "cut", "mean", "shrink"])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--share", type=float, default=0.85)
    args = parser.parse_args()
    first, *others, out = args.folders
    adapter = load_adapter(first)
    if args.action in ("join", "mean"):
        adapter = {"join": join, "mean": mean}[args.action](adapter, load_adapter(others[0]))
    elif args.action == "shrink":
        adapter = shrink(adapter, args.share)
    else:
        adapter, kept = cut(adapter, args.rank)
        print(f"kept {kept:.3f} of the squared norm")
    save_adapter(adapter, out)
    if (first / ABOUT_CRITIC).is_file():
        (out / ABOUT_CRITIC).write_text((first / ABOUT_CRITIC).read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    main()

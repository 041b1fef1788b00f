"""Two critics as one, and a critic cut to a smaller rank.

    python benchmarks/critic_join.py join CRITIC OTHER OUT     # the mean of what they add to every map: rank r + r'
    python benchmarks/critic_join.py cut CRITIC OUT --rank 8   # the best b a of that rank for every map (by SVD)

One reading of a story then costs what one critic's does. critic.json is the first one's.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fabula.models.critic import ABOUT
from fabula.models.decoders.adapter import Adapter, load_adapter, save_adapter


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


def cut(adapter: Adapter, rank: int) -> tuple[Adapter, float]:
    """The adapter, and the share of the squared size of b a that is kept, on average over maps."""
    tensors: dict[str, Tensor] = dict(adapter.tensors)
    kept = []
    for name in adapter.tensors:
        if not name.endswith(".a"):
            continue
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
    parser.add_argument("what", choices=["join", "cut"])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--rank", type=int, default=8)
    args = parser.parse_args()
    first, out = args.folders[0], args.folders[-1]
    if args.what == "join":
        adapter = join(load_adapter(first), load_adapter(args.folders[1]))
    else:
        adapter, kept = cut(load_adapter(first), args.rank)
        print(f"kept {kept:.3f} of the squared size")
    save_adapter(adapter, out)
    (out / ABOUT).write_text((first / ABOUT).read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    main()

"""A checkpoint with its matrices in 8 bits, as the small model is stored: python benchmarks/eight_bits.py RUN TARGET"""

import sys
from pathlib import Path

import torch
from torch import Tensor

from fabula.models.decoders.quantised import quantise
from fabula.models.io import load
from fabula.models.io.checkpoint import save
from fabula.models.io.tensors import owners


def eight_bits(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every matrix of at least 4,096 numbers as integers with a scale for each row; tied tensors once."""
    stored: dict[str, Tensor] = {}
    for name in dict.fromkeys(owners(state).values()):
        stored[name] = state[name].clone()
        if state[name].ndim == 2 and state[name].numel() >= 4096 and state[name].dtype == torch.float32:
            stored[name], stored[f"{name}.scale"] = quantise(state[name])
    return stored


if __name__ == "__main__":
    run, target = map(Path, sys.argv[1:])
    checkpoint = load(run, "cpu")
    save(target, checkpoint, weights=eight_bits(dict(checkpoint.model.state_dict())))
    print(f"{target}: {sum(path.stat().st_size for path in target.iterdir()) / 2**20:.1f} MiB")

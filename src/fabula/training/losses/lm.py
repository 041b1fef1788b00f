"""The narrator's loss: -log p per counted token of rows (`models/decoders/rows.py`)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from fabula.models.decoders.rows import Row, collate
from fabula.models.decoders.transformer import Transformer


def scores_of(network: Transformer, rows: list[Row]) -> tuple[Float[Tensor, "token vocab"], Int[Tensor, " token"]]:
    """The scores at every counted place, row after row, and the tokens there."""
    device = network.embedding.device
    ids, counted = collate(rows, 8)
    # Which places count is known here: the device is not asked, and the host may run ahead of it.
    row, place = counted[:, 1:].nonzero(as_tuple=True)
    target = ids[row, place + 1].to(device, non_blocking=True)
    with torch.autocast(device.type, torch.bfloat16, enabled=network.embedding.dtype == torch.bfloat16):
        features = network(ids.to(device, non_blocking=True))
        logits = network.logits(features[row.to(device), place.to(device)])
    return logits.float(), target


def log_p_of(network: Transformer, rows: list[Row]) -> Float[Tensor, " token"]:
    """log p of every counted token, row after row."""
    return -F.cross_entropy(*scores_of(network, rows), reduction="none")

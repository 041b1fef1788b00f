"""Which tags a sampler starts from, where the user did not give them all."""

from __future__ import annotations

from dataclasses import replace

import torch

from fabula.infill.batch import InfillBatch, evidence
from fabula.infill.settings import TagSource
from fabula.models.scaffold import UNKNOWN
from fabula.models.slds import SLDS

__all__ = ["TagSource", "infer_tags"]


def infer_tags(model: SLDS, blanks: InfillBatch, source: TagSource, gold: InfillBatch | None = None) -> InfillBatch:
    """The batch with the tags that their source decides; the rest stay free (-1)."""
    if model.K == 1:
        return replace(blanks, S=torch.where(blanks.present, 0, UNKNOWN).to(blanks.device))
    if source == "free":
        return blanks
    if source == "peek" and gold is None:
        raise ValueError('tags="peek" needs the true story')
    seen = blanks if source == "read" or gold is None else gold
    if not (seen.lengths > 0).any():
        return blanks
    likeliest = evidence(model, seen.X, seen.lengths).log_q_S.argmax(-1)
    readable = (blanks.S == UNKNOWN) & (seen.lengths > 0)
    return replace(blanks, S=torch.where(readable, likeliest, blanks.S))

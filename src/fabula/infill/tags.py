"""Which tags a sampler starts from, where the user did not give them all."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch

from fabula.infill.batch import InfillBatch, evidence
from fabula.models.scaffold import UNKNOWN
from fabula.models.slds import SLDS

TagSource = Literal["read", "free", "peek"]
"""Where the tags that nobody gave come from.

`read`: a given sentence's tag is read off it, argmax q(S_i | X+); a missing sentence's is drawn.
`free`: all are drawn.
`peek`: the authors' way, argmax q(S_i | X) with the true missing sentences in X. For reproduction only.
"""


def infer_tags(model: SLDS, blanks: InfillBatch, source: TagSource, gold: InfillBatch | None = None) -> InfillBatch:
    """The blanks with the tags that its source decides; the rest stay free (-1)."""
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

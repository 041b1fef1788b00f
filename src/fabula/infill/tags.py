"""Which tags a sampler starts from, where the user did not give them all."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch

from fabula.infill.page import Page, evidence
from fabula.models.scaffold import UNKNOWN
from fabula.models.slds import SLDS

TagSource = Literal["read", "free", "peek"]
"""Where the tags that nobody gave come from.

`read`: a given sentence's tag is read off it, argmax q(S_i | X+); a missing sentence's is drawn.
`free`: all are drawn.
`peek`: the authors' way, argmax q(S_i | X) with the true missing sentences in X. For reproduction only.
"""


def settle(model: SLDS, page: Page, source: TagSource, gold: Page | None = None) -> Page:
    """The page with the tags that its source decides; the rest stay free (-1)."""
    if model.K == 1:
        return replace(page, S=torch.where(page.present, 0, UNKNOWN).to(page.device))
    if source == "free":
        return page
    if source == "peek" and gold is None:
        raise ValueError('tags="peek" needs the true story')
    seen = page if source == "read" or gold is None else gold
    if not (seen.lengths > 0).any():
        return page
    likeliest = evidence(model, seen.X, seen.lengths).log_q_S.argmax(-1)
    readable = (page.S == UNKNOWN) & (seen.lengths > 0)
    return replace(page, S=torch.where(readable, likeliest, page.S))

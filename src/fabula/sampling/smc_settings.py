"""How `bridge` draws: particles, weights and ranking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fabula.sampling.decode import TOP_15, DecodingConfig
from fabula.sampling.tags import TagSource

Observed = Literal["given", "past"]
"""What (S, Z) are drawn knowing: all `given` sentences, or only those before the first blank (`past`). With `past` only
the weights look ahead, which shows what Z contributes; where tags are free the target is the same."""


@dataclass(frozen=True, kw_only=True)
class BridgeSettings:
    """How many particles, and how they write."""

    particles: int = 50
    decoding: DecodingConfig = TOP_15
    correct: bool = False
    """Whether weights undo the truncation (the target is then p itself on what the truncated law can write), or the
    truncated law is the target."""
    fluency: float = 0.0
    """Weight of the mean log-probability per written word in the ranking score (`score_following`)."""
    twist_weight: float = 0.0
    """Exponent of the next given sentence's probability in the weights before it is reached; 0: no twisting."""
    agreement: float = 0.0
    """Nats that a fault of the writing costs in the ranking (`Cast.faults`): a pronoun without a possible antecedent, a
    sentence that repeats another, a word of content that stands twice in its sentence."""
    context: float = 0.0
    """Weight in the ranking score of what the story so far tells of the written sentences (`context_gain`)."""
    rank: Literal["critic", "ending", "density"] = "ending"
    """Whether finished stories are ranked by the model's critic with some weight on the other two (its own), by the
    given sentences that follow (`score_following`), or by their probability."""
    arc_weight: float = 0.0
    """Nats that a written sentence costs, in weights and ranking, whose tag by the model's tagger is not the one asked
    for: the law is then p(X | S) with so much less for what the arc's own tagger would call otherwise."""
    guide: float = 0.0
    """Weight of the critic's value of the story so far in the weights, while more is to be written: a twist."""
    resample_below: float = 0.5
    """Particles are resampled at a given sentence where their effective number falls below this share."""
    at_once: bool = False
    """Whether all islands are told side by side: no first answer comes early, and the last one sooner."""
    tags: TagSource = "read"
    z_observes: Observed = "given"

    def __post_init__(self) -> None:
        if self.particles < 1 or not 0 <= self.resample_below <= 1:
            raise ValueError("particles is at least 1, resample_below between 0 and 1")

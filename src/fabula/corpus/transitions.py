"""The scaffold's counts: p(S_1) and p(S_i | S_{i-1}) of the training split (factor 1 of the joint)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SMOOTHING = 0.1
"""Added to every count: a pair that the corpus never shows stays possible, and 400,000 counted pairs do not move."""


@dataclass(frozen=True)
class Transitions:
    """How often a story begins with each state, and how often state k follows state j.

        p(S_1 = k)               = (initial[k] + smoothing) / sum_k' (initial[k'] + smoothing)
        p(S_i = k | S_{i-1} = j) = (following[j, k] + smoothing) / sum_k' (following[j, k'] + smoothing)

    A sentence without a tag contributes nothing: neither a beginning, nor the pair before it, nor the pair after it.
    """

    initial: NDArray[np.int64]
    """[K]: stories that begin with the state."""
    following: NDArray[np.int64]
    """[K, K]: rows are the previous state, columns the next."""
    smoothing: float = SMOOTHING

    def __post_init__(self) -> None:
        K = len(self.initial)
        if self.following.shape != (K, K) or K == 0:
            raise ValueError(f"{K} initial counts do not fit transition counts of shape {self.following.shape}")
        if self.smoothing <= 0:
            raise ValueError("smoothing is above 0, or an unseen state would have no distribution")

    @classmethod
    def count(
        cls, tags: NDArray[np.integer], story_offsets: NDArray[np.int64], K: int, smoothing: float = SMOOTHING
    ) -> "Transitions":
        """Count flat `tags`, -1 where there is none; `story_offsets` says where each story begins."""
        tags = np.asarray(tags).astype(np.int64)
        starts = story_offsets[:-1]
        first = tags[starts]
        continues = np.ones(len(tags), dtype=bool)
        continues[starts] = False
        here = np.flatnonzero(continues)
        previous, following = tags[here - 1], tags[here]
        both = (previous >= 0) & (following >= 0)
        pairs = np.bincount(previous[both] * K + following[both], minlength=K * K)
        return cls(np.bincount(first[first >= 0], minlength=K), pairs.reshape(K, K), smoothing)

    @property
    def p_initial(self) -> NDArray[np.float64]:
        """p(S_1), [K]."""
        weight = self.initial + self.smoothing
        return np.asarray(weight / weight.sum(), dtype=np.float64)

    @property
    def p_next(self) -> NDArray[np.float64]:
        """p(S_i | S_{i-1}), [K, K]: row j is the distribution after state j."""
        weight = self.following + self.smoothing
        return np.asarray(weight / weight.sum(axis=1, keepdims=True), dtype=np.float64)

    def to_record(self) -> dict[str, object]:
        """Plain numbers for the manifest."""
        return {"initial": self.initial.tolist(), "following": self.following.tolist(), "smoothing": self.smoothing}

    @classmethod
    def from_record(cls, record: dict[str, object]) -> "Transitions":
        """The inverse of `to_record`."""
        initial, following = (np.asarray(record[name], dtype=np.int64) for name in ("initial", "following"))
        return cls(initial, following, float(str(record["smoothing"])))

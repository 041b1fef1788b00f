"""The loss of preferences: a better and a worse version of the missing lines of one story, with length held.

With r_0 the narrator that training begins from, |x| the tokens of the missing lines and
d(x) = (log r(x) - log r_0(x)) / |x|, a pair of versions x (better) and y (worse) costs

    -log sigmoid(beta (d(x) - d(y)))  -  imitation log r(x) / |x|

so that a longer version has no larger say than a shorter one. Beside it KL(r_0 || r) is held down, token by token, on
random rows of people's stories (`rows.random_row`): those without a header hold p(X), those with one r.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from fabula.models.decoders.rows import Row


class Preference(NamedTuple):
    """Two rows of one story that differ in the missing lines, which alone are counted."""

    better: Row
    worse: Row


def divergence(before: Float[Tensor, "token vocab"], now: Float[Tensor, "token vocab"]) -> Tensor:
    """KL(r_0 || r) of a token, the mean over all places."""
    return (before.exp() * (before - now)).sum(-1).mean()


def row_means(values: Float[Tensor, " token"], rows: list[Row]) -> Float[Tensor, " row"]:
    """The mean of each row's counted tokens."""
    counts = torch.tensor([sum(row.counted) for row in rows])
    of = torch.arange(len(rows)).repeat_interleave(counts).to(values.device)
    sums = torch.zeros(len(rows), device=values.device).index_add(0, of, values)
    return sums / counts.to(values.device)


def preference_loss(
    before: Float[Tensor, " row"], now: Float[Tensor, " row"], beta: float, imitation: float
) -> tuple[Tensor, Float[Tensor, " pair"]]:
    """The mean loss of pairs, and beta (d(x) - d(y)) of each; rows are all better versions, then all worse ones.

    `before` and `now` are the mean log probability of a row's tokens under r_0 and r.
    """
    better, worse = (now - before).view(2, -1)
    margin = beta * (better - worse)
    return -F.logsigmoid(margin).mean() - imitation * now[: len(margin)].mean(), margin.detach()

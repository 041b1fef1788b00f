"""Bounds that were measured again, by a calibrated q(Z | X) and many samples, on some of the test stories.

A record `bound/<system>` holds a random part of the test stories (`rows`), the bound of each by 200 samples, by half
and a quarter of them. The mean over all test stories is then estimated from what the new bound saves on that part:

    mean over all of (old bound - rival)  -  mean over the part of (old bound - new bound)

which is unbiased, because the part is random, and has a small error, because old and new bound go together.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fabula.metrics.bootstrap import Interval
from fabula.metrics.proposal import slack
from fabula_paper.figures import Figure, Found, Row, Table, interval_figure
from fabula_paper.plan import SYSTEMS


def remeasured(found: Found, system: str) -> bool:
    return found.get(f"bound/{system}") is not None and found.get(f"likelihood/{system}") is not None


def lacks(found: Found, system: str) -> float:
    """What the new bound is thought to lack still."""
    stories = (found.get(f"bound/{system}") or {})["stories"]
    return slack(stories["iw_quarter"], stories["iw_half"], stories["iw"])


def gap(found: Found, system: str, rival: str | None = None) -> Interval | None:
    """Nats a story of the new bound, less an exact rival's if one is named, on all test stories."""
    bound, whole = found.get(f"bound/{system}"), found.get(f"likelihood/{system}")
    exact = found.get(f"likelihood/{rival}") if rival else None
    if bound is None or whole is None or (rival and exact is None):
        return None
    old = np.asarray(whole["stories"]["iw"], dtype=np.float64)
    saved = old[bound["rows"]] - np.asarray(bound["stories"]["iw"], dtype=np.float64)
    all_ = old - (np.asarray(exact["stories"]["nll"]) if exact else 0.0)
    value = float(all_.mean() - saved.mean())
    se = math.hypot(float(all_.std()) / math.sqrt(len(all_)), float(saved.std(ddof=1)) / math.sqrt(len(saved)))
    return Interval(value, value - 1.96 * se, value + 1.96 * se, se, len(saved))


def changed(nats: Interval, tokens: float, scale: Callable[[float], float]) -> Interval:
    """Nats a story as a perplexity, or a ratio of two, on a scale that rises with it."""
    value, low, high = (scale(math.exp(nat / tokens)) for nat in (nats.value, nats.low, nats.high))
    return Interval(value, low, high, float("nan"), nats.n)


def table(found: Found) -> Table | None:
    """Every system whose bound was measured again, beside its old bound and its exact rival."""
    rows = []
    for system in SYSTEMS:
        if not remeasured(found, system.name):
            continue
        name, rival = f"bound/{system.name}", RIVALS.get(system.name)
        record = found.get(name)
        assert record is not None
        per_story = float(np.mean((found.get(f"likelihood/{system.name}") or {})["tokens"]))
        new, behind = gap(found, system.name), gap(found, system.name, rival) if rival else None
        assert new is not None
        ppl = changed(new, per_story, lambda value: value)
        old = found.ppl(system.name, "iw")
        over = None if behind is None else changed(behind, per_story, lambda value: 100 * (value - 1))
        rows.append(
            Row(
                lead=(found.title(system), str(record["n"])),
                figures=(
                    interval_figure(old, f"likelihood/{system.name}", kind="bound"),
                    interval_figure(ppl, name, kind="bound"),
                    Figure(ours=lacks(found, system.name), record=name),
                    interval_figure(found.ppl(rival, "nll") if rival else None, f"likelihood/{rival}", kind="exact"),
                    interval_figure(over, name),
                ),
                own=True,
            )
        )
    if not rows:
        return None
    told = found.get(f"bound/{next(s.name for s in SYSTEMS if remeasured(found, s.name))}") or {}
    return Table(
        title="Perplexity by a calibrated q",
        intro=f"The same weights with phi's precision in q(Z | X) multiplied by {told['q_precision']} (fitted on "
        f"validation stories by the bound itself; any q gives a bound) and {told['samples']} samples, on a random part "
        "of the test stories, and from that the figure of all of them.",
        lead=("system", "stories measured again"),
        columns=("PPL by the old bound", "PPL by the calibrated one", "slack, nats a story", "PPL of its LM, exact",
                 "above its LM, %"),
        rows=tuple(rows),
        beside_paper=(False,) * 5,
        larger_is_better=(None,) * 5,
    )  # fmt: skip


RIVALS = {"default": "lm-1024", "slds": "lm"}
"""The exact figure that a system's bound is held against."""

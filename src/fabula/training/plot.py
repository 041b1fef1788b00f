"""The curves of a run, from its log."""

from __future__ import annotations

from pathlib import Path

from fabula.errors import UserError
from fabula.training.resume import read_log


def plot(run: Path) -> Path:
    """Draw RUN/curves.png: the validation figure and every term over the epochs."""
    if not (run / "log.jsonl").exists():
        raise UserError(f"{run} has no log.jsonl: it is not a training run")
    entries = read_log(run)
    if not entries:
        raise UserError(f"{run}/log.jsonl is empty: no epoch has ended yet")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("drawing needs matplotlib: install fabula-stories[studio]") from error
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    epochs = [entry["epoch"] for entry in entries]
    left.plot(epochs, [entry["valid_nll"] for entry in entries], marker="o")
    left.set(title="validation", xlabel="epoch", ylabel="negative bound, nats a story")
    for name in entries[0]["train"]:
        values = [entry["train"][name] for entry in entries]
        if any(values) and name != "log_p_X":
            right.plot(epochs, values, marker=".", label=name)
            right.legend()
    right.set(title="terms in training", xlabel="epoch", ylabel="nats a story")
    figure.savefig(run / "curves.png", dpi=100)
    return run / "curves.png"

"""The curves of a run, from its log."""

from __future__ import annotations

from pathlib import Path

from fabula.errors import UserError
from fabula.training.resume import read_log


def plot(run: Path) -> Path:
    """Draw RUN/curves.png: the validation figure and every term over the epochs."""
    if not (Path(run) / "log.jsonl").exists():
        raise UserError(f"{run} has no log.jsonl: it is not a training run")
    entries = read_log(Path(run))
    if not entries:
        raise UserError(f"{run}/log.jsonl is empty: no epoch has ended yet")
    try:
        import matplotlib
    except ImportError as error:
        raise UserError("drawing needs matplotlib: install fabula-stories[eval]") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    epochs = [entry["epoch"] for entry in entries]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(epochs, [entry["valid_nll"] for entry in entries], marker="o")
    left.set(title="validation", xlabel="epoch", ylabel="negative bound, nats a story")
    for name in entries[0]["train"]:
        values = [entry["train"][name] for entry in entries]
        if any(values) and name != "log_p_X":
            right.plot(epochs, values, marker=".", label=name)
    right.set(title="terms in training", xlabel="epoch", ylabel="nats a story")
    if right.lines:
        right.legend()
    target = Path(run) / "curves.png"
    figure.savefig(target, dpi=100)
    pyplot.close(figure)
    return target

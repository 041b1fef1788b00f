"""Whose weights a run ends with: the best epoch's by the validation figure, or the last one's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fabula.corpus.dataset import Corpus
from fabula.training.loop import Run, train
from fabula.training.recipe import recipe_from


@pytest.mark.parametrize(("keep", "epoch", "trained"), [("best", 1, 3), ("last", 4, 4)])
def test_a_rising_figure_stops_a_run_that_keeps_its_best(
    keep: str, epoch: int, trained: int, toy_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figure rises from the first epoch on: patience 2 ends after three and keeps the first, or all four run."""
    figures = iter([1.0, 2.0, 3.0, 4.0])
    monkeypatch.setattr(Run, "validate", lambda self, weights: (next(figures), {}))
    recipe: dict[str, Any] = {
        "name": "tiny",
        "model": {"kind": "lm", "language": {"embedding": 4, "hidden": 4}},
        "train": {"epochs": 4, "patience": 2, "batch": 108, "keep": keep},
    }
    entries: list[dict[str, Any]] = []
    checkpoint = train(recipe_from(recipe), Corpus.open(toy_corpus), tmp_path, bar=False, report=entries.append)
    assert (checkpoint.figures["epoch"], len(entries)) == (epoch, trained)

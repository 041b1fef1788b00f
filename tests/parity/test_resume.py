"""Interrupted and resumed = uninterrupted, bit for bit on the CPU: weights, averages, moments, random numbers.

Files are named by the digest of their content, so equal names are equal bits.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fabula.corpus.dataset import Corpus
from fabula.models.io import load
from fabula.training import loop
from fabula.training.recipe import Recipe, recipe_from
from small import to_toml

Trained = tuple[list[str], list[str], list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums in one order, here and in the other process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def corpus(toy_corpus: Path) -> Corpus:
    return Corpus.open(toy_corpus)


def outcome(run: Path) -> Trained:
    """The names of the kept weights and of the resumable state, and the log without its clocks."""
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    for entry in log:
        del entry["seconds"], entry["stories_per_second"]
    weights = sorted(path.name for path in run.glob("weights-*"))
    return weights, [path.name for path in (run / "resume").glob("state-*")], log


def same(ours: Trained, expected: Trained) -> None:
    assert ours[0] == expected[0]
    assert ours[1] == expected[1]
    assert [entry["epoch"] for entry in ours[2]] == list(range(1, len(expected[2]) + 1))
    for mine, theirs in zip(ours[2], expected[2], strict=True):
        # Sums of terms are added up in other groups where a run was cut: equal to rounding.
        assert mine.pop("train") == pytest.approx(theirs["train"], rel=1e-12)
        assert mine == {name: value for name, value in theirs.items() if name != "train"}


def recipes(base: dict[str, Any]) -> dict[str, Recipe]:
    """Ours with all its parts, and the paper's semi-supervised one with labels met at every step."""
    paper = {
        **base,
        "objective": {"kind": "paper", "labelled": 0.3, "labelled_per_step": 8, "evidence_dropout": 0.2},
        "train": {**base["train"], "average": 0.0, "weight_decay": 0.01, "learning_rate": 0.02},
    }
    return {"ours": recipe_from(base), "paper": recipe_from(paper)}


def interrupted_at(points: set[int], monkeypatch: pytest.MonkeyPatch, method: str = "step") -> None:
    """Ctrl-C during the calls of these numbers, counted over all attempts."""
    inner: Callable[..., Any] = getattr(loop.Run, method)
    count = 0

    def pressing(self: loop.Run, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count in points:
            os.kill(os.getpid(), signal.SIGINT)
        return inner(self, *arguments)

    monkeypatch.setattr(loop.Run, method, pressing)


def train_to_the_end(recipe: Recipe, corpus: Corpus, out: Path) -> int:
    """Train, and resume as often as Ctrl-C stops it; how often that was."""
    stops = 0
    while True:
        try:
            loop.train(recipe, corpus, out, resume=stops > 0, bar=False)
        except KeyboardInterrupt:
            stops += 1
        else:
            return stops


@pytest.fixture(scope="module")
def uninterrupted(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Recipe], Trained]:
    """Outcomes of runs that nobody disturbed, each trained once."""
    known: dict[str, Trained] = {}

    def get(name: str, recipe: Recipe) -> Trained:
        if name not in known:
            out = tmp_path_factory.mktemp("whole") / name
            out.mkdir()
            loop.train(recipe, corpus, out, bar=False)
            known[name] = outcome(out)
        return json.loads(json.dumps(known[name]))  # type: ignore[no-any-return]

    return get


# 7 batches an epoch: 1 the first step, 3 inside, 7 the last step of an epoch, 8 the first of the next.
@pytest.mark.parametrize(
    ("name", "method", "points"),
    [("ours", "step", {1, 3, 7, 8, 13}), ("ours", "validate", {1}), ("paper", "step", {5})],
    ids=["inside and at the ends of epochs", "while validating", "the paper's, semi-supervised"],
)
def test_resumed_is_uninterrupted(
    name: str, method: str, points: set[int], tmp_path: Path, corpus: Corpus, uninterrupted: Any,
    tiny_recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    recipe = recipes(tiny_recipe)[name]
    expected = uninterrupted(name, recipe)
    interrupted_at(points, monkeypatch, method)
    assert train_to_the_end(recipe, corpus, tmp_path) == len(points)
    same(outcome(tmp_path), expected)


def test_a_run_killed_after_its_log_logs_no_epoch_twice(
    tmp_path: Path, corpus: Corpus, uninterrupted: Any, tiny_recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst moment: epoch 2 is in the log and its checkpoint is saved, but the state is still epoch 1's."""
    recipe = recipes(tiny_recipe)["ours"]
    expected = uninterrupted("ours", recipe)
    inner, count = loop.Run.keep, 0

    def keep(self: loop.Run) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise RuntimeError("killed")
        inner(self)

    monkeypatch.setattr(loop.Run, "keep", keep)
    with pytest.raises(RuntimeError, match="killed"):
        loop.train(recipe, corpus, tmp_path, bar=False)
    assert len(outcome(tmp_path)[2]) == 2
    loop.train(recipe, corpus, tmp_path, resume=True, bar=False)
    same(outcome(tmp_path), expected)


@pytest.mark.system
def test_ctrl_c_in_a_terminal(
    tmp_path: Path, toy_corpus: Path, corpus: Corpus, uninterrupted: Any, tiny_recipe: dict[str, Any]
) -> None:
    """A real SIGINT to `fabula train` in a process of its own: exit 130, one line, a checkpoint, and --resume."""
    tiny_recipe["train"]["epochs"] = 6  # seconds, so that the signal finds it at work
    recipe = recipe_from(tiny_recipe)
    expected = uninterrupted("longer", recipe)
    (tmp_path / "tiny.toml").write_text(to_toml(tiny_recipe))
    run = tmp_path / "run"
    command = [sys.executable, "-m", "fabula", "train", str(tmp_path / "tiny.toml"), "--data", str(toy_corpus)]
    command += ["--out", str(run), "--device", "cpu", "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not (run / "resume" / "state.json").exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said == "fabula train: stopped\n"
    progress = json.loads((run / "resume" / "state.json").read_text())["progress"]
    assert 0 < progress["step"] < 42
    assert load(run).figures["epoch"] >= 1
    loop.train(recipe, corpus, run, resume=True, bar=False)
    same(outcome(run), expected)

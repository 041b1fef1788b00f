"""One rule for threads: what is said, else OMP_NUM_THREADS, else one; one option at every command that computes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fabula
from fabula.cli import build_parser
from fabula.device import pick_device, use_threads


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_every_command_that_computes_takes_threads() -> None:
    found = build_parser()._subparsers
    assert found is not None
    (commands,) = (action for action in found._actions if isinstance(action, argparse._SubParsersAction))
    computing = {"train", "reproduce", "fill", "write", "tag", "score", "demo", "studio"}
    for name in computing:
        assert "--threads" in commands.choices[name].format_help(), name


def test_loading_takes_one_thread_unless_told(random_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    fabula.load(random_models / "lm")
    assert torch.get_num_threads() == 1
    fabula.load(random_models / "lm", threads=2)
    assert torch.get_num_threads() == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "4")  # torch has read it at its start: nothing is changed behind its back
    fabula.load(random_models / "lm")
    assert torch.get_num_threads() == 2
    with pytest.raises(fabula.UserError, match="at least 1"):
        use_threads(0)


def test_a_macs_gpu_is_a_device_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("mps").type == "mps"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(fabula.UserError, match="no MPS device is available here"):
        pick_device("mps")
    with pytest.raises(fabula.UserError, match="cpu, cuda, mps or auto"):
        pick_device("xpu")

"""One rule for threads: what is said, else OMP_NUM_THREADS, else one; one option at every command that computes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fabula
from fabula.device import pick_device, use_threads


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


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


STARTED = """
import json, os
from fabula.cli.begin import start_torch
print(json.dumps([start_torch({}), "OMP_WAIT_POLICY" in os.environ, start_torch(5), start_torch()]))
"""


@pytest.mark.system
@pytest.mark.parametrize(("said", "variable", "threads"), [("", None, {1, 2}), ("3", None, {3}), ("", "1", {None})])
def test_a_command_that_answers_once_takes_two_threads_unless_told(
    said: str, variable: str | None, threads: set[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They sleep while they wait, which the commands that we start are not told; a second start changes nothing."""
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    told = subprocess.run([sys.executable, "-c", STARTED.format(said)], capture_output=True, text=True, check=True)
    found, policy, later, unsaid = json.loads(told.stdout)
    assert found in threads
    assert (policy, later, unsaid) == (False, 5, None)

"""Two processes that share every batch end with the parameters of one; so does a run that lost a process and went on.

The order in which two gradients are added differs, so equal means within 1e-5 of a parameter's size or 1e-6: a thousand
times what rounding does in 20 steps, and a thousandth of what other random numbers do.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fabula.cli import main
from fabula.errors import UserError
from fabula.models.io import load
from fabula.training.parallel import Processes
from gguf_writer import write_tiny_base
from raw_stories import write_raw_stories

SUPPORT = Path(__file__).parents[1] / "support"


def torchrun(words: list[str], dies_at: int | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    if dies_at is not None:
        environment["DIES_AT"] = str(dies_at)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, str(SUPPORT / "training_process.py"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)


def check(recipe: Path, data: Path, tmp_path: Path, parameters: Callable[[Path], dict[str, Tensor]]) -> None:
    """20 steps by one process, by two, and by two of which one dies in the second half, resumed by one."""
    words = ["train", str(recipe), "--data", str(data), "--device", "cpu", "--quiet", "--out"]
    assert main([*words, str(tmp_path / "one")]) == 0
    both = torchrun([*words, str(tmp_path / "two")])
    assert both.returncode == 0, both.stderr[-2000:]
    assert both.stdout.count(f"{tmp_path / 'two'}: ") == 1, "one process speaks"
    expected = parameters(tmp_path / "one")
    close(parameters(tmp_path / "two"), expected)
    died = torchrun([*words, str(tmp_path / "died")], dies_at=15)
    assert died.returncode != 0
    assert main([*words, str(tmp_path / "died"), "--resume"]) == 0
    close(parameters(tmp_path / "died"), expected)


@pytest.mark.system
def test_a_gru_recipe(
    toy_corpus: Path, tiny_recipe: dict[str, Any], to_toml: Callable[[dict[str, Any]], str], tmp_path: Path
) -> None:
    # Dropout, evidence dropout, an average: everything that draws or sums. 216 stories: 10 steps.
    tiny_recipe["train"] |= {"batch": 22, "epochs": 2, "parts": 2, "keep": "last"}
    (tmp_path / "recipe.toml").write_text(to_toml(tiny_recipe), encoding="utf-8")
    check(tmp_path / "recipe.toml", toy_corpus, tmp_path, lambda run: dict(load(run).model.state_dict()))


@pytest.mark.system
def test_an_adapters_recipe(to_toml: Callable[[dict[str, Any]], str], tmp_path: Path) -> None:
    write_raw_stories(tmp_path, 60, most=30)
    base = str(write_tiny_base(tmp_path / "tiny.gguf"))
    recipe = {
        "kind": "narrator", "base": base, "rank": 4, "epochs": 2, "batch": 3, "parts": 2,
        "learning_rate": 1e-2,
    }  # fmt: skip
    (tmp_path / "recipe.toml").write_text(to_toml(recipe), encoding="utf-8")
    check(tmp_path / "recipe.toml", tmp_path, tmp_path, lambda run: load_file(run / "adapter.safetensors"))


def test_parts_are_shared_out_whole() -> None:
    assert [list(Processes(rank, 2).share(6)) for rank in (0, 1)] == [[0, 2, 4], [1, 3, 5]]
    assert Processes(1, 4).parts(0) == 4
    with pytest.raises(UserError, match=r"train.parts is 3, which 2 processes cannot share"):
        Processes(0, 2).parts(3)

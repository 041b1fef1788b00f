"""Checkpoints come back bit for bit, tied tensors are stored once, 8-bit tensors are read with their scales."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fabula.errors import UserError
from fabula.models.decoders.gru import GRUDecoder
from fabula.models.io import Checkpoint, load, save
from fabula.models.io.tensors import unpack
from fabula.models.slds import SLDS
from small import small_checkpoint

WORDS = tuple(f"w{i}" for i in range(30))


def test_eight_bit_tensors_are_multiplied_by_each_rows_scale() -> None:
    """The shipped small model is stored so; vectors and integers have no scale and stay as they are."""
    levels, scale = torch.tensor([[127, -64], [1, 0]], dtype=torch.int8), torch.tensor([0.5, 2.0])
    stored = {"matrix": levels, "matrix.scale": scale, "vector": torch.ones(3), "own.scale": torch.ones(2)}
    restored = unpack(stored)
    assert set(restored) == {"matrix", "vector", "own.scale"}
    assert torch.equal(restored["matrix"], torch.tensor([[63.5, -32.0], [2.0, 0.0]]))


def language_of(checkpoint: Checkpoint) -> GRUDecoder:
    assert isinstance(checkpoint.model, SLDS)
    return checkpoint.model.language


def a_checkpoint(*, tied: bool = True, kind: str = "slds") -> Checkpoint:
    p_next = [[0.9, 0.1], [0.4, 0.6]]
    return small_checkpoint(kind, words=WORDS, labels=("dark", "bright"), p_next=p_next, language={"tied": tied})


@pytest.mark.parametrize("kind", ["slds", "lds", "lm", "s2s"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: Path, kind: str, tied: bool) -> None:
    """Weights, words, labels, recipe, hash, figures; the scaffold's counts are among the weights."""
    ours = a_checkpoint(tied=tied, kind=kind)
    save(tmp_path, ours)
    back = load(tmp_path)
    assert not back.model.training
    own, read = ours.model.state_dict(), back.model.state_dict()
    assert list(own) == list(read)
    assert all(torch.equal(own[name], read[name]) for name in own)
    assert (back.vocabulary, back.labels, back.recipe) == (ours.vocabulary, ours.labels, ours.recipe)
    assert (back.corpus_hash, back.figures) == ("0" * 64, {"ppl": 12.5})


def test_tied_tensors_are_stored_once(tmp_path: Path) -> None:
    """Output and embedding share one matrix on disk and after loading; untied they are two."""
    stored = {}
    for tied in (True, False):
        folder = tmp_path / str(tied)
        save(folder, a_checkpoint(tied=tied))
        (file,) = folder.glob("weights-*.safetensors")
        names = set(load_file(file))
        stored[tied] = {name for name in ("language.embedding.weight", "language.output.weight") if name in names}
        language = language_of(load(folder))
        assert (language.output.weight.data_ptr() == language.embedding.weight.data_ptr()) == tied
    assert len(stored[True]) == 1
    assert len(stored[False]) == 2


def test_saving_again_leaves_one_set_of_files(tmp_path: Path) -> None:
    """The stale weights go, and nothing temporary stays."""
    save(tmp_path, a_checkpoint())
    first = {path.name for path in tmp_path.iterdir()}
    changed = a_checkpoint()
    with torch.no_grad():
        language_of(changed).output.bias[0] = 3.0
    save(tmp_path, changed)
    second = {path.name for path in tmp_path.iterdir()}
    assert len(first) == len(second) == 3
    assert first != second
    assert language_of(load(tmp_path)).output.bias[0].item() == 3.0


@pytest.mark.parametrize(("value", "opens"), [(False, True), (True, False)])
def test_a_removed_setting_is_ignored_only_where_it_was_off(tmp_path: Path, value: bool, opens: bool) -> None:
    """A model that was trained with it would otherwise give other answers, and nobody would know."""
    save(tmp_path, a_checkpoint())
    config = json.loads((tmp_path / "config.json").read_text())
    config["recipe"]["model"]["language"]["state_bias"] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    if opens:
        load(tmp_path)
    else:
        with pytest.raises(UserError, match=r"needs model\.language\.state_bias, which Fabula no longer has"):
            load(tmp_path)

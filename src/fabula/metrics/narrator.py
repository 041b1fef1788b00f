"""The narrator's likelihood on raw text, every nat paid: p(X) with S free, and p(X | S) with VADER's tags given.

Perplexity is per token of the paper's tokenisation with `<eos>`, so that it stands beside the other models':

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
from fabula.corpus.read import Story, read_stories
from fabula.corpus.states import UNKNOWN
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.corpus.tokenize import tokenise_many
from fabula.errors import UserError
from fabula.metrics.record import commit, rounded
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.io.pretrained import load_adapter, load_decoder

BATCH = {"cpu": 16, "cuda": 256}


def story_nats(
    decoder: NarratorDecoder, stories: Sequence[Sequence[str]], tags: Sequence[Sequence[int | None]] | None, batch: int,
    bar: bool = False,
) -> Float[Tensor, " story"]:  # fmt: skip
    """-log p(X) of every story, or -log p(X | S)."""
    found, device = [], decoder.network.device
    for first in tqdm(range(0, len(stories), batch), disable=not bar, leave=False, unit="batch"):
        part = stories[first : first + batch]
        state, nats = decoder.start(len(part)), torch.zeros(len(part), device=device)
        for i in range(max(map(len, part))):
            ids = [[*decoder.tokenizer.encode(x[i]), decoder.tokenizer.end] if i < len(x) else [] for x in part]
            width = max(map(len, ids))
            tokens = torch.tensor([row + [0] * (width - len(row)) for row in ids], device=device)
            s = None
            if tags is not None:
                known = [row[i] if i < len(row) else None for row in tags[first : first + batch]]
                s = torch.tensor([-1 if k is None else k for k in known], device=device)
            lengths = torch.tensor([len(row) for row in ids], device=device)
            state, log_p = decoder.read(decoder.begin_sentence(state, s), tokens, lengths)
            nats -= log_p
        found.append(nats.double().cpu())
    return torch.cat(found)


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
    stories = [story.sentences for story in read_stories(file) if isinstance(story, Story)][:limit]
    if not stories:
        raise UserError(f"{file}: no usable story in it")
    tagger = VaderTagger()
    batch = BATCH.get(torch.device(device).type, BATCH["cpu"])
    nats = story_nats(decoder, stories, None, batch, bar)
    given = None
    if tagger.labels == config.labels:
        # Of several factors the first alone is given: a sentence's state is then one that is free in the others.
        free = [UNKNOWN] * (len(config.states.sizes) - 1)
        number = [int(config.states.number(np.array([k, *free]))) for k in range(len(tagger.labels))]
        tags = [[None if k is None else number[k] for k in tagger.tag(story)] for story in stories]
        given = story_nats(decoder, stories, tags, batch, bar)
    tokens = sum(len(words) + 1 for story in stories for words in tokenise_many(story))
    characters = sum(len(sentence) for story in stories for sentence in story)
    total, n = float(nats.sum()), len(stories)
    kinds = dict.fromkeys(("nll_story", "ppl", "bits_per_character", "ppl_given_tags"), "exact")
    return {
        "recipe": folder.name, "commit": commit(), "data_hash": digest(Path(file).read_bytes()), "n": n, "samples": 0,
        "tokens": tokens, "characters": characters, "nll_story": rounded(total / n),
        "nll_story_se": rounded(float(nats.std()) / math.sqrt(n)) if n > 1 else None,
        "ppl": rounded(math.exp(total / tokens)), "bits_per_character": rounded(total / math.log(2) / characters),
        "ppl_given_tags": None if given is None else rounded(math.exp(float(given.sum()) / tokens)), "kinds": kinds,
    }  # fmt: skip

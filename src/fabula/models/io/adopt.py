"""Training that begins from another model's weights: words are matched by their spelling, everything else by name."""

from __future__ import annotations

import torch

from fabula.corpus.vocabulary import Vocabulary
from fabula.errors import UserError
from fabula.models.io.checkpoint import Checkpoint
from fabula.models.protocol import Model

BY_WORD = ("embedding.weight", "output.weight", "output.bias", "valence.free.weight")
"""Tensors with a row for every word."""
COUNTED = "scaffold."
"""p(S) is counted from the new corpus, not carried over."""


@torch.no_grad()
def adopt(model: Model, vocabulary: Vocabulary, labels: tuple[str, ...], start: Checkpoint) -> int:
    """Copy the weights of `start` into `model`; returns how many words they share. Rows of other words stay."""
    if start.labels != labels:
        both = f"has the labels {', '.join(start.labels)}, and the corpus {', '.join(labels)}"
        raise UserError(f"the model to begin from {both}", field="from")
    index = start.vocabulary.index
    shared = [(i, index[word]) for i, word in enumerate(vocabulary.words) if word in index]
    to_rows, from_rows = (torch.tensor(places) for places in zip(*shared, strict=True))
    source = start.model.state_dict()
    for name, tensor in model.state_dict().items():
        if name.startswith(COUNTED):
            continue
        weight, by_word = source.get(name), name.endswith(BY_WORD)
        if weight is None or weight.shape[by_word:] != tensor.shape[by_word:] or weight.ndim != tensor.ndim:
            raise UserError(f"the recipe's model is of other sizes than the one to begin from ({name})", field="from")
        if by_word:
            tensor[to_rows.to(tensor.device)] = weight[from_rows.to(weight.device)].to(tensor)
        else:
            tensor.copy_(weight)
    return len(shared)

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
    """Copies what `start` has learnt into `model`; how many words they share. Rows of new words stay as they are."""
    if start.labels != labels:
        told = f"has the labels {', '.join(start.labels)}, and the corpus {', '.join(labels)}"
        raise UserError(f"the model to begin from {told}", field="from")
    shared = [
        (i, start.vocabulary.index[word]) for i, word in enumerate(vocabulary.words) if word in start.vocabulary.index
    ]
    new, old = (torch.tensor(places) for places in zip(*shared, strict=True))
    source = start.model.state_dict()
    for name, tensor in model.state_dict().items():
        if name.startswith(COUNTED):
            continue
        found = source.get(name)
        if found is None or found.shape[1:] != tensor.shape[1:] or found.ndim != tensor.ndim:
            raise UserError(f"the recipe's model is of other sizes than the one to begin from ({name})", field="from")
        if name.endswith(BY_WORD):
            tensor[new.to(tensor.device)] = found[old.to(found.device)].to(tensor)
        elif found.shape == tensor.shape:
            tensor.copy_(found)
        else:
            raise UserError(f"the recipe's model is of other sizes than the one to begin from ({name})", field="from")
    return len(shared)

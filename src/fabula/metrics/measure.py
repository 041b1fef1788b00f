"""From a model's name and a prepared corpus to a record: the function behind `fabula evaluate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fabula.corpus.dataset import Corpus, Stories
from fabula.corpus.transitions import Transitions
from fabula.device import pick_device
from fabula.errors import UserError
from fabula.metrics.bound import fit_precision
from fabula.metrics.likelihood import likelihood
from fabula.metrics.record import commit
from fabula.models.batch import StoryDataset
from fabula.models.io import Checkpoint, adapts_base, load
from fabula.models.io.checkpoint import read_config, write_config


def measure_likelihood(
    model: str | Path, *, data: str | Path, split: str = "test", samples: int = 20, seed: int = 0,
    limit: int | None = None, device: str = "auto", bar: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Every likelihood figure of a model on a split of its prepared corpus, as a record."""
    if samples < 1:
        raise UserError(f"--samples must be at least 1, not {samples}", field="samples")
    if limit is not None and limit < 1:
        raise UserError(f"--limit must be at least 1, not {limit}", field="limit")
    if adapts_base(Path(model)):
        raise UserError(f"{Path(model).name} adapts a base; evaluate is for models of a prepared corpus", field="model")
    where, corpus = pick_device(device), Corpus.open(data)
    checkpoint = load(Path(model), where)
    check_same_corpus(checkpoint, corpus)
    stories = corpus.split(split) if limit is None else first_stories(corpus.split(split), limit)
    figures = likelihood(
        checkpoint.model,
        StoryDataset(stories, where),
        characters=int(np.asarray(stories.characters).sum()),
        log_p_S=log_p_of_tags(stories, corpus.transitions),
        samples=samples,
        seed=seed,
        posterior=checkpoint.posterior,
        precision=calibrated(checkpoint, corpus, where),
        bar=bar,
    )
    return {**figures, "commit": commit(), "recipe": checkpoint.name, "data_hash": corpus.hash}


def calibrated(checkpoint: Checkpoint, corpus: Corpus, device: torch.device) -> float:
    """The factor of phi's precision in the bound's q: as training fitted it, else fitted on validation stories now."""
    fitted = checkpoint.figures.get("q_precision")
    if fitted is not None or checkpoint.model.latent is None:
        return 1.0 if fitted is None else float(fitted)
    return fit_precision(checkpoint.model, StoryDataset(corpus.split("valid"), device), checkpoint.posterior)


def calibrate_run(folder: Path, checkpoint: Checkpoint, corpus: Corpus, device: torch.device) -> None:
    """The last step of training: fit the bound's q on the validation split, and write the factor into the run."""
    if checkpoint.model.latent is None:
        return
    checkpoint.figures.pop("q_precision", None)
    checkpoint.figures["q_precision"] = calibrated(checkpoint, corpus, device)
    config = read_config(folder)
    config["figures"]["q_precision"] = checkpoint.figures["q_precision"]
    write_config(folder, config)


def check_same_corpus(checkpoint: Checkpoint, corpus: Corpus) -> None:
    """A model can only be measured in its own words and labels."""
    if tuple(corpus.labels) != checkpoint.labels:
        raise UserError(
            f"the corpus has the labels {', '.join(corpus.labels)}, the checkpoint {', '.join(checkpoint.labels)}: "
            "prepare the corpus with the checkpoint's labels, or train on this one"
        )
    if corpus.vocabulary.words != checkpoint.vocabulary.words:
        raise UserError(
            f"the corpus's vocabulary ({len(corpus.vocabulary):,} types) is not the checkpoint's "
            f"({len(checkpoint.vocabulary):,}): evaluate it on the corpus that it was trained on"
        )


def log_p_of_tags(stories: Stories, transitions: Transitions) -> NDArray[np.float64] | None:
    """log p(S) of every story under the counted scaffold; None where a tag is missing."""
    tags = np.asarray(stories.tags).astype(np.int64)
    if (tags < 0).any():
        return None
    first = np.asarray(stories.story_offsets[:-1])
    log_p = np.log(transitions.p_next)[np.roll(tags, 1), tags]
    log_p[first] = np.log(transitions.p_initial)[tags[first]]
    return np.add.reduceat(log_p, first)


def first_stories(stories: Stories, n: int) -> Stories:
    """The first n stories, as a set of their own."""
    sentences = int(stories.story_offsets[min(n, len(stories))])
    return replace(
        stories,
        tokens=stories.tokens[: int(stories.sentence_offsets[sentences])],
        sentence_offsets=stories.sentence_offsets[: sentences + 1],
        story_offsets=stories.story_offsets[: n + 1],
        tags=stories.tags[:sentences],
        characters=stories.characters[:sentences],
        ids_source=stories.ids[:n],
    )

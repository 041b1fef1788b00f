"""From a model's name and a source of stories to a record: the function behind `fabula evaluate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fabula.corpus.dataset import Corpus, Stories, digest
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
    model: str | Path,
    *,
    stories: Path | None = None,
    data: Path | None = None,
    split: str = "test",
    samples: int = 20,
    seed: int = 0,
    limit: int | None = None,
    device: str = "auto",
    bar: bool = False,
) -> dict[str, Any]:
    """Every likelihood figure of a model on raw stories or on a split of a prepared corpus, as a record."""
    if samples < 1:
        raise UserError(f"--samples must be at least 1, not {samples}", field="samples")
    if limit is not None and limit < 1:
        raise UserError(f"--limit must be at least 1, not {limit}", field="limit")
    where = pick_device(device)
    if adapts_base(Path(model)):
        from fabula.metrics.narrator import measure_narrator

        if stories is None:
            raise UserError("the narrator is measured on raw text: use --stories FILE", field="data")
        return measure_narrator(Path(model), stories, limit=limit, device=str(where), bar=bar)
    checkpoint, corpus = load(Path(model), where), None
    if data is not None:
        corpus = Corpus.open(data)
        check_same_corpus(checkpoint, corpus)
        chosen, data_hash = corpus.split(split), corpus.hash
    else:
        assert stories is not None
        chosen, data_hash = read_with_vocabulary(stories, checkpoint), digest(Path(stories).read_bytes())
    if limit is not None:
        chosen = first_stories(chosen, limit)
    figures = likelihood(
        checkpoint.model,
        StoryDataset(chosen, where),
        characters=int(np.asarray(chosen.characters).sum()),
        log_p_S=log_p_of_tags(chosen, None if corpus is None else corpus.transitions),
        samples=samples,
        seed=seed,
        posterior=checkpoint.posterior,
        precision=calibrated(checkpoint, corpus, where),
        bar=bar,
    )
    return figures.to_json() | {"commit": commit(), "recipe": checkpoint.name, "data_hash": data_hash}


def calibrated(checkpoint: Checkpoint, corpus: Corpus | None, device: torch.device) -> float:
    """The factor of phi's precision in the bound's q: as training fitted it, else fitted on validation stories now.

    It is 1 where there are no validation stories.
    """
    fitted = checkpoint.figures.get("q_precision")
    if fitted is not None or checkpoint.model.latent is None or corpus is None:
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
            f"({len(checkpoint.vocabulary):,}): use --stories with the raw file, which is read in the model's own words"
        )


def read_with_vocabulary(file: Path, checkpoint: Checkpoint) -> Stories:
    """Raw stories in the model's words; rows that hold no story are skipped, the file's own tags are used."""
    # spaCy and VADER are needed for raw text only: a prepared corpus is measured without them.
    from fabula.corpus.read import Story, read_stories
    from fabula.corpus.taggers.protocol import tagger_of
    from fabula.corpus.tokenize import tokenise_many

    stories = [story for story in read_stories(file) if isinstance(story, Story)]
    if not stories:
        raise UserError(f"{file}: no usable story in it")
    number = {label: number for number, label in enumerate(checkpoint.labels)}
    tagger = tagger_of(checkpoint.tagger, checkpoint.labels)
    tags: list[list[int | None]] = []
    for story in stories:
        if story.tags is not None:
            tags.append([None if label is None else number.get(label) for label in story.tags])
        else:
            tags.append([None for _ in story.sentences] if tagger is None else tagger.tag(story.sentences))
    tokens = [[checkpoint.vocabulary.encode(words) for words in tokenise_many(story.sentences)] for story in stories]
    characters = [[len(sentence) for sentence in story.sentences] for story in stories]
    return Stories.from_sentences(tokens, tags, characters, [story.id for story in stories])


def log_p_of_tags(stories: Stories, transitions: Transitions | None) -> NDArray[np.float64] | None:
    """log p(S) of every story under the counted scaffold; None where a tag or the counts are missing."""
    tags = np.asarray(stories.tags).astype(np.int64)
    if transitions is None or (tags < 0).any():
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

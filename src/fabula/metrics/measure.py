"""From a model's name and a source of stories to a record: the door that `fabula evaluate` opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fabula.corpus.dataset import Corpus, Stories
from fabula.corpus.transitions import Transitions
from fabula.device import pick_device
from fabula.errors import UserError
from fabula.metrics.likelihood import likelihood
from fabula.metrics.proposal import fit_precision
from fabula.metrics.record import commit
from fabula.models.batch import StoryDataset
from fabula.models.io import Checkpoint, adapts_base, load
from fabula.models.io.checkpoint import read_config, write_config

FloatArray = NDArray[np.float64]


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
    checkpoint = load(Path(model), where)
    transitions = None
    if data is not None:
        corpus = Corpus.open(data)
        check_same_corpus(checkpoint, corpus)
        chosen, data_hash, transitions = corpus.split(split), corpus.hash, corpus.transitions
    else:
        assert stories is not None
        chosen, data_hash = read_with_vocabulary(stories, checkpoint)
    if limit is not None:
        chosen = first_stories(chosen, limit)
    dataset = StoryDataset(chosen, where)
    precision = calibrated(checkpoint, None if data is None else corpus, where)
    log_p_S = log_p_of_tags(chosen, transitions)
    figures = likelihood(
        checkpoint.model,
        dataset,
        characters=int(np.asarray(chosen.characters).sum()),
        log_p_S=log_p_S,
        samples=samples,
        seed=seed,
        posterior=checkpoint.posterior,
        precision=precision,
        bar=bar,
    )
    record = figures.to_json()
    record |= {"commit": commit(), "recipe": checkpoint.name, "data_hash": data_hash}
    return record


def calibrated(checkpoint: Checkpoint, corpus: Corpus | None, device: torch.device) -> float:
    """What phi's precision is multiplied by in the bound's q: as training fitted it, else as fitted on validation now.

    A checkpoint from before that was fitted, and no validation stories: q as it is.
    """
    known = checkpoint.figures.get("q_precision")
    if known is not None or checkpoint.model.latent is None or corpus is None:
        return 1.0 if known is None else float(known)
    valid = StoryDataset(corpus.split("valid"), device)
    return fit_precision(checkpoint.model, valid, checkpoint.posterior)


def calibrate_run(folder: Path, checkpoint: Checkpoint, corpus: Corpus, device: torch.device) -> None:
    """The last step of training: fit the bound's q on the validation split, and write the factor into the run."""
    if checkpoint.model.latent is None:
        return
    valid = StoryDataset(corpus.split("valid"), device)
    fitted = fit_precision(checkpoint.model, valid, checkpoint.posterior)
    checkpoint.figures["q_precision"] = fitted
    config = read_config(folder)
    config["figures"]["q_precision"] = fitted
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


def read_with_vocabulary(file: Path, checkpoint: Checkpoint) -> tuple[Stories, str]:
    """Raw stories in the model's own words; rows that hold no story are passed over, the file's own tags are used."""
    # spaCy and VADER are needed for raw text only: a prepared corpus is measured without them.
    from fabula.corpus.dataset import digest
    from fabula.corpus.read import Story, read_stories
    from fabula.corpus.taggers.protocol import tagger_of
    from fabula.corpus.tokenize import tokenise_many

    found = [story for story in read_stories(file) if isinstance(story, Story)]
    if not found:
        raise UserError(f"{file}: no usable story in it")
    state = {label: number for number, label in enumerate(checkpoint.labels)}
    tagger = tagger_of(checkpoint.tagger, checkpoint.labels)
    tags: list[list[int | None]] = []
    for story in found:
        if story.tags is not None:
            tags.append([None if label is None else state.get(label) for label in story.tags])
        else:
            tags.append([None for _ in story.sentences] if tagger is None else tagger.tag(story.sentences))
    tokens = [[checkpoint.vocabulary.encode(words) for words in tokenise_many(story.sentences)] for story in found]
    characters = [[len(sentence) for sentence in story.sentences] for story in found]
    stories = Stories.from_sentences(tokens, tags, characters, [story.id for story in found])
    return stories, digest(Path(file).read_bytes())


def log_p_of_tags(stories: Stories, transitions: Transitions | None) -> FloatArray | None:
    """log p(S) of every story under the counted scaffold; None where a tag or the counts are missing."""
    tags = np.asarray(stories.tags).astype(np.int64)
    if transitions is None or (tags < 0).any():
        return None
    first = np.asarray(stories.story_offsets[:-1])
    later = np.setdiff1d(np.arange(len(tags)), first)
    log_p = np.empty(len(tags))
    log_p[first] = np.log(transitions.p_initial)[tags[first]]
    log_p[later] = np.log(transitions.p_next)[tags[later - 1], tags[later]]
    return np.add.reduceat(log_p, first)


def first_stories(stories: Stories, n: int) -> Stories:
    """The first n stories, as their own small set."""
    sentences = int(stories.story_offsets[min(n, len(stories))])
    tokens = int(stories.sentence_offsets[sentences])
    return Stories(
        tokens=stories.tokens[:tokens],
        sentence_offsets=stories.sentence_offsets[: sentences + 1],
        story_offsets=stories.story_offsets[: n + 1],
        tags=stories.tags[:sentences],
        characters=stories.characters[:sentences],
        ids_source=stories.ids[:n],
    )

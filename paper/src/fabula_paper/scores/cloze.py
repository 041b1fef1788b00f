"""Story Cloze by likelihood: which of two endings does a model find more probable after the story's four sentences?

Endings give themselves away without their story (the wrong ones were made up to be wrong), so beside the accuracy of
log p(ending | story) stand those of log p(ending) alone, the control, and of their difference, what the story adds.

Reading and tokenising happen beforehand (`prepare_cloze`), so that a bare machine with a GPU can score.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fabula import ties
from fabula.corpus.dataset import Corpus, Stories
from fabula.corpus.vocabulary import Vocabulary
from fabula.errors import UserError
from fabula.metrics.bound import Draws, weigh
from fabula.models.batch import StoryDataset
from fabula.models.protocol import Model

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Cloze:
    """Of every question, log p of the first and the second ending, in nats: [question, 2]."""

    with_story: FloatArray
    """log p(story, ending): the story is the same for both endings, so this ranks as log p(ending | story) does."""
    ending_only: FloatArray
    """log p of the ending told as a story of its own."""
    words: NDArray[np.int64]
    """Words of each ending with its `<eos>`."""
    right: NDArray[np.int64]
    """Which ending is right, 0 or 1."""

    def accuracies(self) -> dict[str, float]:
        return {name: float(found.mean()) for name, found in self.correct().items()}

    def correct(self) -> dict[str, FloatArray]:
        """1 where the right ending wins, 0 where it loses, a half where both are equal up to rounding."""
        size = np.abs(self.with_story).max(1)
        return {
            "story": self._wins(self.with_story),
            "ending_only": self._wins(self.ending_only),
            "difference": self._wins(self.with_story - self.ending_only, size),
        }

    def _wins(self, scores: FloatArray, scale: FloatArray | float = 0.0) -> FloatArray:
        rows = np.arange(len(self.right))
        return ties.wins(scores[rows, self.right], scores[rows, 1 - self.right], scale)


def prepare_cloze(file: str | Path, corpus: str | Path | Vocabulary, out: str | Path) -> Path:
    """Both versions of every question in a corpus's words, as one small .npz file."""
    from fabula.corpus.tokenize import tokenise

    vocabulary = corpus if isinstance(corpus, Vocabulary) else Corpus.open(corpus).vocabulary
    path = Path(file)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
        texts = [
            (
                [row[f"InputSentence{i}"] for i in range(1, 5)],
                [row["RandomFifthSentenceQuiz1"], row["RandomFifthSentenceQuiz2"]],
                int(row["AnswerRightEnding"]) - 1,
            )
            for row in rows
        ]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a Story Cloze file: {error}") from error
    if not texts or not all(answer in (0, 1) for _, _, answer in texts):
        raise UserError(f"{path} is not a Story Cloze file: every row needs a right ending, 1 or 2")

    def ids(sentence: str) -> list[int]:
        return vocabulary.encode(tokenise(sentence))

    told = [[[ids(s) for s in context] + [ids(ending)] for ending in endings] for context, endings, _ in texts]
    stories = Stories.from_sentences([story for pair in told for story in pair])
    target = Path(out)
    with target.open("wb") as sink:
        np.savez_compressed(
            sink,
            tokens=stories.tokens,
            sentence_offsets=stories.sentence_offsets,
            story_offsets=stories.story_offsets,
            right=np.array([answer for _, _, answer in texts], dtype=np.int64),
        )
    return target


@torch.inference_mode()
def cloze(
    model: Model,
    questions: str | Path,
    *,
    samples: int = 50,
    seed: int = 0,
    posterior: str = "filtering",
    batch_size: int = 64,
) -> Cloze:
    """Every question of a file by `prepare_cloze`: exact without latents, else an importance-weighted bound.

    Both endings of a question are met with the same noise, so that the noise hardly decides between them.
    """
    if model.reads_tags:
        raise UserError("Story Cloze by likelihood needs p(X); this model is p(X | S)", field="model")
    with np.load(questions) as file:
        arrays = {name: file[name] for name in ("tokens", "sentence_offsets", "story_offsets", "right")}
    n = len(arrays["story_offsets"]) - 1
    whole = _stories(arrays["tokens"], arrays["sentence_offsets"], arrays["story_offsets"])
    last = arrays["story_offsets"][1:] - 1
    starts, ends = arrays["sentence_offsets"][last], arrays["sentence_offsets"][last + 1]
    ending_tokens = np.concatenate([arrays["tokens"][a:b] for a, b in zip(starts, ends, strict=True)])
    alone = _stories(ending_tokens, np.concatenate([[0], np.cumsum(ends - starts)]), np.arange(n + 1))
    model.eval()
    device = next(model.parameters()).device
    found = [
        _log_p(model, StoryDataset(stories, device), samples, seed, posterior, batch_size).reshape(-1, 2)
        for stories in (whole, alone)
    ]
    return Cloze(found[0], found[1], (ends - starts).reshape(-1, 2), arrays["right"])


def _stories(tokens: NDArray[Any], sentence_offsets: NDArray[np.int64], offsets: NDArray[np.int64]) -> Stories:
    count = len(sentence_offsets) - 1
    return Stories(
        tokens=tokens,
        sentence_offsets=sentence_offsets,
        story_offsets=offsets,
        tags=np.full(count, -1, dtype=np.int8),
        characters=np.zeros(count, dtype=np.int32),
        ids_source=[str(number) for number in range(len(offsets) - 1)],
    )


def _log_p(model: Model, dataset: StoryDataset, samples: int, seed: int, posterior: str, batch_size: int) -> FloatArray:
    """log p(X) of every story, in its order."""
    found = np.zeros(len(dataset))
    # Questions in the order of their longer ending's story; both endings stay side by side.
    pairs = dataset.token_counts.reshape(-1, 2).max(1)
    order = np.argsort(-pairs, kind="stable")
    half = max(1, batch_size // 2)
    for start in range(0, len(order), half):
        chosen = order[start : start + half]
        rows = (2 * chosen[:, None] + np.arange(2)).reshape(-1)
        batch = dataset.batch(rows)
        draws = _draws(model, chosen, samples, batch.lengths.shape[1], seed) if model.has_latent else None
        found[rows] = weigh(model, batch, draws, posterior).log_p.cpu().numpy()
    return found


def _draws(model: Model, questions: NDArray[np.int64], samples: int, sentences: int, seed: int) -> Draws:
    """Random numbers: of each question its own, whatever the batch; once more for the other ending."""
    normal, uniform = [], []
    for question in questions:
        own = np.random.default_rng([seed, int(question)])
        normal.append(own.standard_normal((samples, sentences, model.D), dtype=np.float32))
        uniform.append(own.random((samples, sentences), dtype=np.float32))
    like = next(model.parameters())
    return Draws(*(torch.from_numpy(np.stack(drawn)).repeat_interleave(2, 0).to(like) for drawn in (normal, uniform)))

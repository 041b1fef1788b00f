"""Story Cloze by likelihood: which of two endings does a model find more probable after the story's four sentences?

The wrong endings were made up to be wrong, which shows without their story. So beside the accuracy of
log p(ending | story) stand those of log p(ending) alone, the control, and of their difference, what the story adds.

Reading and tokenising happen beforehand (`prepare_cloze`), so that a bare machine with a GPU can score.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

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
    """log p of the ending as a story of one sentence."""
    right: NDArray[np.int64]
    """Which ending is right, 0 or 1."""

    def accuracies(self) -> dict[str, float]:
        return {name: float(wins.mean()) for name, wins in self.correct().items()}

    def correct(self) -> dict[str, FloatArray]:
        """1 where the right ending wins, 0 where it loses, a half where both are equal up to rounding."""

        def wins(scores: FloatArray, scale: FloatArray | float = 0.0) -> FloatArray:
            rows = np.arange(len(self.right))
            return ties.wins(scores[rows, self.right], scores[rows, 1 - self.right], scale)

        return {
            "story": wins(self.with_story),
            "ending_only": wins(self.ending_only),
            "difference": wins(self.with_story - self.ending_only, np.abs(self.with_story).max(1)),
        }


def prepare_cloze(file: str | Path, corpus: str | Path | Vocabulary, out: str | Path) -> Path:
    """Both versions of every question in a corpus's words, as one small .npz file."""
    from fabula.corpus.tokenize import tokenise

    vocabulary = corpus if isinstance(corpus, Vocabulary) else Corpus.open(corpus).vocabulary
    path, stories, right = Path(file), [], []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            for row in csv.DictReader(stream):
                context = [row[f"InputSentence{i}"] for i in range(1, 5)]
                stories += [[*context, row[f"RandomFifthSentenceQuiz{i}"]] for i in (1, 2)]
                right.append(int(row["AnswerRightEnding"]) - 1)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a Story Cloze file: {error}") from error
    if not right or not set(right) <= {0, 1}:
        raise UserError(f"{path} is not a Story Cloze file: every row needs a right ending, 1 or 2")
    coded = Stories.from_sentences([[vocabulary.encode(tokenise(s)) for s in story] for story in stories])
    arrays = {name: getattr(coded, name) for name in ("tokens", "sentence_offsets", "story_offsets")}
    with Path(out).open("wb") as sink:
        np.savez_compressed(sink, **arrays, right=np.array(right, dtype=np.int64))
    return Path(out)


@torch.inference_mode()
def cloze(
    model: Model, file: Path, *, samples: int = 50, seed: int = 0, posterior: str = "filtering", batch_size: int = 64
) -> Cloze:
    """Every question of a file by `prepare_cloze`: exact without latents, else an importance-weighted bound.

    Both endings of a question are drawn with the same noise, so that the noise hardly decides between them.
    """
    if model.reads_tags:
        raise UserError("Story Cloze by likelihood needs p(X); this model is p(X | S)", field="model")
    with np.load(file) as arrays:
        tokens, starts, stories, right = (
            arrays[name] for name in ("tokens", "sentence_offsets", "story_offsets", "right")
        )
    sentences = [tokens[a : b - 1].tolist() for a, b in pairwise(starts)]
    whole = [sentences[a:b] for a, b in pairwise(stories)]
    texts = (whole, [story[-1:] for story in whole])
    model.eval()
    with_story, alone = (_log_p(model, stories, samples, seed, posterior, batch_size) for stories in texts)
    return Cloze(with_story, alone, right)


def _log_p(
    model: Model, stories: list[list[list[int]]], samples: int, seed: int, posterior: str, batch_size: int
) -> FloatArray:
    """log p(X) of every story: [question, 2]."""
    like = next(model.parameters())
    dataset = StoryDataset(Stories.from_sentences(stories), like.device)
    log_p = np.zeros((len(stories) // 2, 2))
    # Questions by the length of their longer story; both endings stay side by side.
    order = np.argsort(-dataset.token_counts.reshape(-1, 2).max(1), kind="stable")
    half = max(1, batch_size // 2)
    for start in range(0, len(order), half):
        chosen = order[start : start + half]
        batch = dataset.batch((2 * chosen[:, None] + np.arange(2)).reshape(-1))
        draws = _draws(model, chosen, samples, batch.lengths.shape[1], seed, like) if model.has_latent else None
        log_p[chosen] = weigh(model, batch, draws, posterior).log_p.cpu().numpy().reshape(-1, 2)
    return log_p


def _draws(
    model: Model, questions: NDArray[np.int64], samples: int, sentences: int, seed: int, like: torch.Tensor
) -> Draws:
    """Random numbers that depend on the question alone, whatever its batch; once more for the other ending."""
    normal, uniform = [], []
    for question in questions:
        rng = np.random.default_rng([seed, int(question)])
        normal.append(rng.standard_normal((samples, sentences, model.D), dtype=np.float32))
        uniform.append(rng.random((samples, sentences), dtype=np.float32))
    return Draws(*(torch.from_numpy(np.stack(drawn)).repeat_interleave(2, 0).to(like) for drawn in (normal, uniform)))

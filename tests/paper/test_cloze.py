"""Story Cloze: exact against the model's own likelihood, the control, and noise shared by both endings."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from fabula.corpus.dataset import Stories
from fabula.corpus.tokenize import tokenise
from fabula.corpus.vocabulary import Vocabulary
from fabula.errors import UserError
from fabula.models.batch import StoryDataset
from fabula.models.build import build
from fabula.models.lm import LM
from fabula.models.protocol import Model
from fabula.models.settings import DynamicsSettings, LanguageSettings, ModelSettings, RecognitionSettings
from fabula_paper.scores.cloze import Cloze, cloze, prepare_cloze

HEADER = (
    "InputStoryid,InputSentence1,InputSentence2,InputSentence3,InputSentence4,RandomFifthSentenceQuiz1,"
    "RandomFifthSentenceQuiz2,AnswerRightEnding"
)
CONTEXT = ["Tom had a dog.", "It ran off.", "He was sad.", "It came back."]
ENDINGS = ["Tom was glad.", "Tom sold a car to the dog."]


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary.from_counts(Counter(word for s in (*CONTEXT, *ENDINGS) for word in tokenise(s)), 1)


@pytest.fixture
def questions(tmp_path: Path, vocabulary: Vocabulary) -> Path:
    rows = [HEADER, ",".join(["a", *CONTEXT, *ENDINGS, "1"]), ",".join(["b", *CONTEXT[::-1], *ENDINGS[::-1], "1"])]
    file = tmp_path / "cloze.csv"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return prepare_cloze(file, vocabulary, tmp_path / "cloze.npz")


def small(kind: str, vocabulary: Vocabulary) -> Model:
    torch.manual_seed(0)
    settings = ModelSettings(
        kind=kind,
        language=LanguageSettings(embedding=8, hidden=12, layers=1),
        dynamics=DynamicsSettings(latent=2),
        recognition=RecognitionSettings(hidden=4),
    )
    return build(settings, len(vocabulary), torch.full((3,), 1 / 3), torch.full((3, 3), 1 / 3)).eval()


def test_the_lm_is_exact(questions: Path, vocabulary: Vocabulary) -> None:
    model = small("lm", vocabulary)
    assert isinstance(model, LM)
    found = cloze(model, questions)

    def log_p(*sentences: str) -> float:
        stories = Stories.from_sentences([[vocabulary.encode(tokenise(s)) for s in sentences]])
        with torch.inference_mode():
            return float(model.log_p_X(StoryDataset(stories, "cpu").batch(np.array([0]))).sum())

    assert found.right.tolist() == [0, 0]
    np.testing.assert_allclose(found.with_story[0], [log_p(*CONTEXT, e) for e in ENDINGS], rtol=1e-5)
    np.testing.assert_allclose(found.with_story[1], [log_p(*CONTEXT[::-1], e) for e in ENDINGS[::-1]], rtol=1e-5)
    np.testing.assert_allclose(found.ending_only[1], [log_p(e) for e in ENDINGS[::-1]], rtol=1e-5)


@pytest.mark.parametrize("law", ["filtering", "switching"])
@pytest.mark.parametrize("kind", ["slds", "lds"])
def test_noise_decides_nothing(kind: str, law: str, questions: Path, vocabulary: Vocabulary) -> None:
    """The same questions in other batches, and a question whose endings are the same: a tie, whatever the last bit."""
    model = small(kind, vocabulary)
    found = cloze(model, questions, samples=3, posterior=law)
    one_by_one = cloze(model, questions, samples=3, batch_size=2, posterior=law)
    np.testing.assert_allclose(one_by_one.with_story, found.with_story, rtol=1e-5)
    np.testing.assert_allclose(one_by_one.ending_only, found.ending_only, rtol=1e-5)
    assert not np.allclose(
        cloze(model, questions, samples=3, seed=1, posterior=law).with_story, found.with_story, rtol=1e-7
    )
    file = questions.with_suffix(".csv")
    file.write_text("\n".join([HEADER, ",".join(["a", *CONTEXT, ENDINGS[0], ENDINGS[0], "2"])]), encoding="utf-8")
    same = cloze(model, prepare_cloze(file, vocabulary, questions), samples=3, posterior=law)
    assert same.with_story[0, 0] == pytest.approx(same.with_story[0, 1], rel=1e-5)
    assert same.accuracies() == {"story": 0.5, "ending_only": 0.5, "difference": 0.5}


def test_accuracies_by_hand() -> None:
    """The story decides two of three, the ending alone one; what the story adds decides all."""
    found = Cloze(
        with_story=np.array([[-10.0, -20.0], [-10.0, -20.0], [-30.0, -20.0]]),
        ending_only=np.array([[-5.0, -4.0], [-3.0, -14.0], [-30.0, -15.0]]),
        right=np.array([0, 1, 0]),
    )
    assert found.accuracies() == pytest.approx({"story": 1 / 3, "ending_only": 0, "difference": 1})


def test_what_is_no_cloze_file_is_said(tmp_path: Path, vocabulary: Vocabulary) -> None:
    file = tmp_path / "stories.csv"
    file.write_text("storyid,sentence1\na,He ran.\n", encoding="utf-8")
    with pytest.raises(UserError, match="not a Story Cloze file"):
        prepare_cloze(file, vocabulary, tmp_path / "out.npz")
    with pytest.raises(UserError, match="cannot read"):
        prepare_cloze(tmp_path / "none.csv", vocabulary, tmp_path / "out.npz")
    with pytest.raises(UserError, match=re.escape("needs p(X)")):
        cloze(small("s2s", vocabulary), tmp_path / "out.npz")

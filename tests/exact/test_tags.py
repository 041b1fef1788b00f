"""q(S | X) from few labels: the fit is sparse, and rare words take over weights of similar words."""

import torch

from fabula.models.build import build
from fabula.models.settings import DynamicsSettings, LanguageSettings, ModelSettings, RecognitionSettings
from fabula.models.slds import SLDS
from fabula.training.tags import N0, SEEN, SPELLING, TAU, fit, smooth, spelled

WORDS = ("<pad>", "<unk>", "<bos>", "<eos>", "happy", "happily", "sad", "sadly", "the", "car")


def tiny() -> SLDS:
    torch.manual_seed(0)
    settings = ModelSettings(
        language=LanguageSettings(embedding=6, hidden=4),
        dynamics=DynamicsSettings(latent=2),
        recognition=RecognitionSettings(hidden=4, tags="words"),
    )
    model = build(settings, len(WORDS), torch.full((3,), 1 / 3), torch.full((3, 3), 1 / 3))
    assert isinstance(model, SLDS)
    return model


def test_fit_finds_the_words_that_carry_the_tag_and_leaves_the_rest_at_zero() -> None:
    model = tiny()
    X = torch.tensor([[8, 4, 9], [8, 6, 9], [8, 9, 0]] * 60)
    S = torch.tensor([2, 0, 1] * 60)
    fit(model, X, S, torch.Generator().manual_seed(0))
    size = model.recognition.valence.free.weight.abs().amax(1)
    assert (size[[4, 6]] > 0.2).all()
    assert (size[[5, 7]] < 0.02).all()
    sums = model.recognition.valence.free(X[:3]).sum(1)
    assert model.recognition.tag_of_words(sums).argmax(-1).tolist() == [2, 0, 1]


def test_smoothing_is_the_formula() -> None:
    """One word at a time, by hand: similarity of use and spelling, softmax over often seen words, never itself."""
    model = tiny()
    free = model.recognition.valence.free.weight
    with torch.no_grad():
        free[: len(WORDS)] = torch.randn(len(WORDS), free.shape[1])
    before = free.detach().clone()
    counts = torch.zeros(len(free))
    counts[[4, 6, 8]] = torch.tensor([float(SEEN), 20.0, 50.0])
    smooth(model, counts, WORDS)
    use = torch.nn.functional.normalize(model.language.embedding.weight[: len(WORDS)], dim=1)
    both = torch.nn.functional.normalize(torch.cat([use, SPELLING * spelled(WORDS)], 1), dim=1)
    for word in range(len(WORDS)):
        anchors = [u for u in (4, 6, 8) if u != word]
        weights = torch.stack([both[word] @ both[u] for u in anchors]).div(TAU).softmax(0)
        mean = sum(w * before[u] for w, u in zip(weights, anchors, strict=True))
        expected = before[word] + N0 / (counts[word] + N0) * mean
        torch.testing.assert_close(free[word], expected, rtol=1e-4, atol=1e-5)


def test_spelling_brings_inflections_together() -> None:
    near = spelled(WORDS)
    assert near[4] @ near[5] > 0.4
    assert near[4] @ near[6] < 0.1

"""Guidance: words from r (r / p)^g as `sampling/guidance.py` defines it, and log p of what was written under p."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fabula.models.decoders.protocol import Given
from fabula.sampling import guidance, smc
from fabula.sampling.batch import infill_batch
from fabula.sampling.guidance import FAR, PLAUSIBLE, GuidedDecoder
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import SMCSettings
from small import scaled
from toy_decoder import END, Cache, PairTokenizer, ToyDecoder, ToyModel

GOING = torch.tensor([False, False])


@pytest.fixture(scope="module")
def model() -> ToyModel:
    torch.manual_seed(3)
    return scaled(ToyModel(3), 1.5).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def decoder(model: ToyModel) -> ToyDecoder:
    return model.decoder


@pytest.fixture(scope="module")
def given() -> Given:
    encode = PairTokenizer().encode
    batch = infill_batch([[encode("ab."), None, encode("bc bb.")], [encode("ac bb."), None, encode("ab.")]], end=END)
    return Given(batch.X, batch.lengths, batch.present, batch.missing)


def after_first(decoder: ToyDecoder, given: Given, state: Cache) -> Cache:
    state, _ = decoder.read(
        decoder.begin_sentence(state, torch.tensor([0, 2])), given.X[:, 0], given.lengths[:, 0], None
    )
    return decoder.begin_sentence(state, torch.tensor([1, -1]))


def expected(log_r: Tensor, log_p: Tensor, weight: float) -> Tensor:
    """By the definition, word by word."""
    rows = []
    for r, p in zip(log_r.log_softmax(-1).tolist(), log_p.log_softmax(-1).tolist(), strict=True):
        best = max(r)
        rows.append([a + weight * (a - b) if a > best - PLAUSIBLE else a - FAR for a, b in zip(r, p, strict=True)])
    return torch.tensor(rows)


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_words_have_r_times_its_ratio_to_p(decoder: ToyDecoder, given: Given, weight: float) -> None:
    """Two stories word by word, their rows exchanged on the way, one replaced by a copy of the other at the end."""
    r, p = (after_first(decoder, given, decoder.start(2, None, lines)) for lines in (given, None))
    guided = GuidedDecoder(decoder)
    state = replace(guided.start(2, None, given), weight=torch.tensor([weight, weight]))
    state, log_p = guided.read(
        guided.begin_sentence(state, torch.tensor([0, 2])), given.X[:, 0], given.lengths[:, 0], None
    )
    first = decoder.begin_sentence(decoder.start(2), torch.tensor([0, 2]))
    torch.testing.assert_close(log_p, decoder.read(first, given.X[:, 0], given.lengths[:, 0], None)[1])
    state, total = guided.begin_sentence(state, torch.tensor([1, -1])), torch.zeros(2)
    for word in (3, 5, 2):
        scores, state = guided.step(state, None, GOING)
        (log_r, r), (log_q, p) = decoder.step(r, None, GOING), decoder.step(p, None, GOING)
        torch.testing.assert_close(scores, expected(log_r, log_q, weight))
        assert (scores.softmax(-1) - log_r.softmax(-1)).abs().max() > 1e-3
        total = (total + log_q.log_softmax(-1)[:, word]).flip(0)
        swap, tokens = torch.tensor([1, 0]), torch.tensor([word, word])
        state, r, p = state.then(tokens).select(swap), r.then(tokens).select(swap), p.then(tokens).select(swap)
    scores, state = guided.step(state, None, torch.tensor([False, True]))  # a row that is done stays where it is
    state = state.then(torch.tensor([END, END]))
    total[0] += decoder.step(p, None, GOING)[0].log_softmax(-1)[0, END]
    assert total.isfinite().all()
    torch.testing.assert_close(state.log_p, total)
    copied = state.put(torch.tensor([1]), state.select(torch.tensor([0])))
    torch.testing.assert_close(copied.log_p, total[[0, 0]])
    torch.testing.assert_close(copied.under_p.keys, state.under_p.select(torch.tensor([0, 0])).keys)


@pytest.mark.parametrize("stories", [["ab. _ bc_bb. _", "_ _ ac_bb."], ["_ ab. ac.", "ab. _ bc."]])
def test_stories_that_are_written_with_guidance_have_their_log_p_under_p(model: ToyModel, stories: list[str]) -> None:
    """Gaps before and after the last given line, stories of two lengths, particles that are resampled."""
    encode, rules = PairTokenizer().encode, WordRules.of(PairTokenizer())
    lines = [[None if line == "_" else encode(line.replace("_", " ")) for line in story.split()] for story in stories]
    batch = infill_batch(lines, end=END)
    chosen = SMCSettings.plain(samples=6, max_words=6, guidance=0.7, top_k=4, resample_below=1.0)
    noise = Noise([seeded(0), seeded(1)], batch.sentences, 6, "cpu")
    with torch.inference_mode():
        drawn, _ = smc.draw_groups(model, rules, batch, smc.without_latents(batch), chosen, [noise])
    state = model.decoder.start(12)
    for i in range(batch.X.shape[1]):
        state = model.decoder.begin_sentence(state, drawn.S[:, i])
        state, log_p = model.decoder.read(state, drawn.X[:, i], drawn.lengths[:, i], None)
        torch.testing.assert_close(drawn.log_p[:, i], log_p)


def test_words_that_rules_force_can_be_written_however_unlikely(
    decoder: ToyDecoder, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word that r gives less than e^-PLAUSIBLE of its best keeps a finite score."""
    monkeypatch.setattr(guidance, "PLAUSIBLE", 0.1)
    guided = GuidedDecoder(decoder)
    state = replace(guided.start(2, None, given), weight=torch.tensor([0.5, 0.0]))
    scores, _ = guided.step(guided.begin_sentence(state, None), None, GOING)
    log_r, _ = decoder.step(decoder.begin_sentence(decoder.start(2, None, given), None), None, GOING)
    possible = log_r.isfinite()
    assert scores[possible].isfinite().all()
    assert not scores[~possible].isfinite().any()
    far = possible & (log_r < log_r.amax(-1, keepdim=True) - 0.1)
    assert far[0].any()
    torch.testing.assert_close(scores[0, far[0]], (log_r.log_softmax(-1) - FAR)[0, far[0]])
    torch.testing.assert_close(scores[1], log_r.log_softmax(-1)[1])  # no given line follows: r itself


def written(model: ToyModel, guidance: float, top_k: int) -> tuple[Tensor, Tensor]:
    """Words and weights of six particles; the second story's first sentence has opening words."""
    encode = PairTokenizer().encode
    lines = [[None, None, encode("ab.")], [None, encode("ac."), encode("bc bb.")]]
    batch = infill_batch(lines, openings=[{}, {0: encode("bc ab")}], end=END)
    chosen = SMCSettings.plain(samples=6, max_words=6, guidance=guidance, top_k=top_k, resample_below=0.0)
    noise = Noise([seeded(0), seeded(1)], batch.sentences, 6, "cpu")
    with torch.inference_mode():
        rules, draws = WordRules.of(PairTokenizer()), smc.without_latents(batch)
        drawn, _ = smc.draw_groups(model, rules, batch, draws, chosen, [noise])
    return drawn.X, drawn.log_weight


def test_given_lines_that_are_not_in_view_do_not_guide(model: ToyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, guided = (written(model, guidance, 4)[0] for guidance in (0.0, 3.0))
    assert not torch.equal(plain[:6], guided[:6])
    monkeypatch.setattr(guidance, "PLAUSIBLE", 1e3)
    monkeypatch.setattr(model.decoder, "sees", 1)
    assert torch.equal(plain, written(model, 3.0, 4)[0])


def test_opening_words_weigh_as_they_do_without_guidance(model: ToyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """However unlikely they are."""
    monkeypatch.setattr(guidance, "PLAUSIBLE", 0.01)
    (X, log_w), (guided, weights) = (written(model, weight, 1) for weight in (0.0, 1e-6))
    assert torch.equal(X, guided)
    torch.testing.assert_close(log_w, weights)

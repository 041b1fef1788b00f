"""S in the read-out, p(X_i | Z_i, S_i, X_:i): against softmax written out, enumeration of S, and the model without."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from fabula.corpus.dataset import Stories
from fabula.corpus.vocabulary import EOS, PAD, SPECIALS, Vocabulary
from fabula.metrics.bound import shared_draws, weigh
from fabula.metrics.fit import fits
from fabula.models.batch import Batch, StoryDataset
from fabula.models.build import build
from fabula.models.decoders.gru import FEW
from fabula.models.decoders.words import WordTokenizer
from fabula.models.settings import DynamicsSettings, LanguageSettings, ModelSettings, RecognitionSettings
from fabula.models.slds import SLDS
from fabula.sampling import gibbs
from fabula.sampling.batch import InfillBatch, infill_batch
from fabula.sampling.gibbs import LatentConditional
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import GibbsSettings

SIZES, K, D, WORDS = (2, 3), 6, 2, 11
STORIES = [[[4, 5], [6], [7, 8, 9]], [[4, 6], [10]]]
EVERY = list(itertools.product(range(K), repeat=3))


def settings(state_bias: bool = True) -> ModelSettings:
    return ModelSettings(
        language=LanguageSettings(embedding=5, hidden=6, layers=2, dropout=0.0, state_bias=state_bias),
        dynamics=DynamicsSettings(latent=D, factors="2,3"),
        recognition=RecognitionSettings(hidden=4, dropout=0.0),
    )


def tiny(state_bias: bool = True, loud: float = 1.5) -> SLDS:
    torch.manual_seed(4)
    model = build(
        settings(state_bias), WORDS, torch.rand(K).softmax(0), (torch.rand(K, K) + 3 * torch.eye(K)).softmax(1)
    )
    assert isinstance(model, SLDS)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            if parameter is not model.language.c_labels:
                parameter.add_(0.2 * torch.randn_like(parameter))
        model.language.output.bias[WORDS:] = -1e4
        if model.language.c_labels is not None:
            model.language.c_labels[:, :WORDS] = loud * torch.randn(5, WORDS)
    return model.double().eval().requires_grad_(False)


def a_batch() -> Batch:
    return StoryDataset(Stories.from_sentences(STORIES), "cpu").batch(np.arange(2))


def some_Z() -> Tensor:
    return torch.randn(2, 3, D, generator=torch.Generator().manual_seed(7)).double()


def written_out(model: SLDS, batch: Batch, Z: Tensor) -> Tensor:
    """log p of every token under every state [batch, token, state], each state's scores normalised for themselves."""
    features = model.language(batch.previous, torch.stack([Z[row, batch.sentence[row]] for row in range(len(Z))]))
    assert model.language.c_labels is not None
    each = []
    for mood, other in itertools.product(range(2), range(3)):
        scores = model.language.output(features) + model.language.c_labels[mood] + model.language.c_labels[2 + other]
        each.append(scores.log_softmax(-1).gather(-1, batch.tokens.unsqueeze(-1)).squeeze(-1))
    return torch.stack(each, -1).masked_fill((batch.tokens == PAD).unsqueeze(-1), 0.0)


def test_every_state_has_a_law_of_words_of_its_own() -> None:
    model, batch, Z = tiny(), a_batch(), some_Z()
    words = written_out(model, batch, Z)
    assert (words.amax(-1) - words.amin(-1)).max() > 1
    sums = torch.stack([batch.per_sentence(words[..., k]) for k in range(K)], -1)
    torch.testing.assert_close(model.log_p_X_each(batch, Z), sums, rtol=0, atol=1e-10)
    S = torch.tensor([[3, 0, 5], [1, 4, -1]])
    known = sums.gather(-1, S.clamp(min=0).unsqueeze(-1)).squeeze(-1) * batch.present
    torch.testing.assert_close(model.log_p_X(batch, Z, S), known, rtol=0, atol=1e-10)
    torch.testing.assert_close(
        model.log_p_X_mixed(batch, Z, model.one_hot(S) * batch.present.unsqueeze(-1)), known.sum(1), rtol=0, atol=1e-10
    )
    for k in (1, 5):
        torch.testing.assert_close(model.log_p_sentence(batch, Z, 1, k), sums[:, 1, k], rtol=0, atol=1e-10)


@pytest.mark.parametrize("tags", [None, [[-1, 2, -1], [-1, -1, -1]], [[-6, -1, 4], [3, -2, -1]]])
def test_words_with_S_summed_out_are_those_of_the_enumeration(tags: list[list[int]] | None) -> None:
    """p(x_t | Z, the words before), for every token of both stories, by summing over all K^3 paths of S.

    Below -1 stand tags that fix one factor of the two.
    """
    model, batch, Z = tiny(), a_batch(), some_Z()
    S = None if tags is None else torch.tensor(tags)
    words, steps = written_out(model, batch, Z), model.log_p_Z_each(Z)
    allowed = None if S is None else model.open_states(S)
    found = model.log_p_words(batch, Z, S)
    for row, story in enumerate(STORIES):
        N, paths, laws = len(story), [], []
        for path in itertools.product(range(K), repeat=N):
            if allowed is not None and not all(allowed[row, i, s] for i, s in enumerate(path)):
                continue
            log_p = model.scaffold.initial()[path[0]]
            log_p = log_p + sum(model.scaffold.transition()[a, b] for a, b in itertools.pairwise(path))
            paths.append(log_p + sum(steps[row, i, s] for i, s in enumerate(path)))
            laws.append(words[row].gather(1, torch.tensor(path)[batch.sentence[row]][:, None]).squeeze(1))
        log_p_S, told = torch.stack(paths).double(), torch.stack(laws).cumsum(1)
        beginnings = (log_p_S[:, None] + told).logsumexp(0)
        expected = beginnings.diff(prepend=log_p_S.logsumexp(0)[None])
        torch.testing.assert_close(found[row], expected * (batch.tokens[row] != PAD), rtol=0, atol=1e-6)


@pytest.mark.parametrize("rows", [3, FEW + 5])
def test_reading_and_writing_word_by_word_know_the_state(rows: int) -> None:
    """`read`, `read_each` and `step` after `begin_sentence`, few rows and many; rows are moved on the way."""
    decoder = tiny().float().decoder
    generator = torch.Generator().manual_seed(2)
    s, z = torch.randint(-1, K, (rows,), generator=generator), torch.randn(rows, D, generator=generator)
    tokens = torch.randint(4, WORDS, (rows, 4), generator=generator)
    tokens[:, 3] = EOS
    order = torch.randperm(rows, generator=generator)
    state = decoder.start(rows, z)
    state = decoder.begin_sentence(state, s).select(order)
    after, log_p = decoder.read(state, tokens[order], torch.full((rows,), 4), z[order])
    _, each = decoder.read_each(state, tokens[order], torch.full((rows,), 4), z[order])
    still = torch.zeros(rows, dtype=torch.bool)
    total = torch.zeros(rows)
    state = state.select(order[:1]).join(state.select(order[1:])).select(order.argsort())
    for t in range(4):
        scores, state = decoder.step(state, z[order], still)
        total = total + scores.log_softmax(-1).gather(1, tokens[order, t][:, None]).squeeze(1)
        state = state.then(tokens[order, t])
    torch.testing.assert_close(log_p, total, rtol=0, atol=1e-4)
    known = s[order] >= 0
    torch.testing.assert_close(
        each.gather(1, s[order].clamp(min=0)[:, None]).squeeze(1)[known], total[known], rtol=0, atol=1e-4
    )
    torch.testing.assert_close(after.hidden, state.hidden, rtol=0, atol=1e-5)
    assert (each.amax(1) - each.amin(1)).min() > 0.1
    free = decoder.begin_sentence(after, None)
    assert free.s.tolist() == [-1] * rows
    assert free.put(order[:2], after.select(order[:2])).s[order[:2]].tolist() == after.s[order[:2]].tolist()


def test_zero_biases_are_the_model_without() -> None:
    """The shipped models' case: the same weights, with c = 0 and with none; and training begins there."""
    plain, zero = tiny(state_bias=False), tiny(loud=0.0)
    missing = zero.load_state_dict(plain.state_dict(), strict=False)
    assert missing.missing_keys == ["language.c_labels"]
    assert not missing.unexpected_keys
    batch, Z = a_batch(), some_Z()
    torch.testing.assert_close(zero.log_p_words(batch, Z), plain.log_p_words(batch, Z), rtol=0, atol=1e-10)
    S = torch.tensor([[3, 0, 5], [1, 4, -1]])
    torch.testing.assert_close(zero.log_p_X(batch, Z, S), plain.log_p_X(batch, Z, S), rtol=0, atol=1e-10)
    draws = shared_draws(plain, batch, 4, torch.Generator().manual_seed(0))
    weighed = [weigh(model.float(), batch, draws, "filtering").log_w for model in (plain, zero)]
    torch.testing.assert_close(*weighed, rtol=0, atol=1e-4)
    fresh = build(settings(), WORDS, torch.full((K,), 1 / K), torch.full((K, K), 1 / K))
    assert isinstance(fresh, SLDS)
    assert fresh.language.c_labels is not None
    assert fresh.language.c_labels.shape[0] == sum(SIZES)  # a label's, not a state's
    assert not fresh.language.c_labels.any()


def test_a_model_without_states_has_none() -> None:
    for kind in ("lm", "s2s"):
        with pytest.raises(ValueError, match="state_bias"):
            ModelSettings(kind=kind, language=LanguageSettings(state_bias=True))


def a_story(sentences: list[list[int] | None]) -> InfillBatch:
    return infill_batch([sentences])


def test_explain_sums_over_the_states_that_words_tell_of() -> None:
    """The particle filter's log p of each beginning against plain importance sampling: 8,000 draws, deviation .01."""
    model = tiny().float()
    story = a_story([list(s) for s in STORIES[0]])
    found = fits(model, story, 8_000, torch.Generator().manual_seed(1))
    begun = [0.0]
    for n in (1, 2, 3):
        batch = StoryDataset(Stories.from_sentences([STORIES[0][:n]]), "cpu").batch(np.arange(1))
        draws = shared_draws(model, batch, 8_000, torch.Generator().manual_seed(5))
        begun.append(float(weigh(model, batch, draws, "filtering").log_p))
    assert found.before == pytest.approx(np.diff(begun).tolist(), abs=0.06)


def test_the_gibbs_step_draws_S_given_Z_and_X(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 chains at one Z and X: the frequency of every path of S at 5 standard errors against the enumeration
    (216 cells, false alarm below 1e-4); p(S | Z) alone is 10 and more away."""
    model, chains = tiny().float(), 10_000
    story = a_story([list(s) for s in STORIES[0]]).repeat(chains)
    Z = some_Z()[:1].float()
    monkeypatch.setattr(gibbs, "sweep_Z", lambda *_: Z.expand(chains, -1, -1))
    noise = Noise([seeded(3)], [3], chains, "cpu")
    begun, log_p_X = torch.zeros(chains, 3, dtype=torch.int64), torch.zeros(chains, 3)
    state = gibbs.GibbsState(begun, Z.expand(chains, -1, -1), story.X, story.lengths, log_p_X)
    how = GibbsSettings(samples=chains, chains=chains, tags="free")
    rules = WordRules.of(WordTokenizer(Vocabulary((*SPECIALS, ".", *"abcdef"))))
    S = gibbs.sweep(model, LatentConditional(model.dynamics), rules, story, how, state, noise).S
    batch = StoryDataset(Stories.from_sentences([STORIES[0]]), "cpu").batch(np.arange(1))
    evidence = (model.log_p_Z_each(Z) + model.log_p_X_each(batch, Z))[0]
    log_p = torch.stack([
        model.scaffold.initial()[path[0]]
        + sum(model.scaffold.transition()[a, b] for a, b in itertools.pairwise(path))
        + sum(evidence[i, s] for i, s in enumerate(path)) for path in EVERY
    ])  # fmt: skip
    p = log_p.softmax(0)
    counted = torch.bincount(S @ torch.tensor([36, 6, 1]), minlength=216) / chains
    cells = p * chains > 20
    assert (((counted - p).abs() / (p * (1 - p) / chains).sqrt())[cells]).max() < 5

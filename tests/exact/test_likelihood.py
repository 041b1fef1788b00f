"""What `fabula evaluate likelihood` prints, against enumeration and quadrature; and what its bound still lacks."""

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fabula.corpus.transitions import Transitions
from fabula.corpus.vocabulary import EOS
from fabula.metrics.bound import Weighed, fit_precision, slack
from fabula.metrics.likelihood import likelihood, macro_f1, prior_log_p_X
from fabula.metrics.measure import log_p_of_tags
from fabula.metrics.record import mean_and_error
from fabula.models.batch import Batch, StoryDataset
from fabula.models.lm import LM
from fabula.models.s2s import S2S
from fabula.models.slds import SLDS
from small import log_p_S, log_p_Z, stories_of, tiny_model

K = 2
STORY, TAGS = [[4, 5], [6], [7, 8]], [0, 1, 1]
LINE = torch.linspace(-8, 8, 40, dtype=torch.float64)


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


def a_shelf(copies: int) -> StoryDataset:
    return StoryDataset(stories_of([STORY] * copies, [list(TAGS)] * copies), "cpu")


def one() -> Batch:
    return a_shelf(1).batch(np.arange(1))


@torch.no_grad()
def on_the_grid(model: SLDS) -> tuple[Tensor, Tensor]:
    """Every Z of the grid [points, 3] and log p(X_i | Z, X_:i) there [points, 3]."""
    Z = torch.cartesian_prod(LINE, LINE, LINE)
    return Z, model.log_p_X(one().repeat(len(Z)), Z.unsqueeze(-1))


def log_p_X(model: SLDS) -> float:
    """log p(X) of the story: every path of S enumerated, Z integrated on the grid."""
    Z, words = on_the_grid(model)
    paths = itertools.product(range(K), repeat=3)
    each = [torch.logsumexp(words.sum(-1) + log_p_Z(model, Z, path), 0) + log_p_S(model, path) for path in paths]
    return float(torch.logsumexp(torch.stack(each), 0) + 3 * (LINE[1] - LINE[0]).log())


@pytest.mark.parametrize("posterior", ["filtering", "smoothing", "switching"])
@torch.no_grad()
def test_bounds_close_in_on_log_p_X(model: SLDS, posterior: str) -> None:
    """With 200 samples the importance-weighted bound is within 0.03 nats of the enumerated log p(X) (its own
    noise is about 0.005); the ELBO is worse."""
    truth = log_p_X(model)
    found = likelihood(model, a_shelf(60), characters=60 * 30, samples=200, posterior=posterior)
    assert abs(-found["nll_story"] - truth) < 0.03
    tokens = sum(len(sentence) + 1 for sentence in STORY)
    assert found["ppl_iw"] == pytest.approx(np.exp(found["nll_story"] / tokens), rel=1e-4)
    assert found["ppl_elbo"] > found["ppl_iw"] + 0.001
    assert found["bits_per_character"] == pytest.approx(found["nll_story"] / 30 / np.log(2), rel=1e-3)
    assert found["tokens"] == 60 * tokens
    guess = model.evidence(one()).log_q_S.argmax(-1)[0]
    assert found["f1_s"] == pytest.approx(macro_f1(torch.tensor(TAGS), guess, K), rel=1e-4)


@pytest.mark.parametrize("posterior", ["smoothing", "switching"])
@torch.no_grad()
def test_a_calibrated_q_tightens_the_bound_and_keeps_it_one(model: SLDS, posterior: str) -> None:
    """phi made e^5 times as sure of Z: the fitted factor takes that back, and most of what the bound lacked with it.

    The truth is enumerated; a bound by 8 samples on 60 copies of a story may pass it by its noise alone (below 0.1).
    """
    sure = copy.deepcopy(model)
    sure.recognition.phi_log_precision.bias.add_(5.0)
    truth, shelf = log_p_X(sure), a_shelf(60)
    factor = fit_precision(sure, shelf, posterior)
    assert factor < 0.2
    lacks = []
    for precision in (1.0, factor):
        found = likelihood(sure, shelf, characters=9, samples=8, posterior=posterior, precision=precision)
        assert found["q_precision"] == precision
        lacks.append(truth + found["nll_story"])
    assert min(lacks) > -0.1
    assert lacks[1] < 0.5 * lacks[0]
    assert fit_precision(tiny_model("lm"), shelf, posterior) == 1.0


@torch.no_grad()
def test_z_use_draws_from_the_prior_given_tags(model: SLDS) -> None:
    """E log p(X | Z) under p(Z | S), S the known tags: 2,000 draws against the grid, 5 standard errors."""
    Z, words = on_the_grid(model)
    weights = log_p_Z(model, Z, tuple(TAGS)).softmax(0)
    expected = float(weights @ words.sum(-1))
    batch = a_shelf(400).batch(np.arange(400))
    value, se = mean_and_error(prior_log_p_X(model, batch, torch.Generator().manual_seed(0)))
    assert abs(value - expected) < 5 * se
    assert se < 0.05


@torch.no_grad()
def test_a_language_model_is_exact() -> None:
    model = tiny_model("lm")
    assert isinstance(model, LM)
    found = likelihood(model, a_shelf(3), characters=90)
    assert found["nll_story"] == pytest.approx(-float(model.log_p_X(one()).sum()), rel=1e-4)
    assert found["ppl"] == pytest.approx(np.exp(found["nll_story"] / 8), rel=1e-4)
    assert set(found["kinds"].values()) == {"exact"}


@torch.no_grad()
def test_s2s_pays_for_its_tags() -> None:
    """Per token of its own: one <eos> for the story; including log p(S) it bounds log p(X)."""
    model = tiny_model("s2s")
    assert isinstance(model, S2S)
    dataset = a_shelf(3)
    stories = stories_of([STORY] * 3, [list(TAGS)] * 3)
    transitions = Transitions(np.array([7, 3]), np.array([[8, 2], [3, 7]]), smoothing=1e-9)
    log_p = log_p_of_tags(stories, transitions)
    assert log_p is not None
    assert log_p == pytest.approx(np.log(0.7 * 0.2 * 0.7))
    found = likelihood(model, dataset, characters=90, log_p_S=log_p)
    nll = -float(model.log_p_X(one()).sum())
    assert found["nll_story"] == pytest.approx(nll, rel=1e-4)
    assert found["ppl"] == pytest.approx(np.exp(nll / 6), rel=1e-4)
    assert found["ppl_with_tags"] == pytest.approx(np.exp((nll - np.log(0.098)) / 6), rel=1e-4)
    assert found["kinds"]["ppl_with_tags"] == "bound"
    assert [word for sentence in STORY for word in sentence].count(EOS) == 0
    partly = stories_of([STORY], [[0, None, 1]])
    assert log_p_of_tags(partly, transitions) is None


def test_macro_f1_by_hand() -> None:
    """F1 of 1/2 and 2/3; a state nobody has or guesses is left out."""
    truth, guess = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 1, 1, 1, 0])
    assert macro_f1(truth, guess, 2) == pytest.approx(100 * (1 / 2 + 2 / 3) / 2)
    assert macro_f1(truth, guess, 3) == macro_f1(truth, guess, 2)
    assert macro_f1(truth, truth, 2) == 100


def test_slack_is_what_a_power_law_says() -> None:
    """L(M) = 100 + 8 M^-beta by M = 10, 20, 40: the estimate is 8 * 40^-beta, exactly."""
    for beta in (0.3, 0.5, 1.0):
        bounds = [[100 + 8 * samples**-beta] * 3 for samples in (10, 20, 40)]
        assert slack(*bounds) == pytest.approx(8 * 40**-beta, rel=1e-6)


def test_slack_is_unknown_where_growth_does_not_slow_down() -> None:
    assert slack([103.0], [102.0], [101.0]) == np.inf
    assert slack([100.0], [100.0], [100.0]) == 0.0
    # Growth that slows down faster than 1/M is taken for 1/M.
    assert slack([110.0], [100.5], [100.0]) == pytest.approx(0.5)


def test_fewer_samples_are_averaged_over_all_their_groups() -> None:
    log_w = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    weighed = Weighed(log_w, torch.zeros_like(log_w), torch.zeros(1, 1))
    pairs = [np.log((1 + np.e) / 2), np.log((np.e**2 + np.e**3) / 2)]
    assert float(weighed.log_p_by(2)) == pytest.approx(np.mean(pairs), abs=1e-6)
    assert float(weighed.log_p_by(1)) == pytest.approx(1.5)
    assert float(weighed.log_p_by(4)) == pytest.approx(float(weighed.log_p))

"""Every objective against log p(X) by brute force: all paths of S, a grid over Z, in float64.

The model is tiny (one latent, two states, five words) but whole: a story of three sentences and one of two, in one
batch. Laws of Z and S are written down here with torch's own distributions; log p(X | Z) is the model's, which
test_language.py proves.
"""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fabula.metrics.bound import independent_draws, weigh
from fabula.models.batch import Batch, StoryDataset
from fabula.models.protocol import Terms
from fabula.models.recognition import Evidence
from fabula.models.slds import SLDS
from fabula.statespace.chain import Draw
from fabula.training.losses.elbo import gumbel_softmax, kl_of_tags, terms
from fabula.training.recipe import ObjectiveSettings
from small import log_p_S, log_p_Z, stories_of, tiny_model

K, DRAWS = 2, 10_000
STORIES = [[[4, 5], [6], [7, 8]], [[4, 6], [7]]]
TAGS = [[0, 1, 1], [1, 0]]
POSTERIORS = ["filtering", "smoothing"]


def tiny() -> SLDS:
    """Evidence below the prior's own precision, states not too far apart: else the weights' variance is infinite."""
    model: SLDS = tiny_model(log_precision=-1.5, bias=(0.4, -0.3))
    return model


@pytest.fixture(scope="module")
def model() -> SLDS:
    return tiny()


def a_batch(tags: list[list[int | None]] | None = None) -> Batch:
    dataset = StoryDataset(stories_of(STORIES, tags), "cpu")
    return dataset.batch(np.arange(len(STORIES)))


def known() -> Batch:
    return a_batch([list(tags) for tags in TAGS])


@torch.no_grad()
def enumerate_story(model: SLDS, row: int, points: int = 40) -> dict[tuple[int, ...], float]:
    """log p(X, S) of one story for every path of S, Z integrated on a grid."""
    N = len(STORIES[row])
    line = torch.linspace(-8, 8, points, dtype=torch.float64)
    Z = torch.cartesian_prod(*[line] * N)
    alone = StoryDataset(stories_of([STORIES[row]]), "cpu").batch(np.arange(1))
    log_p_X = model.log_p_X(alone.repeat(len(Z)), Z.unsqueeze(-1)).sum(-1)
    cell = N * (line[1] - line[0]).log()
    return {
        path: float(torch.logsumexp(log_p_X + log_p_Z(model, Z, path), 0) + cell + log_p_S(model, path))
        for path in itertools.product(range(K), repeat=N)
    }


@pytest.fixture(scope="module")
def joint(model: SLDS) -> list[dict[tuple[int, ...], float]]:
    """log p(X, S) of both stories; a coarser grid gives the same to 5e-5, far below the errors of the draws."""
    found = [enumerate_story(model, row) for row in range(2)]
    for fine, coarse in zip(found, [enumerate_story(model, row, 34) for row in range(2)], strict=True):
        assert max(abs(fine[path] - coarse[path]) for path in fine) < 5e-5
    return found


def truth(joint: list[dict[tuple[int, ...], float]], tags: list[list[int | None]] | None) -> Tensor:
    """log p(X) of each story, or log p(X, known tags)."""
    totals = []
    for row, paths in enumerate(joint):
        fits = [
            value
            for path, value in paths.items()
            if tags is None or all(t is None or t == s for t, s in zip(tags[row], path, strict=True))
        ]
        totals.append(torch.tensor(fits, dtype=torch.float64).logsumexp(0))
    return torch.stack(totals)


@torch.no_grad()
def draws_of(model: SLDS, batch: Batch, settings: ObjectiveSettings, training: bool = False) -> Terms:
    """Terms of many draws, all of the first story's first."""
    torch.manual_seed(11)
    model.train(training)
    found = terms(model, batch.repeat(DRAWS), settings)
    model.eval()
    return found


def by_story(values: Tensor) -> Tensor:
    """[story, draw]."""
    return values.view(len(STORIES), DRAWS)


def below(values: Tensor, bound: Tensor) -> None:
    """The mean of the draws is below the bound: 4 standard errors, a false alarm below 1e-4 for each story."""
    se = values.std(1) / values.shape[1] ** 0.5
    assert (values.mean(1) <= bound + 4 * se).all(), (values.mean(1), bound, se)
    # A bound that is far off would hide a mistake; these are within two nats, and their noise is small.
    assert (values.mean(1) >= bound - 2.0).all(), (values.mean(1), bound)
    assert (se < 0.05).all()


def unbiased(log_w: Tensor, log_p: Tensor) -> None:
    """The mean weight is the probability: 5 standard errors (false alarm below 1e-6), themselves below 2 %."""
    ratio = (log_w - log_p.unsqueeze(1)).exp()
    se = ratio.std(1) / ratio.shape[1] ** 0.5
    assert (se < 0.02).all(), se
    assert ((ratio.mean(1) - 1).abs() < 5 * se).all(), (ratio.mean(1), se)


PARTLY: list[list[int | None]] = [[None, 1, None], [1, None]]
FULLY: list[list[int | None]] = [[0, 1, 1], [1, 0]]


@pytest.mark.parametrize("tags", [None, PARTLY, FULLY], ids=["no tags", "some tags", "all tags"])
@pytest.mark.parametrize(("posterior", "dropout"), [("filtering", 0.5), ("smoothing", 0.0), ("smoothing", 0.5)])
def test_collapsed_objective(
    model: SLDS, joint: Any, posterior: str, dropout: float, tags: list[list[int | None]] | None
) -> None:
    """Each draw of the collapsed bound is a log weight: unbiased for p(X, known tags), so its mean is a lower bound.

    Leaving out evidence changes q and the noise, never the expectation.
    """
    settings = ObjectiveSettings(posterior=posterior, evidence_dropout=dropout)  # type: ignore[arg-type]
    found = draws_of(model, a_batch(tags), settings, training=True)
    below(by_story(found.bound()), truth(joint, tags))
    unbiased(by_story(found.bound()), truth(joint, tags))
    assert not found.kl_S.any()
    assert not found.log_p_S.any()
    assert found.log_q_S.any() == (tags is not None)


def test_tags_that_only_teach_leave_the_sum_open(model: SLDS, joint: Any) -> None:
    """clamp_tags = false: known tags enter log q(S), and the bound stays one on log p(X)."""
    found = draws_of(model, known(), ObjectiveSettings(clamp_tags=False))
    unbiased(by_story(found.bound()), truth(joint, None))
    assert (found.log_q_S < 0).all()


@pytest.mark.parametrize("training", [True, False])
def test_evidence_dropout_silences_that_share_of_sentences(model: SLDS, training: bool, monkeypatch: Any) -> None:
    """phi of precision 0 for 30 % of the sentences in training (|z| < 5, false alarm below 1e-6), for none after it."""
    heard: list[Evidence] = []
    inner = model.draw_filtering

    def listen(evidence: Evidence, *others: Any) -> Draw:
        heard.append(evidence)
        return inner(evidence, *others)

    monkeypatch.setattr(model, "draw_filtering", listen)
    batch = a_batch()
    draws_of(model, batch, ObjectiveSettings(evidence_dropout=0.3), training=training)
    silent = (heard[0].phi.precision == 0).squeeze(-1)[batch.repeat(DRAWS).present].double()
    expected, n = 0.3 if training else 0.0, silent.numel()
    assert abs(float(silent.mean()) - expected) <= 5 * (expected * (1 - expected) / n) ** 0.5


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_the_papers_labelled_objective(model: SLDS, joint: Any, posterior: str) -> None:
    """L_S without its teacher's term: M + log p(S) <= log p(X, S)."""
    batch = known()
    settings = ObjectiveSettings(kind="paper", posterior=posterior)  # type: ignore[arg-type]
    found = draws_of(model, batch, settings)
    bound = truth(joint, FULLY)
    below(by_story(found.bound()), bound)
    expected = torch.stack([log_p_S(model, tuple(tags)) for tags in TAGS])
    torch.testing.assert_close(by_story(found.log_p_S)[:, 0], expected, rtol=0, atol=1e-10)
    assert not found.kl_S.any()
    if posterior == "smoothing":  # there the KL is sampled, and each draw is a weight
        unbiased(by_story(found.bound()), bound)


def test_the_papers_kl_of_z_is_the_mean_log_ratio(model: SLDS, joint: Any) -> None:
    """The closed-form KL of each step = E[log q(Z | S, X) - log p(Z | S)], paired draws, 5 standard errors; and the
    same draws make unbiased weights for p(X, S)."""
    batch = known().repeat(DRAWS)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        evidence = model.evidence(batch)
        noise = torch.randn(*batch.S.shape, 1, generator=generator, dtype=torch.float64)
        draw = model.draw_filtering(evidence, model.one_hot(batch.S), batch.present, noise)
        log_p_X = model.log_p_X(batch, draw.Z).sum(-1)
        prior = torch.empty_like(draw.kl)
        for row, tags in enumerate(TAGS):
            mine = slice(row * DRAWS, (row + 1) * DRAWS)
            prior[mine] = log_p_Z(model, draw.Z[mine, : len(tags), 0], tuple(tags))
    difference = (draw.kl - draw.log_q + prior).view(2, DRAWS)
    se = difference.std(1) / DRAWS**0.5
    assert (difference.mean(1).abs() < 5 * se).all()
    assert (se < 0.02).all()
    chains = torch.stack([log_p_S(model, tuple(tags)) for tags in TAGS])
    unbiased((log_p_X + prior - draw.log_q).view(2, DRAWS) + chains.unsqueeze(1), truth(joint, FULLY))


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_the_papers_unlabelled_objective_with_hard_tags(model: SLDS, joint: Any, posterior: str) -> None:
    """L with S ~ q(S) hard <= log p(X)."""
    settings = ObjectiveSettings(kind="paper", gumbel="hard", posterior=posterior)  # type: ignore[arg-type]
    found = draws_of(model, a_batch(), settings)
    below(by_story(found.bound()), truth(joint, None))
    assert not found.log_p_S.any()
    assert not found.log_q_S.any()
    assert (found.kl_S > 0).all()


@torch.no_grad()
def enumerated_kl_of_tags(model: SLDS) -> Tensor:
    """KL(q(S | X) || p(S)) of each story, over all paths."""
    log_q = model.evidence(a_batch()).log_q_S
    totals = []
    for row, story in enumerate(STORIES):
        total = torch.zeros((), dtype=torch.float64)
        for path in itertools.product(range(K), repeat=len(story)):
            of_path = sum((log_q[row, i, s] for i, s in enumerate(path)), torch.zeros((), dtype=torch.float64))
            total += of_path.exp() * (of_path - log_p_S(model, path))
        totals.append(total)
    return torch.stack(totals)


@torch.no_grad()
def test_kl_of_tags_is_the_enumerated_one(model: SLDS) -> None:
    """Over all hard paths, weighed by q: exact."""
    batch = a_batch()
    evidence = model.evidence(batch)
    N = max(map(len, STORIES))
    total = torch.zeros(len(STORIES), dtype=torch.float64)
    for path in itertools.product(range(K), repeat=N):
        s = F.one_hot(torch.tensor(path), K).double().expand(len(STORIES), N, K)
        weight = (evidence.log_q_S * s).sum((-1, -2)).exp()
        total += weight * kl_of_tags(model, evidence, s, batch)
    torch.testing.assert_close(total, enumerated_kl_of_tags(model), rtol=0, atol=1e-10)


@pytest.mark.parametrize("posterior", [*POSTERIORS, "switching"])
def test_importance_weights_are_unbiased(model: SLDS, joint: Any, posterior: str) -> None:
    """The weights of `fabula evaluate`: E[w] = p(X), and E[log mean of 20 w] lies between the ELBO and log p(X)."""
    log_p_X, batch = truth(joint, None), a_batch().repeat(DRAWS)
    with torch.no_grad():
        draws = independent_draws(model, batch, 1, posterior, torch.Generator().manual_seed(5))
        log_w = weigh(model, batch, draws, posterior).log_w.view(2, DRAWS)
    unbiased(log_w, log_p_X)
    below(log_w, log_p_X)
    tighter = torch.logsumexp(log_w.view(2, -1, 20), -1) - torch.tensor(20.0).log()
    below(tighter, log_p_X)
    assert (tighter.mean(1) > log_w.mean(1)).all()


@torch.no_grad()
def test_a_bound_that_commits_to_states_is_one(model: SLDS, joint: Any) -> None:
    """What validation measures for the paper's objective: unbiased and below log p(X), states drawn, S summed out."""
    log_p_X, settings = truth(joint, None), ObjectiveSettings(kind="collapsed", clamp_tags=False)
    generator = torch.Generator().manual_seed(6)
    found = terms(model, a_batch().repeat(DRAWS), settings, generator=generator, posterior="switching")
    unbiased(found.bound().view(2, DRAWS), log_p_X)
    below(found.bound().view(2, DRAWS), log_p_X)


def test_gumbel_softmax_hard_is_a_draw_from_q() -> None:
    """Corners of the simplex in the shares of q: six shares, |z| < 5, a false alarm below 4e-6."""
    q = torch.tensor([[0.6, 0.3, 0.1], [0.05, 0.05, 0.9]], dtype=torch.float64)
    log_q = q.log().expand(DRAWS, 2, 3)
    hard = gumbel_softmax(log_q, 0.7, True, torch.Generator().manual_seed(0))
    assert ((hard - hard.round()).abs() < 1e-12).all()
    torch.testing.assert_close(hard.sum(-1), torch.ones(DRAWS, 2, dtype=torch.float64))
    z = (hard.mean(0) - q) / (q * (1 - q) / DRAWS).sqrt()
    assert z.abs().max() < 5
    found = []  # a hard draw has the gradient of the soft one
    for is_hard in (False, True):
        log_q = torch.tensor([[[0.2, -0.4, 0.1]]], dtype=torch.float64, requires_grad=True)
        s = gumbel_softmax(log_q, 0.8, is_hard, torch.Generator().manual_seed(1))
        (s * torch.tensor([1.0, 2.0, 4.0])).sum().backward()
        found.append(log_q.grad)
    torch.testing.assert_close(found[0], found[1])
    assert found[0] is not None
    assert found[0].abs().max() > 0.01


class _Objective(nn.Module):
    """The bound as a module, so that its parameters can be swapped for gradcheck."""

    def __init__(self, model: SLDS, batch: Batch, settings: ObjectiveSettings) -> None:
        super().__init__()
        self.model, self.batch, self.settings = model, batch, settings

    def forward(self) -> tuple[Tensor, Tensor]:
        found = terms(self.model, self.batch, self.settings, generator=torch.Generator().manual_seed(1))
        return found.bound(), found.log_q_S


CHECKED = (
    "model.dynamics.A",
    "model.dynamics.bias",
    "model.dynamics.log_B",
    "model.recognition.phi_mean.weight",
    "model.recognition.phi_log_precision.bias",
    "model.recognition.tag_of_words.2.bias",
    "model.language.start_from_latent.weight",
    "model.language.project.weight",
)


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("kind", ["collapsed", "paper"])
def test_gradients_of_the_objective(kind: str, posterior: str) -> None:
    """gradcheck through draw, densities, recursion and words, with respect to weights of every factor."""
    settings = ObjectiveSettings(kind=kind, posterior=posterior, labelled=0.0)  # type: ignore[arg-type]
    objective = _Objective(tiny(), a_batch(PARTLY), settings)
    own = dict(objective.named_parameters())
    chosen = {name: own[name].detach().clone().requires_grad_() for name in CHECKED}

    def value(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        swapped = dict(zip(CHECKED, tensors, strict=True))
        found: tuple[Tensor, Tensor] = torch.func.functional_call(objective, swapped, ())
        return found

    assert torch.autograd.gradcheck(value, tuple(chosen.values()))


@pytest.mark.parametrize("labelled", [0.0, 0.1])
def test_labels_alone_teach_q_of_s_where_there_are_any(labelled: float) -> None:
    """The collapsed bound has no gradient into q(S | X) as soon as some stories are labelled."""
    model = tiny()
    found = terms(model, a_batch(), ObjectiveSettings(labelled=labelled), generator=torch.Generator().manual_seed(0))
    found.bound().sum().backward()
    gradient: Tensor | None = model.recognition.tag_of_words[0].weight.grad  # type: ignore[assignment]
    moved = gradient is not None and bool((gradient != 0).any())
    assert moved == (labelled == 0)

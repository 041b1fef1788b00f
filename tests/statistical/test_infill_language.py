"""The sampled X step and bridge's weights against a language small enough to enumerate.

Eight sentences can be written, so conditionals of X are sums over them; Z is integrated by plain Monte Carlo from the
prior, with every sentence summed out exactly, so that its own error is far below what is tested.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from fabula.corpus.vocabulary import EOS, PAD, SPECIALS, Vocabulary
from fabula.models.build import build
from fabula.models.decoders.gru import GRUState
from fabula.models.decoders.words import WordTokenizer
from fabula.models.gaussian import Potential
from fabula.models.settings import DynamicsSettings, LanguageSettings, ModelSettings, RecognitionSettings
from fabula.models.slds import SLDS
from fabula.sampling import gibbs, ranking, smc
from fabula.sampling.batch import InfillBatch, evidence, flatten, infill_batch
from fabula.sampling.decode import DecodingConfig
from fabula.sampling.latents import draw_latents
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rules import WordRules

VOCABULARY = Vocabulary((*SPECIALS, ".", "a", "b"))
RULES = WordRules.of(WordTokenizer(VOCABULARY))
WORDS = 4
SENTENCES = [
    [5, EOS],
    [6, EOS],
    [5, 4, EOS],
    [6, 4, EOS],
    [5, 5, 4, EOS],
    [5, 6, 4, EOS],
    [6, 5, 4, EOS],
    [6, 6, 4, EOS],
]
"""All that four words at most can say: a spoken word first; before the limit's end a final mark."""
ALL = torch.tensor([s + [PAD] * (WORDS - len(s)) for s in SENTENCES])
KEYS = {tuple(row): number for number, row in enumerate(ALL.tolist())}


def tiny(state_bias: bool = False) -> SLDS:
    torch.manual_seed(8)
    settings = ModelSettings(
        language=LanguageSettings(embedding=4, hidden=6, tied=False, state_bias=state_bias),
        dynamics=DynamicsSettings(latent=2),
        recognition=RecognitionSettings(hidden=4),
    )
    model = build(settings, len(VOCABULARY), torch.tensor([0.6, 0.4]), torch.tensor([[0.7, 0.3], [0.2, 0.8]]))
    assert isinstance(model, SLDS)
    with torch.no_grad():
        # Loud enough that what is said depends strongly on Z and on what was said before.
        for layer in model.language.layers:
            for parameter in layer.parameters():
                parameter.mul_(4)
        model.language.output.weight.mul_(4)
        model.language.output.bias[: len(VOCABULARY)] = torch.tensor([-9.0, -9.0, -9.0, 0.5, 0.0, 0.5, 0.5])
        if model.language.c_labels is not None:
            model.language.c_labels[:, :7] = torch.tensor([[0, 0, 0, 0, 0, 1.5, -1.5], [0, 0, 0, 1, 0, -1.5, 1.5]])
    return model.eval().requires_grad_(False)


def log_p_of(model: SLDS, X: Tensor, Z: Tensor, S: Tensor | None = None) -> Tensor:
    """log p(X_i | X_:i, Z_i, S_i) of whole stories, rows x sentences."""
    return model.log_p_X(flatten(X, (X != PAD).sum(-1)), Z, S)


def which(words: Tensor) -> Tensor:
    return torch.tensor([KEYS[tuple(row)] for row in words[:, :WORDS].tolist()])


@pytest.mark.parametrize(
    "decoding", [DecodingConfig(top_k=0, max_words=4), DecodingConfig(top_k=0, temperature=0.6, max_words=4)]
)
def test_the_sampled_X_step_leaves_its_conditional_invariant(decoding: DecodingConfig) -> None:
    """Sentence 2 of 4, then 3, at fixed Z, from the enumerated conditional: 64 pairs before and after one step.

    8,000 independent rows, chi-squared over the cells that expect at least 5: 6 standard deviations above its mean in
    less than 1e-6 of all seeds. Dropping what follows, or the correction for the temperature, is seen at once.
    """
    model, rows = tiny(), 8_000
    story = infill_batch([[[5, 6, 4], None, None, [6, 6, 4]]])
    Z = torch.randn(1, 4, 2, generator=torch.Generator().manual_seed(1))
    pairs = list(itertools.product(range(8), repeat=2))
    whole = story.X.repeat(64, 1, 1)
    whole[:, 1], whole[:, 2] = ALL[[a for a, _ in pairs]], ALL[[b for _, b in pairs]]
    joint = log_p_of(model, whole, Z.expand(64, -1, -1)).sum(1).softmax(0)
    noise = Noise([seeded(4)], [4], rows, "cpu")
    start = torch.multinomial(joint, rows, replacement=True, generator=torch.Generator().manual_seed(2))
    settings = gibbs.GibbsSettings(chains=rows, x_step="sampled", proposals=3, decoding=decoding)
    X = whole[start]
    written = gibbs.sample_X(
        model, RULES, story.repeat(rows), settings, torch.full((rows, 4), -1), Z.expand(rows, -1, -1), X,
        (X != PAD).sum(-1), noise,
    )  # fmt: skip
    place = which(written.X[:, 1]) * 8 + which(written.X[:, 2])
    assert float((place != start).float().mean()) > 0.3
    counted, expected = torch.bincount(place, minlength=64).double(), rows * joint.double()
    cells = expected >= 5
    chi = float(((counted - expected)[cells] ** 2 / expected[cells]).sum())
    freedom = int(cells.sum()) - 1
    assert chi < freedom + 6 * (2 * freedom) ** 0.5
    assert torch.allclose(written.log_p, log_p_of(model, written.X, Z.expand(rows, -1, -1)), atol=1e-4)


def enumerated(model: SLDS, story: InfillBatch, draws: int) -> tuple[Tensor, Tensor]:
    """p(the missing sentences | the given) with S and Z integrated out by draws from the prior, and its error."""
    N, blanks = story.X.shape[1], story.missing[0].nonzero().squeeze(1).tolist()
    noise = Noise([seeded(99)], [N], draws, "cpu")
    free = torch.ones(1, N, model.K, dtype=torch.bool)
    silent = evidence(model, story.X, torch.zeros_like(story.lengths)).phi
    prior = draw_latents(model.scaffold, model.dynamics, free, silent, story.present, noise)
    columns = []
    for sentences in itertools.product(ALL, repeat=len(blanks)):
        X = story.X.repeat(draws, 1, 1)
        for i, sentence in zip(blanks, sentences, strict=True):
            X[:, i] = sentence
        columns.append(log_p_of(model, X, prior.Z, prior.S).sum(1))
    joint = torch.stack(columns, 1).double().exp()
    total = joint.mean(0)
    p = total / total.sum()
    # The error of a ratio of means, by linearisation.
    spread = (joint - p * joint.sum(1, keepdim=True)).std(0) / draws**0.5 / total.sum()
    return p, spread


@pytest.mark.parametrize(("resample_below", "state_bias"), [(0.0, False), (1.0, False), (1.0, True)])
def test_bridge_weighs_a_given_sentence_once(resample_below: float, state_bias: bool) -> None:
    """p(X_2 | X_1, X_3), S and Z integrated out: 30 independent islands of 3,000 weighted particles.

    Sentence 1's evidence enters before a blank, so with resample_below = 1 its weights act by resampling; sentence 3's
    act as final weights. Eight probabilities at 6 standard errors (of 30 islands and of the enumeration): a false alarm
    in less than 2e-5 of all seeds. Counting phi twice, or not at all, is 20 and more away.
    """
    model, islands, particles = tiny(state_bias), 30, 3_000
    story = infill_batch([[[5, 6, 4], None, [6, 6, 4]]])
    truth, its_error = enumerated(model, story, 60_000)
    many = story.repeat(islands)
    settings = smc.BridgeSettings(
        particles=particles,
        decoding=DecodingConfig(top_k=0, max_words=4),
        correct=True,
        resample_below=resample_below,
        tags="free",
    )
    # Any potential makes a valid proposal: a strong and wrong one, so that forgetting to divide by it shows.
    wrong = Potential(torch.full((islands, 3, 2), 0.8), torch.full((islands, 3, 2), 1.5)).where(many.given)
    noise = Noise([seeded(1, i) for i in range(islands)], many.sentences, particles, "cpu")
    found, diagnostics = smc.island(model, RULES, many, wrong, settings, noise)
    weights = found.log_weight.view(islands, particles).double().softmax(-1)
    said = torch.nn.functional.one_hot(which(found.X[:, 1]), 8).view(islands, particles, 8).double()
    each = (weights.unsqueeze(-1) * said).sum(1)
    error = (each.var(0) / islands + its_error**2).sqrt()
    assert float(((each.mean(0) - truth) / error).abs().max()) < 6
    assert 1 <= float(diagnostics.ess.min()) <= float(diagnostics.ess.max()) <= particles


@pytest.mark.parametrize(("ahead", "state_bias"), [(0.0, False), (0.7, False), (0.7, True)])
def test_asking_ahead_leaves_the_target_as_it_is(ahead: float, state_bias: bool) -> None:
    """p(X_2, X_3 | X_1, X_4): sentence 4 is asked after sentence 2 and its answer taken out again when it comes.

    24 islands of 3,000 particles, resampled at every weighing; the 64 probabilities' marginals of X_2 and of X_3, 16
    figures at 6 standard errors: a false alarm in less than 1e-5 of all seeds. Not taking the answer out is 10 and more
    away, and so is a particle that loses its own answer when it is resampled.
    """
    model, islands, particles = tiny(state_bias), 24, 3_000
    story = infill_batch([[[5, 6, 4], None, None, [6, 6, 4]]])
    truth, its_error = enumerated(model, story, 20_000)
    many = story.repeat(islands)
    settings = smc.BridgeSettings(
        particles=particles, decoding=DecodingConfig(top_k=0, max_words=4), correct=True, resample_below=1.0,
        twist_weight=ahead, tags="free",
    )  # fmt: skip
    wrong = Potential(torch.full((islands, 4, 2), 0.4), torch.full((islands, 4, 2), 0.8)).where(many.given)
    noise = Noise([seeded(5, i) for i in range(islands)], many.sentences, particles, "cpu")
    found, _ = smc.island(model, RULES, many, wrong, settings, noise)
    weights = found.log_weight.view(islands, particles).double().softmax(-1)
    for blank, axis in ((1, 1), (2, 0)):
        said = torch.nn.functional.one_hot(which(found.X[:, blank]), 8).view(islands, particles, 8).double()
        each = (weights.unsqueeze(-1) * said).sum(1)
        wanted = truth.view(8, 8).sum(axis)
        error = (each.var(0) / islands + its_error.view(8, 8).square().sum(axis)).sqrt()
        assert float(((each.mean(0) - wanted) / error).abs().max()) < 6


def test_context_gain_is_what_the_story_saves_a_written_sentence() -> None:
    """Against words read one by one: in the story, and after an <eos> with nothing remembered; written ones only."""
    model, particles = tiny(), 40
    story = infill_batch([[[5, 6, 4], None, [6, 6, 4], None]])
    scores = {}
    for context in (0.0, 2.0):
        settings = smc.BridgeSettings(
            particles=particles,
            decoding=DecodingConfig(top_k=0, max_words=4),
            context=context,
            resample_below=0.0,
            tags="free",
        )
        noise = Noise([seeded(3)], story.sentences, particles, "cpu")
        phi = evidence(model, story.X, story.lengths).phi
        latents = draw_latents(
            model.scaffold, model.dynamics, torch.ones(1, 4, model.K, dtype=torch.bool), phi, story.present,
            Noise([seeded(3)], story.sentences, particles, "cpu"),
        )  # fmt: skip
        found, _ = smc.island(model, RULES, story, phi, settings, noise)
        scores[context] = found.score
    told = log_p_of(model, found.X, latents.Z)
    saved, words = torch.zeros(particles), torch.zeros(particles)
    for row in range(particles):
        for i in (1, 3):
            z = latents.Z[row : row + 1, i]
            blank = tuple(torch.zeros(1, 6) for _ in model.language.layers)
            state = GRUState(blank, torch.tensor([EOS]), torch.tensor([-1]))
            for word in found.X[row, i, : int(found.lengths[row, i])]:
                logits, state = model.decoder.step(state, z, torch.tensor([False]))
                saved[row] -= logits.log_softmax(-1)[0, int(word)]
                state = state.then(word[None])
            saved[row] += told[row, i]
            words[row] += found.lengths[row, i]
    assert torch.allclose(scores[2.0] - scores[0.0], 2 * saved / words, atol=1e-4)


def test_context_gain_reads_a_sentence_that_particles_have_in_common_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resampled at every weighing, particles share sentences with their Z: the scores are those of reading each."""
    model, particles, rows = tiny(), 40, []
    story = infill_batch([[[5, 6, 4], None, [6, 6, 4], None]]).repeat(2)
    settings = smc.BridgeSettings(
        particles=particles, decoding=DecodingConfig(top_k=0, max_words=4), context=2.0, resample_below=1.0, tags="free"
    )
    phi, found = evidence(model, story.X, story.lengths).phi, []
    distinct = ranking.distinct

    def counted(*columns: Tensor) -> tuple[Tensor, Tensor]:
        rows.append(len(distinct(*columns)[0]))
        return distinct(*columns)

    def each(*columns: Tensor) -> tuple[Tensor, Tensor]:
        return torch.arange(2 * particles), torch.arange(2 * particles)

    for way in (counted, each):
        monkeypatch.setattr(ranking, "distinct", way)
        noise = Noise([seeded(3), seeded(4)], story.sentences, particles, "cpu")
        found.append(smc.island(model, RULES, story, phi, settings, noise)[0].score)
    assert rows[0] < rows[1] <= 2 * particles
    assert rows[0] < 1.5 * particles
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-5)
    given, kind = distinct(torch.tensor([[1, 2], [3, 4], [1, 2]]), torch.tensor([[0.5], [0.5], [0.5]]))
    assert (sorted(given.tolist()), given[kind].tolist()) == ([0, 1], [0, 1, 0])

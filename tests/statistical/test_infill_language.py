"""The sampled X step and the weights of smc against a language small enough to enumerate.

Eight sentences can be written, so conditionals of X are sums over them; Z is integrated by plain Monte Carlo from the
prior, with every sentence summed out exactly, so that its own error is far below what is tested.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from fabula.corpus.vocabulary import EOS, PAD, SPECIALS, Vocabulary
from fabula.models.decoders.gru import GRUState
from fabula.models.decoders.tokenizer import WordTokenizer
from fabula.models.slds import SLDS
from fabula.sampling import smc
from fabula.sampling.batch import InfillBatch, evidence, flatten, infill_batch
from fabula.sampling.latents import draw_latents
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import SMCSettings
from fabula.statespace.gaussian import Potential
from small import scaled, small_model

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


def tiny() -> SLDS:
    model: SLDS = small_model(
        words=len(VOCABULARY), p_initial=[0.6, 0.4], p_next=[[0.7, 0.3], [0.2, 0.8]], seed=8,
        language={"embedding": 4, "hidden": 6, "tied": False}, dynamics={"latent": 2}, recognition={"hidden": 4},
    )  # fmt: skip
    # Loud enough that what is said depends strongly on Z and on what was said before.
    scaled(model.language.layers, 4)
    with torch.no_grad():
        model.language.output.weight.mul_(4)
        model.language.output.bias[: len(VOCABULARY)] = torch.tensor([-9.0, -9.0, -9.0, 0.5, 0.0, 0.5, 0.5])
    return model.requires_grad_(False)


def enumerated(model: SLDS, story: InfillBatch, draws: int) -> tuple[Tensor, Tensor]:
    """p(the missing sentences | the given) with S and Z integrated out by draws from the prior, and its error."""
    N, row, log_p = story.X.shape[1], torch.arange(draws), torch.zeros(draws)
    free = torch.ones(1, N, model.K, dtype=torch.bool)
    silent = evidence(model, story.X, torch.zeros_like(story.lengths)).phi
    noise = Noise([seeded(99)], [N], draws, "cpu")
    prior = draw_latents(model.scaffold, model.dynamics, free, silent, story.present, noise)
    state = model.decoder.start(draws, prior.Z[:, 0])
    for i in range(N):
        options = ALL if story.missing[0, i] else story.X[:, i]
        words = options.repeat(len(row), 1)
        copies = torch.arange(len(row)).repeat_interleave(len(options))
        row, log_p = row[copies], log_p[copies]
        state = model.decoder.begin_sentence(state.select(copies), prior.S[row, i])
        state, log_p_i = model.decoder.read(state, words, (words != PAD).sum(1), prior.Z[row, i])
        log_p = log_p + log_p_i
    joint = log_p.view(draws, -1).double().exp()
    total = joint.mean(0)
    p = total / total.sum()
    # The error of a ratio of means, by linearisation.
    spread = (joint - p * joint.sum(1, keepdim=True)).std(0) / draws**0.5 / total.sum()
    return p, spread


def weighted_shares(
    model: SLDS, story: InfillBatch, phi: tuple[float, float], groups: int, seed: int, **settings: Any
) -> Tensor:
    """The weighted share of each of the eight sentences in every blank, of so many groups of 1,000 particles.

    Any potential makes a valid proposal: `phi` is a strong and wrong one, so that forgetting to divide by it shows.
    """
    many, particles = story.repeat(groups), 1_000
    chosen = SMCSettings.plain(samples=particles, top_k=0, max_words=WORDS, correct=True, tags="free", **settings)
    wrong = Potential(*(torch.full((groups, story.X.shape[1], 2), value) for value in phi)).where(many.given)
    noise = Noise([seeded(seed, i) for i in range(groups)], many.sentences, particles, "cpu")
    drawn, diagnostics = smc.draw_groups(model, RULES, many, wrong, chosen, [noise])
    assert 1 <= float(diagnostics.ess.min()) <= float(diagnostics.ess.max()) <= particles
    w = drawn.log_weight.view(groups, particles, 1).double().softmax(1)
    blanks = story.missing[0].nonzero().squeeze(1).tolist()
    which = [torch.tensor([KEYS[tuple(row)] for row in drawn.X[:, i, :WORDS].tolist()]) for i in blanks]
    shares = [torch.nn.functional.one_hot(n, 8).view(groups, particles, 8) * w for n in which]
    return torch.cat([share.sum(1) for share in shares], 1)


@pytest.mark.parametrize("resample_below", [0.0, 1.0])
def test_smc_weighs_a_given_sentence_once(resample_below: float) -> None:
    """p(X_2 | X_1, X_3), S and Z integrated out: 30 independent groups of 1,000 weighted particles.

    Sentence 1's evidence enters before a blank, so with resample_below = 1 its weights act by resampling; sentence 3's
    act as final weights. Eight probabilities at 6 standard errors (of 30 groups and of the enumeration): a false alarm
    in less than 2e-5 of all seeds. Counting phi twice, or not at all, is 10 and more away.
    """
    model, story = tiny(), infill_batch([[[5, 6, 4], None, [6, 6, 4]]])
    truth, its_error = enumerated(model, story, 20_000)
    each = weighted_shares(model, story, (0.8, 1.5), 30, seed=1, resample_below=resample_below)
    error = (each.var(0) / len(each) + its_error**2).sqrt()
    assert float(((each.mean(0) - truth) / error).abs().max()) < 6


def test_twisting_leaves_the_target_as_it_is() -> None:
    """p(X_2, X_3 | X_1, X_4) with and without a twist: sentence 4 weighs sentence 2, and is taken out when it comes.

    50 groups of 1,000 particles each way, resampled at every weighing; 16 shares at 6 standard errors of their
    difference: a false alarm in less than 1e-5 of all seeds. Not taking the twist out is 12 away, and a particle that
    loses its own twist when it is resampled 7.
    """
    model, story = tiny(), infill_batch([[[5, 6, 4], None, None, [6, 6, 4]]])
    plain, twisted = (
        weighted_shares(model, story, (0.4, 0.8), 50, seed=seed, resample_below=1.0, twist_weight=weight)
        for seed, weight in ((5, 0.0), (6, 1.5))
    )
    error = (plain.var(0) / len(plain) + twisted.var(0) / len(twisted)).sqrt()
    assert float(((plain.mean(0) - twisted.mean(0)) / error).abs().max()) < 6


def test_context_gain_is_what_the_story_saves_a_written_sentence() -> None:
    """Against words read one by one: in the story, and after an <eos> with nothing remembered; written ones only."""
    model, particles = tiny(), 40
    story = infill_batch([[[5, 6, 4], None, [6, 6, 4], None]])
    scores = {}
    for context in (0.0, 2.0):
        settings = SMCSettings.plain(
            samples=particles, top_k=0, max_words=4, context=context, resample_below=0.0, tags="free"
        )
        noise = Noise([seeded(3)], story.sentences, particles, "cpu")
        phi = evidence(model, story.X, story.lengths).phi
        latents = draw_latents(
            model.scaffold, model.dynamics, torch.ones(1, 4, model.K, dtype=torch.bool), phi, story.present,
            Noise([seeded(3)], story.sentences, particles, "cpu"),
        )  # fmt: skip
        found, _ = smc.draw_groups(model, RULES, story, phi, settings, [noise])
        scores[context] = found.score
    told = model.log_p_X(flatten(found.X, found.lengths), latents.Z)
    saved, words = torch.zeros(particles), torch.zeros(particles)
    for row in range(particles):
        for i in (1, 3):
            z = latents.Z[row : row + 1, i]
            blank = tuple(torch.zeros(1, 6) for _ in model.language.layers)
            state = GRUState(blank, torch.tensor([EOS]))
            for word in found.X[row, i, : int(found.lengths[row, i])]:
                logits, state = model.decoder.step(state, z, torch.tensor([False]))
                saved[row] -= logits.log_softmax(-1)[0, int(word)]
                state = state.then(word[None])
            saved[row] += told[row, i]
            words[row] += found.lengths[row, i]
    assert torch.allclose(scores[2.0] - scores[0.0], 2 * saved / words, atol=1e-4)

"""The states of a served story: S ~ p(S | known), drawn factor by factor, is a draw from the product of the chains."""

import numpy as np
import torch

from fabula.corpus.taggers.protocol import build_tagger
from fabula.models.io.pretrained import scaffold_of
from fabula.sampling.context import Context
from fabula.sampling.settings import ServedSettings
from fabula.sampling.task import fill_task
from fabula.served.client import Client
from fabula.served.model import DefaultJudge
from fabula.served.writer import Story, Writer
from fabula.servers import Server
from fabula.statespace.markov import clamp

JUDGE = DefaultJudge()


def test_the_posterior_of_the_product_is_the_product_of_the_posteriors() -> None:
    """p(S_i | known) of mood x emotion, 18 states, against those of the two chains."""
    known, sizes = np.array([(-1, -1), (0, -1), (-1, 3), (2, 0), (-1, -1)]), (3, 6)
    chains, everywhere = [JUDGE.facts, *JUDGE.facts["further"]][:2], torch.ones(1, len(known), dtype=torch.bool)
    table = np.stack(np.unravel_index(np.arange(18), sizes), -1)
    alone = [(known[:, f, None] < 0) | (known[:, f, None] == np.arange(n)) for f, n in enumerate(sizes)]
    joint = alone[0][:, table[:, 0]] & alone[1][:, table[:, 1]]
    posteriors = [
        scaffold_of(of).posterior(clamp(torch.zeros(1, *allowed.shape), torch.from_numpy(allowed)[None]), everywhere)[0]
        for of, allowed in ((chains, joint), (chains[:1], alone[0]), (chains[1:], alone[1]))
    ]
    both, mood, emotion = posteriors
    assert torch.allclose(both.view(-1, *sizes), mood[:, :, None] * emotion[:, None, :], atol=1e-6)


def test_draws_keep_what_is_known_and_have_the_posterior_s_shares() -> None:
    """20,000 samples of one free mood between known ones: each share within 5 standard errors, false alarm < 1e-5."""
    client = Client(Server(name="x", address="http://x", model="m"))
    task = fill_task(["Tom was sad.", None, None], JUDGE.states, {"sentiment": "? ? +", "emotion": "? joy ?"})
    story, n = Story(task, Context(), ServedSettings(samples=20_000), 1, 7, ()), 20_000
    writer = Writer(client, JUDGE.states, JUDGE.by_factor, build_tagger(JUDGE.settings))
    drawn = np.array(writer.draw_states(story), dtype=int)
    known = [set(drawn[:, 0, 0]), set(drawn[:, 2, 0]), set(drawn[:, 1, 1]), set(drawn[:, :, 2].flatten())]
    assert known == [{0}, {2}, {0}, {-1}]  # read off the given line; the arc's; the arc says nothing of verbs
    step = np.asarray(JUDGE.facts["p_next"], dtype=float)
    expected = step[0] * step[:, 2] / (step[0] @ step[:, 2])
    shares = np.bincount(drawn[:, 1, 0], minlength=3) / n
    assert (np.abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / n)).all()

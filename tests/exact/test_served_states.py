"""The states of a served story: S ~ p(S | known), drawn factor by factor, is a draw from the product of the chains."""

from __future__ import annotations

import numpy as np
import torch

from fabula.catalogue import find
from fabula.corpus.taggers.protocol import build_tagger, named
from fabula.models.io.pretrained import read_facts, scaffold_of
from fabula.models.scaffold import clamp
from fabula.sampling.context import NOTHING
from fabula.sampling.settings import ServedSettings
from fabula.sampling.task import fill_task
from fabula.served.client import Client
from fabula.served.writer import Story, Writer
from fabula.servers import Server

CONFIG, FACTS = read_facts(find("default"))
CHAINS = [FACTS, *FACTS["further"]]


def test_the_posterior_of_the_product_is_the_product_of_the_posteriors() -> None:
    """p(S_i | known) of mood x emotion, 18 states, against that of each chain alone; float64, to 1e-12."""
    known = [(-1, -1), (0, -1), (-1, 3), (2, 0), (-1, -1)]
    sizes, everywhere = (3, 6), torch.ones(1, len(known), dtype=torch.bool)
    table = np.stack(np.unravel_index(np.arange(18), sizes), -1)

    def posterior(chains: list[dict[str, list[float]]], allowed: np.ndarray) -> torch.Tensor:
        evidence = torch.zeros(1, *allowed.shape, dtype=torch.float64)
        return scaffold_of(chains).double().posterior(clamp(evidence, torch.from_numpy(allowed)[None]), everywhere)[0]

    joint = np.array([[all(v in (-1, s) for v, s in zip(row, state, strict=True)) for state in table] for row in known])
    alone = [np.array([[row[f] in (-1, s) for s in range(n)] for row in known]) for f, n in enumerate(sizes)]
    both = posterior(CHAINS[:2], joint).view(-1, *sizes)
    mood, emotion = (posterior([CHAINS[f]], alone[f]) for f in range(2))
    assert torch.allclose(both, mood[:, :, None] * emotion[:, None, :], atol=1e-6)


def test_draws_keep_what_is_known_and_have_the_posterior_s_shares() -> None:
    """20,000 samples of one free mood between known ones: each share within 5 standard errors, false alarm < 1e-5."""
    server = Server(name="x", address="http://x", model="m")
    scaffolds = [scaffold_of([chain]) for chain in CHAINS]
    writer = Writer(Client(server), CONFIG.states, scaffolds, build_tagger(named("vader,emotion,verb")))
    arc = {"sentiment": "? ? +", "emotion": "? joy ?"}
    task = fill_task(["Tom was sad.", None, None], CONFIG.states, arc)
    n = 20_000
    drawn = np.asarray(writer.draw_states(Story(task, NOTHING, ServedSettings(samples=n), 1, 7, ())))
    assert set(drawn[:, 0, 0]) == {0}  # read off the given line
    assert set(drawn[:, 2, 0]) == {2}
    assert set(drawn[:, 1, 1]) == {0}
    assert set(drawn[:, :, 2].flatten()) == {-1}  # the arc says nothing of verbs
    initial, step = (np.asarray(FACTS[key], dtype=float) for key in ("p_initial", "p_next"))
    expected = step[0] * step[:, 2] / (step[0] @ step[:, 2])
    shares = np.bincount(drawn[:, 1, 0], minlength=3) / n
    assert len(initial) == 3
    assert (np.abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / n)).all()

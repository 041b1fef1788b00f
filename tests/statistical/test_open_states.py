"""Arcs that fix one factor of the state and leave another free: what is read off, what is drawn, what is left alone."""

import itertools

import torch

from fabula.corpus.states import Factor, StateSpace
from fabula.models.batch import Batch
from fabula.models.protocol import Model
from fabula.sampling.batch import InfillBatch, evidence, infill_batch
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.tags import infer_tags, tags_to_write
from fabula.statespace.markov import MarkovChain
from small import small_model

STATES = StateSpace((Factor("sentiment", ("negative", "positive")), Factor("emotion", ("joy", "fear", "none"))))
K, CHAINS = STATES.K, 20_000


class Tagged(Model):
    """A model without latents, of which only p(S) is asked."""

    def __init__(self, scaffold: MarkovChain | None) -> None:
        super().__init__()
        self.scaffold = scaffold

    @property
    def p_S(self) -> MarkovChain | None:
        return self.scaffold

    def log_p_words(self, batch: Batch, Z: torch.Tensor | None = None) -> torch.Tensor:
        raise NotImplementedError


def allowed(arc: str) -> torch.Tensor:
    return torch.from_numpy(STATES.allowed(STATES.parse(arc)))


def test_a_given_sentence_is_read_among_the_states_that_its_arc_allows() -> None:
    model = small_model(words=30, p_initial=[1 / K] * K).requires_grad_(False)
    sentences = [[5, 6, 7], [8, 9], None, [10, 11, 12]]
    batch = infill_batch([sentences], [allowed("?/fear ? +/? +/joy")])
    q = evidence(model, batch.X, batch.lengths).log_q_S[0]
    read = infer_tags(model, batch, "read")
    fear = [k for k in range(K) if STATES.labels[k].endswith("fear")]
    assert read.S[0].tolist() == [max(fear, key=lambda k: float(q[0, k])), int(q[1].argmax()), -1, 3]
    assert read.allowed[0, 2].tolist() == allowed("+/?")[0].tolist()  # missing: nothing to read it off
    assert (infer_tags(model, batch, "free").allowed == batch.allowed).all()


def test_tags_that_are_open_in_part_are_drawn_from_the_scaffold_under_the_arc() -> None:
    """20,000 chains against enumeration: 6 + 3 frequencies at 5 standard errors, a false alarm below 6e-6."""
    torch.manual_seed(1)
    scaffold = MarkovChain(torch.rand(K).softmax(-1), (3 * torch.rand(K, K)).softmax(-1))
    model = Tagged(scaffold)
    arc = "+/? ? ?/fear -/joy"
    S = tags_to_write(model, *_batch_and_noise([arc]))
    assert (S[:, 1] == -1).all()  # wholly free: left to the decoder
    assert (S[:, 3] == 0).all()
    open_states = [row.nonzero().flatten().tolist() for row in allowed(arc)]
    paths = list(itertools.product(*open_states))
    log_p = torch.stack([scaffold.log_prob(torch.tensor([p]), torch.ones(1, 4, dtype=torch.bool))[0] for p in paths])
    p_pair: dict[tuple[int, int], float] = {}
    for path, p in zip(paths, log_p.softmax(0).tolist(), strict=True):
        p_pair[path[0], path[2]] = p_pair.get((path[0], path[2]), 0.0) + p
    for (first, third), p in p_pair.items():
        found = float(((S[:, 0] == first) & (S[:, 2] == third)).float().mean())
        assert abs(found - p) < 5 * (p * (1 - p) / CHAINS) ** 0.5
    assert sum(p_pair.values()) > 0.999


def test_a_story_without_open_factors_draws_nothing() -> None:
    """Its generator stays where it is beside a story that draws: answers do not depend on neighbours."""
    model = Tagged(None)
    batch, noise = _batch_and_noise(["+/joy ? ? -/joy", "+/? ? ? ?"], chains=3)
    S = tags_to_write(model, batch, noise)
    assert S[:3].tolist() == [[3, -1, -1, 0]] * 3
    assert all(row[0] >= 3 and row[1:] == [-1] * 3 for row in S[3:].tolist())
    assert torch.equal(noise.generators[0].get_state(), seeded(0).get_state())


def _batch_and_noise(arcs: list[str], chains: int = CHAINS) -> tuple[InfillBatch, Noise]:
    batch = infill_batch([[None] * 4 for _ in arcs], [allowed(arc) for arc in arcs])
    return batch, Noise([seeded(n) for n in range(len(arcs))], batch.sentences, chains, "cpu")

"""Arcs that fix one factor and leave another free: what is read off, drawn, left alone; arcs that a tagger enforces."""

import itertools
from dataclasses import dataclass

import pytest
import torch

from fabula.corpus.states import Factor, StateSpace
from fabula.models.batch import Batch
from fabula.models.protocol import Model
from fabula.sampling import smc
from fabula.sampling.batch import InfillBatch, evidence, infill_batch
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import SMCSettings
from fabula.sampling.tags import infer_tags, tags_to_write
from fabula.statespace.markov import MarkovChain
from small import small_model
from toy_decoder import END, PairTokenizer, ToyModel

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


@dataclass(frozen=True)
class ByFirstLetter:
    """State 1 where a sentence begins with an a, else 0."""

    labels: tuple[str, ...] = ("other", "a")

    @property
    def settings(self) -> dict[str, object]:
        return {"tagger": "first letter"}

    def tag(self, sentences: list[str]) -> list[int | None]:
        return [int(sentence.lower().startswith("a")) for sentence in sentences]


class WeakMoods(ToyModel):
    tagger = ByFirstLetter()


@pytest.mark.parametrize("asked", [0, 1])
def test_what_is_asked_for_is_written(asked: int) -> None:
    """A narrator whose moods are weak follows the arc through its tagger: particles off the arc weigh and rank less."""
    torch.manual_seed(0)
    model = WeakMoods(2).eval()
    model.toy.strict = False
    encode, rules = PairTokenizer(), WordRules.of(PairTokenizer())
    allowed = torch.ones(3, 2, dtype=torch.bool)
    allowed[1:, 1 - asked] = False
    batch = infill_batch([[encode.encode("ab."), None, None]], [allowed], end=END)
    best: dict[float, list[int]] = {}
    for weight in (0.0, 6.0):
        settings = SMCSettings.plain(samples=60, top_k=0, max_words=5, arc_weight=weight)
        best[weight] = []
        for seed in range(12):
            with torch.inference_mode():
                rounds = [r for r, _ in smc.run(model, batch, settings, [seeded(seed)], rules=rules)]
            story = max((r.row(k) for r in rounds for k in range(len(r.score))), key=lambda s: s.score)
            texts = [encode.decode(story.X[i, : int(story.lengths[i]) - 1].tolist()) for i in (1, 2)]
            best[weight] += [tag or 0 for tag in ByFirstLetter().tag(texts)]
    # Without the weight about half of the sentences are as asked for; with it all but a few.
    assert sum(tag == asked for tag in best[6.0]) >= 22
    assert sum(tag == asked for tag in best[0.0]) < 22

"""The decoder: its log-probabilities against the model, and its distribution against the enumeration of sentences."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fabula.corpus.vocabulary import EOS, PAD, SPECIALS, Vocabulary
from fabula.models.decoders.tokenizer import WordTokenizer
from fabula.models.slds import SLDS
from fabula.sampling import decode
from fabula.sampling.batch import InfillBatch, flatten, infill_batch
from fabula.sampling.decode import Writer, choose, log_proposal
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import DecodingConfig
from small import small_model

VOCABULARY = Vocabulary((*SPECIALS, ".", "a", "b", "!", ","))
RULES = WordRules.of(WordTokenizer(VOCABULARY))


@pytest.fixture(params=[(1, True), (2, False)])
def model(request: pytest.FixtureRequest) -> SLDS:
    layers, tied = request.param
    sizes: dict[str, Any] = {"language": {"layers": layers, "tied": tied}, "dynamics": {"latent": 2}}
    made: SLDS = small_model(words=len(VOCABULARY), p_initial=[0.5, 0.5], seed=3, **sizes).requires_grad_(False)
    for parameter in made.language.parameters():
        parameter.mul_(3)
    made.language.output.bias[len(VOCABULARY) :] = -1e4
    return made


def mixed() -> InfillBatch:
    """Stories of two to four sentences, blanks anywhere, given sentences of one to five words."""
    return infill_batch([[[5], None, [6, 5, 8, 4], None], [None, [5, 6, 4]], [[5, 5, 5, 6, 7], [6, 4], None]])


@pytest.mark.parametrize("patience", [1, 4])
@pytest.mark.parametrize(
    "decoding",
    [DecodingConfig(max_words=6), DecodingConfig(top_k=0, max_words=6), DecodingConfig(top_k=3, max_words=5)],
)
def test_log_p_of_what_was_written_is_the_models_own(
    model: SLDS, decoding: DecodingConfig, patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sentence's log p, read or written, in every row of a mixed blanks, equals one pass over the whole text."""
    monkeypatch.setitem(decode.PATIENCE, "cpu", patience)
    wide = mixed().repeat(5)
    noise = Noise([seeded(i) for i in range(3)], mixed().sentences, 5, "cpu")
    Z = noise.normal(2)
    written = Writer(model.decoder, RULES, decoding).story(wide, None, Z, noise.uniform(decoding.max_words))
    truth = model.log_p_X(flatten(written.X, written.lengths), Z)
    assert torch.allclose(written.log_p, truth, atol=1e-4)
    assert torch.equal(written.X[..., : wide.X.shape[2]][wide.given], wide.X[wide.given])
    assert torch.equal(written.lengths > 0, wide.present)


def replay(
    decoder: Any, decoding: DecodingConfig, state: Any, words: Tensor, z: Tensor, forced: int = 0
) -> tuple[Tensor, Tensor]:
    """log p and log q of sentences, word by word; the first `forced` words are not drawn, so log q leaves them out."""
    log_p, log_q, previous = torch.zeros(len(words)), torch.zeros(len(words)), None
    for t, word in enumerate(words.T):
        done = word == PAD
        logits, state = decoder.step(state, z, done)
        scores = RULES.allowed(logits, previous, t, decoding.max_words)
        if decoding.top_k:
            scores = scores.masked_fill(scores < scores.topk(decoding.top_k).values[:, -1:], float("-inf"))
        q = (scores / decoding.temperature).log_softmax(-1)
        log_p += logits.log_softmax(-1).gather(1, word[:, None]).squeeze(1).masked_fill(done, 0)
        log_q += q.gather(1, word[:, None]).squeeze(1).masked_fill(done | (t < forced), 0)
        previous, state = word, state.then(torch.where(done, EOS, word))
    return log_p, log_q


def every_sentence(max_words: int) -> list[list[int]]:
    """All that `write` may write: no special but the last, a spoken first word, a final mark before the limit's end."""
    sentences = []
    for n in range(1, max_words):
        for body in itertools.product([4, 5, 6, 7, 8], repeat=n):
            at_limit = n == max_words - 1 and (body[-1] not in (4, 7) or body[-2] in (4, 7))
            early = n == max_words - 2 and body[-1] not in (4, 7)
            if body[0] in (5, 6) and not at_limit and not early:
                sentences.append([*body, EOS])
    return sentences


@pytest.mark.parametrize(
    "decoding", [DecodingConfig(top_k=0, max_words=4), DecodingConfig(top_k=2, temperature=0.7, max_words=4)]
)
def test_the_distribution_of_written_sentences_sums_to_one(model: SLDS, decoding: DecodingConfig) -> None:
    """exp(log q) over all sentences is 1, draws have positive q, and `write` agrees with `replay` on every draw."""
    z = torch.randn(1, 2)
    start = model.decoder.start(1, z)
    sentences = every_sentence(4)
    words = torch.tensor([s + [PAD] * (4 - len(s)) for s in sentences])
    rows = torch.zeros(len(words), dtype=torch.int64)
    log_p, log_q = replay(model.language, decoding, start.select(rows), words, z[rows])
    assert math.isclose(float(log_q.double().exp().sum()), 1.0, abs_tol=1e-5)
    assert float(log_p.double().exp().sum()) < 1
    many = torch.zeros(300, dtype=torch.int64)
    uniform = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
    _, new = Writer(model.language, RULES, decoding).write(start.select(many), z[many], uniform, many.new_zeros(300, 0))
    listed = {tuple(row): number for number, row in enumerate(words.tolist())}
    places = torch.tensor([listed[tuple(row)] for row in new.words.tolist()])
    assert torch.allclose(new.log_q, log_q[places], atol=1e-5)
    assert torch.allclose(new.log_p, log_p[places], atol=1e-5)


def test_opening_words_are_kept_and_paid_for(model: SLDS) -> None:
    opened = infill_batch([[[5], None, None]], openings=[{2: [6, 8]}]).repeat(20)
    noise = Noise([seeded(0)], [3], 20, "cpu")
    Z, uniform = noise.normal(2), noise.uniform(6)
    decoding = DecodingConfig(top_k=0, max_words=6)
    written = Writer(model.decoder, RULES, decoding).story(opened, None, Z, uniform)
    assert torch.equal(written.X[:, 2, :2], torch.tensor([6, 8]).expand(20, 2))
    truth = model.log_p_X(flatten(written.X, written.lengths), Z)
    assert torch.allclose(written.log_p, truth, atol=1e-4)
    state = model.decoder.start(20, Z[:, 0])
    for i in (0, 1):
        state, _ = model.decoder.read(state, written.X[:, i], written.lengths[:, i], Z[:, i])
    _, new = Writer(model.language, RULES, decoding).write(state, Z[:, 2], uniform[:, 2], opened.opening[:, 2])
    chosen, _ = model.decoder.read(state, new.words, new.lengths, Z[:, 2])
    _, log_q = replay(model.language, decoding, state, new.words, Z[:, 2], forced=2)
    assert torch.allclose(new.log_q, log_q, atol=1e-5)
    logits, _ = model.decoder.step(state, Z[:, 2], torch.zeros(20, dtype=torch.bool))
    first = logits.log_softmax(-1)[:, 6]
    assert chosen.previous.eq(EOS).all()
    assert (new.log_forced <= first + 1e-5).all()
    assert (new.log_forced >= new.log_p - 1e-5).all()


ENDS = torch.tensor([False, True, False, True, False, False])


@pytest.mark.parametrize("at", [1.0, 0.5, 2.0])
def test_ends_are_as_likely_as_their_temperature_says(at: float) -> None:
    """The choice to end a sentence has a temperature of its own: against the definition in docs/maths.md."""
    s = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).double()
    decoding = DecodingConfig(top_k=0, temperature=0.4, end_temperature=at)
    q = log_proposal(s, decoding, ENDS).exp()
    torch.testing.assert_close(q.sum(1), torch.ones(4).double())
    inside, outside = (s[:, mask].logsumexp(1) for mask in (ENDS, ~ENDS))
    torch.testing.assert_close(q[:, ENDS].sum(1), torch.sigmoid((inside - outside) / at))
    for mask in (ENDS, ~ENDS):
        torch.testing.assert_close(q[:, mask] / q[:, mask].sum(1, keepdim=True), (s[:, mask] / 0.4).softmax(1))


def test_without_it_words_have_one_temperature_and_barred_words_stay_barred() -> None:
    s = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    plain = DecodingConfig(top_k=0, temperature=0.7)
    torch.testing.assert_close(log_proposal(s, plain, ENDS), (s / 0.7).log_softmax(-1))
    s[:, ENDS] = float("-inf")
    ends = DecodingConfig(top_k=0, temperature=0.7, end_temperature=1.0)
    q = log_proposal(s, ends, ENDS).exp()
    assert q[:, ENDS].max() == 0
    torch.testing.assert_close(q[:, ~ENDS], (s[:, ~ENDS] / 0.7).softmax(-1))
    only = torch.full((1, 6), float("-inf"))
    only[0, 3] = 1.0
    word, log_q = choose(only, ends, torch.tensor([0.5]), ENDS)
    assert word.item() == 3
    assert log_q.item() == pytest.approx(0.0)

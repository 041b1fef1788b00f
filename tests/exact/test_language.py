"""p(X_i | Z_i, X_:i) and S2S: one law, however it is asked for, and none of it lost to rows that no word has."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fabula.corpus.vocabulary import BOS, EOS, PAD
from fabula.models.batch import Batch, StoryDataset, gather_latent
from fabula.models.decoders import gru
from fabula.models.decoders.gru import ALIGN, FEW, GRUDecoder
from fabula.models.s2s import S2S
from fabula.models.settings import LanguageSettings, ModelSettings
from small import scaled, stories_of

WORDS, K = 70, 3
STORIES = [[[4, 5, 69], [6], [7, 8]], [[9, 10], [68, 4, 4, 5]], [[11], [12, 13], [14, 69, 15, 16], [17]]]
TAGS: list[list[int | None]] = [[0, 1, 2], [2, None], [1, 1, 0, 2]]


def a_batch() -> Batch:
    return StoryDataset(stories_of(STORIES, TAGS), "cpu").batch(np.arange(len(STORIES)))


def language(D: int, *, tied: bool = True, layers: int = 1, latent_to_output: bool = True) -> GRUDecoder:
    torch.manual_seed(0)
    settings = LanguageSettings(
        embedding=6, hidden=5, layers=layers, tied=tied, dropout=0.0, latent_to_output=latent_to_output
    )
    made = scaled(GRUDecoder(settings, WORDS, D).double(), 2)
    torch.nn.init.normal_(made.output.bias[:WORDS])
    return made.eval()


def latents(batch: Batch, D: int) -> Tensor | None:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*batch.S.shape, D, generator=generator, dtype=torch.float64) if D else None


WAYS = pytest.mark.parametrize(
    ("D", "tied", "layers", "latent_to_output"),
    [(0, True, 1, True), (0, False, 2, True), (2, True, 2, True), (2, False, 1, False), (2, True, 1, False)],
    ids=["lm tied", "lm untied 2 layers", "tied 2 layers", "the paper's", "tied, Z beside words only"],
)


@WAYS
def test_probabilities_sum_to_one_over_the_words(D: int, tied: bool, layers: int, latent_to_output: bool) -> None:
    """At every place, over the real words alone: the rows that fill up to a multiple of 64 take nothing.

    Also in single and half precision their probability is exactly 0, and so is their gradient.
    """
    made = language(D, tied=tied, layers=layers, latent_to_output=latent_to_output)
    assert made.output.out_features == 2 * ALIGN > WORDS == made.vocabulary
    batch = a_batch()
    Z = latents(batch, D)
    features = made(batch.previous, None if Z is None else gather_latent(Z, batch.sentence))
    total = torch.zeros(batch.tokens.shape, dtype=torch.float64)
    for word in range(1, WORDS):  # <pad>, word 0, is never told: log_prob gives 0 there
        total += made.log_prob(features, torch.full_like(batch.tokens, word)).exp()
    total += made.output(features).softmax(-1)[..., PAD]
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-12)
    assert (made.output(features).argmax(-1) < WORDS).all()
    z = None if Z is None else Z[:, 0]
    scores, _ = made.step(made.start(3, z).then(batch.tokens[:, 0]), z, torch.zeros(3, dtype=torch.bool))
    assert scores.shape == (3, WORDS)
    for kind in (torch.float64, torch.float32, torch.bfloat16):
        assert not made.output(features).to(kind).softmax(-1)[..., WORDS:].any()
    made.log_prob(features, batch.tokens).sum().backward()
    assert made.output.bias.grad is not None
    assert not made.output.bias.grad[WORDS:].any()
    assert made.output.bias.grad[:WORDS].abs().min() > 0


def by_steps(made: GRUDecoder, story: int, Z: Tensor | None, copies: int = 1) -> list[Tensor]:
    """log p of every token of one story, word by word, each sentence under its own Z."""
    state = made.start(copies, None if Z is None else Z[story, :1].expand(copies, -1))
    found, alive = [], torch.zeros(copies, dtype=torch.bool)
    for i, sentence in enumerate(STORIES[story]):
        z = None if Z is None else Z[story, i : i + 1].expand(copies, -1)
        for word in [*sentence, EOS]:
            scores, state = made.step(state, z, alive)
            found.append(scores.log_softmax(-1)[:, word])
            state = state.then(torch.full((copies,), word))
    return found


@WAYS
@pytest.mark.parametrize("copies", [1, FEW + 1])
def test_a_story_is_the_product_of_its_steps(
    D: int, tied: bool, layers: int, latent_to_output: bool, copies: int
) -> None:
    """The whole batch in one pass = word by word, in both layouts of `step` (few rows and many)."""
    made = language(D, tied=tied, layers=layers, latent_to_output=latent_to_output)
    batch = a_batch()
    Z = latents(batch, D)
    features = made(batch.previous, None if Z is None else gather_latent(Z, batch.sentence))
    together = made.log_prob(features, batch.tokens)
    for story in range(len(STORIES)):
        steps = torch.stack(by_steps(made, story, Z, copies), 1)
        n = steps.shape[1]
        torch.testing.assert_close(together[story, :n].expand(copies, -1), steps, rtol=0, atol=1e-10)
        assert not together[story, n:].any()
        sums = [steps[0, a : a + len(s) + 1].sum() for a, s in zip(batch.starts[story], STORIES[story], strict=False)]
        torch.testing.assert_close(batch.per_sentence(together)[story, : len(sums)], torch.stack(sums))


@WAYS
@pytest.mark.parametrize(("grad", "few"), [(True, FEW), (False, FEW), (False, 0)])
def test_reading_known_words_is_the_same_law(
    D: int, tied: bool, layers: int, latent_to_output: bool, grad: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`read`, sentence after sentence with padded rows, gives log p and leaves the state that steps would; in both
    layouts, of few rows and of many."""
    monkeypatch.setattr(gru, "FEW", few)
    made = language(D, tied=tied, layers=layers, latent_to_output=latent_to_output)
    batch = a_batch()
    Z, X = latents(batch, D), batch.X()
    features = made(batch.previous, None if Z is None else gather_latent(Z, batch.sentence))
    together = batch.per_sentence(made.log_prob(features, batch.tokens))
    with torch.set_grad_enabled(grad):
        state = made.start(3, None if Z is None else Z[:, 0])
        for i in range(2):  # every story has two sentences
            z = None if Z is None else Z[:, i]
            state, log_p = made.read(made.begin_sentence(state, None), X[:, i], batch.lengths[:, i], z)
            torch.testing.assert_close(log_p, together[:, i], rtol=0, atol=1e-10)
        z = None if Z is None else Z[:1, 0]
        after, _ = made.read(made.start(1, z), torch.tensor([[4, 5, 69, EOS]]), torch.tensor([4]), z)
        stepped, alive = made.start(1, z), torch.tensor([False])
        for word in (4, 5, 69, EOS):
            stepped = made.step(stepped, z, alive)[1].then(torch.tensor([word]))
        assert torch.equal(after.previous, stepped.previous)
        for one, other in zip(after.hidden, stepped.hidden, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
        still, nothing = made.read(after, torch.zeros(1, 1, dtype=torch.int64), torch.tensor([0]), z)
        assert torch.equal(still.previous, after.previous)
        assert torch.equal(still.hidden[0], after.hidden[0])
        assert nothing.tolist() == [0]


def test_dropout_masks_are_one_per_story() -> None:
    """What is dropped for a story stays dropped along it, and the mean is kept."""
    settings = LanguageSettings(embedding=400, hidden=5, dropout=0.4)
    made = GRUDecoder(settings, WORDS, 0).train()
    torch.manual_seed(0)
    kept = made._locked_dropout(torch.ones(30, 7, 400))
    assert torch.equal(kept, kept[:, :1].expand_as(kept))
    assert not torch.equal(kept[0], kept[1])
    share = float((kept[:, 0] > 0).float().mean())
    assert abs(share - 0.6) < 5 * (0.24 / 12_000) ** 0.5  # false alarm below 1e-6
    torch.testing.assert_close(kept.max(), torch.tensor(1 / 0.6))


def s2s() -> S2S:
    torch.manual_seed(0)
    settings = ModelSettings(kind="s2s", language=LanguageSettings(embedding=6, hidden=5, layers=2, dropout=0.1))
    return scaled(S2S(settings, WORDS, K).double(), 2).eval()


def test_s2s_is_the_product_of_its_steps() -> None:
    """The batch in one pass = each story alone, word by word through `write`; a distribution at every step."""
    made = s2s()
    batch = a_batch()
    together = made.log_p_X(batch)
    for row, story in enumerate(STORIES):
        N = len(story)
        S = torch.tensor([[-1 if tag is None else tag for tag in TAGS[row]]])
        present = torch.ones(1, N, dtype=torch.bool)
        memory, state = made.encode(S, present)
        previous, sums = torch.tensor([[BOS]]), torch.zeros(N, dtype=torch.float64)
        words = [(i, word) for i, sentence in enumerate(story) for word in sentence] + [(N - 1, EOS)]
        for i, word in words:
            scores, state = made.write(previous, memory, present, state)
            p = scores[0, 0].softmax(-1)
            torch.testing.assert_close(p.sum(), torch.ones((), dtype=torch.float64))
            sums[i] += p[word].log()
            previous = torch.tensor([[word]])
        torch.testing.assert_close(together[row, :N], sums, rtol=0, atol=1e-10)
        assert not together[row, N:].any()


def test_s2s_reads_every_tag_and_knows_an_unknown_one() -> None:
    """Changing any one tag, also to unknown, changes the story's probability from its first word on."""
    made = s2s()
    batch = a_batch()
    before = made.log_p_X(batch)
    for i in range(2):
        for tag in (-1, 0, 1, 2):
            S = batch.S.clone()
            S[:, i] = tag
            changed = (made.log_p_X(batch._replace(S=S)) - before).abs()[:, 0] > 1e-6
            assert torch.equal(changed, batch.S[:, i] != tag)

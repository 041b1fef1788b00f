"""Batched = one by one with the same noise; cut into pieces = whole; command line = Python."""

import pytest
import torch

from fabula.corpus.vocabulary import SPECIALS, Vocabulary
from fabula.models.decoders.tokenizer import WordTokenizer
from fabula.models.protocol import Model
from fabula.models.slds import SLDS
from fabula.sampling import smc
from fabula.sampling.batch import InfillBatch, infill_batch
from fabula.sampling.driver import Answer
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import SampledStory
from fabula.sampling.settings import FillSettings, GibbsSettings, RerankSettings, SMCSettings
from fabula.statespace.markov import allowed_states
from fabula_paper.writing import fill_batch
from small import small_model

VOCABULARY = Vocabulary((*SPECIALS, ".", "!", *(f"w{i}" for i in range(40))))
RULES = WordRules.of(WordTokenizer(VOCABULARY))
STORIES: list[list[list[int] | None]] = [
    [[8, 9, 4], None, None, None, [10, 11, 12, 4]],
    [None, [20, 21]],
    [[7], None, [30, 31, 32, 33, 34, 35, 4], None],
    [[8, 9, 4], None, None, None, [10, 11, 12, 4]],
    [[9, 9], [10], [11], None],
    [None, [14, 15, 4], None, [17], None, [18, 19, 5]],
]
TAGS = [[0, -1, -1, 2, -1], [-1, -1], [1, 1, 1, 1], [-1] * 5, [2, -1, -1, 0], [-1] * 6]
SEEDS = [3, 1, 4, 1, 5, 9]
WAYS = [
    ("slds", "sentence", GibbsSettings.plain(samples=12, chains=3, max_words=8)),
    ("slds", "story", GibbsSettings.plain(samples=12, chains=3, max_words=8)),
    ("slds", "sentence", GibbsSettings.plain(samples=6, chains=3, top_k=5, max_words=8)),
    ("slds", "sentence", SMCSettings.plain(samples=10, max_words=8)),
    ("slds", "sentence", SMCSettings.plain(samples=10, max_words=8, tags="free")),
    ("lds", "story", SMCSettings.plain(samples=10, max_words=8)),
    ("lm", "sentence", RerankSettings.plain(samples=20, max_words=8)),
    ("s2s", "sentence", RerankSettings.plain(samples=20, max_words=8)),
]


def a_model(kind: str, encoder: str) -> Model:
    made: Model = small_model(
        kind, words=len(VOCABULARY), p_initial=[0.2, 0.3, 0.5], recognition={"encoder": encoder}
    ).requires_grad_(False)
    for name, parameter in made.named_parameters():
        if "weight" in name:
            parameter.mul_(2)
    return made


def a_page(numbers: range) -> InfillBatch:
    return infill_batch([STORIES[n] for n in numbers], [allowed_states(torch.tensor(TAGS[n]), 3) for n in numbers])


def fill(
    model: Model, numbers: range, settings: FillSettings, seeds: list[int], candidates: int = 1, memory_gib: float = 2.0
) -> list[Answer]:
    generators = [seeded(seed) for seed in seeds]
    return fill_batch(model, RULES, a_page(numbers), settings, generators, candidates, memory_gib=memory_gib)


def same(one: list[SampledStory], other: list[SampledStory]) -> bool:
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        N = int((a.lengths > 0).sum())
        words = [[row[:n].tolist() for row, n in zip(f.X[:N], f.lengths[:N].tolist(), strict=True)] for f in (a, b)]
        close = torch.allclose(a.log_p[:N], b.log_p[:N], atol=1e-3)
        if words[0] != words[1] or not close or a.S[:N].tolist() != b.S[:N].tolist():
            return False
    return True


@pytest.mark.parametrize(("kind", "encoder", "settings"), WAYS)
def test_a_story_does_not_notice_its_neighbours(kind: str, encoder: str, settings: FillSettings) -> None:
    """Six tasks of mixed lengths and blanks in one call, and each alone: the same words, tags and figures."""
    model = a_model(kind, encoder)
    together = fill(model, range(6), settings, SEEDS, 4)
    assert len(together) == 6
    for n in range(6):
        ((alone, movement, _),) = fill(model, range(n, n + 1), settings, SEEDS[n : n + 1], 4)
        assert same(together[n][0], alone)
        N = len(STORIES[n])
        moved = together[n].diagnostics
        assert moved is not None
        assert movement is not None
        assert torch.allclose(moved.changed[0, :N], movement.changed[0], equal_nan=True)
        assert torch.allclose(moved.ess, movement.ess, equal_nan=True, rtol=1e-3)
        assert torch.allclose(moved.r_hat, movement.r_hat, equal_nan=True, rtol=1e-3)


@pytest.mark.parametrize(("kind", "encoder", "settings"), [WAYS[0], WAYS[3], WAYS[6]])
def test_a_job_cut_into_pieces_gives_the_same_answers(kind: str, encoder: str, settings: FillSettings) -> None:
    model = a_model(kind, encoder)
    whole = fill(model, range(6), settings, SEEDS, 2)
    cut = fill(model, range(6), settings, SEEDS, 2, memory_gib=1e-9)
    assert all(same(a[0], b[0]) for a, b in zip(whole, cut, strict=True))


def test_resampling_keeps_the_total_weight_of_a_group() -> None:
    """Sentence 1 is weighed, then a blank: resampled or not, the group's mean weight is what sentence 1 gave it."""
    model = a_model("slds", "sentence")
    assert isinstance(model, SLDS)
    blanks = infill_batch([[[8, 9, 4], None, None], [[20, 21], None]])
    blanks, phi = smc.observe(model, blanks, "free")
    totals = []
    for share in (0.0, 1.0):
        settings = SMCSettings.plain(samples=20, resample_below=share, tags="free")
        noise = Noise([seeded(1), seeded(2)], blanks.sentences, 20, "cpu")
        drawn, _ = smc.draw_groups(model, RULES, blanks, phi, settings, [noise])
        weights = drawn.log_weight.view(2, 20)
        assert bool((weights.std(1) < 1e-6).all()) == (share == 1.0)
        totals.append(weights.logsumexp(1))
    assert torch.allclose(totals[0], totals[1], atol=1e-5)
    assert (totals[0] < -1).all()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_groups_side_by_side_draw_what_they_draw_one_after_the_other(share: float) -> None:
    """Each group is resampled for itself, by its own numbers; two stories, one of them shorter."""
    model = a_model("slds", "sentence")
    blanks = infill_batch([[[8, 9, 4], None, None, [6, 5]], [[20, 21], None]])
    found = []
    for at_once in (False, True):
        settings = SMCSettings.plain(samples=12, resample_below=share, tags="free", at_once=at_once)
        rounds = list(smc.run(model, blanks, settings, [seeded(1), seeded(2)], rules=RULES))
        assert len(rounds) == (1 if at_once else 2)
        told = [torch.cat([part.view(2, -1, *part.shape[1:]) for part in parts], 1) for parts in (
            [r.X for r, _ in rounds], [r.log_weight for r, _ in rounds], [r.score for r, _ in rounds]
        )]  # fmt: skip
        found.append((told, rounds[-1][1]))
    (apart, moved), (together, moved_too) = found
    assert (apart[0] == together[0]).all()
    for a, b in zip(apart[1:], together[1:], strict=True):
        torch.testing.assert_close(a, b)
    assert moved is not None
    assert moved_too is not None
    torch.testing.assert_close(moved.ess, moved_too.ess)
    torch.testing.assert_close(moved.changed, moved_too.changed, equal_nan=True)


@pytest.mark.parametrize(
    ("samples", "chains", "sizes"),
    [(50, None, [17, 17, 16]), (50, 10, [10] * 5), (8, None, [3, 3, 2]), (1, None, [1]), (7, 3, [3, 3, 1])],
)
def test_gibbs_draws_as_many_samples_as_were_asked_for(samples: int, chains: int | None, sizes: list[int]) -> None:
    """Chains share them; in the last round some may be left over."""
    settings = GibbsSettings.plain(samples=samples, chains=chains, max_words=8)
    model, page, generators = a_model("slds", "sentence"), a_page(range(2)), [seeded(0), seeded(1)]
    rounds = list(settings.sampler.run(model, page, settings, generators, rules=RULES))
    assert [len(r.score) for r, _ in rounds] == [2 * size for size in sizes]
    for r, _ in rounds:
        stories = r.X.unflatten(0, (2, -1))
        for story in (0, 1):
            given = STORIES[story][-1] or []
            N = len(STORIES[story])
            assert (stories[story, :, N - 1, : len(given)] == torch.tensor(given)).all()

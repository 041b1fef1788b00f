"""The look-ahead score: its arithmetic, its measures of prose, its judge, and that blind systems are blind."""

from __future__ import annotations

import math

import pytest
import torch

from fabula.corpus.dataset import Stories
from fabula.corpus.vocabulary import EOS, PAD, SPECIALS, UNK, Vocabulary
from fabula.errors import UserError
from fabula.metrics.lookahead import choose_stories, log_p_ending
from fabula.models.build import build
from fabula.models.decoders.words import WordTokenizer
from fabula.models.lm import LM
from fabula.models.settings import DynamicsSettings, LanguageSettings, ModelSettings, RecognitionSettings
from fabula.models.slds import SLDS
from fabula.sampling import smc
from fabula.sampling.batch import flatten, infill_batch
from fabula.sampling.decode import DecodingConfig
from fabula.sampling.noise import seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.tags import TagSource, infer_tags
from lookahead_systems import (
    BASELINE,
    BRIDGE,
    HUMAN,
    OTHER,
    WEIGHTS_ONLY,
    Z_ONLY,
    LookaheadSettings,
    System,
    distinct,
    lookahead,
    narrator_systems,
    overlap,
    prose,
    ratio_and_error,
    repeats,
    score,
    summary,
)

VOCABULARY = Vocabulary((*SPECIALS, ".", "!", '"', "a", "b", "c", "d", "e", ","))
RULES = WordRules.of(WordTokenizer(VOCABULARY))
STOP, BANG, QUOTE, A, B, C, D, E, COMMA = range(4, 13)
SMALL = LookaheadSettings(samples=4, chains=2, plain=3, max_words=6, top_k=3, reranked=(4,))


def language_model(seed: int) -> LM:
    torch.manual_seed(seed)
    made = build(
        ModelSettings(kind="lm", language=LanguageSettings(embedding=6, hidden=8, layers=2)),
        len(VOCABULARY),
        torch.full((3,), 1 / 3),
        torch.full((3, 3), 1 / 3),
    )
    assert isinstance(made, LM)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "weight" in name:
                parameter.mul_(3)
    return made.eval().requires_grad_(False)


def narrator() -> SLDS:
    torch.manual_seed(5)
    settings = ModelSettings(
        language=LanguageSettings(embedding=6, hidden=8),
        dynamics=DynamicsSettings(latent=3),
        recognition=RecognitionSettings(hidden=4),
    )
    made = build(settings, len(VOCABULARY), torch.tensor([0.2, 0.3, 0.5]), torch.full((3, 3), 1 / 3))
    assert isinstance(made, SLDS)
    with torch.no_grad():
        for name, parameter in made.language.named_parameters():
            if "weight" in name:
                parameter.mul_(3)
        made.recognition.phi_log_precision.bias.fill_(3.0)
        # Loud enough for different sentences to be read as having different tags.
        made.recognition.valence.free.weight.normal_(std=5.0)
    return made.eval().requires_grad_(False)


def some_stories() -> Stories:
    return Stories.from_sentences(
        [
            [[A, STOP], [B, C, STOP], [D, STOP], [E, E, A, STOP], [A, B, STOP]],
            [[B, STOP], [A, A, BANG], [C, STOP], [A, UNK, STOP], [C, C, C, STOP]],
            [[C, STOP], [C, STOP]],
            [[C, D, STOP], [A, STOP], [B, STOP], [B, STOP], [E, BANG]],
        ]
    )


def test_the_score_is_the_share_of_the_way_from_blind_to_human() -> None:
    blind, human = torch.tensor([-10.0, -20.0]), torch.tensor([-6.0, -18.0])
    assert score(human, blind, human).value == 1
    assert score(blind, blind, human).value == 0
    assert math.isclose(score(torch.tensor([-8.0, -19.0]), blind, human).value, 0.5)
    # Means first, then the quotient: 5 of 6 nats, though one story is at 1 and the other at 0.5.
    assert math.isclose(score(torch.tensor([-6.0, -19.0]), blind, human).value, 5 / 6)


def test_its_error_is_that_of_the_quotient() -> None:
    """Against the spread of the same quotient over 4,000 sets of 200 pairs, itself known to 1 per cent."""
    generator = torch.Generator().manual_seed(0)
    below = 3 + torch.randn(4000, 200, generator=generator, dtype=torch.float64)
    above = 0.6 * below + torch.randn(4000, 200, generator=generator, dtype=torch.float64)
    true = float((above.mean(1) / below.mean(1)).std())
    claimed = [ratio_and_error(a, b) for a, b in zip(above[:50], below[:50], strict=True)]
    assert math.isclose(sum(figure.se for figure in claimed) / 50, true, rel_tol=0.06)
    # Pairs that stand in one proportion leave no doubt, however much they vary.
    assert ratio_and_error(0.7 * below[0], below[0]).se < 1e-12


def test_overlap_counts_4_grams_within_sentences() -> None:
    given = [[A, B, C, D, E, STOP], [E, E, E, E]]
    assert overlap([[A, B, C, D, STOP]], given) == (1, 2)
    assert overlap([[B, C, D, E, STOP], [E, E, E, E, E]], given) == (4, 4)
    assert overlap([[A, B, C], [D, E, STOP]], given) == (0, 0), "no 4-gram runs on from one line to the next"
    assert overlap([[A, UNK, C, D, E]], [[A, UNK, C, D, E]]) == (0, 0), "nobody knows that the words are the same"


def test_distinct_2_is_over_all_lines_of_all_stories() -> None:
    assert distinct([[[A, B, A, B]], [[A, B], [B, C]]]) == 3 / 5
    assert math.isnan(distinct([[[A]]]))


def test_repeats_are_of_given_or_earlier_lines() -> None:
    assert repeats([[A, STOP], [B, STOP], [A, STOP]], [[C, STOP], [B, STOP]]) == 2
    assert repeats([[A, STOP], [A, BANG]], [[A]]) == 0


def test_prose_pools_lines() -> None:
    told = prose(
        [[[A, B, C, D, STOP], [A, B, QUOTE]], [[B, STOP, QUOTE], [QUOTE]]],
        [[[A, B, C, D], [E]], [[B, STOP, QUOTE], [E]]],
        VOCABULARY,
    )
    assert told.overlap_4.value == 1 / 2
    assert told.distinct_2 == 7 / 8
    assert told.words.value == 12 / 4
    assert told.repeated.value == 1 / 4
    assert told.ended.value == 2 / 4


def test_the_judge_says_what_the_language_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """log P of the last sentence, whatever the lengths and wherever the batch is cut, is the LM's own log_p_X of it."""
    judge = language_model(1)
    stories = some_stories()
    full = infill_batch([[s.tolist() for s in stories.sentences(n)] for n in (0, 1, 3)])
    truth = judge.log_p_X(flatten(full.X, full.lengths))[:, -1]
    assert torch.allclose(log_p_ending(judge, full.X, full.lengths), truth, atol=1e-5)
    monkeypatch.setattr("fabula.metrics.lookahead.JUDGED_AT_ONCE", 2)
    assert torch.allclose(log_p_ending(judge, full.X, full.lengths), truth, atol=1e-5)
    # And nothing that follows or pads the story counts.
    wide = torch.nn.functional.pad(full.X, (0, 3), value=PAD)
    assert torch.allclose(log_p_ending(judge, wide, full.lengths), truth, atol=1e-5)


def test_blind_systems_write_the_same_whatever_the_ending() -> None:
    """Left to right never hears the ending; Z drawn given both ends does."""
    model = narrator()
    tellers = dict(narrator_systems(model, RULES, SMALL))
    seeds = list(range(6))
    endings = ([A, B, STOP], [E, E, BANG])
    for name, blind in ((BASELINE, True), (Z_ONLY, False)):
        told = [tellers[name](infill_batch([[[A, STOP], None, None, None, end]] * 6), seeds) for end in endings]
        same = torch.equal(told[0].X[:, :, :4], told[1].X[:, :, :4])
        assert same == blind, name


@pytest.mark.parametrize("tags", ["free", "read"])
def test_bridge_with_z_from_the_past_looks_ahead_by_weights_alone(tags: TagSource) -> None:
    """Its particles are blind, and at a sentence that was not heard the weight is the model's log p in full."""
    model = narrator()
    found = []
    endings = ([A, B, STOP], [E, E, BANG])
    read = [infer_tags(model, infill_batch([[None, None, end]]), "read").S[0, 2] for end in endings]
    assert read[0] != read[1]
    for end in endings:
        observed: smc.Observed
        for observed in ("past", "given"):
            settings = smc.BridgeSettings(
                particles=6,
                decoding=DecodingConfig(top_k=3, max_words=6),
                tags=tags,
                z_observes=observed,
                resample_below=0.0,
            )
            rounds = smc.run(model, RULES, infill_batch([[None, None, end]]), settings, [seeded(3)])
            found.append([r for r, _ in rounds])
    past, given, other_past, other_given = found
    for r, other in zip(past, other_past, strict=True):
        assert torch.equal(r.X[:, :2], other.X[:, :2])
        assert torch.allclose(r.log_weight, r.log_p[:, 2])
    assert any(not torch.equal(r.X[:, :2], o.X[:, :2]) for r, o in zip(given, other_given, strict=True))
    assert any(not torch.allclose(r.log_weight, r.log_p[:, 2]) for r in given)


def test_every_system_keeps_both_ends_and_is_judged_on_the_same_stories() -> None:
    stories = some_stories()
    rows = choose_stories(stories, 10, 5, seed=0)
    assert sorted(rows) == [0, 1, 3]
    judge, writer = language_model(1), language_model(2)
    systems = lookahead(narrator(), judge, VOCABULARY, stories, rows, SMALL, lm=writer)
    names = [system.name for system in systems]
    assert names == [
        BASELINE, Z_ONLY, "gibbs", "gibbs-top-3", WEIGHTS_ONLY, BRIDGE, "bridge-ahead",
        "lm", "rerank-4", HUMAN, OTHER,
    ]  # fmt: skip
    by_name = {system.name: system for system in systems}
    human = by_name[HUMAN]
    truth = infill_batch([[s.tolist() for s in stories.sentences(row)] for row in rows])
    assert torch.allclose(human.log_p, judge.log_p_X(flatten(truth.X, truth.lengths))[:, -1].double(), atol=1e-5), (
        "the human middle is the story itself"
    )
    assert all(a != b for a, b in zip(human.lines, by_name[OTHER].lines, strict=True))
    assert sorted(map(str, human.lines)) == sorted(map(str, by_name[OTHER].lines))
    for system in systems:
        assert len(system.lines) == 3
        assert all(len(lines) == 3 and EOS not in line for lines in system.lines for line in lines)
    again = lookahead(narrator(), judge, VOCABULARY, stories, rows, SMALL, lm=writer)
    assert all(torch.equal(a.log_p, b.log_p) and a.lines == b.lines for a, b in zip(systems, again, strict=True))
    with pytest.raises(UserError, match="not the judge"):
        lookahead(narrator(), judge, VOCABULARY, stories, rows, SMALL, lm=judge)


def test_the_summary_compares_bridge_with_its_blind_twin() -> None:
    nothing = prose([[[A, B, C, D, STOP]]] * 2, [[[A], [B]]] * 2, VOCABULARY)

    def system(name: str, *log_p: float) -> System:
        return System(name, torch.tensor(log_p, dtype=torch.float64), 1, nothing, [], 0.0)

    table = summary(
        [
            system(BASELINE, -10, -10),
            system(WEIGHTS_ONLY, -9, -8),
            system(BRIDGE, -8, -7),
            system(HUMAN, -6, -6),
            system(OTHER, -11, -11),
        ]
    )
    assert table["systems"][BRIDGE]["score"] == 0.625
    assert table["systems"][OTHER]["score"] == -0.25
    assert table["z_gain"] == {"value": 1.0, "se": 0.0}
    assert table["share_lost_without_z"]["value"] == 0.4


def test_peeking_tags_and_uneven_chains_are_refused() -> None:
    with pytest.raises(ValueError, match="peek"):
        LookaheadSettings(tags="peek")
    with pytest.raises(ValueError, match="evenly"):
        LookaheadSettings(samples=50, chains=7)
    with pytest.raises(UserError, match="no story has 4 sentences"):
        choose_stories(some_stories(), 5, 4, seed=0)

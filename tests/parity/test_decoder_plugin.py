"""Nothing depends on the GRU: a subword decoder with a key-value cache from one file goes through `fabula fill`."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fabula
from fabula import filling
from fabula.corpus.vocabulary import PAD, SPECIALS, Vocabulary
from fabula.models.io import Checkpoint, save
from fabula.models.settings import ModelSettings
from fabula.sampling import smc
from fabula.sampling.batch import infill_batch
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import SMCSettings
from fabula.training.recipe import Recipe
from small import scaled
from toy_decoder import END, TEXTS, PairTokenizer, ToyModel

LABELS = ("negative", "neutral", "positive")


def a_model() -> ToyModel:
    torch.manual_seed(0)
    return scaled(ToyModel(3), 1.5).eval()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    recipe = Recipe(name="toy", model=ModelSettings(kind="toy-decoder"))
    found = Checkpoint(
        model=a_model(), vocabulary=Vocabulary(SPECIALS), labels=LABELS, recipe=recipe.to_dict(), corpus_hash="none"
    )
    save(tmp_path / "toy", found)
    return tmp_path / "toy"


def test_another_word_has_several_tokens_and_is_ranked_by_the_whole_line(folder: Path) -> None:
    """Both words that can begin here, carried on to the likelier ending, in the order of log p of the story."""
    model = fabula.load(folder)
    words = model.words(["ab bc.", None, "ac ab."], line=3, before="ac", word="xx", after="bb.").words
    assert {word[0] for word in words} == {"a", "b"}
    assert all(len(word) == 2 for word in words)
    log_p = {word: model.score(["ab bc.", f"ac {word} bb."]).log_p for word in ("ab", "ac", "bb", "bc")}
    assert list(words) == sorted(words, key=lambda word: -log_p[word])
    assert model.words(["ab bc.", None], line=2, before="ac", word=words[0], after="bb.").words == words[1:]


@pytest.mark.parametrize("guidance", [0.0, 0.2])
def test_weights_p_over_r_make_the_proposal_exact(guidance: float) -> None:
    """Sentence 2 of 3 from r, weighed by p / r and p of the ending: the law that enumeration gives under p.

    4,000 particles; each of the likely sentences' shares within 6 standard errors of self-normalised weights: a false
    alarm below 1e-6. The unweighted shares are far off, so the weights matter.
    """
    model, rules, limit = a_model(), WordRules.of(PairTokenizer()), 5
    given = [PairTokenizer().encode("ab."), None, PairTokenizer().encode("bc bb.")]
    batch = infill_batch([given], end=END)
    model.toy.strict = False
    every = sentences(limit)
    rows = infill_batch([[given[0], list(s[:-1]), given[2]] for s in every], end=END)
    state, truth = model.decoder.start(len(every)), torch.zeros(len(every))
    for i in range(3):
        state = model.decoder.begin_sentence(state, None)
        state, log_p = model.decoder.read(state, rows.X[:, i], rows.lengths[:, i], None)
        truth = truth + (log_p if i else 0.0)
    p = truth.detach().double().softmax(0)
    particles = 4_000
    settings = SMCSettings.plain(
        samples=particles, top_k=0, max_words=limit, correct=True, resample_below=0.0, guidance=guidance
    )
    noise = Noise([seeded(5)], [3], particles, "cpu")
    with torch.inference_mode():
        found, _ = smc.draw_groups(model, rules, batch, smc.without_latents(batch), settings, [noise])
    number = {s: n for n, s in enumerate(every)}
    place = torch.tensor([number[tuple(t for t in row if t != PAD)] for row in found.X[:, 1].tolist()])
    w = found.log_weight.double().softmax(0)
    raw = torch.bincount(place, minlength=len(every)).double() / particles
    seen = 0
    for n in (p > 0.02).nonzero().squeeze(1).tolist():
        hit = (place == n).double()
        share = float((w * hit).sum())
        error = float((w.square() * (hit - share).square()).sum().sqrt())
        assert abs(share - float(p[n])) < 6 * error + 1e-9, (n, share, float(p[n]), error)
        seen += abs(float(raw[n]) - float(p[n])) > 6 * error
    assert seen > 0


def sentences(limit: int) -> list[tuple[int, ...]]:
    """Every sentence that `write` can write: ends by `end`, at the limit after a mark."""
    found: list[tuple[int, ...]] = []

    def grow(words: tuple[int, ...]) -> None:
        t = len(words)
        for token in range(1, len(TEXTS) - 1):
            if t == 0 and token not in (3, 4):
                continue
            if t == limit - 2 and token != (END if words[-1] == 2 else 2):
                continue
            if t == limit - 1 and token != END:
                continue
            if token == END:
                found.append((*words, END))
            elif t < limit - 1:
                grow((*words, token))

    grow(())
    return found


def test_given_lines_that_are_read_once_for_all_particles_change_no_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone a story's first lines are read once; beside one that begins with a blank every particle reads them."""
    narrator = fabula.load(folder)
    calls: list[dict[str, Any]] = [
        {"sentences": ["ab ac.", "bb ab.", None, "bc."], "seed": 3, "samples": 8},
        {"sentences": [None, "ac ac.", None, None, "ab."], "seed": 4, "samples": 8, "candidates": 2},
        {"sentences": ["ab.", "what?", "bb."], "samples": 8},
    ]
    *_, together = narrator.fill_together(calls)
    assert "no sentence is missing" in str(together[2])
    monkeypatch.setattr(filling, "ROWS", 8)
    *_, parted = narrator.fill_together(calls, at_once=True)  # a story at a time
    for call, found in zip([*calls[:2]] * 2, [*together[:2], *parted[:2]], strict=True):
        alone = narrator.fill(**call)
        assert isinstance(found, fabula.api.Filling)
        assert [c.text for c in found.candidates] == [c.text for c in alone.candidates]
        assert [c.score for c in found.candidates] == pytest.approx([c.score for c in alone.candidates], rel=1e-5)
        assert found.diagnostics.changed == alone.diagnostics.changed
    with pytest.raises(ValueError, match="equal settings"):
        list(narrator.fill_together([calls[0], calls[0] | {"samples": 9}]))

"""A narrator of mood, emotion and main verb answers its clients as a narrator of moods does: the rest is beside it."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

import fabula
from fabula.api import StoryModel
from fabula.corpus.taggers.protocol import build_tagger, named, states_of
from fabula.corpus.taggers.verb import INSTALL, VerbTagger
from fabula.models.decoders import bases
from fabula.models.decoders.adapter import Adapter, AdapterConfig, shapes
from fabula.models.decoders.bases import read_base
from fabula.models.io import pretrained
from fabula.models.io.pretrained import save_adapter
from fabula.training.stories import chain_of
from gguf_writer import write_tiny_base

SCHEMAS = Path(__file__).parents[2] / "schema"
TAGGER = "vader,emotion,verb"
STORY = ["Tom was sad.", None, None, "Tom was happy."]
TOLD = ["Tom was happy.", "He was afraid."]
SETTINGS: dict[str, Any] = {"samples": 4, "candidates": 2, "seed": 3}


def chain(K: int) -> dict[str, Any]:
    """A p(S) that is not uniform."""
    return chain_of([[(i * i) % K, i % K, (i + 1) % K] for i in range(3 * K)], K)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One random adapter twice: `moods`, and `default` with tokens for emotion and verb."""
    root = tmp_path_factory.mktemp("three-factors")
    base = write_tiny_base(root / "tiny.gguf")
    states = states_of(build_tagger(named(TAGGER)))
    moods = AdapterConfig(
        base_sha256=read_base(base).sha256, rank=4, scale=2.0, labels=states.factors[0].labels, tagger="vader"
    )
    three = dataclasses.replace(moods, tagger=TAGGER, factors=states.factors)
    generator = torch.Generator().manual_seed(0)
    sizes = read_base(base).sizes
    tensors = {
        name: torch.randn(*shape, generator=generator) / 10
        for name, shape in shapes(sizes, 4, further=sum(states.sizes[1:])).items()
    }
    facts: dict[str, Any] = {
        "name": "tiny", "figures": {}, "corpus_hash": "0" * 64, "people": {"he": ["Tom"], "she": ["Mia"]},
        "common": ["the", "a"], **chain(3),
    }  # fmt: skip
    save_adapter(Adapter(three, tensors), root / "default")
    save_adapter(Adapter(moods, {k: v for k, v in tensors.items() if k != "further_in"}), root / "moods")
    for name, further in (("default", [chain(6), chain(31)]), ("moods", [])):
        (root / name / pretrained.FACTS).write_text(json.dumps({**facts, "further": further}), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(bases.CACHE_VARIABLE, str(root / "cache"))
        patch.setenv("FABULA_MODELS", str(root))
        patch.setattr("fabula.catalogue.PACKAGED", root / "none")
        patch.setattr("fabula.catalogue.find_base", lambda *_: base)
        patch.setattr(pretrained, "need_base", lambda digest: base)
        patch.setattr(VerbTagger, "fault", f"tagging main verbs needs a parser: {INSTALL}")
        yield root


@pytest.fixture(scope="module")
def narrator(models: Path) -> StoryModel:
    return fabula.load("default")


def without_factors(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {key: without_factors(value) for key, value in answer.items() if key != "factors"}
    return [without_factors(value) for value in answer] if isinstance(answer, list) else answer


@pytest.mark.parametrize(
    "ask",
    [
        lambda n: n.fill(STORY, arc="? + ? -", **SETTINGS),
        lambda n: n.tag(TOLD),
        lambda n: n.explain(TOLD, arc="+ ?"),
        lambda n: n.posterior(STORY, arc="? ? - ?"),
    ],
    ids=["fill", "tag", "explain", "posterior"],
)
def test_what_clients_of_moods_read_is_the_same(
    ask: Callable[[StoryModel], Any], narrator: StoryModel, models: Path
) -> None:
    """Free factors have no tokens, so the same weights write the same story, and `tag` is the mood alone."""
    three, moods = ask(narrator), ask(fabula.load("moods"))
    assert "factors" not in moods.to_json()
    assert without_factors(three.to_dict(4)) == moods.to_dict(4)
    assert without_factors(three.to_dict()).keys() == moods.to_dict().keys()
    kind = type(three).__name__.lower()
    jsonschema.validate(three.to_dict(4), json.loads((SCHEMAS / f"{kind}.v1.json").read_text(encoding="utf-8")))


def test_the_other_factors_stand_beside_the_mood(narrator: StoryModel) -> None:
    arc = {"emotion": [None, "fear", None, None], "verb": [None, None, "forgive", None]}
    found = narrator.fill(STORY, arc=arc, **SETTINGS)
    for candidate in found.candidates:
        assert (candidate.arc[0], candidate.arc[3]) == ("negative", "positive")
        assert candidate.sentences[0].factors == {"emotion": "sadness"}
        assert candidate.sentences[1].asked_factors == {"emotion": "fear"}
        assert candidate.sentences[1].met == (candidate.sentences[1].factors["emotion"] == "fear")
        assert (candidate.sentences[2].asked_factors, candidate.sentences[2].met) == ({"verb": "forgive"}, None)
    (row,) = narrator.fill_many([{"id": "a", "sentences": STORY, "arc": arc}], candidates=1, samples=2)
    assert row.candidates[0].sentences[0].factors["emotion"] == "sadness"
    tagged = narrator.tag(TOLD)
    assert (tagged.tags[0], [dict(each) for each in tagged.factors]) == (
        "positive", [{"emotion": "joy"}, {"emotion": "fear"}],
    )  # fmt: skip
    assert set(tagged.probabilities[0]) == {"negative", "neutral", "positive"}
    assert narrator.explain(TOLD, arc="+ ?; emotion=joy,?").sentences[0].factors == {"emotion": "joy"}
    posterior = narrator.posterior(STORY, arc=arc)
    assert posterior.factors[1]["emotion"]["fear"] == pytest.approx(1)
    assert posterior.factors[0]["emotion"]["sadness"] == pytest.approx(1)
    assert sum(posterior.factors[2]["emotion"].values()) == pytest.approx(1)


def test_an_opening_is_whole_words(narrator: StoryModel) -> None:
    """No token carries its last word on: `I` is no beginning of Ida."""
    for opening in ("I", "He to"):
        written = narrator.write(2, starts={1: opening}, candidates=30, samples=30, top_k=0, temperature=3.0)
        begun = [candidate.sentences[0].text.removeprefix(opening)[:1] for candidate in written.candidates]
        assert len(begun) > 20
        assert not any(after.isalnum() for after in begun)

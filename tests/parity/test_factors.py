"""A state of two factors through every door: one factor fixed, the other free, by command line, Python and HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

import fabula
from doors import Serving
from fabula.api import StoryModel
from fabula.apps.studio.app import StudioSettings, create_app
from fabula.cli import main
from fabula.corpus.states import Factor, StateSpace
from fabula.models.io import save
from fabula.sampling.batch import flatten
from fabula.sampling.task import story_task
from small import small_checkpoint

STATES = StateSpace(
    (Factor("sentiment", ("negative", "neutral", "positive")), Factor("emotion", ("joy", "fear", "none")))
)
WORDS = (".", "Tom", "Mia", "was", "ran", "sad", "glad", "home", "the", "dog", "saw", "he", "she")
STORY = ["Tom was sad.", None, None, "Tom ran home."]
GIVEN = ["_" if sentence is None else sentence for sentence in STORY]
SAMPLES: dict[str, Any] = {"samples": 6, "candidates": 3, "seed": 4}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Untrained models over nine states, installed: `default` (slds) and `s2s`."""
    root = tmp_path_factory.mktemp("factors")
    p_next = torch.rand(STATES.K, STATES.K, generator=torch.Generator().manual_seed(0)).softmax(-1)
    for kind in ("slds", "s2s"):
        made = small_checkpoint(kind, words=WORDS, labels=STATES.labels, factors=STATES.factors, p_next=p_next)
        save(root / ("default" if kind == "slds" else kind), made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABULA_MODELS", str(root))
        patch.setattr("fabula.catalogue.PACKAGED", root / "none")
        yield root


@pytest.fixture(scope="module")
def client(serving: Serving, models: Path) -> Iterator[httpx.Client]:
    settings = StudioSettings(db=models / "studio.db")
    with serving(create_app(settings)) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def narrator(models: Path) -> StoryModel:
    return fabula.load("default")


@pytest.mark.parametrize(
    ("arc", "options", "sampler"),
    [
        ({"emotion": ["joy", None, "fear", None]}, ["--arc", "emotion=joy,?,fear,?"], "smc"),
        ("+ ? - ?; emotion=joy,?,fear,?", ["--arc", "+ ? - ?", "--arc", "emotion=joy,?,fear,?"], "gibbs"),
        (["positive/joy", None, "?/fear", "-"], ["--arc", "sentiment=+,?,?,- emotion=joy,?,fear,?"], "smc"),
    ],
)
def test_arcs_of_one_factor_or_both(
    arc: Any, options: list[str], sampler: str, narrator: StoryModel, client: httpx.Client,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What is asked of each factor stands beside what the text has, and the doors agree."""
    found = narrator.fill(STORY, arc=arc, sampler=sampler, **SAMPLES)
    wanted = STATES.parse(arc)
    for candidate in found.candidates:
        for values, sentence in zip(wanted, candidate.sentences, strict=True):
            assert (sentence.asked, sentence.asked_factors) == STATES.named(values)
            ((has,),) = (STATES.parse([f"{sentence.tag}/{sentence.factors['emotion']}"]),)
            agreed = [w == v for w, v in zip(values, has, strict=True) if w >= 0]
            assert sentence.met == (all(agreed) if agreed else None)
    body = {"sentences": STORY, "arc": arc, "sampler": sampler, **SAMPLES}
    over_http = client.post("/api/fill", json=body)
    assert over_http.status_code == 200
    capsys.readouterr()
    numbers = ["--samples", "6", "--candidates", "3", "--seed", "4", "--sampler", sampler, "--json"]
    assert main(["fill", *GIVEN, *options, *numbers]) == 0
    by_command = json.loads(capsys.readouterr().out)
    assert over_http.json() == by_command == json.loads(found.to_json())


def test_a_model_that_cannot_read_tags_claims_none(models: Path) -> None:
    """No q(S | X), and labels that no tagger knows."""
    for candidate in fabula.load("s2s").fill(STORY, arc={"emotion": "joy ? fear fear"}, samples=4).candidates:
        assert [s.asked_factors.get("emotion") for s in candidate.sentences] == ["joy", None, "fear", "fear"]
        assert {(s.tag, s.met, len(s.factors)) for s in candidate.sentences} == {(None, None, 0)}


def test_posterior_and_explanation_know_both_factors(narrator: StoryModel, client: httpx.Client) -> None:
    arc = {"emotion": "joy ? fear ?"}
    posterior = narrator.posterior(STORY, arc=arc)
    joy, fear = ([row["emotion"][name] for row in posterior.factors] for name in ("joy", "fear"))
    assert joy[0] == pytest.approx(1)
    assert fear[2] == pytest.approx(1)
    assert 0 < joy[1] < 1
    assert all(sum(row.values()) == pytest.approx(1) for row in posterior.tags)
    over_http = client.post("/api/posterior", json={"sentences": STORY, "arc": arc}).json()
    told = json.loads(posterior.to_json())
    assert (over_http["tags"], over_http["factors"]) == (told["tags"], told["factors"])
    story = ["Tom was sad.", "Tom ran home."]
    both = narrator.explain(story, arc="+/joy ?", samples=2).sentences[0].fits_arc
    either = narrator.explain(story, arc="emotion=joy,?", samples=2).sentences[0].fits_arc
    assert both is not None
    assert either is not None
    assert both < either < 0


def test_a_tag_is_the_likeliest_of_each_factor(narrator: StoryModel) -> None:
    """q(S_i | X) summed over the other factor; the first is the tag, the second beside it."""
    story = ["Tom was sad.", "Tom ran home."]
    tagged = narrator.tag(story)
    task = narrator.text.encode(story_task(story, STATES))
    q = narrator.model.log_q_S(flatten(task.X, task.lengths))[0].exp().view(2, 3, 3)
    assert [list(row.values()) for row in tagged.probabilities] == [pytest.approx(row) for row in q.sum(2).tolist()]
    emotions = [STATES.factors[1].labels[k] for k in q.sum(1).argmax(1).tolist()]
    assert [row["emotion"] for row in tagged.factors] == emotions

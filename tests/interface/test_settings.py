"""Settings are declared once, with the sampler: every door offers them, and refuses what the sampler does not have."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fabula
from fabula.cli import main
from fabula.errors import UserError
from fabula.sampling.protocol import SAMPLERS, samplers
from fabula.sampling.settings import GibbsSettings, RerankSettings, SMCSettings, choose

STORY = ["Mia's car would not start.", None, None, "Mia made it to work on time."]


pytestmark = pytest.mark.usefixtures("installed")


def test_a_sampler_that_cannot_be_loaded_is_a_warning_and_all_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = value = "broken"

        def load(self) -> None:
            raise ImportError("no module named nonsense")

    monkeypatch.setattr("fabula.registry.entry_points", lambda group: [Broken()])
    monkeypatch.setattr(SAMPLERS, "loaded", False)
    with pytest.warns(UserWarning, match="broken cannot be loaded"):
        assert list(samplers()) == ["smc", "gibbs", "rerank", "served"]


@pytest.mark.parametrize(
    ("sampler", "chosen", "says"),
    [
        ("smc", {"chains": 2}, "smc has no setting 'chains'; it has samples, top_k"),
        ("smc", {"rank": "consensus"}, "rank must be critic or ending, not 'consensus'"),
        ("smc", {"rank": "critic"}, "this model has no critic: rank by ending"),
        ("smc", {"memory_gib": 1.0}, "smc has no setting 'memory_gib'"),
        ("smc", {"correct": True}, "smc has no setting 'correct'"),
        ("smc", {"tags": "peek"}, "tags must be read or free, not 'peek'"),
        ("smc", {"no_repeat": 1}, "no_repeat must be 0 or at least 2, not 1"),
        ("gibbs", {"twist_weight": 0.5}, "gibbs has no setting 'twist_weight'"),
        ("magic", {}, "unknown sampler 'magic'; there are smc, gibbs, rerank"),
    ],
)
def test_a_setting_that_the_sampler_does_not_have_is_an_error(sampler: str, chosen: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as caught:
        fabula.load("default").fill(STORY, sampler=sampler, **chosen)
    assert says in str(caught.value)
    assert fabula.load("default").fill(STORY, samples=2, chains=None).samples == 2


def test_plain_settings_are_the_models_own_distribution() -> None:
    smc = SMCSettings.plain(samples=7)
    off = (smc.fluency, smc.twist_weight, smc.context, smc.agreement, smc.no_repeat, smc.guidance)
    assert (smc.samples, smc.temperature, smc.allow_new_names, off) == (7, 1.0, True, (0,) * 6)
    assert (RerankSettings.plain().temperature, RerankSettings.plain().no_repeat) == (1.0, 0)
    assert GibbsSettings.plain() == GibbsSettings()
    assert choose("smc", SMCSettings, {}) == SMCSettings()


def test_a_models_own_defaults_show_wherever_settings_are_listed(
    random_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In `--help`, in `fabula models`, in Python, and in what is drawn."""
    shutil.copytree(random_models / "default", tmp_path / "mine")
    config = json.loads((tmp_path / "mine" / "config.json").read_text())
    config["sampling"] = {"smc": {"samples": 7, "top_k": 3, "temperature": 0.8}}
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("FABULA_MODELS", str(tmp_path))
    with pytest.raises(SystemExit):
        main(["fill", "--help", "--model", "mine"])
    page = " ".join(capsys.readouterr().out.split())
    assert "stories to draw and choose from (7; for gibbs 50; for rerank 1000; for served 4)" in page
    assert "1 unchanged (0.8" in page
    with pytest.raises(SystemExit):
        main(["write", "--model=mine", "--help"])
    assert "stories to draw and choose from (10)" in " ".join(capsys.readouterr().out.split())
    assert main(["models", "--settings"]) == 0
    assert "smc: samples 7, top_k 3, temperature 0.8" in capsys.readouterr().out
    model = fabula.load("mine")
    assert {name: values["samples"] for name, values in model.settings().items()} == {"smc": 7, "gibbs": 50}
    assert (model.fill(STORY).samples, model.fill(STORY, samples=2).samples, model.write(2).samples) == (7, 2, 10)


MISSING = ["Tom was sad.", None, "Tom was glad."]
WHOLE = ["Tom was sad.", "Tom was glad."]


@pytest.mark.parametrize(
    ("method", "arguments", "settings", "says"),
    [
        ("fill", [MISSING], {"samples": 2.5}, "samples must be a whole number, not 2.5"),
        ("fill", [MISSING], {"candidates": 2.0}, "candidates must be a whole number, not 2.0"),
        ("fill", [MISSING], {"seed": "7"}, "seed must be a whole number, not '7'"),
        ("fill", [MISSING], {"seed": 2**70}, "seed must be a number of 64 bits"),
        ("fill", [MISSING], {"temperature": "hot"}, "temperature must be a number, not 'hot'"),
        ("fill", [MISSING], {"allow_new_names": "no"}, "allow_new_names must be True or False, not 'no'"),
        ("fill", [MISSING], {"sampler": 3}, "unknown sampler 3"),
        ("fill", [MISSING], {"arc": [1, 0, 1]}, "an arc is a text or a list of texts"),
        ("fill", ["Tom was sad. _ Tom was glad."], {}, "a story is a list of sentences"),
        ("fill", [[1, None]], {}, "sentence 1 is not a text"),
        ("fill", [MISSING], {"starts": ["He"]}, "starts is a mapping"),
        ("fill", [MISSING], {"starts": {2: 5}}, "the opening of sentence 2 is not a text"),
        ("tag", [["_"]], {}, "sentence 1 is missing"),
        ("explain", [WHOLE], {"samples": 0}, "samples must be at least 1, not 0"),
        ("posterior", [WHOLE], {"samples": 1}, "samples must be at least 2, not 1"),
        ("write", [3.0], {}, "sentences must be a whole number, not 3.0"),
    ],
)
def test_values_of_a_wrong_type_are_one_clear_line(
    method: str, arguments: list[Any], settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError) as caught:
        getattr(fabula.load("default"), method)(*arguments, **settings)
    assert says in str(caught.value)


def test_numbers_of_numpy_are_numbers() -> None:
    model = fabula.load("default")
    plain = model.fill(MISSING, seed=7, samples=4, candidates=2, top_k=5, temperature=1.0, starts={2: "He"})
    arrays: dict[str, Any] = {"seed": np.int64(7), "samples": np.int32(4), "candidates": np.uint8(2)}
    arrays |= {"top_k": np.int64(5), "starts": {np.int64(2): "He"}, "temperature": np.float32(1)}
    assert plain.to_json() == model.fill(MISSING, **arrays).to_json()
    answers = (model.write(arc="+ - +", samples=2), model.write(samples=2))
    assert [len(answer.candidates[0].sentences) for answer in answers] == [3, 5]


def test_as_many_samples_as_the_candidates_need() -> None:
    model = fabula.load("lm")
    assert model.usual_samples("rerank") == 1000
    assert model.usual_samples("rerank", candidates=800) == 1600
    assert fabula.load().fill(MISSING, candidates=30).samples == 60
    assert fabula.load().write(2, candidates=8).samples == 16
    few = fabula.load().fill(MISSING, candidates=30, samples=3)
    assert any(note.startswith(f"only {len(few.candidates)} of the 30 candidates") for note in few.notes)

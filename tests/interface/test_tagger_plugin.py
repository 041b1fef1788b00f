"""A tagger in one file of another package plus one line that registers it: `fabula prepare`, `train`, `fill`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from doors import Refused
from fabula.api import load
from fabula.cli import main
from fabula.corpus.dataset import Corpus
from fabula.corpus.states import Factor
from fabula.corpus.taggers.protocol import TAGGERS, tagger_of
from small import TINY

TAGGER = '''
class Length:
    """Whether a sentence is short, by its words."""

    labels = ("short", "long")

    def __init__(self, settings):
        self.limit = settings.get("limit", 5)

    @property
    def settings(self):
        return {"tagger": "length", "limit": self.limit}

    def tag(self, sentences):
        return [int(len(sentence.split()) > self.limit) for sentence in sentences]
'''
GIVEN = ["Tom ran.", "_", "The old dog was very glad to see him again."]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A corpus tagged by the package's tagger, which nobody has imported."""
    package = tmp_path / "package"
    metadata = package / "lengths-1.dist-info"
    metadata.mkdir(parents=True)
    (package / "lengths_of_a_test.py").write_text(TAGGER)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lengths\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[fabula.taggers]\nlength = lengths_of_a_test:Length\n")
    monkeypatch.syspath_prepend(package)
    out = tmp_path / "corpus"
    assert main(["prepare", "--toy", "120", "--tagger", "length", "--out", str(out), "--json"]) == 0
    yield out
    del TAGGERS.implementations["length"]


def trained(prepared: Path, kind: str) -> Path:
    recipe, run = prepared.parent / f"{kind}.toml", prepared.parent / f"{prepared.name}-{kind}"
    recipe.write_text(f'model.kind = "{kind}"\n{TINY}')
    assert main(["train", str(recipe), "--data", str(prepared), "--out", str(run), "--device", "cpu", "--quiet"]) == 0
    return run


def test_a_model_without_a_posterior_of_tags_asks_its_own_tagger(prepared: Path) -> None:
    """The checkpoint names the tagger and its settings: another limit gives other tags."""
    narrator = load(trained(prepared, "s2s"))
    tagging = narrator.tag([text for text in GIVEN if text != "_"])
    assert tagging.tags == ("short", "long")
    assert "length" in tagging.notes[0]
    one = tagger_of({**narrator.checkpoint.tagger, "limit": 1}, narrator.labels)
    assert one is not None
    assert one.tag(["Tom ran."]) == [1]
    assert tagger_of({"tagger": "own"}, narrator.labels) is None


def test_two_taggers_give_two_factors(prepared: Path) -> None:
    """Corpus and checkpoint keep the factors; a checkpoint without any has one, named after the tagger."""
    out = prepared.parent / "both"
    assert main(["prepare", "--toy", "120", "--tagger", "vader,length", "--out", str(out), "--json"]) == 0
    corpus = Corpus.open(out)
    assert [(f.name, len(f.labels)) for f in corpus.states.factors] == [("sentiment", 3), ("length", 2)]
    assert corpus.labels == corpus.states.labels
    assert corpus.labels[5] == "positive/long"
    tagger = tagger_of(corpus.tagger, corpus.labels)
    assert tagger is not None
    assert tagger.tag(["Tom was happy.", "The old dog was very sad and upset that day."]) == [4, 1]
    assert corpus.transitions.following.shape == (6, 6)

    run = trained(out, "slds")
    config = json.loads((run / "config.json").read_text())
    assert config["states"] == corpus.states.to_record()
    assert config["tagger"]["tagger"] == "vader,length"
    assert load(run).checkpoint.states == corpus.states
    single = trained(prepared, "slds")
    config = json.loads((single / "config.json").read_text())
    del config["states"]
    (single / "config.json").write_text(json.dumps(config))
    assert load(single).checkpoint.states.factors == (Factor("length", ("short", "long")),)


def test_a_tagger_is_named_once_and_must_exist(tmp_path: Path, refused: Refused) -> None:
    base = ["prepare", "--toy", "5", "--out", tmp_path / "out"]
    assert "unknown tagger 'nobody'; there are emotion, vader, verb" in refused(*base, "--tagger", "nobody")
    assert "factors of different names" in refused(*base, "--tagger", "vader,vader")

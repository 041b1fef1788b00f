"""`fabula train` and `fabula evaluate likelihood`: one clear line and exit 2 for every mistake; what --json holds."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fabula
from doors import Refused
from fabula.cli import main
from fabula.corpus.dataset import Corpus
from fabula.corpus.prepare import prepare
from fabula.metrics.measure import measure_likelihood
from fabula.models.io import load
from fabula.models.io.checkpoint import FORMAT
from fabula.training.corpus_model import CorpusLearner
from fabula.training.loop import train
from fabula.training.recipe import recipe_from
from small import SIZES, to_toml


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    """The smallest run: one epoch."""
    return {"name": "least", "model": dict(SIZES), "train": {"epochs": 1, "batch": 64}}


@pytest.fixture(scope="module")
def trained(toy_corpus: Path, recipe: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run. Copy it before breaking it."""
    run = tmp_path_factory.mktemp("trained") / "run"
    run.mkdir()
    train(recipe_from(recipe), Corpus.open(toy_corpus), run, bar=False)
    return run


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def written(recipe: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "least.toml"
    path.write_text(to_toml(recipe))
    return path


@pytest.fixture(scope="module")
def other_labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with two labels of its own."""
    return own_labels(tmp_path_factory.mktemp("labels"), ("dark", "bright"))


def own_labels(folder: Path, labels: tuple[str, ...]) -> Path:
    file = folder / "own.jsonl"
    stories = [
        {"sentences": [f"Tom saw {n} dogs.", "He ran."], "tags": [labels[n % len(labels)]] * 2} for n in range(12)
    ]
    file.write_text("".join(json.dumps(story) + "\n" for story in stories))
    prepare([file], folder / "corpus", valid=file, test=file, own_tags=True, cutoff=1, progress=False)
    return folder / "corpus"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[train]\nlabeled = 3", "unknown setting train.labeled"),
        ("speed = 3", "unknown setting speed"),
        ('kind = "poem"', "is of kind poem: there are narrator, preference, critic"),
        ("[train]\nepochs = 'many'", "setting train.epochs must be a int, not 'many'"),
        ("[objective]\nclamp_tags = 1", "setting objective.clamp_tags must be a bool"),
        ("model = 3", "setting model must be a table"),
        ("[model]\nkind = 'hmm'", "unknown model kind 'hmm'; there are lm, s2s, slds, lds"),
        ("[model.dynamics]\nlatent = 0", "setting model.dynamics.latent must be above 0, not 0"),
        ("[model.language]\ndropout = 1", "setting model.language.dropout must be at least 0 and below 1"),
        ("[objective]\nlabelled = 1.5", "setting objective.labelled must be between 0 and 1"),
        ("[objective]\nlabelled = 0\nlabelled_per_step = 4", "setting objective.labelled_per_step needs labelled"),
        ("[train]\nlearning_rate = nan", "setting train.learning_rate must be above 0, not nan"),
        ("[train]\nweight_decay = -1", "setting train.weight_decay must be at least 0"),
        ("[train\nepochs = 3", "is not valid TOML"),
        ("\x00", "is not valid TOML"),
    ],
)
def test_a_recipe_is_read_strictly(content: str, says: str, refused: Refused, tmp_path: Path, toy_corpus: Path) -> None:
    (tmp_path / "bad.toml").write_text(content)
    assert says in refused("train", tmp_path / "bad.toml", "--data", toy_corpus, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_missing_is_named(refused: Refused, written: Path, tmp_path: Path, toy_corpus: Path) -> None:
    to = ("--data", toy_corpus, "--out", tmp_path / "r")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    assert "is not valid TOML" in refused("train", tmp_path / "bad.toml", *to)
    assert "cannot read the recipe" in refused("train", tmp_path / "no.toml", *to)
    assert "unknown device 'tpu'" in refused("train", written, *to, "--device", "tpu")
    assert "RECIPE.toml is missing" in refused("train", "--data", toy_corpus, "--out", tmp_path / "r")
    assert "--data is missing" in refused("train", written, "--out", tmp_path / "r")
    assert "--out is missing" in refused("train", written, "--data", toy_corpus)
    assert "does not exist" in refused("train", written, "--data", tmp_path / "none", "--out", tmp_path / "r")
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        assert f"cannot write {out}" in refused("train", written, "--data", toy_corpus, "--out", out)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_an_existing_run_is_kept(refused: Refused, written: Path, copied: Path, toy_corpus: Path) -> None:
    """Said before the run that --force would replace is touched; without --force nothing is replaced."""
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    to = ("train", written, "--data", toy_corpus, "--out", copied)
    assert "continue it with --resume or replace it with --force" in refused(*to)
    assert "no CUDA device is available" in refused(*to, "--force", "--device", "cuda")
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before
    model = ("--model", copied, "--data", toy_corpus)
    assert "no CUDA device is available" in refused("evaluate", "likelihood", *model, "--device", "cuda")


def test_a_mistake_leaves_no_empty_folder(refused: Refused, written: Path, tmp_path: Path, toy_corpus: Path) -> None:
    """Neither the run's nor those above it, unless they were there before."""
    file, corpus, new = tmp_path / "two.txt", tmp_path / "corpus", tmp_path / "new"
    file.write_text("Tom ran.\nTom won.\n\nMia sang.\nMia slept.\n")
    prepare([file], corpus, cutoff=1, progress=False)
    to = ["--out", new / "runs" / "one"]
    assert "no split 'valid'" in refused("train", written, "--data", corpus, *to)
    assert not new.exists()
    (tmp_path / "log.jsonl").write_text("an earlier run\n")
    assert "no split 'valid'" in refused("train", written, "--data", corpus, "--out", tmp_path, "--force")
    assert (tmp_path / "log.jsonl").read_text() == "an earlier run\n"
    (new / "runs").mkdir(parents=True)
    assert "nothing to resume" in refused("train", written, "--data", toy_corpus, "--resume", *to)
    assert list(new.rglob("*")) == [new / "runs"]


def test_resuming_another_run(
    refused: Refused, recipe: dict[str, Any], written: Path, copied: Path, tmp_path: Path,
    toy_corpus: Path, other_labels: Path,
) -> None:  # fmt: skip
    """Another recipe, another corpus, nothing there, or damage."""
    other = tmp_path / "other.toml"
    other.write_text(to_toml({**recipe, "train": {**recipe["train"], "seed": 5}}))
    assert "by another recipe" in refused("train", other, "--data", toy_corpus, "--out", copied, "--resume")
    assert "on another corpus" in refused("train", written, "--data", other_labels, "--out", copied, "--resume")
    assert "nothing to resume" in refused("train", written, "--data", toy_corpus, "--out", tmp_path / "new", "--resume")
    state = copied / "resume" / "state.json"
    (file,) = (copied / "resume").glob("state-*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    assert "is truncated" in refused("train", written, "--data", toy_corpus, "--out", copied, "--resume")
    for content in ("{}", "{"):
        state.write_text(content)
        assert "is damaged" in refused("train", written, "--data", toy_corpus, "--out", copied, "--resume")


@pytest.mark.parametrize("epoch", [1, 2])
def test_nan_loss_stops_and_keeps_the_last_good_checkpoint(
    epoch: int, refused: Refused, written: Path, tmp_path: Path, toy_corpus: Path, monkeypatch: pytest.MonkeyPatch,
    recipe: dict[str, Any],
) -> None:  # fmt: skip
    """Step 1 of the first or of the second epoch turns NaN: the step is said, epoch 1's checkpoint can be read."""
    written.write_text(to_toml({**recipe, "train": {"epochs": 2, "batch": 64}}))
    at = 4 * (epoch - 1) + 1
    inner = CorpusLearner.total

    def total(self: CorpusLearner, terms: Any, step: int, per_epoch: int) -> Any:
        return inner(self, terms, step, per_epoch) * (float("nan") if step == at else 1.0)

    monkeypatch.setattr(CorpusLearner, "total", total)
    run = tmp_path / "run"
    said = refused("train", written, "--data", toy_corpus, "--out", run, "--quiet")
    assert f"NaN or infinite at step {at}" in said
    if epoch == 1:
        assert "nothing is kept" in said
        assert not (run / "config.json").exists()
        return
    assert f"last good checkpoint is kept in {run}" in said
    kept = load(run)
    assert kept.figures["epoch"] == 1
    assert all(bool(torch.isfinite(tensor).all()) for tensor in kept.model.state_dict().values())
    assert len((run / "log.jsonl").read_text().splitlines()) == 1


class FullDisk:
    """fsync fails with ENOSPC at its n-th call, as a disk does that fills up."""

    def __init__(self, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.calls, self.inner = at, 0, os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, descriptor: int) -> None:
        self.calls += 1
        if self.calls >= self.at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.inner(descriptor)


# An epoch writes weights, words, config, log, state, state.json, in this order: six files.
@pytest.mark.parametrize("at", [1, 3, 4, 6])
def test_a_disk_that_fills_during_a_save(
    at: int, refused: Refused, written: Path, copied: Path, toy_corpus: Path, monkeypatch: pytest.MonkeyPatch,
    recipe: dict[str, Any],
) -> None:  # fmt: skip
    """Whichever file does not fit: one line, and the folder still holds a whole checkpoint, the old or the new."""
    before = load(copied)
    written.write_text(to_toml({**recipe, "name": "next", "train": {**recipe["train"], "seed": 3}}))
    with monkeypatch.context() as patch:
        disk = FullDisk(at, patch)
        said = refused("train", written, "--data", toy_corpus, "--out", copied, "--force", "--quiet")
    assert disk.calls == at
    assert "the disk is full" in said
    after = load(copied)
    assert after.name == ("least" if at <= 3 else "next")
    if at <= 3:
        own, kept = before.model.state_dict(), after.model.state_dict()
        assert all(torch.equal(own[name], kept[name]) for name in own)
    assert not list(copied.rglob(".*tmp"))


def break_config(run: Path, **changes: Any) -> None:
    """Settings in the place of others; None takes one away."""
    config = {**json.loads((run / "config.json").read_text()), **changes}
    (run / "config.json").write_text(json.dumps({name: value for name, value in config.items() if value is not None}))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(bytes(content))


def weights(run: Path) -> Path:
    (file,) = run.glob("weights-*.safetensors")
    return file


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda run: cut(weights(run)), "is truncated"),
        (lambda run: flip(weights(run)), "was altered"),
        (lambda run: weights(run).unlink(), "cannot be read: No such file"),
        (lambda run: cut(run / "vocabulary.json"), "is truncated"),
        (lambda run: flip(run / "vocabulary.json"), "was altered"),
        (lambda run: (run / "config.json").unlink(), "is not a checkpoint: it has no config.json"),
        (lambda run: cut(run / "config.json"), "config.json cannot be read"),
        (lambda run: (run / "config.json").write_text("[]"), "is of format None"),
        (lambda run: break_config(run, format=FORMAT + 1), f"is of format {FORMAT + 1}; this Fabula reads format"),
        (lambda run: break_config(run, weights=None), "is damaged"),
        (lambda run: break_config(run, weights={}), "do not fit its recipe"),
        (lambda run: break_config(run, labels=None), "is damaged"),
        (lambda run: break_config(run, labels=["one", "two"]), "do not fit its recipe"),
        (lambda run: break_config(run, recipe={"name": "x", "model": {"kind": 3}}), "setting model.kind must be a str"),
    ],
)  # fmt: skip
def test_a_damaged_checkpoint(
    damage: Callable[[Path], None], says: str, refused: Refused, copied: Path, toy_corpus: Path
) -> None:
    damage(copied)
    assert says in refused("evaluate", "likelihood", "--model", copied, "--data", toy_corpus, "--json")


def test_mistakes_of_evaluate(
    refused: Refused, trained: Path, toy_corpus: Path, other_labels: Path, tmp_path: Path
) -> None:
    """Another corpus, options out of range, stories that cannot be read: found before anything is measured."""
    evaluate = ("evaluate", "likelihood", "--model", trained)
    labels = "the corpus has the labels bright, dark, the checkpoint negative, neutral, positive"
    assert labels in refused(*evaluate, "--data", other_labels)
    words = own_labels(tmp_path, ("negative", "neutral", "positive"))
    assert "the corpus's vocabulary" in refused(*evaluate, "--data", words)
    for option, value, says in (
        ("--samples", 0, "--samples must be at least 1, not 0"),
        ("--limit", 0, "--limit must be at least 1, not 0"),
        ("--split", "practice", "has no split 'practice', only train, valid, test"),
    ):
        assert says in refused(*evaluate, "--data", toy_corpus, option, value)


REQUIRED = {
    "ppl_iw", "ppl_elbo", "ppl_authors", "nll_story", "kl_z", "z_use", "f1_s", "samples", "n", "seed",
    "commit", "recipe", "data_hash",
}  # fmt: skip
COUNTS = {"samples", "n", "seed", "tokens", "characters"}
LATENT = {"ppl_iw", "ppl_elbo", "ppl_authors", "kl_z", "z_use", "f1_s"}


def measured(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main(["evaluate", "likelihood", *map(str, arguments), "--json"]) == 0
    return capsys.readouterr().out


def test_json_of_a_latent_model(capsys: pytest.CaptureFixture[str], trained: Path, toy_corpus: Path) -> None:
    """Every required key; each figure says exact, bound or estimate; the same seed gives the same bytes."""
    arguments = ("--model", trained, "--data", toy_corpus, "--samples", 4, "--limit", 6)
    texts = [measured(capsys, *arguments, "--seed", seed) for seed in (4, 4, 5)]
    assert texts[0] == texts[1] != texts[2]
    record = json.loads(texts[0])
    assert record.keys() >= REQUIRED
    assert record["data_hash"] == Corpus.open(toy_corpus).hash
    assert (record["n"], record["samples"], record["seed"], record["recipe"]) == (6, 4, 4, "least")
    figures = {name for name, value in record.items() if isinstance(value, int | float)} - COUNTS
    assert {name for name in figures if not name.endswith("_se")} == set(record["kinds"])
    assert {name for name in LATENT if record[name] is None} == set()
    assert record["ppl_iw"] <= record["ppl_elbo"]
    assert record["kinds"]["ppl_iw"] == record["kinds"]["ppl_elbo"] == record["kinds"]["nll_story"] == "bound"
    assert record["kinds"]["ppl_authors"] == "estimate"
    assert 0 < record["q_precision"] <= 1  # fitted now: the run has no calibrated q
    assert record["slack"] >= 0
    again = measure_likelihood(trained, data=toy_corpus, samples=4, seed=4, limit=6)
    assert json.loads(json.dumps(again)) == record


@pytest.mark.parametrize(("kind", "has"), [("s2s", set()), ("lds", LATENT - {"f1_s"})])
def test_json_is_null_where_a_figure_has_no_meaning(
    kind: str, has: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, toy_corpus: Path,
    recipe: dict[str, Any],
) -> None:  # fmt: skip
    other = {**recipe, "model": {**recipe["model"], "kind": kind}}
    train(recipe_from(other), Corpus.open(toy_corpus), tmp_path, bar=False)
    record = json.loads(measured(capsys, "--model", tmp_path, "--data", toy_corpus, "--samples", 2))
    assert record.keys() >= REQUIRED
    assert {name for name in LATENT if record[name] is not None} == has
    assert record["nll_story"] > 0
    assert record["kinds"]["nll_story"] == ("bound" if has else "exact")


def test_a_recipe_for_more_stories_is_refused_with_what_to_set(
    recipe: dict[str, Any], toy_corpus: Path, refused: Refused, tmp_path: Path
) -> None:
    """216 stories in batches of 512 are a step an epoch, and the warm-up would never end; the advice is enough."""
    file = tmp_path / "large.toml"
    file.write_text(to_toml({**recipe, "train": {"epochs": 3, "batch": 512, "warmup_steps": 200, "average": 0.998}}))
    words = ["train", file, "--data", toy_corpus, "--device", "cpu", "--out"]
    line = refused(*words, tmp_path / "run")
    assert "216 stories make 3 steps, of which the rates would rise for 200" in line
    advice = line[line.index("--set") :].split()
    assert main([*map(str, words), str(tmp_path / "run"), "--quiet", *advice]) == 0
    train_settings = load(tmp_path / "run").recipe["train"]
    assert (train_settings["batch"], train_settings["warmup_steps"], train_settings["average"]) == (8, 8, 0.8765)
    assert "unknown setting train.bach" in refused(*words, tmp_path / "x", "--set", "train.bach=3")
    assert "--set wants KEY=VALUE" in refused(*words, tmp_path / "x", "--set", "train.batch")


def test_prepare_train_and_evaluate_are_functions_too(recipe: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "least.toml").write_text(to_toml(recipe))
    report = fabula.prepare(toy=40, out=tmp_path / "toy", seed=1)
    figures = fabula.train(tmp_path / "least.toml", tmp_path / "toy", tmp_path / "run", settings={"train.batch": 16})
    record = fabula.evaluate(tmp_path / "run", data=tmp_path / "toy", split="valid", samples=2)
    assert (report.splits["valid"].stories, figures["epoch"], record["n"]) == (2, 1, 2)
    with pytest.raises(fabula.UserError, match="already holds a run"):
        fabula.train(tmp_path / "least.toml", tmp_path / "toy", tmp_path / "run")

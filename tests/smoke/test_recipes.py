"""Every recipe parses, and at toy size trains a short epoch and is measured; K is the corpus's, not the code's."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from fabula.corpus.dataset import Corpus
from fabula.corpus.prepare import prepare
from fabula.corpus.toy import toy_stories
from fabula.errors import UserError
from fabula.metrics.measure import measure_likelihood
from fabula.models.io import load
from fabula.models.s2s import S2S
from fabula.models.slds import SLDS
from fabula.training.loop import train
from fabula.training.recipe import AdapterRecipe, Recipe, read_any_recipe, recipe_from
from fabula_paper.bench import read_recipe
from small import small_recipe

ROOT = Path(__file__).parents[2]
EVERY = {path: read_any_recipe(path) for path in sorted((ROOT / "recipes").rglob("*.toml"))}
RECIPES = [path for path, recipe in EVERY.items() if isinstance(recipe, Recipe)]
ADAPTED = [path for path, recipe in EVERY.items() if isinstance(recipe, AdapterRecipe)]
"""Recipes that adapt the pretrained base; test_narrator_training.py and others train them."""


def shrunk(recipe: Recipe) -> Recipe:
    """The same choices at sizes of a second."""
    model = recipe.model
    small = dataclasses.replace(
        model,
        language=dataclasses.replace(model.language, embedding=10, hidden=12),
        dynamics=dataclasses.replace(model.dynamics, latent=3),
        recognition=dataclasses.replace(model.recognition, hidden=6),
    )
    quick = dataclasses.replace(recipe.train, epochs=1, batch=24, learning_rate=1e-2, warmup_steps=0)
    few = dataclasses.replace(recipe.objective, labelled_per_step=min(recipe.objective.labelled_per_step, 8))
    return dataclasses.replace(recipe, model=small, train=quick, objective=few)


def test_recipes_that_adapt_the_base_name_their_kind() -> None:
    kinds = {path.stem: EVERY[path].kind for path in ADAPTED}  # type: ignore[union-attr]
    assert kinds == {
        "narrator": "narrator",
        "preference": "preference",
        "default": "narrator",
        "large": "narrator",
        "critic": "critic",
    }
    with pytest.raises(UserError, match="it adapts the pretrained base"):
        read_recipe(ADAPTED[0])


@pytest.mark.parametrize("path", RECIPES, ids=[str(path.relative_to(ROOT / "recipes")) for path in RECIPES])
def test_recipe(path: Path, tmp_path: Path, toy_corpus: Path) -> None:
    """Parses under its own name, trains, and every term it prints is a number; the figures that mean something are."""
    recipe = read_recipe(path)
    assert recipe.name == str(path.relative_to(ROOT / "recipes").with_suffix(""))
    entries: list[dict[str, Any]] = []
    corpus = Corpus.open(toy_corpus)
    checkpoint = train(shrunk(recipe), corpus, tmp_path, bar=False, report=entries.append)
    (entry,) = entries
    figures = [*entry["train"].values(), *entry["valid"].values(), entry["valid_nll"]]
    assert all(math.isfinite(figure) for figure in figures)
    assert entry["train"]["log_p_X"] < 0
    latent = isinstance(checkpoint.model, SLDS)
    assert (entry["train"]["kl_Z"] != 0) == latent
    paper = latent and recipe.objective.kind == "paper" and recipe.model.kind == "slds"
    assert (entry["train"]["kl_S"] > 0) == (paper and recipe.objective.labelled < 1)
    assert (entry["train"]["log_p_S"] < 0) == (paper and recipe.objective.labelled > 0)
    record = measure_likelihood(tmp_path, data=toy_corpus, samples=2, limit=4)
    assert record["recipe"] == recipe.name
    for name in ("nll_story", "ppl", *(("ppl_iw", "ppl_elbo", "ppl_authors", "kl_z", "z_use") if latent else ())):
        assert math.isfinite(record[name])
    # Nine steps, and it knows more than that there are so many words.
    assert record["ppl"] < len(corpus.vocabulary)


@pytest.mark.parametrize(("kind", "labels"), [("slds", ("a", "b", "c", "d")), ("s2s", ("calm", "storm"))])
def test_labels_come_from_the_corpus(labels: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    """A JSONL corpus with labels of its own, some sentences without: trained, stored, read back, measured."""
    stories = toy_stories(40, seed=3)
    lines = []
    for n, story in enumerate(stories):
        tags = [labels[(n + i) % len(labels)] if (n + i) % 5 else None for i in range(len(story.sentences))]
        lines.append(json.dumps({"sentences": story.sentences, "tags": tags}))
    file = tmp_path / "own.jsonl"
    file.write_text("\n".join(lines) + "\n")
    prepare([file], tmp_path / "corpus", valid=file, test=file, own_tags=True, cutoff=1, progress=False)
    corpus = Corpus.open(tmp_path / "corpus")
    assert corpus.labels == labels
    recipe = small_recipe(kind, train={"epochs": 1, "batch": 20})
    (tmp_path / "run").mkdir()
    train(recipe, corpus, tmp_path / "run", bar=False)
    back = load(tmp_path / "run")
    assert back.labels == labels
    assert isinstance(back.model, SLDS | S2S)
    assert len(labels) == back.model.K
    assert isinstance(back.model, S2S) or len(labels) == back.model.dynamics.K
    record = measure_likelihood(tmp_path / "run", data=tmp_path / "corpus", samples=2, limit=4)
    assert math.isfinite(record["nll_story"])
    assert (record["f1_s"] is not None) == (kind == "slds")


def test_a_trained_models_recipe_may_have_settings_of_an_older_version(tiny_recipe: dict[str, Any]) -> None:
    recipe = recipe_from(tiny_recipe)
    old = recipe.to_dict()
    old["objective"]["own_words"] = 0.5
    assert recipe_from(old, trained=True) == recipe
    with pytest.raises(UserError, match=r"unknown setting objective\.own_words"):
        recipe_from(old)

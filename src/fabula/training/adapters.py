"""A narrator's folder: its adapter, and what the corpus it was trained on says of names, common words and p(S).

FOLDER/config.json, adapter.safetensors     models/decoders/adapter.py
FOLDER/critic/                              the same of the critic, where there is one (models/critic.py)
FOLDER/stories.json                         name, people, common words, p(S_1), p(S_i | S_{i-1}), those of further
                                            factors, figures
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fabula.corpus.people import People
from fabula.corpus.taggers.protocol import named, tagger_of
from fabula.corpus.vocabulary import SPECIALS, Vocabulary
from fabula.errors import UserError
from fabula.models.decoders.adapter import WEIGHTS, read_config
from fabula.models.scaffold import Scaffold
from fabula.models.settings import ModelSettings
from fabula.training.recipe import Recipe

FACTS = "stories.json"
CRITIC = "critic"


def is_narrator(folder: Path) -> bool:
    """Whether a folder holds an adapter, and not a checkpoint with all of its weights."""
    return (folder / WEIGHTS).is_file()


def facts(folder: Path) -> dict[str, Any]:
    """What the corpus says, with the adapter's labels, factors and tagger."""
    try:
        found: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        config = read_config(folder)
        states = config.states
        return {**found, "labels": states.labels, "factors": states.factors, "tagger": named(config.tagger)}
    except OSError as error:
        raise UserError(f"{folder} is not a narrator's folder: {error.strerror}: {FACTS}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / FACTS} is damaged: {error}") from error


def product_of(chains: Sequence[Mapping[str, Any]]) -> Scaffold:
    """p(S) of independent factors: the product of their chains, states in `StateSpace`'s order."""
    p_initial, p_next = torch.ones(1), torch.ones(1, 1)
    for chain in chains:
        p_initial = torch.kron(p_initial, torch.tensor(chain["p_initial"]))
        p_next = torch.kron(p_next, torch.tensor(chain["p_next"]))
    return Scaffold(p_initial, p_next)


def load(folder: Path, device: str) -> dict[str, Any]:
    """The fields of a `Checkpoint`."""
    # Only here: the tokenizer is a library that machines which train other models need not have.
    from fabula.models.critic import Critic
    from fabula.models.decoders.load import load_narrator
    from fabula.models.narrator import NarratorModel

    known = facts(folder)
    decoder = load_narrator(folder, device)
    try:
        scaffold = product_of([known, *known.get("further", ())])
        people = People(**{pronoun: tuple(names) for pronoun, names in known["people"].items()})
        decoder.tokenizer.common = tuple(known["common"])
        name, figures, corpus_hash = str(known["name"]), dict(known["figures"]), str(known["corpus_hash"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / FACTS} is damaged: {type(error).__name__}: {error}") from error
    try:
        tagger = tagger_of(known["tagger"], known["labels"])
    except UserError:  # a plugin that is not installed: arcs are then left to the mood tokens
        tagger = None
    critic = folder / CRITIC
    judge = (lambda: Critic.load(critic, device)) if is_narrator(critic) else None
    model = NarratorModel(decoder, scaffold, judge, tagger).to(device).eval()
    return {
        "model": model, "vocabulary": Vocabulary(SPECIALS), "labels": known["labels"], "people": people,
        "tagger": known["tagger"], "factors": known["factors"],
        "recipe": Recipe(name=name, model=ModelSettings(kind="narrator")), "figures": figures,
        "corpus_hash": corpus_hash,
    }  # fmt: skip

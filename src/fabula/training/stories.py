"""Raw stories for training the narrator and its critic: their text, tokens and tags, and what the corpus says of words.

Tags and word counts need VADER and the tokeniser of words. A machine without them finds both in `FILE.tags.json`, which
`save_tags` writes beside the stories.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fabula.corpus.dataset import digest
from fabula.corpus.read import Story, read_stories
from fabula.errors import UserError
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.words import COMMON

COUNTED = 50_000
"""Sentences whose words are counted: plenty for the commonest."""


class Stories:
    """The stories of a file, with their tags; -1 where there is none."""

    def __init__(self, file: Path, encode: SubwordTokenizer, words: int) -> None:
        self.text = read_text(file)
        kept = file.with_suffix(".tags.json")
        found = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else None
        if found is not None and found["stories"] != digest(file.read_bytes()):
            raise UserError(f"{kept} belongs to other stories than {file}: remove it or write it anew", field="data")
        found = found or tags_of(file, self.text)
        ids = iter([tokens[:words] for tokens in encode.encode_all([s for story in self.text for s in story])])
        self.X = [[next(ids) for _ in story] for story in self.text]
        self.S: list[list[int]] = found["tags"]
        self.facts: dict[str, Any] = found["facts"]
        """What a narrator's folder says of its corpus; names of people are not counted here."""
        self.labels: tuple[str, ...] = tuple(found["labels"])
        """The tags' names, by number."""


def read_text(file: Path) -> list[list[str]]:
    found = [list(story.sentences) for story in read_stories(file) if isinstance(story, Story)]
    if not found:
        raise UserError(f"{file}: no usable story in it", field="data")
    return found


def tags_of(file: Path, stories: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Every sentence's tag by VADER, the commonest words, and p(S) by counting."""
    from fabula.corpus.taggers.sentiment import VaderTagger

    tagger = VaderTagger()
    flat = [sentence for story in stories for sentence in story]
    tags = iter([-1 if tag is None else int(tag) for tag in tagger.tag(flat)])
    S = [[next(tags) for _ in story] for story in stories]
    first, pairs = torch.ones(len(tagger.labels)), torch.ones(len(tagger.labels), len(tagger.labels))
    for story in S:  # counted from one, so that nothing is impossible
        first[story[0]] += float(story[0] >= 0)
        for before, after in itertools.pairwise(story):
            pairs[before, after] += float(before >= 0 and after >= 0)
    facts = {
        "common": common_words(flat), "people": {}, "p_initial": (first / first.sum()).tolist(),
        "p_next": (pairs / pairs.sum(1, keepdim=True)).tolist(),
    }  # fmt: skip
    return {"stories": digest(file.read_bytes()), "labels": tagger.labels, "tags": S, "facts": facts}


def save_tags(file: Path) -> Path:
    """Beside the stories, for machines that cannot tag."""
    path = file.with_suffix(".tags.json")
    path.write_text(json.dumps(tags_of(file, read_text(file)), ensure_ascii=False), encoding="utf-8")
    return path


def common_words(sentences: Sequence[str]) -> tuple[str, ...]:
    """The commonest words, counted over the first sentences; ties in the order of the alphabet."""
    from fabula.corpus.tokenize import tokenise_many

    counts = Counter(word for words in tokenise_many(sentences[:COUNTED]) for word in words)
    return tuple(sorted(counts, key=lambda word: (-counts[word], word))[:COMMON])

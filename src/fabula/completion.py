"""Text between a prompt and a suffix: the shape in which general clients ask (OpenAI's completions, the llm plugin).

The prompt is how a story begins and the suffix how it ends, both cut into sentences by rule. A prompt that stops in
the middle of a sentence is the opening of the first one that is written. What comes back joins both:
prompt + text + suffix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fabula.api import StoryModel
from fabula.corpus.states import Arc
from fabula.corpus.tokenize import normalise, split_paragraph
from fabula.errors import UserError
from fabula.results import Candidate, Filling, Sentence
from fabula.sampling.settings import whole_number
from fabula.sampling.task import USUAL

ENDED = re.compile(r"""[.!?…]["'”’)\]]*$""")
"""How a sentence ends that is whole."""


@dataclass(frozen=True)
class Passage:
    """What was written between a prompt and a suffix."""

    text: str
    """With the blanks at its ends that join it to its neighbours."""
    pieces: tuple[str, ...]
    """The same by sentences."""
    sentences: tuple[Sentence, ...]
    """What was written, whole, with its tags and what was asked for."""
    finish: Literal["stop", "length"]
    """`length` where `max_tokens` cut it off."""
    tokens: int

    @property
    def tags(self) -> tuple[str | None, ...]:
        return tuple(sentence.tag for sentence in self.sentences)


@dataclass(frozen=True)
class Completion:
    """The passages for one prompt, the best first."""

    passages: tuple[Passage, ...]
    prompt_tokens: int
    filling: Filling
    """The whole stories, and how they were found."""


@dataclass(frozen=True)
class Gap:
    """A prompt and a suffix as a task."""

    before: tuple[str, ...]
    opening: str
    """How the first written sentence begins."""
    after: tuple[str, ...]
    count: int
    """Sentences to write."""

    @staticmethod
    def of(prompt: str, suffix: str, sentences: int | None = None) -> Gap:
        """As many sentences as are said, else so many that the story has the usual length, one at least."""
        before, after = split_paragraph(prompt), tuple(split_paragraph(suffix))
        opening = before.pop() if before and not ENDED.search(before[-1]) else ""
        if sentences is None:
            sentences = max(1, USUAL - len(before) - len(after))
        return Gap(tuple(before), opening, after, whole_number("sentences", sentences, at_least=1))


def complete(model: StoryModel, prompt: str, suffix: str = "", **options: Any) -> Completion:
    """The text between `prompt` and `suffix`; the arguments are those of `complete_iter`.

    >>> import fabula
    >>> done = fabula.complete(fabula.load("small"), "Tom was sad. His friend", "Tom smiled.", sentences=1, samples=2)
    >>> done.passages[0].finish, len(done.passages[0].tags)
    ('stop', 1)
    """
    *_, last = complete_iter(model, prompt, suffix, **options)
    return last


def complete_iter(
    model: StoryModel,
    prompt: str,
    suffix: str = "",
    *,
    sentences: int | None = None,
    arc: Arc = None,
    candidates: int = 1,
    max_tokens: int | None = None,
    stop: Sequence[str] = (),
    seed: int = 0,
    **settings: Any,
) -> Iterator[Completion]:
    """The same as it comes, as `StoryModel.fill_iter`.

    `arc` has a mood for each sentence that is written, and says how many there are where `sentences` does not. The text
    ends before the first of the `stop` strings, and after `max_tokens` tokens of the model's own.
    """
    tags = None if arc is None else [model.states.label(values) for values in model.states.parse(arc)]
    gap = Gap.of(prompt, suffix, len(tags) if sentences is None and tags is not None else sentences)
    if tags is not None and len(tags) != gap.count:
        raise UserError(f"the arc has {len(tags)} moods for {gap.count} sentences to write", field="arc")
    most = None if max_tokens is None else whole_number("max_tokens", max_tokens, at_least=1)
    story_arc = None if tags is None else [*[None] * len(gap.before), *tags, *[None] * len(gap.after)]
    starts = {len(gap.before) + 1: gap.opening} if gap.opening else None
    options = {"arc": story_arc, "candidates": candidates, "seed": seed, "starts": starts, **settings}
    if gap.before or gap.after:
        fillings = model.fill_iter([*gap.before, *[None] * gap.count, *gap.after], **options)
    else:
        fillings = iter([model.write(gap.count, **options)])
    prompt_tokens = model.count_tokens(prompt) + model.count_tokens(suffix)
    for filling in fillings:
        passages = (_passage(model, gap, story, prompt, suffix, most, stop) for story in filling.candidates)
        yield Completion(tuple(passages), prompt_tokens, filling)


def complete_story_iter(
    model: StoryModel, sentences: Sequence[str | None], *, max_tokens: int | None = None, stop: Sequence[str] = (),
    **options: Any,
) -> Iterator[Completion]:  # fmt: skip
    """A story with blanks, whole: each passage is the complete story. The other arguments are those of `fill`."""
    most = None if max_tokens is None else whole_number("max_tokens", max_tokens, at_least=1)
    prompt_tokens = sum(model.count_tokens(sentence) for sentence in sentences if sentence)
    for filling in model.fill_iter(sentences, **options):
        passages = []
        for story in filling.candidates:
            first, *others = (sentence.text for sentence in story.sentences)
            passages.append(_ended(model, [first, *(f" {text}" for text in others)], story.sentences, most, stop))
        yield Completion(tuple(passages), prompt_tokens, filling)


def _passage(
    model: StoryModel, gap: Gap, story: Candidate, prompt: str, suffix: str, most: int | None, stop: Sequence[str]
) -> Passage:
    written = story.sentences[len(gap.before) : len(gap.before) + gap.count]
    texts = [sentence.text for sentence in written]
    opening = normalise(gap.opening)
    first, begun = texts[0].removeprefix(opening), bool(opening) and texts[0].startswith(opening)
    if prompt[-1:].isspace():
        first = first.lstrip()
    elif prompt and not begun:  # what is left of a sentence that was begun has its own blank, or its own mark
        first = f" {first}"
    pieces = [first, *(f" {text}" for text in texts[1:])]
    if suffix and not suffix[0].isspace():
        pieces[-1] += " "
    return _ended(model, pieces, written, most, stop)


def _ended(
    model: StoryModel, pieces: list[str], sentences: tuple[Sentence, ...], most: int | None, stop: Sequence[str]
) -> Passage:
    """The pieces as far as the first of the `stop` strings, and as `most` tokens."""
    finish: Literal["stop", "length"] = "stop"
    ends = [place for mark in stop if mark and (place := "".join(pieces).find(mark)) >= 0]
    if ends:
        pieces = _cut(pieces, min(ends))
    if most is not None and model.count_tokens("".join(pieces)) > most:
        pieces, finish = _cut(pieces, _length_of(model, "".join(pieces), most)), "length"
    text = "".join(pieces)
    return Passage(text, tuple(pieces), sentences, finish, model.count_tokens(text))


def _cut(pieces: Sequence[str], length: int) -> list[str]:
    """The first so many characters."""
    kept = []
    for piece in pieces:
        kept.append(piece[:length])
        length -= len(kept[-1])
    return [piece for piece in kept if piece]


def _length_of(model: StoryModel, text: str, most: int) -> int:
    """How many characters are at most so many tokens, up to the end of a word."""
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    fitting = [end for end in ends if model.count_tokens(text[:end]) <= most]
    return fitting[-1] if fitting else 0

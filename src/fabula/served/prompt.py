"""What a language model is asked: the story with blanks, and for each line to write its tags in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fabula.corpus.states import Factor, StateSpace
from fabula.corpus.taggers.protocol import meanings_of
from fabula.sampling.context import Context

BEFORE, AFTER = 24, 12
"""Lines that are shown before the first line asked for and after the last."""
SYSTEM = """\
You complete short stories of everyday life. The lines of a story are numbered, and some are missing. Write the lines \
that are asked for, so that the whole reads as one story: each line follows from the lines before it, prepares the \
lines after it, adds something that happens, and uses the same people, names and tense. A line is one plain sentence \
of at most {words} words. Never repeat, change or contradict the lines that are there."""
FORM = "Answer with a JSON object only: the numbers of the lines as keys, their sentences as values: {example}"
SENTIMENT = "{0} in mood: it says something {1} with a clearly {0} word (such as {2}), and no {3} word"
EMOTION = "its emotion is {0}, with a word for it such as {1}"
WORDING = {
    "negative": SENTIMENT.format("negative", "bad", "sad, lost, hurt, failed, angry, worried", "positive"),
    "neutral": "neutral in mood: plain facts, no word that is good or bad, glad or sad, and no exclamation mark",
    "positive": SENTIMENT.format("positive", "good", "happy, great, won, loved, excited, thanked", "negative"),
    "joy": EMOTION.format("joy", "happy, glad or delighted"),
    "sadness": EMOTION.format("sadness", "sad, cried or disappointed"),
    "anger": EMOTION.format("anger", "angry, mad or furious"),
    "fear": EMOTION.format("fear", "afraid, scared or nervous"),
    "surprise": EMOTION.format("surprise", "surprised, shocked or amazed"),
}
"""How the labels of sentiment and emotion are asked for; others are asked for by name."""


class Wish(NamedTuple):
    """What is wanted of one line: of every factor its value, -1 where it is free."""

    values: tuple[int, ...]
    """Those of the arc, and those that were drawn from p(S)."""
    fixed: tuple[int, ...]
    """Those of the arc alone, which the taggers check."""
    opening: str = ""


def in_words(factor: Factor, value: int) -> str:
    """One label as a writer understands it."""
    label = factor.labels[value]
    if label == "none":
        return f"it shows no {factor.name}" if factor.name != "verb" else "its main verb is an unusual one"
    if factor.name == "verb":
        return f"its main verb is one of these: {meanings_of(factor).get(label, label)}"
    return WORDING.get(label, f"{factor.name}: {label}")


def describe_line(number: int, wish: Wish, states: StateSpace) -> str:
    """`Line 2: it begins with ...; negative in mood ...`, the tags of the arc before those that were drawn."""
    fixed = [in_words(f, v) for f, v in zip(states.factors, wish.fixed, strict=True) if v >= 0]
    pairs = zip(states.factors, wish.values, wish.fixed, strict=True)
    drawn = "; ".join(in_words(f, v) for f, v, of_arc in pairs if v >= 0 > of_arc)
    parts = [f"it begins with exactly these words: {wish.opening}"] * bool(wish.opening) + fixed
    parts += [f"preferably, where it suits the story, {drawn}"] * bool(drawn)
    return f"Line {number}: {'; '.join(parts)}." if parts else f"Line {number}."


def messages(
    texts: Sequence[str | None], numbers: Sequence[int], wishes: Mapping[int, Wish], states: StateSpace,
    context: Context, words: int, complaint: str = "", as_json: bool = True,
) -> list[dict[str, str]]:  # fmt: skip
    """The request for the lines of these numbers, from 1; `complaint` says what was wrong with an earlier answer."""
    first, last = max(1, numbers[0] - BEFORE), min(len(texts), numbers[-1] + AFTER)
    blanks = {i: "write this line" if i in numbers else "written later" for i in range(first, last + 1)}
    shown = [f"{i}. {texts[i - 1] or f'______ ({blank})'}" for i, blank in blanks.items()]
    about = ", ".join(f"{p.name} ({p.pronoun})" if p.pronoun else p.name for p in context.people)
    parts = [f"People in the story: {about}."] * bool(about) + [f"What holds: {context.line}"] * bool(context.line)
    parts += [f"The story has {len(texts)} lines:", *["..."] * (first > 1), *shown, *["..."] * (last < len(texts)), ""]
    parts += ["The lines to write:", *(describe_line(number, wishes[number], states) for number in numbers), ""]
    parts += [complaint, ""] * bool(complaint)
    system = SYSTEM.format(words=words)
    if not as_json:
        begun = f"{numbers[0]}. {wishes[numbers[0]].opening}".strip()
        return [{"role": "user", "content": "\n".join([system, "", *parts, "The written lines:", begun])}]
    example = "{" + ", ".join(f'"{number}": "..."' for number in numbers) + "}"
    prompt = "\n".join([*parts, FORM.format(example=example)])
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt}]


def schema(numbers: Sequence[int]) -> dict[str, Any]:
    """The JSON schema of an answer."""
    names = [str(number) for number in numbers]
    lines = {"properties": {name: {"type": "string"} for name in names}, "required": names}
    return {"type": "object", **lines, "additionalProperties": False}

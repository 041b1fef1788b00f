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
WORDING: Mapping[str, Mapping[str, str]] = {
    "sentiment": {
        "negative": "negative in mood: it says something bad with a clearly negative word (such as sad, lost, hurt, "
        "failed, angry, worried), and no positive word",
        "neutral": "neutral in mood: plain facts, without any word that is good or bad, glad or sad, and without "
        "exclamation marks",
        "positive": "positive in mood: it says something good with a clearly positive word (such as happy, great, won, "
        "loved, excited, thanked), and no negative word",
    },
    "emotion": {
        "joy": "its emotion is joy, with a word for it such as happy, glad or delighted",
        "sadness": "its emotion is sadness, with a word for it such as sad, cried or disappointed",
        "anger": "its emotion is anger, with a word for it such as angry, mad or furious",
        "fear": "its emotion is fear, with a word for it such as afraid, scared or nervous",
        "surprise": "its emotion is surprise, with a word for it such as surprised, shocked or amazed",
        "none": "it names or shows no emotion",
    },
}
"""How the labels of the default model's factors are asked for; others are asked for by name."""


class Wish(NamedTuple):
    """What is wanted of one line."""

    values: tuple[int, ...]
    """Of every factor, -1 where it is free: those of the arc, and those that were drawn from p(S)."""
    fixed: tuple[int, ...]
    """Those of the arc alone, which the taggers check."""
    opening: str = ""


def in_words(factor: Factor, value: int) -> str:
    """One label as a writer understands it."""
    label = factor.labels[value]
    if factor.name == "verb":
        verbs = meanings_of(factor).get(label, label)
        return f"its main verb is one of these: {verbs}" if label != "none" else "its main verb is an unusual one"
    return WORDING.get(factor.name, {}).get(label, f"{factor.name}: {label}")


def describe_line(number: int, wish: Wish, states: StateSpace) -> str:
    """`Line 2: it begins with ...; negative in mood ...`, the tags of the arc before those that were drawn."""
    fixed = [in_words(f, v) for f, v in zip(states.factors, wish.fixed, strict=True) if v >= 0]
    pairs = zip(states.factors, wish.values, wish.fixed, strict=True)
    drawn = [in_words(f, v) for f, v, of_arc in pairs if v >= 0 > of_arc]
    parts = [f"it begins with exactly these words: {wish.opening}"] * bool(wish.opening) + fixed
    parts += [f"preferably, where it suits the story, {'; '.join(drawn)}"] * bool(drawn)
    return f"Line {number}: {'; '.join(parts)}." if parts else f"Line {number}."


def messages(
    texts: Sequence[str | None], numbers: Sequence[int], wishes: Mapping[int, Wish], states: StateSpace,
    context: Context, words: int, complaint: str = "", as_json: bool = True,
) -> list[dict[str, str]]:  # fmt: skip
    """The request for the lines of these numbers, from 1; `complaint` says what was wrong with an earlier answer."""
    first, last = max(1, numbers[0] - BEFORE), min(len(texts), numbers[-1] + AFTER)
    shown = ["..."] * (first > 1)
    for number in range(first, last + 1):
        blank = "______ (write this line)" if number in numbers else "______ (somebody else writes this line)"
        shown.append(f"{number}. {texts[number - 1] or blank}")
    shown += ["..."] * (last < len(texts))
    about = [f"{person.name}{f' ({person.pronoun})' if person.pronoun else ''}" for person in context.people]
    parts = [f"People in the story: {', '.join(about)}."] * bool(about)
    parts += [f"What holds in the story: {context.line}"] * (context.line is not None)
    parts += [f"The story, of {len(texts)} lines:", *shown, "", "The lines to write:"]
    parts += [describe_line(number, wishes[number], states) for number in numbers]
    parts += ["", complaint] * bool(complaint)
    system = SYSTEM.format(words=words)
    if as_json:
        example = "{" + ", ".join(f'"{number}": "..."' for number in numbers) + "}"
        parts += ["", FORM.format(example=example)]
        return [{"role": "system", "content": system}, {"role": "user", "content": "\n".join(parts)}]
    begun = f"{numbers[0]}. {wishes[numbers[0]].opening}".strip()
    return [{"role": "user", "content": "\n".join([system, "", *parts, "", "The written lines:", begun])}]


def schema(numbers: Sequence[int]) -> dict[str, Any]:
    """The JSON schema of an answer."""
    names = [str(number) for number in numbers]
    text = {"type": "string"}
    return {
        "type": "object", "properties": dict.fromkeys(names, text), "required": names, "additionalProperties": False
    }  # fmt: skip

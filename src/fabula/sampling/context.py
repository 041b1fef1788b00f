"""What a writer says beside the lines of a story: who is in it and with which pronoun, where it is set, what holds.

A model reads it as one given line before the first, which no answer shows:

    This is a story about Robin, a shy baker, and Ann. It is set in a harbour town.

Pronouns and names are held to by the rules of `cast.py`. `mentions` reads people and places off the lines themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

from fabula.corpus.people import HE, SHE, People, looks_like_a_name
from fabula.corpus.tokenize import tokenise
from fabula.errors import UserError
from fabula.sampling.names import NOT_BEFORE_A_NAME
from fabula.sampling.task import Task

Pronoun = Literal["he", "she", "they"]
Tense = Literal["past", "present"]
GrammaticalPerson = Literal["first", "third"]
SentenceLength = Literal["short", "medium", "long"]
PRONOUNS: tuple[str, ...] = get_args(Pronoun)
MOST_WORDS = 120
"""Words of a context, in all: it takes the place of one line in what a model reads."""
BEFORE_A_PLACE = frozenset(["in", "at", "to", "from", "near", "across", "through", "around", "of", "leaving", "visit"])
NO_NAMES = re.compile(
    r"(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|May|June|July|August|(Sept|Nov|Dec)ember"
    r"|October|Christmas|Easter|Halloween|Thanksgiving|English|French|German|Spanish"
)
"""Words with a capital that name nobody."""


@dataclass(frozen=True)
class Person:
    """Somebody in a story."""

    name: str
    pronoun: Pronoun | None = None
    about: str = ""
    """A word of description: `a shy baker`."""


class Voice(NamedTuple):
    """How a story is told; None where it is free."""

    tense: Tense | None = None
    person: GrammaticalPerson | None = None
    length: SentenceLength | None = None


AS_IT_COMES = Voice()
VOICES: dict[str, tuple[str, ...]] = dict(
    zip(Voice._fields, map(get_args, (Tense, GrammaticalPerson, SentenceLength)), strict=True)
)
"""What a voice may say of each of its fields."""


@dataclass(frozen=True)
class Context:
    """Everything that is said beside the lines."""

    people: tuple[Person, ...] = ()
    notes: tuple[str, ...] = ()
    """Places and facts, a sentence each."""
    voice: Voice = AS_IT_COMES

    @property
    def line(self) -> str | None:
        """The line that a model reads before the story; None where there is nothing to say."""
        names = [f"{person.name}, {person.about}" if person.about else person.name for person in self.people]
        # With descriptions a comma stands before "and" too, so that the last name does not belong to the description.
        comma = "," if any(person.about for person in self.people) else ""
        about = f"{', '.join(names[:-1])}{comma} and {names[-1]}" if len(names) > 1 else "".join(names)
        ended = [note if note[-1] in ".!?" else f"{note}." for note in self.notes]
        return " ".join([f"This is a story about {about}."] * bool(about) + ended) or None


def read_voice(voice: str | Mapping[str, str | None] | None) -> Voice:
    """A voice by its fields, or by words in any order (`present,first,short`)."""
    words = [word.strip() for word in voice.split(",")] if isinstance(voice, str) else ()
    fields = {name: word for word in words for name, values in VOICES.items() if word in values}
    fields |= {name: value for name, value in (voice or {}).items() if value} if not isinstance(voice, str) else {}
    if len(fields) < len(words) or any(value not in VOICES.get(name, ()) for name, value in fields.items()):
        known = ", ".join(f"{name} ({' or '.join(values)})" for name, values in VOICES.items())
        raise UserError(f"a voice has {known}, each at most once", field="voice")
    return Voice(**fields)  # type: ignore[arg-type]


def read_context(
    people: Sequence[Person | Mapping[str, Any]] | None, notes: Sequence[str] | None,
    voice: str | Mapping[str, str | None] | None = None,
) -> Context:  # fmt: skip
    """The context as it was typed, checked: every mistake is one line."""
    persons = []
    for person in people or ():
        fields = asdict(person) if isinstance(person, Person) else dict(person)
        if unknown := fields.keys() - {"name", "pronoun", "about"}:
            raise UserError(f"a person has name, pronoun and about, not {min(unknown)!r}", field="people")
        name, about, pronoun = (str(fields.get(key) or "").strip() for key in ("name", "about", "pronoun"))
        if not name:
            raise UserError("a person needs a name", field="people")
        if pronoun and pronoun not in PRONOUNS:
            raise UserError(f"a pronoun is {', '.join(PRONOUNS)}, not {pronoun!r}", field="people")
        persons.append(Person(name, pronoun or None, about.rstrip(".")))  # type: ignore[arg-type]
    if isinstance(notes, str):
        raise UserError("notes are a list of sentences", field="notes")
    context = Context(tuple(persons), tuple(note.strip() for note in notes or () if note.strip()), read_voice(voice))
    words = len((context.line or "").split())
    if words > MOST_WORDS:
        raise UserError(f"people and notes have {words} words together; the most is {MOST_WORDS}", field="notes")
    return context


def with_line(task: Task, line: str | None) -> Task:
    """The task with the context's line before the story, its mood free."""
    if line is None:
        return task
    free = (-1,) * len(task.arc[0])
    starts = {number + 1: words for number, words in task.starts.items()}
    return replace(task, sentences=(line, *task.sentences), arc=(free, *task.arc), starts=starts)


@dataclass(frozen=True)
class Mentions:
    """Whom and what the lines of a story name, in the order of their first mention."""

    people: tuple[Person, ...]
    places: tuple[str, ...]

    def to_dict(self, decimals: int | None = None) -> dict[str, Any]:
        return {"people": [asdict(person) for person in self.people], "places": list(self.places)}


def mentions(sentences: Sequence[str], known: People) -> Mentions:
    """People by the names that the corpus counted, or written like a name inside a sentence; places after `in Paris`.

    The pronoun is the name's in the corpus, else the one that the sentences around the name have more of.
    """
    lines = [tokenise(sentence) for sentence in sentences]
    inside = {word for words in lines for word in words[1:]}
    people: dict[str, None] = {}
    places: dict[str, None] = {}
    for words in lines:
        for at, word in enumerate(words):
            before = words[at - 1].lower() if at else ""
            if not looks_like_a_name(word) or NO_NAMES.fullmatch(word) or before in NOT_BEFORE_A_NAME:
                continue
            if word in known.names or (at and before not in BEFORE_A_PLACE and word not in places):
                people[word] = None
            elif at and before in BEFORE_A_PLACE and word not in people:
                places[word] = None
            elif at == 0 and word in inside and word.lower() not in inside:
                people[word] = None
    return Mentions(
        tuple(Person(name, _pronoun(name, lines, known)) for name in people if name not in places),
        tuple(place for place in places if place not in known.names),
    )


def _pronoun(name: str, lines: Sequence[Sequence[str]], known: People) -> Pronoun | None:
    if name in known.he:
        return "he"
    if name in known.she:
        return "she"
    places = [i for i, words in enumerate(lines) if name in words]
    near = [word.lower() for i in places for line in lines[i : i + 2] for word in line]
    he, she = (sum(word in pronouns for word in near) for pronouns in (HE, SHE))
    return None if he == she else "he" if he > she else "she"

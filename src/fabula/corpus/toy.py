"""A small story grammar of our own, for tests and the demo; a working model visibly beats a broken one on it.

Each story draws a plan first and tells it afterwards:

    scenario   what the story is about (a kite, a cake, …), with its place, its thing and the cause of its trouble
    hero       a name and the pronouns that go with it; a helper, named by how they are related
    arc        rise (trouble, then a good end), fall (joy, then a bad end), smooth (no trouble)

so that a sentence depends on its tag (VADER gives every template the tag that its slot intends), on the earlier
sentences (the name, the pronoun, the helper, the thing with its colour come again), and on the ending (which names the
cause and the thing: the middle must have brought them up). The words and the sentences are in data/toy_grammar.toml.
"""

import random
import tomllib
from importlib import resources
from typing import Any

from fabula.corpus.read import Story
from fabula.errors import UserError

ORDER = ("opening", "setting", "helper", "effort", "joy", "trouble", "worse", "remedy", "praise", "ending")
"""The slots of a story in the order of its telling."""
ARCS = {
    # What every telling has, then what is added, in this order, until the length is reached.
    "rise": (("opening", "trouble", "ending"), ("remedy", "setting", "effort", "helper", "joy")),
    "fall": (("opening", "trouble", "ending"), ("joy", "setting", "worse", "effort", "helper")),
    "smooth": (("opening", "joy", "ending"), ("setting", "effort", "praise", "helper", "remedy")),
}
LENGTHS = (3, 4, 5, 6, 7, 8)
LENGTH_WEIGHTS = (8, 10, 58, 10, 8, 6)
INTENDED = {
    **dict.fromkeys(("opening", "setting", "helper", "effort", "remedy"), "neutral"),
    **dict.fromkeys(("joy", "praise"), "positive"),
    **dict.fromkeys(("trouble", "worse"), "negative"),
}
"""The tag of each slot; the ending's is positive, or negative where the story falls."""

_GRAMMAR = tomllib.loads((resources.files("fabula") / "data" / "toy_grammar.toml").read_text(encoding="utf-8"))
SCENARIOS: dict[str, dict[str, Any]] = _GRAMMAR["scenarios"]
"""By name: things, places and templates for the slots; `steady` is the remedy where there was no trouble, `done` the
ending of a smooth story. Each of its `causes` of trouble has a remedy and endings, `rescued` and `lost`."""


def toy_stories(n: int, seed: int) -> list[Story]:
    """The first `n` stories of the seed's endless row: story i is the same whatever `n` is."""
    if n < 0:
        raise UserError(f"a number of stories is at least 0, not {n}", field="toy")
    return [_tell(random.Random(f"fabula toy {seed} {number}"), f"toy-{seed}-{number}") for number in range(n)]


def toy_splits(n: int, seed: int) -> dict[str, list[Story]]:
    """`n` stories as train, valid and test: nine tenths, and one twentieth (at least one story) each."""
    held_out = max(1, n // 20)
    if n < 3:
        raise UserError(f"a toy corpus needs at least 3 stories, one for each split, not {n}", field="toy")
    stories = toy_stories(n, seed)
    valid, test = n - 2 * held_out, n - held_out
    return {"train": stories[:valid], "valid": stories[valid:test], "test": stories[test:]}


def _tell(generator: random.Random, name: str) -> Story:
    """Draw a plan, then one sentence for each slot of its arc; the tags are what the slots intend."""
    scenario = SCENARIOS[generator.choice(tuple(SCENARIOS))]
    cause = generator.choice(scenario["causes"])
    arc = generator.choices(("rise", "fall", "smooth"), weights=(4, 3, 3))[0]
    hero = _GRAMMAR["heroes"][generator.choice(("she", "he"))]
    words = {
        **hero["forms"],
        "Name": generator.choice(hero["names"]),
        "thing": generator.choice(scenario["things"]),
        "helper": generator.choice(_GRAMMAR["helpers"]),
        "place": generator.choice(scenario["places"]),
        "day": generator.choice(_GRAMMAR["days"]),
    }
    templates = {**_GRAMMAR["everywhere"], **scenario, **cause}
    if arc == "smooth":
        templates["remedy"] = scenario["steady"]
    templates["ending"] = {"rise": cause["rescued"], "fall": cause["lost"], "smooth": scenario["done"]}[arc]
    needed, added = ARCS[arc]
    chosen = {*needed, *added[: generator.choices(LENGTHS, weights=LENGTH_WEIGHTS)[0] - len(needed)]}
    slots = [slot for slot in ORDER if slot in chosen]
    sentences = [_fill(generator.choice(templates[slot]), words) for slot in slots]
    final = "negative" if arc == "fall" else "positive"
    return Story(id=name, sentences=sentences, tags=[INTENDED.get(slot, final) for slot in slots])


def _fill(template: str, words: dict[str, str]) -> str:
    sentence = template.format_map(words)
    for vowel in "aeiou":
        sentence = sentence.replace(f" a {vowel}", f" an {vowel}")
    for letter in "bcdfgjklmnpqrstvwxyz":
        sentence = sentence.replace(f" an {letter}", f" a {letter}")
    return sentence[0].upper() + sentence[1:]

"""A small story grammar of our own, for tests and the demo; a working model visibly beats a broken one on it.

Each story draws a plan first and tells it afterwards:

    scenario   what the story is about (a kite, a cake, …), with its place, its thing and the cause of its trouble
    hero       a name and the pronouns that go with it; a helper, named by how they are related
    arc        rise (trouble, then a good end), fall (joy, then a bad end), smooth (no trouble)

so that a sentence depends on its tag (VADER gives every template the tag that its slot intends), on the earlier
sentences (the name, the pronoun, the helper, the thing with its colour come again), and on the ending (which names the
cause and the thing: the middle must have brought them up).
"""

import random
from dataclasses import dataclass

from fabula.corpus.read import Story
from fabula.errors import UserError

HEROES = {
    "she": ("Mira", "Anna", "Tess", "Olga", "Nora", "Ruth", "Ines", "Clara"),
    "he": ("Tom", "Pavel", "Hugo", "Oskar", "Ned", "Emil", "Karl", "Ivan"),
}
_FORMS = {
    "she": {"he": "she", "him": "her", "his": "her", "He": "She", "His": "Her"},
    "he": {"he": "he", "him": "him", "his": "his", "He": "He", "His": "His"},
}
HELPERS = ("brother", "sister", "uncle", "aunt", "neighbour", "cousin")

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
    "opening": "neutral",
    "setting": "neutral",
    "helper": "neutral",
    "effort": "neutral",
    "joy": "positive",
    "trouble": "negative",
    "worse": "negative",
    "remedy": "neutral",
    "praise": "positive",
}
"""The tag of each slot; the ending's is positive, or negative where the story falls."""


@dataclass(frozen=True)
class _Cause:
    """One way for a scenario to go wrong, and what it leads to."""

    trouble: tuple[str, ...]
    remedy: tuple[str, ...]
    rescued: tuple[str, ...]
    """Endings of a story that rises."""
    lost: tuple[str, ...]
    """Endings of a story that falls."""


@dataclass(frozen=True)
class _Scenario:
    things: tuple[str, ...]
    places: tuple[str, ...]
    opening: tuple[str, ...]
    effort: tuple[str, ...]
    joy: tuple[str, ...]
    steady: tuple[str, ...]
    """The remedy's place in a story without trouble."""
    done: tuple[str, ...]
    """Endings of a smooth story."""
    causes: tuple[_Cause, ...]
    setting: tuple[str, ...] = (
        "On {day} {he} went to the {place} with the {thing}.",
        "{He} took the {thing} to the {place} on {day}.",
        "It was {day}, and the {place} was quiet.",
    )


_HELPER = (
    "{His} {helper} came along to the {place}.",
    "{His} {helper} carried a basket with bread.",
    "{He} asked {his} {helper} to come too.",
)
_WORSE = (
    "{His} {helper} was upset and shouted at {him}.",
    "{He} sat down in the {place} and cried.",
    "{He} felt terrible about the {thing}.",
    "Nobody came, and {he} felt lonely and sad.",
)
_PRAISE = (
    "{His} {helper} said the {thing} was wonderful.",
    "{His} {helper} was proud of {him}.",
    "Everyone at the {place} smiled at {him}.",
)

SCENARIOS = {
    "kite": _Scenario(
        things=("red kite", "yellow kite", "paper kite"),
        places=("hill", "beach", "field"),
        opening=(
            "{Name} made a {thing} from sticks and string.",
            "{Name} found a {thing} under the stairs.",
            "All week {Name} thought about flying a {thing}.",
        ),
        effort=("{He} ran with the string behind {him}.", "{He} waited an hour for the wind."),
        joy=(
            "The {thing} rose high, and {he} laughed with delight.",
            "{He} loved how the {thing} danced above the {place}.",
        ),
        steady=("{He} let out more string, little by little.", "{His} {helper} held the string for a while."),
        done=(
            "At sunset {he} rolled up the string and went home happy.",
            "{Name} was glad that the {thing} could fly.",
        ),
        causes=(
            _Cause(
                ("A bad gust threw the {thing} into a tree.", "The {thing} got stuck in a tree, and {he} was upset."),
                ("{His} {helper} climbed the tree with a long stick.", "They leaned a ladder against the tree."),
                (
                    "The {thing} came down from the tree, and {Name} smiled happily.",
                    "{Name} thanked {his} {helper} for saving the {thing} from the tree.",
                ),
                (
                    "The {thing} stayed in the tree, and {Name} walked home sad.",
                    "{Name} cried because the tree had ruined the {thing}.",
                ),
            ),
            _Cause(
                ("The string broke, and {he} was afraid for the {thing}.", "{He} screamed when the string broke."),
                ("{His} {helper} tied a new string with a double knot.", "They bought a longer string from the shop."),
                (
                    "With the new string the {thing} flew, and {Name} was happy.",
                    "{Name} was so glad about the new string that {he} hugged {his} {helper}.",
                ),
                (
                    "Without a string the {thing} was lost, and {Name} cried.",
                    "{Name} was sad and threw the broken string away.",
                ),
            ),
        ),
    ),
    "cake": _Scenario(
        things=("apple cake", "lemon cake", "plum cake"),
        places=("kitchen", "bakery", "school"),
        opening=(
            "{Name} planned to bake an {thing} for the school.",
            "{Name} read how to make an {thing}.",
            "There was flour at home, so {Name} started an {thing}.",
        ),
        effort=("{He} stirred the eggs into the flour.", "{He} put the bowl next to the oven."),
        joy=("The {thing} smelled sweet, and {he} was delighted.", "{He} tasted the {thing} and loved it."),
        steady=("{He} put the {thing} on twelve plates.", "{His} {helper} brought spoons and forks."),
        done=(
            "Everyone in the {place} enjoyed the {thing}.",
            "{Name} won a prize for the {thing}.",
        ),
        causes=(
            _Cause(
                ("The oven burned the {thing}, and {he} was angry.", "Smoke from the oven hurt {his} eyes badly."),
                (
                    "{His} {helper} turned the oven down and scraped off the crust.",
                    "They opened the oven and started again.",
                ),
                (
                    "The second {thing} left the oven golden, and {Name} was proud.",
                    "{Name} laughed with joy when the oven rang.",
                ),
                (
                    "The oven had ruined the {thing}, and {Name} was sad.",
                    "{Name} hated the oven and cried.",
                ),
            ),
            _Cause(
                (
                    "The dog stole the {thing}, and {he} was furious.",
                    "{He} was horrified when the dog bit into the {thing}.",
                ),
                ("{His} {helper} took the dog outside and fetched more flour.", "They shut the dog in the yard."),
                (
                    "The dog got a crust, and {Name} was happy with the new {thing}.",
                    "{Name} forgave the dog, and everyone loved the {thing}.",
                ),
                (
                    "The dog ate it all, and {Name} was miserable.",
                    "{Name} blamed the dog and cried over the lost {thing}.",
                ),
            ),
        ),
    ),
    "boat": _Scenario(
        things=("green boat", "old boat", "wooden boat"),
        places=("lake", "river", "harbor"),
        opening=(
            "{Name} painted a {thing} in the spring.",
            "{Name} rented a {thing} for one day.",
            "The {thing} belonged to the family of {Name}.",
        ),
        effort=("{He} rowed past the bridge.", "{He} dropped a line into the water."),
        joy=("{He} loved the calm water around the {thing}.", "{He} caught a beautiful fish and cheered."),
        steady=("{He} rowed to the other side and back.", "{His} {helper} took one of the oars."),
        done=(
            "{Name} tied up the {thing} and felt happy.",
            "It was a wonderful day for {Name} and the {thing}.",
        ),
        causes=(
            _Cause(
                ("A plank of the {thing} broke, and {he} was scared.", "{He} hurt {his} foot badly on a broken plank."),
                ("{His} {helper} nailed a new plank over it.", "They covered the plank with tar."),
                (
                    "The new plank was tight, and {Name} thanked {his} {helper}.",
                    "{Name} was proud of the new plank, and the {thing} was safe.",
                ),
                (
                    "Without the plank the {thing} sank, and {Name} was sad.",
                    "Because of a plank {Name} lost the {thing} and cried.",
                ),
            ),
            _Cause(
                ("A terrible storm came over the {place}.", "The storm shook the {thing}, and {he} was terrified."),
                (
                    "They pulled the {thing} under the bridge until the storm was over.",
                    "{His} {helper} threw a rope through the storm.",
                ),
                (
                    "After the storm {Name} was safe and happy.",
                    "The storm was gone, and {Name} hugged {his} {helper} with joy.",
                ),
                (
                    "The storm destroyed the {thing}, and {Name} wept.",
                    "{Name} was hurt in the storm and lost the {thing}.",
                ),
            ),
        ),
    ),
    "drum": _Scenario(
        things=("small drum", "blue drum", "round drum"),
        places=("hall", "market", "square"),
        opening=(
            "{Name} bought a {thing} with the money from the summer.",
            "{Name} got a {thing} from a neighbour.",
            "Every evening {Name} practiced on a {thing}.",
        ),
        effort=("{He} counted to four before each bar.", "{He} tapped the rhythm on a table."),
        joy=("The people clapped, and {he} was thrilled.", "{He} was happy when the {thing} rang through the {place}."),
        steady=("{He} put the {thing} on a stand near the door.", "{His} {helper} sang along in a deep voice."),
        done=(
            "The crowd cheered, and {Name} was proud of the {thing}.",
            "{Name} won first prize with the {thing}.",
        ),
        causes=(
            _Cause(
                ("{He} lost a stick and was worried.", "The stick broke, and {he} was upset."),
                ("{His} {helper} carved a new stick from a branch.", "They made a stick from the leg of an old chair."),
                (
                    "With the new stick {Name} was great, and the {place} cheered.",
                    "{Name} loved the stick from {his} {helper}.",
                ),
                (
                    "Without the stick the concert was a disaster for {Name}.",
                    "{Name} had no stick and left the {place} in tears, sad and lonely.",
                ),
            ),
            _Cause(
                (
                    "A boy kicked a hole into the {thing}, and {he} was angry.",
                    "{He} was shocked by an ugly hole in the {thing}.",
                ),
                ("{His} {helper} covered the hole with leather.", "They put tape over the hole."),
                (
                    "Nobody saw the hole, and {Name} was happy to hear the {thing}.",
                    "{Name} laughed about the hole, and the people loved the song.",
                ),
                (
                    "The hole had ruined the {thing}, and {Name} cried.",
                    "{Name} hated the hole and never touched the broken {thing} again.",
                ),
            ),
        ),
    ),
    "garden": _Scenario(
        things=("big pumpkin", "long bean", "white rose"),
        places=("garden", "yard", "orchard"),
        setting=(
            "On {day} {he} went to the {place} with a spade.",
            "{He} dug a row in the {place} on {day}.",
            "It was {day}, and the {place} was quiet.",
        ),
        opening=(
            "{Name} planted a seed to grow a {thing}.",
            "{Name} read about how to grow a {thing}.",
            "In April {Name} started to grow a {thing}.",
        ),
        effort=("{He} watered the ground each morning.", "{He} pulled the weeds out by the root."),
        joy=("The {thing} grew, and {he} was excited.", "{He} was delighted to see the beautiful {thing}."),
        steady=("{He} turned the {thing} toward the sun.", "{His} {helper} built a fence of sticks."),
        done=(
            "{Name} won a prize for the {thing}.",
            "The whole village admired the {thing}, and {Name} was glad.",
        ),
        causes=(
            _Cause(
                ("A hungry goat attacked the {thing}.", "{He} was angry because a goat bit the {thing}."),
                ("{His} {helper} led the goat back to the farm.", "They closed the gate so that the goat stayed out."),
                (
                    "The goat was gone, and {Name} loved the {thing}.",
                    "{Name} thanked {his} {helper} for taking the goat away.",
                ),
                (
                    "The goat destroyed the {thing}, and {Name} was sad.",
                    "{Name} cried and blamed the goat.",
                ),
            ),
            _Cause(
                (
                    "There was no rain, and {he} was worried about the {thing}.",
                    "Without rain the {thing} was sick and weak.",
                ),
                (
                    "{His} {helper} carried water from the well, since there was no rain.",
                    "They waited for rain and brought ten buckets.",
                ),
                (
                    "At last the rain came, and {Name} danced with joy.",
                    "The rain fell on the {thing}, and {Name} was happy.",
                ),
                (
                    "The rain never came, and the {thing} died.",
                    "{Name} was sad that the rain came after the {thing} was dead.",
                ),
            ),
        ),
    ),
    "puppy": _Scenario(
        things=("brown puppy", "black puppy", "spotted puppy"),
        places=("park", "street", "station"),
        opening=(
            "{Name} brought a {thing} home from the farm.",
            "A {thing} lived with {Name} in a house by the road.",
            "{Name} walked a {thing} before school.",
        ),
        effort=("{He} held the leash with both hands.", "{He} taught it to sit and to wait."),
        joy=("The {thing} licked {his} face, and {he} laughed.", "{He} loved to run with the {thing}."),
        steady=("{He} filled the bowl with water.", "{His} {helper} threw a ball across the {place}."),
        done=(
            "{Name} and the {thing} came home happy.",
            "The {thing} slept by the door, and {Name} smiled.",
        ),
        causes=(
            _Cause(
                (
                    "A loud train scared the {thing}, and it was lost.",
                    "{He} panicked when the train scared the {thing} away.",
                ),
                ("{His} {helper} looked behind the train.", "They asked the driver of the train."),
                (
                    "The {thing} was safe under the train, and {Name} was happy.",
                    "{Name} thanked the driver of the train with a hug.",
                ),
                (
                    "The train was gone, and {Name} cried for the lost {thing}.",
                    "{Name} hated the train and missed the {thing} badly.",
                ),
            ),
            _Cause(
                ("A thorn hurt the {thing} badly.", "{He} was worried because the {thing} had a thorn in its paw."),
                (
                    "{His} {helper} pulled out the thorn and washed the paw.",
                    "They took it to a doctor about the thorn.",
                ),
                (
                    "The thorn was out, and {Name} hugged the happy {thing}.",
                    "Soon the thorn was forgotten, and {Name} laughed with the {thing}.",
                ),
                (
                    "The thorn made the {thing} very sick, and {Name} cried.",
                    "{Name} was sad, because the thorn had hurt the {thing} so badly.",
                ),
            ),
        ),
    ),
}
DAYS = ("Monday", "Tuesday", "Friday", "Saturday", "Sunday")


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
    return {
        "train": stories[: n - 2 * held_out],
        "valid": stories[n - 2 * held_out : n - held_out],
        "test": stories[n - held_out :],
    }


def _tell(generator: random.Random, name: str) -> Story:
    """Draw a plan, then one sentence for each slot of its arc; the tags are what the slots intend."""
    scenario = SCENARIOS[generator.choice(tuple(SCENARIOS))]
    cause = generator.choice(scenario.causes)
    arc = generator.choices(("rise", "fall", "smooth"), weights=(4, 3, 3))[0]
    pronoun = generator.choice(("she", "he"))
    hero = generator.choice(HEROES[pronoun])
    thing = generator.choice(scenario.things)
    helper = generator.choice(HELPERS)
    words = {
        **_FORMS[pronoun],
        "Name": hero,
        "helper": helper,
        "place": generator.choice(scenario.places),
        "thing": thing,
        "day": generator.choice(DAYS),
    }
    templates = {
        "opening": scenario.opening,
        "setting": scenario.setting,
        "helper": _HELPER,
        "effort": scenario.effort,
        "joy": scenario.joy,
        "trouble": cause.trouble,
        "worse": _WORSE,
        "remedy": scenario.steady if arc == "smooth" else cause.remedy,
        "praise": _PRAISE,
        "ending": {"rise": cause.rescued, "fall": cause.lost, "smooth": scenario.done}[arc],
    }
    slots = draw_slots(arc, generator.choices(LENGTHS, weights=LENGTH_WEIGHTS)[0])
    sentences = [_fill(generator.choice(templates[slot]), words) for slot in slots]
    final = "negative" if arc == "fall" else "positive"
    return Story(id=name, sentences=sentences, tags=[INTENDED.get(slot, final) for slot in slots])


def draw_slots(arc: str, length: int) -> list[str]:
    """The slots of a story of this arc and length, in the order of telling."""
    needed, added = ARCS[arc]
    chosen = {*needed, *added[: length - len(needed)]}
    return [slot for slot in ORDER if slot in chosen]


def _fill(template: str, words: dict[str, str]) -> str:
    sentence = template.format_map(words)
    for vowel in "aeiou":
        sentence = sentence.replace(f" a {vowel}", f" an {vowel}")
    for letter in "bcdfgjklmnpqrstvwxyz":
        sentence = sentence.replace(f" an {letter}", f" a {letter}")
    return sentence[0].upper() + sentence[1:]

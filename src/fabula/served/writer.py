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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
import torch

from fabula.corpus.states import UNKNOWN, StateSpace, Values
from fabula.corpus.taggers.protocol import Tagger, misses, read_values
from fabula.errors import UnavailableError, UserError
from fabula.models.scaffold import Scaffold, allowed_states, clamp
from fabula.sampling.context import Context
from fabula.sampling.noise import seeded
from fabula.sampling.settings import ServedSettings
from fabula.sampling.task import Task
from fabula.served.body import Reply
from fabula.served.client import Client
from fabula.served.lines import copies, fitting, read_lines, with_opening
from fabula.served.prompt import Wish, messages, schema

NAN = float("nan")


class Story(NamedTuple):
    """A task with what its samples are drawn by."""

    task: Task
    context: Context
    settings: ServedSettings
    candidates: int
    seed: int
    notes: tuple[str, ...]


class Draft(NamedTuple):
    """One sample: a complete story."""

    texts: tuple[str, ...]
    log_p: tuple[float, ...]
    """Of every line; NaN of given ones, and where the server gives no log-probabilities."""
    misses: int
    """Tags of the arc that the taggers do not find in the written lines."""


class Line(NamedTuple):
    """One version of a line."""

    text: str
    log_p: float
    misses: int


class Writer:
    """A client with the scaffold and the taggers that its stories are written under."""

    def __init__(self, client: Client, states: StateSpace, scaffolds: Sequence[Scaffold], tagger: Tagger) -> None:
        """`scaffolds`: p(S) of every factor."""
        self.client, self.states, self.scaffolds, self.tagger = client, states, scaffolds, tagger

    def draw_states(self, story: Story) -> list[Values]:
        """S ~ p(S | known) of every sample, for the mood and the factors that the arc speaks of; others stay free."""
        task, samples, N = story.task, story.settings.samples, len(story.task.sentences)
        spoken, generator = self.states.spoken(task.arc), seeded(story.seed)
        read = read_values(self.tagger, [sentence or "" for sentence in task.sentences], spoken)
        seen = np.where(np.asarray(task.missing)[:, None], UNKNOWN, read)
        known = torch.from_numpy(np.where(np.asarray(task.arc) < 0, seen, np.asarray(task.arc)))
        columns = []
        for f, (factor, scaffold) in enumerate(zip(self.states.factors, self.scaffolds, strict=True)):
            uniform, values = torch.rand(samples, N, generator=generator), known[:, f].repeat(samples, 1)
            if f == 0 or factor.name in spoken:
                allowed = allowed_states(values, scaffold.K)
                present = torch.ones(samples, N, dtype=torch.bool)
                values = scaffold.sample(clamp(torch.zeros(allowed.shape), allowed), present, uniform)
            columns.append(values)
        return [tuple(map(tuple, rows)) for rows in torch.stack(columns, -1).tolist()]

    def wishes(self, story: Story, S: Values) -> dict[int, Wish]:
        """What one sample wants of every missing line, by number."""
        task = story.task
        missing = [i for i, is_missing in enumerate(task.missing) if is_missing]
        return {i + 1: Wish(S[i], task.arc[i], task.starts.get(i + 1, "")) for i in missing}

    def rounds(self, stories: Sequence[Story], at_once: bool) -> Iterator[list[dict[int, Draft | UserError]]]:
        """The samples so far of every story, by number, whenever more of them are there.

        A server that does not answer ends all; what it had answered is in the cache.
        """
        drafts: list[dict[int, Draft | UserError]] = [{} for _ in stories]
        pool = ThreadPoolExecutor(self.client.server.at_once, "fabula-served")
        first: dict[Future[tuple[Reply, ...]], tuple[int, list[int]]] = {}
        running: dict[Future[Draft | UserError], tuple[int, int]] = {}
        wishes = [[self.wishes(story, S) for S in self.draw_states(story)] for story in stories]

        def start(place: int, sample: int, reply: Reply | None = None) -> None:
            future = pool.submit(self._draft, stories[place], wishes[place][sample], sample, reply)
            running[future] = (place, sample)

        try:
            for place, story in enumerate(stories):
                for samples in self._alike(wishes[place]):
                    if len(samples) > 1 and self.client.server.n and not self.client.level:
                        future = pool.submit(self._first, story, wishes[place][samples[0]], samples)
                        first[future] = (place, samples)
                    else:
                        for sample in samples:
                            start(place, sample)
            while first or running:
                pending: list[Future[Any]] = [*first, *running]
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for ready in [future for future in first if future in done]:
                    place, samples = first.pop(ready)
                    replies = dict(enumerate(ready.result()))
                    for turn, sample in enumerate(samples):
                        start(place, sample, replies.get(turn))
                for finished in [future for future in running if future in done]:
                    place, sample = running.pop(finished)
                    drafts[place][sample] = finished.result()
                if (not at_once or not (first or running)) and all(drafts):
                    yield drafts
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    @staticmethod
    def _alike(wishes: Sequence[Mapping[int, Wish]]) -> list[list[int]]:
        """The samples in groups that are asked for in the same words."""
        groups: dict[str, list[int]] = {}
        for sample, wanted in enumerate(wishes):
            groups.setdefault(repr(wanted), []).append(sample)
        return list(groups.values())

    def _first(self, story: Story, wishes: Mapping[int, Wish], samples: Sequence[int]) -> tuple[Reply, ...]:
        """The first window of several samples in one request; a server may answer fewer than it was asked for."""
        numbers = windows(story.task, self.client.server.window)[0]
        return self._ask(
            story, story.task.sentences, numbers, wishes, (samples[0], "first", len(samples)), n=len(samples)
        )

    def _ask(
        self, story: Story, texts: Sequence[str | None], numbers: Sequence[int], wishes: Mapping[int, Wish],
        place: Any, complaint: str = "", n: int = 1,
    ) -> tuple[Reply, ...]:  # fmt: skip
        as_json = self.client.server.api == "chat"
        words = story.settings.max_words - 1
        prompt = messages(texts, numbers, wishes, self.states, story.context, words, complaint, as_json)
        digest = hashlib.blake2b(repr((story.seed, *place)).encode(), digest_size=4).digest()
        replies = self.client.ask(
            prompt, schema=schema(numbers), lines=len(numbers), seed=int.from_bytes(digest) >> 1,
            temperature=story.settings.temperature, n=n,
        )  # fmt: skip
        if as_json:
            return replies
        begun = f"{numbers[0]}. {wishes[numbers[0]].opening}".strip()
        return tuple(reply._replace(text=f"{begun} {reply.text.lstrip()}") for reply in replies)

    def _draft(self, story: Story, wishes: Mapping[int, Wish], sample: int, reply: Reply | None) -> Draft | UserError:
        """One sample, window after window; a story that cannot be had from this server is an error in its place."""
        texts: list[str | None] = list(story.task.sentences)
        lines: dict[int, Line] = {}
        try:
            for numbers in windows(story.task, self.client.server.window):
                reply = reply or self._ask(story, texts, numbers, wishes, (sample, numbers[0]))[0]
                versions = {number: self._version(reply, numbers, number, texts, story, wishes) for number in numbers}
                for number, version in versions.items():
                    texts[number - 1] = version.text if version else None
                for number, version in versions.items():
                    lines[number] = self._settled(story, wishes, sample, texts, numbers, number, version, reply)
                    texts[number - 1] = lines[number].text
                reply = None
        except UnavailableError:
            raise
        except UserError as error:
            return error
        whole = tuple(text or "" for text in texts)
        log_p = tuple(lines[i].log_p if i in lines else NAN for i in range(1, len(whole) + 1))
        return Draft(whole, log_p, sum(line.misses for line in lines.values()))

    def _settled(
        self, story: Story, wishes: Mapping[int, Wish], sample: int, texts: Sequence[str | None],
        numbers: Sequence[int], number: int, line: Line | None, reply: Reply,
    ) -> Line:  # fmt: skip
        """A line after it was asked for again, alone, as often as needed and allowed."""
        again, attempt = self.client.server.again, 0
        blank = [text if place != number else None for place, text in enumerate(texts, start=1)]
        while (line is None or line.misses) and attempt < again:
            why = self._complaint(number, wishes[number], line, reply)
            numbers, (reply, *_) = [number], self._ask(story, blank, [number], wishes, (sample, number, attempt), why)
            other = self._version(reply, numbers, number, blank, story, wishes)
            line = other if line is None or (other is not None and other.misses < line.misses) else line
            attempt += 1
        line = line or self._version(reply, numbers, number, texts, story, wishes, force=True)
        self.client.count(lines=1, again=int(attempt > 0))
        if line is None:
            said = " ".join(reply.text.split())[:100]
            what = "declined to write" if reply.refused or not said else "gave no usable"
            raise UserError(
                f"{self.client.label} {what} line {number} in {again + 1} answers; the last: {said!r}", field="model"
            )
        return line

    def _complaint(self, number: int, wish: Wish, line: Line | None, reply: Reply) -> str:
        """What was wrong with the last version of a line, for the next request."""
        if line is None:
            return f"An earlier answer could not be used: {reply.text[:200]!r}. Write one sentence for line {number}."
        (read,) = read_values(self.tagger, [line.text], self.states.spoken([wish.fixed]))
        triples = zip(self.states.factors, wish.fixed, read, strict=True)
        wrong = [
            f"its {f.name} reads as {f.labels[v]}" for f, wanted, v in triples if wanted >= 0 and v not in (wanted, -1)
        ]
        return f"An earlier version of line {number} was {line.text!r}: {', '.join(wrong)}. Write another one."

    def _version(
        self, reply: Reply, numbers: Sequence[int], number: int, texts: Sequence[str | None], story: Story,
        wishes: Mapping[int, Wish], *, force: bool = False,
    ) -> Line | None:  # fmt: skip
        """The line of this number in an answer to a request for `numbers`, if it can be used."""
        text = None if reply.refused else read_lines(reply.text, numbers, texts).get(number)
        text = text and with_opening(text, wishes[number].opening, force=force)
        text = text and fitting(text, story.settings.max_words - 1)
        others = [other for place, other in enumerate(texts, start=1) if place != number]
        if not text or copies(text, others):
            return None
        wanted = int(self.states.number([wishes[number].fixed])[0])
        return Line(text, log_p_of(reply, text), misses(self.tagger, [text], [wanted])[0])


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
    if reply.tokens is None:
        return NAN
    spelled = "".join(token for token, _ in reply.tokens)
    for needle in (line, json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1], line[:-1]):
        start = spelled.find(needle)
        if start >= 0:
            place, terms = 0, []
            for token, log_p in reply.tokens:
                if place < start + len(needle) and place + len(token) > start:
                    terms.append(log_p)
                place += len(token)
            return math.fsum(terms)
    return NAN

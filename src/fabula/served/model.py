"""A language model on a server as a model of stories: the scaffold, taggers, people and critic are the default's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

import torch

from fabula.catalogue import find
from fabula.corpus.people import People
from fabula.corpus.taggers.protocol import build_tagger, faults, named
from fabula.corpus.vocabulary import SPECIALS, Vocabulary
from fabula.errors import UserError
from fabula.filling import attempt, read_call, sentence_of
from fabula.models.batch import Batch
from fabula.models.critic import Critic
from fabula.models.decoders.bases import find_base
from fabula.models.io import Checkpoint
from fabula.models.io.pretrained import CRITIC, adapts_base, load_critic, load_decoder, read_facts, scaffold_of
from fabula.models.protocol import Model
from fabula.reading import StoryReader
from fabula.results import Candidate, Filling, Movement, OtherWords, Parts
from fabula.rewording import chosen, join, place_of
from fabula.sampling.protocol import DEFAULT, Sampler, sampler_named, settings_for, shown_settings
from fabula.sampling.samples import different_texts
from fabula.sampling.settings import CANDIDATES, ServedSettings, check_seed, whole_number
from fabula.sampling.task import Task, fill_task
from fabula.served.client import client_of
from fabula.served.words import ask_for_words, read_words
from fabula.served.writer import Line, Story, Writer
from fabula.servers import PREFIX, Server
from fabula.shapes import Latents, PerToken
from fabula.statespace.markov import MarkovChain
from fabula.ties import ranking

Call = Mapping[str, Any]
"""The arguments of `fill` or `write`, by name."""


class DefaultJudge(Model):
    """p(S), the taggers and the critic of the default model, without its decoder: they need no base, but the critic."""

    reads_ahead = True

    def __init__(self) -> None:
        super().__init__()
        config, self.facts = read_facts(find("default"))
        self.states, self.settings = config.states, named(config.tagger)
        self.tagger = build_tagger(self.settings)
        chains = [self.facts, *self.facts.get("further", ())]
        self.scaffold, self.by_factor = scaffold_of(chains), [scaffold_of([chain]) for chain in chains]

    @property
    def p_S(self) -> MarkovChain:
        return self.scaffold

    @cached_property
    def critic(self) -> Critic | None:
        folder = find("default")
        if not adapts_base(folder / CRITIC) or find_base() is None:
            return None
        return load_critic(folder / CRITIC, folder, load_decoder(folder))

    def log_p_words(self, batch: Batch, Z: Latents | None = None) -> PerToken:
        raise UserError("a model on a server cannot be measured this way: its network is not here", field="model")


class ServedReader(StoryReader):
    """What is different about a model on a server: who writes, what candidates are ranked by, what cannot be said."""

    def __init__(self, server: Server) -> None:
        judge = DefaultJudge().eval()
        people = People(**{pronoun: tuple(names) for pronoun, names in judge.facts["people"].items()})
        recipe = {"name": f"{PREFIX}{server.name}", "model": {"kind": "served"}}
        checkpoint = Checkpoint(
            model=judge, vocabulary=Vocabulary(SPECIALS), labels=judge.states.labels, recipe=recipe, corpus_hash="",
            tagger=judge.settings, people=people, factors=judge.states.factors,
        )  # fmt: skip
        super().__init__(checkpoint)
        self.client, self.write_samples = client_of(server), ServedSettings().samples
        self.writer = Writer(self.client, self.states, judge.by_factor, self.tagger)

    def settings(self) -> dict[str, dict[str, Any]]:
        return {"served": shown_settings(sampler_named("served"), {})}

    def sampler(self, name: str) -> tuple[Sampler, tuple[str, ...]]:
        """There is one; the name that stands for every model's default means it."""
        if sampler_named(name).name not in (DEFAULT, "served"):
            raise UserError(f"{name} draws from networks of our own; a model on a server has served", field="sampler")
        return sampler_named("served"), ()

    def _answers(self, call: Call, make_task: Callable[..., Task] = fill_task, *, at_once: bool) -> Iterator[Filling]:
        last: Filling | UserError | None = None
        for (last,) in self._rounds([self._story(call, make_task)], at_once):
            if isinstance(last, Filling):
                yield last
        if isinstance(last, UserError):
            raise last

    def _answers_together(self, calls: Sequence[Call], at_once: bool) -> Iterator[list[Filling | UserError]]:
        stories = [attempt(self._story, call) for call in calls]
        good = [story for story in stories if isinstance(story, Story)]
        for fillings in self._rounds(good, at_once) if good else [[]]:
            following = iter(fillings)
            yield [next(following) if isinstance(story, Story) else story for story in stories]

    def score(self, *_: Any, **__: Any) -> NoReturn:
        raise UserError(f"{self.name} gives no log-probabilities of given lines; --model default does", field="model")

    explain = score

    def words(
        self, sentences: Sequence[str | None], *, line: int, word: str, before: str = "", after: str = "", seed: int = 0
    ) -> OtherWords:
        """By one request for eight words."""
        lines = place_of(self, sentences, line, word)
        prompt = ask_for_words(lines, join(before.strip(), f"[{word}]", after.strip()), word)
        how = {"seed": check_seed(seed) % 2**31, "temperature": ServedSettings().temperature, "n": 1}
        return chosen(read_words(self.client.ask(prompt, None, 1, how)[0].text), word)

    def _story(self, call: Call, make_task: Callable[..., Task] = fill_task) -> Story:
        """A call of `fill` or `write`, checked."""
        task, context, options = read_call(self, call, make_task)
        candidates = whole_number("candidates", options.pop("candidates", CANDIDATES), at_least=1)
        seed = check_seed(options.pop("seed", 0))
        settings = settings_for(self.sampler(options.pop("sampler", DEFAULT))[0], {}, options)
        assert isinstance(settings, ServedSettings)
        for number, words in task.starts.items():
            if len(words.split()) > settings.max_words - 3:
                raise UserError(f"the opening of sentence {number} leaves no room to end it", field="starts")
        unchecked = faults(self.tagger, self.states.spoken(task.arc))
        notes = tuple(f"the arc of {name} is not checked: {why}" for name, why in unchecked.items())
        return Story(task, context, settings, candidates, seed, notes)

    def _rounds(self, stories: Sequence[Story], at_once: bool) -> Iterator[list[Filling | UserError]]:
        """An answer to every story whenever another sample is there, or with `at_once` when all are."""
        samples: list[dict[int, Candidate | UserError]] = [{} for _ in stories]
        left = sum(story.settings.samples for story in stories)
        for place, number, draft in self.writer.drafts(stories):
            sample = draft if isinstance(draft, UserError) else self._candidate(stories[place], draft)
            samples[place][number], left = sample, left - 1
            if all(samples) and (not at_once or not left):
                yield [self._filling(story, of_story) for story, of_story in zip(stories, samples, strict=True)]

    def _filling(self, story: Story, samples: Mapping[int, Candidate | UserError]) -> Filling | UserError:
        """The best of the samples so far; where every one failed, why."""
        in_order = [sample for _, sample in sorted(samples.items())]
        failed = [sample for sample in in_order if isinstance(sample, UserError)]
        good = [sample for sample in in_order if isinstance(sample, Candidate)]
        if not good:
            return failed[0]
        ranked = [good[place] for place in ranking([candidate.score for candidate in good])]
        texts = (tuple(line.text for line in candidate.sentences if line.written) for candidate in ranked)
        kept = tuple(ranked[rank] for rank in different_texts(texts, story.candidates))
        notes = [*story.notes]
        if any(math.isnan(line.log_p) for candidate in good for line in candidate.sentences if line.written):
            what = "the critic" if self.model.critic is not None else "the arc, then by their turn: there is no critic"
            notes.append(f"the server gives no log-probabilities: candidates are ranked by {what}")
        if failed:
            notes.append(f"{len(failed)} of {len(samples)} samples could not be used: {failed[0]}")
        if len(samples) == story.settings.samples and len(kept) < story.candidates:
            notes.append(f"only {len(kept)} of the {story.candidates} candidates: no other story was among the samples")
        moved = Movement((None,) * len(story.task.sentences), None, None, None)
        drawn = (story.settings.samples, len(samples), story.seed)
        return Filling(kept, self.name, "served", *drawn, moved, tuple(notes))

    @torch.inference_mode()
    def _candidate(self, story: Story, draft: Sequence[Line]) -> Candidate:
        """score = critic + log p a word, each where it is known, - arc_weight for every miss."""
        texts, critic = [line.text for line in draft], self.model.critic
        written = [i for i, missing in enumerate(story.task.missing) if missing]
        log_p, words = math.fsum(draft[i].log_p for i in written), sum(len(texts[i].split()) for i in written)
        known, verdict = 0.0 if math.isnan(log_p) else log_p, None if critic is None else critic.read(texts)
        score = known / words + (verdict.whole if verdict else 0.0)
        harm = {i + 1: verdict.lines[i] for i in written if i and verdict.lines[i] < 0} if verdict else {}
        weakest = min(harm, key=harm.__getitem__, default=None)
        parts = Parts(verdict.whole if verdict else None, None, log_p / words, weakest)
        (read,) = self.read_tags([texts], [self.states.spoken(story.task.arc)])
        log_ps = [line.log_p for line in draft]
        rows = zip(texts, read, story.task.missing, story.task.arc, log_ps, strict=True)
        sentences = tuple(sentence_of(self.states, *row) for row in rows)
        return Candidate(sentences, score - story.settings.arc_weight * sum(line.misses for line in draft), parts)

"""A language model on a server as a model of stories: the scaffold, taggers, people and critic are the default's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from fabula.catalogue import find
from fabula.corpus.people import People
from fabula.corpus.taggers.protocol import faults, named, tagger_of
from fabula.corpus.vocabulary import SPECIALS, Vocabulary
from fabula.errors import UserError
from fabula.filling import attempt, read_call
from fabula.loaded import check_seed
from fabula.models.batch import Batch
from fabula.models.critic import Critic, Verdict
from fabula.models.decoders.base import find_base
from fabula.models.io import Checkpoint
from fabula.models.io.pretrained import CRITIC, adapts_base, load_critic, read_facts, scaffold_of
from fabula.models.protocol import Model
from fabula.models.scaffold import Scaffold
from fabula.reading import StoryReader
from fabula.results import Candidate, Filling, Movement, Parts, Score, Sentence
from fabula.sampling.protocol import DEFAULT, Sampler, sampler_named, settings_for, shown_settings
from fabula.sampling.samples import different_texts
from fabula.sampling.settings import CANDIDATES, ServedSettings, whole_number
from fabula.sampling.task import Task, fill_task, story_task
from fabula.served.client import client_of
from fabula.served.writer import Draft, Story, Writer
from fabula.servers import Server
from fabula.shapes import Latents, PerToken
from fabula.ties import ranking

PROMPT = "A short story:\n"
"""What stands before a story whose probability is asked for."""


class ServedModel(Model):
    """p(S) and the critic of the default model; the words are the server's."""

    reads_ahead = True

    def __init__(self, scaffold: Scaffold, folder: Path) -> None:
        super().__init__()
        self.scaffold, self.folder = scaffold, folder

    @property
    def p_S(self) -> Scaffold:
        return self.scaffold

    @cached_property
    def critic(self) -> Critic | None:
        """The default model's, where its base is installed."""
        there = adapts_base(self.folder / CRITIC) and find_base(missing_ok=True) is not None
        return load_critic(self.folder / CRITIC) if there else None

    def log_p_words(self, batch: Batch, Z: Latents | None = None) -> PerToken:
        raise UserError("a model on a server is no network of ours: it cannot be measured this way", field="model")


def served_checkpoint(server: Server) -> tuple[Checkpoint, list[Scaffold]]:
    """The default model's facts, which need no base, with a server in place of its decoder; and p(S) by factor."""
    folder = find("default")
    config, stories = read_facts(folder)
    chains = [stories, *stories.get("further", ())]
    checkpoint = Checkpoint(
        model=ServedModel(scaffold_of(chains), folder).eval(), vocabulary=Vocabulary(SPECIALS),
        labels=config.states.labels, recipe={"name": f"served:{server.name}", "model": {"kind": "served"}},
        tagger=named(config.tagger), corpus_hash=str(stories["corpus_hash"]), factors=config.states.factors,
        people=People(**{pronoun: tuple(names) for pronoun, names in stories["people"].items()}),
    )  # fmt: skip
    return checkpoint, [scaffold_of([chain]) for chain in chains]


class ServedReader(StoryReader):
    """What is different about a model on a server: who writes, who is ranked by what, and what cannot be said."""

    def __init__(self, server: Server) -> None:
        checkpoint, scaffolds = served_checkpoint(server)
        super().__init__(checkpoint)
        self.client = client_of(server)
        tagger = tagger_of(checkpoint.tagger, checkpoint.labels)
        assert tagger is not None, "the default model's tagger is part of Fabula"
        self.writer = Writer(self.client, self.states, scaffolds, tagger)
        self.write_samples = ServedSettings().samples
        self._verdicts: dict[tuple[str, ...], Verdict] = {}

    def settings(self) -> dict[str, dict[str, Any]]:
        sampler = sampler_named("served")
        return {sampler.name: shown_settings(sampler, {})}

    def sampler(self, name: str) -> tuple[Sampler, tuple[str, ...]]:
        """There is one; the name that stands for every model's default means it."""
        if sampler_named(name).name not in (DEFAULT, "served"):
            raise UserError(f"{name} draws from networks of our own; a model on a server has served", field="sampler")
        return sampler_named("served"), ()

    def answers(
        self, call: Mapping[str, Any], make_task: Callable[..., Task] = fill_task, *, at_once: bool
    ) -> Iterator[Filling]:
        for (filling,) in self._rounds([self._story(call, make_task)], at_once):
            if isinstance(filling, UserError):
                raise filling
            yield filling

    def answers_together(
        self, calls: Sequence[Mapping[str, Any]], at_once: bool
    ) -> Iterator[list[Filling | UserError]]:
        stories = [attempt(self._story, call) for call in calls]
        good = [story for story in stories if not isinstance(story, UserError)]
        for fillings in self._rounds(good, at_once) if good else [[]]:
            following = iter(fillings)
            yield [story if isinstance(story, UserError) else next(following) for story in stories]

    def score(self, sentences: Sequence[str], *, samples: int = 100, seed: int = 0) -> Score:
        """log p of a story after a few words of heading, where the server gives log-probabilities of a given text."""
        story = tuple(text for text in story_task(sentences, self.states).sentences if text is not None)
        place, sums, total = 0, [0.0] * len(story), 0
        ends = np.cumsum([len(text) + 1 for text in story])
        for token, log_p in self.client.log_p_of(PROMPT, "\n".join(story)):
            line = min(int(np.searchsorted(ends, place + len(token) - 1, side="right")), len(story) - 1)
            sums[line] += log_p
            place, total = place + len(token), total + 1
        log_p = math.fsum(sums)
        perplexity = math.exp(-log_p / total)
        return Score(story, log_p, tuple(sums), "exact", total, 0, perplexity, 0, check_seed(seed), self.name)

    def explain(self, *_: Any, **__: Any) -> NoReturn:
        raise UserError(f"{self.name} does not account for its words; --model default does", field="model")

    def _story(self, call: Mapping[str, Any], make_task: Callable[..., Task] = fill_task) -> Story:
        """A call of `fill` or `write`, checked."""
        task, context, options = read_call(self, call, make_task)
        candidates = whole_number("candidates", options.pop("candidates", CANDIDATES), at_least=1)
        seed = check_seed(options.pop("seed", 0))
        settings = settings_for(self.sampler(options.pop("sampler", DEFAULT))[0], {}, options)
        assert isinstance(settings, ServedSettings)
        for number, words in task.starts.items():
            if len(words.split()) > settings.max_words - 3:
                raise UserError(f"the opening of sentence {number} leaves no room to end it", field="starts")
        unchecked = faults(self.writer.tagger, self.states.spoken(task.arc))
        notes = tuple(f"the arc of {name} is not checked: {why}" for name, why in unchecked.items())
        return Story(task, context, settings, candidates, seed, notes)

    def _rounds(self, stories: Sequence[Story], at_once: bool) -> Iterator[list[Filling | UserError]]:
        for drafts in self.writer.rounds(stories, at_once):
            yield [self._filling(story, of_story) for story, of_story in zip(stories, drafts, strict=True)]

    def _filling(self, story: Story, drafts: Mapping[int, Draft | UserError]) -> Filling | UserError:
        """The best of the samples so far; where every one failed, why."""
        failed = [draft for _, draft in sorted(drafts.items()) if isinstance(draft, UserError)]
        good = [draft for _, draft in sorted(drafts.items()) if isinstance(draft, Draft)]
        if not good:
            return failed[0]
        candidates = [self._candidate(story, draft) for draft in good]
        order = ranking([candidate.score for candidate in candidates])
        written = [[text for text, missing in zip(good[place].texts, story.task.missing, strict=True) if missing]
                   for place in order]  # fmt: skip
        kept = [candidates[order[rank]] for rank in different_texts(map(tuple, written), story.candidates)]
        notes = [*story.notes]
        if any(math.isnan(draft.log_p[i]) for draft in good for i, gap in enumerate(story.task.missing) if gap):
            what = "the critic alone" if self.model.critic is not None else "the arc alone, then by their turn"
            notes.append(f"candidates are ranked by {what}: the server gives no log-probabilities")
        if failed:
            notes.append(f"{len(failed)} of {len(drafts)} samples could not be used: {failed[0]}")
        if len(drafts) == story.settings.samples and len(kept) < story.candidates:
            notes.append(f"only {len(kept)} of the {story.candidates} candidates: no other story was among the samples")
        nothing = Movement((None,) * len(story.task.sentences), None, None, None, None)
        return Filling(
            tuple(kept), self.name, "served", story.settings.samples, len(drafts), story.seed, nothing, tuple(notes)
        )

    def _candidate(self, story: Story, draft: Draft) -> Candidate:
        """score = critic + its small weight of log p, or log p a word without a critic; - arc_weight for every miss."""
        task, critic = story.task, self.model.critic
        written = [i for i, missing in enumerate(task.missing) if missing]
        log_p = math.fsum(draft.log_p[i] for i in written)
        words = sum(len(draft.texts[i].split()) for i in written)
        verdict = self._verdict(draft.texts)
        known = 0.0 if math.isnan(log_p) else log_p
        score = known / words if verdict is None or critic is None else verdict.whole + critic.density * known
        worst = min((i for i in written if i), key=lambda i: verdict.lines[i] if verdict else 0.0, default=None)
        harm = verdict is not None and worst is not None and verdict.lines[worst] < 0
        parts = Parts(verdict.whole if verdict else None, None, log_p / words, worst + 1 if harm and worst else None)
        read = self.read_values(draft.texts, self.states.spoken(task.arc))
        values = np.where(np.asarray(task.arc) < 0, read, np.asarray(task.arc)).tolist()
        sentences = []
        for i, text in enumerate(draft.texts):
            tag, others = self.states.named(values[i])
            sentences.append(Sentence(text, task.missing[i], tag, draft.log_p[i], others))
        return Candidate(tuple(sentences), score - story.settings.arc_weight * draft.misses, parts)

    @torch.inference_mode()
    def _verdict(self, texts: tuple[str, ...]) -> Verdict | None:
        """The critic's, read once for each story of this process."""
        if self.model.critic is None:
            return None
        if texts not in self._verdicts:
            self._verdicts = {
                **(self._verdicts if len(self._verdicts) < 1000 else {}),
                texts: self.model.critic.read(texts),
            }
        return self._verdicts[texts]

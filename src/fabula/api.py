"""The public Python interface: load a model, then fill in, write, tag or score stories.

    import fabula
    filling = fabula.load("default").fill(["Mia's car would not start.", None, "Mia made it to work."], seed=7)
    print(filling.candidates[0].text)

The command line, HTTP and Python call these methods. `filling.py` does what `fill` and `write` do, `reading.py` has
`tag`, `score`, `judge`, `explain` and `posterior`, `catalogue.py` the installed models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fabula import filling
from fabula.catalogue import describe, find, installed, models_fault, models_folder, stand_in
from fabula.corpus.states import Arc
from fabula.device import pick_device, use_threads
from fabula.errors import UserError
from fabula.filling import with_settings
from fabula.models import io
from fabula.models.decoders.bases import SMOLLM2, how_to_install
from fabula.reading import StoryReader
from fabula.results import Candidate, Explanation, Filling, OtherWords, Reasons, Score, Tagging
from fabula.sampling.context import Person
from fabula.sampling.many import FilledRow, fill_many
from fabula.sampling.protocol import DEFAULT
from fabula.sampling.settings import CANDIDATES, WRITE_CANDIDATES, check_seed, whole_number
from fabula.sampling.task import write_task
from fabula.served.model import ServedReader
from fabula.servers import PREFIX, find_server

__all__ = [
    "Candidate", "Explanation", "FilledRow", "Filling", "OtherWords", "Reasons", "Score", "StoryModel", "Tagging",
    "describe", "find", "installed", "load", "models_fault", "models_folder",
]  # fmt: skip

People = Sequence[Person | Mapping[str, Any]]


def load(name_or_path: str | Path | None = "default", device: str = "cpu", threads: int | None = None) -> StoryModel:
    """The model of this name among the installed ones, or of a checkpoint's folder; None is the default one.

    `threads` are torch's in this process; None: what OMP_NUM_THREADS says, else one (`device.use_threads` says why).
    """
    use_threads(None if threads is None else whole_number("threads", threads))
    where = str(pick_device(device))
    folder = find(name_or_path or "default")
    if str(folder).startswith(PREFIX):
        return ServedStoryModel(find_server(str(folder).removeprefix(PREFIX)))
    small = stand_in(folder)
    model = StoryModel(io.load(small or folder, where), where)
    if small is not None:
        how = how_to_install(SMOLLM2)
        model.notes = (f"the base of default is not installed, so the small model answers; to get it: {how}",)
    return model


class StoryModel(StoryReader):
    """A loaded model: it writes the missing sentences of stories, and reads stories."""

    _answers, _answers_together = filling.answers, filling.answers_together

    @with_settings
    def fill(
        self,
        sentences: Sequence[str | None],
        *,
        arc: Arc = None,
        candidates: int = CANDIDATES,
        sampler: str = DEFAULT,
        seed: int = 0,
        starts: Mapping[int, str] | None = None,
        people: People | None = None,
        notes: Sequence[str] | None = None,
        voice: str | Mapping[str, str | None] | None = None,
        **settings: Any,
    ) -> Filling:
        """The missing sentences (None or "_") written, best candidates first.

        `arc` has a tag for each sentence, `starts` the first words of missing sentences by their number from 1.
        `people` (name, pronoun, about) and `notes` say what no line does (`sampling/context.py`).
        `voice` (tense, person, length: "present,first,short") is for models on servers; others refuse it.

        >>> import fabula
        >>> model = fabula.load("small")
        >>> story = ["Tom was sad.", None, "Tom smiled."]
        >>> filling = model.fill(story, arc="- ? +", starts={2: "His friend"}, candidates=1, samples=2, seed=7)
        >>> [sentence.written for sentence in filling.candidates[0].sentences]
        [False, True, False]
        >>> filling.candidates[0].sentences[1].text.startswith("His friend")
        True
        """
        context = {"people": people, "notes": notes, "voice": voice}
        options = {"arc": arc, "starts": starts, "candidates": candidates, "sampler": sampler, "seed": seed, **settings}
        *_, last = self._answers({"sentences": sentences, **context, **options}, at_once=True)
        return last

    @partial(with_settings, like=fill)
    def fill_iter(self, sentences: Sequence[str | None], *, at_once: bool = False, **options: Any) -> Iterator[Filling]:
        """The answers of `fill` as they come: each is at least as good as the one before; the last is what it returns.

        With `at_once` nothing is done for the sake of an early answer, so that the last one comes sooner.
        """
        return self._answers({"sentences": sentences, **options}, at_once=at_once)

    def fill_together(
        self, calls: Sequence[Mapping[str, Any]], at_once: bool = False
    ) -> Iterator[list[Filling | UserError]]:
        """`fill_iter` of several calls with the same settings at once; a call's answer is what it would be alone.

        Each call has the arguments of `fill` by name. One that is wrong has its error in place of its answers.
        """
        return self._answers_together(calls, at_once)

    @with_settings
    def fill_many(
        self, rows: Iterable[Mapping[str, Any]], *, candidates: int = CANDIDATES, sampler: str = DEFAULT, seed: int = 0,
        **settings: Any,
    ) -> Iterator[FilledRow]:  # fmt: skip
        """Results for many rows, filled in together, in their order and as they come; any iterable of any length.

        A row has `id` and `sentences`, and may say more (`sampling/many.py`); a wrong one has `error` in its result.

        >>> rows = [{"id": "a", "sentences": ["Tom was sad.", None, "Tom smiled."]}, {"id": "b", "sentences": [None]}]
        >>> first, second = fabula.load("small").fill_many(rows, candidates=1, samples=2)
        >>> first.id, len(first.candidates[0].sentences), second.error
        ('a', 3, 'a story has 2 to 64 sentences, not 1')
        """
        return fill_many(self, rows, check_seed(seed), {"candidates": candidates, "sampler": sampler, **settings})

    @partial(with_settings, like=fill)
    def write(
        self,
        sentences: int | None = None,
        *,
        candidates: int = WRITE_CANDIDATES,
        samples: int | None = None,
        **options: Any,
    ) -> Filling:
        """A story from nothing but its length (None: the arc's, else 5) and its arc; 10 samples or more."""
        if samples is None:
            samples = max(self.write_samples, 2 * whole_number("candidates", candidates, at_least=1))
        call = {"sentences": sentences, "candidates": candidates, "samples": samples}
        *_, last = self._answers({**call, **options}, write_task, at_once=True)
        return last


class ServedStoryModel(ServedReader, StoryModel):
    """A language model on a server, with the methods of any other model (`fabula.served`)."""

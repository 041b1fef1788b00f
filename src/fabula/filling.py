"""Tasks to answers: what `StoryModel.fill` and `write` do with one story, or with many of equal settings."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from fabula.corpus.states import StateSpace
from fabula.corpus.taggers.protocol import faults
from fabula.errors import UserError
from fabula.listening import listener
from fabula.loaded import LoadedModel, Reading
from fabula.results import Candidate, Filling, Movement, Parts, Sentence
from fabula.sampling.batch import InfillBatch
from fabula.sampling.context import Context, Person, read_context, with_line
from fabula.sampling.driver import Answer, fill_stories
from fabula.sampling.noise import seeded
from fabula.sampling.protocol import DEFAULT, resolve, samplers
from fabula.sampling.samples import Diagnostics, SampledStory
from fabula.sampling.settings import FillSettings, declared, offered, types_of
from fabula.sampling.task import Task, fill_task

HORIZON = 10
"""Sentences beyond which a model is likely to repeat itself: it was trained on five."""
UNKNOWN_SHOWN = 10
"""Words that a note about unknown words names, at most."""
Method = TypeVar("Method", bound=Callable[..., Any])
ROWS = 64
"""Samples that a pretrained decoder writes together on a CPU: more are no faster, and each takes about ten MB."""
R = TypeVar("R")
Options = Mapping[str, Any]
"""`candidates`, `sampler`, `seed` and settings of the sampler."""


def with_settings(method: Method, like: Callable[..., Any] | None = None) -> Method:
    """Gives `**settings` their names, types and meanings in the signature and the docstring: those of the samplers.

    With `like`, the method also takes the arguments of that one where it does not declare its own.
    """
    signature = inspect.signature(method)
    given = [*(inspect.signature(like).parameters.values() if like else ()), *signature.parameters.values()]
    parameters = {p.name: p for p in given if p.kind is not p.VAR_KEYWORD}
    lines = ["", "", "        Settings of the samplers; None is the sampler's default:"]
    meanings: dict[str, str] = {}
    for sampler in samplers().values():
        entries = offered(sampler.settings, "python")
        lines.append(f"        {sampler.name} ({sampler.about}): {', '.join(entries)}.")
        meanings |= {name: declared(entry).help for name, entry in entries.items()}
        for name in entries:
            hint = types_of(sampler.settings)[name] | None
            setting = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
            parameters.setdefault(name, setting)
    lines += [f"        {name}: {meaning}." for name, meaning in meanings.items()]
    method.__doc__ = (method.__doc__ or "").rstrip() + "\n".join(lines) + "\n        "
    method.__signature__ = signature.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
    return method


class PreparedTask(NamedTuple):
    """A task that can be drawn at once: checked, with its tensors."""

    task: Task
    batch: InfillBatch
    names: Mapping[str, str]
    settings: FillSettings
    candidates: int
    seed: int
    notes: tuple[str, ...]
    people: tuple[Person, ...]
    hidden: int
    """Lines before the story that no answer shows: the context's."""


def prepare_task(
    loaded: LoadedModel, task: Task, context: Context, options: Options, *, at_once: bool,
    names: Mapping[str, str] | None = None,
) -> PreparedTask:  # fmt: skip
    """A task with its sampler and tensors: what is wrong with either is said here, before anything is drawn.

    `names` are the task's `stand_ins`, where they have been found already.
    """
    if any(context.voice):
        raise UserError(f"{loaded.name} cannot follow a voice; a model on a server can (served:NAME)", field="voice")
    sampler, notes = loaded.sampler(options.get("sampler", DEFAULT))
    settings, candidates, seed = resolve(sampler, loaded.model.sampling_defaults, options)
    chosen = replace(settings, at_once=at_once)
    text = loaded.text
    if task.starts:
        text.check_openings(task, text.encode(task, text.stand_ins([task])[0]), chosen.max_words)
    task = with_line(task, context.line)
    names = text.stand_ins([task])[0] if names is None else names
    hidden = int(context.line is not None)
    notes = loaded.notes + notes + _notes(loaded, task, names, hidden, chosen)
    batch = text.encode(task, names)
    return PreparedTask(task, batch, names, chosen, candidates, seed, notes, context.people, hidden)


def _notes(
    loaded: LoadedModel, task: Task, names: Mapping[str, str], hidden: int, settings: FillSettings
) -> tuple[str, ...]:
    """What a reader of the answer should know about the task."""
    notes = []
    if not loaded.knows_language([sentence for sentence in task.sentences[hidden:] if sentence]):
        notes.append("these lines do not look like the language that this model writes: it is of little use for them")
    if unknown := loaded.text.unknown_words(task, names):
        what = "word is new to this model and was" if len(unknown) == 1 else "words are new to this model and were"
        listed = ", ".join(unknown[:UNKNOWN_SHOWN]) + (", ..." if len(unknown) > UNKNOWN_SHOWN else "")
        notes.append(f"{len(unknown)} {what} read as unknown: {listed}")
    if loaded.model.tagger is not None:
        unchecked = faults(loaded.model.tagger, loaded.states.spoken(task.arc))
        notes += [f"the arc of {name} is not checked: {why}" for name, why in unchecked.items()]
    if getattr(settings, "guidance", 0) and not loaded.model.reads_ahead:
        notes.append("guidance changes nothing: this model does not read the lines ahead")
    length = len(task.sentences) - hidden
    if length > HORIZON:
        usual = loaded.checkpoint.figures.get("sentences")
        training = "the stories this model was made of" + (f" (of {usual:g})" if usual else "")
        notes.append(f"{length} sentences are longer than {training}: it is likely to repeat itself")
    return tuple(notes)


def read_call(
    loaded: LoadedModel, call: Options, make_task: Callable[..., Task] = fill_task
) -> tuple[Task, Context, dict[str, Any]]:
    """The arguments of `fill` or `write`, by name, as a task, its context and the sampler's options."""
    options = dict(call)
    sentences, arc, starts = (options.pop(name, None) for name in ("sentences", "arc", "starts"))
    context = (options.pop(name, None) for name in ("people", "notes", "voice"))
    return make_task(sentences, loaded.states, arc, starts), read_context(*context), options


def answers(
    loaded: LoadedModel, call: Options, make_task: Callable[..., Task] = fill_task, *, at_once: bool
) -> Iterator[Filling]:
    """The answers to one call, each at least as good as the one before."""
    prepared = prepare_task(loaded, *read_call(loaded, call, make_task), at_once=at_once)
    if (heard := listener()) is not None:
        heard.begin(lambda i, ids: loaded.text.line(prepared.task, i, ids, prepared.names), prepared.hidden)
    return (filling for (filling,) in _rounds(loaded, [prepared]))


def answers_together(
    loaded: LoadedModel, calls: Sequence[Options], at_once: bool
) -> Iterator[list[Filling | UserError]]:
    """The answers to several calls of `fill` with equal settings; a wrong call has its error in their place."""
    tasks = [attempt(read_call, loaded, call) for call in calls]
    lines = [with_line(one[0], one[1].line) for one in tasks if not isinstance(one, UserError)]
    stand_ins = iter(loaded.text.stand_ins(lines))
    prepared = [
        one
        if isinstance(one, UserError)
        else attempt(prepare_task, loaded, *one, at_once=at_once, names=next(stand_ins))
        for one in tasks
    ]
    good = [one for one in prepared if isinstance(one, PreparedTask)]
    if len({(one.settings, one.people) for one in good}) > 1:
        raise ValueError("only calls with equal settings and people are filled in together")
    for fillings in _in_parts(loaded, good) if at_once or not good else _rounds(loaded, good):
        following = iter(fillings)
        yield [one if isinstance(one, UserError) else next(following) for one in prepared]


def _in_parts(loaded: LoadedModel, tasks: Sequence[PreparedTask]) -> Iterator[list[Filling]]:
    """The last answers to tasks with equal settings, drawn together as far as there is memory."""
    size = len(tasks) or 1
    if loaded.device == "cpu" and loaded.model.reads_ahead and tasks:
        size = max(1, ROWS // tasks[0].settings.rows)
    lasts = [list(_rounds(loaded, tasks[first : first + size]))[-1] for first in range(0, len(tasks), size)]
    yield [filling for last in lasts for filling in last]


def attempt(work: Callable[..., R], *args: Any, **kwargs: Any) -> R | UserError:
    """The result, or the user's error in its place."""
    try:
        return work(*args, **kwargs)
    except UserError as error:
        return error


def _rounds(loaded: LoadedModel, tasks: Sequence[PreparedTask]) -> Iterator[list[Filling]]:
    """Answers to tasks with equal settings, drawn together, round by round."""
    batch = tasks[0].batch if len(tasks) == 1 else InfillBatch.join([task.batch for task in tasks])
    generators, wanted = [seeded(task.seed) for task in tasks], [task.candidates for task in tasks]
    cast = loaded.cast.with_people({person.name: person.pronoun for person in tasks[0].people})
    for results in fill_stories(loaded.model, loaded.rules, batch, tasks[0].settings, generators, wanted, cast):
        yield _fillings(loaded, tasks, results)


def _fillings(loaded: LoadedModel, tasks: Sequence[PreparedTask], results: Sequence[Answer]) -> list[Filling]:
    """The answers as people read them; the tags of all stories are read at once."""
    pairs = [(task, story) for task, (stories, *_) in zip(tasks, results, strict=True) for story in stories]
    texts = [loaded.text.decode(task.task, story, task.names)[task.hidden :] for task, story in pairs]
    readings = loaded.read_tags(texts, [loaded.states.spoken(task.task.arc) for task, _ in pairs])
    candidates = (
        _candidate(loaded.states, *one) for one in zip(*zip(*pairs, strict=True), texts, readings, strict=True)
    )
    return [
        _filling(loaded, task, answer, tuple(islice(candidates, len(answer.stories))))
        for task, answer in zip(tasks, results, strict=True)
    ]


def _filling(loaded: LoadedModel, prepared: PreparedTask, answer: Answer, candidates: tuple[Candidate, ...]) -> Filling:
    few: tuple[str, ...] = ()
    stories, diagnostics, drawn = answer
    if drawn == prepared.settings.samples and len(stories) < prepared.candidates:
        what = f"only {len(stories)} of the {prepared.candidates} candidates"
        few = (f"{what}: no other story was among the samples ({drawn}); draw more of them",)
    return Filling(
        candidates=candidates,
        model=loaded.name,
        sampler=prepared.settings.sampler.name,
        samples=prepared.settings.samples,
        drawn=drawn,
        seed=prepared.seed,
        diagnostics=_movement(diagnostics, len(prepared.task.sentences), prepared.hidden),
        notes=prepared.notes + few,
        names=prepared.names,
    )


def _candidate(
    states: StateSpace, prepared: PreparedTask, story: SampledStory, texts: Sequence[str], readings: Sequence[Reading]
) -> Candidate:
    task, hidden = prepared.task, prepared.hidden
    columns = zip(
        texts, readings, task.missing[hidden:], task.arc[hidden:], story.log_p[hidden:].tolist(), strict=False
    )
    sentences = tuple(sentence_of(states, *column) for column in columns)
    return Candidate(sentences, story.score, _parts(task, story, hidden))


def sentence_of(
    states: StateSpace, text: str, reading: Reading, written: bool, values: Sequence[int], log_p: float
) -> Sentence:
    """A sentence with what was asked of it (`values` of the arc), and what the text has."""
    mood, (asked, others) = states.factors[0].name, states.named(values)
    has = {mood: reading.tag, **reading.factors}
    verdicts = {
        has[name] == label if has.get(name) else None for name, label in {mood: asked, **others}.items() if label
    }
    met = None if not verdicts else False if False in verdicts else None if None in verdicts else True
    sure = reading.shares.get(reading.tag or "")
    return Sentence(text, written, reading.tag, log_p, reading.factors, sure, asked, others, met)


def _parts(task: Task, story: SampledStory, hidden: int) -> Parts | None:
    """What a candidate's score is made of; `hidden` sentences at its beginning are not shown."""
    written = [i for i, missing in enumerate(task.missing) if missing]
    if not written:
        return None
    after = [i for i in range(written[0], len(task.missing)) if not task.missing[i]]
    easy = float(story.log_p[written].sum()) / max(1, int(story.lengths[written].sum()))
    ending = float(story.log_p[after].sum()) / max(1, int(story.lengths[after].sum())) if after else None
    if story.verdict is None:
        return Parts(None, ending, easy, None)
    harm = {i + 1 - hidden: float(story.verdict[i]) for i in written if i > 0 and story.verdict[i] < 0}
    weakest = min(harm, key=harm.__getitem__, default=None)
    return Parts(float(story.verdict[0]), ending, easy, weakest)


def _movement(diagnostics: Diagnostics | None, N: int, hidden: int) -> Movement:
    if diagnostics is None:
        return Movement((None,) * (N - hidden), None, None, None)

    def figure(value: float) -> float | None:
        return None if math.isnan(value) else value

    changed = tuple(figure(value) for value in diagnostics.changed[0, hidden:N].tolist())
    others = (diagnostics.ess, diagnostics.r_hat, diagnostics.tag_ess)
    return Movement(changed, *(figure(float(values[0])) for values in others))

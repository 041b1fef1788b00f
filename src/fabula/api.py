"""The public Python surface: load a narrator, then fill in, write, tag or score stories.

    import fabula
    filling = fabula.load("default").fill(["Mia's car would not start.", None, "Mia made it to work."], seed=7)
    print(filling.candidates[0].text)

Command line, HTTP and Python are three doors to these functions.
Over 400 lines: all that is public stands here, each method a few lines around the parts that do the work.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from fabula.corpus.states import UNKNOWN, Arc, Factor, StateSpace
from fabula.corpus.taggers.protocol import Tagger, faults, meanings_of, read_values, tagger_of
from fabula.corpus.tokenize import tokenise
from fabula.corpus.vocabulary import UNK
from fabula.device import pick_device, use_threads
from fabula.errors import UserError
from fabula.metrics.bound import Weighed, shared_draws, weigh
from fabula.metrics.fit import fits
from fabula.models import io
from fabula.models.batch import Batch
from fabula.models.decoders.base import INSTALL, find_base
from fabula.models.decoders.words import WordTokenizer
from fabula.models.io import Checkpoint
from fabula.models.protocol import Model
from fabula.models.scaffold import clamp
from fabula.models.steady import HORIZON, steady
from fabula.results import (
    Candidate,
    Criticism,
    Explanation,
    Filling,
    Movement,
    Parts,
    Posterior,
    Reasons,
    Score,
    Sentence,
    Tagging,
    Word,
)  # fmt: skip
from fabula.sampling.batch import InfillBatch, evidence, flatten
from fabula.sampling.cast import Cast
from fabula.sampling.context import Context, Mentions, Person, mentions, read_context, with_line
from fabula.sampling.driver import Answer, fill_stories
from fabula.sampling.latents import draw_latents
from fabula.sampling.many import fill_many
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.protocol import (
    DEFAULT,
    Sampler,
    able_samplers,
    sampler_named,
    samplers,
    settings_for,
    shown_settings,
)
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import Diagnostics, SampledStory
from fabula.sampling.settings import (
    CANDIDATES,
    WRITE_CANDIDATES,
    WRITE_SAMPLES,
    FillSettings,
    declared,
    offered,
    types_of,
    whole_number,
)  # fmt: skip
from fabula.sampling.task import Task, fill_task, partial_task, story_task, write_task
from fabula.sampling.text import TokenText, WordText

__all__ = [
    "Candidate", "Criticism", "Explanation", "Filling", "Movement", "Narrator", "Parts", "Posterior", "Reasons",
    "Score", "Sentence", "Tagging", "Word", "describe", "find", "installed", "load", "models_fault", "models_folder",
]  # fmt: skip

TASK_ARGUMENTS = frozenset(["sentences", "arc", "starts", "candidates", "sampler", "seed", "people", "notes"])
"""Arguments of `fill` that are not settings of a sampler."""
Method = TypeVar("Method", bound=Callable[..., Any])
MODELS_VARIABLE = "FABULA_MODELS"
PACKAGED = Path(__file__).parent / "data"
SMALL = "small"
"""The model that answers where the default one's base is not installed."""
EXPLAIN_WORDS, EXPLAIN_SAMPLES = 700, (8, 16)
"""`explain` draws Z so often that words of the story x draws are about `EXPLAIN_WORDS`, between `EXPLAIN_SAMPLES`."""
POSTERIOR_SAMPLES = 200
"""Draws of a posterior where nobody says otherwise."""
UNKNOWN_SHOWN = 10
"""Words that a note about unknown words names, at most."""


def load(name_or_path: str | Path = "default", device: str = "cpu", threads: int | None = None) -> Narrator:
    """A narrator from an installed model's name or a checkpoint's folder.

    `threads` are torch's in this process; None: what OMP_NUM_THREADS says, else one (`device.use_threads` says why).
    """
    use_threads(None if threads is None else whole_number("threads", threads))
    where = str(pick_device(device))
    folder = find(name_or_path)
    lacks_base = io.adapts_base(folder) and find_base(missing_ok=True) is None
    stand_in = find(SMALL) if lacks_base and SMALL in installed() else None
    narrator = Narrator(io.load(stand_in or folder, where), where)
    if stand_in is not None:
        narrator.notes = (f"the narrator's base is not installed, so the small model answers; to get it: {INSTALL}",)
    return narrator


def models_folder() -> Path:
    """Where models of the user's own live: FABULA_MODELS, else ~/.cache/fabula/models."""
    return Path(os.environ.get(MODELS_VARIABLE) or Path.home() / ".cache" / "fabula" / "models")


def models_fault() -> str | None:
    """What is wrong with FABULA_MODELS in one phrase; None where it is not set, or names a folder with models."""
    folder = models_folder()
    if not os.environ.get(MODELS_VARIABLE) or any(folder.glob("*/config.json")):
        return None
    what = "holds no model in a folder of its own" if folder.is_dir() else "is no folder"
    return f"{MODELS_VARIABLE} is set to {folder}, which {what}"


def installed() -> dict[str, Path]:
    """Every model that has a name, with its folder; `default` is the packaged one, else what `fabula demo` trains."""
    found: dict[str, Path] = {}
    for root in (PACKAGED, models_folder()):
        if root.is_dir():
            for config in sorted(root.glob("*/config.json")):
                found.setdefault(config.parent.name, config.parent)
    if "default" not in found and "demo" in found:
        found["default"] = found["demo"]
    return found


def find(name_or_path: str | Path) -> Path:
    """The folder of a model."""
    known = installed()
    if str(name_or_path) in known:
        return known[str(name_or_path)]
    path = Path(name_or_path)
    if path.is_dir():
        return path
    fault = models_fault()
    why = f"; {fault}" if fault else ""
    if str(name_or_path) == "default":
        told = "no model is installed: run `fabula demo` to train the toy model, or name a checkpoint's folder"
        raise UserError(told + why)
    have = f"; installed: {', '.join(known)}" if known else ""
    raise UserError(f"no model and no folder is called {str(name_or_path)!r}{have}{why}", field="model")


def describe(name: str, folder: Path) -> dict[str, Any]:
    """What `fabula models` says of one model, without loading its weights."""
    try:
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        model = io.describe(folder)
        base = "installed" if find_base(missing_ok=True) else f"not installed: {INSTALL}"
        return {
            "name": name,
            "folder": str(folder),
            "recipe": model.name,
            "kind": model.kind,
            **_states(model.factors),
            **({"base": base} if model.base else {"words": model.words}),
            "bytes": size,
            "figures": model.figures,
            "settings": _settings(model.kind, model.sampling),
        }
    except (UserError, OSError, KeyError, TypeError, ValueError) as error:
        return {"name": name, "folder": str(folder), "damaged": str(error)}


def _settings(kind: str, defaults: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What `Narrator.settings` says of a model of this kind, without loading it."""
    able = able_samplers(has_latent=kind not in ("lm", "s2s", "narrator"), reads_ahead=kind == "narrator")
    return {sampler.name: shown_settings(sampler, defaults) for sampler in able}


def _states(factors: Sequence[Factor]) -> dict[str, Any]:
    """The labels of the first factor, the mood; where there are several, all of them by name."""
    found = {"labels": list(factors[0].labels)}
    if len(factors) == 1:
        return found
    records = StateSpace(tuple(factors)).to_record()
    told = [meanings_of(factor) for factor in factors]
    return {**found, "factors": [{**r, **({"meanings": m} if m else {})} for r, m in zip(records, told, strict=True)]}


def with_settings(method: Method) -> Method:
    """Gives `**settings` their names, types and meanings in the signature and the docstring: those of the samplers."""
    signature = inspect.signature(method)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    lines = ["", "", "        Settings of the samplers; None is the sampler's own:"]
    known = {p.name for p in parameters}
    for sampler in samplers().values():
        own = offered(sampler.settings, "python")
        lines.append(f"        {sampler.name} ({sampler.about}): {', '.join(own)}.")
        for name in own:
            if name in known:
                continue
            known.add(name)
            hint = types_of(sampler.settings)[name] | None
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint))
    meanings = {
        name: declared(entry).help for s in samplers().values() for name, entry in offered(s.settings, "python").items()
    }
    lines += [f"        {name}: {meaning}." for name, meaning in meanings.items()]
    method.__doc__ = (method.__doc__ or "").rstrip() + "\n".join(lines) + "\n        "
    method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return method


class _Ready(NamedTuple):
    """A task that can be drawn at once: checked, with its tensors."""

    task: Task
    batch: InfillBatch
    names: Mapping[str, str]
    settings: FillSettings
    candidates: int
    seed: int
    notes: tuple[str, ...]
    people: tuple[Person, ...]
    unsaid: int
    """Lines before the story that no answer shows: the context's."""


class Narrator:
    """A loaded model with everything needed to use it on raw text."""

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu") -> None:
        self.checkpoint, self.device = checkpoint, device
        self.model = checkpoint.model.requires_grad_(False)
        self.vocabulary, self.states = checkpoint.vocabulary, checkpoint.states
        self.labels = self.states.factors[0].labels
        """Of the mood, the first factor of the state; `states` has all of them."""
        own = self.model.tokenizer
        self.rules = WordRules.of(own or WordTokenizer(self.vocabulary), device, checkpoint.people.names)
        self.cast = Cast(checkpoint.people, self.rules)
        self.text: TokenText | WordText = (
            WordText(self.model, self.vocabulary, self.states, self.rules, checkpoint.people)
            if own is None
            else TokenText(own, self.states, self.rules)
        )
        self.notes: tuple[str, ...] = ()
        """Said with every answer: that another model stands in for the one that was asked for."""

    @property
    def name(self) -> str:
        return self.checkpoint.name

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
        people: Sequence[Person | Mapping[str, Any]] | None = None,
        notes: Sequence[str] | None = None,
        **settings: Any,
    ) -> Filling:
        """The missing sentences (None or "_") written, best candidates first.

        `arc` has a tag for each sentence, `starts` the first words of missing sentences by their number from 1.
        `people` (name, pronoun, about) and `notes` say what no line does (`sampling/context.py`).

        >>> import fabula
        >>> narrator = fabula.load("small")
        >>> story = ["Tom was sad.", None, "Tom smiled."]
        >>> filling = narrator.fill(story, arc="- ? +", starts={2: "His friend"}, candidates=1, samples=2, seed=7)
        >>> [sentence.written for sentence in filling.candidates[0].sentences]
        [False, True, False]
        >>> filling.candidates[0].sentences[1].text.startswith("His friend")
        True
        >>> sorted(filling.rows()[0])
        ['candidate', 'log_p', 'score', 'sentence', 'tag', 'text', 'written']
        """
        task, context = fill_task(sentences, self.states, arc, starts), read_context(people, notes)
        return _last(self._answers(task, context, candidates, sampler, seed, settings, at_once=True))

    @with_settings
    def fill_iter(
        self,
        sentences: Sequence[str | None],
        *,
        arc: Arc = None,
        candidates: int = CANDIDATES,
        sampler: str = DEFAULT,
        seed: int = 0,
        starts: Mapping[int, str] | None = None,
        people: Sequence[Person | Mapping[str, Any]] | None = None,
        notes: Sequence[str] | None = None,
        at_once: bool = False,
        **settings: Any,
    ) -> Iterator[Filling]:
        """The same as it comes: each answer is at least as good as the one before; the last is what `fill` returns.

        With `at_once` nothing is done for the sake of an early answer, so that the last one comes sooner.
        """
        task = fill_task(sentences, self.states, arc, starts)
        return self._answers(task, read_context(people, notes), candidates, sampler, seed, settings, at_once)

    def fill_together(
        self, calls: Sequence[Mapping[str, Any]], at_once: bool = False
    ) -> Iterator[list[Filling | UserError]]:
        """`fill_iter` of several calls with the same settings at once; a call's answer is what it would be alone.

        Each call has the arguments of `fill` by name. One that is wrong has its error in place of its answers.
        """
        asked: list[tuple[Task, Context] | UserError] = []
        for call in calls:
            try:
                task = fill_task(call["sentences"], self.states, call.get("arc"), call.get("starts"))
                asked.append((task, read_context(call.get("people"), call.get("notes"))))
            except UserError as error:
                asked.append(error)
        right = [one for one in asked if not isinstance(one, UserError)]
        names = iter(self.text.stand_ins([with_line(task, context.line) for task, context in right]))
        ready: list[_Ready | UserError] = []
        for call, told in zip(calls, asked, strict=True):
            if isinstance(told, UserError):
                ready.append(told)
                continue
            known = next(names)
            try:
                said = {key: value for key, value in call.items() if key not in TASK_ARGUMENTS}
                sampler, seed = call.get("sampler", DEFAULT), call.get("seed", 0)
                candidates = call.get("candidates", CANDIDATES)
                ready.append(self._ready(*told, candidates, sampler, seed, said, known, at_once=at_once))
            except UserError as error:
                ready.append(error)
        tasks = [one for one in ready if isinstance(one, _Ready)]
        if len({(task.settings, task.people) for task in tasks}) > 1:
            raise ValueError("only calls with equal settings and people are filled in together")
        if not tasks:
            yield [one for one in ready if isinstance(one, UserError)]
            return
        for fillings in self._rounds(tasks):
            answers = iter(fillings)
            yield [one if isinstance(one, UserError) else next(answers) for one in ready]

    @with_settings
    def fill_many(
        self, rows: Iterable[Mapping[str, Any]], *, candidates: int = CANDIDATES, sampler: str = DEFAULT, seed: int = 0,
        **settings: Any,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Results for many rows, filled in together, in their order and as they come; any iterable of any length.

        A row has `id` and `sentences`, and may say more (`sampling/many.py`); a wrong one has `error` in its result.

        >>> rows = [{"id": "a", "sentences": ["Tom was sad.", None, "Tom smiled."]}, {"id": "b", "sentences": [None]}]
        >>> first, second = fabula.load("small").fill_many(rows, candidates=1, samples=2)
        >>> first["id"], len(first["candidates"][0]["sentences"]), second["error"]
        ('a', 3, 'a story has 2 to 64 sentences, not 1')
        """
        defaults = {"candidates": candidates, "sampler": sampler, **settings}
        return fill_many(self, rows, _seed(seed), defaults)

    @with_settings
    def write(
        self,
        sentences: int | None = None,
        *,
        arc: Arc = None,
        candidates: int = WRITE_CANDIDATES,
        samples: int | None = None,
        sampler: str = DEFAULT,
        seed: int = 0,
        starts: Mapping[int, str] | None = None,
        people: Sequence[Person | Mapping[str, Any]] | None = None,
        notes: Sequence[str] | None = None,
        **settings: Any,
    ) -> Filling:
        """A story from nothing but its length (None: the arc's, else 5) and its arc; 10 samples unless you say."""
        task = write_task(sentences, self.states, arc, starts)
        settings["samples"] = WRITE_SAMPLES if samples is None else samples
        return _last(
            self._answers(task, read_context(people, notes), candidates, sampler, seed, settings, at_once=True)
        )

    @torch.inference_mode()
    def tag(self, sentences: Sequence[str], *, factors: Sequence[str] = ()) -> Tagging:
        """The tag of every sentence: argmax q(S_i | X), or the corpus's own tagger for a model that has no q(S).

        A sentence alone is no story, and yet has a tag. Of a model of several factors the others are told beside it;
        those whose tagger has to load a parser (`verb`) only if `factors` names them.

        >>> fabula.load("small").tag(["Tom was sad and cried.", "Tom was happy."]).tags
        ('negative', 'positive')
        """
        task = story_task(sentences, self.states, fewest=1)
        asked = self.states.check(factors)
        if self.model.has_tags:
            batch = self.text.encode(task)
            q = self.states.marginals(self.model.log_q_S(flatten(batch.X, batch.lengths))[0].exp().tolist())
            named = [{name: max(shares, key=shares.__getitem__) for name, shares in row.items()} for row in q]
            notes: tuple[str, ...] = ()
        else:
            for why in faults(self._tagger, asked).values():
                raise UserError(why, field="factors")
            found = [self.states.named(values) for values in self._read_values(_whole(task), asked)]
            named = [{self._mood: tag or self.labels[0], **others} for tag, others in found]
            q = [{self._mood: {label: float(label == row[self._mood]) for label in self.labels}} for row in named]
            tagger = str(self.checkpoint.tagger.get("tagger", "vader")).split(",")[0]
            notes = (f"this model has no q(S | X): tags are by {tagger}",)
        tags, shares = tuple(row.pop(self._mood) for row in named), tuple(row[self._mood] for row in q)
        return Tagging(_whole(task), tags, shares, self.name, notes, tuple(named) if any(named) else ())

    @torch.inference_mode()
    def score(self, sentences: Sequence[str], *, samples: int = 100, seed: int = 0) -> Score:
        """log p of a story: exact without latents, else a lower bound by importance sampling with S summed out."""
        samples, seed = whole_number("samples", samples, at_least=1), _seed(seed)
        task = story_task(sentences, self.states)
        encoded = self.text.encode(task)
        batch = flatten(encoded.X, encoded.lengths)
        words = self.model.token_count(int(encoded.lengths.sum()), len(task.sentences))
        unknown = int((encoded.X == UNK).sum())
        if self.model.reads_tags:
            batch = batch.with_S(torch.tensor([self._tagger_states(task)], device=self.device))
        weighed = self._weigh(batch, samples, seed)
        each, log_p = batch.per_sentence(weighed.log_p_words)[0], float(weighed.log_p[0])
        kind = self.model.likelihood
        samples = samples if kind == "bound" else 0
        return Score(
            sentences=_whole(task), log_p=log_p, log_p_sentences=tuple(each.tolist()), kind=kind, words=words,
            unknown=unknown, perplexity=math.exp(-log_p / words), samples=samples, seed=seed, model=self.name,
        )  # fmt: skip

    @torch.inference_mode()
    def judge(self, sentences: Sequence[str]) -> Criticism:
        """How well a story holds together, and which of its lines does it most harm, by the model's critic."""
        task = story_task(sentences, self.states, fewest=1)
        if self.model.critic is None:
            raise UserError(f"{self.name} has no critic; the default model has one", field="model")
        told = _whole(task)
        verdict = self.model.critic.read(told)
        worst = min(range(len(told)), key=verdict.lines.__getitem__)
        weakest = worst + 1 if verdict.lines[worst] < 0 else None
        return Criticism(told, verdict.whole, verdict.lines, weakest, self.name)

    @torch.inference_mode()
    def explain(
        self, sentences: Sequence[str], *, arc: Arc = None, samples: int | None = None, seed: int = 0
    ) -> Explanation:
        """Why each sentence: the probability of its words, and how it fits before, after and the arc (`Reasons`)."""
        if self.model.decoder is None:
            raise UserError(
                "a model of whole stories given their tags (s2s) cannot account for a sentence", field="model"
            )
        task, seed = story_task(sentences, self.states, arc), _seed(seed)
        batch = self.text.encode(story_task(sentences, self.states))
        if samples is None:
            samples = max(EXPLAIN_SAMPLES[0], min(EXPLAIN_SAMPLES[1], EXPLAIN_WORDS // int(batch.lengths.sum())))
        samples = whole_number("samples", samples, at_least=1)
        weighed = self._weigh(flatten(batch.X, batch.lengths), samples, seed)
        figures = weighed.log_p_words[0].tolist()
        fit = fits(self.model, batch, samples, torch.Generator(self.device).manual_seed(seed))
        log_q_S = self.model.log_q_S(flatten(batch.X, batch.lengths))[0] if self.model.has_tags else None
        reasons = []
        open_states = self.states.allowed(task.arc)
        for i, (text, values) in enumerate(zip(_whole(task), task.arc, strict=True)):
            ids = batch.X[0, i, : int(batch.lengths[0, i])].tolist()
            own, figures = figures[: len(ids)], figures[len(ids) :]
            tag, others = self.states.named(values)
            free = tag is None and not others
            fits_arc = None if free or log_q_S is None else float(log_q_S[i, open_states[i]].logsumexp(0))
            reasons.append(
                Reasons(
                    text=text, words=self.text.words(text, ids, own), end=own[-1], log_p=math.fsum(own),
                    fits_before=fit.before[i] / len(ids), fits_after=fit.after[i], fits_arc=fits_arc, tag=tag,
                    factors=others,
                )
            )  # fmt: skip
        return Explanation(
            sentences=tuple(reasons), log_p=float(weighed.log_p[0]), kind=self.model.likelihood,
            samples=samples if self.model.has_latent else 0, seed=seed, model=self.name,
        )  # fmt: skip

    def mentions(self, sentences: Sequence[str]) -> Mentions:
        """The people and places that these lines name, and which pronoun goes with whom."""
        return mentions(sentences, self.checkpoint.people)

    def _weigh(self, batch: Batch, samples: int, seed: int) -> Weighed:
        draws = shared_draws(self.model, batch, samples, torch.Generator(self.device).manual_seed(seed))
        return weigh(self.model, batch, draws, self.checkpoint.posterior)

    @torch.inference_mode()
    def posterior(
        self, sentences: Sequence[str | None], *, arc: Arc = None, samples: int | None = None, seed: int = 0
    ) -> Posterior:
        """S and Z given the sentences that are there, as `smc` draws them; a missing sentence is None or "_".

        Where all are missing this is the model's own law, given the arc.
        """
        model = self.model.latent
        task, seed = partial_task(sentences, self.states, arc), _seed(seed)
        samples = None if samples is None else whole_number("samples", samples, at_least=2)
        if model is None and self.model.reads_ahead:
            return self._tag_posterior(task, seed)
        if model is None:
            raise UserError("a model without latents has no posterior over them", field="model")
        batch = self.text.encode(task)
        allowed = batch.allowed_of(model.K)
        samples = POSTERIOR_SAMPLES if samples is None else samples
        noise = Noise([seeded(seed)], batch.sentences, samples, batch.device)
        phi = evidence(model, batch.X, batch.lengths).phi
        drawn = draw_latents(model.scaffold, model.dynamics, allowed, phi, batch.present, noise)
        shares = model.one_hot(drawn.S).mean(0).tolist()
        several = self.states.K == model.K > 1
        tags, factors = self._shares(shares) if several else (tuple({"any": row[0]} for row in shares), ())
        return Posterior(
            tags=tags,
            Z_mean=tuple(tuple(row) for row in drawn.Z.mean(0).tolist()),
            Z_deviation=tuple(tuple(row) for row in drawn.Z.std(0).tolist()),
            samples=samples,
            seed=seed,
            model=self.name,
            factors=factors,
        )

    def _shares(
        self, shares: Sequence[Sequence[float]]
    ) -> tuple[tuple[dict[str, float], ...], tuple[dict[str, dict[str, float]], ...]]:
        """[sent, K] as the share of each mood, and those of the other factors by name."""
        found = self.states.marginals(shares)
        tags = tuple(row.pop(self._mood) for row in found)
        return tags, tuple(found) if any(found) else ()

    def _tag_posterior(self, task: Task, seed: int) -> Posterior:
        """p(S | the arc, the tags read off the given sentences), exact; there is no Z."""
        scaffold = self.model.p_S
        assert scaffold is not None
        texts = [sentence or "" for sentence in task.sentences]
        read = self._read_values(texts, self.states.spoken(task.arc))
        # What the arc leaves open of a given sentence is read off it, factor by factor.
        seen = np.where(np.asarray(task.missing)[:, None], UNKNOWN, read)
        values = np.where(np.asarray(task.arc) < 0, seen, np.asarray(task.arc))
        allowed = torch.from_numpy(self.states.allowed(values))[None].to(self.device)
        log_evidence = clamp(torch.zeros(allowed.shape, device=self.device), allowed)
        everywhere = torch.ones(allowed.shape[:2], dtype=torch.bool, device=self.device)
        shares = scaffold.posterior(log_evidence, everywhere)[0].tolist()
        empty: tuple[tuple[float, ...], ...] = ((),) * len(values)
        tags, factors = self._shares(shares)
        return Posterior(
            tags=tags, Z_mean=empty, Z_deviation=empty, samples=1, seed=seed, model=self.name, factors=factors
        )

    def _tagger_states(self, task: Task) -> list[int]:
        return self._read_tags([text or "" for text in task.sentences])

    def _read_tags(self, texts: Sequence[str]) -> list[int]:
        """The states of sentences by the tagger that the checkpoint names."""
        return [s or 0 for s in self._tagger.tag(list(texts))]

    @property
    def _mood(self) -> str:
        """The name of the first factor."""
        return self.states.factors[0].name

    @property
    def _tagger(self) -> Tagger:
        tagger = tagger_of(self.checkpoint.tagger, self.checkpoint.labels)
        if tagger is None:
            raise UserError("this model cannot tag, and no tagger knows its labels", field="model")
        return tagger

    def _read_values(self, texts: Sequence[str], asked: Sequence[str]) -> list[list[int]]:
        """The values of each factor that the tagger reads off sentences; of a slow one where it is asked for."""
        return read_values(self._tagger, texts, asked)

    def _ready(
        self, task: Task, context: Context, candidates: int, name: str, seed: int, settings: Mapping[str, Any],
        names: Mapping[str, str] | None = None, *, at_once: bool = False,
    ) -> _Ready:  # fmt: skip
        """A task with its sampler and tensors: what is wrong with either is said here, before anything is drawn.

        `names` are its `stand_ins`, where they are known.
        """
        sampler, notes = self._sampler(name)
        notes = self.notes + notes
        chosen = replace(settings_for(sampler, self.model.sampling_defaults, settings), at_once=at_once)
        candidates, seed = whole_number("candidates", candidates, at_least=1), _seed(seed)
        if task.starts:
            (of_openings,) = self.text.stand_ins([task])
            self.text.check_openings(task, self.text.encode(task, of_openings), chosen.max_words)
        task = with_line(task, context.line)
        names = self.text.stand_ins([task])[0] if names is None else names
        batch = self.text.encode(task, names)
        unknown = self.text.unknown_words(task, names)
        if unknown:
            what = "word is new to this model and was" if len(unknown) == 1 else "words are new to this model and were"
            listed = ", ".join(unknown[:UNKNOWN_SHOWN]) + (", ..." if len(unknown) > UNKNOWN_SHOWN else "")
            notes += (f"{len(unknown)} {what} read as unknown: {listed}",)
        if self.model.tagger is not None:
            unchecked = faults(self.model.tagger, self.states.spoken(task.arc))
            notes += tuple(f"the arc of {name} is not checked: {why}" for name, why in unchecked.items())
        unsaid = int(context.line is not None)
        length = len(task.sentences) - unsaid
        if length > HORIZON and self.model.has_latent:
            notes += (f"{length} sentences are {self._made_of()}: it is likely to wander",)
        return _Ready(task, batch, names, chosen, candidates, seed, notes, context.people, unsaid)

    def _made_of(self) -> str:
        known = self.checkpoint.figures.get("sentences")
        return "longer than the stories this model was made of" + (f" (of {known:g})" if known else "")

    @cached_property
    def _steady(self) -> Model:
        """The model for long stories (`models/steady.py`)."""
        return steady(self.model)

    def _answers(
        self, task: Task, context: Context, candidates: int, name: str, seed: int, settings: Mapping[str, Any],
        at_once: bool = False,
    ) -> Iterator[Filling]:  # fmt: skip
        ready = self._ready(task, context, candidates, name, seed, settings, at_once=at_once)
        return (filling for (filling,) in self._rounds([ready]))

    def _rounds(self, tasks: Sequence[_Ready]) -> Iterator[list[Filling]]:
        """Answers to tasks with equal settings, drawn together, round by round; long stories apart from short ones."""
        long = [len(task.task.sentences) > HORIZON and self.model.has_latent for task in tasks]
        if len(set(long)) > 1:
            places = [[i for i, one in enumerate(long) if one == kind] for kind in (False, True)]
            told: dict[int, Filling] = {}
            for found in zip_longest(*(self._rounds([tasks[i] for i in group]) for group in places)):
                for group, fillings in zip(places, found, strict=True):
                    told |= dict(zip(group, fillings or (), strict=False))
                yield [told[i] for i in range(len(tasks))]
            return
        batch = tasks[0].batch if len(tasks) == 1 else InfillBatch.join([task.batch for task in tasks])
        generators, wanted = [seeded(task.seed) for task in tasks], [task.candidates for task in tasks]
        model = self._steady if long[0] else self.model
        cast = self.cast.with_people({person.name: person.pronoun for person in tasks[0].people})
        for answers in fill_stories(model, self.rules, batch, tasks[0].settings, generators, wanted, cast):
            yield [self._filling(task, answer) for task, answer in zip(tasks, answers, strict=True)]

    def _filling(self, asked: _Ready, answer: Answer) -> Filling:
        few: tuple[str, ...] = ()
        stories, diagnostics, drawn = answer
        if drawn == asked.settings.samples and len(stories) < asked.candidates:
            what = f"only {len(stories)} of the {asked.candidates} candidates"
            few = (f"{what}: no other story was among the samples ({drawn}); draw more of them",)
        return Filling(
            candidates=tuple(self._candidate(asked.task, asked.names, story, asked.unsaid) for story in stories),
            model=self.name, sampler=asked.settings.sampler.name, samples=asked.settings.samples, drawn=drawn,
            seed=asked.seed,
            diagnostics=_movement(diagnostics, len(asked.task.sentences), asked.unsaid),
            notes=asked.notes + few, names=asked.names,
        )  # fmt: skip

    def count_tokens(self, text: str) -> int:
        """How many tokens of the model's own a text has."""
        own = self.model.tokenizer
        return len(tokenise(text) if own is None else own.encode(text))

    def usual_samples(self, sampler: str = DEFAULT) -> int:
        """How many samples `fill` draws where nobody says otherwise."""
        return settings_for(self._sampler(sampler)[0], self.model.sampling_defaults, {}).samples

    def settings(self) -> dict[str, dict[str, Any]]:
        """The settings that apply where nobody says otherwise, for every sampler that this model can run.

        >>> fabula.load("small").settings()["smc"]["samples"]
        50
        """
        able = able_samplers(self.model.has_latent, self.model.reads_ahead)
        return {sampler.name: shown_settings(sampler, self.model.sampling_defaults) for sampler in able}

    def _sampler(self, name: str) -> tuple[Sampler, tuple[str, ...]]:
        """The sampler of this name; where it needs latents that the model lacks, another one and a note."""
        sampler, latent = sampler_named(name), self.model.has_latent
        able = able_samplers(latent, self.model.reads_ahead)
        if sampler in able:
            return sampler, ()
        others = " or ".join(other.name for other in able)
        if latent:
            raise UserError(f"{name} is for models without latents; use {others}", field="sampler")
        if self.model.reads_ahead:
            raise UserError(f"{name} is for models with latents; use {others}", field="sampler")
        what = f"a model without latents ({self.checkpoint.kind}) cannot run {name}"
        return able[0], (f"{what}: reranked left-to-right samples instead",)

    def _candidate(self, task: Task, names: Mapping[str, str], story: SampledStory, unsaid: int = 0) -> Candidate:
        sentences, texts = [], self.text.decode(task, story, names)
        # Where S was summed out the tags are read off the text.
        free = self.model.reads_ahead and bool((story.S[: len(texts)] < 0).any())
        values = self.states.values(story.S[: len(texts)].tolist())
        if free:
            values = np.where(values < 0, self._read_values(texts, self.states.spoken(task.arc)), values)
        for i, text in enumerate(texts):
            tag, others = self.states.named(values[i].tolist()) if self.states.K > 1 else (None, {})
            sentences.append(Sentence(text, task.missing[i], tag, float(story.log_p[i]), others))
        return Candidate(tuple(sentences[unsaid:]), story.score, _parts(task, story, unsaid))


def _parts(task: Task, story: SampledStory, unsaid: int) -> Parts | None:
    """What a candidate's score is made of; `unsaid` sentences at its beginning are not shown."""
    written = [i for i, missing in enumerate(task.missing) if missing]
    if not written:
        return None
    after = [i for i in range(written[0], len(task.missing)) if not task.missing[i]]
    easy = float(story.log_p[written].sum()) / max(1, int(story.lengths[written].sum()))
    ending = float(story.log_p[after].sum()) / max(1, int(story.lengths[after].sum())) if after else None
    if story.verdict is None:
        return Parts(None, ending, easy, None)
    harm = {i: float(story.verdict[i]) for i in written if i > 0}
    worst = min(harm, key=harm.__getitem__, default=None)
    weakest = worst + 1 - unsaid if worst is not None and harm[worst] < 0 else None
    return Parts(float(story.verdict[0]), ending, easy, weakest)


def _last(answers: Iterator[Filling]) -> Filling:
    *_, last = answers
    return last


def _whole(task: Task) -> tuple[str, ...]:
    """The sentences of a task that has them all."""
    return tuple(sentence for sentence in task.sentences if sentence is not None)


def _seed(seed: int) -> int:
    number = whole_number("seed", seed)
    if not -(2**63) <= number < 2**63:
        raise UserError(f"seed must be a number of 64 bits, not {number}"[:100], field="seed")
    return number


def _movement(diagnostics: Diagnostics | None, N: int, unsaid: int) -> Movement:
    if diagnostics is None:
        return Movement((None,) * (N - unsaid), None, None, None, None)

    def figure(value: float) -> float | None:
        return None if math.isnan(value) else value

    return Movement(
        tuple(figure(v) for v in diagnostics.changed[0, unsaid:N].tolist()),
        *(
            figure(float(values[0]))
            for values in (diagnostics.acceptance, diagnostics.ess, diagnostics.r_hat, diagnostics.tag_ess)
        ),
    )

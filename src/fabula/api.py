"""The public Python surface: load a narrator, then fill in, write, tag or score stories.

    import fabula
    filling = fabula.load("default").fill(["Mia's car would not start.", None, "Mia made it to work."], seed=7)
    print(filling.candidates[0].text)

Command line, HTTP and Python are three doors to these functions.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fabula.corpus.tokenize import detokenise, normalise, tokenise
from fabula.corpus.vocabulary import EOS, UNK
from fabula.errors import UserError
from fabula.evaluation.bound import Weighed, shared_draws, weigh
from fabula.evaluation.fit import fits
from fabula.infill import decode, names
from fabula.infill.batch import InfillBatch, evidence, flatten, infill_batch
from fabula.infill.bridge import MAX_PATHS, draw_latents
from fabula.infill.cast import Cast
from fabula.infill.decode import Lexicon
from fabula.infill.noise import Noise, seeded
from fabula.infill.sampler import INTERACTIVE_DEFAULTS, SAMPLERS, FillSettings, Found, draw, take
from fabula.infill.samples import Diagnostics, Round, best
from fabula.infill.tags import infer_tags
from fabula.infill.task import BLANK, Task, fill_task, partial_task, story_task, write_task
from fabula.models.batch import Batch
from fabula.models.scaffold import UNKNOWN
from fabula.results import Candidate, Explanation, Filling, Movement, Posterior, Reasons, Score, Sentence, Tagging, Word
from fabula.training import checkpoint as checkpoints
from fabula.training.checkpoint import Checkpoint

__all__ = [
    "Candidate", "Explanation", "Filling", "Movement", "Narrator", "Posterior", "Reasons", "Score", "Sentence",
    "Tagging", "Word", "describe", "find", "installed", "load", "models_fault", "models_folder",
]  # fmt: skip

Arc = str | Sequence[str | None] | None
MODELS_VARIABLE = "FABULA_MODELS"
PACKAGED = Path(__file__).parent / "data"
EXPLAIN_WORDS, EXPLAIN_SAMPLES = 700, (8, 16)
"""Words x draws that `explain` reads along a story, and between how many draws of Z it chooses for that: a long story
gets fewer."""
POSTERIOR_SAMPLES = (200, 50)
"""Draws of a posterior: where the free tags are few enough to enumerate, and where blocks alternate for each draw."""
UNKNOWN_SHOWN = 10
"""Words that a note about unknown words names, at most."""


def load(name_or_path: str | Path = "default", device: str = "cpu") -> Narrator:
    """A narrator from an installed model's name or a checkpoint's folder."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise UserError(f"unknown device {device!r}: cpu or cuda", field="device")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("no CUDA device was found; leave --device at cpu", field="device")
    folder = find(name_or_path)
    return Narrator(checkpoints.load(folder, device), device)


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
        config = checkpoints.read_config(folder)
        words = len(json.loads((folder / "vocabulary.json").read_text(encoding="utf-8")))
        recipe = config["recipe"]
        return {
            "name": name,
            "folder": str(folder),
            "recipe": recipe["name"],
            "kind": recipe["model"]["kind"],
            "labels": list(config["labels"]),
            "words": words,
            "bytes": sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
            "figures": config.get("figures", {}),
        }
    except (UserError, OSError, KeyError, TypeError, ValueError) as error:
        return {"name": name, "folder": str(folder), "damaged": str(error)}


class Narrator:
    """A loaded model with everything needed to use it on raw text."""

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu") -> None:
        self.checkpoint, self.device = checkpoint, device
        self.model = checkpoint.model.requires_grad_(False)
        self.vocabulary, self.labels = checkpoint.vocabulary, checkpoint.labels
        self.cast = Cast(checkpoint.people, self.vocabulary, device)
        self.lexicon = Lexicon.of(self.vocabulary, device, self.cast.names)

    @property
    def name(self) -> str:
        return self.checkpoint.recipe.name

    def fill(
        self,
        sentences: Sequence[str | None],
        *,
        arc: Arc = None,
        candidates: int = 3,
        samples: int | None = None,
        sampler: str = "bridge",
        seed: int = 0,
        starts: Mapping[int, str] | None = None,
        **settings: Any,
    ) -> Filling:
        """The missing sentences (None or "_") written, best candidates first."""
        task = fill_task(sentences, self.labels, arc, starts)
        return self._last(self._answers(task, candidates, samples, sampler, seed, settings))

    def fill_iter(
        self,
        sentences: Sequence[str | None],
        *,
        arc: Arc = None,
        candidates: int = 3,
        samples: int | None = None,
        sampler: str = "bridge",
        seed: int = 0,
        starts: Mapping[int, str] | None = None,
        **settings: Any,
    ) -> Iterator[Filling]:
        """The same as it comes: each answer is at least as good as the one before; the last is what `fill` returns."""
        task = fill_task(sentences, self.labels, arc, starts)
        return self._answers(task, candidates, samples, sampler, seed, settings)

    def write(
        self,
        sentences: int = 5,
        *,
        arc: Arc = None,
        candidates: int = 1,
        samples: int | None = None,
        sampler: str = "bridge",
        seed: int = 0,
        starts: Mapping[int, str] | None = None,
        **settings: Any,
    ) -> Filling:
        """A story from nothing but its length and its arc."""
        task = write_task(sentences, self.labels, arc, starts)
        return self._last(self._answers(task, candidates, 10 if samples is None else samples, sampler, seed, settings))

    @torch.inference_mode()
    def tag(self, sentences: Sequence[str]) -> Tagging:
        """The tag of every sentence: argmax q(S_i | X), or the corpus's own tagger for a model that has no q(S).

        A sentence alone is no story, and yet has a tag.
        """
        task = story_task(sentences, self.labels, fewest=1)
        if self.model.has_tags:
            told = self.encode([task])
            q = self.model.log_q_S(flatten(told.X, told.lengths))[0].exp().tolist()
            notes: tuple[str, ...] = ()
        else:
            q = [[float(k == s) for k in range(len(self.labels))] for s in self._tagger_states(task)]
            notes = ("this model has no q(S | X): tags are VADER's",)
        tags = tuple(self.labels[max(range(len(row)), key=row.__getitem__)] for row in q)
        shares = tuple(dict(zip(self.labels, row, strict=True)) for row in q)
        return Tagging(tuple(sentences), tags, shares, self.name, notes)

    @torch.inference_mode()
    def score(self, sentences: Sequence[str], *, samples: int = 100, seed: int = 0) -> Score:
        """log p of a story: exact without latents, else a lower bound by importance sampling with S summed out."""
        if samples < 1:
            raise UserError(f"samples must be at least 1, not {samples}", field="samples")
        told = self.encode([story_task(sentences, self.labels)])
        batch = flatten(told.X, told.lengths)
        words, unknown = self.model.token_count(int(told.lengths.sum()), len(sentences)), int((told.X == UNK).sum())
        if self.model.reads_tags:
            states = self._tagger_states(story_task(sentences, self.labels))
            batch = batch.with_S(torch.tensor([states], device=self.device))
        weighed = self._weigh(batch, samples, seed)
        each, log_p = batch.per_sentence(weighed.log_p_words)[0], float(weighed.log_p[0])
        kind = self.model.likelihood
        samples = samples if kind == "bound" else 0
        return Score(
            sentences=tuple(sentences), log_p=log_p, log_p_sentences=tuple(each.tolist()), kind=kind, words=words,
            unknown=unknown, perplexity=math.exp(-log_p / words), samples=samples, seed=seed, model=self.name,
        )  # fmt: skip

    @torch.inference_mode()
    def explain(
        self, sentences: Sequence[str], *, arc: Arc = None, samples: int | None = None, seed: int = 0
    ) -> Explanation:
        """Why each sentence: the probability of its words, and how it fits before, after and the arc (`Reasons`)."""
        if self.model.decoder is None:
            raise UserError(
                "a model of whole stories given their tags (s2s) cannot account for a sentence", field="model"
            )
        if samples is not None and samples < 1:
            raise UserError(f"samples must be at least 1, not {samples}", field="samples")
        task = story_task(sentences, self.labels)
        asked = partial_task(sentences, self.labels, arc).arc
        told = self.encode([task])
        if samples is None:
            samples = max(EXPLAIN_SAMPLES[0], min(EXPLAIN_SAMPLES[1], EXPLAIN_WORDS // int(told.lengths.sum())))
        weighed = self._weigh(flatten(told.X, told.lengths), samples, seed)
        figures = weighed.log_p_words[0].tolist()
        fit = fits(self.model, told, samples, torch.Generator(self.device).manual_seed(seed))
        log_q_S = self.model.log_q_S(flatten(told.X, told.lengths))[0] if self.model.has_tags else None
        reasons = []
        for i, text in enumerate(sentences):
            ids = told.X[0, i, : int(told.lengths[0, i])].tolist()
            own, figures = figures[: len(ids)], figures[len(ids) :]
            tag = asked[i]
            fits_arc = None if tag is None or log_q_S is None else float(log_q_S[i, self.labels.index(tag)])
            reasons.append(
                Reasons(
                    text=text, words=_words(text, ids, own), end=own[-1], log_p=math.fsum(own),
                    fits_before=fit.before[i] / len(ids), fits_after=fit.after[i], fits_arc=fits_arc, tag=tag,
                )
            )  # fmt: skip
        return Explanation(
            sentences=tuple(reasons), log_p=float(weighed.log_p[0]), kind=self.model.likelihood,
            samples=samples if self.model.has_latent else 0, seed=seed, model=self.name,
        )  # fmt: skip

    def _weigh(self, batch: Batch, samples: int, seed: int) -> Weighed:
        draws = shared_draws(self.model, batch, samples, torch.Generator(self.device).manual_seed(seed))
        return weigh(self.model, batch, draws, self.checkpoint.recipe.objective.law)

    @torch.inference_mode()
    def posterior(
        self, sentences: Sequence[str | None], *, arc: Arc = None, samples: int | None = None, seed: int = 0
    ) -> Posterior:
        """S and Z given the sentences that are there, as `bridge` draws them; a missing sentence is None or "_".

        Where all are missing this is the model's own law, given the arc.
        """
        model = self.model.latent
        if model is None:
            raise UserError("a model without latents has no posterior over them", field="model")
        if samples is not None and samples < 2:
            raise UserError(f"samples must be at least 2, not {samples}", field="samples")
        given = any(s is not None and s.strip() != BLANK for s in sentences)
        task = partial_task(sentences, self.labels, arc) if given else write_task(len(sentences), self.labels, arc)
        told = self.encode([task])
        if samples is None:
            enumerated = model.K ** sum(tag is None for tag in task.arc) <= MAX_PATHS
            samples = POSTERIOR_SAMPLES[0 if enumerated else 1]
        noise = Noise([seeded(seed)], told.sentences, samples, told.device)
        phi = evidence(model, told.X, told.lengths).phi
        settled = infer_tags(model, told, "free")
        drawn = draw_latents(model.scaffold, model.dynamics, settled.S, phi, told.present, noise)
        shares = model.one_hot(drawn.S).mean(0).tolist()
        labels = self.labels if model.K > 1 else ("any",)
        return Posterior(
            tags=tuple(dict(zip(labels, row, strict=True)) for row in shares),
            Z_mean=tuple(tuple(row) for row in drawn.Z.mean(0).tolist()),
            Z_deviation=tuple(tuple(row) for row in drawn.Z.std(0).tolist()),
            samples=samples,
            seed=seed,
            model=self.name,
        )

    def _tagger_states(self, task: Task) -> list[int]:
        from fabula.corpus.sentiment import VaderTagger

        tagger = VaderTagger()
        if tagger.labels != self.labels:
            raise UserError("this model cannot tag, and its labels are not VADER's", field="model")
        return [s or 0 for s in tagger.tag([text or "" for text in task.sentences])]

    def encode(self, tasks: Sequence[Task], names_of: Sequence[Mapping[str, str]] | None = None) -> InfillBatch:
        """Tasks as the model reads them."""
        rows, tags, openings = [], [], []
        for number, task in enumerate(tasks):
            swap = names_of[number] if names_of else {}

            def ids(text: str, swap: Mapping[str, str] = swap) -> list[int]:
                return self.vocabulary.encode(swap.get(word, word) for word in tokenise(text))

            rows.append([None if s is None else ids(s) for s in task.sentences])
            tags.append([UNKNOWN if t is None else self.labels.index(t) for t in task.arc])
            openings.append({number - 1: ids(words) for number, words in task.starts.items()})
        return infill_batch(rows, tags, openings, self.device)

    def _answers(
        self, task: Task, candidates: int, samples: int | None, sampler: str, seed: int, settings: Mapping[str, Any]
    ) -> Iterator[Filling]:
        chosen, notes = self._settings(sampler, samples, settings)
        if candidates < 1:
            raise UserError(f"candidates must be at least 1, not {candidates}", field="candidates")
        with torch.inference_mode():
            swap = self._stand_ins(task)
        blanks = self.encode([task], [swap])
        notes += self._unknown_words(task, swap)
        self._check_openings(task, blanks, chosen)
        drawing = draw(self.model, self.lexicon, blanks, chosen, [seeded(seed)], cast=self.cast)
        rounds: list[Round] = []
        while True:
            # The mode is entered anew for each round: between answers the caller's own mode holds.
            with torch.inference_mode():
                r, movement = next(drawing, (None, None))
            if r is None:
                return
            rounds.append(r)
            found = [take(*place) for place in best(rounds, 0, 1, candidates)]
            drawn = min(chosen.samples, sum(len(r.score) for r in rounds))
            few: tuple[str, ...] = ()
            if drawn == chosen.samples and len(found) < candidates:
                what = f"only {len(found)} of the {candidates} candidates"
                few = (f"{what}: no other story was among the samples ({drawn}); draw more of them",)
            yield Filling(
                candidates=tuple(self._candidate(task, swap, one) for one in found),
                model=self.name,
                sampler=chosen.sampler if self.model.has_latent else "rerank",
                samples=chosen.samples,
                drawn=drawn,
                seed=seed,
                diagnostics=_movement(movement, len(task.sentences)),
                notes=notes + few,
                names=swap,
            )

    def _settings(
        self, sampler: str, samples: int | None, settings: Mapping[str, Any]
    ) -> tuple[FillSettings, tuple[str, ...]]:
        if sampler not in SAMPLERS:
            raise UserError(f"unknown sampler {sampler!r}; there are {', '.join(SAMPLERS)}", field="sampler")
        notes: list[str] = []
        latent = self.model.has_latent
        if not latent and sampler != "rerank":
            kind = self.checkpoint.recipe.model.kind
            notes.append(
                f"a model without latents ({kind}) cannot run {sampler}: reranked left-to-right samples instead"
            )
            sampler = "rerank"
        if latent and sampler == "rerank":
            raise UserError("rerank is for models without latents; use bridge or gibbs", field="sampler")
        if samples is not None and samples < 1:
            raise UserError(f"samples must be at least 1, not {samples}", field="samples")
        try:
            chosen = {"sampler": sampler, **INTERACTIVE_DEFAULTS[sampler], **settings}
            full = FillSettings(samples=samples or (50 if latent else 1000), **chosen)
        except (TypeError, ValueError) as error:
            raise UserError(str(error)) from error
        return full, tuple(notes)

    def _stand_ins(self, task: Task) -> dict[str, str]:
        """Known names for the unknown ones of the given sentences and openings."""
        given = [tokenise(s) for s in (*task.sentences, *task.starts.values()) if s is not None]
        unknown = names.unknown_names(given, self.vocabulary)
        if not unknown:
            return {}
        known = names.known_names(self.model, self.vocabulary)
        return names.stand_ins(given, unknown, known, self._fit)

    def _unknown_words(self, task: Task, swap: Mapping[str, str]) -> tuple[str, ...]:
        """A note about the words of the given sentences that the model can only read as <unk>, if there are any."""
        found: dict[str, None] = {}
        for sentence in task.sentences:
            for word in tokenise(sentence or ""):
                spoken = any(letter.isalnum() for letter in word)
                if spoken and self.vocabulary.encode([swap.get(word, word)]) == [UNK]:
                    found[word] = None
        if not found:
            return ()
        told = ", ".join([*found][:UNKNOWN_SHOWN]) + (", ..." if len(found) > UNKNOWN_SHOWN else "")
        what = "word is new to this model and was" if len(found) == 1 else "words are new to this model and were"
        return (f"{len(found)} {what} read as unknown: {told}",)

    def _fit(self, versions: list[list[list[str]]]) -> list[float]:
        """log p of the sentences of each version, in a row, Z at the mean of its evidence."""
        if self.model.decoder is None:
            return [0.0] * len(versions)
        told = infill_batch(
            [[self.vocabulary.encode(words) for words in sentences] for sentences in versions], device=self.device
        )
        latent = self.model.latent
        Z = None if latent is None else evidence(latent, told.X, told.lengths).phi.mean
        read = decode.story(self.model.decoder, self.lexicon, decode.GREEDY, told, Z)
        return [float(figure) for figure in read.log_p.sum(1)]

    def _check_openings(self, task: Task, blanks: InfillBatch, settings: FillSettings) -> None:
        for number, words in task.starts.items():
            ids = blanks.opening[0, number - 1]
            unknown = [w for w, i in zip(tokenise(words), ids.tolist(), strict=False) if i == 1]
            if unknown:
                raise UserError(
                    f"the opening of sentence {number} has a word the model does not know: {unknown[0]!r}",
                    field="starts",
                )
            if int((ids != 0).sum()) > settings.max_words - 3:
                raise UserError(f"the opening of sentence {number} leaves no room to end it", field="starts")

    def _candidate(self, task: Task, swap: Mapping[str, str], found: Found) -> Candidate:
        back = {stand_in: name for name, stand_in in swap.items()}
        sentences = []
        for i, typed in enumerate(task.sentences):
            if typed is None:
                ids = found.X[i, : int(found.lengths[i])].tolist()
                words = [back.get(word, word) for word in self.vocabulary.decode(w for w in ids if w != EOS)]
                text = detokenise(words)
                if i + 1 not in task.starts:  # opening words stay as they were typed
                    text = text[:1].upper() + text[1:]
            else:
                text = typed
            s = int(found.S[i])
            tag = self.labels[s] if s >= 0 and len(self.labels) > 1 else None
            sentences.append(Sentence(text, typed is None, tag, float(found.log_p[i])))
        return Candidate(tuple(sentences), found.score)

    def _last(self, answers: Iterator[Filling]) -> Filling:
        *_, last = answers
        return last


def _words(text: str, ids: Sequence[int], figures: Sequence[float]) -> tuple[Word, ...]:
    """The words as they were typed, each with the blank behind it; the last id and figure are the <eos>'s."""
    rest, found = normalise(text), []
    for word, number, log_p in zip(tokenise(text), ids[:-1], figures[:-1], strict=True):
        assert rest.startswith(word), "the tokeniser keeps every character"
        rest = rest[len(word) :]
        space = " " if rest.startswith(" ") else ""
        rest = rest[len(space) :]
        found.append(Word(word, space, log_p, number == UNK))
    return tuple(found)


def _movement(diagnostics: Diagnostics | None, N: int) -> Movement:
    if diagnostics is None:
        return Movement((None,) * N, None, None, None, None)

    def figure(value: float) -> float | None:
        return None if math.isnan(value) else value

    return Movement(
        tuple(figure(v) for v in diagnostics.changed[0, :N].tolist()),
        *(
            figure(float(values[0]))
            for values in (diagnostics.acceptance, diagnostics.ess, diagnostics.r_hat, diagnostics.tag_r_hat)
        ),
    )

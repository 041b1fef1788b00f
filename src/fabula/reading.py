"""What a model says of sentences that are there: tags, log-probability, the critic's verdict, reasons, p(S, Z | X)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from fabula.corpus.states import Arc
from fabula.corpus.taggers.protocol import faults
from fabula.corpus.vocabulary import UNK
from fabula.errors import UserError
from fabula.loaded import LoadedModel, known_values
from fabula.metrics.bound import Weighed, shared_draws, weigh
from fabula.metrics.fit import fits
from fabula.models.batch import Batch
from fabula.results import Criticism, Explanation, OtherWords, Posterior, Reasons, Score, Tagging
from fabula.rewording import other_words
from fabula.sampling.batch import evidence, flatten
from fabula.sampling.context import Mentions, mentions
from fabula.sampling.latents import draw_latents
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.settings import check_seed, whole_number
from fabula.sampling.task import Task, partial_task, story_task
from fabula.statespace.markov import clamp

EXPLAIN_WORDS, EXPLAIN_SAMPLES = 700, (8, 16)
"""`explain` draws Z so often that words of the story x draws are about `EXPLAIN_WORDS`, between `EXPLAIN_SAMPLES`."""
POSTERIOR_SAMPLES = 200
"""Draws of a posterior where nobody says otherwise."""


class StoryReader(LoadedModel):
    """A model that reads stories."""

    @torch.inference_mode()
    def tag(self, sentences: Sequence[str], *, factors: Sequence[str] = ()) -> Tagging:
        """The tag of every sentence: argmax q(S_i | X), or the corpus's tagger for a model that has no q(S).

        One sentence is enough. A model of several factors also gives the labels of the others; those whose tagger has
        to load a parser (`verb`) only if `factors` names them.

        >>> fabula.load("small").tag(["Tom was sad and cried.", "Tom was happy."]).tags
        ('negative', 'positive')
        """
        task, names = story_task(sentences, self.states, fewest=1), self.states.check(factors)
        notes: tuple[str, ...] = ()
        if not self.model.has_tags:
            for why in faults(self.tagger, names).values():
                raise UserError(why, field="factors")
            tagger = str(self.checkpoint.tagger.get("tagger", "vader")).split(",")[0]
            notes = (f"this model has no q(S | X): tags are by {tagger}",)
        (readings,) = self.read_tags([_whole(task)], [names])
        tags, shares, others = zip(*readings, strict=True)
        tags = tuple(tag or self.labels[0] for tag in tags)
        return Tagging(_whole(task), tags, shares, self.name, notes, others if any(others) else ())

    @torch.inference_mode()
    def score(self, sentences: Sequence[str], *, samples: int = 100, seed: int = 0) -> Score:
        """log p of a story: exact without latents, else a lower bound by importance sampling with S summed out."""
        samples, seed = whole_number("samples", samples, at_least=1), check_seed(seed)
        task = story_task(sentences, self.states)
        encoded = self.text.encode(task)
        batch = flatten(encoded.X, encoded.lengths)
        words = self.model.token_count(int(encoded.lengths.sum()), len(task.sentences))
        if self.model.reads_tags:
            tags = [tag or 0 for tag in self.tagger.tag(list(_whole(task)))]
            batch = batch._replace(S=torch.tensor([tags], device=self.device))
        weighed, kind = self._weigh(batch, samples, seed), self.model.likelihood
        log_p = float(weighed.log_p[0])
        return Score(
            sentences=_whole(task),
            log_p=log_p,
            log_p_sentences=tuple(batch.per_sentence(weighed.log_p_words)[0].tolist()),
            kind=kind,
            words=words,
            unknown=int((encoded.X == UNK).sum()),
            perplexity=math.exp(-log_p / words),
            samples=samples if kind == "bound" else 0,
            seed=seed,
            model=self.name,
        )

    @torch.inference_mode()
    def judge(self, sentences: Sequence[str]) -> Criticism:
        """How well a story holds together, and which of its lines does it most harm, by the model's critic."""
        story = _whole(story_task(sentences, self.states, fewest=1))
        if self.model.critic is None:
            raise UserError(f"{self.name} has no critic; the default model has one", field="model")
        verdict = self.model.critic.read(story)
        harm = {number: line for number, line in enumerate(verdict.lines, start=1) if line < 0}
        weakest = min(harm, key=harm.__getitem__, default=None)
        return Criticism(story, verdict.whole, verdict.lines, weakest, self.name)

    @torch.inference_mode()
    def explain(
        self, sentences: Sequence[str], *, arc: Arc = None, samples: int | None = None, seed: int = 0
    ) -> Explanation:
        """Why each sentence: the probability of its words, and how it fits before, after and the arc (`Reasons`)."""
        if self.model.decoder is None:
            fault = "a model of whole stories given their tags (s2s) cannot account for a sentence"
            raise UserError(fault, field="model")
        task, seed = story_task(sentences, self.states, arc), check_seed(seed)
        encoded = self.text.encode(story_task(sentences, self.states))
        if samples is None:
            samples = max(EXPLAIN_SAMPLES[0], min(EXPLAIN_SAMPLES[1], EXPLAIN_WORDS // int(encoded.lengths.sum())))
        samples = whole_number("samples", samples, at_least=1)
        batch = flatten(encoded.X, encoded.lengths)
        weighed = self._weigh(batch, samples, seed)
        log_p_words = iter(weighed.log_p_words[0].tolist())
        fit = fits(self.model, encoded, samples, torch.Generator(self.device).manual_seed(seed))
        log_q_S = self.model.log_q_S(batch)[0] if self.model.has_tags else None
        allowed = self.states.allowed(task.arc)
        reasons = []
        for i, (text, values) in enumerate(zip(_whole(task), task.arc, strict=True)):
            ids = encoded.X[0, i, : int(encoded.lengths[0, i])].tolist()
            log_p = [next(log_p_words) for _ in ids]
            tag, others = self.states.named(values)
            free = tag is None and not others
            reasons.append(
                Reasons(
                    text=text,
                    words=self.text.words(text, ids, log_p),
                    end=log_p[-1],
                    log_p=math.fsum(log_p),
                    fits_before=fit.before[i] / len(ids),
                    fits_after=fit.after[i],
                    fits_arc=None if free or log_q_S is None else float(log_q_S[i, allowed[i]].logsumexp(0)),
                    tag=tag,
                    factors=others,
                )
            )
        drawn = samples if self.model.has_latent else 0
        return Explanation(tuple(reasons), float(weighed.log_p[0]), self.model.likelihood, drawn, seed, self.name)

    def words(
        self, sentences: Sequence[str | None], *, line: int, word: str, before: str = "", after: str = "", seed: int = 0
    ) -> OtherWords:
        """Up to eight other words for `word`, which stands between `before` and `after` in a line, numbered from 1.

        >>> story = ["Tom had a dog.", "The dog ran home."]
        >>> "ran" in fabula.load("small").words(story, line=2, before="The dog", word="ran", after="home.").words
        False
        """
        return other_words(self, sentences, whole_number("line", line), before, word, after, check_seed(seed))

    def mentions(self, sentences: Sequence[str]) -> Mentions:
        """The people and places that these lines name, and which pronoun goes with whom."""
        return mentions(sentences, self.checkpoint.people)

    @torch.inference_mode()
    def posterior(
        self, sentences: Sequence[str | None], *, arc: Arc = None, samples: int | None = None, seed: int = 0
    ) -> Posterior:
        """S and Z given the sentences that are there, as `smc` draws them; a missing sentence is None or "_".

        Where all are missing this is the model's prior, given the arc.
        """
        model = self.model.latent
        task, seed = partial_task(sentences, self.states, arc), check_seed(seed)
        samples = POSTERIOR_SAMPLES if samples is None else whole_number("samples", samples, at_least=2)
        if model is None and self.model.reads_ahead:
            return self._tag_posterior(task, seed)
        if model is None:
            raise UserError("a model without latents has no posterior over them", field="model")
        batch = self.text.encode(task)
        noise = Noise([seeded(seed)], batch.sentences, samples, batch.device)
        phi = evidence(model, batch.X, batch.lengths).phi
        allowed = batch.allowed_of(model.K)
        drawn = draw_latents(model.scaffold, model.dynamics, allowed, phi, batch.present, noise)
        shares = model.one_hot(drawn.S).mean(0).tolist()
        several = self.states.K == model.K > 1
        tags, factors = self._shares(shares) if several else (tuple({"any": row[0]} for row in shares), ())
        mean, deviation = (tuple(map(tuple, moment.tolist())) for moment in (drawn.Z.mean(0), drawn.Z.std(0)))
        return Posterior(tags, mean, deviation, samples, seed, self.name, factors)

    def _tag_posterior(self, task: Task, seed: int) -> Posterior:
        """p(S | the arc, the tags read off the given sentences), exact; there is no Z."""
        scaffold = self.model.p_S
        assert scaffold is not None
        values = known_values(task, self.states, self.tagger)
        allowed = torch.from_numpy(self.states.allowed(values))[None].to(self.device)
        log_evidence = clamp(torch.zeros(allowed.shape, device=self.device), allowed)
        everywhere = torch.ones(allowed.shape[:2], dtype=torch.bool, device=self.device)
        tags, factors = self._shares(scaffold.posterior(log_evidence, everywhere)[0].tolist())
        no_Z: tuple[tuple[float, ...], ...] = ((),) * len(values)
        return Posterior(tags, no_Z, no_Z, 1, seed, self.name, factors)

    def _shares(
        self, shares: Sequence[Sequence[float]]
    ) -> tuple[tuple[dict[str, float], ...], tuple[dict[str, dict[str, float]], ...]]:
        """[sent, K] as the share of each mood, and those of the other factors by name."""
        rows = self.states.marginals(shares)
        tags = tuple(row.pop(self.mood) for row in rows)
        return tags, tuple(rows) if any(rows) else ()

    def _weigh(self, batch: Batch, samples: int, seed: int) -> Weighed:
        draws = shared_draws(self.model, batch, samples, torch.Generator(self.device).manual_seed(seed))
        return weigh(self.model, batch, draws, self.checkpoint.posterior)


def _whole(task: Task) -> tuple[str, ...]:
    """The sentences of a task that has them all."""
    return tuple(sentence for sentence in task.sentences if sentence is not None)

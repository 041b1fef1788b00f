"""Which sampler, how much of it, and jobs larger than the memory: a blanks is cut into pieces that fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.infill import bridge, gibbs, rerank
from fabula.infill.batch import InfillBatch
from fabula.infill.cast import Cast
from fabula.infill.consensus import by_consensus
from fabula.infill.decode import DecodingConfig, Lexicon
from fabula.infill.noise import seeded
from fabula.infill.samples import Diagnostics, Round, best
from fabula.infill.tags import TagSource
from fabula.models.protocol import Model

SamplerName = Literal["gibbs", "bridge", "rerank"]
SAMPLERS: tuple[SamplerName, ...] = ("bridge", "gibbs", "rerank")

TEMPERATURE = 0.9
"""Of the words that `bridge` and `rerank` draw, where nobody says otherwise: lines read better than at 1, where one
unlikely word derails a story. The law so sharpened is then the target; evaluations say 1 themselves. A gibbs X step
decodes greedily, or undoes the temperature in its weights: it proposes at 1."""

FLUENCY = 3.0
"""What a nat per word of the writing itself counts in bridge's ranking. Ranked by the given sentences alone (0, what
evaluations use), the story wins whose ending is most expected, however odd the way there."""

INTERACTIVE_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "bridge": {"twist_weight": 0.5, "context": 5.0, "agreement": 3.0, "no_repeat": 4, "allow_new_names": False},
    "rerank": {"no_repeat": 4, "allow_new_names": False},
    "gibbs": {},
}
"""What `fabula fill`, the studio and the API add for people to read; evaluations draw from the model as it is."""

CHAINS, SWEEPS = 17, 3
"""Gibbs chains where nobody says otherwise, fewer where each would keep fewer states than `SWEEPS`. 50 samples are 17
chains of 3 states, the last round one chain short. A word's scores cost the host little more for 17 rows than for 10,
so this is 15 to 30 % faster than 10 x 5; the first candidate comes with the first round, later the wider it is."""

COPIES_OF_SCORES = 6
"""Arrays of rows x vocabulary alive at once while a word is chosen, at most."""


@dataclass(frozen=True, kw_only=True)
class FillSettings:
    """What a person may choose about a filling."""

    sampler: SamplerName = "bridge"
    samples: int = 50
    """Complete stories drawn for each task, burn-in included. The paper: 50, and 1,000 for its baselines."""
    chains: int | None = None
    """Gibbs chains; `samples` is shared among them. None: `CHAINS`, or fewer for few samples."""
    top_k: int | None = None
    """Words to choose among. None: greedy for gibbs (the paper), 15 for the others; 0: all."""
    temperature: float | None = None
    """Scores are divided by this before a draw. None: `TEMPERATURE`, and 1 for gibbs."""
    fluency: float = FLUENCY
    """bridge: the weight of the writing's own mean log p per word in the ranking."""
    twist_weight: float = 0.0
    """bridge: how much the next given sentence weighs what is written on the way to it."""
    context: float = 0.0
    """bridge: what a nat per word that the story so far saves the written sentences counts in the ranking."""
    agreement: float = 0.0
    """bridge: what a repeated sentence or word, or a pronoun for nobody, costs in the ranking."""
    no_repeat: int = 0
    """Runs of so many words stand only once in a story; 0: no such rule."""
    allow_new_names: bool = True
    """Whether people may be named whom no given sentence names, where any names somebody."""
    max_words: int = 30
    x_step: Literal["greedy", "sampled"] = "greedy"
    score: Literal["given", "last"] = "given"
    rank: Literal["score", "consensus"] = "score"
    """Which sample is the answer: the best by the sampler's score, or the one most like the others (`consensus.py`)."""
    tags: TagSource = "read"
    bf16: bool = False
    """Whether the decoder's products run in bf16, on CUDA; latents and log-probabilities stay in single precision."""
    memory_gib: float = 2.0
    """Scores held at once, at most; a larger job is cut into pieces."""

    def __post_init__(self) -> None:
        for name in ("samples", "chains"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.memory_gib <= 0:
            raise ValueError(f"memory_gib must be above 0, not {self.memory_gib}")
        if self.x_step == "sampled" and self.top_k == 1:
            raise ValueError("a sampled X step needs words to choose among: top_k is 1")
        if self.sampler == "gibbs" and (self.no_repeat or not self.allow_new_names):
            raise ValueError("gibbs draws from the model itself: no_repeat and allow_new_names=False are not for it")
        self.decoding()

    @property
    def gibbs_chains(self) -> int:
        """How many Gibbs chains share the samples."""
        return min(self.samples, self.chains or min(CHAINS, -(-self.samples // SWEEPS)))

    def decoding(self) -> DecodingConfig:
        """How words are chosen: what was asked for, else the sampler's own way."""
        greedy = self.sampler == "gibbs" and self.x_step == "greedy"
        top_k = self.top_k if self.top_k is not None else (1 if greedy else 15)
        usual = 1.0 if self.sampler == "gibbs" else TEMPERATURE
        temperature = usual if self.temperature is None else self.temperature
        return DecodingConfig(
            top_k=top_k, temperature=temperature, max_words=self.max_words, no_repeat=self.no_repeat, bf16=self.bf16
        )


class Found(NamedTuple):
    """One candidate story, on the host."""

    X: Int[Tensor, "sent word"]
    lengths: Int[Tensor, " sent"]
    S: Int[Tensor, " sent"]
    log_p: Float[Tensor, " sent"]
    score: float


def draw(
    model: Model, lexicon: Lexicon, blanks: InfillBatch, settings: FillSettings, generators: list[torch.Generator],
    gold: InfillBatch | None = None, cast: Cast | None = None,
) -> Iterator[tuple[Round, Diagnostics | None]]:  # fmt: skip
    """Rounds of finished stories from the sampler that the settings name; a model without latents can only rerank."""
    if cast is not None and not settings.allow_new_names:
        blanks = cast.without_new_names(blanks)
    latent = model.latent
    if latent is None:
        settings = replace(settings, sampler="rerank")
    decoding = settings.decoding()
    if latent is None:
        yield from rerank.run(
            model, lexicon, blanks, rerank.RerankSettings(samples=settings.samples, decoding=decoding), generators
        )
    elif settings.sampler == "gibbs":
        chains, left = settings.gibbs_chains, settings.samples
        chosen = gibbs.GibbsSettings(
            chains=chains, sweeps=-(-settings.samples // chains), x_step=settings.x_step,
            decoding=decoding, score=settings.score, tags=settings.tags,
        )  # fmt: skip
        for found, movement in gibbs.run(latent, lexicon, blanks, chosen, generators, gold):
            yield first_chains(found, chains, min(left, chains)), movement
            left -= chains
    else:
        yield from bridge.run(
            latent, lexicon, blanks,
            bridge.BridgeSettings(
                particles=settings.samples, decoding=decoding, tags=settings.tags, fluency=settings.fluency,
                twist_weight=settings.twist_weight, context=settings.context, agreement=settings.agreement,
            ),
            generators, gold, cast,
        )  # fmt: skip


@torch.inference_mode()
def fill(
    model: Model,
    lexicon: Lexicon,
    blanks: InfillBatch,
    settings: FillSettings,
    seeds: Sequence[int],
    candidates: int = 1,
    gold: InfillBatch | None = None,
    cast: Cast | None = None,
) -> list[tuple[list[Found], Diagnostics]]:
    """The best stories for every task of a blanks, and how its sampler moved; `seeds`: one for each story.

    A story's answer does not depend on the stories beside it, nor on where the job is cut.
    """
    rows = settings.gibbs_chains if settings.sampler == "gibbs" else settings.samples
    per_story = rows * len(lexicon.anywhere) * 4 * COPIES_OF_SCORES
    at_once = max(1, int(settings.memory_gib * 2**30 // per_story))
    answers: list[tuple[list[Found], Diagnostics]] = []
    for start in range(0, len(blanks.X), at_once):
        stop = min(start + at_once, len(blanks.X))
        piece = blanks.rows(start, stop)
        truth = None if gold is None else gold.rows(start, stop)
        generators = [seeded(seed) for seed in seeds[start:stop]]
        rounds, diagnostics = [], Diagnostics.none(stop - start, piece.X.shape[1])
        for r, movement in draw(model, lexicon, piece, settings, generators, truth, cast):
            rounds.append(Round(*(t.cpu() for t in r)))
            diagnostics = movement or diagnostics
        if settings.rank == "consensus":
            rounds = by_consensus(rounds, stop - start, piece.missing)
        for story in range(stop - start):
            found = [take(r, row) for r, row in best(rounds, story, stop - start, candidates)]
            answers.append((found, Diagnostics(*(figure[story : story + 1] for figure in diagnostics))))
    return answers


def first_chains(r: Round, chains: int, kept: int) -> Round:
    """The first of every story's chains: a last round may hold more than the samples that were asked for."""
    if kept == chains:
        return r
    return Round(*(t.unflatten(0, (-1, chains))[:, :kept].flatten(0, 1) for t in r))


def take(r: Round, row: int) -> Found:
    """One row of a round."""
    return Found(r.X[row].cpu(), r.lengths[row].cpu(), r.S[row].cpu(), r.log_p[row].cpu(), float(r.score[row]))

"""The look-ahead score: does what was written lead to the ending that was given?

Stories of five sentences lose the three in the middle; systems write them again; a judge, a language model trained
apart and never used for ranking, says how probable the true last sentence is after the first and what was written:

    score = (system - left-to-right) / (human - left-to-right)

each a mean over stories of the judge's log P(X_N | X_1, middle). 0: no better than writing ahead blindly, 1: as good as
the human middle. Beside it stand measures of the prose, so that neither copying the ending nor blandness can win.
All of it on word ids; the corpus's own words go nowhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm import tqdm

from fabula.corpus.dataset import Stories
from fabula.corpus.people import NOBODY, People
from fabula.corpus.vocabulary import UNK, Vocabulary
from fabula.errors import UserError
from fabula.metrics.lookahead import log_p_ending
from fabula.metrics.record import Figure, mean_and_error, rounded
from fabula.models.decoders.words import WordTokenizer
from fabula.models.protocol import Model
from fabula.models.slds import SLDS
from fabula.sampling import decode, rerank, smc
from fabula.sampling.batch import InfillBatch, infill_batch
from fabula.sampling.cast import Cast
from fabula.sampling.decode import GREEDY, DecodingConfig
from fabula.sampling.driver import fill_batch, pieces
from fabula.sampling.latents import draw_latents
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rules import FINAL_MARKS, QUOTES, WordRules
from fabula.sampling.settings import BridgeFillSettings, FillSettings, GibbsFillSettings, RerankFillSettings
from fabula.sampling.tags import TagSource

BASELINE, HUMAN, OTHER = "left-to-right", "human", "other-story"
BRIDGE, WEIGHTS_ONLY, Z_ONLY = "bridge", "bridge-z-past", "bridge-unweighed"

Lines = list[list[int]]
"""The written sentences of one story, word ids without `<eos>`."""


@dataclass(frozen=True, kw_only=True)
class LookaheadSettings:
    """What all systems share."""

    sentences: int = 5
    """N; all but the first and the last are missing."""
    samples: int = 50
    """Stories each sampler may draw for one answer; the issue's and the paper's value."""
    chains: int = 10
    """Gibbs chains, which share the samples."""
    reranked: tuple[int, ...] = (50, 1000)
    """Samples of the language model that compete: as many as the others have, and the paper's value."""
    plain: int = 10
    """Draws per story of systems that choose nothing: their mean has the smaller error."""
    top_k: int = 15
    """Words to choose among, for everyone but the paper's greedy Gibbs."""
    max_words: int = 30
    tags: TagSource = "free"
    """Never `peek`: the true middle is not to be seen."""
    careful: tuple[float, ...] = ()
    """Temperatures at which to write as `fabula fill` does, with its rules and its ranking."""
    bf16: bool = False
    seed: int = 0
    memory_gib: float = 2.0
    """Scores held at once, at most; a larger job is cut into pieces."""

    def __post_init__(self) -> None:
        counts = (self.samples, self.chains, self.plain, *self.reranked)
        if min(counts) < 1 or self.sentences < 3 or self.memory_gib <= 0:
            raise ValueError("samples, chains, plain and reranked are at least 1, sentences 3, memory_gib above 0")
        if self.samples % self.chains:
            raise ValueError(f"{self.chains} chains cannot share {self.samples} samples evenly")
        if self.tags == "peek":
            raise ValueError("tags that peek at the true middle would look ahead for the sampler")

    def words(self) -> dict[str, Any]:
        """How words are chosen, as settings."""
        return {"top_k": self.top_k, "max_words": self.max_words, "bf16": self.bf16}

    def decoding(self) -> DecodingConfig:
        return DecodingConfig(**self.words())


class Told(NamedTuple):
    """Whole stories: one or more tellings of each."""

    X: Int[Tensor, "story telling sent word"]
    lengths: Int[Tensor, "story telling sent"]

    def lines(self) -> list[Lines]:
        """The first telling's inner sentences."""
        X, lengths = self.X[:, 0].cpu(), self.lengths[:, 0].cpu()
        inner = range(1, X.shape[1] - 1)
        return [[X[n, i, : int(lengths[n, i]) - 1].tolist() for i in inner] for n in range(len(X))]


class Prose(NamedTuple):
    """What the written sentences look like, apart from where they lead."""

    overlap_4: Figure
    """Share of their 4-grams that stand in a given sentence of the same story."""
    distinct_2: float
    """Distinct 2-grams among all their 2-grams; falls with their number, so only sets of equal size compare."""
    words: Figure
    """Words of a sentence, marks included."""
    repeated: Figure
    """Share that say word for word what a given or an earlier sentence of the story says."""
    ended: Figure
    """Share that end with `. ! ?`, a closing quotation mark allowed behind it."""


class System(NamedTuple):
    """One row of the table."""

    name: str
    log_p: Float[Tensor, " story"]
    """The judge's log P(X_N | X_1, middle), the mean over tellings."""
    tellings: int
    prose: Prose
    lines: list[Lines]
    seconds: float


def lookahead(
    narrator: SLDS,
    judge: Model,
    vocabulary: Vocabulary,
    stories: Stories,
    rows: Sequence[int],
    settings: LookaheadSettings,
    lm: Model | None = None,
    bar: bool = False,
    people: People = NOBODY,
) -> list[System]:
    """Every system's middles of these stories, judged; the human middle and another story's for comparison."""
    if lm is judge or (lm is not None and (lm.has_latent or lm.reads_tags)):
        raise UserError("the language model that writes must be a plain one, and not the judge")
    texts = [[s.tolist() for s in stories.sentences(row)] for row in rows]
    device = narrator.dynamics.A.device
    rules = WordRules.of(WordTokenizer(vocabulary), device, people.names)
    cast = Cast(people, rules)
    blank = infill_batch([[t[0], *[None] * (len(t) - 2), t[-1]] for t in texts], device=device)
    seeds = [seeded(settings.seed, n).initial_seed() for n in range(len(texts))]
    systems = []
    plans = [*narrator_systems(narrator, rules, settings, cast), *lm_systems(lm, rules, settings)]
    for name, tell in tqdm(plans, disable=not bar, leave=False, unit="system"):
        began = time.perf_counter()
        told = tell(blank, seeds)
        if device.type == "cuda":
            torch.cuda.synchronize()
        systems.append(judged(judge, vocabulary, name, told, texts, time.perf_counter() - began))
    for name, shift in ((HUMAN, 0), (OTHER, 1)):
        middles = [[t[0], *texts[(n + shift) % len(texts)][1:-1], t[-1]] for n, t in enumerate(texts)]
        full = infill_batch(middles, device=device)
        systems.append(judged(judge, vocabulary, name, Told(full.X[:, None], full.lengths[:, None]), texts, 0.0))
    return systems


Teller = Callable[[InfillBatch, Sequence[int]], Told]


def narrator_systems(
    model: SLDS, rules: WordRules, settings: LookaheadSettings, cast: Cast | None = None
) -> Iterator[tuple[str, Teller]]:
    """The narrator's ways of writing, from blind to seeing."""
    common = {"samples": settings.samples, "tags": settings.tags, **settings.words()}

    def unweighed(observed: smc.Observed) -> Teller:
        return plain(lambda p, g: latent_tellings(model, rules, p, settings, observed, g), rules, settings)

    def particles(observed: smc.Observed, ahead: float = 0.0) -> Teller:
        chosen = BridgeFillSettings.plain(**common, z_observes=observed, twist_weight=ahead)
        return ranked(model, rules, chosen, settings.memory_gib)

    def careful(temperature: float) -> Teller:
        chosen = BridgeFillSettings(**{**common, "temperature": temperature, "top_k": BridgeFillSettings().top_k})
        return ranked(model, rules, chosen, settings.memory_gib, cast)

    def swept(top_k: int) -> Teller:
        chosen = GibbsFillSettings(**{**common, "chains": settings.chains, "top_k": top_k})
        return ranked(model, rules, chosen, settings.memory_gib)

    yield BASELINE, unweighed("past")
    yield Z_ONLY, unweighed("given")
    yield "gibbs", swept(GREEDY.top_k)
    yield f"gibbs-top-{settings.top_k}", swept(settings.top_k)
    yield WEIGHTS_ONLY, particles("past")
    yield BRIDGE, particles("given")
    yield "bridge-ahead", particles("given", BridgeFillSettings().twist_weight)
    for temperature in settings.careful:
        yield f"fill-{temperature:g}", careful(temperature)


def lm_systems(model: Model | None, rules: WordRules, settings: LookaheadSettings) -> Iterator[tuple[str, Teller]]:
    """The language model left to right, once and as the best of many."""
    if model is None:
        return

    def best_of(samples: int) -> Teller:
        chosen = RerankFillSettings.plain(samples=samples, **settings.words())
        return ranked(model, rules, chosen, settings.memory_gib)

    yield "lm", plain(lambda p, g: lm_tellings(model, rules, p, settings, g), rules, settings)
    for samples in settings.reranked:
        yield f"rerank-{samples}", best_of(samples)


def latent_tellings(
    model: SLDS,
    rules: WordRules,
    blank: InfillBatch,
    settings: LookaheadSettings,
    observed: smc.Observed,
    generators: list[torch.Generator],
) -> decode.Written:
    """(S, Z) given the observed sentences, then every blank left to right: nothing is weighed or chosen."""
    noise = Noise(generators, blank.sentences, settings.plain, blank.device)
    settled, phi = smc.observe(model, blank, settings.tags, observed)
    drawn = draw_latents(model.scaffold, model.dynamics, settled.allowed, phi, settled.present, noise)
    uniform = noise.uniform(settings.max_words)
    return decode.story(
        model.decoder, rules, settings.decoding(), blank.repeat(settings.plain), drawn.S, drawn.Z, uniform
    )


def lm_tellings(
    model: Model, rules: WordRules, blank: InfillBatch, settings: LookaheadSettings, generators: list[torch.Generator]
) -> decode.Written:
    """Every blank left to right, from the sentences before it alone."""
    noise = Noise(generators, blank.sentences, settings.plain, blank.device)
    uniform = noise.uniform(settings.max_words)
    wide = blank.repeat(settings.plain)
    return rerank.write_left_to_right(model, rules, settings.decoding(), wide, None, None, uniform)


def plain(
    tell: Callable[[InfillBatch, list[torch.Generator]], decode.Written], rules: WordRules, settings: LookaheadSettings
) -> Teller:
    """A system that tells each story several times and chooses none."""

    @torch.inference_mode()
    def every(blank: InfillBatch, seeds: Sequence[int]) -> Told:
        found = []
        for piece in pieces(len(blank.X), settings.plain, rules, settings.memory_gib):
            own = blank.rows(piece.start, piece.stop)
            written = tell(own, generators_of(seeds[piece]))
            shape = (len(own.X), settings.plain, own.X.shape[1])
            found.append(Told(written.X.view(*shape, -1), written.lengths.view(shape)))
        return Told(*(torch.cat(parts) for parts in zip(*found, strict=True)))

    return every


def ranked(
    model: Model, rules: WordRules, settings: FillSettings, memory_gib: float, cast: Cast | None = None
) -> Teller:
    """A system that answers with the story its own score puts first."""

    def first(blank: InfillBatch, seeds: Sequence[int]) -> Told:
        generators = generators_of(seeds)
        answers = fill_batch(model, rules, blank, settings, generators, cast=cast, memory_gib=memory_gib)
        best = [answer.stories[0] for answer in answers]
        X, lengths = (torch.stack(parts).to(blank.device) for parts in zip(*(story[:2] for story in best), strict=True))
        return Told(X[:, None], lengths[:, None])

    return first


def generators_of(seeds: Sequence[int]) -> list[torch.Generator]:
    """A generator for each story."""
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def judged(
    judge: Model, vocabulary: Vocabulary, name: str, told: Told, texts: Sequence[Lines], seconds: float
) -> System:
    """The row of one system: the judge's opinion of every telling, and the prose of the first."""
    n, tellings = told.X.shape[:2]
    log_p = log_p_ending(judge, told.X.flatten(0, 1), told.lengths.flatten(0, 1)).view(n, tellings).double().mean(1)
    lines = told.lines()
    given = [[story[0], story[-1]] for story in texts]
    return System(name, log_p.cpu(), tellings, prose(lines, given, vocabulary), lines, seconds)


def ratio_and_error(above: Tensor, below: Tensor) -> Figure:
    """mean(above) / mean(below) of pairs, with the standard error of the delta method."""
    above, below = above.double().flatten(), below.double().flatten()
    n = above.numel()
    ratio = above.mean() / below.mean()
    spread = (above - ratio * below).std() if n > 1 else torch.tensor(float("nan"))
    return Figure(float(ratio), float(spread / below.mean().abs() / math.sqrt(n)))


def score(system: Float[Tensor, " story"], baseline: Float[Tensor, " story"], human: Float[Tensor, " story"]) -> Figure:
    """(system - left-to-right) / (human - left-to-right), story by story: the same stories stand above and below."""
    return ratio_and_error(system - baseline, human - baseline)


def ngrams(words: Sequence[int], n: int) -> list[tuple[int, ...]]:
    """All n-grams without `<unk>`: two words that nobody knows are not the same word."""
    grams = (tuple(words[i : i + n]) for i in range(len(words) - n + 1))
    return [gram for gram in grams if UNK not in gram]


def overlap(lines: Lines, given: Lines, n: int = 4) -> tuple[int, int]:
    """How many n-grams of the lines stand in a given sentence, and how many there are."""
    known = {gram for line in given for gram in ngrams(line, n)}
    grams = [gram for line in lines for gram in ngrams(line, n)]
    return sum(gram in known for gram in grams), len(grams)


def distinct(stories: Sequence[Lines], n: int = 2) -> float:
    """Distinct n-grams among all n-grams of all lines."""
    grams = [gram for lines in stories for line in lines for gram in ngrams(line, n)]
    return len(set(grams)) / len(grams) if grams else float("nan")


def repeats(lines: Lines, given: Lines) -> int:
    """Lines that repeat a given one or one before them, word for word."""
    known = {tuple(line) for line in given}
    count = 0
    for line in lines:
        count += tuple(line) in known
        known.add(tuple(line))
    return count


def prose(stories: Sequence[Lines], given: Sequence[Lines], vocabulary: Vocabulary) -> Prose:
    """The measures of what was written for these stories."""
    final = {vocabulary.index[mark] for mark in FINAL_MARKS if mark in vocabulary.index}
    closing = {vocabulary.index[mark] for mark in (*QUOTES, "”", "''") if mark in vocabulary.index}

    def ends(line: list[int]) -> bool:
        bare = line[:-1] if len(line) > 1 and line[-1] in closing else line
        return bool(bare) and bare[-1] in final

    pairs = [overlap(lines, own) for lines, own in zip(stories, given, strict=True)]
    count = torch.tensor([float(len(lines)) for lines in stories])

    def per_line(figures: Iterable[int]) -> Figure:
        return ratio_and_error(torch.tensor([float(figure) for figure in figures]), count)

    return Prose(
        overlap_4=ratio_and_error(*(torch.tensor(side, dtype=torch.float64) for side in zip(*pairs, strict=True))),
        distinct_2=distinct(stories),
        words=per_line(sum(len(line) for line in lines) for lines in stories),
        repeated=per_line(repeats(lines, own) for lines, own in zip(stories, given, strict=True)),
        ended=per_line(sum(ends(line) for line in lines) for lines in stories),
    )


def summary(systems: Sequence[System]) -> dict[str, Any]:
    """The table as JSON: every system's figures with standard errors, and what Z contributes to bridge's score."""
    by_name = {system.name: system for system in systems}
    baseline, human = by_name[BASELINE].log_p, by_name[HUMAN].log_p
    table = {}
    for system in systems:
        row: dict[str, Any] = {"tellings": system.tellings, "seconds": rounded(system.seconds, 2)}
        figures = {
            "log_p": mean_and_error(system.log_p),
            "score": score(system.log_p, baseline, human),
            **{name: value for name, value in system.prose._asdict().items() if isinstance(value, Figure)},
        }
        for name, figure in figures.items():
            row[name], row[f"{name}_se"] = rounded(figure.value), rounded(figure.se)
        row["distinct_2"] = rounded(system.prose.distinct_2)
        table[system.name] = row
    seeing, blind = by_name[BRIDGE].log_p, by_name[WEIGHTS_ONLY].log_p
    gain, lost = mean_and_error(seeing - blind), ratio_and_error(seeing - blind, seeing - baseline)
    return {
        "systems": table,
        "z_gain": {"value": rounded(gain.value), "se": rounded(gain.se)},
        "share_lost_without_z": {"value": rounded(lost.value), "se": rounded(lost.se)},
    }

"""What several judges think of the same filled-in stories, and how far they agree.

A record `opinion/<system>.<sampler>` holds, for the first stories of the middle-three setting (the same for everybody),
one figure a story by each judge, larger meant to be better:

    judge, lm-1024, narrator, smollm2    log p(last sentence | all before it), in nats
    critic                               the narrator's critic on the whole story: people's or a machine's

The first two are GRU language models, of the family of those that rank; the narrator and its critic are a tuned
SmolLM2, which no GRU system has met; SmolLM2 itself has seen no story of the corpus.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fabula.corpus.tokenize import tokenise_many
from fabula.metrics.bootstrap import difference, mean
from fabula.metrics.lookahead import log_p_ending
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.sampling.batch import infill_batch
from fabula_paper.bench import weights_of
from fabula_paper.figures import Figure, Found, Row, Table, alike, interval_figure, sampler_name
from fabula_paper.judging import told_blind
from fabula_paper.plan import BY_NAME, HUMAN, MIDDLE, PLAIN
from fabula_paper.records import rounded_list

if TYPE_CHECKING:
    from fabula_paper.schedule import Outcome
    from fabula_paper.scoring import Scorer

FloatArray = NDArray[np.float64]
HEARD = (
    HUMAN, PLAIN, "lm.rerank-few", "lm.rerank", "s2s.rerank", "lds.bridge", "slds.gibbs-peek", "slds.gibbs",
    "slds.bridge", "narrator.fill",
)  # fmt: skip
"""Who is judged: people, the LM left to right (blind), and the ways of filling in that claims are about."""
JUDGES = {
    "judge": "judge, by the one rule", "lm-1024": "our LM", "narrator": "narrator's reading", "smollm2": "SmolLM2",
    "critic": "critic",
}  # fmt: skip
LEADS = {HUMAN: ("people", "–"), PLAIN: ("LM", "left to right, blind, once")}
AT_ONCE = 20
STORIES = 32
"""Judged stories: minutes for a CPU."""


def opinions(scorer: Scorer, outcome: Outcome, systems: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every judge that is here on every way of filling in whose texts are here."""
    names = [name for name in HEARD if scorer.wanted("opinion", name, outcome, systems)]
    here = {HUMAN: True, PLAIN: scorer.bench.folder(BY_NAME["lm"]).is_dir()}
    names = [name for name in names if here.get(name) or (name not in here and scorer.records.done(sample_unit(name)))]
    judges = Judges(scorer) if names else None
    for name in names:
        assert judges is not None
        began = time.perf_counter()
        stories = blind(scorer) if name == PLAIN else scorer.middle(name, STORIES)
        values = judges.read(stories)
        record = {
            "n": len(stories), "judges": judges.weights,
            "mean": {judge: round(float(own.mean()), 4) for judge, own in values.items()},
            "stories": {judge: rounded_list(own) for judge, own in values.items()},
        }  # fmt: skip
        yield f"opinion/{name}", record | {"seconds": round(time.perf_counter() - began, 2)}


def blind(scorer: Scorer) -> list[list[str]]:
    """The paper's LM left to right, once, blind to the ending."""
    bench, decode = scorer.bench, scorer.bench.corpus.vocabulary.decode
    rows = bench.rows[:STORIES]
    lines = [[" ".join(decode(words)) for words in middle] for middle in told_blind(bench, rows, 0)]
    return [scorer.dataset.filled(bench.test.ids[row], own, MIDDLE) for row, own in zip(rows, lines, strict=True)]


def sample_unit(name: str) -> str:
    system, _, sampler = name.partition(".")
    return f"sample/{system}.{MIDDLE}.{sampler}"


class Judges:
    """The judges that are here, loaded once."""

    def __init__(self, scorer: Scorer) -> None:
        from fabula import api

        self.bench = scorer.bench
        self.grus = [name for name in ("judge", "lm-1024") if self.bench.folder(BY_NAME[name]).is_dir()]
        self.weights = {name: weights_of(self.bench.folder(BY_NAME[name])) for name in self.grus}
        self.narrator = api.load("default").model

    def read(self, stories: Sequence[Sequence[str]]) -> dict[str, FloatArray]:
        """A figure for every story by each."""
        from fabula_paper.scores.pretrained import story_perplexity

        found: dict[str, FloatArray] = {}
        encode = self.bench.corpus.vocabulary.encode
        ids = [[encode(words) for words in tokenise_many(story)] for story in stories]
        whole = infill_batch(ids, device=self.bench.device)
        for name in self.grus:
            model = self.bench.checkpoint(BY_NAME[name]).model
            found[name] = log_p_ending(model, whole.X, whole.lengths).double().cpu().numpy()
        found["narrator"] = self.narrators(stories)
        found["smollm2"] = -story_perplexity(stories).sentence_nats[:, -1]
        critic = self.narrator.critic
        assert critic is not None
        encoded = [critic.tokenizer.encode_all(list(story)) for story in stories]
        found["critic"] = np.array([verdict.whole for verdict in critic.judge(encoded)])
        return found

    @torch.inference_mode()
    def narrators(self, stories: Sequence[Sequence[str]]) -> FloatArray:
        """The narrator's log p(last sentence | all before it), with free tags."""
        decoder = self.narrator.decoder
        assert isinstance(decoder, NarratorDecoder)
        tokenizer, found = decoder.tokenizer, []
        for first in range(0, len(stories), AT_ONCE):
            part = stories[first : first + AT_ONCE]
            state, log_p = decoder.start(len(part)), torch.zeros(len(part))
            for i in range(len(part[0])):
                ids = [[*tokenizer.encode(story[i]), tokenizer.end] for story in part]
                width = max(map(len, ids))
                tokens = torch.tensor([row + [0] * (width - len(row)) for row in ids])
                state = decoder.begin_sentence(state, None)
                state, log_p = decoder.read(state, tokens, torch.tensor([len(row) for row in ids]), None)
            found.append(log_p.double().numpy())
        return np.concatenate(found)


def scores_of(found: Found) -> dict[str, dict[str, FloatArray]]:
    """Every record's figures, by who is judged and who judges."""
    told = {name: {judge: own for judge in JUDGES if (own := found.opinion(name, judge)) is not None} for name in HEARD}
    return {name: own for name, own in told.items() if own}


def named(found: Found, name: str) -> tuple[str, str]:
    if name in LEADS:
        return LEADS[name]
    system, _, sampler = name.partition(".")
    return BY_NAME[system].title, sampler_name(sampler, found.scale)


def table(found: Found) -> Table | None:
    """Who is judged, by every judge: above people's own middle, so that judges of other scales compare."""
    told = scores_of(found)
    if HUMAN not in told:
        return None
    rows = []
    for name, own in told.items():
        figures = [
            Figure(words="–")
            if judge not in own
            else interval_figure(mean(own[judge], draws=found.scale.resamples), f"opinion/{name}")
            if name == HUMAN
            else interval_figure(
                difference(*alike(own[judge], told[HUMAN][judge]), draws=found.scale.resamples), f"opinion/{name}"
            )
            for judge in JUDGES
        ]
        count = str(len(next(iter(own.values()))))
        rows.append(Row(lead=(*named(found, name), count), figures=tuple(figures), own=name.startswith("narrator")))
    return Table(
        title="Beyond: five judges of the same stories",
        intro="The first of the stories with the middle three missing. People: the mean; everybody else: the "
        "difference from people's own middle, story by story, larger is better. Four judges say log p(last sentence | "
        "all before it) in nats; the critic says how far a whole story looks like people's rather than a machine's. "
        "The narrator ranks by its critic and its own reading, and SmolLM2 is its base, so of it only the first two "
        "judge from outside; a GRU language model ranked the best of 50 and of 1,000, so the first two are of their "
        "family.",
        lead=("system", "sampler", "stories"),
        columns=tuple(JUDGES.values()),
        rows=tuple(rows),
        beside_paper=(False,) * len(JUDGES),
        larger_is_better=(True,) * len(JUDGES),
    )


def agreement_table(found: Found) -> Table | None:
    """Rank correlations of every two judges: of the systems' means, and of the systems within a story."""
    told = scores_of(found)
    judged = {name: own for name, own in told.items() if set(JUDGES) <= set(own)}
    n = min((len(own["critic"]) for own in judged.values()), default=0)
    ways = list(judged)
    if len(ways) < 3:
        return None
    values = {judge: np.stack([told[name][judge][:n] for name in ways]) for judge in JUDGES}
    rows = []
    judges = list(JUDGES)
    for i, one in enumerate(judges):
        for other in judges[i + 1 :]:
            within = spearman(values[one].T, values[other].T)
            whole = float(spearman(values[one].mean(1)[None], values[other].mean(1)[None])[0])
            rows.append(
                Row(
                    lead=(JUDGES[one], JUDGES[other]),
                    figures=(
                        Figure(ours=whole, record=f"opinion/{HUMAN}"),
                        interval_figure(mean(within, draws=found.scale.resamples), f"opinion/{HUMAN}"),
                    ),
                )
            )
    return Table(
        title="Beyond: do the judges agree?",
        intro=f"Spearman's rank correlation of two judges over the {len(ways)} rows of the table above, on {n} "
        "stories: of the rows' means, and of the rows within one story, the mean over stories. 1: the same order; 0: "
        "as by chance.",
        lead=("one judge", "another"),
        columns=("over systems", "over systems, story by story"),
        rows=tuple(rows),
        beside_paper=(False, False),
        larger_is_better=(True, True),
    )


def spearman(one: FloatArray, other: FloatArray) -> FloatArray:
    """Of every row: the correlation of ranks, ties sharing theirs."""
    a, b = (ranks(side) for side in (one, other))
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    found: FloatArray = (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return found


def ranks(values: FloatArray) -> FloatArray:
    """Of every row: how many are smaller, and half of those that are equal."""
    less, same = (op(values[:, None, :], values[:, :, None]).sum(2) for op in (np.less, np.equal))
    found: FloatArray = less + (same - 1) / 2
    return found

"""Scores of the written texts; they need no model of ours and no GPU.

overlap/<system>.<setting>.<sampler>    ROUGE and METEOR against the true sentences (two are joined into one text)
control/<system>                        macro-F1 of the tags by VADER, and by a lexicon that nobody trained on
prose/<system>.<sampler>                distinct-2 of the middle three sentences, and the measures of other packages
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.errors import UserError
from fabula.metrics.bootstrap import bootstrap
from fabula.metrics.counting import distinct
from fabula.metrics.record import rounded
from fabula_paper.bench import Bench, EnglishStories, Outcome, english
from fabula_paper.plan import BY_NAME, HUMAN, MIDDLE, SENTENCES, SETTINGS, TABLE_SETTINGS, Unit, protocol
from fabula_paper.records import rounded_list
from fabula_paper.scores.lexicon import LexiconTagger
from fabula_paper.scores.overlap import meteor, rouge, rouge_paper
from fabula_paper.scores.quality import Reader, quality


class Scorer:
    """Scores the texts of one report folder."""

    def __init__(self, bench: Bench, outcome: Outcome, *, raw: Path | None, say: Callable[[str], None]) -> None:
        self.bench, self.job, self.records, self.outcome = bench, bench.job, bench.records, outcome
        self.stories, self.say = EnglishStories(bench, raw), say

    def run(self, only: Sequence[str]) -> None:
        """Make every score that is not there yet; a scorer that is not installed leaves its cells `not run`."""
        systems = set(only) & set(BY_NAME)
        for kind, score in SCORES.items():
            if set(only) & set(SCORES) and kind not in only:
                continue
            try:
                names = [name for name in self.candidates(kind) if not systems or name.split(".")[0] in systems]
                for name, unit in ((name, f"{kind}/{name}") for name in names):
                    if self.records.done(unit):
                        self.outcome.skipped.append(unit)
                        continue
                    (system, _, detail), began = name.partition("."), time.perf_counter()
                    record = {**score(self, name), "kind": "estimate", "device": "cpu"}
                    self.bench.write(Unit(kind, system, detail), record, None, began)
                    self.outcome.done.append(unit)
                    self.say(f"{unit}  {time.perf_counter() - began:.1f} s")
            except UserError as error:
                self.outcome.failed[kind] = str(error)

    def candidates(self, kind: str) -> list[str]:
        """What a score can be made of, by the texts that are there; the most important first."""
        units = [name for name in self.records.names() if name.startswith(("sample/", "write/"))]
        units = [name for name in units if self.records.done(name)]
        samples = [name.removeprefix("sample/") for name in units if name.startswith("sample/")]
        if kind == "overlap":
            samples = [name for name in samples if name.split(".")[1] in TABLE_SETTINGS]
            return sorted(samples, key=lambda name: (not is_protocol(name), name))
        if kind == "prose":
            return [HUMAN, *(".".join(name.split(".")[::2]) for name in samples if f".{MIDDLE}." in name)]
        return [name.removeprefix("write/") for name in units if name.startswith("write/")]

    def overlap(self, name: str) -> dict[str, Any]:
        written, true = self.pairs(name)
        measured = meteor(written, true)
        # The paper's Perl program scores everything; at the small scale one system is enough.
        record = rouges(written, true, perl=self.job.scale.name != "small" or name.startswith("slds."))
        record |= {"n": len(written), "meteor": rounded(100 * measured.aggregate)}
        record["stories"]["meteor"] = rounded_list(100 * measured.scores, 2)
        return record

    def pairs(self, name: str) -> tuple[list[str], list[str]]:
        """Written and true sentences of a sample unit, each sentence of a story on its own line."""
        places, texts = SETTINGS[name.split(".")[1]], self.records.texts(f"sample/{name}")
        written = ["\n".join(english(line) for line in text["lines"]) for text in texts]
        true = [self.stories.true(text["id"]) for text in texts]
        return written, ["\n".join(story[place] for place in places) for story in true]

    def control(self, name: str) -> dict[str, Any]:
        texts = self.records.texts(f"write/{name}")
        S = np.array([text["tags"] for text in texts])
        runs = [[text["runs"][run] for text in texts] for run in range(len(texts[0]["runs"]))]
        greedy = [[text["greedy"] for text in texts]]
        record: dict[str, Any] = {"n": len(texts), "runs": len(runs)}
        draws, seed = self.job.scale.resamples, self.job.seed
        taggers: dict[str, Any] = {"vader": VaderTagger(), "afinn": LexiconTagger()}
        for lexicon, tagger in taggers.items():
            f1, interval = macro_f1(runs, S, tagger, draws, seed)
            (best,), best_interval = macro_f1(greedy, S, tagger, draws, seed)
            record[lexicon] = {
                "f1": rounded_list(f1), "mean": rounded(float(f1.mean())),
                "spread": rounded(float(f1.std(ddof=1))) if len(f1) > 1 else None, "greedy": rounded(float(best)),
                "interval": interval, "greedy_interval": best_interval,
            }  # fmt: skip
        for suffix, written in (("", runs), ("_greedy", greedy)):
            record[f"distinct_2{suffix}"] = rounded(float(np.mean([distinct(stories, 2) for stories in written])))
        return record

    @cached_property
    def reader(self) -> Reader:
        return Reader.of(self.bench.corpus)

    def prose(self, name: str) -> dict[str, Any]:
        stories = self.stories.middles(name)
        given = [place not in SETTINGS[MIDDLE] for place in range(SENTENCES)]
        return {"n": len(stories), **quality(stories, self.reader, [given] * len(stories), seed=self.job.seed)}


SCORES: dict[str, Callable[[Scorer, str], dict[str, Any]]] = {
    "overlap": Scorer.overlap, "control": Scorer.control, "prose": Scorer.prose,
}  # fmt: skip


def is_protocol(name: str) -> bool:
    """Whether a sample is a cell of the paper's own protocol."""
    system, _, sampler = name.split(".")
    return BY_NAME[system].paper and sampler == protocol(BY_NAME[system])


def rouges(written: list[str], true: list[str], *, perl: bool) -> dict[str, Any]:
    """ROUGE F1 in percent, by the paper's program where it runs, else by rouge-score (`by` says which).

    Sentences on lines of their own are joined for ROUGE-1, -2 and -L; `rougeLsum` is ROUGE-L with the lines apart.
    """
    joined = [[" ".join(text.splitlines()) for text in side] for side in (written, true)]
    if perl:
        try:
            paper = rouge_paper(*joined)
            # One sentence is its own text.
            by_lines = rouge_paper(written, true, by_lines=True) if any("\n" in text for text in true) else paper
            means = {metric: getattr(paper, metric) for metric in ("rouge1", "rouge2", "rougeL")}
            means["rougeLsum"] = by_lines.rougeL
            by = {"by": "ROUGE-1.5.5", "stories_by": "ROUGE-1.5.5"}
            return rouge_record(means, {**paper.stories, "rougeLsum": by_lines.stories["rougeL"]}) | by
        except UserError:  # Perl is not installed: rouge-score stands in
            pass
    stories = {**rouge(*joined), **rouge(written, true, ["rougeLsum"])}
    means = {name: float(values.mean()) for name, values in stories.items()}
    return rouge_record(means, stories) | {"by": "rouge-score"}


def rouge_record(means: dict[str, float], stories: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {name: rounded(100 * value) for name, value in means.items()}
    return record | {"stories": {name: rounded_list(100 * values, 2) for name, values in stories.items()}}


def macro_f1(
    runs: Sequence[Any], S: NDArray[np.int64], tagger: Any, draws: int, seed: int
) -> tuple[NDArray[np.float64], list[float | None]]:
    """The macro-F1 of each run in percent, of the tags S [story, sentence] that the stories were written along against
    the tagger's; and the bootstrap interval over stories of its mean. A state nobody has or guesses is left out."""
    counts = []
    for stories in runs:
        tags = [-1 if tag is None else tag for story in stories for tag in tagger.tag(list(story))]
        truth, guess = S, np.array(tags).reshape(S.shape)
        # Per state and story: hits, and true plus guessed counts; a resample sums them.
        each = [[((truth == k) & (guess == k)).sum(1), (truth == k).sum(1) + (guess == k).sum(1)]
                for k in range(len(tagger.labels))]  # fmt: skip
        counts.append(np.array(each, dtype=np.float64))

    def of_rows(rows: Any) -> Any:
        sums = [count[:, :, rows].sum(-1) for count in counts]
        with np.errstate(invalid="ignore"):
            return np.array([np.nanmean(200 * drawn[:, 0] / drawn[:, 1], axis=0) for drawn in sums])

    interval = bootstrap(lambda rows: of_rows(rows).mean(0), len(S), draws=draws, seed=seed)
    return of_rows(np.arange(len(S))[None])[:, 0], [rounded(interval.low), rounded(interval.high)]

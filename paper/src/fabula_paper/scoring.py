"""Scores of what was written, from the text files alone: no model of ours is needed, and no GPU.

overlap/<system>.<setting>.<sampler>    ROUGE and METEOR against the true sentences (two joined into one text)
control/<system>                        do stories follow their tags, by VADER and by lexicons nobody trained on
prose/<system>.<sampler>                counted: variety, repetition, what is copied from the training text
surprise/<system>.<sampler>             story perplexity under SmolLM2
mauve/<system>                          written stories as a whole beside the human ones
calibration/ratings                     each measure's correlation with people's ratings
opinion/<system>.<sampler>              several judges on the same stories (opinions.py), where they are installed
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fabula.errors import UserError
from fabula.metrics.record import rounded
from fabula_paper.bench import Bench, Job, OutOfTimeError, device_name
from fabula_paper.plan import BY_NAME, HUMAN, MIDDLE, SETTINGS, TABLE_SETTINGS, protocol
from fabula_paper.records import rounded_list
from fabula_paper.schedule import Outcome, Say
from fabula_paper.stories import StoryDataset, english, given_in

SCORES = ("overlap", "control", "prose", "mauve", "surprise", "calibration", "opinion")
METEOR_AT_ONCE = 6000
"""Pairs of units whose METEOR is asked for in one call of Java."""
LEXICONS = ("afinn", "nrc")
FIRST = ("slds", "lm", "s2s", "default", "lm-1024", "lds")
"""Whose stories the slow judge reads first."""


@dataclass
class Scorer:
    """Scores the texts of one report folder."""

    job: Job
    raw: Path | None = None
    ratings: Path | None = None
    say: Say = print

    def __post_init__(self) -> None:
        self.bench = Bench(self.job)
        self.dataset = StoryDataset(self.bench, self.raw)
        self.records = self.bench.records

    @cached_property
    def written(self) -> list[str]:
        """Units whose texts are there."""
        written = [name for name in self.records.names() if name.split("/")[0] in ("sample", "write")]
        return [name for name in written if self.records.done(name)]

    def run(self, only: Sequence[str] = ()) -> Outcome:
        """Every score that is not there yet; a scorer that is not installed leaves its cells `not run`."""
        outcome = Outcome()
        kinds = [kind for kind in SCORES if not set(only) & set(SCORES) or kind in only]
        systems = set(only) & set(BY_NAME)
        for kind in kinds:
            try:
                for name, record in getattr(self, f"do_{kind}")(outcome, systems):
                    self.records.write(name, {**self.common(name), **record})
                    outcome.done.append(name)
                    self.say(f"{name}  {record['seconds']:.1f} s")
                    self.job.check_time()
            except OutOfTimeError:
                outcome.waiting.append(kind)
                break
            except UserError as error:
                outcome.failed[kind] = str(error)
        return outcome

    def common(self, name: str) -> dict[str, Any]:
        stage, _, rest = name.partition("/")
        system, _, detail = rest.partition(".")
        return {
            "stage": stage, "system": system, "detail": detail, "scale": self.job.scale.name, "seed": self.job.seed,
            "data_hash": self.bench.corpus.hash, "kind": "estimate",
            "device": device_name(self.bench.device) if stage == "surprise" else "cpu",
        }  # fmt: skip

    def wanted(self, kind: str, rest: str, outcome: Outcome, systems: set[str]) -> bool:
        """Whether this score is asked for and not there yet."""
        if systems and rest.split(".")[0] not in systems:
            return False
        if self.records.done(f"{kind}/{rest}"):
            outcome.skipped.append(f"{kind}/{rest}")
            return False
        return True

    def pairs(self, unit: str) -> tuple[list[str], list[str]]:
        """Written and true sentences of a sample unit, several of a story on a line each."""
        setting = unit.split(".")[1]
        texts = self.records.texts(unit)
        told = ["\n".join(english(line) for line in text["lines"]) for text in texts]
        true = [self.dataset.true(text["id"]) for text in texts]
        return told, ["\n".join(story[place] for place in SETTINGS[setting]) for story in true]

    def do_overlap(self, outcome: Outcome, systems: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        from fabula_paper.scores.overlap import meteor

        names = [name.removeprefix("sample/") for name in self.written if name.startswith("sample/")]
        names = [name for name in names if name.split(".")[1] in TABLE_SETTINGS]
        names = [name for name in names if self.wanted("overlap", name, outcome, systems)]
        # The paper's own cells first.
        names.sort(key=lambda name: (not self.is_protocol(name), name.split(".")[0] not in FIRST, name))
        step = max(1, METEOR_AT_ONCE // self.job.scale.stories)
        for start in range(0, len(names), step):
            some = names[start : start + step]
            began = time.perf_counter()
            sets = [self.pairs(f"sample/{name}") for name in some]
            meteors = meteor(*sets)
            for name, pair, m in zip(some, sets, meteors, strict=True):
                record = {
                    **rouges(*pair, perl=self.by_perl(name)),
                    "n": len(pair[0]),
                    "meteor": rounded(100 * m.aggregate),
                }
                record["stories"]["meteor"] = percents(m.scores)
                yield f"overlap/{name}", record | {"seconds": round(time.perf_counter() - began, 2)}
                began = time.perf_counter()

    def is_protocol(self, name: str) -> bool:
        system, _, sampler = name.split(".")
        return BY_NAME[system].paper and sampler == protocol(BY_NAME[system])

    def by_perl(self, name: str) -> bool:
        """Whether the paper's own Perl scores it: always, but at the small scale one system is enough."""
        return self.job.scale.name == "full" or name.startswith("slds.")

    def do_control(self, outcome: Outcome, systems: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        import torch

        from fabula.corpus.taggers.protocol import Tagger
        from fabula.corpus.taggers.sentiment import VaderTagger
        from fabula.metrics.control import judge
        from fabula_paper.scores.lexicon import LexiconTagger

        taggers: dict[str, Tagger] = {"vader": VaderTagger(), **{name: LexiconTagger(name) for name in LEXICONS}}
        for name in self.told(outcome, systems, "control"):
            began = time.perf_counter()
            texts = self.records.texts(f"write/{name}")
            S = torch.tensor([text["tags"] for text in texts])
            runs = [[text["runs"][run] for text in texts] for run in range(len(texts[0]["runs"]))]
            greedy = [[text["greedy"] for text in texts]]
            record: dict[str, Any] = {"n": len(texts), "runs": len(runs)}
            for tagger_name, tagger in taggers.items():
                sampled, best = judge(runs, S, tagger), judge(greedy, S, tagger)
                record[tagger_name] = {
                    "f1": rounded_list(sampled.f1), "mean": rounded(sampled.mean), "spread": rounded(sampled.spread),
                    "greedy": rounded(best.mean),
                    "interval": f1_interval(runs, S, tagger, self.job.scale.resamples, self.job.seed),
                    "greedy_interval": f1_interval(greedy, S, tagger, self.job.scale.resamples, self.job.seed),
                }  # fmt: skip
                record["distinct_2"] = rounded(float(sampled.distinct_2.mean()))
                record["distinct_2_greedy"] = rounded(float(best.distinct_2.mean()))
            yield f"control/{name}", record | {"seconds": round(time.perf_counter() - began, 2)}

    def told(self, outcome: Outcome, systems: set[str], kind: str) -> list[str]:
        """Systems that have written whole stories; for control only those that take tags."""
        names = [name.removeprefix("write/") for name in self.written if name.startswith("write/")]
        if kind == "control":
            names = [name for name in names if BY_NAME[name].has_tags or BY_NAME[name].reads_tags]
        return [name for name in names if self.wanted(kind, name, outcome, systems)]

    def middles(self, kind: str, outcome: Outcome, systems: set[str]) -> list[str]:
        """Middle-three units as system.sampler, and the human middle; the most looked-at first."""
        names = [name.removeprefix("sample/") for name in self.written if f".{MIDDLE}." in name]
        short = [f"{name.split('.')[0]}.{name.split('.')[2]}" for name in names]
        short.sort(key=lambda name: (name.split(".")[0] not in FIRST, "peek" in name, name))
        return [name for name in [HUMAN, *short] if self.wanted(kind, name, outcome, systems)]

    def middle(self, name: str, n: int | None = None) -> list[list[str]]:
        """Whole stories of a middle-three unit, or the human ones; the first n."""
        ids = [self.bench.test.ids[row] for row in self.bench.rows[:n]]
        if name == HUMAN:
            return [self.dataset.true(one) for one in ids]
        system, sampler = name.split(".")
        texts = {text["id"]: text["lines"] for text in self.records.texts(f"sample/{system}.{MIDDLE}.{sampler}")}
        return [self.dataset.filled(one, texts[one], MIDDLE) for one in ids if one in texts]

    def do_prose(self, outcome: Outcome, systems: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        from fabula_paper.scores.quality import Reader, quality

        names = self.middles("prose", outcome, systems)
        reader = Reader.of(self.bench.corpus) if names else None
        for name in names:
            assert reader is not None
            began = time.perf_counter()
            stories = self.middle(name)
            found = quality(stories, reader, [given_in(MIDDLE)] * len(stories)).to_json(seed=self.job.seed)
            yield f"prose/{name}", {"n": len(stories), **found, "seconds": round(time.perf_counter() - began, 2)}

    def do_surprise(self, outcome: Outcome, systems: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        from fabula_paper.scores.pretrained import context_gain, story_perplexity

        for name in self.middles("surprise", outcome, systems):
            if self.job.scale.name == "small" and name not in (HUMAN, "slds.bridge", "lm.rerank"):
                continue
            began = time.perf_counter()
            stories = self.middle(name, self.job.scale.read)
            found = story_perplexity(stories, [given_in(MIDDLE)] * len(stories), device=self.job.device)
            record = {
                "n": len(stories), "ppl": rounded(found.perplexity), "written_ppl": rounded(found.written_perplexity),
                "context_gain": rounded_list(context_gain(stories, device=self.job.device)),
                "stories": {
                    "nats": rounded_list(found.nats), "tokens": [int(count) for count in found.tokens],
                    "written_nats": rounded_list(found.written_nats),
                    "written_tokens": [int(count) for count in found.written_tokens],
                },
            }  # fmt: skip
            yield f"surprise/{name}", record | {"seconds": round(time.perf_counter() - began, 2)}

    def do_mauve(self, outcome: Outcome, systems: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        from fabula_paper.scores.mauve import mauve
        from fabula_paper.scores.pretrained import embed

        human: Any = None
        for name in self.told(outcome, systems, "mauve"):
            began = time.perf_counter()
            texts = self.records.texts(f"write/{name}")
            if human is None:
                human = embed([" ".join(self.dataset.true(text["id"])) for text in texts])
            if self.job.scale.name == "small" and name not in FIRST:
                continue
            own = embed([" ".join(text["runs"][0]) for text in texts])
            found = mauve(own, human, seed=self.job.seed)
            record = {"n": len(texts), "mauve": rounded(found.value), "low": rounded(found.low)}
            record |= {"high": rounded(found.high), "se": rounded(found.se)}
            yield f"mauve/{name}", record | {"seconds": round(time.perf_counter() - began, 2)}

    def do_opinion(self, outcome: Outcome, systems: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        from fabula_paper.opinions import opinions

        # At the small scale only where it is asked for: three pretrained models are loaded.
        return opinions(self, outcome, systems) if self.job.scale.name == "full" else iter(())

    def do_calibration(self, outcome: Outcome, systems: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.ratings is None or systems or not self.wanted("calibration", "ratings", outcome, systems):
            return
        from fabula_paper.scores.calibrate import calibrate, measures_of, read_ratings
        from fabula_paper.scores.quality import Reader

        began = time.perf_counter()
        rated = read_ratings(self.ratings)
        if self.job.scale.name == "small":
            rated = rated[: self.job.scale.stories]
        measures = measures_of([story.sentences for story in rated], Reader.of(self.bench.corpus))
        figures = calibrate(measures, [story.rating for story in rated], seed=self.job.seed)
        record = {
            name: {
                "pearson": rounded(found.pearson.value), "low": rounded(found.pearson.low),
                "high": rounded(found.pearson.high), "spearman": rounded(found.spearman.value), "n": found.n,
            }
            for name, found in figures.items()
        }  # fmt: skip
        seconds = round(time.perf_counter() - began, 2)
        yield "calibration/ratings", {"n": len(rated), "measures": record, "seconds": seconds}


def rouges(told: list[str], true: list[str], *, perl: bool) -> dict[str, Any]:
    """ROUGE F1 in percent, story by story: by the paper's own program where it runs, else by a quick one (`by` says).

    Sentences on lines of their own are joined for ROUGE-1, -2 and -L. `rougeLsum` is ROUGE-L with the lines left apart.
    """
    from fabula_paper.scores.overlap import rouge, rouge_paper

    joined = [[" ".join(text.splitlines()) for text in side] for side in (told, true)]
    stories = {**rouge(*joined), **rouge(told, true, ["rougeLsum"])}
    found: dict[str, Any] = {name: rounded(100 * float(values.mean())) for name, values in stories.items()}
    found["by"] = "rouge-score"
    if perl:
        try:
            paper = rouge_paper(*joined)
            # One sentence is its own text.
            by_lines = rouge_paper(told, true, by_lines=True) if any("\n" in text for text in true) else paper
        except UserError:  # no Perl here: the quick program's figures stand
            return found | {"stories": {name: percents(values) for name, values in stories.items()}}
        own = {"rouge1": paper.rouge1, "rouge2": paper.rouge2, "rougeL": paper.rougeL, "rougeLsum": by_lines.rougeL}
        found |= {name: rounded(100 * value) for name, value in own.items()} | {
            "by": "ROUGE-1.5.5",
            "stories_by": "ROUGE-1.5.5",
        }
        stories = {**paper.stories, "rougeLsum": by_lines.stories["rougeL"]}
    return found | {"stories": {name: percents(values) for name, values in stories.items()}}


def percents(shares: Any) -> list[float]:
    """Story by story; what the tables print is the mean of these."""
    return rounded_list(100 * shares, 2)


def f1_interval(
    runs: Sequence[Sequence[Sequence[str]]], S: Any, tagger: Any, resamples: int, seed: int
) -> list[float | None]:
    """Bootstrap interval over stories of the macro-F1, the mean over runs."""
    from fabula.metrics.bootstrap import bootstrap

    K, n = len(tagger.labels), len(S)
    truth, counts = S.numpy().reshape(n, -1), []
    for stories in runs:
        judged = np.array([-1 if tag is None else tag for story in stories for tag in tagger.tag(list(story))])
        guess = judged.reshape(n, -1)
        # Of every story: hits, true and guessed counts of each state; a resample adds them up.
        own = [[((truth == k) & (guess == k)).sum(1), (truth == k).sum(1) + (guess == k).sum(1)] for k in range(K)]
        counts.append(np.array(own, dtype=np.float64))

    def macro(rows: Any) -> Any:
        found = []
        for own in counts:
            drawn = own[:, :, rows].sum(-1)
            with np.errstate(invalid="ignore"):
                found.append(np.nanmean(200 * drawn[:, 0] / drawn[:, 1], axis=0))
        return np.mean(found, axis=0)

    found = bootstrap(macro, n, draws=resamples, seed=seed)
    return [rounded(found.low), rounded(found.high)]

"""Tables that the paper has not: what tracks people better than ROUGE, and how well it does."""

from __future__ import annotations

import numpy as np

from fabula.metrics.bootstrap import difference, mean, ratio
from fabula_paper.figures import Figure, Found, Row, Table, alike, interval_figure, sampler_name
from fabula_paper.plan import BY_NAME, HUMAN, JUDGE, LONGER, PLAIN, System, samplers_of, timed

LEADS = {
    HUMAN: ("people", "–"), PLAIN: ("LM", "left to right, blind"),
    f"{HUMAN}.long": ("people", "–"), f"{PLAIN}.long": (BY_NAME[LONGER["lm"]].title, "left to right, blind"),
}  # fmt: skip
"""The two anchors of look-ahead, by each of the two judges."""


def middle_names(found: Found) -> list[tuple[str, System | None, str]]:
    """The rows of the middle-three table: record suffix, system, sampler."""
    names: list[tuple[str, System | None, str]] = [(HUMAN, None, ""), (PLAIN, None, "")]
    names += [(name, None, "") for name in LEADS if name.endswith(".long") and found.get(f"lookahead/{name}")]
    for system in found.systems:
        if "sample" in system.stages:
            names += [(f"{system.name}.{sampler}", system, sampler) for sampler in samplers_of(system)]
    return names


def beyond(found: Found) -> Table:
    rows = []
    for name, system, sampler in middle_names(found):
        log_p = found.log_p_ending(name)
        prose = found.get(f"prose/{name}") or {}
        score = Figure()
        anchors = found.anchors(name)
        if name.startswith((HUMAN, PLAIN)) and log_p is not None:
            score = Figure(words="1" if name.startswith(HUMAN) else "0")
        elif log_p is not None and anchors is not None:
            human, plain = anchors
            score = interval_figure(
                ratio(log_p - plain, human - plain, draws=found.scale.resamples), f"lookahead/{name}"
            )
        outside, people = found.outside_ending(name), found.outside_ending(HUMAN)
        lost = None
        if outside is not None and people is not None and name != HUMAN:
            lost = difference(*alike(outside, people), draws=found.scale.resamples)
        speed = found.get(f"speed/{name}")
        untimed = "" if system is not None and sampler in timed(system) else "–"
        shares = [
            Figure(
                ours=100 * part["value"],
                low=100 * part["low"],
                high=100 * part["high"],
                record=f"prose/{name}",
                digits=1,
            )
            if (part := prose.get(measure))
            else Figure(digits=1)
            for measure in ("repeated_sentences", "copied_4grams")
        ]
        rows.append(
            Row(
                lead=(
                    *(LEADS[name] if system is None else (found.title(system), sampler_name(sampler, found.scale))),
                    judge_name(found, name),
                ),
                figures=(
                    interval_figure(found.surprise(name), f"surprise/{name}", digits=1),
                    interval_figure(found.surprise(name, ""), f"surprise/{name}", digits=1),
                    interval_figure(found.context_gain(name), f"surprise/{name}", digits=3),
                    interval_figure(
                        None if log_p is None else mean(log_p, draws=found.scale.resamples), f"lookahead/{name}"
                    ),
                    score,
                    Figure(words="0") if name == HUMAN else interval_figure(lost, f"surprise/{name}"),
                    Figure(ours=prose.get("distinct_2"), record=f"prose/{name}", digits=3),
                    *shares,
                    Figure(ours=prose.get("longest_copied_mean"), record=f"prose/{name}", digits=1),
                    Figure(ours=speed["seconds_a_story_together"], record=f"speed/{name}", digits=3)
                    if speed
                    else Figure(words=untimed),
                    Figure(ours=speed["seconds_one_story"], record=f"speed/{name}", digits=3)
                    if speed
                    else Figure(words=untimed),
                ),
                own=system is not None and not system.paper,
            )
        )
    return Table(
        title="Beyond: first and last sentence given, the middle three written",
        intro="Story perplexity under SmolLM2-135M, which none of the systems has met: of the written sentences in "
        "their story, and of the whole story. Look-ahead: log P(last sentence | first, what was written) under a "
        "language model that only judges, and as a score from 0 (an LM left to right, blind to the "
        "ending) to 1 (the human one). That judge is of the family of the models that rank by the ending, so most "
        "of the score is the ranking: LDS, whose Z is empty, has it too. The paper's systems were judged by a judge "
        "trained by the one rule, ours before that by a better one of the same recipe: log P and scores compare within "
        "a judge alone. SmolLM2, which is of nobody's family, "
        "judges beside it: nats that the given sentences cost more than after people's own middle, smaller is "
        f"better. {agreement(found)}The matched control of 50 samples is a language model's best of 50. r: the "
        "measure's correlation with people's ratings, signed so that plus is as hoped (table below).",
        lead=("system", "sampler", "judge"),
        columns=(
            f"story PPL, written{found.tracks('- story perplexity')}", "story PPL, all",
            f"what context saves, nats a token{found.tracks('what context saves')}", "log P(ending)",
            "look-ahead score", "the same by SmolLM2, nats above people's", f"distinct-2{found.tracks('distinct-2')}",
            f"repeated sentences, %{found.tracks('- repeated sentences')}",
            f"4-grams copied from training, %{found.tracks('- copied 4-grams')}",
            f"longest copied n-gram, words{found.tracks('- longest copied')}", "s a story, in a batch", "s, one story",
        ),
        rows=tuple(rows),
        beside_paper=(False,) * 12,
        # Of story perplexity people's own is the best, not the least.
        larger_is_better=(None, None, True, True, True, False, True, False, False, False, False, False),
    )  # fmt: skip


def judge_name(found: Found, name: str) -> str:
    """Which judge a row's look-ahead is by, and how good a model it is."""
    judge = found.judge_of(name)
    ppl = found.ppl(judge, "nll") if judge else None
    return "–" if ppl is None else f"{BY_NAME[judge].title} (PPL {ppl.value:.1f})"


def agreement(found: Found) -> str:
    """How far the two judges of look-ahead agree, over systems and samplers."""
    pairs = []
    for name, system, _ in middle_names(found):
        own, outside = found.log_p_ending(name), found.outside_ending(name)
        if system is not None and own is not None and outside is not None and found.judge_of(name) == JUDGE:
            own, outside = alike(own, outside)
            pairs.append((float(own.mean()), -float(outside.mean())))
    if len(pairs) < 3:
        return ""
    r = float(np.corrcoef(np.array(pairs).T)[0, 1])
    return f"Over {len(pairs)} ways of filling in the two judges' means correlate by {r:.2f}. "


def written(found: Found) -> Table:
    rows = []
    for system in found.systems:
        if "write" not in system.stages:
            continue
        record, where = found.get(f"mauve/{system.name}"), f"mauve/{system.name}"
        cloze = found.get(f"cloze/{system.name}")
        figures = [
            Figure(ours=record["mauve"], low=record["low"], high=record["high"], record=where, digits=3)
            if record
            else Figure()
        ]
        for part in ("story", "ending_only", "difference"):
            if system.reads_tags or "cloze" not in system.stages:
                figures.append(Figure(words="–"))
            elif cloze is None:
                figures.append(Figure())
            elif found.loose(system.name):
                figures.append(Figure(words="bound too loose"))
            else:
                interval = mean(cloze["correct"][part], draws=found.scale.resamples)
                figures.append(
                    Figure(
                        ours=100 * interval.value, low=100 * interval.low, high=100 * interval.high,
                        record=f"cloze/{system.name}", digits=1,
                    )
                )  # fmt: skip
        rows.append(Row(lead=(found.title(system),), figures=tuple(figures), own=not system.paper))
    return Table(
        title="Beyond: stories as a whole, and right endings",
        intro="MAUVE between the stories a system writes (from the test stories' tags; LM and LDS: from nothing) and "
        "the human ones, on MiniLM features of whole stories; only comparable within this table. Story Cloze: the "
        "share of test questions where the right ending makes the story more probable; the ending alone, which needs "
        "no story, as a control; and log p(ending | story) - log p(ending).",
        lead=("system",),
        columns=("MAUVE", "cloze, with story, %", "cloze, ending alone, %", "cloze, difference, %"),
        rows=tuple(rows),
        beside_paper=(False,) * 4,
        larger_is_better=(True,) * 4,
    )


def calibration(found: Found) -> Table | None:
    record = found.get("calibration/ratings")
    if record is None:
        return None
    rows = [
        Row(
            lead=(name,),
            figures=(
                Figure(ours=own["pearson"], low=own["low"], high=own["high"], record="calibration/ratings", digits=3),
                Figure(ours=own["spearman"], record="calibration/ratings", digits=3),
            ),
        )
        for name, own in record["measures"].items()
    ]
    return Table(
        title="Which of these measures tracks people",
        intro=f"Correlation with the mean rating of {record['n']} machine-written stories (seven raters each, UNION). "
        "For comparison, on the same stories: BLEU .03, BLEURT .23, minus perplexity .25, UNION .37.",
        lead=("measure, larger meant to be better",),
        columns=("Pearson", "Spearman"),
        rows=tuple(rows),
        beside_paper=(False, False),
        larger_is_better=(True, True),
    )

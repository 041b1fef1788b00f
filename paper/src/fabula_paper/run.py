"""One call of `fabula reproduce`: run the units, score the texts, write the report."""

from __future__ import annotations

import csv
import importlib.util
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fabula import api
from fabula.corpus.dataset import Corpus
from fabula.corpus.tokenize import detokenise
from fabula.device import pick_device
from fabula.errors import UserError
from fabula_paper.bench import Bench, Job
from fabula_paper.plan import BY_NAME, FULL, SENTENCES, SMALL, narrowed, systems_for, units_of
from fabula_paper.schedule import Outcome, Say, run_units
from fabula_paper.scoring import SCORES, Scorer
from fabula_paper.stories import EnglishStories, export_pairs, take_lines

DEVICE_GIB, HOST_GIB = 12.0, 1.0
"""Memory for the scores of a sampler; several samplers share a card."""


def reproduce(
    out: Path,
    *,
    data: Path | None = None,
    only: Sequence[str] = (),
    small: bool = False,
    device: str = "auto",
    jobs: int = 1,
    deadline: float | None = None,
    train_until: float | None = None,
    models: Mapping[str, Path] | None = None,
    changes: Mapping[str, Any] | None = None,
    cloze: Path | None = None,
    recipes: Path | None = None,
    texts: bool = False,
    raw: Path | None = None,
    ratings: Path | None = None,
    bound_samples: int | None = None,
    lines: Mapping[str, Path] | None = None,
    say: Say = print,
) -> Outcome:
    """Do every unit that is not done yet, score the texts if the scorers are installed, and write the report."""
    began, scale = time.time(), SMALL if small else FULL
    scale = replace(scale, bound_samples=bound_samples or scale.bound_samples)
    where = pick_device(device)
    given = dict(models or {})
    for key in changes or {}:
        if ":" in key and key.partition(":")[0] not in BY_NAME:
            raise UserError(f"--set {key}: no such system; systems: {', '.join(BY_NAME)}", field="set")
    folder = corpus_folder(data, out, small=small)
    job = Job(
        data=folder,
        out=out,
        recipes=recipes_folder(recipes),
        scale=scale,
        device=str(where),
        models=given if small else {"default": api.find("small"), **given},
        changes=dict(changes or {}),
        cloze=cloze_file(cloze, folder, out, small=small),
        deadline=None if deadline is None else began + deadline,
        train_until=None if train_until is None else began + train_until,
        memory_gib=DEVICE_GIB if where.type == "cuda" else HOST_GIB,
    )
    bench = Bench(job)
    taken = [take_lines(bench, name, file) for name, file in (lines or {}).items()]
    for system in systems_for(given):
        bench.recipe(system)  # an error in a recipe or a change is reported at once
    units = [unit for unit in units_of(systems_for(given)) if unit.stage != "cloze" or job.cloze is not None]
    words = set(only) - {""}
    unit_words = words - {"score", "report", *SCORES}
    outcome = Outcome()
    if not words or unit_words:
        outcome = run_units(job, narrowed(units, unit_words), jobs=jobs, say=say)
    outcome.done += taken
    if words & set(SCORES) or ((not words or "score" in words) and has_scorers()):
        scored = Scorer(bench, raw=raw, ratings=ratings, say=say).run(sorted(words))
        outcome.done += scored.done
        outcome.skipped += scored.skipped
        outcome.waiting += scored.waiting
        outcome.failed |= scored.failed
    if not words or "report" in words:
        write_report(bench, raw=raw, texts=texts)
        say(f"{out / 'index.html'}")
    return outcome


def has_scorers() -> bool:
    """Whether the scorers are installed; a machine without them trains and writes only."""
    return all(importlib.util.find_spec(name) is not None for name in ("vaderSentiment", "rouge_score"))


def write_report(bench: Bench, *, raw: Path | None, texts: bool) -> None:
    """Write index.html, report.md and what people are asked, from the records that are there."""
    from fabula_paper.report import write_pages

    stories = EnglishStories(bench, raw)
    write_pages(bench.records, bench.job.scale, stories.true if texts else None)
    export_pairs(stories, bench.job.out)


def corpus_folder(data: Path | None, out: Path, *, small: bool) -> Path:
    """The prepared corpus; at the small scale a toy corpus below REPORT if none is given."""
    if data is not None:
        return data
    if not small:
        raise UserError(
            "--data is missing: a folder made by fabula prepare, or --small for the toy corpus", field="data"
        )
    folder = out / "toy"
    if not (folder / "manifest.json").exists():
        from fabula.corpus.prepare import prepare_stories
        from fabula.corpus.toy import toy_splits

        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write into {out}: {error.strerror}", field="out") from error
        provenance = {"toy": SMALL.toy, "seed": 0}
        prepare_stories(toy_splits(SMALL.toy, 0), folder, provenance=provenance, jobs=1, progress=False)
    return folder


def cloze_file(given: Path | None, data: Path, out: Path, *, small: bool) -> Path | None:
    """Story Cloze as word ids: as given (.npz), encoded now (CSV), or a toy file at the small scale."""
    if given is not None and given.suffix == ".npz":
        if not given.is_file():
            raise UserError(f"--cloze {given} does not exist", field="cloze")
        return given
    if given is None and not small:
        return None
    from fabula_paper.scores.cloze import prepare_cloze

    target = out / "runs" / "cloze.npz"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        prepare_cloze(given or toy_cloze(data, target.with_suffix(".csv")), data, target)
    return target


def toy_cloze(data: Path, target: Path) -> Path:
    """Test stories with another story's ending as the wrong one, as a CSV file."""
    corpus = Corpus.open(data)
    test = corpus.split("test")
    stories = [
        [detokenise(corpus.vocabulary.decode(s.tolist())) for s in test.sentences(row)] for row in range(len(test))
    ]
    stories = [story for story in stories if len(story) == SENTENCES]
    with target.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        names = [f"InputSentence{n}" for n in range(1, 5)]
        rows.writerow([*names, "RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2", "AnswerRightEnding"])
        for n, story in enumerate(stories):
            endings = [story[-1], stories[n - 1][-1]]
            rows.writerow([*story[:-1], *endings[:: 1 if n % 2 else -1], 1 if n % 2 else 2])
    return target


def recipes_folder(named: Path | None) -> Path:
    """The recipes' folder: as named, or the clone's."""
    folder = named or Path(api.__file__).parents[2] / "recipes"
    if not (folder / "paper" / "slds.toml").is_file():
        hint = "it has no paper/slds.toml" if named else "run from a clone, or name them with --recipes"
        raise UserError(f"the paper's recipes are not in {folder}: {hint}", field="recipes")
    return folder

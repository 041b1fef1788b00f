"""ROUGE and METEOR: by hand, on the same text, and the paper's program against the quick one.

`make test` installs Perl's XML::Parser and Java (`make scorers`); only where they cannot be had are these skipped.
"""

import random
import shutil
import subprocess

import numpy as np
import pytest

from fabula.errors import UserError
from fabula_paper.scores.overlap import meteor, rouge, rouge_paper
from fabula_paper.scoring import rouges

perl = pytest.mark.skipif(
    shutil.which("perl") is None
    or subprocess.run(["perl", "-MXML::Parser", "-MDB_File", "-e", "1"], capture_output=True, check=False).returncode
    > 0,
    reason="ROUGE-1.5.5 needs Perl's XML::Parser: make scorers",
)
java = pytest.mark.skipif(shutil.which("java") is None, reason="METEOR needs Java: make scorers")
TEXT = """the dog ran to a house and cried because he was very happy with his new friends children walking played games
went studies at night . , she took them home again"""
WORDS = TEXT.split()
TOLD = ["Tom ran home.\nHe was sad.", "She sang a song.\nIt was late."]
TRUE = ["He was sad at night.\nTom ran home fast.", "It was late.\nShe sang a long song."]


def pairs(n: int) -> tuple[list[str], list[str]]:
    """Made-up sentences, and the same with two words of five changed."""
    rng = random.Random(0)
    true = [" ".join(rng.choices(WORDS, k=rng.randint(4, 16))) + "." for _ in range(n)]
    changed = [" ".join(rng.choice(WORDS) if rng.random() < 0.4 else word for word in t.split()) for t in true]
    return changed, true


def test_rouge_by_hand() -> None:
    """the cat sat / the cat ran off: 2 of 3 and 2 of 4 words, 1 of 2 and 1 of 3 pairs, `the cat` in order."""
    found = rouge(["the cat sat"], ["the cat ran off"])
    assert found["rouge1"][0] == pytest.approx(2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4))
    assert found["rouge2"][0] == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert found["rougeL"][0] == pytest.approx(2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4))
    assert rouge(["dogs"], ["dog"])["rouge1"][0] == 1  # stemmed


@perl
def test_both_routes_to_rouge_agree() -> None:
    """To 0.002: the paper's program averages over 1,000 bootstrap draws, and knows WordNet's irregular forms."""
    written, true = pairs(200)
    quick, paper = rouge(written, true), rouge_paper(written, true)
    for kind, figures in quick.items():
        assert getattr(paper, kind) == pytest.approx(figures.mean(), abs=0.002), kind


@perl
def test_the_same_text_has_all_of_it() -> None:
    _, true = pairs(20)
    assert all((scores == 1).all() for scores in rouge(true, true).values())
    # Every pair by itself, in its place: the mean is the aggregate up to the program's resampling.
    mixed = rouge_paper([*true[:-1], "nothing alike"], true)
    assert mixed.stories["rouge1"][:-1].tolist() == [1.0] * (len(true) - 1)
    assert mixed.stories["rouge1"][-1] < 1
    assert float(mixed.stories["rougeL"].mean()) == pytest.approx(mixed.rougeL, abs=0.02)
    paper = rouge_paper(true, true)
    assert (paper.rouge1, paper.rouge2, paper.rougeL) == (1, 1, 1)


@pytest.mark.system
@java
def test_meteor_of_every_pair() -> None:
    """An identical text scores 1, a synonym more than a stranger, and each pair's figure is its own."""
    written = ["a big dog ran home", "the vehicle was quick", "the vehicle was quick", "."]
    true = ["a big dog ran home", "the car was fast", "my aunt likes soup", "a dog"]
    found = meteor(written, true)
    assert found.scores[0] == pytest.approx(1)
    assert found.scores[0] > found.scores[1] > found.scores[2]
    assert found.scores[3] == 0
    assert found.scores.min() < found.aggregate < found.scores.max()
    np.testing.assert_allclose(meteor(written[1:2], true[1:2]).scores, found.scores[1:2])


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="apt-get install perl"):
        rouge_paper(["a"], ["a"])
    with pytest.raises(UserError, match="Java"):
        meteor(["a"], ["a"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pycocoevalcap not found: .*scorers\.txt"):
        meteor(["a"], ["a"])


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

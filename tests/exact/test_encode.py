"""A split's arrays and counts are those that one would make of its stories by hand."""

from pathlib import Path

import numpy as np
import pytest

from fabula.corpus.dataset import ARRAYS, offsets
from fabula.corpus.encode import LISTED, Split
from fabula.corpus.prepare import hold_out_stories
from fabula.corpus.read import Rejected, Story
from fabula.corpus.transitions import Transitions
from fabula.corpus.vocabulary import Vocabulary

LABELS = ("down", "up")


def stories(n: int) -> list[Story | Rejected]:
    rng = np.random.default_rng(0)
    found: list[Story | Rejected] = []
    for i in range(n):
        sentences = [f"word{rng.integers(9)} came home ." for _ in range(rng.integers(2, 6))]
        tags = [[None, *LABELS][rng.integers(3)] for _ in sentences]
        found.append(Story(str(i), sentences, tags=tags))
        if i % 7 == 0:
            found.append(Rejected("f", i, "no story"))
    return found


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_blocks_make_the_arrays_and_the_transitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr("fabula.corpus.encode.BLOCK", rows)
    items, split = stories(80), Split("train")
    split.encode(iter(items), None)
    whole = [item for item in items if isinstance(item, Story)]
    tags = np.asarray([-1 if tag is None else LABELS.index(tag) for story in whole for tag in story.tags or ()])
    ends = offsets([len(story.sentences) for story in whole])
    expected = Transitions.count(tags, ends, 2)
    vocabulary = Vocabulary.from_counts(split.words, cutoff=2)
    files, tag_counts, transitions = split.write(tmp_path, vocabulary, LABELS, own=True, smoothing=0.1)
    assert transitions.initial.tolist() == expected.initial.tolist()
    assert transitions.following.tolist() == expected.following.tolist()
    arrays = {name: np.load(tmp_path / f"train.{name}.npy") for name in ARRAYS}
    assert arrays["story_offsets"].tolist() == ends.tolist()
    assert arrays["tags"].tolist() == tags.tolist()
    assert arrays["characters"].tolist() == [len(sentence) for story in whole for sentence in story.sentences]
    assert tag_counts.tolist() == [int((tags == state).sum()) for state in (-1, 0, 1)]
    text = [word for story in whole for sentence in story.sentences for word in [*sentence.split(), "<eos>"]]
    assert [vocabulary.words[i] for i in arrays["tokens"]] == text
    assert [text[end - 1] for end in arrays["sentence_offsets"][1:]] == ["<eos>"] * len(tags)
    assert (tmp_path / "train.ids.txt").read_text().split() == [story.id for story in whole]
    assert sorted(files) == sorted([*(f"train.{array}.npy" for array in ARRAYS), "train.ids.txt"])
    assert split.unknown == 0
    assert (split.rejections, len(split.rejected)) == (12, LISTED)


def test_the_held_out_stories_are_so_many_and_the_rest_is_kept() -> None:
    items = stories(200)
    kept, drawn = hold_out_stories(lambda: iter(items), 0.1, seed=3)
    assert drawn is not None
    kept_ids = [item.id for item in kept if isinstance(item, Story)]
    drawn_ids = [item.id for item in drawn if isinstance(item, Story)]
    assert len(drawn_ids) == 20
    assert sorted([*kept_ids, *drawn_ids], key=int) == [str(i) for i in range(200)]
    assert kept_ids == sorted(kept_ids, key=int)
    others = [[item.id for item in hold_out_stories(lambda: iter(items), 0.1, seed)[1] or ()] for seed in (3, 4)]  # type: ignore[union-attr]
    assert others[0] == drawn_ids != others[1]
    assert hold_out_stories(lambda: iter(items[:1]), 0.1, 0)[1] is None

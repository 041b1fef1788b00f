"""The prepared folder holds exactly the stories that went in, and notices every damage done to it."""

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fabula.corpus.dataset import ARRAYS, SCHEMA, Corpus, seal
from fabula.corpus.prepare import prepare, prepare_stories
from fabula.corpus.taggers.sentiment import VaderTagger
from fabula.corpus.tokenize import tokenise
from fabula.corpus.toy import toy_splits
from fabula.corpus.vocabulary import EOS, PAD, SPECIALS, UNK, Vocabulary
from fabula.errors import UserError

N, SEED, CUTOFF = 120, 11, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exact") / "toy"
    prepare_stories(toy_splits(N, SEED), out, provenance={"toy": N}, cutoff=CUTOFF, progress=False)
    return out


def test_every_story_of_every_split_is_read_back(folder: Path) -> None:
    """Against the plainest encoding: tokenise, count, look up."""
    splits = toy_splits(N, SEED)
    counts = Counter(word for story in splits["train"] for sentence in story.sentences for word in tokenise(sentence))
    kept = {word for word, count in counts.items() if count >= CUTOFF}
    assert 0 < len(kept) < len(counts)
    corpus = Corpus.open(folder)
    assert set(corpus.vocabulary.words) == kept | set(SPECIALS)
    assert corpus.labels == ("negative", "neutral", "positive")
    assert corpus.splits == ("train", "valid", "test")
    for name, stories in splits.items():
        held = corpus.split(name)
        assert len(held) == len(stories)
        assert held.ids == [story.id for story in stories]
        for number, story in enumerate(stories):
            words = [[word if word in kept else "<unk>" for word in tokenise(sentence)] for sentence in story.sentences]
            assert [corpus.vocabulary.decode(ids.tolist()) for ids in held.sentences(number)] == words
            assert [corpus.labels[tag] for tag in held.story_tags(number)] == story.tags
            first, last = held.story_offsets[number], held.story_offsets[number + 1]
            assert held.characters[first:last].tolist() == [len(sentence) for sentence in story.sentences]
        closes = np.flatnonzero(held.tokens == EOS)
        np.testing.assert_array_equal(closes + 1, held.sentence_offsets[1:])  # <eos> at the end of each, and only there
        assert held.tokens.dtype == np.uint16
        assert isinstance(held.tokens, np.memmap)


def test_vocabulary_order_unknowns_and_specials() -> None:
    vocabulary = Vocabulary.from_counts({"b": 2, "a": 2, "c": 1, "<eos>": 2, "d": 3}, cutoff=2)
    assert vocabulary.words == (*SPECIALS, "d", "a", "b")  # by count, then by the alphabet
    assert len(vocabulary) == 7
    assert vocabulary.encode(["a", "z", "<eos>", "<pad>"]) == [5, UNK, UNK, UNK]  # text cannot spell a special
    assert vocabulary.decode([PAD, 5]) == ["<pad>", "a"]
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary
    with pytest.raises(ValueError, match="begins with"):
        Vocabulary(("a",))
    with pytest.raises(ValueError, match="once"):
        Vocabulary((*SPECIALS, "a", "a"))


def test_a_cutoff_counts_the_training_split_only(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("alpha beta\nalpha beta\n\nalpha gamma\nend\n")
    (tmp_path / "valid.txt").write_text("gamma gamma\ngamma delta\n")
    report = prepare([tmp_path / "train.txt"], tmp_path / "out", valid=tmp_path / "valid.txt", cutoff=2, progress=False)
    corpus = Corpus.open(tmp_path / "out")
    assert corpus.vocabulary.words == (*SPECIALS, "alpha", "beta")
    assert corpus.split("valid").tokens.tolist() == [UNK, UNK, EOS, UNK, UNK, EOS]
    assert (report.splits["train"].unknown, report.splits["train"].unknown_rate) == (2, 2 / 7)


def test_own_tags_of_any_label_set(tmp_path: Path) -> None:
    rows = [
        {"sentences": ["A.", "B.", "C."], "tags": ["run", None, "eat"]},
        {"sentences": ["A.", "B."]},
        {"sentences": ["A.", "B."], "tags": ["eat", "eat"]},
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "valid.jsonl").write_text(
        '{"sentences": ["A.", "B."], "tags": ["fly", null]}\n{"sentences": ["A.", "B."], "tags": ["run", null]}'
    )
    report = prepare([tmp_path / "train.jsonl"], tmp_path / "out", valid=tmp_path / "valid.jsonl", progress=False)
    corpus = Corpus.open(tmp_path / "out")
    assert corpus.labels == ("eat", "run")
    assert corpus.split("train").tags.tolist() == [1, -1, 0, -1, -1, 0, 0]
    assert corpus.split("valid").tags.tolist() == [1, -1]
    assert [str(row) for row in report.rejected] == ["valid.jsonl, line 1: the training files have no tag 'fly'"]
    assert corpus.transitions.initial.tolist() == [1, 1]
    assert corpus.transitions.following.tolist() == [[1, 0], [0, 0]]
    by_vader = prepare([tmp_path / "train.jsonl"], tmp_path / "vader", own_tags=False, progress=False)
    assert by_vader.labels == VaderTagger().labels
    # Own tags with the tagger's labels mean the tagger's states.
    (tmp_path / "t.jsonl").write_text('{"sentences": ["A.", "B."], "tags": ["positive", "negative"]}')
    prepare([tmp_path / "t.jsonl"], tmp_path / "signs", progress=False)
    assert Corpus.open(tmp_path / "signs").labels == VaderTagger().labels
    assert Corpus.open(tmp_path / "signs").split("train").tags.tolist() == [2, 0]


def test_vader_thresholds() -> None:
    tagger = VaderTagger()
    scores = (-1.0, -0.2, -0.1999, 0.0, 0.1999, 0.2, 1.0)
    assert [tagger.state(score) for score in scores] == [0, 0, 1, 1, 1, 2, 2]
    assert VaderTagger(0.5, -0.5).state(0.4) == 1
    assert tagger.tag(["She was very sad.", "The box is on the table.", "He loved it!"]) == [0, 1, 2]
    with pytest.raises(UserError, match="thresholds"):
        VaderTagger(-0.2, 0.2)


# --- Damage ----------------------------------------------------------------------------------------------------------

FILES = ["vocabulary.json", "train.ids.txt", *(f"test.{array}.npy" for array in ARRAYS)]


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.mark.parametrize("name", FILES)
def test_damage_is_named(copy: Path, name: str) -> None:
    path = copy / name
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(UserError, match=f"{name} is damaged: .* bytes instead of"):
        Corpus.open(copy)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match=f"{name} is damaged: its content has changed"):
        Corpus.open(copy)
    path.unlink()
    with pytest.raises(UserError, match=f"{name} is missing"):
        Corpus.open(copy)
    path.write_bytes(content)
    Corpus.open(copy)


def test_a_damaged_or_foreign_manifest_is_named(copy: Path) -> None:
    path = copy / "manifest.json"
    text = path.read_text()
    other = {**json.loads(text), "schema": SCHEMA + 1}
    for content, message in [
        (text.replace('"cutoff": 3', '"cutoff": 4'), r"manifest.json is damaged: .* own digest"),
        (text[: len(text) // 2], r"manifest.json is damaged: it is not valid JSON"),
        ("[]", "not the manifest"),
        (json.dumps({**other, "digest": seal(other)}), rf"has schema version {SCHEMA + 1}.* reads version {SCHEMA}"),
    ]:
        path.write_text(content)
        with pytest.raises(UserError, match=message):
            Corpus.open(copy)
    path.unlink()
    with pytest.raises(UserError, match=r"not a prepared corpus: it has no manifest.json"):
        Corpus.open(copy)
    with pytest.raises(UserError, match="does not exist"):
        Corpus.open(copy / "nowhere")


@pytest.mark.corpus
@pytest.mark.system
def test_the_real_corpus_has_its_published_counts(tmp_path: Path) -> None:
    """The counts that the paper's vocabulary and lengths rest on."""
    data = os.environ.get("FABULA_DATA")
    if not data:
        pytest.skip("FABULA_DATA is not set: no real corpus here")
    source = Path(data)
    report = prepare(
        [source / "train.csv"], tmp_path / "roc", valid=source / "valid.csv", test=source / "test.csv", progress=False
    )
    train = report.splits["train"]
    assert [split.stories for split in report.splits.values()] == [82_095, 1_570, 1_570]
    assert report.vocabulary == 15_603
    assert round(train.tokens / train.stories, 2) == 54.55
    assert round(100 * train.unknown_rate, 2) == 0.95
    assert [round(100 * count / train.sentences) for count in train.tags.values()] == [17, 57, 26]
    assert report.rejected == ()

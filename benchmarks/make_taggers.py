"""The word lists of the taggers `emotion` and `verb`, from their seeds, WordNet and sentence embeddings (MiniLM, MIT).

    python benchmarks/make_taggers.py propose --stories train.csv --wordnet /usr/share/wordnet
    python benchmarks/make_taggers.py emotion
    python benchmarks/make_taggers.py verb --stories train.csv

The last two write a small file each into src/fabula/corpus/taggers/. WordNet is Debian's `wordnet-base`. `propose`
prints what WordNet derives from an emotion's seeds (other forms, synonyms, similar adjectives), and words of the
stories whose nearest seeds are of one emotion and near; half of it is wrong (swimming eyes: sadness), so a reader puts
what is right into the seeds' file. A verb's class is that of the seeds it is nearest to, by its meaning and by the
frames it stands in (object, preposition, adjective, clause).
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.taggers import emotion, verb
from fabula.training.stories import read_text
from fabula_paper.scores.pretrained import embed

HERE = Path(__file__).parent
NEAREST = 3
"""Seeds whose mean likeness counts."""
EMOTION_NEAR, EMOTION_MARGIN = 0.72, 0.08
"""How near its nearest seeds a word must be to gain their emotion, and how much nearer than those of any other."""
VERB_NEAR, FRAME = 0.68, 0.6
"""How near a verb must be to gain a class, and the weight of its frames beside its meaning."""


def seeds(name: str) -> dict[str, list[str]]:
    lines = (HERE / "seeds" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    named = [line.split(":") for line in lines if line and not line.startswith("#")]
    return {key: words.split() for key, words in named}


def derived(folder: Path, words: Sequence[str]) -> set[str]:
    """What WordNet has in the first synset of each word, and in those it points to as similar or derived from it."""
    found: set[str] = set()
    for kind in ("adj", "adv", "noun", "verb"):
        lines = (folder / f"index.{kind}").read_text(encoding="utf-8").splitlines()
        index = {line.split(" ", 1)[0]: line.split() for line in lines if line[0] != " "}
        data = {kind: (folder / f"data.{kind}").read_bytes() for kind in ("adj", "adv", "noun", "verb")}
        for word in words:
            if word not in index:
                continue
            entry = index[word]
            first = entry[6 + int(entry[3])]
            own, pointers = synset(data[kind], int(first))
            found |= own
            for sign, offset, other in pointers:
                if sign in "&+\\":
                    found |= synset(
                        data[{"a": "adj", "s": "adj", "r": "adv", "n": "noun", "v": "verb"}[other]], offset
                    )[0]
    return {word for word in found if word.isalpha()}


def synset(data: bytes, offset: int) -> tuple[set[str], list[tuple[str, int, str]]]:
    """The words of a synset, and its pointers: sign, place, part of speech."""
    fields = data[offset : data.index(b"\n", offset)].decode().split(" | ")[0].split()
    count = int(fields[3], 16)
    words = {re.sub(r"\(.*\)", "", fields[4 + 2 * i]).lower() for i in range(count)}
    begin = 4 + 2 * count
    pointers = [fields[begin + 1 + 4 * i : begin + 5 + 4 * i] for i in range(int(fields[begin]))]
    return words, [(sign, int(place), kind) for sign, place, kind, _ in pointers]


def nearness(rows: NDArray[np.float32], groups: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """[word, group]: the mean likeness to the nearest seeds of each group."""
    return np.stack([np.sort(rows @ group.T, axis=1)[:, -NEAREST:].mean(1) for group in groups], 1)


def write_emotions(given: dict[str, list[str]]) -> None:
    """Seeds and what a reader kept of the proposals; a seed's weight is the larger one."""
    found: dict[str, tuple[str, float]] = {}
    for name, words in sorted(given.items(), reverse=True):  # joy+ before joy
        weight = emotion.DERIVED if name.endswith("+") else emotion.SEED
        found |= {word.replace("_", " "): (name.rstrip("+"), weight) for word in words}
    lines = [f"{word}\t{name}\t{weight}" for word, (name, weight) in sorted(found.items())]
    emotion.FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def propose(stories: Path, wordnet: Path, given: dict[str, list[str]]) -> None:
    """Prints words of the stories that WordNet derives from an emotion's seeds, or that are used like them."""
    counts = Counter(w for story in read_text(stories) for s in story for w in re.findall(r"[a-z][a-z'-]+", s.lower()))
    known = {word for words in given.values() for word in words}
    claimed = {name: derived(wordnet, words) - known for name, words in given.items()}
    frequent = [w for w, n in counts.most_common() if n >= 20 and w not in known and w.isalpha() and len(w) > 2]
    groups = [embed([f"feeling {w}" for w in words if "_" not in w]) for words in given.values()]
    near = nearness(embed([f"feeling {w}" for w in frequent]), groups)
    best = np.sort(near, 1)
    kept = (best[:, -1] >= EMOTION_NEAR) & (best[:, -1] - best[:, -2] >= EMOTION_MARGIN)
    for number, name in enumerate(given):
        print(name, "by WordNet:", *sorted(w for w in claimed[name] if counts[w] >= 5))
        print(
            name,
            "by use:",
            *(w for w, row, keep in zip(frequent, near, kept, strict=True) if keep and row.argmax() == number),
        )


def make_verb(stories: Path) -> None:
    given = seeds("verb")
    frames: dict[str, Counter[str]] = defaultdict(Counter)
    for doc in verb.parser().pipe((s for story in read_text(stories) for s in story), batch_size=512):
        for token in doc:
            if token.pos_ == "VERB":
                beside = next((t.dep_ for t in token.children if t.i > token.i), "nothing")
                frames[token.lemma_.lower()][beside] += 1
    write_verbs(given, frames)


def write_verbs(given: dict[str, list[str]], frames: dict[str, Counter[str]]) -> None:
    """A class for every lemma that stands in enough sentences; the seeds' own as they are."""
    found = {key: (name, 1.0) for name, words in given.items() for key in words}
    kinds = sorted({kind for counts in frames.values() for kind in counts})
    lemmas = [
        lemma for lemma, counts in frames.items() if counts.total() >= 5 and lemma.isalpha() and lemma not in found
    ]
    anchors = {name: [key for key in words if "_" not in key] for name, words in given.items()}

    def features(words: Sequence[str]) -> NDArray[np.float32]:
        rows = np.array([[frames[word][kind] + 0.1 for kind in kinds] for word in words])
        rows = np.sqrt(rows / rows.sum(1, keepdims=True))
        both = np.concatenate([embed([f"to {word}" for word in words]), FRAME * rows], 1) / np.sqrt(1 + FRAME**2)
        return np.asarray(both, dtype=np.float32)

    near = nearness(features(lemmas), [features(words) for words in anchors.values()])
    for lemma, row in zip(lemmas, near, strict=True):
        if row.max() >= VERB_NEAR:
            found[lemma] = (list(given)[int(row.argmax())], round(float(row.max()), 2))
    lines = [" ".join(given), *(f"{key}\t{name}\t{sure}" for key, (name, sure) in sorted(found.items()))]
    verb.FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=("emotion", "propose", "verb"))
    parser.add_argument("--stories", type=Path)
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet"))
    asked = parser.parse_args()
    if asked.which == "emotion":
        write_emotions(seeds("emotion"))
    elif asked.which == "propose":
        plain = {name: words for name, words in seeds("emotion").items() if not name.endswith("+")}
        propose(asked.stories, asked.wordnet, plain)
    else:
        make_verb(asked.stories)

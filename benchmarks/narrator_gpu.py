"""Many stories written by the narrator at once, for training a critic and for learning from its choices (one GPU).

    python benchmarks/narrator_gpu.py negatives --narrator RUN --data DATA --number 40000 --out DATA/negatives-narrator.jsonl
    python benchmarks/narrator_gpu.py small --data DATA --number 6000 --out DATA/negatives-small.jsonl
    python benchmarks/narrator_gpu.py fills --narrator RUN --critic CRITIC --stories DATA/valid.csv --number 200 --out fills.jsonl
    python benchmarks/narrator_gpu.py prefer --fills fills.jsonl [...] --data DATA --copying 4 --readings --out DATA/preferences.jsonl
    python benchmarks/narrator_gpu.py ratings --critic CRITIC --stories union_roc.txt --data DATA

DATA is a folder with train.csv and valid.csv. The outputs hold sentences of the corpus and are not to be published.
`small` needs the whole package (spaCy); the others do not.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bulk import log_p_lines, write_missing
from fabula.metrics.bootstrap import pearson
from fabula.models.critic import Critic
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.io.pretrained import load_critic, load_decoder
from fabula.training.critic import cloze_pairs
from fabula.training.stories import read_text
from narrator_copying import hashed_ngrams
from ratings import read_ratings
from reading import corpus, readings

MIDDLE = (1, 2, 3)
MARGIN = 0.5
"""A pair whose scores differ by less teaches nothing."""


def encoded(decoder: NarratorDecoder, texts: list[list[str]], words: int = 40) -> list[list[list[int]]]:
    ids = iter([t[:words] for t in decoder.tokenizer.encode_all([s for story in texts for s in story])])
    return [[next(ids) for _ in story] for story in texts]


def without(story: list[Any], missing: Iterable[int]) -> list[Any]:
    return [None if j in set(missing) else sentence for j, sentence in enumerate(story)]


def write_lines(out: Path, lines: Iterable[dict[str, Any]]) -> None:
    with out.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def negatives(args: argparse.Namespace) -> None:
    """A quarter each: the middle given both ends, any lines given the others, left to right, the densest of four."""
    decoder = load_decoder(args.narrator, args.device)
    texts, rng = read_text(args.data / "train.csv"), random.Random(args.seed)
    order = rng.sample(range(len(texts)), len(texts))[: args.number]
    X = dict(zip(order, encoded(decoder, [texts[n] for n in order]), strict=True))
    quarter = len(order) // 4

    def write(numbers: list[int], missing: list[set[int]], temperature: float, seed: int, ahead: bool = True) -> Any:
        stories = [without(X[n], m) for n, m in zip(numbers, missing, strict=True)]
        return write_missing(
            decoder, stories, rows=args.rows, temperature=temperature, top_k=40, reads_ahead=ahead, seed=seed
        )

    written: list[tuple[int, int, str, list[list[int]]]] = []
    for seed, (temperature, part) in enumerate(((0.7, order[: quarter // 2]), (1.0, order[quarter // 2 : quarter]))):
        stories = write(part, [set(MIDDLE)] * len(part), temperature, seed)
        written += [(n, 1, "middle", s) for n, s in zip(part, stories, strict=True)]
    part = order[quarter : 2 * quarter]
    missing = [set(rng.sample(range(1, 5), rng.choice((1, 2, 3)))) for _ in part]
    stories = write(part, missing, 0.9, 2)
    written += [(n, min(m), "blanks", s) for n, m, s in zip(part, missing, stories, strict=True)]
    part = order[2 * quarter : 3 * quarter]
    stories = write(part, [{1, 2, 3, 4}] * len(part), 0.9, 3, ahead=False)
    written += [(n, 1, "onwards", s) for n, s in zip(part, stories, strict=True)]
    part = [n for n in order[3 * quarter :] for _ in range(4)]
    stories = write(part, [set(MIDDLE)] * len(part), 0.9, 4)
    density = log_p_lines(decoder, stories, rows=args.rows)[:, 1:].sum(1).view(-1, 4).argmax(1).tolist()
    written += [(part[4 * i], 1, "ranked", stories[4 * i + best]) for i, best in enumerate(density)]
    write_lines(
        args.out,
        (
            {"of": n, "first": first, "kind": kind, "sentences": [decoder.tokenizer.decode(s) for s in story]}
            for n, first, kind, story in written
        ),
    )


def small(args: argparse.Namespace) -> None:
    """The middle by the small model, one sample of each story."""
    import fabula

    texts = dict(enumerate(read_text(args.data / "train.csv")))
    chosen = random.Random(args.seed).sample(sorted(texts), args.number)
    rows = [{"id": n, "sentences": without(texts[n], MIDDLE)} for n in chosen]
    model = fabula.load("small", args.device)
    results = model.fill_many(rows, samples=1, candidates=1, temperature=1.0)
    lines = ({"of": r["id"], "first": 1, "kind": "small", "sentences": r["candidates"][0]["sentences"]}
             for r in results if "error" not in r)  # fmt: skip
    write_lines(args.out, lines)


def fills(args: argparse.Namespace) -> None:
    """Several samples of each story's missing lines, with log p of every line and the critic's values."""
    decoder, critic = load_decoder(args.narrator, args.device), load_critic(args.critic, args.device)
    texts = read_text(args.stories)[args.skip :][: args.number]
    X, P = encoded(decoder, texts), args.samples
    missing = tuple(int(j) for j in args.missing.split(","))
    blanks = [without(story, missing) for story in X for _ in range(P)]
    samples = write_missing(
        decoder, blanks, temperature=args.temperature, top_k=40, rows=args.rows, seed=args.seed
    )  # fmt: skip
    log_p, values = log_p_lines(decoder, samples, rows=args.rows), critic.values(samples)
    people = critic.values(X)[:, -1]
    lines = []
    for i, text in enumerate(texts):
        rows = range(i * P, (i + 1) * P)
        line: dict[str, Any] = {"story": i + args.skip, "sentences": text, "missing": missing}
        line["samples"] = [[decoder.tokenizer.decode(samples[r][j]) for j in missing] for r in rows]
        for name, tensor in (("log_p", log_p), ("critic", values)):
            line[name] = [[round(v, 3) for v in tensor[r].tolist()] for r in rows]
        lines.append(line)
    write_lines(args.out, lines)
    whole = values[:, -1]
    auc = (people[:, None] > whole[None]).float().mean()
    best = whole.view(-1, P).max(1).values.mean()
    print(f"critic: people {people.mean():.2f}, one sample {whole.mean():.2f}, best {best:.2f}, AUC {auc:.3f}")


def prefer(args: argparse.Namespace) -> None:
    """Better and worse samples of a story, by the ranking of `fill`, by how little they copy, by the readings."""
    training = set(hashed_ngrams([s for story in read_text(args.data / "train.csv") for s in story], 4))
    lines: list[dict[str, Any]] = []

    def pair(story: list[str], missing: list[int], better: list[str], worse: list[str]) -> None:
        both = [dict(zip(missing, written, strict=True)) for written in (better, worse)]
        whole = [[written.get(j, s) for j, s in enumerate(story)] for written in both]
        lines.append({"missing": missing, "better": whole[0], "worse": whole[1]})

    for line in (json.loads(line) for file in args.fills for line in file.read_text(encoding="utf-8").splitlines()):
        missing, samples, log_p = line["missing"], line["samples"], np.array(line["log_p"])
        ranking = np.array(line["critic"])[:, -1] + Critic.density * log_p[:, missing].sum(1)
        ranking += Critic.ending * log_p[:, max(missing) + 1 :].sum(1)
        copied = [[gram in training for gram in hashed_ngrams(sample, 4)] for sample in samples]
        ranking -= args.copying * np.array([np.mean(hits) if hits else 1.0 for hits in copied])
        order, P = ranking.argsort()[::-1], len(samples)
        for b, w in ((0, P - 1), (1, P - 3), (2, P // 2)):
            if ranking[order[b]] - ranking[order[w]] > MARGIN:
                pair(line["sentences"], missing, samples[order[b]], samples[order[w]])
    by_critic = len(lines)
    if args.readings:
        people = corpus(args.data / "train.csv")
        for story, samples in readings().items():
            read = sorted((r for r in samples if r[2] and story in people), key=lambda reading: -reading[0])
            for better, worse in zip(read, read[::-1], strict=True):
                if better[0] > worse[0] and better[2] == worse[2]:
                    pair(people[story], better[2], better[3], worse[3])
    random.Random(args.seed).shuffle(lines)
    write_lines(args.out, lines)
    print(f"{by_critic} pairs by the critic, {len(lines) - by_critic} by readers")


def ratings(args: argparse.Namespace) -> None:
    """The critic's correlation with people's ratings of 400 stories, and its accuracy on the Story Cloze Test."""
    critic, rated = load_critic(args.critic, args.device), read_ratings(args.stories)
    stories = [[critic.tokenizer.encode(s) for s in sentences] for sentences, _ in rated]
    values = [row[len(story) - 1] for row, story in zip(critic.values(stories).tolist(), stories, strict=True)]
    figures = {"pearson": pearson(values, [rating for _, rating in rated]).to_json()}
    test = args.data / "cloze_test.csv"
    if test.is_file():
        pairs = [[critic.tokenizer.encode(s) for s in story] for p in cloze_pairs(test) for story in (p.good, p.bad)]
        ends = critic.values(pairs)[:, 4].view(-1, 2)
        figures["cloze_test"] = {"accuracy": float((ends[:, 0] > ends[:, 1]).float().mean())}
    print(json.dumps(figures))


ACTIONS: dict[str, Callable[[argparse.Namespace], None]] = {
    "negatives": negatives, "small": small, "fills": fills, "prefer": prefer, "ratings": ratings,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=list(ACTIONS))
    for name in ("narrator", "critic", "data", "stories", "out"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--number", type=int, default=None)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--missing", default="1,2,3", help="numbers of the lines that `fills` writes")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--fills", type=Path, nargs="*", default=[], help="the files that `prefer` chooses from")
    parser.add_argument("--copying", type=float, default=0.0, help="weight of copied 4-grams in `prefer`")
    parser.add_argument("--readings", action="store_true", help="`prefer` also pairs by the readings")
    parser.add_argument("--rows", type=int, default=4096, help="stories at once")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    begin = time.perf_counter()
    ACTIONS[args.action](args)
    print(f"{args.action}: {time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()

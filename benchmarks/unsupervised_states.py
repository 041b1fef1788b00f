"""States that nobody labelled: does an SLDS with K = 8 free states use them, what do they mean, and what do they gain?

    python benchmarks/unsupervised_states.py --data PREPARED --out OUT/states8-bias.json --states 8 --state-bias
    python benchmarks/unsupervised_states.py --data PREPARED --out OUT/states1.json --states 1
    python benchmarks/unsupervised_states.py --table OUT                    what they gained over one state

A call trains one GRU model and measures it on the validation split; calls with the same sizes are alike in all but the
states. With `--labels` the states are the corpus's tags, which clamp S in training; without, S is summed out, p(S) is
learnt, and no tag is seen. With `--state-bias` S acts on the words too. Written: the bound of log p(X), S summed out,
KL(Z), how often each state is likeliest given Z and X, the entropy of their use and of a sentence's own, mutual
information with the tags and with the place in the story, and the words that each state's sentences have more than
others'. benchmarks/unsupervised_gpu.sh trains all variants side by side.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fabula.corpus.dataset import Corpus
from fabula.corpus.vocabulary import EOS, UNK
from fabula.device import pick_device
from fabula.metrics.bound import own_draws, weigh
from fabula.metrics.record import mean_and_error
from fabula.models.batch import StoryDataset
from fabula.models.build import build
from fabula.models.settings import DynamicsSettings, LanguageSettings, ModelSettings, RecognitionSettings
from fabula.models.slds import SLDS
from fabula.training.objective import terms
from fabula.training.recipe import ObjectiveSettings

USED = 0.01
"""A state is used if it is the likeliest in at least this share of the sentences."""


def make(args: argparse.Namespace, corpus: Corpus, words: int) -> SLDS:
    torch.manual_seed(args.seed)
    settings = ModelSettings(
        language=LanguageSettings(
            embedding=args.hidden // 2, hidden=args.hidden, dropout=0.2, state_bias=args.state_bias
        ),
        recognition=RecognitionSettings(hidden=args.hidden // 2),
        dynamics=DynamicsSettings(latent=args.latent, primitives=args.primitives if args.states > 1 else 0),
    )
    if args.labels:
        p = corpus.transitions
        counted = [torch.from_numpy(np.asarray(each)) for each in (p.p_initial, p.p_next)]
        model = build(settings, words, counted[0], counted[1])
        assert isinstance(model, SLDS)
        return model
    K = args.states
    model = build(settings, words, torch.full((K,), 1 / K), torch.full((K, K), 0.5 / K) + 0.5 * torch.eye(K))
    assert isinstance(model, SLDS)
    for name in ("log_initial", "log_transition"):  # counted and fixed where there are tags; learnt here
        value = getattr(model.scaffold, name)
        del model.scaffold._buffers[name]
        setattr(model.scaffold, name, nn.Parameter(value))
    return model


def train(model: SLDS, stories: StoryDataset, args: argparse.Namespace) -> int:
    """With `free` nats of KL(Z) that cost nothing: a small model else leaves Z, and S with it, unused.

    The rate falls to nothing over `steps` or, where they would take longer, over `seconds`; returned: the steps taken.
    """
    objective = ObjectiveSettings(labelled=float(args.labels))
    rate = args.rate
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    began, done, epoch, shown = time.monotonic(), 0, 0, 0.0
    model.train()
    while True:
        for rows in stories.bucketed(args.batch, np.random.default_rng([args.seed, epoch])):
            progress = max(done / args.steps, (time.monotonic() - began) / args.seconds)
            if progress >= 1:
                return done
            batch = stories.batch(rows)
            t = terms(model, batch, objective, half=stories.device.type == "cuda")
            weight = min(1.0, 3 * progress)  # of the KL, which would else close Z at once
            loss = weight * t.kl_Z.mean().clamp(min=args.free) - t.log_p_X.mean() - t.log_q_S.mean()
            for group in optimiser.param_groups:
                group["lr"] = rate * min(1.0, (done + 1) / 50, 1.02 - progress)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            done += 1
            if progress >= shown:
                shown += 0.1
                told = f"loss {float(loss.detach()):.1f}, KL(Z) {float(t.kl_Z.detach().mean()):.2f}"
                print(f"  {100 * progress:3.0f} %, step {done}: {told}", flush=True)
        epoch += 1


@torch.no_grad()
def measure(model: SLDS, stories: StoryDataset, args: argparse.Namespace) -> tuple[dict[str, Any], Tensor, Tensor]:
    """Figures in nats a story, and p(S_i | Z, X) and p(S_i | Z) of every sentence at one draw of Z."""
    model.eval()
    generator = torch.Generator(stories.device).manual_seed(1)
    elbo, bound, kl, found, by_Z = [], [], [], [], []
    for rows in np.array_split(np.arange(len(stories)), max(1, len(stories) // 64)):
        batch = stories.batch(rows)
        draws = own_draws(model, batch, args.samples, "filtering", generator)
        assert draws is not None
        weighed = weigh(model, batch, draws, "filtering")
        elbo.append(weighed.elbo)
        bound.append(weighed.log_p)
        kl.append(weighed.kl_Z.mean(1))
        drawn = model.draw_posterior(model.evidence(batch), batch.present, draws.normal[:, 0], None, "filtering")
        evidence = model.log_p_Z_each(drawn.Z)
        by_Z.append(model.scaffold.posterior(evidence, batch.present)[batch.present])
        evidence = evidence + model.log_p_X_each(batch, drawn.Z)
        found.append(model.scaffold.posterior(evidence, batch.present)[batch.present])
    every = {"elbo": torch.cat(elbo), "bound": torch.cat(bound), "kl_Z": torch.cat(kl)}
    figures: dict[str, Any] = {name: round(float(values.mean()), 3) for name, values in every.items()}
    return (
        figures | {"bounds": [round(float(x), 2) for x in every["bound"]]},
        torch.cat(found).cpu(),
        torch.cat(by_Z).cpu(),
    )


def entropy(p: Tensor) -> Tensor:
    return -(p * p.clamp(min=1e-12).log()).sum(-1)


def information(S: Tensor, other: list[int], values: int) -> tuple[float, Tensor]:
    """Mutual information of the state and another variable of the sentence (-1: not known), in nats; the joint law."""
    joint = torch.zeros(S.shape[1], values)
    known = torch.tensor(other) >= 0
    joint.T.index_add_(0, torch.tensor(other)[known], S[known])
    joint /= joint.sum()
    return float(entropy(joint.sum(1)) + entropy(joint.sum(0)) - entropy(joint.flatten())), joint


def describe(
    corpus: Corpus, stories: StoryDataset, tags: Tensor, S: Tensor, by_Z: Tensor, words: int
) -> dict[str, Any]:
    """Use and meaning of the states, given Z and X; and what Z alone tells of them and of the tags."""
    K, own, places, texts = S.shape[1], [], [], []
    for row in range(len(stories)):
        batch = stories.batch(np.array([row]))
        for i in range(int(batch.present.sum())):
            own.append(int(tags[row, i]))
            places.append(min(i, 7))
            start, length = int(batch.starts[0, i]), int(batch.lengths[0, i])
            texts.append([t for t in batch.tokens[0, start : start + length].tolist() if t != EOS and UNK < t < words])
    with_tags, joint = information(S, own, len(corpus.labels))
    likeliest = torch.bincount(S.argmax(1), minlength=K) / len(S)
    total: Counter[int] = Counter(word for text in texts for word in set(text))
    states = []
    for k in range(K):
        mine: Counter[int] = Counter()
        for p, text in zip(S, texts, strict=True):
            if int(p.argmax()) == k:
                mine.update(set(text))
        share = max(float(likeliest[k]), 1e-6)
        score = {w: n * np.log(n / (total[w] * share)) for w, n in mine.items() if n >= 5}
        best = sorted(score, key=lambda w: -score[w])[:10]
        moods = dict(zip(corpus.labels, (joint[k] / joint[k].sum()).tolist(), strict=True))
        states.append({
            "share": round(share, 4), "tags": {label: round(m, 3) for label, m in moods.items()},
            "words": " ".join(corpus.vocabulary.words[w] for w in best),
        })  # fmt: skip
    return {
        "used": int((likeliest >= USED).sum()), "entropy_of_use": float(entropy(S.mean(0))),
        "entropy_of_own": float(entropy(S).mean()), "information_tags": with_tags,
        "information_place": information(S, places, 8)[0],
        "entropy_of_own_by_Z": float(entropy(by_Z).mean()),
        "information_tags_by_Z": information(by_Z, own, len(corpus.labels))[0], "states": states,
    }  # fmt: skip


def table(folder: Path) -> None:
    """Every variant, with what its bound gains over one state of the same seed, story by story."""
    runs = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    first = {run["seed"]: torch.tensor(run["bounds"]) for run in runs.values() if run["K"] == 1 and not run["labels"]}
    print("variant | updates | bound, nats a story | over one state | KL(Z) | used | entropy of use | of a sentence: "
          "by Z, by Z and X | information on tags: by Z, by Z and X | on the place")  # fmt: skip
    for name, run in runs.items():
        gain = "–"
        if run["seed"] in first:
            figure = mean_and_error(torch.tensor(run["bounds"]) - first[run["seed"]])
            gain = f"{figure.value:+.2f} ({figure.se:.2f})"
        own, told = (f"{run[key + '_by_Z']:.3f}, {run[key]:.3f}" for key in ("entropy_of_own", "information_tags"))
        cells = [run["steps"], f"{run['bound']:.2f}", gain, f"{run['kl_Z']:.2f}", f"{run['used']}/{run['K']}"]
        cells += [f"{run['entropy_of_use']:.3f}", own, told, f"{run['information_place']:.3f}"]
        print(" | ".join(map(str, [name, *cells])))
    for name, run in runs.items():
        if run["K"] > 1 and run["seed"] == 0:
            for k, state in enumerate(run["states"]):
                print(f"{name} {k}: {100 * state['share']:.1f} % {list(state['tags'].values())} {state['words']}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, help="a file for the figures; with --weights, the weights beside it")
    parser.add_argument("--table", type=Path, help="a folder of such files: print them as a table")
    parser.add_argument("--states", type=int, default=8)
    parser.add_argument("--labels", action="store_true", help="the states are the corpus's tags, and seen in training")
    parser.add_argument("--state-bias", action="store_true", help="S acts on the words too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="of training, at most")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--samples", type=int, default=20, help="of the bound")
    parser.add_argument(
        "--words", type=int, default=0, help="of the vocabulary, the commonest; others are unknown; 0: all"
    )
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--latent", type=int, default=16)
    parser.add_argument("--free", type=float, default=10.0, help="nats of KL(Z) a story that cost nothing in training")
    parser.add_argument("--primitives", type=int, default=0)
    parser.add_argument("--weights", action="store_true")
    args = parser.parse_args()
    if args.table:
        table(args.table)
        raise SystemExit
    torch.set_num_threads(1)
    device = pick_device(args.device)
    corpus = Corpus.open(args.data)
    words = args.words or len(corpus.vocabulary)
    stories, held_out = (StoryDataset(corpus.split(name), device) for name in ("train", "valid"))
    tags = torch.full((len(held_out), int(held_out.sentences.max())), -1)
    for row in range(len(held_out)):
        own = held_out.batch(np.array([row])).S[0].cpu()
        tags[row, : len(own)] = own
    for dataset in (stories, held_out):
        dataset.tokens[dataset.tokens >= words] = UNK
        if not args.labels or dataset is held_out:
            dataset.tags.fill_(-1)
    model = make(args, corpus, words).to(device)
    began = time.monotonic()
    steps = train(model, stories, args)
    taken = time.monotonic() - began
    figures, S, alone = measure(model, held_out, args)
    run = {
        "K": model.K, "labels": args.labels, "state_bias": args.state_bias, "seed": args.seed, "steps": steps,
        "batch": args.batch, "hidden": args.hidden, "free": args.free, "seconds": round(taken, 1), **figures,
        **describe(corpus, held_out, tags, S, alone, words),
    }  # fmt: skip
    print(json.dumps({key: value for key, value in run.items() if key not in ("bounds", "states")}))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(run), encoding="utf-8")
        if args.weights:
            half = {name: value.half().cpu().contiguous() for name, value in model.state_dict().items()}
            save_file({name: value.clone() for name, value in half.items()}, args.out.with_suffix(".safetensors"))

"""States that nobody labelled: does an SLDS with K = 8 free states use them, and what do they mean?

    python benchmarks/unsupervised_states.py --data PREPARED --stories 6000 --epochs 6

A small GRU model is trained with S summed out and no tag seen (`objective.labelled = 0`), once with K states and once
with one (the LDS), alike in all else; p(S) is learnt. Printed: the bound of both on the validation split, how often
each state is likeliest, the entropy of their use and of a sentence's own state, mutual information with VADER's tags,
and the words that each state's sentences have more than the others'.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
import torch
from torch import Tensor, nn

from fabula.corpus.dataset import Corpus
from fabula.corpus.vocabulary import EOS, UNK
from fabula.models.batch import Batch, StoryDataset
from fabula.models.build import build
from fabula.models.settings import DynamicsSettings, LanguageSettings, ModelSettings, RecognitionSettings
from fabula.models.slds import SLDS
from fabula.training.objective import terms
from fabula.training.recipe import ObjectiveSettings

OBJECTIVE = ObjectiveSettings(labelled=0.0)


def make(K: int, words: int, primitives: int, hidden: int) -> SLDS:
    torch.manual_seed(0)
    settings = ModelSettings(
        language=LanguageSettings(embedding=hidden // 2, hidden=hidden, dropout=0.2),
        recognition=RecognitionSettings(hidden=hidden // 2),
        dynamics=DynamicsSettings(latent=16, primitives=primitives),
    )  # fmt: skip
    model = build(settings, words, torch.full((K,), 1 / K), torch.full((K, K), 0.5 / K) + 0.5 * torch.eye(K))
    assert isinstance(model, SLDS)
    for name in ("log_initial", "log_transition"):  # counted and fixed where there are tags; learnt here
        value = getattr(model.scaffold, name)
        del model.scaffold._buffers[name]
        setattr(model.scaffold, name, nn.Parameter(value))
    return model


def unseen(batch: Batch) -> Batch:
    return batch.with_S(torch.full_like(batch.S, -1))


def train(model: SLDS, stories: StoryDataset, chosen: int, epochs: int, free: float, size: int = 64) -> None:
    """With `free` nats of KL(Z) that cost nothing: a small model else leaves Z, and S with it, unused."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    steps, done = epochs * (chosen // size), 0
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(chosen)
        for first in range(0, chosen - size + 1, size):
            model.train()
            t, _ = terms(model, unseen(stories.batch(order[first : first + size])), OBJECTIVE)
            weight = min(1.0, 3 * done / steps)  # of the KL, which would else close Z at once
            loss = weight * t.kl_Z.mean().clamp(min=free) - t.log_p_X.mean()
            for group in optimiser.param_groups:
                group["lr"] = 2e-3 * min(1.0, 1.05 - done / steps)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            done += 1
        print(
            f"  epoch {epoch + 1}: loss {float(loss.detach()):.1f}, KL(Z) {float(t.kl_Z.detach().mean()):.2f}",
            flush=True,
        )


@torch.no_grad()
def measure(model: SLDS, stories: StoryDataset, number: int, draws: int = 4) -> tuple[float, float, Tensor]:
    """Nats of the bound per story, KL(Z), and p(S_i | Z) of every sentence at one draw."""
    model.eval()
    torch.manual_seed(1)
    bound, kl, found = 0.0, 0.0, []
    for rows in np.array_split(np.arange(number), max(1, number // 64)):
        batch = unseen(stories.batch(rows))
        for draw in range(draws):
            t, Z = terms(model, batch, OBJECTIVE)
            bound += float(t.bound().sum()) / draws
            kl += float(t.kl_Z.sum()) / draws
            if draw == 0 and Z is not None:
                found.append(model.scaffold.posterior(model.log_p_Z_each(Z), batch.present)[batch.present])
    return bound / number, kl / number, torch.cat(found)


def entropy(p: Tensor) -> Tensor:
    return -(p * p.clamp(min=1e-12).log()).sum(-1)


def describe(corpus: Corpus, stories: StoryDataset, S: Tensor, K: int, number: int, words: int) -> None:
    tags, texts = [], []
    for row in range(number):
        batch = stories.batch(np.array([row]))
        for i in range(int(batch.present.sum())):
            tags.append(int(batch.S[0, i]))
            start, length = int(batch.starts[0, i]), int(batch.lengths[0, i])
            texts.append([t for t in batch.tokens[0, start : start + length].tolist() if t != EOS and UNK < t < words])
    joint = torch.zeros(K, len(corpus.labels))
    for p, tag in zip(S, tags, strict=True):
        if tag >= 0:
            joint[:, tag] += p
    joint /= joint.sum()
    mutual = entropy(joint.sum(1)) + entropy(joint.sum(0)) - entropy(joint.flatten())
    print(f"mutual information with {corpus.labels}: {float(mutual):.4f} nats of {float(entropy(joint.sum(0))):.3f}")
    total: Counter[int] = Counter(word for text in texts for word in set(text))
    for k in range(K):
        mine: Counter[int] = Counter()
        for p, text in zip(S, texts, strict=True):
            if int(p.argmax()) == k:
                mine.update(set(text))
        share = float(S[:, k].mean())
        score = {w: n * np.log(n / (total[w] * max(share, 1e-6))) for w, n in mine.items() if n >= 5}
        best = sorted(score, key=lambda w: -score[w])[:12]
        moods = (joint[k] / joint[k].sum()).tolist()
        told = " ".join(f"{label} {m:.2f}" for label, m in zip(corpus.labels, moods, strict=True))
        print(f"state {k}: {100 * share:.1f} %, {told}: {' '.join(corpus.vocabulary.words[w] for w in best)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--stories", type=int, default=6000)
    parser.add_argument("--valid", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--states", type=int, default=8)
    parser.add_argument("--words", type=int, default=3000, help="of the vocabulary, the commonest; others are unknown")
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--free", type=float, default=10.0, help="nats of KL(Z) a story that cost nothing in training")
    parser.add_argument("--primitives", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    corpus = Corpus.open(args.data)
    train_stories, valid_stories = (StoryDataset(corpus.split(name), "cpu") for name in ("train", "valid"))
    for dataset in (train_stories, valid_stories):
        dataset.tokens[dataset.tokens >= args.words] = UNK
    bounds = {}
    for K in (args.states, 1):
        model = make(K, args.words, args.primitives if K > 1 else 0, args.hidden)
        train(model, train_stories, min(args.stories, len(train_stories)), args.epochs, args.free)
        bounds[K], kl, S = measure(model, valid_stories, args.valid)
        print(f"K = {K}: bound {bounds[K]:.2f} nats a story, KL(Z) {kl:.2f}", flush=True)
        if K > 1:
            use = S.mean(0)
            likeliest = torch.bincount(S.argmax(1), minlength=K) / len(S)
            print(f"likeliest in: {[round(100 * float(x), 1) for x in likeliest]} % of sentences")
            own = float(entropy(S).mean())
            print(f"entropy of use {float(entropy(use)):.3f} of {np.log(K):.3f}, of a sentence's state {own:.3f}")
            describe(corpus, valid_stories, S, K, args.valid, args.words)
    print(f"gained by {args.states} states over one: {bounds[args.states] - bounds[1]:.2f} nats a story")

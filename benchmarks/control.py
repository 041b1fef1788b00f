"""Does a story follow the arc it is given? Tags in, Z from the dynamics, five sentences on the model's own context.

    PYTHONPATH=src python benchmarks/control.py --model default --data prepared/roc --stories 400

The tags of test stories go in; VADER tags what was written, as detokenised text. Macro-F1 over tags, with distinct-2
beside it, because a model that repeats itself controls easily. VADER both labels and judges here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from fabula.api import find
from fabula.corpus.dataset import Corpus
from fabula.corpus.sentiment import VaderTagger
from fabula.corpus.tokenize import detokenise
from fabula.errors import UserError
from fabula.evaluation.latent import draw_given
from fabula.evaluation.likelihood import macro_f1
from fabula.evaluation.measure import check_same_corpus
from fabula.infill import decode
from fabula.infill.decode import Choice, Lexicon
from fabula.infill.noise import Noise, seeded
from fabula.infill.page import page
from fabula.models.gaussian import Potential
from fabula.models.slds import SLDS
from fabula.training.checkpoint import load


def distinct_2(texts: list[str]) -> float:
    """Different pairs of neighbouring words, per pair."""
    pairs = [pair for text in texts for pair in zip(text.lower().split(), text.lower().split()[1:], strict=False)]
    return len(set(pairs)) / max(1, len(pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--stories", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    corpus, checkpoint, tagger = Corpus.open(args.data), load(find(args.model)), VaderTagger()
    check_same_corpus(checkpoint, corpus)
    model, test = checkpoint.model, corpus.split("test")
    if not isinstance(model, SLDS) or tagger.labels != checkpoint.labels:
        raise UserError("control is measured on a model with latents and VADER's labels")
    chosen = np.random.default_rng(args.seed).permutation(len(test))[: args.stories]
    tags = [test.story_tags(row).astype(np.int64).tolist() for row in chosen if len(test.story_tags(row)) == 5]
    human = [detokenise(checkpoint.vocabulary.decode(s.tolist())) for row in chosen for s in test.sentences(int(row))]
    S = torch.tensor(tags)
    lexicon = Lexicon.of(checkpoint.vocabulary, "cpu")
    print(f"{len(S)} stories; distinct-2 of the human ones {distinct_2(human):.3f}")
    for top_k, temperature in ((15, 1.0), (15, 0.7), (1, 1.0)):
        with torch.inference_mode():
            silent = torch.zeros(*S.shape, model.D)
            generator = torch.Generator().manual_seed(args.seed)
            Z = draw_given(model, S, Potential(silent, silent), S >= 0, 1, generator)[:, 0]
            blanks = page([[None] * S.shape[1]] * len(S), tags=S.tolist(), device="cpu")
            noise = Noise([seeded(n) for n in range(len(S))], blanks.sentences, 1, blanks.device)
            choice = Choice(top_k=top_k, temperature=temperature, max_words=30)
            uniform = None if top_k == 1 else noise.uniform(choice.max_words)
            written = decode.story(model.language, lexicon, choice, blanks, Z, uniform)
        words = [
            checkpoint.vocabulary.decode(sentence[: int(length) - 1].tolist())
            for story, lengths in zip(written.X, written.lengths, strict=True)
            for sentence, length in zip(story, lengths, strict=True)
        ]
        texts = [detokenise(line) for line in words]
        judged = torch.tensor([-1 if tag is None else tag for tag in tagger.tag(texts)])
        f1 = macro_f1(S.flatten(), judged, len(checkpoint.labels))
        print(f"top-k {top_k}, temperature {temperature}: macro-F1 {f1:.2f}, distinct-2 {distinct_2(texts):.3f}")


if __name__ == "__main__":
    main()

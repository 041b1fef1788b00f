"""How often the taggers `emotion` and `verb` are right: benchmarks/seeds/labelled.txt, 203 invented sentences.

    python benchmarks/tagger_accuracy.py [--wrong]

The sentences were labelled by hand before a tagger had read them. Intervals are 95 % bootstraps over sentences.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from fabula.corpus.taggers.emotion import EmotionTagger
from fabula.corpus.taggers.protocol import Tagger
from fabula.corpus.taggers.verb import VerbTagger
from fabula.metrics.bootstrap import bootstrap, mean
from fabula.metrics.likelihood import macro_f1

if __name__ == "__main__":
    content = (Path(__file__).parent / "seeds" / "labelled.txt").read_text(encoding="utf-8")
    lines = [line.split("\t") for line in content.splitlines() if not line.startswith("#")]
    sentences = [sentence for _, sentence in lines]
    taggers: tuple[Tagger, ...] = (EmotionTagger(), VerbTagger())
    for place, tagger in enumerate(taggers):
        labels = tagger.labels
        truth = torch.tensor([labels.index(names.split()[place]) for names, _ in lines])
        guess = torch.tensor([int(tag or 0) for tag in tagger.tag(sentences)])
        accuracy = mean(100.0 * (truth == guess).numpy())
        f1 = bootstrap(
            lambda draws: np.array([macro_f1(truth[d], guess[d], len(labels)) for d in torch.from_numpy(draws)]),  # noqa: B023
            len(lines),
        )
        for name, figure in (("accuracy", accuracy), ("macro-F1", f1)):
            print(f"{tagger.settings['tagger']}: {name} {figure.value:.1f} [{figure.low:.1f}, {figure.high:.1f}]")
        for sentence, right, read in zip(sentences, truth.tolist(), guess.tolist(), strict=True):
            if "--wrong" in sys.argv and right != read:
                print(f"  {labels[right]} read as {labels[read]}: {sentence}")

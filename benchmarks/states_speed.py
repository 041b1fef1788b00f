"""What a larger state space costs: the time of a fill at K = 24 against K = 3, five sentences, every tag free, one run.

    python benchmarks/states_speed.py --repeats 15

The models are random, of the shipped small model's sizes (or `--small`: a small decoder, so that drawing S and Z is a
larger part of the time), and differ in K alone; 24 is the product of factors of 3 and 8 labels. Processor time of one
thread; the two take turns, and every turn has a ratio, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import torch

from fabula.corpus.vocabulary import SPECIALS, Vocabulary
from fabula.models.build import build
from fabula.models.decoders.words import WordTokenizer
from fabula.models.protocol import Model
from fabula.models.settings import DynamicsSettings, LanguageSettings, ModelSettings, RecognitionSettings
from fabula.sampling.batch import infill_batch
from fabula.sampling.driver import fill_batch
from fabula.sampling.noise import seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import BridgeFillSettings

N = 5


def random_model(K: int, vocabulary: int, small: bool, state_bias: bool) -> Model:
    torch.manual_seed(0)
    language = LanguageSettings(embedding=64, hidden=128) if small else LanguageSettings(hidden=1024, layers=2)
    settings = ModelSettings(
        language=replace(language, state_bias=state_bias),
        dynamics=DynamicsSettings(latent=64, factors=f"3,{K // 3}" if K > 3 else ""),
        recognition=RecognitionSettings(hidden=128),
    )
    p_next = torch.rand(K, K) + 0.1
    return build(settings, vocabulary, torch.full((K,), 1 / K), p_next / p_next.sum(1, keepdim=True)).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, nargs="+", default=[3, 24])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--state-bias", action="store_true", help="S acts on the words too")
    args = parser.parse_args()
    torch.set_num_threads(1)
    words = Vocabulary((*SPECIALS, ".", *(f"w{n}" for n in range(args.words))))
    rules = WordRules.of(WordTokenizer(words), "cpu")
    models = {K: random_model(K, len(words), args.small, args.state_bias) for K in args.states}
    given = [10, 11, 12, 13, 14, 4]
    tasks = {
        "first and last given, all tags free": infill_batch([[given, *[None] * (N - 2), given]]),
        "all missing": infill_batch([[None] * N]),
    }
    settings = BridgeFillSettings(tags="free")
    for name, batch in tasks.items():
        seconds: dict[int, list[float]] = {K: [] for K in models}
        for turn in range(args.repeats + 1):
            for K, model in models.items():
                began = time.process_time()
                fill_batch(model, rules, batch, settings, [seeded(turn)])
                if turn:  # the first is a warm-up
                    seconds[K].append(time.process_time() - began)
        for K, found in seconds.items():
            ratios = sorted(own / base for own, base in zip(found, seconds[args.states[0]], strict=True))
            print(
                f"{name}: K = {K}: median {statistics.median(found):.2f} s, {statistics.median(ratios):.2f} x "
                f"[{ratios[0]:.2f}, {ratios[-1]:.2f}], {len(found)} turns",
                flush=True,
            )


if __name__ == "__main__":
    main()

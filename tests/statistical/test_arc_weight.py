"""A narrator whose moods are weak follows the arc through its tagger: particles off the arc weigh and rank less."""

from dataclasses import dataclass

import pytest
import torch

from fabula.sampling import smc
from fabula.sampling.batch import infill_batch
from fabula.sampling.noise import seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import SMCSettings
from toy_decoder import END, PairTokenizer, ToyModel


@dataclass(frozen=True)
class ByFirstLetter:
    """State 1 where a sentence begins with an a, else 0."""

    labels: tuple[str, ...] = ("other", "a")

    @property
    def settings(self) -> dict[str, object]:
        return {"tagger": "first letter"}

    def tag(self, sentences: list[str]) -> list[int | None]:
        return [int(sentence.lower().startswith("a")) for sentence in sentences]


class Tagged(ToyModel):
    tagger = ByFirstLetter()


@pytest.mark.parametrize("asked", [0, 1])
def test_what_is_asked_for_is_written(asked: int) -> None:
    torch.manual_seed(0)
    model = Tagged(2).eval()
    model.toy.strict = False
    encode, rules = PairTokenizer(), WordRules.of(PairTokenizer())
    allowed = torch.ones(3, 2, dtype=torch.bool)
    allowed[1:, 1 - asked] = False
    batch = infill_batch([[encode.encode("ab."), None, None]], [allowed], end=END)
    best: dict[float, list[int]] = {}
    for weight in (0.0, 6.0):
        settings = SMCSettings.plain(samples=60, top_k=0, max_words=5, arc_weight=weight)
        best[weight] = []
        for seed in range(12):
            with torch.inference_mode():
                rounds = [r for r, _ in smc.run(model, batch, settings, [seeded(seed)], rules=rules)]
            story = max((r.row(k) for r in rounds for k in range(len(r.score))), key=lambda s: s.score)
            texts = [encode.decode(story.X[i, : int(story.lengths[i]) - 1].tolist()) for i in (1, 2)]
            best[weight] += [tag or 0 for tag in ByFirstLetter().tag(texts)]
    # Without the weight about half of the sentences are as asked for; with it all but a few.
    assert sum(tag == asked for tag in best[6.0]) >= 22
    assert sum(tag == asked for tag in best[0.0]) < 22

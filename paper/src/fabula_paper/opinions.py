"""Several judges on the same filled-in stories: one value per story and judge, larger is better.

judge, lm-1024, narrator, smollm2    log p(last sentence | all before it), in nats
critic                               the narrator's critic on the whole story: by people or by a machine
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fabula import api
from fabula.corpus.tokenize import tokenise_many
from fabula.metrics.lookahead import log_p_ending
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.sampling.batch import infill_batch
from fabula_paper.bench import Bench, weights_of
from fabula_paper.judging import blind_middles
from fabula_paper.plan import BY_NAME, MIDDLE, PLAIN
from fabula_paper.records import rounded_list
from fabula_paper.scores.pretrained import story_perplexity
from fabula_paper.stories import EnglishStories

BATCH = 20
STORIES = 32
"""Judged stories of each system: minutes on a CPU."""


class Judges:
    """The judges that are installed, loaded once."""

    def __init__(self, bench: Bench, stories: EnglishStories) -> None:
        self.bench, self.stories = bench, stories
        self.language_models = [name for name in ("judge", "lm-1024") if bench.folder(BY_NAME[name]).is_dir()]
        self.narrator = api.load("default").model

    def record(self, name: str) -> dict[str, Any]:
        """The values of every judge for the first stories of `system.sampler`."""
        stories = self.blind() if name == PLAIN else self.stories.middles(name, STORIES)
        values = self.read(stories)
        return {
            "n": len(stories),
            "judges": {judge: weights_of(self.bench.folder(BY_NAME[judge])) for judge in self.language_models},
            "mean": {judge: round(float(each.mean()), 4) for judge, each in values.items()},
            "stories": {judge: rounded_list(each) for judge, each in values.items()},
        }

    def blind(self) -> list[list[str]]:
        """Stories whose middle the paper's LM wrote left to right, blind to the ending."""
        rows, decode = self.bench.rows[:STORIES], self.bench.corpus.vocabulary.decode
        lines = [[" ".join(decode(words)) for words in middle] for middle in blind_middles(self.bench, rows, 0)]
        ids = [self.bench.test.ids[row] for row in rows]
        return [self.stories.filled(story_id, middle, MIDDLE) for story_id, middle in zip(ids, lines, strict=True)]

    def read(self, stories: Sequence[Sequence[str]]) -> dict[str, NDArray[np.float64]]:
        """One value per story by each judge."""
        encode = self.bench.corpus.vocabulary.encode
        ids = [[encode(words) for words in tokenise_many(story)] for story in stories]
        whole = infill_batch(ids, device=self.bench.device)
        values: dict[str, NDArray[np.float64]] = {}
        for name in self.language_models:
            model = self.bench.checkpoint(BY_NAME[name]).model
            values[name] = log_p_ending(model, whole.X, whole.lengths).double().cpu().numpy()
        values["narrator"] = self.narrator_log_p(stories)
        values["smollm2"] = -story_perplexity(stories).sentence_nats[:, -1]
        critic = self.narrator.critic
        assert critic is not None
        encoded = [critic.tokenizer.encode_all(list(story)) for story in stories]
        values["critic"] = np.array([verdict.whole for verdict in critic.judge(encoded)])
        return values

    @torch.inference_mode()
    def narrator_log_p(self, stories: Sequence[Sequence[str]]) -> NDArray[np.float64]:
        """The narrator's log p(last sentence | all before it), with free tags."""
        decoder = self.narrator.decoder
        assert isinstance(decoder, NarratorDecoder)
        tokenizer, values = decoder.tokenizer, []
        for first in range(0, len(stories), BATCH):
            batch = stories[first : first + BATCH]
            state, log_p = decoder.start(len(batch)), torch.zeros(len(batch))
            for i in range(len(batch[0])):
                ids = [[*tokenizer.encode(story[i]), tokenizer.end] for story in batch]
                width = max(map(len, ids))
                tokens = torch.tensor([row + [0] * (width - len(row)) for row in ids])
                state = decoder.begin_sentence(state, None)
                state, log_p = decoder.read(state, tokens, torch.tensor([len(row) for row in ids]), None)
            values.append(log_p.double().numpy())
        return np.concatenate(values)

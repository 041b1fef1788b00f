"""Many stories written by a narrator at once, for training a critic and for learning from its choices.

Plain draws from r(X_missing | X_given), without the rules about words that `fabula fill` keeps.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.decoders.protocol import Given
from fabula.models.decoders.rows import END
from fabula.sampling.batch import InfillBatch, infill_batch
from fabula.sampling.decode import choose
from fabula.sampling.rules import FINAL_MARKS
from fabula.sampling.settings import DecodingConfig

Ids = Sequence[int]
TOKENS = 32
"""Of a sentence at most."""


@torch.inference_mode()
def write_missing(
    decoder: NarratorDecoder, stories: Sequence[Sequence[Ids | None]], *, decoding: DecodingConfig, rows: int, seed: int
) -> list[list[list[int]]]:
    """One sample of each story, whose missing sentences are None."""
    generator = torch.Generator(decoder.network.device).manual_seed(seed)
    patterns = defaultdict(list)
    for number, story in enumerate(stories):
        patterns[tuple(sentence is None for sentence in story)].append(number)
    samples: list[list[list[int]]] = [[] for _ in stories]
    for pattern, numbers in patterns.items():
        # Stories of like lengths together, so that little is padded.
        numbers.sort(key=lambda n: sum(len(sentence or ()) for sentence in stories[n]))
        for first in range(0, len(numbers), rows):
            part = numbers[first : first + rows]
            batch = infill_batch([stories[n] for n in part], device=decoder.network.device, end=END)
            for n, sentences in zip(part, _write(decoder, batch, pattern, decoding, generator), strict=True):
                samples[n] = sentences
    return samples


def _write(
    decoder: NarratorDecoder, batch: InfillBatch, pattern: tuple[bool, ...], decoding: DecodingConfig,
    generator: torch.Generator,
) -> list[list[list[int]]]:  # fmt: skip
    state = decoder.start(len(batch.X), None, Given(batch.X, batch.lengths, batch.present, batch.missing))
    samples: list[list[list[int]]] = [[] for _ in range(len(batch.X))]
    final = torch.tensor([text in FINAL_MARKS for text in decoder.tokenizer.texts], device=batch.device)
    for i, missing in enumerate(pattern):
        state = decoder.begin_sentence(state, None)
        if missing:
            written = []
            done = torch.zeros(len(batch.X), dtype=torch.bool, device=batch.device)
            for place in range(TOKENS + 1):
                scores, state = decoder.step(state, None, done)
                if place == 0:  # no sentence is empty
                    scores[:, END] = float("-inf")
                uniform = torch.rand(len(scores), generator=generator, device=batch.device)
                chosen = choose(scores.float(), decoding, uniform, final)[0]
                chosen = torch.where(done | (place == TOKENS), END, chosen)
                state = state.then(chosen)
                written.append(chosen)
                done = done | (chosen == END)
                if bool(done.all()):
                    break
            sentences = torch.stack(written, 1).tolist()
        else:
            state, _ = decoder.read(state, batch.X[:, i], batch.lengths[:, i])
            sentences = batch.X[:, i].tolist()
        for row, sentence in enumerate(sentences):
            samples[row].append(sentence[: sentence.index(END)])
    return samples


@torch.inference_mode()
def log_p_lines(decoder: NarratorDecoder, stories: Sequence[Sequence[Ids]], rows: int) -> Float[Tensor, "story sent"]:
    """log p of every sentence of stories of one length."""
    order = sorted(range(len(stories)), key=lambda n: sum(len(sentence) for sentence in stories[n]))
    log_p = torch.zeros(len(stories), len(stories[0]))
    for first in range(0, len(order), rows):
        part = order[first : first + rows]
        batch = infill_batch([stories[n] for n in part], device=decoder.network.device, end=END)
        state = decoder.start(len(part))
        lines = []
        for i in range(batch.X.shape[1]):
            state, new = decoder.read(decoder.begin_sentence(state, None), batch.X[:, i], batch.lengths[:, i])
            lines.append(new)
        log_p[part] = torch.stack(lines, 1).cpu()
    return log_p

"""Another word in a line: the words that a decoder finds likely there, ranked by how well the line reads with them.

    p(word | lines before, before) p(after | lines before, before, word)

The most likely first tokens are carried on to whole words, and every line is read in one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from fabula.corpus.states import UNKNOWN
from fabula.errors import UserError
from fabula.loaded import LoadedModel
from fabula.results import OtherWords
from fabula.sampling.batch import InfillBatch, evidence
from fabula.sampling.latents import draw_latents
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.task import Task, partial_task
from fabula.ties import ranking

SHOWN = 8
TRIED = 48
"""Words that are ranked."""
DRAWS = 32
"""Of Z, whose mean is used, for a model that has one."""
PIECES = 4
"""Tokens of a word, at most."""


def place_of(loaded: LoadedModel, sentences: Sequence[str | None], line: int, word: str) -> list[str]:
    """The given lines before this one, after a check of the request."""
    stated = partial_task(sentences, loaded.states).sentences
    if not 1 <= line <= len(stated):
        raise UserError(f"there is no line {line} in a story of {len(stated)}", field="line")
    if not word.strip():
        raise UserError("say which word is to be another one", field="word")
    return [text for text in stated[: line - 1] if text]


def chosen(words: Iterable[str], word: str) -> OtherWords:
    """The first of these, none twice and none the word itself."""
    unlike: dict[str, str] = {}
    for other in words:
        unlike.setdefault(other.casefold(), other)
    unlike.pop(word.strip().casefold(), None)
    return OtherWords(tuple(unlike.values())[:SHOWN])


def join(before: str, word: str, after: str) -> str:
    """A line with this word in it."""
    return f"{before} {word}{'' if after[:1] in '.,;:!?' else ' '}{after}".strip()


@torch.inference_mode()
def other_words(
    loaded: LoadedModel, sentences: Sequence[str | None], line: int, before: str, word: str, after: str, seed: int
) -> OtherWords:
    """Up to `SHOWN` words for the place between `before` and `after`, the best first."""
    decoder, latent = loaded.model.decoder, loaded.model.latent
    lines = place_of(loaded, sentences, line, word)
    if decoder is None:
        raise UserError("a model of whole stories given their tags (s2s) cannot offer another word", field="model")
    before, after = before.strip(), after.strip()
    whole = _task(loaded, [*lines, join(before, word, after)])
    names = loaded.text.stand_ins([whole])[0]
    batch = loaded.text.encode(whole, names)
    Z = None
    if latent is not None:
        phi, allowed = evidence(latent, batch.X, batch.lengths).phi, batch.allowed_of(latent.K)
        noise = Noise([seeded(seed)], batch.sentences, DRAWS, batch.device)
        Z = draw_latents(latent.scaffold, latent.dynamics, allowed, phi, batch.present, noise).Z.mean(0, keepdim=True)
    state: Any = decoder.start(1, None if Z is None else Z[:, 0])
    for i in range(len(lines)):
        state = decoder.begin_sentence(state, None)
        state, _ = decoder.read(state, batch.X[:, i], batch.lengths[:, i], None if Z is None else Z[:, i])
    state, z = decoder.begin_sentence(state, None), None if Z is None else Z[:, -1]
    prefix = loaded.text.encode(_task(loaded, [before]), names).X[0, 0, :-1].tolist() if before else []
    spelled, typed = loaded.rules.spelling.tokenizer.texts, {known: name for name, known in names.items()}
    texts = ("".join(spelled[token] for token in ids) for ids in _likely_words(loaded, state, z, prefix))
    words = [*dict.fromkeys(typed.get(text, text) for text in texts if text[:1].isalpha())]
    if not words:
        return OtherWords(())
    read = InfillBatch.join([loaded.text.encode(_task(loaded, [join(before, w, after)]), names) for w in words])
    rows = torch.zeros(len(words), dtype=torch.int64, device=batch.device)
    _, log_p = decoder.read(state.select(rows), read.X[:, 0], read.lengths[:, 0], None if z is None else z[rows])
    return chosen((words[place] for place in ranking(log_p.tolist())), word)


def _task(loaded: LoadedModel, lines: Sequence[str]) -> Task:
    return Task(tuple(lines), ((UNKNOWN,) * len(loaded.states.factors),) * len(lines))


def _likely_words(loaded: LoadedModel, state: Any, z: Tensor | None, prefix: Sequence[int]) -> list[list[int]]:
    """The tokens of the `TRIED` words that begin most likely after `prefix`, each carried on greedily to its end."""
    decoder, rules = loaded.model.decoder, loaded.rules
    assert decoder is not None
    goes_on = torch.zeros(1, dtype=torch.bool, device=rules.anywhere.device)
    for token in prefix:
        _, state = decoder.step(state, z, goes_on)
        state = state.then(torch.full_like(goes_on, token, dtype=torch.int64))
    scores, state = decoder.step(state, z, goes_on)
    first = (scores + rules.first).topk(min(TRIED, int((rules.first == 0).sum())), -1).indices[0]
    words = [[token] for token in first.tolist()]
    done = torch.full_like(first, rules.spelling.whole, dtype=torch.bool)
    rows = torch.zeros_like(first)
    state, z = state.select(rows).then(first), None if z is None else z[rows]
    for _ in range(PIECES - 1):
        if bool(done.all()):
            break
        scores, state = decoder.step(state, z, done)
        best = scores.argmax(-1)
        done = done | rules.spelling.starts[best] | (best == rules.spelling.end)
        state = state.then(best)
        for row in (~done).nonzero().flatten().tolist():
            words[row].append(int(best[row]))
    return words

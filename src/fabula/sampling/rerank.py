"""The baselines' stand-in for interpolation: many samples left to right, the one that suits the clamped sentences wins.

The paper draws 1,000 with top-k 15, each conditioned on the sentences before it, and keeps the one that maximises the
probability of the given sentences. Any mask will do: a given sentence is read where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from fabula.corpus.states import UNKNOWN
from fabula.corpus.vocabulary import BOS, EOS, PAD
from fabula.models.protocol import Model
from fabula.models.s2s import S2S
from fabula.sampling.batch import InfillBatch
from fabula.sampling.cast import Cast
from fabula.sampling.decode import Writer, Written, choose
from fabula.sampling.noise import Noise
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import Diagnostics, Rounds, SampledStories, score_following
from fabula.sampling.settings import WAVE, DecodingConfig, RerankSettings
from fabula.sampling.tags import tags_to_write
from fabula.shapes import Latents, Tags


def run(
    model: Model, blanks: InfillBatch, settings: RerankSettings, generators: Sequence[torch.Generator], *,
    rules: WordRules, cast: Cast | None = None,
) -> Rounds:  # fmt: skip
    """All samples, a wave at a time, ranked by log p of the given sentences that what was written can change."""
    if cast is not None and not settings.allow_new_names:
        blanks = cast.without_new_names(blanks)
    (stories, N), left, decoding = blanks.X.shape[:2], settings.samples, settings.decoding
    while left:
        chains = min(WAVE, left)
        left -= chains
        wide = blanks.repeat(chains)
        noise = Noise(generators, blanks.sentences, chains, blanks.device)
        tagged = model.reads_tags or model.K > 1
        S = tags_to_write(model, blanks, noise) if tagged else torch.full_like(wide.lengths, UNKNOWN)
        uniform = noise.uniform(decoding.max_words)
        written = write_left_to_right(model, rules, decoding, wide, S, None, uniform)
        score = score_following(written.log_p, written.lengths, wide)
        sampled = SampledStories(written.X, written.lengths, S, written.log_p, score, torch.zeros_like(score))
        yield sampled, None if left else Diagnostics.none(stories, N)


def write_left_to_right(
    model: Model, rules: WordRules, decoding: DecodingConfig, blanks: InfillBatch, S: Tags | None, Z: Latents | None,
    uniform: Float[Tensor, "batch sent word"],
) -> Written:  # fmt: skip
    """Every missing sentence given those before it and Z, by whichever decoder the model has; top-k 1 is greedy."""
    if model.story_decoder is not None:
        return write_joined(model.story_decoder, rules, decoding, blanks, S, uniform)
    assert model.decoder is not None, "a model without latents writes by a decoder"
    return Writer(model.decoder, rules, decoding).story(blanks, S, Z, None if decoding.top_k == 1 else uniform)


def write_joined(
    model: S2S, rules: WordRules, decoding: DecodingConfig, blanks: InfillBatch, S: Tags | None,
    uniform: Float[Tensor, "batch sent word"],
) -> Written:  # fmt: skip
    """Stories from p(X | S), whose sentences are joined: there is an `<eos>` only at the very end.

    A written sentence ends after its first word that ends one (`. ! ?`), with the quotation closed if one is open; near
    the limit such a word is forced. Given words are read in their places, without their inner `<eos>`.
    All rows take a word at a time, each at its place of its story; rows whose story is complete leave.
    """
    (rows, N, W), device = blanks.X.shape, blanks.device
    present, missing = blanks.present.to(device), blanks.missing.to(device)
    memory, state = model.encode(torch.full_like(blanks.lengths, UNKNOWN) if S is None else S, present)
    width = max(W, decoding.max_words + 1)
    X = torch.nn.functional.pad(blanks.X, (0, width - W))
    log_p, log_q = (torch.zeros(rows, N, device=device) for _ in range(2))
    opening = torch.nn.functional.pad(blanks.opening, (0, width - blanks.opening.shape[2]))
    allowed = _allowed_words(rules)
    here = torch.arange(rows, device=device)
    last = present.sum(1) - 1
    i, t, quotes = (torch.zeros_like(here) for _ in range(3))
    previous = torch.full_like(here, BOS)
    done, closing, ended = (torch.zeros_like(here, dtype=torch.bool) for _ in range(3))
    while len(here):
        logits, state = model.write(previous[:, None], memory, present, state)
        scores = logits[:, 0, : len(rules.anywhere)].float()
        written_here = missing[here, i]
        word, log_q_word = X[here, i, t], torch.zeros(len(here), device=device)
        word = torch.where(written_here, torch.where(closing, rules.quote, EOS), word)
        free = written_here & ~closing & ~ended & ~done
        begun = free & (opening[here, i, t] != PAD)
        word, free = torch.where(begun, opening[here, i, t], word), free & ~begun
        who = free.nonzero().squeeze(1)
        if len(who):
            rule = (t[who] == 0) + 2 * (t[who] >= decoding.max_words - 2)
            drawn = uniform[here[who], i[who], t[who]]
            word[who], log_q_word[who] = choose(scores[who] + allowed[rule], decoding, drawn)
        log_p[here, i] += (scores.gather(1, word[:, None]).squeeze(1) - scores.logsumexp(-1)).masked_fill(done, 0.0)
        log_q[here, i] += log_q_word
        X[here, i, t] = torch.where(done, X[here, i, t], word)
        t, previous = t + (~done).long(), word
        quotes = quotes + ((word == rules.quote) & ~done).long()
        # Where the sentence now stands: a written one may want its quotation closed, the last one its `<eos>`.
        final = written_here & (rules.is_final[word] | closing | (t >= decoding.max_words - 1))
        closing = final & (quotes % 2 == 1) & ~closing
        whole = torch.where(written_here, final & ~closing, t >= blanks.lengths[here, i] - 1)
        ended = whole & (i == last) & ~ended & written_here
        whole = torch.where(i == last, word == EOS, whole)
        done = done | (whole & (i == last))
        onward = whole & (i < last)
        X[here, i, t.clamp(max=width - 1)] = torch.where(onward, EOS, X[here, i, t.clamp(max=width - 1)])
        i, t, quotes = i + onward.long(), t.masked_fill(onward, 0), quotes.masked_fill(onward, 0)
        on = (~done).nonzero().squeeze(1)
        # Copying what stays costs something too: rows leave in eighths.
        if len(on) <= 7 * len(here) // 8:
            here, last, i, t, quotes, previous = (x[on] for x in (here, last, i, t, quotes, previous))
            done, closing, ended = done[on], closing[on], ended[on]
            memory, present, state = memory[on], present[on], state[:, on].contiguous()
    return Written(X, (X != PAD).sum(2), log_p, log_q)


def _allowed_words(rules: WordRules) -> Float[Tensor, "rule vocab"]:
    """What is added to the scores inside a sentence, at its first word, and where it must end."""
    no_end = rules.anywhere.clone()
    no_end[EOS] = float("-inf")
    return torch.stack([no_end, rules.first, rules.ending])

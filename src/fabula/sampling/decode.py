"""Sentences from a decoder's p(X_i | X_:i, Z_i, S_i), for many stories at once, under rules about words.

A decoder's state stands before a sentence. `write` moves it over sentences that it writes, `replay` over ones that it
could have written, `sentence` and `story` over mixed given and missing ones. Two log-probabilities come back: the
decoder's own over all tokens, log p, and that of the truncated law which the tokens were really drawn from, log q.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.vocabulary import PAD
from fabula.models.decoders.protocol import Decoder, DecoderState
from fabula.sampling.batch import InfillBatch
from fabula.sampling.repeats import bar_repeats
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import DecodingConfig

PATIENCE = {"cpu": 1, "cuda": 6}
"""Tokens between looks at which rows have ended: on the host a look is free, elsewhere it waits for the device."""


GREEDY = DecodingConfig()


class Sentences(NamedTuple):
    """One sentence per row."""

    words: Int[Tensor, "batch word"]
    lengths: Int[Tensor, " batch"]
    log_p: Float[Tensor, " batch"]
    """The model's own log p(X_i | X_:i, Z_i)."""
    log_q: Float[Tensor, " batch"]
    """Of the truncated law the words were drawn from; 0 for words that were forced, and for greedy ones."""
    log_forced: Float[Tensor, " batch"]
    """The part of `log_p` that is owed to opening words nobody chose."""


class Written(NamedTuple):
    """Whole stories, with the same per sentence."""

    X: Int[Tensor, "batch sent word"]
    lengths: Int[Tensor, "batch sent"]
    log_p: Float[Tensor, "batch sent"]
    log_q: Float[Tensor, "batch sent"]


def write(
    decoder: Decoder[DecoderState],
    rules: WordRules,
    decoding: DecodingConfig,
    state: DecoderState,
    z: Float[Tensor, "batch latent"] | None,
    uniform: Float[Tensor, "batch word"] | None,
    opening: Int[Tensor, "batch opening"],
    story: Int[Tensor, "batch token"] | None = None,
    barred_names: Bool[Tensor, "batch name"] | None = None,
) -> tuple[DecoderState, Sentences]:
    """Over a missing sentence, writing it.

    It ends by its own `end`. Where it has not done so two tokens before the limit, the next one must be a mark that
    ends a sentence, and then `end`: always the best of those the decoder offers. `uniform` is one number per token, or
    None for greedy choices. `story` are the story's other tokens, which `decoding.no_repeat` looks at.
    """
    device, end = opening.device, rules.spelling.end
    rows = torch.arange(len(opening), device=device)
    words = opening.new_full((len(rows), decoding.max_words), PAD)
    log_p, log_q, log_forced = (torch.zeros(len(rows), device=device) for _ in range(3))
    after, word = state, None
    done = torch.zeros_like(rows, dtype=torch.bool)
    patience = PATIENCE.get(device.type, 6)
    forced_words = opening.shape[1] if opening.any() else 0
    for t in range(decoding.max_words):
        logits, state = decoder.step(state, z, done)
        after = state if t == 0 else after  # rows are put there as they end
        logits = logits.float()
        log_norm = logits.logsumexp(-1)
        scores = rules.allowed(logits, word, t, decoding.max_words)
        if barred_names is not None:
            scores = rules.bar_names(scores, barred_names[rows], words[rows, :t])
        if story is not None and decoding.no_repeat and decoding.no_repeat - 1 <= t < decoding.max_words - 2:
            scores = bar_repeats(scores, rules.spelling, story[rows], words[rows, :t], decoding.no_repeat)
        word, log_q_word = choose(scores, decoding, None if uniform is None else uniform[:, t])
        if t < forced_words:
            forced = (opening[rows, t] != PAD) & ~done
            word = torch.where(forced, opening[rows, t], word)
            log_q_word = log_q_word.masked_fill(forced, 0.0)
        log_p_word = logits.gather(1, word[:, None]).squeeze(1) - log_norm
        word = word.masked_fill(done, PAD)
        words[rows, t] = word
        log_p[rows] += log_p_word.masked_fill(done, 0.0)
        log_q[rows] += log_q_word.masked_fill(done, 0.0)
        if t < forced_words:
            log_forced[rows] += log_p_word.masked_fill(~forced, 0.0)
        done = done | (word == end)
        state = state.then(torch.where(done, end, word))
        if t % patience == patience - 1 or t == decoding.max_words - 1:
            alive, ended = (~done).nonzero().squeeze(1), done.nonzero().squeeze(1)
            if len(ended) == len(opening):
                after = state
            elif len(ended):
                after = after.put(rows[ended], state.select(ended))
            if len(alive) == 0:
                break
            if len(ended):
                rows, word, done, state = rows[alive], word[alive], done[alive], state.select(alive)
                z = None if z is None else z[alive]
                uniform = None if uniform is None else uniform[alive]
    return after, Sentences(words, (words != PAD).sum(1), log_p, log_q, log_forced)


def replay(
    decoder: Decoder[DecoderState],
    rules: WordRules,
    decoding: DecodingConfig,
    state: DecoderState,
    words: Int[Tensor, "batch word"],
    z: Float[Tensor, "batch latent"] | None,
    opening: Int[Tensor, "batch opening"],
) -> tuple[DecoderState, Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """Over a sentence that `write` could have written: log p and log q of it; if it could not, log q is -inf."""
    log_p, log_q = (torch.zeros(len(words), device=words.device) for _ in range(2))
    previous = None
    for t in range(int((words != PAD).sum(1).max())):
        word = words[:, t]
        done = word == PAD
        logits, state = decoder.step(state, z, done)
        logits = logits.float()
        log_p_word = logits.log_softmax(-1).gather(1, word[:, None]).squeeze(1)
        scores = rules.allowed(logits, previous, t, decoding.max_words)
        if decoding.top_k and decoding.top_k < scores.shape[-1]:
            least = scores.topk(decoding.top_k, dim=-1).values[:, -1:]
            scores = scores.masked_fill(scores < least, float("-inf"))
        log_q_word = (scores / decoding.temperature).log_softmax(-1).gather(1, word[:, None]).squeeze(1)
        forced = (opening[:, t] != PAD) if t < opening.shape[1] else torch.zeros_like(done)
        log_p = log_p + log_p_word.masked_fill(done, 0.0)
        log_q = log_q + log_q_word.masked_fill(done | forced, 0.0)
        previous = word
        state = state.then(torch.where(done, rules.spelling.end, word))
    return state, log_p, log_q


def choose(scores: Tensor, decoding: DecodingConfig, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
    """A word for each row and log q of it: greedy, or the inverse of the distribution function at `uniform`."""
    if decoding.top_k == 1 or uniform is None:
        return scores.argmax(-1), torch.zeros_like(scores[:, 0])
    if decoding.top_k and decoding.top_k < scores.shape[-1]:
        scores, words = scores.topk(decoding.top_k, dim=-1)
    else:
        words = None
    log_q = (scores / decoding.temperature).log_softmax(-1)
    cumulative = log_q.exp().cumsum(-1)
    place = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(-1, keepdim=True).clamp(max=scores.shape[-1] - 1)
    log_q_word = log_q.gather(1, place).squeeze(1)
    return (place if words is None else words.gather(1, place)).squeeze(1), log_q_word


def sentence(
    decoder: Decoder[DecoderState],
    rules: WordRules,
    decoding: DecodingConfig,
    state: DecoderState,
    blanks: InfillBatch,
    i: int,
    s: Int[Tensor, " batch"] | None,
    z: Float[Tensor, "batch latent"] | None,
    uniform: Float[Tensor, "batch word"] | None,
    X: Int[Tensor, "batch sent width"] | None = None,
) -> tuple[DecoderState, Sentences]:
    """Over sentence i of every story: read where given, written where missing, left alone where there is none."""
    parts = (blanks.given[:, i], blanks.missing[:, i])
    device, n = blanks.device, len(blanks.X)
    width = max(blanks.X.shape[2], decoding.max_words)
    words = blanks.X.new_full((n, width), PAD)
    lengths = blanks.lengths[:, i].clone()
    log_p, log_q, log_forced = (torch.zeros(n, device=device) for _ in range(3))
    words[:, : blanks.X.shape[2]] = blanks.X[:, i]
    for part, blank in zip(parts, (False, True), strict=True):
        if not part.any():
            continue
        # The usual batch has the same blanks in every row: then nothing is taken apart and put together.
        rows = None if part.all() else part.nonzero().squeeze(1).to(device)
        where = slice(None) if rows is None else rows
        z_part = z if z is None or rows is None else z[rows]
        own = state if rows is None else state.select(rows)
        own = decoder.begin_sentence(own, s if s is None or rows is None else s[rows])
        if blank:
            drawn = None if uniform is None else uniform[where]
            story = None
            if decoding.no_repeat:
                # The given sentences, and what has been written so far.
                story = blanks.X[where].flatten(1)
                story = story if X is None else torch.cat([story, X[where].flatten(1)], 1)
            barred = None if blanks.barred_names is None else blanks.barred_names[where]
            own, new = write(decoder, rules, decoding, own, z_part, drawn, blanks.opening[where, i], story, barred)
            words[where] = PAD
            words[where, : decoding.max_words] = new.words
            lengths[where] = new.lengths
            log_p[where], log_q[where], log_forced[where] = new.log_p, new.log_q, new.log_forced
        else:
            own, log_p[where] = decoder.read(own, blanks.X[where, i], blanks.lengths[where, i], z_part)
        state = own if rows is None else state.put(rows, own)
    return state, Sentences(words, lengths, log_p, log_q, log_forced)


def story(
    decoder: Decoder[DecoderState],
    rules: WordRules,
    decoding: DecodingConfig,
    blanks: InfillBatch,
    S: Int[Tensor, "batch sent"] | None,
    Z: Float[Tensor, "batch sent latent"] | None,
    uniform: Float[Tensor, "batch sent word"] | None = None,
) -> Written:
    """Every sentence of every story, left to right."""
    state = decoder.start(len(blanks.X), None if Z is None else Z[:, 0], bf16=decoding.bf16)
    found: list[Sentences] = []
    for i in range(blanks.X.shape[1]):
        s, z, drawn = (None if each is None else each[:, i] for each in (S, Z, uniform))
        so_far = torch.stack([f.words for f in found], 1) if found and decoding.no_repeat else None
        state, new = sentence(decoder, rules, decoding, state, blanks, i, s, z, drawn, so_far)
        found.append(new)
    return Written(
        torch.stack([f.words for f in found], 1),
        torch.stack([f.lengths for f in found], 1),
        torch.stack([f.log_p for f in found], 1),
        torch.stack([f.log_q for f in found], 1),
    )

"""Sentences from a decoder's p(X_i | X_:i, Z_i, S_i), for many stories at once, under rules about words.

A decoder's state stands before a sentence. `write` moves it over sentences that it writes, `sentence` and `story`
over mixed given and missing ones. Two log-probabilities come back: log p of the decoder over all tokens, and log q of
the truncated distribution that the tokens were drawn from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.vocabulary import PAD
from fabula.listening import listener
from fabula.models.decoders.protocol import Decoder
from fabula.sampling.batch import InfillBatch
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import DecodingConfig
from fabula.shapes import Integers, Latent, Latents, PerSentence, PerStory, Tags, Tokens, Words

PATIENCE = {"cpu": 1, "cuda": 6}
"""Tokens between looks at which rows have ended: on the host a look is free, elsewhere it waits for the device."""
NEAR = 8
"""Sentences on either side in which a run of words may not stand again: in a long story, common runs have to."""
GREEDY = DecodingConfig()
Uniform = Float[Tensor, "batch word"]
"""A uniform number for every word to be chosen."""
Opening = Int[Tensor, "batch opening"]


class Sentences(NamedTuple):
    """One sentence per row."""

    words: Words
    lengths: Integers
    log_p: PerStory
    """log p(X_i | X_:i, Z_i)."""
    log_q: PerStory
    """Of the truncated distribution the words were drawn from; 0 for forced words and for greedy ones."""
    log_forced: PerStory
    """The part of `log_p` that is owed to opening words nobody chose."""


class Written(NamedTuple):
    """Whole stories, with the same per sentence."""

    X: Int[Tensor, "batch sent word"]
    lengths: Tags
    log_p: PerSentence
    log_q: PerSentence


def choose(
    scores: Tensor, decoding: DecodingConfig, uniform: Tensor | None, final: Bool[Tensor, " vocab"] | None = None
) -> tuple[Tensor, Tensor]:
    """A word for each row and log q of it: greedy, or the inverse of the distribution function at `uniform`."""
    if decoding.top_k == 1 or uniform is None:
        return scores.argmax(-1), torch.zeros_like(scores[:, 0])
    words = None
    if decoding.top_k and decoding.top_k < scores.shape[-1]:
        scores, words = scores.topk(decoding.top_k, dim=-1)
    ends = None if final is None else final if words is None else final[words]
    log_q = log_proposal(scores, decoding, ends)
    cumulative = log_q.exp().cumsum(-1)
    place = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(-1, keepdim=True).clamp(max=scores.shape[-1] - 1)
    log_q_word = log_q.gather(1, place).squeeze(1)
    return (place if words is None else words.gather(1, place)).squeeze(1), log_q_word


def log_proposal(scores: Tensor, decoding: DecodingConfig, ends: Bool[Tensor, "*batch word"] | None) -> Tensor:
    """log q of every word.

    A temperature below 1 makes likely words likelier, and the marks that end a sentence are likely words: lines
    become short. With `end_temperature` the choice between them and all others has a temperature of its own.
    """
    tempered = scores / decoding.temperature
    if decoding.end_temperature is None or ends is None:
        return tempered.log_softmax(-1)
    least = torch.finfo(scores.dtype).min
    groups = [scores.masked_fill(~mask, least).logsumexp(-1) for mask in (ends, ~ends)]
    log_end = (torch.stack(groups, -1) / decoding.end_temperature).log_softmax(-1)
    within = [tempered - tempered.masked_fill(~mask, least).logsumexp(-1, keepdim=True) for mask in (ends, ~ends)]
    return torch.where(ends, within[0] + log_end[..., :1], within[1] + log_end[..., 1:])


@dataclass(frozen=True)
class Writer:
    """A decoder with the rules and the choice of words that it writes under."""

    decoder: Decoder[Any]
    rules: WordRules
    decoding: DecodingConfig

    def write(
        self, state: Any, z: Latent | None, uniform: Uniform | None, opening: Opening, story: Tokens | None = None,
        barred_names: Bool[Tensor, "batch name"] | None = None, i: int = 0,
    ) -> tuple[Any, Sentences]:  # fmt: skip
        """Over a missing sentence, the i-th, writing it.

        It ends by its own `end`. Where it has not done so two tokens before the limit, the next one must be a mark that
        ends a sentence, and then `end`: always the best of those the decoder offers. Without `uniform` choices are
        greedy. `story` are the story's other tokens, which `decoding.no_repeat` looks at.
        """
        decoder, rules, decoding = self.decoder, self.rules, self.decoding
        device, end = opening.device, rules.spelling.end
        rows = torch.arange(len(opening), device=device)
        words = opening.new_full((len(rows), decoding.max_words), PAD)
        log_p, log_q, log_forced = (torch.zeros(len(rows), device=device) for _ in range(3))
        after, word = state, None
        done = torch.zeros_like(rows, dtype=torch.bool)
        patience = PATIENCE.get(device.type, 6)
        forced_words, heard = opening.shape[1] if opening.any() else 0, listener()
        for t in range(decoding.max_words):
            logits, state = decoder.step(state, z, done)
            after = state if t == 0 else after  # rows are put there as they end
            logits = logits.float()
            log_norm = logits.logsumexp(-1)
            scores = rules.allowed(logits, word, t, decoding.max_words)
            if forced_words:
                scores = rules.after_opening(scores, opening[rows], t)
            if barred_names is not None:
                scores = rules.bar_names(scores, barred_names[rows], words[rows, :t])
            if story is not None and decoding.no_repeat and decoding.no_repeat - 1 <= t < decoding.max_words - 2:
                scores = rules.bar_repeats(scores, story[rows], words[rows, :t], decoding.no_repeat)
            word, log_q_word = choose(scores, decoding, None if uniform is None else uniform[:, t], rules.is_final)
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
            if heard is not None:
                heard.tokens(i, words[0, : t + 1].tolist)
            if t % patience == patience - 1 or t == decoding.max_words - 1:
                alive, ended = (~done).nonzero().squeeze(1), done.nonzero().squeeze(1)
                if len(ended):
                    after = state if len(ended) == len(opening) else after.put(rows[ended], state.select(ended))
                    if len(alive) == 0:
                        break
                    rows, word, done, state = rows[alive], word[alive], done[alive], state.select(alive)
                    z, uniform = (None if each is None else each[alive] for each in (z, uniform))
        if heard is not None:
            heard.tokens(i, words[0].tolist, ended=True)
        return after, Sentences(words, (words != PAD).sum(1), log_p, log_q, log_forced)

    def sentence(
        self, state: Any, blanks: InfillBatch, i: int, s: Integers | None, z: Latent | None, uniform: Uniform | None,
        X: Int[Tensor, "batch sent width"] | None = None,
    ) -> tuple[Any, Sentences]:  # fmt: skip
        """Over sentence i of every story: read where given, written where missing, left alone where there is none.

        `X` are the sentences written so far.
        """
        decoder, decoding, device, n = self.decoder, self.decoding, blanks.device, len(blanks.X)
        words = blanks.X.new_full((n, max(blanks.X.shape[2], decoding.max_words)), PAD)
        words[:, : blanks.X.shape[2]] = blanks.X[:, i]
        lengths = blanks.lengths[:, i].clone()
        log_p, log_q, log_forced = (torch.zeros(n, device=device) for _ in range(3))
        for part, missing in ((blanks.given[:, i], False), (blanks.missing[:, i], True)):
            if not part.any():
                continue
            # The usual batch has the same blanks in every row: then nothing is taken apart and put together.
            rows = None if part.all() else part.nonzero().squeeze(1).to(device)
            where = slice(None) if rows is None else rows
            s_part, z_part, drawn = (None if each is None else each[where] for each in (s, z, uniform))
            state_part = decoder.begin_sentence(state if rows is None else state.select(rows), s_part)
            if missing:
                story = None
                if decoding.no_repeat:
                    near = slice(max(0, i - NEAR), i + NEAR + 1)
                    parts = [each[where, near].flatten(1) for each in (blanks.X, X) if each is not None]
                    story = torch.cat(parts, 1)
                barred = None if blanks.barred_names is None else blanks.barred_names[where]
                state_part, written = self.write(state_part, z_part, drawn, blanks.opening[where, i], story, barred, i)
                words[where] = PAD
                words[where, : decoding.max_words] = written.words
                lengths[where] = written.lengths
                log_p[where], log_q[where], log_forced[where] = written.log_p, written.log_q, written.log_forced
            else:
                state_part, log_p[where] = decoder.read(
                    state_part, blanks.X[where, i], blanks.lengths[where, i], z_part
                )
            state = state_part if rows is None else state.put(rows, state_part)
        return state, Sentences(words, lengths, log_p, log_q, log_forced)

    def story(
        self, blanks: InfillBatch, S: Tags | None, Z: Latents | None,
        uniform: Float[Tensor, "batch sent word"] | None = None,
    ) -> Written:  # fmt: skip
        """Every sentence of every story, left to right."""
        state = self.decoder.start(len(blanks.X), None if Z is None else Z[:, 0])
        written: list[Sentences] = []
        for i in range(blanks.X.shape[1]):
            s, z, drawn = (None if each is None else each[:, i] for each in (S, Z, uniform))
            so_far = torch.stack([each.words for each in written], 1) if written and self.decoding.no_repeat else None
            state, sentences = self.sentence(state, blanks, i, s, z, drawn, so_far)
            written.append(sentences)
        words, lengths, log_p, log_q, _ = (torch.stack(each, 1) for each in zip(*written, strict=True))
        return Written(words, lengths, log_p, log_q)

"""Words from p(X_i | X_:i, Z_i), sentence by sentence, for many stories at once.

A `Cursor` stands before a sentence. `read` moves it over known sentences, `write` over sentences that it writes, and
`story` does both for a blanks of mixed blanks. Two log-probabilities come back: the model's own, log p, over all words
of the vocabulary, and the proposal's, log q, of the truncated law that the words were really drawn from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.vocabulary import BOS, EOS, PAD, Vocabulary
from fabula.infill.batch import InfillBatch
from fabula.infill.repeats import bar_repeats
from fabula.models.language import ConditionalLanguageModel, LanguageState

FINAL_MARKS = (".", "!", "?")
PATIENCE = {"cpu": 1, "cuda": 6}
"""Words between looks at which rows have ended: on the host a look is free, elsewhere it waits for the device."""
QUOTES = ('"', "“", "'", "``")


@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """How the next word is chosen."""

    top_k: int = 1
    """Words to choose among: 1 is greedy (the paper's Gibbs step), 15 the paper's baselines', 0 all of them."""
    temperature: float = 1.0
    """Scores are divided by this before the draw."""
    max_words: int = 30
    """A written sentence's length with its `<eos>`, at most. The authors' code: 30."""
    no_repeat: int = 0
    """Runs of so many words stand only once in a story, given sentences included; 0: no such rule."""
    bf16: bool = False
    """Whether the network runs in bf16 (CUDA); scores are summed in single precision all the same."""

    def __post_init__(self) -> None:
        if self.top_k < 0:
            raise ValueError(f"top-k must be at least 0, not {self.top_k}; 0 is all words")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be above 0 and finite, not {self.temperature}")
        if self.max_words < 3:
            raise ValueError(f"max_words must be at least 3, not {self.max_words}")
        if self.no_repeat < 0 or self.no_repeat == 1:
            raise ValueError("no_repeat is a number of words, 2 or more, or 0")


GREEDY = DecodingConfig()
TOP_15 = DecodingConfig(top_k=15)


@dataclass(frozen=True)
class Lexicon:
    """Which words may stand where in a written sentence, as scores to add: 0 or minus infinity."""

    anywhere: Float[Tensor, " vocab"]
    """Never `<pad>`, `<unk>`, `<bos>`."""
    first: Float[Tensor, " vocab"]
    """Nor does a sentence begin with `<eos>` or a mark other than a quote: no sentence is empty."""
    ending: Float[Tensor, " vocab"]
    """Only what ends a sentence: `. ! ?` where the vocabulary has them, else `<eos>`."""
    end: Float[Tensor, " vocab"]
    """Only `<eos>`."""
    is_final: Bool[Tensor, " vocab"]
    """The marks that end a sentence."""
    quote: Int[Tensor, ""]
    """The straight quotation mark's id, -1 where the vocabulary has none."""
    names: Int[Tensor, " name"]
    """People's names, which a blanks may rule out; none where nobody counted them."""

    @staticmethod
    def of(
        vocabulary: Vocabulary, device: torch.device | str = "cpu", names: Int[Tensor, " name"] | None = None
    ) -> Lexicon:
        words = vocabulary.words
        final = torch.tensor([word in FINAL_MARKS for word in words])
        special = torch.arange(len(words)) <= EOS
        spoken = torch.tensor([any(c.isalnum() for c in w) or w in QUOTES for w in words]) & ~special
        anywhere = ~special | (torch.arange(len(words)) == EOS)
        end = torch.arange(len(words)) == EOS

        def scores(allowed: Tensor) -> Tensor:
            return torch.zeros(len(words)).masked_fill(~allowed, float("-inf")).to(device)

        first = spoken if spoken.any() else ~special
        ending = final if final.any() else end
        quote = torch.tensor(vocabulary.index.get('"', -1), device=device)
        nobody = torch.zeros(0, dtype=torch.int64, device=device)
        return Lexicon(
            scores(anywhere), scores(first), scores(ending), scores(end), final.to(device), quote,
            nobody if names is None else names,
        )  # fmt: skip


class Cursor(NamedTuple):
    """Before a sentence: the state with every earlier word read but the last, and that last word."""

    state: LanguageState
    previous: Int[Tensor, " batch"]

    def pick(self, rows: Int[Tensor, " rows"]) -> Cursor:
        """Rows in another order or number: for a part of the batch, copies, resampling."""
        return Cursor(tuple(h[rows] for h in self.state), self.previous[rows])

    def join(self, other: Cursor) -> Cursor:
        """The rows of both, one after the other."""
        state = tuple(torch.cat(pair) for pair in zip(self.state, other.state, strict=True))
        return Cursor(state, torch.cat([self.previous, other.previous]))

    def put(self, rows: Int[Tensor, " rows"], other: Cursor) -> Cursor:
        """These rows replaced by another cursor's."""
        state = tuple(h.index_copy(0, rows, new.to(h.dtype)) for h, new in zip(self.state, other.state, strict=True))
        return Cursor(state, self.previous.index_copy(0, rows, other.previous))


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


def begin(
    language: ConditionalLanguageModel,
    rows: int,
    z: Float[Tensor, "batch latent"] | None,
    device: torch.device,
    bf16: bool = False,
) -> Cursor:
    """Before the first sentence. The precision of the state is that of all that follows from it."""
    state = language.start(rows, z)
    if bf16 and device.type == "cuda":
        state = tuple(h.bfloat16() for h in state)
    return Cursor(state, torch.full((rows,), BOS, device=device))


def _precision(cursor: Cursor) -> torch.autocast:
    h = cursor.state[0]
    return torch.autocast(h.device.type, dtype=torch.bfloat16, enabled=h.dtype == torch.bfloat16)


def read(
    language: ConditionalLanguageModel,
    cursor: Cursor,
    words: Int[Tensor, "batch word"],
    lengths: Int[Tensor, " batch"],
    z: Float[Tensor, "batch latent"] | None,
) -> tuple[Cursor, Float[Tensor, " batch"]]:
    """Over a known sentence: log p(X_i | X_:i, Z_i), exact; 0 for one of length 0."""
    width = max(1, int(lengths.max()))
    words = words[:, :width]
    previous = torch.cat([cursor.previous[:, None], words[:, :-1]], 1)
    with _precision(cursor):
        features, state = language.read(previous, z, cursor.state, lengths.clamp(min=1))
    # Only at the words that are there: the scores of the whole vocabulary are the expensive part.
    there = (words != PAD).nonzero(as_tuple=True)
    with _precision(cursor):
        log_p_word = language.log_prob(features[there].unsqueeze(1), words[there].unsqueeze(1)).squeeze(1).float()
    log_p = log_p_word.new_zeros(len(words)).index_add(0, there[0], log_p_word)
    state = tuple(new.to(h.dtype) for h, new in zip(cursor.state, state, strict=True))
    return Cursor(state, torch.full_like(cursor.previous, EOS)), log_p


def write(
    language: ConditionalLanguageModel,
    lexicon: Lexicon,
    decoding: DecodingConfig,
    cursor: Cursor,
    z: Float[Tensor, "batch latent"] | None,
    uniform: Float[Tensor, "batch word"] | None,
    opening: Int[Tensor, "batch opening"],
    told: Int[Tensor, "batch token"] | None = None,
    barred_names: Bool[Tensor, "batch name"] | None = None,
) -> tuple[Cursor, Sentences]:
    """Over a missing sentence, writing it.

    It ends by its own `<eos>`. Where it has not done so two words before the limit, the next word must be a mark that
    ends a sentence, and then `<eos>`: always the best of those the model offers. `uniform` is one number per word, or
    None for greedy choices. `told` are the story's other words, which `decoding.no_repeat` looks at;
    `barred_names` are the names that may not be written.
    """
    rows = torch.arange(len(cursor.previous), device=cursor.previous.device)
    words = cursor.previous.new_full((len(rows), decoding.max_words), PAD)
    log_p, log_q, log_forced = (torch.zeros(len(rows), device=rows.device) for _ in range(3))
    after = cursor.state
    state, previous = cursor
    done = torch.zeros_like(rows, dtype=torch.bool)
    patience = PATIENCE.get(rows.device.type, 6)
    forced_words = opening.shape[1] if opening.any() else 0
    for t in range(decoding.max_words):
        with _precision(cursor):
            logits, moved = language.step(previous, z, state)
        logits = logits.float()
        log_norm = logits.logsumexp(-1)
        state = tuple(torch.where(done[:, None], h, new.to(h.dtype)) for h, new in zip(state, moved, strict=True))
        barred = _allowed(lexicon, logits, previous, t, decoding.max_words)
        if barred_names is not None:
            out = barred[:, lexicon.names].masked_fill(barred_names[rows], float("-inf"))
            barred = barred.index_copy(1, lexicon.names, out)
        if told is not None and decoding.no_repeat and decoding.no_repeat - 1 <= t < decoding.max_words - 2:
            seen = torch.cat([told[rows], words[rows, :t]], 1)
            barred = bar_repeats(barred, seen, words[rows, t - decoding.no_repeat + 1 : t])
        word, log_q_word = choose(barred, decoding, None if uniform is None else uniform[:, t])
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
        done = done | (word == EOS)
        previous = word
        if t % patience == patience - 1 or t == decoding.max_words - 1:
            after = tuple(h.index_copy(0, rows, new.to(h.dtype)) for h, new in zip(after, state, strict=True))
            alive = (~done).nonzero().squeeze(1)
            if len(alive) == 0:
                break
            if len(alive) < len(rows):
                rows, previous, done = rows[alive], previous[alive], done[alive]
                state = tuple(h[alive] for h in state)
                z = None if z is None else z[alive]
                uniform = None if uniform is None else uniform[alive]
    lengths = (words != PAD).sum(1)
    ended = Cursor(after, torch.full_like(cursor.previous, EOS))
    return ended, Sentences(words, lengths, log_p, log_q, log_forced)


def replay(
    language: ConditionalLanguageModel,
    lexicon: Lexicon,
    decoding: DecodingConfig,
    cursor: Cursor,
    words: Int[Tensor, "batch word"],
    z: Float[Tensor, "batch latent"] | None,
    opening: Int[Tensor, "batch opening"],
) -> tuple[Cursor, Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """Over a sentence that `write` could have written: log p and log q of it; if it could not, log q is -inf."""
    state, previous = cursor
    log_p, log_q = (torch.zeros(len(words), device=words.device) for _ in range(2))
    for t in range(int((words != PAD).sum(1).max())):
        word = words[:, t]
        done = word == PAD
        with _precision(cursor):
            logits, moved = language.step(previous, z, state)
        logits = logits.float()
        state = tuple(torch.where(done[:, None], h, new.to(h.dtype)) for h, new in zip(state, moved, strict=True))
        log_p_word = logits.log_softmax(-1).gather(1, word[:, None]).squeeze(1)
        barred = _allowed(lexicon, logits, previous, t, decoding.max_words)
        if decoding.top_k and decoding.top_k < barred.shape[-1]:
            least = barred.topk(decoding.top_k, dim=-1).values[:, -1:]
            barred = barred.masked_fill(barred < least, float("-inf"))
        log_q_word = (barred / decoding.temperature).log_softmax(-1).gather(1, word[:, None]).squeeze(1)
        forced = (opening[:, t] != PAD) if t < opening.shape[1] else torch.zeros_like(done)
        log_p = log_p + log_p_word.masked_fill(done, 0.0)
        log_q = log_q + log_q_word.masked_fill(done | forced, 0.0)
        previous = word
    return Cursor(state, torch.full_like(previous, EOS)), log_p, log_q


def _allowed(lexicon: Lexicon, logits: Tensor, previous: Tensor, t: int, max_words: int) -> Tensor:
    """The scores with what may not stand at place t ruled out."""
    if t == max_words - 1:
        return logits + lexicon.end
    if t == 0:
        return logits + lexicon.first
    if t == max_words - 2:
        return logits + torch.where(lexicon.is_final[previous].unsqueeze(-1), lexicon.end, lexicon.ending)
    return logits + lexicon.anywhere


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
    language: ConditionalLanguageModel,
    lexicon: Lexicon,
    decoding: DecodingConfig,
    cursor: Cursor,
    blanks: InfillBatch,
    i: int,
    z: Float[Tensor, "batch latent"] | None,
    uniform: Float[Tensor, "batch word"] | None,
    X: Int[Tensor, "batch sent width"] | None = None,
) -> tuple[Cursor, Sentences]:
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
        # The usual blanks has the same blanks in every row: then nothing is taken apart and put together.
        rows = None if part.all() else part.nonzero().squeeze(1).to(device)
        at = cursor if rows is None else cursor.pick(rows)
        z_part = z if z is None or rows is None else z[rows]
        where = slice(None) if rows is None else rows
        if blank:
            drawn = None if uniform is None else uniform[where]
            told = None
            if decoding.no_repeat:
                # The blanks's given sentences, and what has been written so far.
                told = blanks.X[where].flatten(1)
                told = told if X is None else torch.cat([told, X[where].flatten(1)], 1)
            barred_names = None if blanks.barred_names is None else blanks.barred_names[where]
            moved, new = write(
                language, lexicon, decoding, at, z_part, drawn, blanks.opening[where, i], told, barred_names
            )
            words[where] = PAD
            words[where, : decoding.max_words] = new.words
            lengths[where] = new.lengths
            log_p[where], log_q[where], log_forced[where] = new.log_p, new.log_q, new.log_forced
        else:
            moved, log_p_part = read(language, at, blanks.X[where, i], blanks.lengths[where, i], z_part)
            log_p[where] = log_p_part
        cursor = moved if rows is None else cursor.put(rows, moved)
    return cursor, Sentences(words, lengths, log_p, log_q, log_forced)


def story(
    language: ConditionalLanguageModel,
    lexicon: Lexicon,
    decoding: DecodingConfig,
    blanks: InfillBatch,
    Z: Float[Tensor, "batch sent latent"] | None,
    uniform: Float[Tensor, "batch sent word"] | None = None,
) -> Written:
    """Every sentence of every story, left to right."""
    cursor = begin(language, len(blanks.X), None if Z is None else Z[:, 0], blanks.device, decoding.bf16)
    found: list[Sentences] = []
    for i in range(blanks.X.shape[1]):
        z = None if Z is None else Z[:, i]
        drawn = None if uniform is None else uniform[:, i]
        so_far = torch.stack([s.words for s in found], 1) if found and decoding.no_repeat else None
        cursor, new = sentence(language, lexicon, decoding, cursor, blanks, i, z, drawn, so_far)
        found.append(new)
    return Written(
        torch.stack([s.words for s in found], 1),
        torch.stack([s.lengths for s in found], 1),
        torch.stack([s.log_p for s in found], 1),
        torch.stack([s.log_q for s in found], 1),
    )

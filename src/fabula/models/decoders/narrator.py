"""The narrator: a pretrained transformer with an adapter as decoder, p(X_i | S_i, X_:i), and r(X_missing | X_given, S).

Its state is a key-value cache. A story of more than eight sentences is read through a window: after eight sentences the
last four are read again from a fresh start, with a header of the eight lines from there on. So a sentence is written
with the last four to eight before it in view, at lengths that the adapter was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from fabula.corpus.states import UNKNOWN
from fabula.models.decoders.cache import Cache
from fabula.models.decoders.network import Network, Packed
from fabula.models.decoders.protocol import Given
from fabula.models.decoders.rows import END, MOOD_TOKENS, NO_TOKEN, SPECIALS, TagTokens, header, padded
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.shapes import Flags, Integers, PerStory, Rows, Scores, Tokens, Words

WINDOW, KEPT = 8, 4
"""Sentences that a row remembers at most, and how many are read again when it is full."""
SCORED_AT_ONCE = {"cpu": 64, "cuda": 8192}
"""Tokens whose scores (49,152 each) are held at a time."""


@dataclass(frozen=True)
class NarratorState:
    """What is remembered of the stories so far, a row for each. States are values: any may be continued many times."""

    cache: Cache
    slot: Integers
    """Where in the cache each row stands."""
    alone: bool
    """Whether no two rows stand at the same slot."""
    lengths: Integers
    """Tokens in the cache."""
    last: Integers
    """The token that is read next: `<bos>`, the end of the header or of a sentence, or the word just chosen."""
    before: Int[Tensor, "batch factor"]
    """The tokens of the sentence's tags, which are read after it, padded; NO_TOKEN alone inside a sentence."""
    ids: Tokens
    """The tokens in the cache, for the window."""
    starts: Int[Tensor, "batch window"]
    """Where in `ids` the sentences begin."""
    sentences: Integers
    """Sentences in the cache."""
    first: Integers
    """The number in its story of the first of them."""
    given: Given | None

    def then(self, tokens: Integers) -> NarratorState:
        return replace(self, last=tokens)

    def select(self, rows: Rows) -> NarratorState:
        """Nothing is copied before one of the rows goes on."""
        given = None if self.given is None else Given(*(tensor[rows] for tensor in self.given))
        return self._with(self.cache, [tensor[rows] for tensor in self._rows()], given)

    def put(self, rows: Rows, other: NarratorState) -> NarratorState:
        return self._merge(other, lambda a, b: a.index_copy(0, rows, b))

    def join(self, other: NarratorState) -> NarratorState:
        return self._merge(other, lambda a, b: torch.cat([a, b]))

    def _merge(self, other: NarratorState, merge: Callable[[Tensor, Tensor], Tensor]) -> NarratorState:
        cache, ours, theirs = _alike(self, other)
        given = None
        if self.given is not None and other.given is not None:
            given = Given(*map(merge, self.given, other.given))
        return self._with(cache, list(map(merge, ours, theirs)), given)

    def to_write(self, tokens: Integers) -> tuple[Cache, Integers]:
        """A cache that so many tokens of each row can be written to, and the rows' slots there.

        It is this one, with room, if no other row went on from where these stand; else a copy. It is this one even if
        most slots are idle: of a smaller copy and what stayed behind one cache would have to be made again.
        """
        cache = self.cache
        clash = (cache.written[self.slot] != self.lengths).any()
        room, clashes = torch.stack([(self.lengths + tokens).max(), clash.long()]).tolist()
        if self.alone and not clashes:
            cache.make_room(room)
            return cache, self.slot
        cache = cache.of_rows(self.slot, self.lengths, room)
        return cache, torch.arange(len(self.slot), device=self.slot.device)

    def _rows(self) -> list[Tensor]:
        return [self.slot, self.lengths, self.last, self.before, self.ids, self.starts, self.sentences, self.first]

    @staticmethod
    def _with(cache: Cache, rows: Sequence[Tensor], given: Given | None) -> NarratorState:
        slot, lengths, last, before, ids, starts, sentences, first = rows
        alone = len(slot) < 2 or (len(slot) <= cache.entries.shape[2] and int(slot.bincount().max()) == 1)
        return NarratorState(cache, slot, alone, lengths, last, before, ids, starts, sentences, first, given)


def _alike(a: NarratorState, b: NarratorState) -> tuple[Cache, list[Tensor], list[Tensor]]:
    """A cache that both states stand in, and their tensors, of a common width."""
    if (a.given is None) != (b.given is None):
        raise ValueError("one of the states knows the lines ahead, the other does not")
    cache, mine, theirs = a.cache, a._rows(), b._rows()
    if a.cache is not b.cache:
        places = max((int(state.lengths.max()) for state in (a, b) if len(state.lengths)), default=0)
        entries = torch.cat([state.cache.whole(state.slot, places) for state in (a, b)], 2)
        slot = torch.arange(entries.shape[2], device=entries.device)
        cache = Cache(entries, torch.cat([a.lengths, b.lengths]))
        mine[0], theirs[0] = slot[: len(a.slot)], slot[len(a.slot) :]
    width = max(a.ids.shape[1], b.ids.shape[1])
    for rows in (mine, theirs):
        rows[4] = F.pad(rows[4], (0, width - rows[4].shape[1]))
    return cache, mine, theirs


class NarratorDecoder:
    """p(X_i | S_i, X_:i) by the rows of `rows.py`; there is no latent, so every `z` is None.

    Scores are normalised over the tokens of text and `end`: marks and moods are never written.
    """

    D = 0

    def __init__(self, network: Network, tokenizer: SubwordTokenizer, tags: TagTokens | None = None) -> None:
        """`tags` are the tokens of the states; not given, of one factor that has as many labels as there are moods."""
        self.network, self.tokenizer = network, tokenizer
        self.tags = tags or MOOD_TOKENS
        table, self.state_zero = self.tags.table()
        self.tag_tokens = table.to(network.device)

    @torch.inference_mode()
    def start(self, rows: int, z: Tensor | None = None, given: Given | None = None) -> NarratorState:
        """Before the first sentence; with `given` lines their header is read."""
        return self._begin(given, torch.zeros(rows, dtype=torch.int64), [[] for _ in range(rows)])

    def reads_until(self, i: int) -> int:
        moved = WINDOW - KEPT
        return max(0, i - KEPT) // moved * moved + WINDOW

    def without_history(self, state: NarratorState) -> NarratorState:
        return self.start(len(state.lengths))

    @torch.inference_mode()
    def begin_sentence(self, state: NarratorState, s: Integers | None) -> NarratorState:
        """Before a sentence whose switching state is `s`, -1 where it is free (`StateSpace.number`)."""
        full = (state.sentences == WINDOW) & (state.before[:, 0] == NO_TOKEN)
        if bool(full.any()):
            rows = full.nonzero().squeeze(1)
            state = state.put(rows, self._move_window(state.select(rows)))
        if s is None:
            s = torch.full_like(state.last, UNKNOWN)
        return replace(state, before=self.tag_tokens[s + self.state_zero])

    @torch.inference_mode()
    def read(
        self, state: NarratorState, tokens: Words, lengths: Integers, z: Tensor | None = None
    ) -> tuple[NarratorState, PerStory]:
        state, log_p = self.read_tokens(state, tokens, lengths)
        return state, log_p.sum(1)

    @torch.inference_mode()
    def read_tokens(
        self, state: NarratorState, tokens: Words, lengths: Integers
    ) -> tuple[NarratorState, Float[Tensor, "batch word"]]:
        """Over a known sentence as `read` goes, with log p of each token; 0 beyond its end."""
        log_p = torch.zeros(tokens.shape, device=self.network.device)
        if not bool((lengths > 0).any()):
            return state, log_p
        waiting, count = self._waiting(state)
        place = torch.arange(waiting.shape[1] + tokens.shape[1], device=tokens.device).expand(len(tokens), -1)
        word = (place - count[:, None]).clamp(0, tokens.shape[1] - 1)
        ids = torch.where(place < count[:, None], F.pad(waiting, (0, tokens.shape[1])), tokens.gather(1, word))
        there = (place < (count + lengths - 1)[:, None]) & (lengths > 0)[:, None]
        features, new, moved = self._read(state, ids, there)
        scored = new.column >= count[new.row] - 1
        row, target = new.row[scored], ids[new.row[scored], new.column[scored] + 1]
        places = scored.nonzero().squeeze(1)
        for part in torch.arange(len(row), device=row.device).split(SCORED_AT_ONCE.get(row.device.type, 512)):
            chosen = places[part]
            place = new.column[chosen] + 1 - count[row[part]]
            log_p[row[part], place] = -F.cross_entropy(self.scores(features[chosen]), target[part], reduction="none")
        final = tokens.gather(1, (lengths - 1).clamp(min=0)[:, None]).squeeze(1)
        return replace(moved, last=torch.where(lengths > 0, final, moved.last)), log_p

    @torch.inference_mode()
    def step(self, state: NarratorState, z: Tensor | None, done: Flags) -> tuple[Scores, NarratorState]:
        """Scores of rows that are `done` are 0."""
        vocabulary = self.network.sizes.vocabulary
        if bool(done.all()):
            return torch.zeros(len(done), vocabulary, device=done.device), state
        ids, count = self._waiting(state)
        there = (torch.arange(ids.shape[1], device=ids.device) < count[:, None]) & ~done[:, None]
        features, new, moved = self._read(state, ids, there)
        newest = new.column == count[new.row] - 1
        scores = self.scores(features[newest])
        if len(scores) == len(done):
            return scores, moved
        return scores.new_zeros(len(done), vocabulary).index_copy(0, new.row[newest], scores), moved

    def scores(self, features: Float[Tensor, "token width"]) -> Float[Tensor, "token vocab"]:
        scores = self.network.logits(features)
        end = scores[:, END].clone()
        scores[:, :SPECIALS] = float("-inf")
        scores[:, END] = end
        return scores

    # the cache

    def _waiting(self, state: NarratorState) -> tuple[Tokens, Integers]:
        """The tokens that each row has still to read: the last one, then those of the tags."""
        count = (state.before != NO_TOKEN).sum(1)
        before = state.before[:, : int(count.max())].clamp(min=0) if len(count) else state.before
        return torch.cat([state.last[:, None], before], 1), 1 + count

    def _read(
        self, state: NarratorState, ids: Tokens, there: Bool[Tensor, "batch token"]
    ) -> tuple[Float[Tensor, "packed width"], Packed, NarratorState]:
        """New tokens into the cache, which is copied if it is shared with a state that went another way."""
        new = Packed.of(ids, there, state.lengths)
        lengths = state.lengths + there.sum(1)
        cache, slot = state.to_write(there.sum(1))
        features = self.network.read(cache, new, slot)
        kept = F.pad(state.ids, (0, max(0, int(lengths.max()) - state.ids.shape[1])))
        kept = kept.index_put((new.row, new.place), new.ids)
        began = there.any(1) & (state.before[:, 0] != NO_TOKEN)  # a mood token was read, after the one that was waiting
        at = F.one_hot(state.sentences.clamp(max=WINDOW - 1), WINDOW).bool() & began[:, None]
        starts = torch.where(at, (state.lengths + 1)[:, None], state.starts)
        before = torch.where(there.any(1)[:, None], NO_TOKEN, state.before)
        moved = replace(
            state, cache=cache, slot=slot, alone=True, lengths=lengths, ids=kept, starts=starts, before=before
        )
        return features, new, replace(moved, sentences=state.sentences + began.long())

    def _begin(self, given: Given | None, first: Integers, written: Sequence[Sequence[int]]) -> NarratorState:
        """A window that begins with sentence `first` of each story: its header is read, then the tokens `written`.

        Of both together the last token is read next.
        """
        prompts = []
        # Asked for once: rows are many, and each question to a GPU takes its time.
        X, lengths, present, missing = ([], [], [], []) if given is None else (tensor.tolist() for tensor in given)
        for row, (start, tokens) in enumerate(zip(first.tolist(), written, strict=True)):
            ahead: list[list[int] | None] = []
            if given is not None:
                for j in range(start, min(start + WINDOW, given.X.shape[1])):
                    if missing[row][j]:
                        ahead.append(None)
                    elif present[row][j]:
                        ahead.append(X[row][j][: max(lengths[row][j] - 1, 0)])
            prompts.append([*header(ahead), *tokens])
        rows, device = len(prompts), self.network.device
        zeros = torch.zeros(rows, dtype=torch.int64, device=device)
        state = NarratorState(
            self.network.cache(rows), torch.arange(rows, device=device), True, zeros,
            torch.tensor([prompt.pop() for prompt in prompts], device=device),
            torch.full_like(self.tag_tokens[:1], NO_TOKEN).expand(rows, -1),
            zeros[:, None][:, :0],
            torch.zeros(rows, WINDOW, dtype=torch.int64, device=device), zeros, first.to(device), given,
        )  # fmt: skip
        return self._read(state, *padded(prompts, device))[2] if any(prompts) else state

    def _move_window(self, state: NarratorState) -> NarratorState:
        """The last sentences read again after a fresh beginning; the states' rows are full."""
        first = state.first + WINDOW - KEPT
        written = []
        for row in range(len(first)):
            begin = int(state.starts[row, WINDOW - KEPT])
            written.append([*state.ids[row, begin : int(state.lengths[row])].tolist(), int(state.last[row])])
        moved = self._begin(state.given, first, written)
        lengths = [len(tokens) for tokens in written]
        shift = moved.lengths + 1 - torch.tensor(lengths, device=first.device) - state.starts[:, WINDOW - KEPT]
        starts = F.pad(state.starts[:, WINDOW - KEPT :] + shift[:, None], (0, WINDOW - KEPT))
        return replace(moved, starts=starts, sentences=torch.full_like(first, KEPT))

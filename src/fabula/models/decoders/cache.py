"""What a transformer remembers of its rows: keys and values, shared between rows as far as they agree.

A cache has slots. A row stands at one, and its tokens are appended there. What the particles of a story have in common,
the story's prompt, is kept once for all of them, as a `Prefix`. Rows that are left out for a while, because their
sentence has ended, cost nothing: their slots stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

GROWTH = 64
"""A cache grows by multiples of this many tokens."""


class Prefix(NamedTuple):
    """What groups of slots begin with. A group is so many slots in a row, all groups have as many."""

    entries: Float[Tensor, "layer 2 group head place width"]
    lengths: Int[Tensor, " group"]
    ragged: bool
    """Whether the lengths differ."""


@dataclass
class Cache:
    """Keys and values of every layer, slot and place: [layer, key or value, slot, head, place, width]."""

    entries: Float[Tensor, "layer 2 slot head place width"]
    written: Int[Tensor, " slot"]
    """Tokens of each slot, its prefix included. A row that has read fewer may not be continued here: another row went
    on from it."""
    prefix: Prefix | None = None
    """Places in `entries` count from its end."""

    @property
    def begins(self) -> Int[Tensor, " slot"]:
        """How many tokens of each slot are in its prefix."""
        if self.prefix is None:
            return torch.zeros_like(self.written)
        return self.prefix.lengths.repeat_interleave(len(self.written) // len(self.prefix.lengths))

    def make_room(self, places: int) -> None:
        """Room for `places` tokens in every slot."""
        fewest = 0 if self.prefix is None else int(self.prefix.lengths.min())
        more = places - fewest - self.entries.shape[4]
        if more > 0:
            self.entries = F.pad(self.entries, (0, 0, 0, -(-more // GROWTH) * GROWTH))

    def of_rows(self, slot: Int[Tensor, " row"], lengths: Int[Tensor, " row"], room: int) -> Cache:
        """A copy whose slots are these rows, each with its first tokens, and room for `room` of them.

        Rows at one slot and of one length become a group, if groups are of one size: their tokens so far are its
        prefix. (On a GPU one product over all places is faster.)
        """
        places = int(lengths.max())
        if self.entries.device.type == "cpu" and places:
            changes = (slot[1:] != slot[:-1]) | (lengths[1:] != lengths[:-1])
            heads = torch.cat([torch.ones(1, dtype=torch.bool), changes]).nonzero().squeeze(1)
            size, left = divmod(len(slot), len(heads))
            if size > 1 and not left and bool((heads == torch.arange(len(heads)) * size).all()):
                ragged = bool((lengths[heads] != lengths[0]).any())
                shared = Prefix(self.whole(slot[heads], places), lengths[heads], ragged)
                return self._empty(lengths, shared, room)
        if self.prefix is not None:
            groups, size = len(self.prefix.lengths), len(self.written) // len(self.prefix.lengths)
            each, left = divmod(len(slot), groups)
            if not left and bool((slot // size == torch.arange(groups).repeat_interleave(each)).all()):
                copy = self._empty(lengths, self.prefix, room)
                used = min(self.entries.shape[4], copy.entries.shape[4])
                copy.entries[..., :used, :] = self.entries[..., :used, :].index_select(2, slot)
                return copy
        copy = self._empty(lengths, None, room)
        copy.entries[..., :places, :] = self.whole(slot, places)
        return copy

    def _empty(self, lengths: Int[Tensor, " row"], prefix: Prefix | None, room: int) -> Cache:
        layers, _, _, heads, _, width = self.entries.shape
        cache = Cache(self.entries.new_zeros(layers, 2, len(lengths), heads, 0, width), lengths.clone(), prefix)
        cache.make_room(room)
        return cache

    def whole(self, slot: Int[Tensor, " row"], places: int) -> Float[Tensor, "layer 2 row head place width"]:
        """The first `places` tokens of rows, the prefix in each of them."""
        self.make_room(places)
        if self.prefix is None:
            return self.entries[..., :places, :].index_select(2, slot)
        layers, _, slots, heads, _, width = self.entries.shape
        entries = self.entries.new_zeros(layers, 2, len(slot), heads, places, width)
        groups = slot // (slots // len(self.prefix.lengths))
        for row, (at, group) in enumerate(zip(slot.tolist(), groups.tolist(), strict=True)):
            shared = min(places, int(self.prefix.lengths[group]))
            entries[:, :, row, :, :shared] = self.prefix.entries[:, :, group, :, :shared]
            entries[:, :, row, :, shared:] = self.entries[:, :, at, :, : places - shared]
        return entries

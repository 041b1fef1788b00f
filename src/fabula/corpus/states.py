"""The values of the switching state S_i: one or several named factors with their labels, and their product.

    k = (v_1 n_2 + v_2) n_3 + v_3 ...        v_f: which of its n_f labels factor f has; the last factor varies fastest

A model sees the number k alone. Here are the labels it stands for, and arcs as people write them. With one factor k is
the place of its label, and a label of the product is the factor's own. Needs numpy only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.errors import UserError

SIGNS = {"+": "positive", "-": "negative", ".": "neutral"}
FREE = "?"
UNKNOWN = -1
"""The value of a factor, or the state of a sentence, that nobody gave."""
SENTIMENT = ("negative", "neutral", "positive")
JOINT = "/"
"""Between the labels of several factors: positive/joy."""

Values = tuple[tuple[int, ...], ...]
"""For each sentence the place of its label in every factor, -1 where it is free."""
Numbers = NDArray[Any] | Sequence[Any] | int
"""Whole numbers, in an array or in nested sequences."""
Tags = str | Sequence[str | None]
Arc = Tags | Mapping[str, Tags] | None
"""A tag for each sentence, as one text or as a sequence, or such tags by factor; None: all are free."""


@dataclass(frozen=True)
class Factor:
    """One thing that is said of a sentence, such as its sentiment."""

    name: str
    labels: tuple[str, ...]

    def find(self, word: str) -> int:
        """The place of a label that is named by itself, in any case, or by its sign; -1 where it is not known."""
        names = (word, SIGNS.get(word, word.lower()))
        return next((self.labels.index(name) for name in names if name in self.labels), UNKNOWN)


@dataclass(frozen=True)
class StateSpace:
    """The product of factors."""

    factors: tuple[Factor, ...]

    def __post_init__(self) -> None:
        names = [factor.name for factor in self.factors]
        if not names or len(set(names)) < len(names):
            raise UserError(f"a state has one or more factors of different names, not {names}", field="states")
        for factor in self.factors:
            if not factor.labels or len(set(factor.labels)) < len(factor.labels):
                raise UserError(f"{factor.name} has no labels, or one of them twice: {factor.labels}", field="states")
            if len(names) > 1 and any(JOINT in label for label in factor.labels):
                fault = f"a label of {factor.name} contains {JOINT!r}, the sign between factors"
                raise UserError(fault, field="states")

    @classmethod
    def single(cls, tagger: str, labels: Sequence[str]) -> StateSpace:
        """One factor, called after the tagger; VADER's three labels are `sentiment`, whoever gave them."""
        return cls((Factor("sentiment" if tuple(labels) == SENTIMENT else tagger, tuple(labels)),))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(factor.labels) for factor in self.factors)

    @property
    def K(self) -> int:
        """States in all."""
        return int(np.prod(self.sizes))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The name of every state."""
        return tuple(self.label(tuple(values)) or FREE for values in self.values(np.arange(self.K)).tolist())

    def allowed(self, values: Numbers) -> NDArray[np.bool_]:
        """[..., factor] to [..., K]: the states that agree with every value that is not free."""
        wanted = np.asarray(values, dtype=np.int64)[..., None, :]
        return np.asarray(((wanted < 0) | (wanted == self.values(np.arange(self.K)))).all(-1))

    def number(self, values: Numbers) -> NDArray[np.int64]:
        """[..., factor] to [...]: the state where every value is given, -1 where none is, below -1 where some are.

        -2 - m,   m = (v_1 (n_2 + 1) + v_2) (n_3 + 1) + v_3 ...        v_f = n_f: factor f is free
        """
        rows = np.asarray(values, dtype=np.int64)
        free, sizes = rows < 0, np.asarray(self.sizes)
        partly = -2 - np.where(free, sizes, rows) @ _strides(sizes + 1)
        return np.where(free.all(-1), UNKNOWN, np.where(free.any(-1), partly, rows @ _strides(sizes)))

    def values(self, numbers: Numbers) -> NDArray[np.int64]:
        """The inverse of `number`: [...] to [..., factor], -1 where a factor is free."""
        number = np.asarray(numbers, dtype=np.int64)[..., None]
        sizes = np.asarray(self.sizes)
        partly = (-2 - number) // _strides(sizes + 1) % (sizes + 1)
        whole = np.where(number < 0, UNKNOWN, number // _strides(sizes) % sizes)
        return np.where(number < UNKNOWN, np.where(partly == sizes, UNKNOWN, partly), whole)

    def common(self, allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
        """[..., K] to [..., factor]: the values that all allowed states share, -1 where they differ.

        A factor of one label is free: to name its value says nothing.
        """
        table = self.values(np.arange(self.K))
        counts = [[(allowed & (table[:, f] == v)).any(-1) for v in range(n)] for f, n in enumerate(self.sizes)]
        one = [np.where((np.sum(c, 0) == 1) & (len(c) > 1), np.argmax(c, 0), UNKNOWN) for c in counts]
        return np.stack(one, -1)

    def label(self, values: Sequence[int]) -> str | None:
        """`positive`, or `positive/?` where one of several factors is free; None where all are."""
        if max(values) < 0:
            return None
        named = [FREE if v < 0 else factor.labels[v] for v, factor in zip(values, self.factors, strict=True)]
        return JOINT.join(named)

    def named(self, values: Sequence[int]) -> tuple[str | None, dict[str, str]]:
        """The first factor's label, None where it is free; and the labels of the others by name, without free ones."""
        labels = {f.name: f.labels[v] for f, v in zip(self.factors, values, strict=True) if v >= 0}
        return labels.pop(self.factors[0].name, None), labels

    def check(self, names: Sequence[str]) -> list[str]:
        """Names of factors, if they are."""
        return [self._name(name, "factors") for name in names]

    def spoken(self, arc: Sequence[tuple[int, ...]]) -> list[str]:
        """The names of the factors that an arc fixes anywhere."""
        return [f.name for f, values in zip(self.factors, zip(*arc, strict=True), strict=True) if max(values) >= 0]

    def marginals(
        self, shares: NDArray[np.floating[Any]] | Sequence[Sequence[float]]
    ) -> list[dict[str, dict[str, float]]]:
        """[sent, K] to the share of each label for every sentence, by factor: the others are summed out."""
        rows = np.asarray(shares, dtype=np.float64)
        table = (rows / rows.sum(-1, keepdims=True)).reshape(-1, *self.sizes)  # single precision leaves 1 by 1e-8
        axes = range(1, table.ndim)
        summed = [table.sum(tuple(a for a in axes if a != f)).tolist() for f in axes]
        return [
            {f.name: dict(zip(f.labels, row[i], strict=True)) for f, row in zip(self.factors, summed, strict=True)}
            for i in range(len(table))
        ]

    def parse(self, arc: Any) -> Values:
        """An `Arc` as people write it, checked: a tag for each sentence, of one factor or several.

            + ? -      --.++      negative, ?, joy      sentiment=+,?,- emotion=joy,?,fear      + ? -; emotion=joy,?,?

        Tags are the signs `+ - .`, the labels by name, and `?` for free, between blanks or commas; signs need neither.
        A tag without its factor's name belongs to the first factor that has such a label; `positive/joy` is a tag of
        all factors.
        """
        clauses = [(name, self._words(tags)) for name, tags in self._clauses(arc)]
        lengths = {name: len(words) for name, words in clauses}
        if len(set(lengths.values())) > 1:
            counts = " and ".join(f"{n} of {name or 'the first'}" for name, n in lengths.items())
            raise UserError(f"the arc has tags for different numbers of sentences: {counts}", field="arc")
        rows = [[UNKNOWN] * len(self.factors) for _ in range(max(lengths.values(), default=0))]
        for name, words in clauses:
            for i, word in enumerate(words):
                for f, value in self._values(name, word):
                    if value >= 0 and rows[i][f] not in (UNKNOWN, value):
                        name = self.factors[f].name
                        raise UserError(f"the arc gives sentence {i + 1} two tags of {name}", field="arc")
                    rows[i][f] = max(value, rows[i][f])
        return tuple(map(tuple, rows))

    def to_record(self) -> list[dict[str, Any]]:
        """Plain values for a manifest or a checkpoint."""
        return [{"name": factor.name, "labels": list(factor.labels)} for factor in self.factors]

    @classmethod
    def from_record(cls, record: Sequence[Mapping[str, Any]]) -> StateSpace:
        """The inverse of `to_record`."""
        return cls(tuple(Factor(str(factor["name"]), tuple(factor["labels"])) for factor in record))

    def _clauses(self, arc: Any) -> list[tuple[str | None, Any]]:
        """The parts of an arc that speak of one factor each; None: it is not named."""
        if isinstance(arc, Mapping):
            return [(self._name(name), tags) for name, tags in arc.items()]
        if not isinstance(arc, str) or not re.search("[;=]", arc):
            return [(None, arc)]
        clauses: list[tuple[str | None, Any]] = []
        for part in arc.split(";"):
            first, *named = re.split(r"(?:^|\s)\s*([^\s,=]+)\s*=", part)
            clauses += [(None, first)] if first.strip() else []
            clauses += [(self._name(name), tags) for name, tags in zip(named[::2], named[1::2], strict=True)]
        return clauses

    def _name(self, name: str, field: str = "arc") -> str:
        names = [factor.name for factor in self.factors]
        if name not in names:
            where = "in the arc; " if field == "arc" else ""
            raise UserError(f"unknown factor {name!r} {where}this model has {', '.join(names)}", field=field)
        return name

    def _words(self, tags: Any) -> Sequence[str | None]:
        if isinstance(tags, str):
            words = re.split(r"[\s,]+", tags.strip()) if tags.strip() else []
            signs = len(words) == 1 and words[0] not in self.labels and set(words[0]) <= {*SIGNS, FREE}
            return tuple(words[0]) if signs else words
        if isinstance(tags, Sequence) and all(word is None or isinstance(word, str) for word in tags):
            return tags
        raise UserError(f"an arc is a text or a list of texts, such as '- ? +', not {tags!r}"[:200], field="arc")

    def _values(self, name: str | None, word: str | None) -> list[tuple[int, int]]:
        """The factors that a tag speaks of, by their places, and their values."""
        if word is None or word == FREE:
            return []
        parts = word.split(JOINT)
        if name is None and len(self.factors) == len(parts) > 1:
            chosen = [(f, part) for f, part in enumerate(parts) if part != FREE]
            return [pair for f, part in chosen for pair in self._values(self.factors[f].name, part)]
        candidates = [f for f, factor in enumerate(self.factors) if name in (None, factor.name)]
        for f in candidates:
            if (value := self.factors[f].find(word)) >= 0:
                return [(f, value)]
        first, *others = (self.factors[f] for f in candidates)
        signs = [sign for sign, label in SIGNS.items() if label in first.labels]
        tags = f"{', '.join([*first.labels, *signs])} and {FREE} (free)"
        tags += f"; by name {' and '.join(f'{f.name}={f.labels[0]},...' for f in others)}" if others else ""
        raise UserError(f"unknown tag {word!r} in the arc; this model knows {tags}", field="arc")


def _strides(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """How far apart the numbers of two neighbouring values of each factor are."""
    return np.cumprod([1, *sizes[:0:-1]])[::-1].astype(np.int64)

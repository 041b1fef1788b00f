"""What the api answers: plain records.

Each has `to_json`, the text that the command line prints and HTTP sends (four decimals; schema/ says its form), and
`to_dict` with every digit.

>>> given, written = Sentence("Tom was sad.", False, "negative", -9.5), Sentence("He smiled.", True, "positive", -7.25)
>>> candidate = Candidate((given, written), -3.0)
>>> candidate.text
'Tom was sad. He smiled.'
>>> candidate.arc
('negative', 'positive')
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

FACTORS = "factors"
SPARE = (FACTORS, "asked_factors")
"""The members that only answers of a model with several factors have."""


class Answer:
    """What all answers can do."""

    def to_json(self) -> str:
        """The text that the command line prints: four decimals, no times, the same bytes for the same seed."""
        return json.dumps(self.to_dict(decimals=4), ensure_ascii=False, indent=1)

    def to_dict(self, decimals: int | None = None) -> dict[str, Any]:
        """The fields as plain values, lists for tuples; an answer of a model of one factor has no `factors`.

        With `decimals` numbers are rounded, and those that are not finite are None: no noise of the last bit.
        """

        def value_of(value: Any) -> Any:
            if isinstance(value, float) and decimals is not None:
                return round(value, decimals) if math.isfinite(value) else None
            if isinstance(value, Mapping):
                return {key: value_of(item) for key, item in value.items() if key not in SPARE or item}
            return [value_of(item) for item in value] if isinstance(value, list | tuple) else value

        record: dict[str, Any] = value_of(asdict(self))  # type: ignore[call-overload]
        return record


@dataclass(frozen=True)
class Sentence:
    """One sentence of a candidate."""

    text: str
    written: bool
    """Whether the model wrote it; a given sentence is word for word what was typed."""
    tag: str | None
    """The label that is read off the text, as `tag` reads it: argmax q(S_i | X), or the tagger's. If the state has
    several factors, the label of the first one, the mood. None where nothing can read it."""
    log_p: float
    """log p(X_i | X_:i, Z_i) in nats; of a given sentence as the model reads it, with unknown words as <unk>."""
    factors: Mapping[str, str] = field(default_factory=dict)
    """Labels of the state's other factors by name, read off the text too, such as {"emotion": "joy"}. Main verbs are
    included only where the arc asks for one."""
    confidence: float | None = None
    """The probability of `tag`: q(S_i | X), or how sure the tagger is (docs/writing.md); None where it does not say."""
    asked: str | None = None
    """The label that the arc asks for; None where it is free."""
    asked_factors: Mapping[str, str] = field(default_factory=dict)
    """The labels of the other factors that the arc asks for, by name."""
    met: bool | None = None
    """Whether the text has all that was asked for; None where nothing was, or where it cannot be read."""


@dataclass(frozen=True)
class Parts:
    """What a candidate's score is made of, each larger where it is better."""

    holds_together: float | None
    """Log-odds, by the critic, that a person wrote the story; None where no critic was used."""
    leads_to_ending: float | None
    """Mean log p of a word of the given sentences that follow what was written; None where none does."""
    reads_easily: float
    """Mean log p of a written word."""
    weakest: int | None
    """Number, from 1, of the written sentence that lowers `holds_together` most; None: no critic was used, or no
    sentence lowers it."""


@dataclass(frozen=True)
class Candidate:
    """One complete story."""

    sentences: tuple[Sentence, ...]
    score: float
    """What candidates are ranked by; larger is better."""
    parts: Parts | None = None
    """What the score is made of; None where no sentence was written."""

    @property
    def text(self) -> str:
        return " ".join(sentence.text for sentence in self.sentences)

    @property
    def arc(self) -> tuple[str | None, ...]:
        return tuple(sentence.tag for sentence in self.sentences)


@dataclass(frozen=True)
class Movement:
    """Diagnostics of the sampler; None where a figure does not apply to it."""

    changed: tuple[float | None, ...]
    """How often each missing sentence changed between sweeps or, without sweeps, differs between samples."""
    effective_samples: float | None
    r_hat: float | None
    tag_effective_samples: float | None
    """Of the tag paths, where they were too many to enumerate and were sampled."""


@dataclass(frozen=True)
class Filling(Answer):
    """The ranked candidates of one task, and how they were found."""

    candidates: tuple[Candidate, ...]
    model: str
    sampler: str
    samples: int
    drawn: int
    """Samples drawn so far, which the candidates were chosen from; all of `samples` in the last answer."""
    seed: int
    diagnostics: Movement
    notes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    """Unknown names and the known ones the model saw in their place."""


@dataclass(frozen=True)
class Tagging(Answer):
    """The tag of every sentence."""

    sentences: tuple[str, ...]
    tags: tuple[str, ...]
    """Of a state of several factors the first: the mood."""
    probabilities: tuple[Mapping[str, float], ...]
    """q(S_i | X) by label."""
    model: str
    notes: tuple[str, ...] = ()
    factors: tuple[Mapping[str, str], ...] = ()
    """The labels of further factors by name, for every sentence; empty where the model has none."""


@dataclass(frozen=True)
class Criticism(Answer):
    """What the critic says of a story."""

    sentences: tuple[str, ...]
    holds_together: float
    """Log-odds, by the critic, that a person wrote the story."""
    lines: tuple[float, ...]
    """How much each sentence changed it, minus the mean change in people's stories; 0 for the first."""
    weakest: int | None
    """The number, from 1, of the sentence that does most harm; None where none does any."""
    model: str


@dataclass(frozen=True)
class Score(Answer):
    """The log-probability of a story, in nats."""

    sentences: tuple[str, ...]
    log_p: float
    log_p_sentences: tuple[float, ...]
    """log p(X_i | X_:i, Z_i); for a model with latents the mean over posterior draws of Z, which add up to less."""
    kind: Literal["exact", "bound"]
    """`exact`, or a lower bound by importance sampling."""
    words: int
    """Words with their <eos>, which perplexity is over."""
    unknown: int
    perplexity: float
    samples: int
    seed: int
    model: str


@dataclass(frozen=True)
class Word:
    """One word of a sentence as it was typed."""

    text: str
    space: str
    """The white space after it, or an empty string: all texts and spaces joined are the sentence."""
    log_p: float
    """log p(word | the words before it, Z_i), the mean over posterior draws of Z."""
    unknown: bool
    """Whether the model can only read it as <unk>."""


@dataclass(frozen=True)
class Reasons(Answer):
    """How well a sentence fits its place in the story; all figures are in nats."""

    text: str
    words: tuple[Word, ...]
    end: float
    """log p of ending the sentence there: with it the words add up to `log_p`."""
    log_p: float
    """log p(X_i | X_:i, Z_i), as in `Score.log_p_sentences`."""
    fits_before: float
    """(log p(X_1..i) - log p(X_1..i-1)) / its words, <eos> among them: how expected it is after what came before."""
    fits_after: float | None
    """log p(the next four sentences | with it) - log p(them | it cut out of the story); None where nothing follows.
    Above 0: what follows is more expected with the sentence than without it."""
    fits_arc: float | None
    """log q(S_i = the tag asked for | X); None where the arc is free, or the model cannot tell."""
    tag: str | None
    """The tag asked for."""
    factors: Mapping[str, str] = field(default_factory=dict)
    """The labels of further factors that were asked for, by name."""


@dataclass(frozen=True)
class OtherWords(Answer):
    """Words that may stand in place of one, the best first."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Explanation(Answer):
    """How well each sentence of a story fits its place."""

    sentences: tuple[Reasons, ...]
    log_p: float
    kind: Literal["exact", "bound"]
    """`exact`; or `bound`: `log_p` a lower bound by importance sampling, the fits estimates by a particle filter."""
    samples: int
    seed: int
    model: str


@dataclass(frozen=True)
class Posterior(Answer):
    """What a story says about its latents: p(S_i | X+) and the moments of Z_i, missing sentences included."""

    tags: tuple[Mapping[str, float], ...]
    """Of a state of several factors the first: the mood."""
    Z_mean: tuple[tuple[float, ...], ...]
    Z_deviation: tuple[tuple[float, ...], ...]
    samples: int
    seed: int
    model: str
    factors: tuple[Mapping[str, Mapping[str, float]], ...] = ()
    """The same of further factors by name, for every sentence; empty where the model has none."""

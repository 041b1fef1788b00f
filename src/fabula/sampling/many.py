"""Many rows, each a story with blanks and settings of its own: checked one by one, filled in together.

A row is a mapping with `sentences`, and if it likes with `id` (else its number in the input), other arguments of
`StoryModel.fill` (`KEYS`) and `settings`, those of the sampler. What is wrong with a row is said in its result, and the
others are done.

A story's draws come from (seed, id) alone. Its log-probabilities are sums of floats, whose last bit may differ with the
matrices' sizes; so rows are filled in by the group, `TOGETHER` of them by their place in the input, and a group is made
up alike wherever it is worked on. Then all results are equal to the bit, and not only nearly always.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol, runtime_checkable

from fabula.corpus.read import MAX_CHARACTERS, MAX_SENTENCES, MIN_SENTENCES
from fabula.errors import UnavailableError, UserError
from fabula.results import FACTORS, Answer, Candidate, Filling
from fabula.sampling.settings import whole_number

TOGETHER, TOGETHER_ELSEWHERE = {"cpu": 32}, 512
"""Stories that are handed over at once on a device, and on one that is not named: there the host's launches cost what
they cost for eight stories or for 500 (benchmarks/README.md). `filling.ROWS` may part them again."""
KEYS = ("id", "sentences", "arc", "starts", "people", "notes", "voice", "candidates", "sampler", "seed", "settings")
"""What a row may say."""
MAX_ID = 500
"""Characters of an id."""


class Item(NamedTuple):
    """One row of the input: what it says, or what is wrong with it."""

    number: int
    """Its place in the input, from 1."""
    id: Any
    row: Mapping[str, Any] | None
    error: str | None = None

    def wrong(self, error: str) -> Item:
        return Item(self.number, self.id, None, error)


@dataclass(frozen=True)
class FilledRow(Answer):
    """The answer to one row of `fill_many`: a filling, or what is wrong with the row.

    >>> wrong = FilledRow(2, "b", None, "no list `sentences`")
    >>> wrong.to_dict()
    {'row': 2, 'id': 'b', 'error': 'no list `sentences`'}
    """

    row: int
    """The row's place in the input, from 1."""
    id: str | int | None
    filling: Filling | None
    error: str | None = None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """None where the row failed."""
        return () if self.filling is None else self.filling.candidates

    def to_dict(self, decimals: int | None = 4) -> dict[str, Any]:
        """A line of a shard: of each candidate its sentences, and lists of what stands beside them."""
        about: dict[str, Any] = {"row": self.row, "id": self.id}
        if self.filling is None:
            return {**about, "error": self.error}
        candidates = []
        for candidate in self.candidates:
            sentences = candidate.sentences
            columns = {"sentences": "text", "tags": "tag", "asked": "asked", "met": "met"}
            record: dict[str, Any] = {name: [getattr(s, field) for s in sentences] for name, field in columns.items()}
            record["score"] = candidate.score if decimals is None else round(candidate.score, decimals)
            factors = [dict(sentence.factors) for sentence in sentences]
            candidates.append({**record, FACTORS: factors} if any(factors) else record)
        return {**about, "candidates": candidates, "notes": list(self.filling.notes)}


@runtime_checkable
class FillsTogether(Protocol):
    """What is asked of a narrator."""

    device: str

    def fill_together(
        self, calls: Sequence[Mapping[str, Any]], at_once: bool = False
    ) -> Iterator[list[Filling | UserError]]: ...


def together(device: str) -> int:
    """Stories of a group on this device."""
    return TOGETHER.get(device.split(":")[0], TOGETHER_ELSEWHERE)


def row_seed(seed: int, id: Any) -> int:
    """The seed of one row's story: `fill(..., seed=row_seed(seed, id))` draws what `fill_many` draws for it."""
    return int.from_bytes(hashlib.blake2b(f"{seed}\0{id}".encode(), digest_size=8).digest()) >> 1


def checked(number: int, row: Any) -> Item:
    """A row whose form is right; whether its story can be filled in is found when it is."""
    if not isinstance(row, Mapping):
        return Item(number, None, None, 'not an object like {"id": ..., "sentences": [..., null, ...]}')
    id = row.get("id")
    if id is None or id == "":
        id, row = number, {**row, "id": number}
    if isinstance(id, bool) or not isinstance(id, str | int):
        return Item(number, None, None, f"the id is a text or a whole number, not {str(id)[:50]!r}")
    if len(str(id)) > MAX_ID:
        return Item(number, None, None, f"the id has {len(str(id)):,} characters; the most is {MAX_ID}")
    item = Item(number, id, row)
    unknown = [str(key) for key in row if key not in KEYS]
    if unknown:
        return item.wrong(f"unknown key {unknown[0][:50]!r}; a row has {', '.join(KEYS)}")
    sentences = row.get("sentences")
    if not isinstance(sentences, Sequence) or isinstance(sentences, str | bytes):
        return item.wrong("no list `sentences`")
    if not MIN_SENTENCES <= len(sentences) <= MAX_SENTENCES:
        return item.wrong(f"a story has {MIN_SENTENCES} to {MAX_SENTENCES} sentences, not {len(sentences)}")
    for i, sentence in enumerate(sentences, start=1):
        if sentence is not None and not isinstance(sentence, str):
            return item.wrong(f"sentence {i} is not a text")
        # Long texts are left behind here: they are not to wait in memory for their turn.
        if isinstance(sentence, str) and len(sentence) > MAX_CHARACTERS:
            return item.wrong(f"sentence {i} has {len(sentence):,} characters; the most is {MAX_CHARACTERS:,}")
    return item


def fill_rows(
    narrator: FillsTogether, items: Sequence[Item], seed: int = 0, defaults: Mapping[str, Any] | None = None
) -> list[FilledRow]:
    """A result for every row of one group; `defaults` are arguments of `fill` for rows that do not say them."""
    results: dict[int, FilledRow] = {}
    groups: dict[str, list[tuple[Item, dict[str, Any]]]] = {}
    for item in items:
        try:
            if item.row is None:
                raise UserError(item.error or "no row")
            call = _call(item.row, seed, defaults or {})
            groups.setdefault(_alike(call), []).append((item, call))
        except UserError as error:
            results[item.number] = _failed(item, error)
    for group in groups.values():
        for (item, _), answer in zip(group, _fill(narrator, [call for _, call in group]), strict=True):
            results[item.number] = (
                _failed(item, answer) if isinstance(answer, Exception) else FilledRow(item.number, item.id, answer)
            )
    return [results[item.number] for item in items]


def fill_many(
    narrator: FillsTogether, rows: Iterable[Mapping[str, Any]], seed: int, defaults: Mapping[str, Any]
) -> Iterator[FilledRow]:
    """Results as they come, in the order of the rows; no more rows are taken than a group."""
    items = (checked(number, row) for number, row in enumerate(rows, start=1))
    while group := list(islice(items, together(narrator.device))):
        yield from fill_rows(narrator, group, seed, defaults)


def _call(row: Mapping[str, Any], seed: int, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `fill` for a row."""
    settings = {} if row.get("settings") is None else row["settings"]
    if not isinstance(settings, Mapping):
        raise UserError('settings is an object like {"samples": 16}', field="settings")
    misplaced = [str(key) for key in settings if key in KEYS]
    if misplaced:
        raise UserError(f"{misplaced[0]!r} belongs into the row, not into its settings", field="settings")
    values = {key: value for key, value in row.items() if key not in ("settings", "seed") and value is not None}
    job_seed = whole_number("seed", seed if row.get("seed") is None else row["seed"])
    if isinstance(values.get("starts"), Mapping):
        # In JSON keys are texts.
        values["starts"] = {int(k) if str(k).isdecimal() else k: v for k, v in values["starts"].items()}
    story_seed = row_seed(job_seed, values.pop("id"))
    return {**defaults, **settings, **values, "seed": story_seed}


OF_A_STORY = ("sentences", "arc", "starts", "notes", "candidates", "seed")
"""Arguments of `fill` that may differ among stories that are filled in together."""


def _alike(call: Mapping[str, Any]) -> str:
    """Calls with equal keys have equal settings and people."""
    return repr(sorted((key, repr(value)) for key, value in call.items() if key not in OF_A_STORY))


def _fill(narrator: FillsTogether, calls: Sequence[Mapping[str, Any]]) -> Sequence[Filling | Exception]:
    """The answers of calls; where together they fail as nobody foresaw, one half and then the other.

    So one story cannot spoil others, and a group that does not fit the memory is done in parts that do.
    """
    try:
        *_, last = narrator.fill_together(calls, at_once=True)
        return last
    except UnavailableError:
        raise  # no row's fault: the job stops, and goes on later
    except UserError as error:
        return [error] * len(calls)
    except Exception as error:
        if len(calls) == 1:
            return [error]
    half = len(calls) // 2
    return [*_fill(narrator, calls[:half]), *_fill(narrator, calls[half:])]


def _failed(item: Item, error: Exception) -> FilledRow:
    crash = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return FilledRow(item.number, item.id, None, str(error) if isinstance(error, UserError) else crash)

"""What the report says, before anybody decides how it looks: facts, verdicts, tables, curves, dynamics, stories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fabula_paper.bars import bars
from fabula_paper.claims import Verdict, claims
from fabula_paper.figures import Found, Table, sampler_name
from fabula_paper.plan import BY_NAME, MIDDLE, SETTINGS, SYSTEMS, Scale, System, samplers_of
from fabula_paper.records import Records
from fabula_paper.stories import english
from fabula_paper.tables import all_tables

Given = Callable[[str], list[str]]
"""A story's own sentences by its id, where they may be shown."""


@dataclass(frozen=True)
class Shown:
    """One filled-in story: five lines, None where a given sentence is not shown."""

    id: str
    lines: tuple[str | None, ...]
    written: tuple[bool, ...]


@dataclass(frozen=True)
class Samples:
    """The first stories of a unit: chosen by nobody."""

    title: str
    unit: str
    stories: tuple[Shown, ...]


@dataclass(frozen=True)
class Trained:
    """One training in a line of the table."""

    title: str
    epochs: str
    kept: str
    valid: str
    stopped: str
    parameters: str
    seconds: str

    HEADS = ("system", "epochs", "epoch kept", "nats a story, valid", "ended by", "parameters", "seconds")

    @property
    def cells(self) -> tuple[str, ...]:
        return self.title, self.epochs, self.kept, self.valid, self.stopped, self.parameters, self.seconds


@dataclass(frozen=True)
class Report:
    scale: Scale
    facts: dict[str, str]
    deviations: list[str]
    claims: list[Verdict]
    bars: list[Verdict]
    tables: dict[str, list[Table]]
    curves: dict[str, list[tuple[float, float]]]
    trained: list[Trained]
    dynamics: list[tuple[System, dict[str, Any]]]
    samples: list[Samples]
    units: list[dict[str, Any]]
    mixed: list[str]
    """Systems whose records are of different weights: their figures do not belong together."""


def build(records: Records, scale: Scale, given: Given | None = None) -> Report:
    """All of it from the records that are there."""
    found = Found(records, scale)
    units = [record for name in records.names() if (record := found.get(name)) is not None]
    trained = [record for system in SYSTEMS if (record := found.get(f"train/{system.name}")) is not None]
    dynamics = [(s, record) for s in SYSTEMS if (record := found.get(f"dynamics/{s.name}")) is not None]
    curves = {
        BY_NAME[record["system"]].title: [(float(e["epoch"]), float(e["valid_nll"])) for e in record["log"]]
        for record in trained
        # Where the bound is loose its curve is of q(Z | X), and would press all others flat.
        if len(record["log"]) > 1 and not found.loose(record["system"])
    }
    return Report(
        scale=scale,
        facts=facts(units),
        deviations=deviations(trained),
        claims=claims(found),
        bars=bars(found),
        tables=all_tables(found),
        curves=curves,
        trained=[training_line(found, record) for record in trained],
        dynamics=dynamics,
        samples=samples(records, scale, given),
        units=units,
        mixed=mixed_weights(units),
    )


def training_line(found: Found, record: dict[str, Any]) -> Trained:
    """A checkpoint that was given has no time of its own here; a bound that is loose is no figure of the model."""
    nll, given = record["valid_nll"], record["stopped"] == "given"
    return Trained(
        BY_NAME[record["system"]].title, str(record["epochs"]), str(record["best_epoch"]),
        "–" if nll is None else f"{nll:.1f}" + (" (bound too loose)" if found.loose(record["system"]) else ""),
        "not trained here" if given else record["stopped"], f"{record['parameters']:,}",
        "–" if given else f"{record['train_seconds']:.0f}",
    )  # fmt: skip


def facts(units: list[dict[str, Any]]) -> dict[str, str]:
    """Where the figures come from."""

    def all_of(key: str) -> str:
        counts = Counter(str(unit[key]) for unit in units if unit.get(key) is not None)
        return ", ".join(f"{value} ({count})" for value, count in counts.most_common()) or "–"

    seconds = sum(float(unit.get("seconds", 0.0)) for unit in units)
    return {
        "records": f"{len(units):,}",
        "commits (records)": all_of("commit"),
        "corpus, by its content (records)": all_of("data_hash"),
        "seeds of sampling (records)": all_of("seed"),
        "machines (records)": all_of("device"),
        "time of all units together": f"{seconds / 60:,.0f} minutes",
    }


def deviations(trained: list[dict[str, Any]]) -> list[str]:
    """How the runs differ from their recipe files, by the records: what was changed for whom, and how long they ran."""
    told = []
    by_changes: dict[str, list[str]] = {}
    for record in trained:
        changes = ", ".join(f"{key} = {value}" for key, value in record["changes"].items())
        by_changes.setdefault(changes, []).append(BY_NAME[record["system"]].title)
    for changes, names in by_changes.items():
        told.append(f"{'; '.join(names)}: {changes or 'a checkpoint that was there, not trained for this report'}.")
    for record in trained:
        if record["stopped"] == "time":
            name = BY_NAME[record["system"]].title
            asked = record["settings"]["train"]["epochs"]
            told.append(f"{name} was ended by the clock after {record['epochs']} of {asked} epochs.")
    return told


def mixed_weights(units: list[dict[str, Any]]) -> list[str]:
    """Units of one system that come from different weights."""
    seen: dict[str, set[str]] = {}
    for unit in units:
        if unit.get("weights") and unit["stage"] not in ("lookahead",):
            seen.setdefault(unit["system"], set()).add(unit["weights"])
    return sorted(BY_NAME[name].title for name, weights in seen.items() if len(weights) > 1)


def samples(records: Records, scale: Scale, given: Given | None) -> list[Samples]:
    """The first filled-in stories of every system that fills in, by each of its samplers."""
    found = []
    for system in SYSTEMS:
        if "sample" not in system.stages:
            continue
        for sampler in samplers_of(system):
            unit = f"sample/{system.name}.{MIDDLE}.{sampler}"
            stories = tuple(shown(text, given) for text in records.shown(unit)[: scale.shown])
            if not stories:
                continue
            found.append(Samples(f"{system.title}, {sampler_name(sampler, scale)}", unit, stories))
    return found


def shown(text: dict[str, Any], given: Given | None) -> Shown:
    lines: list[str | None] = list(given(text["id"])) if given else [None] * 5
    for place, line in zip(SETTINGS[MIDDLE], text["lines"], strict=True):
        lines[place] = english(line)
    return Shown(text["id"], tuple(lines), tuple(place in SETTINGS[MIDDLE] for place in range(len(lines))))

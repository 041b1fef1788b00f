"""How far a study is, for whoever runs it: by annotator and by pair, without saying which system is ahead."""

from __future__ import annotations

from dataclasses import dataclass

from fabula.apps.judge.store import Store


@dataclass(frozen=True, kw_only=True)
class AnnotatorProgress:
    """One annotator so far."""

    code: str
    judged: int
    """Pairs, without attention checks."""
    checks: int
    passed: int
    seconds: float
    """The mean time of a judgement; 0 without one."""
    last: int | None
    """When the last answer came, in seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class StudyProgress:
    """A study so far."""

    wanted: int
    """Judgements in all, without attention checks."""
    judged: int
    open: tuple[tuple[str, int], ...]
    """Pairs that still want people, and how many they have."""
    annotators: tuple[AnnotatorProgress, ...]


def progress(store: Store) -> StudyProgress:
    """Everybody who was here, and every pair that is not finished."""
    settings = store.settings()
    pairs = {item.pair.id: item.pair for item in store.items()}
    found, _ = store.judgements()
    proper = [pair for pair in pairs.values() if not pair.is_check]
    people = {pair.id: sum(one.pair == pair.id for one in found) for pair in proper}
    told = []
    for code in store.annotators():
        own = [one for one in found if one.annotator == code]
        checks = [one for one in own if pairs[one.pair].is_check]
        told.append(
            AnnotatorProgress(
                code=code,
                judged=len(own) - len(checks),
                checks=len(checks),
                passed=sum(one.better == pairs[one.pair].better for one in checks),
                seconds=sum(one.seconds for one in own) / len(own) if own else 0.0,
                last=max((one.updated for one in own), default=None),
            )
        )
    return StudyProgress(
        wanted=len(proper) * settings.annotators,
        judged=sum(people.values()),
        open=tuple((name, count) for name, count in people.items() if count < settings.annotators),
        annotators=tuple(told),
    )

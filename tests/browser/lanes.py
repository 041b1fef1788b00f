"""As if the model said several things of a sentence: the studio's answers, changed on their way to the page."""

from __future__ import annotations

from collections.abc import Callable

from desk import Desk
from playwright.sync_api import Route

VERBS = ["go", "buy", "find", "remember", "forgive", "none"]


def expects(mood: str, **factors: str) -> Callable[[Route], None]:
    """What a model with such factors would answer to what it believes of five lines: the server's own has none."""

    def answer(route: Route) -> None:
        empty: list[list[float]] = [[] for _ in range(5)]
        told = {
            "tags": [{mood: 1.0}] * 5,
            "factors": [{name: {label: 1.0} for name, label in factors.items()}] * 5,
            "Z_mean": empty,
            "Z_deviation": empty,
            "samples": 1,
            "seed": 0,
            "model": "m",
        }
        route.fulfill(json=told)

    return answer


def three_lanes(desk: Desk) -> None:
    """As if the model told a sentence's sentiment, emotion and main verb."""

    def three(route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        emotions = ["joy", "sadness", "anger", "fear", "surprise", "none"]
        for model in told["models"]:
            lanes = {"sentiment": model["labels"], "emotion": emotions, "verb": VERBS}
            model["factors"] = [{"name": name, "labels": labels} for name, labels in lanes.items()]
        route.fulfill(response=answer, json=told)

    desk.page.route("**/api/models", three)
    desk.page.route("**/api/posterior", expects("neutral", emotion="surprise", verb="remember"))
    desk.reload()

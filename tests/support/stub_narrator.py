"""A narrator that writes at once, from nothing but the seed: for tests of what goes on around it."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fabula.errors import UserError
from fabula.results import Candidate, Filling, Movement, Sentence

NOTHING = Movement((), None, None, None)
PAUSE = "STUB_PAUSE"
"""Seconds that a group of stories takes, as an environment variable: worker processes read it too."""


class StubNarrator:
    device = "cpu"

    def fill_together(
        self, calls: Sequence[Mapping[str, Any]], at_once: bool = False
    ) -> Iterator[list[Filling | UserError]]:
        time.sleep(float(os.environ.get(PAUSE, "0")))
        yield [self._fill(call) for call in calls]

    def _fill(self, call: Mapping[str, Any]) -> Filling:
        sentences = tuple(
            Sentence(f"Word {call['seed'] % 9973} came." if text is None else text, text is None, None, -1.0)
            for text in call["sentences"]
        )
        return Filling((Candidate(sentences, -float(call["seed"] % 101)),), "stub", "smc", 1, 1, call["seed"], NOTHING)


def load() -> StubNarrator:
    return StubNarrator()

"""Work that waits for a test, and tests that wait for work."""

import threading
import time
from collections.abc import Callable

from fabula.apps.serve import jobs

SECONDS = 60.0
"""What a condition may take on a busy machine, at most."""


class Gate:
    """Stands in for a method of the narrator: says when work has begun, and lets it end when told to."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Semaphore(0), threading.Event()

    def wait(self) -> None:
        self.begun.release()
        while not self.opened.wait(0.01):
            jobs.current_job().check()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)

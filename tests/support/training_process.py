"""One process of a training that torchrun starts: `fabula train` with these arguments.

Where DIES_AT is set, the last process kills itself (SIGKILL) before that step.
"""

import os
import signal
import sys
from typing import Any

from fabula.cli import main
from fabula.training import loop


def mortal(step: Any, at: int) -> Any:
    taken = 0

    def until_then(*arguments: Any) -> Any:
        nonlocal taken
        taken += 1
        if taken == at and int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(*arguments)

    return until_then


if __name__ == "__main__":
    if "DIES_AT" in os.environ:
        loop.Run.step = mortal(loop.Run.step, int(os.environ["DIES_AT"]))  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))

"""How a command that answers once starts torch: with two threads, which sleep when they have nothing to do.

By default they spin, and beside other programs a spinning thread takes the core from the one that works: on two cores
with six busy programs a fill with two threads took over ten times as long as with one. With threads that sleep it took
1.2 times as long, and on free cores they share the work.

What the import makes lives as long as the process, as does nearly everything that is there at its end. So Python's
collector is told not to search either for garbage, which would take a fifth of a second and half a second.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

THREADS = 2
"""At most: stories are small."""
POLICY = "OMP_WAIT_POLICY"


def start_torch(threads: int | None = None) -> int | None:
    """Import torch for one answer; how many threads to load the model with (None: as many as torch has).

    As many as are asked for, else OMP_NUM_THREADS, else the cores that this process may use, at most `THREADS`.
    Where torch is running already, or somebody chose how its threads wait, nothing is changed.
    """
    if "torch" in sys.modules or POLICY in os.environ or "GOMP_SPINCOUNT" in os.environ:
        return threads
    os.environ[POLICY] = "PASSIVE"  # read once, when torch loads its threads
    gc.disable()
    try:
        import torch

        assert torch
    finally:
        del os.environ[POLICY]  # programs that we start make their own choice
        gc.freeze()
        gc.enable()
        atexit.register(gc.freeze)
    if threads is not None or "OMP_NUM_THREADS" in os.environ:
        return threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(THREADS, cores)

"""Running the units that are not done yet, by priority, in this process or in several.

A record is written whole or not at all and training resumes at its last epoch, so any process may be killed.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

import torch

from fabula.errors import UserError
from fabula_paper import measuring, writing
from fabula_paper.bench import Bench, Job, OutOfTimeError
from fabula_paper.plan import BY_NAME, Unit
from fabula_paper.records import Records

GRACE = 20.0
"""Seconds after the deadline at which a busy worker process ends itself."""
Say = Callable[[str], None]
STAGES: dict[str, Callable[[Bench, Unit], None]] = {
    "train": measuring.train_system, "likelihood": measuring.measure_system,
    "sample": writing.sample, "write": writing.write_stories,
    "lookahead": measuring.look_ahead, "cloze": measuring.choose_endings,
}  # fmt: skip


@dataclass
class Outcome:
    """What became of the units, by their names."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Done by an earlier call."""
    failed: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    """Not begun: out of time, or a unit that they need is missing."""


def perform(bench: Bench, unit: Unit) -> float:
    """Do one unit in this process; returns its seconds."""
    bench.job.check_time()
    began = time.perf_counter()
    if unit.stage != "train" and unit.system in BY_NAME:
        bench.checkpoint(BY_NAME[unit.system])
    if bench.device.type == "cuda":
        # Sampling may use TF32 products; a measurement may not.
        sampling = unit.stage in ("sample", "write")
        torch.set_float32_matmul_precision("high" if sampling else "highest")
    STAGES[unit.stage](bench, unit)
    return time.perf_counter() - began


_worker: Bench
"""The bench of a worker process."""


def start_worker(job: Job, parent: int) -> None:
    """Prepare a worker process; it ends with its parent, or soon after the deadline."""
    global _worker
    _worker = Bench(job)
    torch.set_num_threads(1)

    def watch() -> None:
        while os.getppid() == parent and (job.deadline is None or time.time() < job.deadline + GRACE):
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def perform_in_worker(unit: Unit) -> float:
    try:
        return perform(_worker, unit)
    except (OutOfTimeError, UserError):
        raise
    except Exception as error:
        traceback.print_exc()
        # An exception of a library may not survive pickling.
        raise RuntimeError(f"{type(error).__name__}: {error}".splitlines()[0]) from None
    finally:
        if unit.stage == "train" and _worker.device.type == "cuda":
            torch.cuda.empty_cache()


def next_unit(waiting: list[Unit], records: Records, job: Job) -> Unit | None:
    """The ready unit of the highest priority."""
    if job.out_of_time():
        return None
    return next((unit for unit in waiting if all(records.done(name) for name in unit.needs)), None)


def run_units(job: Job, units: list[Unit], *, jobs: int = 1, say: Say = print) -> Outcome:
    """Do everything that is not done yet and can be done."""
    records, outcome = Records(job.out), Outcome()
    outcome.skipped = [unit.name for unit in units if records.done(unit.name)]
    waiting = [unit for unit in units if unit.name not in set(outcome.skipped)]

    def finish(unit: Unit, seconds: float) -> None:
        outcome.done.append(unit.name)
        say(f"{unit.name}  {seconds:.1f} s")

    if jobs == 1:
        bench = Bench(job)
        while (unit := next_unit(waiting, records, job)) is not None:
            try:
                finish(unit, perform(bench, unit))
            except OutOfTimeError:
                break
            waiting.remove(unit)
    elif waiting:
        waiting = run_in_pool(job, waiting, records, outcome, jobs, finish)
        for name, reason in outcome.failed.items():
            say(f"{name}  FAILED: {reason}")
    outcome.waiting = [unit.name for unit in waiting]
    return outcome


def run_in_pool(
    job: Job, units: list[Unit], records: Records, outcome: Outcome, jobs: int, finish: Callable[[Unit, float], None]
) -> list[Unit]:
    """Do units in worker processes; returns those that wait for a later call."""
    waiting, running, broken = list(units), dict[Future[float], Unit](), False
    context, arguments = multiprocessing.get_context("spawn"), (job, os.getpid())
    workers = min(jobs, len(units))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=start_worker, initargs=arguments) as pool:
        while True:
            while len(running) < workers and not broken:
                unit = next_unit(waiting, records, job)
                if unit is None:
                    break
                try:
                    running[pool.submit(perform_in_worker, unit)] = unit
                    waiting.remove(unit)
                except BrokenProcessPool:
                    broken = True
            if not running:
                return waiting
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                unit, error = running.pop(future), future.exception()
                # A process that dies breaks the pool; what ran in it waits for the next call.
                broken = broken or isinstance(error, BrokenProcessPool)
                if error is None:
                    finish(unit, future.result())
                elif isinstance(error, OutOfTimeError) or job.out_of_time():
                    waiting.append(unit)
                else:
                    outcome.failed[unit.name] = "a worker process died" if broken else str(error)

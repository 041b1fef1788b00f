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
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

import torch

from fabula.errors import UserError
from fabula_paper import judging, learning, writing
from fabula_paper.bench import Bench, Job, OutOfTimeError
from fabula_paper.plan import BY_NAME, Unit
from fabula_paper.records import Records

GRACE = 20.0
"""Seconds after the deadline at which a busy worker process ends itself."""
Say = Callable[[str], None]
STAGES: dict[str, Callable[[Bench, Unit], None]] = {
    "train": learning.train_system, "likelihood": learning.measure_system,
    "sample": writing.sample, "write": writing.write_stories, "speed": writing.time_sampler,
    "lookahead": judging.look_ahead, "cloze": judging.choose_endings,
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
        sampling = unit.stage in ("sample", "write", "speed")
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


class UnitRunner:
    """Submits ready units to an executor and collects what becomes of them."""

    def __init__(self, job: Job, units: list[Unit], jobs: int, say: Say) -> None:
        self.job, self.jobs, self.say = job, jobs, say
        self.records, self.outcome = Records(job.out), Outcome()
        self.outcome.skipped = [unit.name for unit in units if self.records.done(unit.name)]
        self.waiting = [unit for unit in units if unit.name not in set(self.outcome.skipped)]
        self.running: dict[Future[float], Unit] = {}
        self.died: set[str] = set()

    def run_here(self) -> None:
        """One unit after the other, in this process; an error ends the call."""
        bench = Bench(self.job)
        while (unit := self.next_unit()) is not None:
            try:
                self.finish(unit, perform(bench, unit))
            except OutOfTimeError:
                return

    def executor(self) -> Executor:
        context, arguments = multiprocessing.get_context("spawn"), (self.job, os.getpid())
        workers = min(self.jobs, len(self.waiting))
        return ProcessPoolExecutor(workers, mp_context=context, initializer=start_worker, initargs=arguments)

    def run_in_pool(self) -> None:
        while self.waiting and not self.out_of_time():
            with self.executor() as executor:  # a pool that broke is replaced
                try:
                    while self.submit(executor):
                        for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                            self.collect(future)
                    return
                except BrokenProcessPool:
                    for unit in self.running.values():
                        self.retry_once(unit)
                    self.running.clear()

    def out_of_time(self) -> bool:
        return self.job.deadline is not None and time.time() >= self.job.deadline

    def next_unit(self) -> Unit | None:
        """The ready unit of the highest priority; a timing runs alone, after everything else that is ready."""
        ready = [unit for unit in self.waiting if all(self.records.done(name) for name in unit.needs)]
        together = [unit for unit in ready if not unit.alone]
        if self.out_of_time() or any(unit.alone for unit in self.running.values()):
            return None
        return together[0] if together else ready[0] if ready and not self.running else None

    def submit(self, executor: Executor) -> bool:
        """Fill the executor with ready units; returns whether anything runs."""
        while len(self.running) < self.jobs and (unit := self.next_unit()) is not None:
            self.running[executor.submit(perform_in_worker, unit)] = unit
            self.waiting.remove(unit)
        return bool(self.running)

    def collect(self, future: Future[float]) -> None:
        error = future.exception()
        if isinstance(error, BrokenProcessPool):
            raise error
        unit = self.running.pop(future)
        if isinstance(error, OutOfTimeError):
            self.waiting.append(unit)
        elif error is not None:
            self.fail(unit, str(error))
        else:
            self.finish(unit, future.result())

    def finish(self, unit: Unit, seconds: float) -> None:
        self.waiting = [other for other in self.waiting if other is not unit]
        self.outcome.done.append(unit.name)
        self.say(f"{unit.name}  {seconds:.1f} s")

    def retry_once(self, unit: Unit) -> None:
        """Where processes share a card through one server, the fault of one ends them all: each may try again."""
        if unit.name in self.died and not self.out_of_time():
            self.fail(unit, "its process died")
        else:
            self.died.add(unit.name)
            self.waiting.insert(0, unit)

    def fail(self, unit: Unit, reason: str) -> None:
        self.outcome.failed[unit.name] = reason
        self.say(f"{unit.name}  FAILED: {reason}")


def run_units(job: Job, units: list[Unit], *, jobs: int = 1, say: Say = print) -> Outcome:
    """Do everything that is not done yet and can be done."""
    runner = UnitRunner(job, units, jobs, say)
    if jobs == 1:
        runner.run_here()
    else:
        runner.run_in_pool()
    runner.outcome.waiting = [unit.name for unit in runner.waiting]
    return runner.outcome

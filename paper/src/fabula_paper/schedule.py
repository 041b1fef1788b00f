"""Doing the units: those that are done are skipped, the rest go by worth, in this process or in several.

A worker that dies takes one unit with it; its record is simply not there. Nothing is half done: records are written
whole (`records.py`), training resumes at its last epoch.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from fabula.errors import UserError
from fabula_paper.bench import Bench, Job, OutOfTimeError
from fabula_paper.plan import BY_NAME, Unit
from fabula_paper.records import Records

GRACE = 20.0
"""Seconds after the deadline at which workers that are still busy are ended."""

DIED = "its process died"

Say = Callable[[str], None]


def perform(bench: Bench, unit: Unit) -> None:
    """One unit in this process."""
    from fabula_paper import judging, learning, writing

    doers: dict[str, Callable[[Bench, Unit], None]] = {
        "train": learning.train_system,
        "likelihood": learning.measure_system,
        "dynamics": learning.look_at_dynamics,
        "sample": writing.sample,
        "write": writing.write_stories,
        "speed": writing.time_sampler,
        "lookahead": judging.look_ahead,
        "cloze": judging.choose_endings,
    }
    bench.job.check_time()
    if unit.stage != "train" and unit.system in BY_NAME:
        bench.checkpoint(BY_NAME[unit.system])
    if bench.device.type == "cuda":
        import torch

        # What is drawn may come of shorter products; what is measured may not.
        drawn = unit.stage in ("sample", "write", "speed")
        torch.set_float32_matmul_precision("high" if drawn else "highest")
    doers[unit.stage](bench, unit)


@dataclass
class Outcome:
    """What became of the units."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Done before."""
    failed: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    """Not begun: out of time, or something they need is missing."""


def pending(units: list[Unit], records: Records, outcome: Outcome) -> list[Unit]:
    left = []
    for unit in units:
        if records.done(unit.name):
            outcome.skipped.append(unit.name)
        else:
            left.append(unit)
    return left


def ready(unit: Unit, records: Records) -> bool:
    return all(records.done(name) for name in unit.needs)


def run_units(job: Job, units: list[Unit], *, jobs: int = 1, say: Say = print) -> Outcome:
    """Everything that is not done yet and can be done."""
    records, outcome = Records(job.out), Outcome()
    left = pending(units, records, outcome)
    if not left:
        return outcome
    if jobs == 1:
        _inline(job, left, records, outcome, say)
    else:
        _Crew(job, left, records, outcome, jobs, say).work()
    return outcome


def _inline(job: Job, left: list[Unit], records: Records, outcome: Outcome, say: Say) -> None:
    bench, waiting = Bench(job), list(left)
    while waiting:
        unit = next((unit for unit in waiting if ready(unit, records)), None)
        if unit is None:
            break
        waiting.remove(unit)
        began = time.perf_counter()
        try:
            perform(bench, unit)
        except OutOfTimeError:
            waiting.insert(0, unit)
            break
        except UserError:
            raise
        outcome.done.append(unit.name)
        say(f"{unit.name}  {time.perf_counter() - began:.1f} s")
    outcome.waiting += [unit.name for unit in waiting]


class _Crew:
    """Worker processes that are handed one unit after the other."""

    def __init__(self, job: Job, left: list[Unit], records: Records, outcome: Outcome, jobs: int, say: Say) -> None:
        self.job, self.waiting, self.records, self.outcome, self.say = job, list(left), records, outcome, say
        self.context = multiprocessing.get_context("spawn")
        self.jobs = min(jobs, len(left))
        self.idle: list[Connection] = []
        self.busy: dict[Connection, tuple[Unit, float]] = {}
        self.processes: dict[Connection, BaseProcess] = {}
        self.last: dict[Connection, str] = {}
        self.died: set[str] = set()

    def hire(self) -> Connection:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_worker, args=(theirs, self.job), daemon=True)
        process.start()
        theirs.close()
        self.processes[ours] = process
        return ours

    def work(self) -> None:
        try:
            self.idle = [self.hire() for _ in range(self.jobs)]
            while True:
                late = self.job.deadline is not None and time.time() >= self.job.deadline
                if not late:
                    self.hand_out()
                if not self.busy:
                    break
                patience = None
                if self.job.deadline is not None:
                    patience = max(0.0, self.job.deadline + (GRACE if late else 0.0) - time.time())
                    if late and patience == 0:
                        break
                for ours in wait(list(self.busy), patience):
                    assert isinstance(ours, Connection)
                    self.receive(ours)
        finally:
            for ours, process in self.processes.items():
                ours.close()
                if ours in self.idle:
                    process.join(10.0)  # it sees that nobody speaks to it any more
                process.terminate()
                process.join()
        self.outcome.waiting += [unit.name for unit in self.waiting] + [unit.name for unit, _ in self.busy.values()]

    def hand_out(self) -> None:
        """A unit for every idle worker: the worthiest that is ready, of two alike the one whose model it holds."""
        for ours in list(self.idle):
            able = [unit for unit in self.waiting if ready(unit, self.records)]
            together = [unit for unit in able if not unit.alone]
            if any(unit.alone for unit, _ in self.busy.values()):
                return
            if not together:
                # A timing waits until nobody works and nothing else could.
                if not able or self.busy:
                    return
                together = able[:1]
            best = together[0].rank[0]
            same = [unit for unit in together if unit.rank[0] == best and unit.system == self.last.get(ours)]
            unit = (same or together)[0]
            self.waiting.remove(unit)
            self.idle.remove(ours)
            self.busy[ours] = (unit, time.perf_counter())
            self.last[ours] = unit.system
            ours.send(unit)

    def receive(self, ours: Connection) -> None:
        unit, began = self.busy.pop(ours)
        try:
            error: str | None = ours.recv()
        except EOFError:
            error = DIED
            self.processes.pop(ours).join()
            ours.close()
            ours = self.hire()
        self.idle.append(ours)
        if error == DIED and unit.name not in self.died:
            # Where processes share a card through one server, the fault of one ends them all: each may try again.
            self.died.add(unit.name)
            self.waiting.insert(0, unit)
        elif error is None:
            self.outcome.done.append(unit.name)
            self.say(f"{unit.name}  {time.perf_counter() - began:.1f} s")
        elif error == OutOfTimeError.__name__:
            self.waiting.append(unit)
        else:
            self.outcome.failed[unit.name] = error
            self.say(f"{unit.name}  FAILED: {error}")


def _worker(theirs: Connection, job: Job) -> None:
    """One unit after the other until the parent goes away."""
    import gc

    import torch

    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(1)
    bench = Bench(job)
    while True:
        try:
            unit: Any = theirs.recv()
        except (EOFError, OSError):
            return
        error: str | None = None
        try:
            perform(bench, unit)
        except OutOfTimeError:
            error = OutOfTimeError.__name__
        except UserError as mistake:
            error = str(mistake)
        except Exception as fault:
            traceback.print_exc()
            error = f"{type(fault).__name__}: {fault}".splitlines()[0]
        if unit.stage == "train":
            gc.collect()
            if bench.device.type == "cuda":
                torch.cuda.empty_cache()
        theirs.send(error)


def _end_with_parent(parent: int) -> None:
    """A parent that was killed cannot say so: its workers look whether it is still there."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)

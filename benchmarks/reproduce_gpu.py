"""The driver behind reproduce_gpu.sh: trainings and measurements of one part, by importance, until the clock says stop.

Every job is one process of `fabula reproduce --only …`. A system that is trained is measured as soon as a slot is free.
A process that dies is called once more and then left; its words are in REPORT/logs. Called again, the driver goes on.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fabula_paper.plan import BY_NAME, Unit, protocol, units_of

SYSTEMS = {
    "plain": "lm s2s lm-seed1 s2s-seed1 lm-seed2 s2s-seed2",
    "latent": "slds lds slds-1 slds-10 slds-25 slds-50 slds-alpha100 slds-seed1 lds-seed1 slds-1-seed1 slds-1-alpha1 "
    "slds-seed2 lds-seed2 slds-1-seed2 slds-10-seed1 slds-25-seed1 slds-50-seed1",
}
"""The most important first."""
TRIES = 2
GRACE = 20
"""Seconds between the request to stop and the end of a process; a training keeps its step meanwhile."""


def end_with_the_driver() -> None:
    """A process whose driver dies is asked to stop: two drivers must not train the same system."""
    ctypes.CDLL(None).prctl(1, signal.SIGINT)


@dataclass
class Job:
    """One call of `fabula reproduce`."""

    system: str
    label: str
    rank: int
    only: tuple[str, ...]
    tries: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return f"{self.label}-{self.system}"


def rank(unit: Unit) -> tuple[int, str]:
    """The importance of a measurement, and the job that it belongs to."""
    system = BY_NAME[unit.system]
    later = 1 if system.repeats else 0
    if unit.stage in ("likelihood", "write"):
        return later, "measure"
    if unit.stage == "bound":
        return 4, "bound"
    sampler = unit.detail.split(".")[1]
    if sampler == "rerank":  # long: a process for each setting
        return 2 + 3 * later, f"sample{unit.detail.split('.')[0]}"
    return (2 + later, "sample") if sampler == protocol(system) else (5, "unseen")


def jobs_of(part: str, systems: str) -> tuple[list[Job], list[Job]]:
    """The trainings and the measurements of a part, by importance; `systems` names some of it, in another order."""
    names = systems.split(",") if systems else SYSTEMS[part].split()
    trainings = [Job(name, "train", 0, (f"train/{name}",)) for name in names]
    found: dict[tuple[int, str, str], list[str]] = {}
    for unit in units_of([BY_NAME[name] for name in names]):
        if unit.stage != "train":
            group, label = rank(unit)
            found.setdefault((group, label, unit.system), []).append(unit.name)
    measures = [Job(system, label, group, tuple(only)) for (group, label, system), only in found.items()]
    return trainings, sorted(measures, key=lambda job: (job.rank, names.index(job.system)))


class Driver:
    """Slots, the clock and the processes."""

    def __init__(self, args: argparse.Namespace, words: list[str]) -> None:
        self.args, self.words, self.began = args, words, time.monotonic()
        self.report: Path = args.report
        self.logs: Path = self.report / "logs"
        self.marks: Path = self.report.parent / "done"
        for folder in (self.logs, self.marks):
            folder.mkdir(parents=True, exist_ok=True)
        self.trainings, self.measures = (
            [job for job in jobs if not self.mark(job).exists()] for jobs in jobs_of(args.part, args.systems)
        )
        self.running: list[Job] = []

    def mark(self, job: Job) -> Path:
        return self.marks / job.name

    def trained(self, system: str) -> bool:
        return (self.report / "records" / "train" / f"{system}.json").exists()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def say(self, line: str) -> None:
        text = f"{self.seconds:6.0f} s  {line}"
        print(text, flush=True)
        with (self.logs / f"driver-{self.args.part}.log").open("a") as stream:
            stream.write(text + "\n")

    def start(self, job: Job, *more: str) -> None:
        job.tries += 1
        command = [sys.executable, "-m", "fabula", "reproduce", "--device", self.args.device, "--data", self.args.data]
        command += ["--out", self.report, "--only", ",".join(job.only), *self.words, *more]
        with (self.logs / f"{job.name}.log").open("ab") as log:
            job.process = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=log, start_new_session=True, preexec_fn=end_with_the_driver
            )
        self.running.append(job)
        self.say(f"begins {job.name} {' '.join(more)}")

    def collect(self) -> None:
        """Note what has ended."""
        for job in [job for job in self.running if job.process is not None and job.process.poll() is not None]:
            assert job.process is not None
            self.running.remove(job)
            whole = job.process.returncode == 0 and self.trained(job.system)
            self.say(f"{'ends  ' if whole else 'failed'} {job.name} ({job.process.returncode})")
            if whole:
                self.mark(job).touch()
            elif job.tries < TRIES and self.seconds < self.args.seconds - 60:
                queue = self.trainings if job.label == "train" else self.measures
                queue.insert(0, job)

    def stop(self, jobs: list[Job]) -> None:
        """Ask, wait, insist: only processes that this driver began."""
        for number in (signal.SIGINT, signal.SIGKILL):
            for job in jobs:
                if job.process is not None and job.process.poll() is None:
                    os.killpg(job.process.pid, number)
            end = time.monotonic() + GRACE
            while time.monotonic() < end and any(job.process and job.process.poll() is None for job in jobs):
                time.sleep(0.2)

    def fill(self) -> None:
        """Give free slots away: first to trainings, then to measurements of what is trained."""
        training = [job for job in self.running if job.label == "train"]
        measuring = len(self.running) - len(training)
        late = self.seconds >= self.args.train_until
        while self.trainings and not late and len(training) < self.args.jobs:
            training.append(self.trainings.pop(0))
            self.start(training[-1])
        busy = self.trainings or training
        slots = self.args.beside if busy else self.args.measure_jobs
        # Slots that no training wants any more measure.
        slots = max(slots, min(self.args.measure_jobs, self.args.jobs - len(training)))
        for job in [job for job in self.measures if self.trained(job.system)][: max(0, slots - measuring)]:
            self.measures.remove(job)
            self.start(job)

    def note(self) -> None:
        """Stop the trainings that are left; those of the tables' rows are noted as they stand, other seeds not."""
        stopped = [job for job in self.running if job.label == "train"]
        self.say(f"stops {len(stopped)} trainings, {len(self.trainings)} not begun")
        self.stop(stopped)
        self.collect()
        left = {job.system: job for job in stopped + self.trainings if not self.trained(job.system)}
        self.trainings = []
        for job in left.values():
            begun = (self.report / "runs" / job.system / "config.json").exists()  # an epoch has ended
            if begun and not BY_NAME[job.system].repeats:
                job.label, job.tries = "note", 0
                self.start(job, "--as-it-stands")

    def run(self) -> None:
        noted = False
        while self.seconds < self.args.seconds - GRACE / 2:
            self.collect()
            if not noted and self.seconds >= self.args.train_until:
                noted = True
                self.note()
            self.fill()
            waiting = any(self.trained(job.system) for job in self.measures) or (self.trainings and not noted)
            if not self.running and not waiting:
                break
            time.sleep(0.5)
        self.stop(self.running)
        self.collect()
        self.say(f"the end: {len(self.measures)} measurements not begun")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=list(SYSTEMS))
    for option, kind, default in (
        ("--report", Path, None), ("--data", Path, None), ("--device", str, "cuda"), ("--seconds", float, 0.0),
        ("--train-until", float, 0.0), ("--jobs", int, 12), ("--beside", int, 2), ("--measure-jobs", int, 8),
        ("--systems", str, ""),
    ):  # fmt: skip
        parser.add_argument(option, type=kind, default=default)
    Driver(*parser.parse_known_args()).run()

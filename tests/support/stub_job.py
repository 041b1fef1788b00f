"""A job with the stub in a process that a test can kill: IN.jsonl OUT WORKERS (0: none) GROUP."""

import json
import sys
from pathlib import Path

import stub_narrator
from fabula.apps.fleet.job import Job, run
from fabula.sampling.many import TOGETHER

if __name__ == "__main__":
    source, out, workers, size = sys.argv[1:5]
    TOGETHER["cpu"] = int(size)
    job = Job(files=[Path(source)], out=Path(out), workers=int(workers) or None)
    print(json.dumps(run(job, load=stub_narrator.load)))

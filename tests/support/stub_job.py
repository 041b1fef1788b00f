"""A job with the stub in a process of its own, which a test can kill: IN.jsonl OUT ENGINE WORKERS BATCH_SIZE."""

import json
import sys
from pathlib import Path

import stub_narrator
from fabula.apps.fleet.job import Job, run
from fabula.sampling.many import TOGETHER

if __name__ == "__main__":
    source, out, engine, workers, size = sys.argv[1:6]
    TOGETHER["cpu"] = int(size)
    job = Job(
        files=[Path(source)], out=Path(out), engine=engine, workers=None if engine == "inline" else int(workers),
        batch_size=int(size),
    )  # fmt: skip
    print(json.dumps(run(job, load=stub_narrator.load)))

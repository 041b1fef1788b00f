"""Commands of Fabula's that serve, in processes that a test can kill."""

import os
import re
import signal
import socket
import subprocess
import sys

SECONDS = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Started:
    """`fabula WORDS`, which has printed its address; it may be stopped and started again."""

    def __init__(self, *words: object) -> None:
        self.command = [sys.executable, "-m", "fabula", *map(str, words)]
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        self.line = next(line for line in self.process.stdout if "http://" in line)
        self.url = re.findall(r"http://[^\s/]+", self.line)[0]

    def stop(self, how: int = signal.SIGKILL) -> int:
        self.process.send_signal(how)
        return self.process.wait(SECONDS)

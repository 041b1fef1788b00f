"""`fabula prepare` killed outright: the folder is complete or absent, no worker stays, the next run cleans up."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fabula.corpus.dataset import Corpus
from fabula.corpus.prepare import prepare
from fabula.corpus.toy import toy_stories
from fabula.errors import UserError

pytestmark = pytest.mark.system
PROGRAM = "import sys, fabula.cli; sys.exit(fabula.cli.main())"


def _alive(group: int) -> bool:
    """Whether a process of the group still runs; one that has ended and waits to be collected does not count."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            return True
    return False


def test_killed_at_any_moment_it_leaves_a_whole_corpus_or_none(tmp_path: Path) -> None:
    """Four moments over the run's length, from the start of the workers to the renaming."""
    source = tmp_path / "in" / "big.txt"
    source.parent.mkdir()
    source.write_text("\n\n".join("\n".join(story.sentences) for story in toy_stories(9_000, seed=0)))
    out = tmp_path / "out"
    command = [sys.executable, "-c", PROGRAM, "prepare", str(source), "--out", str(out), "--jobs", "2"]
    begin = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    length = time.monotonic() - begin
    whole = Corpus.open(out).hash
    rng = random.Random(0)
    seen_none = seen_left_over = False
    for moment in range(4):
        for path in out.glob("*"):
            path.unlink()
        if out.exists():
            out.rmdir()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(length * (moment + rng.random()) / 4)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + 120
        while _alive(process.pid):
            assert time.monotonic() < deadline, "a worker outlived its parent"
            time.sleep(0.1)
        left = [path.name for path in tmp_path.iterdir() if path.name.startswith(".out.")]
        if out.exists():
            assert Corpus.open(out).hash == whole
        else:
            seen_none = True
            with pytest.raises(UserError, match="does not exist"):
                Corpus.open(out)
        seen_left_over |= bool(left)
    assert seen_none
    assert seen_left_over  # or the kills came too late to test anything
    if out.exists():
        out.rename(tmp_path / "other")
    small = tmp_path / "in" / "small.txt"
    small.write_text("Mira ran.\nShe fell.\n")
    prepare([small], out, progress=False)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".out.")]


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A small file system of its own, where the machine lets us mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this machine does not let us mount a file system")
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "prepare", "--toy", "2000", "--out", str(disk / "deep" / "toy")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "No space left on device" in done.stderr
        assert done.stderr.count("\n") == 1
        assert os.listdir(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)

"""`fabula prepare` stopped or killed and run again: it goes on from its pieces, to the bytes of an undisturbed run."""

import fcntl
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from fabula.corpus import pieces as pieces_module
from fabula.corpus.folder import KEPT_PIECES
from fabula.corpus.prepare import prepare
from fabula.corpus.taggers.protocol import Tagger
from fabula.corpus.toy import toy_stories
from fabula.errors import UserError
from gates import until

PROGRAM = """
import sys, fabula.cli
from fabula.corpus import prepare
prepare.INLINE_BYTES = 0  # workers also for a small corpus
sys.exit(fabula.cli.main())
"""


def stories(path: Path, n: int) -> Path:
    told = ["\n".join(story.sentences) for story in toy_stories(n, seed=0)]
    told[n // 2] = "Alone."
    path.write_text("\n\n".join(told))
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def pieces(out: Path) -> dict[str, tuple[int, int]]:
    """The finished pieces of an unfinished run; a piece that is written anew is another file."""
    found = {}
    for path in out.with_name(f".{out.name}.unfinished").glob("*.npz"):
        found[path.name] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found


def stop_after(monkeypatch: pytest.MonkeyPatch, n: int, error: BaseException) -> list[str]:
    """The n-th piece that is to be written raises; the list has the pieces that were written."""
    encode_piece = pieces_module.encode_piece
    written: list[str] = []

    def stopped(path: Path, rows: pieces_module.Rows, tagger: Tagger | None) -> None:
        if len(written) == n:
            raise error
        encode_piece(path, rows, tagger)
        written.append(path.stem)

    monkeypatch.setattr(pieces_module, "encode_piece", stopped)
    return written


def run(source: Path, out: Path, **settings: Any) -> None:
    prepare([source], out, **{"progress": False, "hold_out": 0.1, "shard_rows": 5, **settings})


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=["stop", "disk"])
def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    source = stories(tmp_path / "in.txt", 120)
    run(source, tmp_path / "calm")
    out = tmp_path / "deep" / "out"
    with monkeypatch.context() as patch:
        stop_after(patch, 12, error)
        with pytest.raises(UserError if isinstance(error, OSError) else KeyboardInterrupt):
            run(source, out)
    assert len(pieces(out)) == 12
    assert not out.exists()
    written = stop_after(monkeypatch, 100, error)
    run(source, out)
    # What was missing of the training split (108 of 120 stories), and the 12 stories to validate on.
    assert written == [f"train-{i:06d}" for i in range(12, 22)] + [f"valid-{i:06d}" for i in range(3)]
    assert content(out) == content(tmp_path / "calm")
    assert os.listdir(out.parent) == ["out"]


OTHER: dict[str, dict[str, Any]] = {
    "cutoff": {"cutoff": 2}, "input": {"seed": 1}, "tags": {"own_tags": False}, "shard-rows": {"shard_rows": 30},
    "smoothing": {"smoothing": 2.0}, "format": {"format": "text"},
}  # fmt: skip


def test_other_settings_or_stories_are_refused_and_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = stories(tmp_path / "in.txt", 120), tmp_path / "out"
    with monkeypatch.context() as patch:
        stop_after(patch, 11, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run(source, out)
    kept = pieces(out)
    assert len(kept) == 11
    for name, settings in OTHER.items():
        with pytest.raises(UserError, match=f"begun with another {name} and not finished.*--force"):
            run(source, out, **settings)
    text = source.read_text()
    source.write_text(text.replace("Alone.", "All alone."))
    with pytest.raises(UserError, match="begun with another input"):
        run(source, out)
    assert pieces(out) == kept
    source.write_text(text)
    run(source, out, cutoff=2, force=True)
    run(source, tmp_path / "calm", cutoff=2)
    assert content(out) == content(tmp_path / "calm")
    assert not pieces(out)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    source, out = stories(tmp_path / "in.txt", 60), tmp_path / "out"
    folder = tmp_path / ".out.unfinished"
    folder.mkdir()
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another run is preparing"):
            run(source, out)
    assert folder.exists()
    run(source, out)
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "out"]


def test_what_is_soon_made_again_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a small corpus nothing is left after a stop, so other settings are free."""
    source, out = stories(tmp_path / "in.txt", 60), tmp_path / "out"
    with monkeypatch.context() as patch:
        stop_after(patch, 1, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run(source, out, shard_rows=1000)
    assert os.listdir(tmp_path) == ["in.txt"]


def begin(source: Path, out: Path) -> subprocess.Popen[bytes]:
    """A run in a group of its own, with two workers."""
    words = ["prepare", str(source), "--out", str(out), "--shard-rows", "25", "--jobs", "2", "--json"]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # Where the tests run in the background of a shell, SIGINT is ignored, and programs inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def workers_of(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    try:
        children = psutil.Process(process.pid).children()
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    except psutil.NoSuchProcess:
        return []


def is_at_work(process: "subprocess.Popen[bytes]", out: Path, finished: int) -> bool:
    return len(pieces(out)) > finished and len(workers_of(process)) == 2


@pytest.mark.system
def test_kills(tmp_path: Path) -> None:
    """First a worker is killed, then the program itself, each time when it has got on a little."""
    source, out, calm = stories(tmp_path / "in.txt", 2_000), tmp_path / "out", tmp_path / "calm"
    printed = begin(source, calm).communicate(timeout=600)[0]
    for victim in ("worker", "program"):
        before = pieces(out)
        process = begin(source, out)
        enough = max(len(before), KEPT_PIECES + 2)  # fewer pieces are not kept
        until(partial(is_at_work, process, out, enough))
        workers = workers_of(process)
        (workers[0] if victim == "worker" else process).kill()
        error = process.communicate(timeout=300)[1].decode()
        assert process.returncode == -signal.SIGKILL or "a worker process was killed" in error, error
        assert not psutil.wait_procs(workers, timeout=120)[1], "a worker outlived its parent"
        assert not out.exists()
        assert before.items() <= pieces(out).items()  # what was done is not done again
    last = begin(source, out)
    assert last.communicate(timeout=600)[0] == printed.replace(str(calm).encode(), str(out).encode())
    assert content(out) == content(calm)
    assert sorted(os.listdir(tmp_path)) == ["calm", "in.txt", "out"]


@pytest.mark.system
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    """The whole group gets SIGINT, as from a terminal: one line, no worker's traceback, no folder."""
    out = tmp_path / "deep" / "out"
    process = begin(stories(tmp_path / "in.txt", 2_000), out)
    until(lambda: bool(pieces(out)))  # the workers are at work
    (os.killpg if how == signal.SIGINT else os.kill)(process.pid, how)
    printed, error = process.communicate(timeout=300)
    assert (printed, process.returncode) == (b"", 130)
    assert error.count(b"\n") == 1
    assert b"stopped" in error
    assert os.listdir(tmp_path) == ["in.txt"]

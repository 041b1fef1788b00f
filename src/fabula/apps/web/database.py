"""One SQLite file for a server: what was acknowledged is on disk, and what is wrong with the file is one clear line."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fabula.apps.web.errors import RefusedError
from fabula.errors import UserError

BUSY_SECONDS = 2.0
"""How long a write waits for another process to finish its own."""
APPLICATION = 0x46414255
"""`FABU`, in the file's header: another program's database is left alone."""
MAKERS = {"story": "fabula studio", "judge_study": "fabula judge"}
"""Whose file it is, by a table that the command makes in it."""


def default_path(name: str) -> Path:
    """Where a file of this name lives unless told otherwise: $XDG_DATA_HOME, else ~/.local/share."""
    root = os.environ.get("XDG_DATA_HOME")
    return (Path(root) if root else Path.home() / ".local" / "share") / "fabula" / name


class Database:
    """Two connections that threads share, one writer and one reader at a time: no reader waits for a writer.

    Before and after each use the file is looked at: one that was deleted, replaced or damaged while the server runs is
    said to be at once, and nothing is acknowledged that would not be there after a restart.
    """

    def __init__(self, path: Path, schema: str, own: str | None = None) -> None:
        """Open or create the file; `schema` is a script of CREATE ... IF NOT EXISTS.

        `own` is a table that the file has unless it is new: without it, it is another command's.
        """
        self.path = path
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._files: dict[Path, int] = {}
        self._seen: tuple[int, int] | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))  # stories are nobody else's to read
            self._connection, self._reader = self._connect(), self._connect()
        except (OSError, sqlite3.Error) as error:
            told = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise UserError(f"cannot open {path}: {told}; choose another file with --db", field="db") from error
        try:
            self._prepare(schema, own)
        except (sqlite3.Error, RefusedError) as error:
            self.close()
            raise UserError(self._told(error), field="db") from error
        except UserError:
            self.close()
            raise
        self._files = {name: name.stat().st_ino for name in (path, self._wal)}

    @property
    def _wal(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)

    def _prepare(self, schema: str, own: str | None) -> None:
        run = self._connection.execute
        mark = run("PRAGMA application_id").fetchone()[0]
        tables = [name for (name,) in run("SELECT name FROM sqlite_master")]
        if mark != APPLICATION and (mark or tables):
            raise UserError(f"{self.path} is another program's database; choose another file with --db", field="db")
        if own is not None and tables and own not in tables:
            maker = next((maker for table, maker in MAKERS.items() if table in tables), "another command")
            raise UserError(f"{self.path} belongs to {maker}: choose another file with --db", field="db")
        # WAL: readers never wait. FULL: a commit returns when it is on disk, and survives a cut in power.
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("PRAGMA foreign_keys = ON")
        with self.write() as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            for statement in schema.split(";"):
                connection.execute(statement)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is on disk when this ends, or nothing."""
        with self._lock, self._faults():
            self._check_file()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
                self._check_file(own=True)
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Several reads of one state."""
        with self._reading, self._faults():
            self._check_file()
            self._reader.execute("BEGIN")
            try:
                yield self._reader
            finally:
                self._reader.execute("COMMIT")

    def _check_file(self, own: bool = False) -> None:
        """Whether the file is still the one that was opened, and whole where anybody else has written into it."""
        for name, inode in self._files.items():
            try:
                same = name.stat().st_ino == inode
            except OSError:
                same = False
            if not same:
                told = f"{name} was deleted or replaced while Fabula runs, so nothing is saved: start Fabula again"
                raise RefusedError(503, told, field="db", headers={"Retry-After": "5"})
        if not self._files:
            return
        found = self.path.stat()
        seen = (found.st_size, found.st_mtime_ns)
        if seen != self._seen and self._seen is not None and not own:
            with closing(self._connect()) as fresh:  # the others would answer from memory
                told = fresh.execute("PRAGMA quick_check(1)").fetchone()[0]
            if told != "ok":
                raise sqlite3.DatabaseError(f"it is damaged ({told.splitlines()[0]}); restore a copy")
        self._seen = seen

    def close(self) -> None:
        with self._lock, self._reading:
            self._connection.close()
            self._reader.close()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """What the file refuses is the user's to mend, and nobody's fault: 503, in one line."""
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.DatabaseError) as error:
            if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            raise RefusedError(503, self._told(error), field="db", headers={"Retry-After": "2"}) from error

    def _told(self, error: Exception) -> str:
        if isinstance(error, RefusedError):
            return str(error)
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        told = {
            sqlite3.SQLITE_BUSY: f"{self.path} is locked by another program: close it and try again",
            sqlite3.SQLITE_LOCKED: f"{self.path} is locked by another program: close it and try again",
            sqlite3.SQLITE_READONLY: f"{self.path} may not be written: change its rights, or choose another with --db",
            sqlite3.SQLITE_NOTADB: f"{self.path} is not a database; choose another file with --db",
            sqlite3.SQLITE_CORRUPT: f"{self.path} is damaged; restore a copy, or choose another file with --db",
            sqlite3.SQLITE_FULL: f"the disk of {self.path} is full: free some space and try again",
            sqlite3.SQLITE_CANTOPEN: f"cannot open {self.path}; choose another file with --db",
        }
        return told.get(code, f"{self.path}: {error}")

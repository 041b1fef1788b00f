"""One SQLite file for a server: an acknowledged write is on disk, and what is wrong with the file is one line."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from fabula.apps.web.errors import RefusedError
from fabula.errors import UserError

BUSY_SECONDS = 2.0  # how long a write waits for another process to finish its own
APPLICATION = 0x46414255  # `FABU` in the file's header: another program's database is refused
MAKERS = {"story": "fabula studio", "judge_study": "fabula judge"}  # the command that makes a file with this table
MESSAGES = {
    sqlite3.SQLITE_BUSY: "{} is locked by another program: close it and try again",
    sqlite3.SQLITE_LOCKED: "{} is locked by another program: close it and try again",
    sqlite3.SQLITE_READONLY: "{} may not be written: change its rights, or choose another with --db",
    sqlite3.SQLITE_NOTADB: "{} is not a database; choose another file with --db",
    sqlite3.SQLITE_CORRUPT: "{} is damaged; restore a copy, or choose another file with --db",
    sqlite3.SQLITE_FULL: "the disk of {} is full: free some space and try again",
    sqlite3.SQLITE_CANTOPEN: "cannot open {}; choose another file with --db",
}


def default_path(name: str) -> Path:
    """Where a file of this name lives unless told otherwise: $XDG_DATA_HOME, else ~/.local/share."""
    root = os.environ.get("XDG_DATA_HOME")
    return (Path(root) if root else Path.home() / ".local" / "share") / "fabula" / name


class Database:
    """One connection that threads share: one transaction at a time.

    Before and after each use the file is checked. One that was deleted or replaced while the server runs is refused, so
    that nothing is acknowledged that would not be there after a restart.
    """

    def __init__(self, path: Path, schema: str, table: str) -> None:
        """Open or create the file by a script of CREATE ... IF NOT EXISTS; one without `table` is another command's."""
        self.path = path
        self._lock = threading.Lock()
        self._thread = threading.local()  # `_thread.inside` says whether this thread is in a transaction.
        self._files: dict[Path, int] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))  # stories are nobody else's to read
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.row_factory = sqlite3.Row
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise UserError(f"cannot open {path}: {reason}; choose another file with --db", field="db") from error
        try:
            self._prepare(schema, table)
        except (sqlite3.Error, UserError) as error:
            self.close()
            message = self._message(error) if isinstance(error, sqlite3.Error) else str(error)
            raise UserError(message, field="db") from error
        wal = path.with_name(f"{path.name}-wal")
        self._files = {name: name.stat().st_ino for name in (path, wal)}

    def _prepare(self, schema: str, table: str) -> None:
        run = self._connection.execute
        mark = run("PRAGMA application_id").fetchone()[0]
        tables = [name for (name,) in run("SELECT name FROM sqlite_master")]
        if mark != APPLICATION and (mark or tables):
            raise UserError(f"{self.path} is another program's database; choose another file with --db")
        if tables and table not in tables:
            maker = next((maker for made, maker in MAKERS.items() if made in tables), "another command")
            raise UserError(f"{self.path} belongs to {maker}: choose another file with --db")
        # WAL: other processes may read. FULL: a commit returns when it is on disk, and survives a cut in power.
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            run(f"PRAGMA {pragma}")
        with self.write() as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            for statement in schema.split(";"):
                connection.execute(statement)

    def write(self) -> AbstractContextManager[sqlite3.Connection]:
        """One transaction: all of it is on disk when this ends, or nothing. Inside another it is part of that."""
        return self._transaction("BEGIN IMMEDIATE")

    def read(self) -> AbstractContextManager[sqlite3.Connection]:
        """Several reads of one state; inside a write, of its state."""
        return self._transaction("BEGIN")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        if getattr(self._thread, "inside", False):
            yield self._connection
            return
        with self._lock, self._refusals():
            self._check_file()
            self._connection.execute(begin)
            self._thread.inside = True
            try:
                yield self._connection
                self._connection.execute("COMMIT")
                self._check_file()
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._thread.inside = False

    def _check_file(self) -> None:
        """Refuse if the file is not the one that was opened."""
        for name, inode in self._files.items():
            if not name.exists() or name.stat().st_ino != inode:
                message = f"{name} was deleted or replaced while Fabula runs, so nothing is saved: start Fabula again"
                raise RefusedError(503, message, field="db", headers={"Retry-After": "5"})

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn what the file refuses, which is the user's to mend, into 503 with one line."""
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise
        except sqlite3.DatabaseError as error:
            raise RefusedError(503, self._message(error), field="db", headers={"Retry-After": "2"}) from error

    def _message(self, error: sqlite3.Error) -> str:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return MESSAGES[code].format(self.path) if code in MESSAGES else f"{self.path}: {error}"

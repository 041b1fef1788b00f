"""The one error shape: what a person did, in one line, with what to do about it."""

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """A mistake of the user's: the command line prints its one line and exits with 2, HTTP answers 422.

    `field` names the argument or setting at fault where there is one.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(" ".join(message.split()))
        self.field = field


class UnavailableError(UserError):
    """Something outside Fabula does not answer as it should: work stops here, and can go on when it does."""

    status = 503


@contextmanager
def file_errors(fault: str, field: str | None = None) -> Iterator[None]:
    """Turn an OSError, such as a missing permission, into a `UserError`: the fault, then the system's reason."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{fault}: {error.strerror or error}", field=field) from error

"""Lock a file against a second process that does the same work."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from booking_cli.framework.errors import CliError, bad_file


@contextmanager
def lock_file(path: Path, refusal: CliError, *, code: str = "bad_file") -> Iterator[None]:
    """Hold a lock on a file, which is created if it is missing; the lock ends with the process. Windows has none.

    Args:
        refusal: the error if another process has the lock.
        code: of the error if the file cannot be opened.

    Raises:
        CliError: another process has the lock, or the file cannot be opened.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise bad_file(path, f"cannot be opened: {error.strerror}", code=code) from None
    with os.fdopen(descriptor):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refusal from None
        yield

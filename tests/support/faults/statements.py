"""A statement that fails for a reason that nobody foresaw."""

from collections.abc import Iterator
from contextlib import contextmanager

from booking_core.db.engine import Database


@contextmanager
def failing_at(database: Database, number: int) -> Iterator[None]:
    """Let the statement of this number fail, counted from here."""
    remaining = number

    def fail(_: str) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == -1:
            raise RuntimeError("a failure that nobody foresaw")

    database.observer = fail
    try:
        yield
    finally:
        database.observer = None

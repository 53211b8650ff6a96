"""A mirror of an organization's bookings in an SQLite file, and the notices to send to other channels.

It does not matter how an event came here, how often, or after which other one. Each is handled in one transaction: the
notice that remembers it, the booking it is about, and how far the feed has been read. So the file is right after every
commit, and a process that is killed has either handled an event or not begun.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from booking_sdk import Booking, BookingEvent, Event

_SCHEMA = """
CREATE TABLE IF NOT EXISTS bookings (
    id TEXT PRIMARY KEY, sequence INTEGER NOT NULL, status TEXT NOT NULL, body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS notices (
    event_id TEXT PRIMARY KEY, sequence INTEGER NOT NULL, type TEXT NOT NULL, booking_id TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS position (
    only INTEGER PRIMARY KEY CHECK (only = 1), checkpoint TEXT NOT NULL
);
"""

_PATIENCE_S = 30.0
"""For another process that writes: the follower and the receiver share the file."""


class Mirror:
    """The SQLite file of the mirror. Each thread needs its own instance."""

    def __init__(self, path: Path | str) -> None:
        # Without an isolation level the module begins nothing by itself; the journal is SQLite's first and plainest,
        # which any number of processes may write to.
        self._database = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)
        self._database.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            for statement in _SCHEMA.split(";"):
                self._database.execute(statement)

    def handle(self, event: Event, checkpoint: str | None = None) -> None:
        """Takes an event in, from wherever it came; `checkpoint` is where the feed goes on behind it."""
        with self._transaction():
            if isinstance(event, BookingEvent) and self._notice(event):
                self._keep(event.data.object, event.sequence)
            if checkpoint is not None:
                self._database.execute("INSERT OR REPLACE INTO position VALUES (1, ?)", (checkpoint,))

    def fill(self, bookings: Iterable[Booking]) -> None:
        """Store bookings that are older than the feed. A booking that came with an event stays: it is not older."""
        for booking in bookings:
            with self._transaction():
                self._keep(booking, sequence=0)

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint of the feed; None before its first event."""
        row = self._database.execute("SELECT checkpoint FROM position").fetchone()
        return str(row[0]) if row else None

    def close(self) -> None:
        self._database.close()

    def _notice(self, event: BookingEvent) -> bool:
        """Write the notice for other channels, once per event. Return True when the event is new."""
        written = self._database.execute(
            "INSERT INTO notices VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (event.id, event.sequence, event.type, event.data.object.id),
        )
        return written.rowcount == 1

    def _keep(self, booking: Booking, sequence: int) -> None:
        """Store the booking as of an event, unless a later event was stored before."""
        self._database.execute(
            "INSERT INTO bookings VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
            " SET sequence = excluded.sequence, status = excluded.status, body = excluded.body"
            " WHERE excluded.sequence > bookings.sequence",
            (booking.id, sequence, booking.status, json.dumps(booking.to_json())),
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Open a transaction. It locks for writing at its start, so that a second process waits in place of failing."""
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:
            yield

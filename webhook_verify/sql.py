"""Seen events in the receiver's own database, written in the transaction of their effects.

seen = SeenTable()
with connection:  # the receiver's transaction
    if seen.record(connection, delivery.event_id):
        handle(connection, delivery)
"""

from __future__ import annotations

import sys
import time
from typing import Any, Callable

from webhook_verify.errors import EventInProgress

_PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":1", "named": ":1"}


class SeenTable:
    """A table of event ids. An event's id and its effects commit together: no event is lost, and none is handled twice.

    Its statements are standard SQL, for connections of any DB-API module.

    Args:
        table: The name of the table: letters, digits, underscores, and a dot after a schema.
        paramstyle: As in the DB-API. Needed for a connection whose package does not state it, such as Django's, where
            it is "format".
        clock: Returns the present time in unix seconds.
    """

    def __init__(
        self,
        table: str = "webhook_events",
        *,
        paramstyle: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if paramstyle is not None and paramstyle not in _PLACEHOLDERS:
            raise ValueError(f"paramstyle must be one of {', '.join(_PLACEHOLDERS)}")
        if not table.replace("_", "").replace(".", "").isalnum():
            raise ValueError("table must be a plain name")
        self.table: str = table
        self.ddl: str = f"CREATE TABLE {table} (event_id varchar(64) PRIMARY KEY, seen_at double precision NOT NULL)"
        """The statement that creates the table, for a migration."""
        self._paramstyle = paramstyle
        self._clock = clock

    def record(self, connection: Any, event_id: str) -> bool:
        """Write the id of an event in the open transaction. Return False when it was handled before.

        Raises:
            EventInProgress: Another delivery of the event was handled at the same time: roll back. The sender tries
                again, and that attempt is a duplicate.
        """
        mark = self._placeholder(connection)
        if _run(connection, f"SELECT 1 FROM {self.table} WHERE event_id = {mark}", event_id, fetch=True):
            return False
        marks = f"{mark}, {mark.replace('1', '2')}"
        try:
            _run(connection, f"INSERT INTO {self.table} (event_id, seen_at) VALUES ({marks})", event_id, self._clock())
        except Exception as error:
            # Each module has its own class of this name, which the DB-API prescribes.
            if any(base.__name__ == "IntegrityError" for base in type(error).__mro__):
                raise EventInProgress(event_id) from error
            raise
        return True

    def purge(self, connection: Any, *, older_than: float = 30 * 86_400.0) -> None:
        """Delete the ids that were written more than `older_than` seconds ago.

        A delivery can be sent again by hand for 30 days.
        """
        mark = self._placeholder(connection)
        _run(connection, f"DELETE FROM {self.table} WHERE seen_at < {mark}", self._clock() - older_than)

    def _placeholder(self, connection: Any) -> str:
        package = sys.modules.get(type(connection).__module__.partition(".")[0])
        paramstyle = self._paramstyle or getattr(package, "paramstyle", None)
        if paramstyle not in _PLACEHOLDERS:
            raise TypeError(f"the paramstyle of {type(connection).__name__} is unknown: pass it to SeenTable")
        return _PLACEHOLDERS[paramstyle]


def _run(connection: Any, statement: str, *values: object, fetch: bool = False) -> bool:
    """Run a statement, and return whether it selected a row."""
    cursor = connection.cursor()
    try:
        cursor.execute(statement, values)
        return fetch and cursor.fetchone() is not None
    finally:
        cursor.close()

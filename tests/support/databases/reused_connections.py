"""Connections to PostgreSQL that outlive their owners, for tests that run many commands in one process.

A command opens a connection and prepares its statements, which costs the server more than the work of most commands.
Here the next command reuses the connection of the previous one, as requests of the service do.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from booking_core.db.postgres import PostgresConnection, PostgresDriver

_connect, _close = PostgresDriver.connect, PostgresConnection.close


@contextmanager
def reused_connections() -> Iterator[None]:
    """Let a connection that is closed serve the next one with the same settings, and close them with the block."""
    idle: defaultdict[Any, list[PostgresConnection]] = defaultdict(list)
    keys: dict[PostgresConnection, Any] = {}

    def connect(self: PostgresDriver, writable: bool, **settings: Any) -> PostgresConnection:
        key = (self.url, *sorted(settings.items()))
        connection = idle[key].pop() if idle[key] else _connect(self, writable, **settings)
        keys[connection] = key
        return connection

    def close(self: PostgresConnection) -> None:
        if self.broken or self not in keys:
            _close(self)
        else:
            idle[keys[self]].append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresDriver, "connect", connect)
        patch.setattr(PostgresConnection, "close", close)
        yield
    for connection in keys:
        if not connection.broken:
            _close(connection)

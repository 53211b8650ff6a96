"""Wait at the start of a process for a PostgreSQL database that is unavailable, recovers or has no free connection."""

import os
import re
import select
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from booking_core.base import database_urls

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

T = TypeVar("T")

_PAUSE_S = 0.5
_CONNECT_TIMEOUT_S = 2
_TOO_MANY_CONNECTIONS = b"53300"
_STATE = re.compile(rb'\tErrorResponse\t.* C "(\w{5})"')
"""A refusal in libpq's trace."""

Pause = Callable[[float], object]
"""Waits for so many seconds, and returns a true value if nobody waits any more."""


def is_away(database_url: str) -> bool:
    """Return whether no server of the URL takes connections for now: it does not respond, starts, stops, recovers, or
    has as many connections as it may.

    False for a permanent error, such as a wrong password, and for SQLite.
    """
    url = database_urls.parse(database_url)
    if url.get_backend_name() == "sqlite":
        return False
    import psycopg
    from psycopg import pq
    from psycopg.conninfo import make_conninfo

    params = database_urls.parameters(url) | {"connect_timeout": str(_CONNECT_TIMEOUT_S)}
    takes_writes = params.pop("target_session_attrs", None)  # several servers always have it
    conninfo = make_conninfo("", **params)
    if pq.PGconn.ping(conninfo.encode()) in (pq.Ping.REJECT, pq.Ping.NO_RESPONSE):
        return True
    if _refusal(conninfo.encode()) == _TOO_MANY_CONNECTIONS:
        return True
    if not takes_writes:
        return False
    try:  # a standby is there, and none of the servers takes writes yet
        psycopg.connect(conninfo).close()
    except psycopg.OperationalError:
        return False
    return True


def _refusal(conninfo: bytes) -> bytes | None:
    """Return the SQLSTATE of a refused connection; None if the server takes it, or if the answer has no SQLSTATE.

    Only the trace of libpq has it, on Linux. The message is in the language of the server. The trace can contain the
    password, so it stays in memory.
    """
    if sys.platform != "linux":
        return None
    from psycopg import pq

    conn = pq.PGconn.connect_start(conninfo)
    with os.fdopen(os.memfd_create("trace"), "rb") as trace:
        conn.trace(trace.fileno())
        _connect(conn)
        conn.untrace()  # libpq writes the rest of it
        trace.seek(0)
        states = _STATE.findall(trace.read())
    conn.finish()
    return states[-1] if states else None


def _connect(conn: "PGconn") -> None:
    from psycopg import pq

    while (status := conn.connect_poll()) in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
        waiting = [conn.socket]
        is_reading = status == pq.PollingStatus.READING
        if not any(select.select(*((waiting, []) if is_reading else ([], waiting)), [], _CONNECT_TIMEOUT_S)):
            return


def patiently(
    work: Callable[[], T],
    is_away: Callable[[Exception], bool],
    notify: Callable[[Exception], None],
    *,
    wait_s: float,
    pause: Pause = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Run the work, repeatedly while the database is unavailable, and return its result.

    Args:
        is_away: whether the work failed because the database is unavailable.
        notify: called once, with the first such error.

    Raises:
        Exception: the error of the work, for another cause or after `wait_s`.
    """
    until, has_notified, was_there = clock() + wait_s, False, False
    while True:
        try:
            return work()
        except Exception as error:
            away = is_away(error)
            if clock() >= until or (was_there and not away):
                raise
            was_there = not away  # it may have come back in between: the work is tried once more
            if away and not has_notified:
                has_notified = True
                notify(error)
            if away and pause(_PAUSE_S):
                raise

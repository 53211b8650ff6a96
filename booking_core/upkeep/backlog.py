"""The state of the worker's queues, of all organizations together, for metrics.

Each statement reads partial indexes of waiting rows, so its cost grows with the backlog and not with the tables.
"""

from typing import NamedTuple

from booking_core.base.clock import SECOND
from booking_core.db import sql_files
from booking_core.db.engine import Tx

_SQL = sql_files.load(__name__)
_BACKLOG, _ENDPOINTS = _SQL.statement("backlog"), _SQL.statement("endpoints")


class Backlog(NamedTuple):
    """The due rows of one kind."""

    kind: str
    rows: int
    age_s: float
    """The age of the oldest due row, in seconds; 0 without any."""


class Endpoints(NamedTuple):
    """The webhook endpoints of one status."""

    status: str
    total: int
    failing: int
    """Those whose last attempt failed."""


def read(tx: Tx) -> list[Backlog]:
    """Return the rows that wait for the worker, with an entry for each kind."""
    now = tx.now()
    return [
        Backlog(kind, int(count), 0.0 if due_at is None else max(0, now - int(due_at)) / SECOND)
        for kind, count, due_at in tx.all(_BACKLOG, at=now)
    ]


def read_endpoints(tx: Tx) -> list[Endpoints]:
    """Return the webhook endpoints by status."""
    return [Endpoints(status, int(count), int(failing)) for status, count, failing in tx.all(_ENDPOINTS)]

"""Heartbeats of workers: each running worker keeps a row, which shows other processes that work is carried out.

A worker that stops deletes its row; the row of a killed worker stays until another worker has run for a day. All
instants are by the database's clock.
"""

from typing import Any, NamedTuple

from sqlalchemy import BigInteger, bindparam, delete, func, literal_column, select, update

from booking_core.base.clock import DAY, SECOND
from booking_core.db.engine import Tx
from booking_core.db.statements import NOW, Statement
from booking_core.db.tables import Id, workers

EVERY = 15 * SECOND
"""The interval of a worker's heartbeats."""
LATE = 4 * EVERY
"""Without a heartbeat for so long, no worker counts as running."""

_IS_WORKER = workers.c.id == bindparam("worker_id", type_=Id)
_BEAT = Statement(update(workers).where(_IS_WORKER).values(seen_at=NOW))
_REMOVE = Statement(delete(workers).where(_IS_WORKER))
_REMOVE_OLD = Statement(delete(workers).where(workers.c.seen_at < bindparam("before", type_=BigInteger)))


def _read() -> Any:
    late = literal_column(str(LATE), type_=BigInteger)
    running = func.count().filter(workers.c.seen_at > select(NOW).scalar_subquery() - late)
    return select(select(NOW).scalar_subquery(), func.max(workers.c.seen_at), running).select_from(workers)


_READ = Statement(_read())


class Heartbeats(NamedTuple):
    """The heartbeats of all workers of a database."""

    running: int
    """Workers that were seen lately."""
    age_s: float | None
    """Seconds since the newest heartbeat; None: no worker has ever run, or all of them have stopped."""

    @property
    def is_late(self) -> bool:
        return self.running == 0


def beat(tx: Tx, worker_id: str) -> None:
    """Write the heartbeat of a worker. Its first one removes the rows of workers that were killed long ago."""
    if tx.run(_BEAT, worker_id=worker_id):
        return
    now = tx.now()
    tx.run(_REMOVE_OLD, before=now - DAY)
    tx.insert(workers, id=worker_id, started_at=now, seen_at=now)


def remove(tx: Tx, worker_id: str) -> None:
    """Delete the heartbeat of a worker that stops."""
    tx.run(_REMOVE, worker_id=worker_id)


def read(tx: Tx) -> Heartbeats:
    """Return the state of all workers."""
    ((now, seen_at, running),) = tx.all(_READ)
    return Heartbeats(int(running), None if seen_at is None else max(0, int(now) - int(seen_at)) / SECOND)

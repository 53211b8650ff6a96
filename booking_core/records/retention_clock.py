"""The clock that purges go by: it follows the system's clock and never leaps with it (decision I7).

A purge cannot be undone, and a deleted answer lets its key book a second time. A clock may be a year ahead for an hour,
by a dead battery or a wrong command, also when no process was there to see it leap. So purges compare with a stored
instant that moves towards the clock by at most `CATCH_UP` seconds for each second that a process has measured with its
monotonic clock. A clock that is right after a long pause is caught up with; the data are kept a little longer then, and
never less.
"""

from dataclasses import dataclass

from sqlalchemy import bindparam, func, select, text, update

from booking_core.base.clock import SECOND
from booking_core.db.engine import Tx
from booking_core.db.statements import NOW, Statement, has_key
from booking_core.db.tables import counters, events, retention_clock

CATCH_UP = 8
"""A week of downtime is caught up with in a day; a weekend with a wrong clock costs no stored answer that is younger
than ten days."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A reading of a process: the retention clock and its own monotonic clock at one moment."""

    at: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The time, by the clock and as far as purges believe it."""

    now: int
    at: int
    """Never later than `now`."""
    measured: Measured
    """For the next call of `advance` by the same process."""

    @property
    def behind(self) -> int:
        """The lead of the database's clock over the retention clock, in microseconds."""
        return self.now - self.at


def moved(at: int, now: int, measured: Measured, elapsed_s: float) -> int:
    """Return the next instant of the clock: nearer to `now`, within the bound of the measured time.

    Several processes move the same clock, each within its own bound, so together they move it no faster than one.
    """
    step = max(0, round((elapsed_s - measured.elapsed_s) * CATCH_UP * SECOND))
    return min(max(now, min(at, measured.at - step)), max(at, measured.at + step))


_NEWEST = (
    select(func.max(events.c.created_at))
    .join_from(counters, events, has_key(events, counters, sequence="last_event_sequence"))
    .scalar_subquery()
)


_READ = Statement(select(NOW, select(retention_clock.c.at).scalar_subquery()))
_LOCK = Statement(select(retention_clock.c.at, NOW).with_for_update())
_BEGIN = Statement(select(NOW, _NEWEST))
_INSERT = Statement(
    text("INSERT INTO retention_clock (id, at, moved_at) VALUES (1, :at, :moved_at) ON CONFLICT DO NOTHING")
)
"""Another worker may begin at the same moment."""
_MOVE = Statement(update(retention_clock).values(at=bindparam("at"), moved_at=bindparam("moved_at")))


def read(tx: Tx) -> tuple[int, int | None]:
    """Return the present instant, and the instant of the retention clock; None before the first purge."""
    (row,) = tx.all(_READ)
    return int(row[0]), None if row[1] is None else int(row[1])


def advance(tx: Tx, measured: Measured | None, elapsed_s: float) -> ClockReading:
    """Move the retention clock as far as it may, and return its time.

    Args:
        measured: of the last reading by this process; None for its first, which moves nothing.
        elapsed_s: the process's monotonic clock.
    """
    row = tx.first(_LOCK)
    if row is None:
        return _begin_at(tx, elapsed_s)
    at, now = int(row[0]), int(row[1])
    if measured is not None:
        at = moved(at, now, measured, elapsed_s)
    tx.run(_MOVE, at=at, moved_at=now)
    return ClockReading(now, min(now, at), Measured(at, elapsed_s))


def _begin_at(tx: Tx, elapsed_s: float) -> ClockReading:
    """Begin at the newest event, since the service was there when it happened; at the clock where nothing has."""
    (row,) = tx.all(_BEGIN)
    now = int(row[0])
    at = now if row[1] is None else min(now, int(row[1]))
    tx.run(_INSERT, at=at, moved_at=now)
    return ClockReading(now, at, Measured(at, elapsed_s))

"""Reads from a replica of the primary, where that shows the same as the primary would.

A replica lags, and so would not show a client what it has just written. It may also be ahead: it shows a transaction
once it has its commit record, while the primary still waits for other replicas, so that a client would see a booking
that the primary does not show to its next request. Therefore a read begins with the position of the primary, taken
after the request came. In one round trip the replica says whether it has replayed so much, gives the rows, and names
the transactions that it shows beyond the position; those must be visible on the primary before the rows are used. When
any of that fails, the rows are read from the primary, and a replica that keeps failing is not asked for a while
(`decisions/0048`).
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from sqlalchemy.engine import URL

from booking_core import database_urls
from booking_core.circuit_breaker import CircuitBreaker
from booking_core.db import sql_files
from booking_core.db.driver import Connection
from booking_core.db.engine import Database, Query, Row, Tx
from booking_core.db.statements import Statement
from booking_core.errors import BookingError, Unavailable
from booking_core.repeated_log import RepeatedLog
from booking_core.settings import Settings

T = TypeVar("T")

log = logging.getLogger("booking.replica")

STATEMENT_TIMEOUT_S = 0.8
"""Seconds that a statement on the replica may take. Then the primary has its own time for it."""
RESPONSE_TIMEOUT_S = 1.0
"""Seconds without a response after which the replica counts as unreachable."""
CONNECT_TIMEOUT_S = 2
PROBES = 5
"""Looks of a probe at a replica that is behind."""
PROBE_PAUSE_S = 0.02
"""Seconds between them."""

_SQL = sql_files.load(__name__)
_POSITION, _STATE, _SHOWN_BEFORE = map(_SQL.statement, ("position", "state", "shown_before"))
_NEWER, _ARE_VISIBLE = map(_SQL.statement, ("newer", "are_visible"))

BEHIND, AHEAD, PROMOTED, OTHER = "behind", "ahead", "promoted", "other_server"
UNREACHABLE, SLOW, ERROR, PAUSED = "unreachable", "slow", "error", "paused"
_PROBLEMS = {
    BEHIND: "has not replayed what the primary shows",
    AHEAD: "shows transactions that the primary does not show yet",
    PROMOTED: "takes writes itself, so that it is no replica",
    OTHER: "belongs to another cluster, or has not reached the primary's timeline",
    UNREACHABLE: "does not answer",
    SLOW: f"takes longer than {STATEMENT_TIMEOUT_S:g} s for a list",
    ERROR: "fails",
}


class Position(NamedTuple):
    """The state of the primary at an instant: its visible transactions, and the end of their log."""

    snapshot: str
    """The transactions that are visible, as `pg_snapshot`."""
    lsn: str
    """The end of the log that has their commits."""
    timeline: str
    system: str
    """The identifier of its cluster."""

    def has_newer(self, shown_before: int) -> bool:
        """Return whether a server that shows transactions before this id may show one that is not visible here."""
        _, xmax, in_progress = self.snapshot.split(":")
        return shown_before > int(xmax) or any(int(each) < shown_before for each in in_progress.split(",") if each)


def position_of(tx: Tx) -> Position:
    """Return the present position of the primary."""
    row = tx.first(_POSITION)
    assert row is not None
    return Position._make(row)


class ReadFromPrimary(Exception):
    """The replica's rows cannot be used.

    Args:
        reason: for metrics and messages.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(_PROBLEMS.get(reason, reason))
        self.reason = reason


class ReplicaTx(Tx):
    """A connection to the replica, on which each statement sees at least what the position shows.

    Args:
        now: the instant of the request by the primary's clock; the replica's may differ.
    """

    def __init__(self, database: Database, connection: Connection, position: Position, now: int) -> None:
        super().__init__(database, connection, is_read_only=True)
        self._position = position
        self._now = now
        self.newer: set[str] = set()
        """Transactions that were shown and are not visible at the position."""

    def compare(self) -> None:
        """Compare the replica with the position.

        Raises:
            ReadFromPrimary: its rows could not be used.
        """
        self._compared([])

    def pipeline(self, *queries: Query[Any]) -> list[Any]:
        steps = [(query.statement, query.parameters) for query in queries if query.statement]
        found = iter(self._compared(steps))
        return [query.read(next(found) if query.statement else []) for query in queries]

    def _run(self, statement: Statement, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        (rows,) = self._compared([(statement, parameters)])
        return rows, len(rows)

    def _compared(self, asked: list[tuple[Statement, dict[str, Any]]]) -> list[list[Row]]:
        """Return the rows of the statements, between a look at the replica's state and one at what it has shown."""
        steps = [(_STATE, self._position._asdict()), *asked, (_SHOWN_BEFORE, {})]
        now = {"now": self._now}
        state, *rows, shown = self._connection.execute_pipeline([self._ready(each, now | own) for each, own in steps])
        if reason := _reason(state[0]):
            raise ReadFromPrimary(reason)
        if self._position.has_newer(shown[0][0]):
            self._find_newer()
        return rows

    def _find_newer(self) -> None:
        ((newer,),) = self._connection.execute(*self._ready(_NEWER, {"snapshot": self._position.snapshot}))[0]
        if newer:
            self.newer.update(newer.strip("{}").split(","))


def _reason(state: Row) -> str | None:
    """Return why a replica in that state cannot be read."""
    is_replica, is_same_cluster, is_same_timeline, has_replayed = state
    if not is_replica:
        return PROMOTED
    if not (is_same_cluster and is_same_timeline):
        return OTHER
    return None if has_replayed else BEHIND


class Replica:
    """The replicas of one URL, and the decision whether they are read.

    Args:
        size: connections at most, besides one for probes.
        clock: returns monotonic seconds.
        pause: sleeps for so many seconds.
        start: runs a function beside its caller.
    """

    def __init__(
        self,
        database: Database,
        url: str,
        *,
        size: int,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        start: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        from booking_core.db.postgres import PostgresDriver  # psycopg is not installed where only SQLite is used

        driver = PostgresDriver(_standby_url(url), connect_timeout_s=CONNECT_TIMEOUT_S)
        self._database = database
        self._driver = driver
        self._pool = database.open_pool(
            "replica",
            size + 1,
            lambda: driver.connect(
                False, statement_timeout_s=STATEMENT_TIMEOUT_S, response_timeout_s=RESPONSE_TIMEOUT_S
            ),
        )
        self._pause = pause
        self._start = start or _in_thread
        self._breaker = CircuitBreaker(clock=clock)
        self._errors = RepeatedLog(log)
        self._lock = threading.Lock()
        self.reads: Counter[str] = Counter()
        """Lists that could have been read from the replica, by the reason why they were not; "" for those that were."""

    def position(self, tx: Tx) -> Position | None:
        """Return the position of the primary, for reads from the replica; None while the replica is not asked."""
        if not self._breaker.is_open:
            return position_of(tx)
        if self._breaker.takes_probe():
            self._start(self.probe)
        return None

    def count(self, reason: str, lists: int = 1) -> None:
        """Count lists that were read from the primary for that reason; "" for those that the replica gave."""
        with self._lock:
            self.reads[reason] += lists

    def read(self, tx: Tx, fn: Callable[[Tx], T], position: Position, *, now: int) -> T:
        """Return the result of `fn`, which reads from the replica.

        Args:
            tx: the connection to the primary on which the position was taken.
            now: the instant of the request.

        Raises:
            ReadFromPrimary: the replica cannot be read, or not by this request.
        """
        try:
            result = self._read(tx, fn, position, now)
        except ReadFromPrimary as fallback:
            self.count(fallback.reason)
            if self._breaker.failed(opens=fallback.reason in (UNREACHABLE, PROMOTED, OTHER)):
                log.warning("%s", sentence(str(fallback)))
            raise
        self.count("")
        self._breaker.succeeded()
        if isinstance(result, BookingError):
            raise result
        return result

    def _read(self, tx: Tx, fn: Callable[[Tx], T], position: Position, now: int) -> T | BookingError:
        try:
            with self._pool.connection() as connection:
                on_replica = ReplicaTx(self._database, connection, position, now)
                result = _result(fn, on_replica)
        except ReadFromPrimary:
            raise
        except Exception as error:  # whatever it is, the primary may do better, and raises it again where not
            raise ReadFromPrimary(self._reason_of(error)) from error
        if on_replica.newer and not _are_visible(tx, on_replica.newer):
            raise ReadFromPrimary(AHEAD)
        return result

    def _reason_of(self, error: Exception) -> str:
        if isinstance(error, Unavailable):
            return UNREACHABLE
        if self._driver.is_timeout(error):
            return SLOW
        if self._driver.translate(error) is None:
            text = str(error).partition("\n")[0]
            self._errors.note(logging.ERROR, type(error).__name__, f"a list failed on the replica: {text}")
        return ERROR

    def probe(self) -> str | None:
        """Find out whether the replica can be read, and read lists from it if so. Return what is wrong otherwise."""
        problem = self.find_problem()
        if self._breaker.probed(is_well=problem is None):
            log.info("%s", sentence(None))
        return problem

    def find_problem(self) -> str | None:
        """Return why the replica cannot be read now, as the end of a sentence; None if it can."""
        try:
            position = self._database.read(position_of)
            with self._pool.connection() as connection:
                return self._compared(ReplicaTx(self._database, connection, position, 0))
        except Exception as error:  # noqa: BLE001 - nothing that a probe meets may end what asks for it
            return _PROBLEMS[self._reason_of(error)]

    def _compared(self, on_replica: ReplicaTx) -> str | None:
        """Compare the replica with a position, again for a moment where it is only behind."""
        for turn in range(PROBES):
            if turn:
                self._pause(PROBE_PAUSE_S)
            try:
                on_replica.compare()
            except ReadFromPrimary as found:
                problem = str(found)
                if found.reason != BEHIND:
                    break
            else:
                return None
        return problem


def sentences(settings: Settings, database: Database) -> list[str]:
    """Say whether lists can be read from the replica of the settings; nothing where none is set."""
    if settings.database_read_url is None:
        return []
    return [sentence(Replica(database, settings.database_read_url, size=0).probe())]


def sentence(problem: str | None) -> str:
    """Say whether lists are read from the replica."""
    if problem is None:
        return "lists and events are read from the replica of BOOKING_DATABASE_READ_URL"
    return f"lists and events are read from the primary for now: the replica of BOOKING_DATABASE_READ_URL {problem}"


def _result(fn: Callable[[Tx], T], on_replica: ReplicaTx) -> T | BookingError:
    """Return the result of a read, or its refusal, which depends on what the replica has shown as a result does."""
    try:
        return fn(on_replica)
    except Unavailable:
        raise
    except BookingError as refusal:
        return refusal


def _are_visible(tx: Tx, ids: set[str]) -> bool:
    row = tx.first(_ARE_VISIBLE, ids="{" + ",".join(ids) + "}")
    return bool(row and row[0])


def _standby_url(url: str) -> URL:
    """Return the URL; of several servers it leads to one that is a replica."""
    parsed = database_urls.parse(url)
    is_several = len(database_urls.each_host(database_urls.parameters(parsed))) > 1
    if is_several and "target_session_attrs" not in parsed.query:
        return parsed.update_query_dict({"target_session_attrs": "standby"})
    return parsed


def _in_thread(function: Callable[[], object]) -> None:
    threading.Thread(target=function, name="replica-probe", daemon=True).start()

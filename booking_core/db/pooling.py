"""Finds out whether a pooler is between the service and PostgreSQL, and in which mode.

A pooler in session mode gives a client one session of the server for as long as it is connected; one in transaction
mode gives each transaction whichever session is free. Then settings, LISTEN and, with some poolers, prepared statements
of a client stay behind in a session that another client gets next.
"""

import contextlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from booking_core.base.errors import Unavailable
from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_core.db.statements import Compiled

if TYPE_CHECKING:
    from booking_core.db.postgres import PostgresConnection, PostgresDriver

_ROUNDS = 8
"""Comparisons after which two clients that never met in a session have one each."""
_NOTHING_KEPT = (
    "the pooler keeps no prepared statements, so that each statement is parsed and planned every time: PgBouncer keeps"
    " them from 1.21 on with max_prepared_statements"
)
_WOKEN = "workers are woken by what other processes commit"
_POLLS = (
    "workers look for what other processes commit twice a second, since nothing wakes them through the pooler: set"
    " BOOKING_DATABASE_DIRECT_URL to a URL that leads past it"
)
_PROCESS = Compiled("SELECT pg_backend_pid()", (), {}, wants_now=False)


class PoolerMode(StrEnum):
    """The mode of the pooler that a URL leads through."""

    NONE = "none"
    SESSION = "session"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class Pooling:
    """The pooler that a URL leads through."""

    mode: PoolerMode
    keeps_prepared: bool = True
    """It keeps the statements that its clients have prepared."""

    @property
    def can_listen(self) -> bool:
        """True if a client that listens gets its notifications."""
        return self.mode is not PoolerMode.TRANSACTION


@dataclass(frozen=True, slots=True)
class Connections:
    """The poolers of an installation's URLs."""

    pooling: Pooling
    direct: Pooling | None
    """That of BOOKING_DATABASE_DIRECT_URL, if it is set."""
    settings: Settings

    @property
    def listening_url(self) -> str | None:
        """The URL on which notifications can be received; none if they cannot."""
        if self.direct:
            return self.settings.database_direct_url if self.direct.can_listen else None
        return self.settings.database_direct_url or (self.settings.database_url if self.pooling.can_listen else None)

    def sentences(self) -> list[str]:
        """Say what works through the pooler, and how; nothing where there is none."""
        if self.pooling.mode is PoolerMode.NONE:
            return []
        return [
            f"BOOKING_DATABASE_URL leads through a pooler in {self.pooling.mode} mode. Each transaction sets its"
            " timeouts and waits for the disk, whatever other clients of the pooler set; "
            + ("statements are prepared once" if self.pooling.keeps_prepared else _NOTHING_KEPT),
            _WOKEN if self.listening_url else _POLLS,
        ]


class SessionRequired(Exception):
    """A schema cannot be upgraded through a pooler in transaction mode: the lock of upgrades would stay in a session
    that others get next."""

    code = "pooler"
    hint = "set BOOKING_DATABASE_DIRECT_URL to a URL that leads past it"

    def __init__(self) -> None:
        super().__init__("The database cannot be upgraded through a pooler in transaction mode.")


def require_session(database: Database) -> None:
    """Check that the database's URL gives a client a session of its own, as an upgrade needs.

    Raises:
        SessionRequired: it does not.
    """
    if find_pooling(database).mode is PoolerMode.TRANSACTION:
        raise SessionRequired


def find_connections(settings: Settings, database: Database) -> Connections:
    """Find out which poolers the URLs of an installation lead through.

    Raises:
        Unavailable: the database cannot be reached.
    """
    pooling = find_pooling(database)
    if not settings.database_direct_url or pooling.mode is PoolerMode.NONE:
        return Connections(pooling, None, settings)
    with contextlib.closing(Database(settings.database_direct_url)) as direct:
        return Connections(pooling, find_pooling(direct), settings)


def find_pooling(database: Database) -> Pooling:
    """Find out which pooler the database's URL leads through.

    Without a pooler a connection of the pool says so; only behind one are others opened, to be compared.

    Raises:
        Unavailable: the database cannot be reached.
    """
    if database.is_sqlite or database.has_own_sessions():
        return Pooling(PoolerMode.NONE)
    with database.translating_errors():
        return _find(database.driver)  # type: ignore[arg-type]  # the driver of a database that is not SQLite


def _find(driver: "PostgresDriver") -> Pooling:
    with contextlib.closing(driver.connect(True)) as one:
        if one.is_own_session:
            return Pooling(PoolerMode.NONE)
        with contextlib.closing(driver.connect(True)) as other:
            shares = _share_a_session(one, other)
    return Pooling(PoolerMode.TRANSACTION if shares else PoolerMode.SESSION, driver.server.keeps_prepared)


def _share_a_session(one: "PostgresConnection", other: "PostgresConnection") -> bool:
    """Return whether one session serves two clients. In session mode neither ever meets the other one's."""
    from psycopg import errors

    lost = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
    try:
        return any(_have_met(one, other) for _ in range(_ROUNDS))
    except (*lost, Unavailable):  # it was prepared in another session, or all are busy: neither has one of its own
        return True


def _have_met(one: "PostgresConnection", other: "PostgresConnection") -> bool:
    first = _process(one)
    if _process(other) == first:
        return True
    other.begin()
    try:
        _process(other)  # it keeps the session until the ROLLBACK, so that the first client would get another one
        return _process(one) != first
    finally:
        other.rollback()


def _process(connection: "PostgresConnection") -> object:
    """Return the id of the server's process, by a statement that is prepared."""
    ((process_id,),) = connection.execute(_PROCESS, {})[0]
    return process_id

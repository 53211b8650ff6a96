"""External references that a booking has alone in its organization, when its request asks for that.

There is no unique index, since most references are not asked to be unique. Requests that ask take a lock for the
reference, after that of the departure, and look for it in a later statement: of those that ask at the same time one is
first, and the others find its booking.
"""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Text, and_, func, literal_column, select
from sqlalchemy.engine import Dialect

from booking_core.base.errors import Conflict
from booking_core.db.engine import Query, Row, Tx
from booking_core.db.statements import Statement, as_json, rows_from_json, rows_parameter
from booking_core.db.tables import Id, bookings
from booking_core.records.idempotency import has_lock


class Reference(NamedTuple):
    """An external reference that is to be unique."""

    organization_id: str
    text: str

    @property
    def lock(self) -> str:
        """Return the name of its advisory lock, which no idempotency key has."""
        return f"{self.organization_id}/reference:{self.text}"


def taken() -> Conflict:
    """Return the refusal of a reference that another booking has."""
    return Conflict("external_reference_taken", "A booking has this external reference.", "external_reference")


def _locked(name: ColumnElement[str]) -> ColumnElement[Any]:
    """Wait for the lock. The row that it returns is void."""
    return func.pg_advisory_xact_lock(func.hashtextextended(name, literal_column("0"))).is_not(None)


def _lock(take: Any) -> Any:
    def build(dialect: Dialect) -> Any:
        wanted = rows_from_json(dialect, "wanted", {"organization_id": Id, "text": Text, "lock": Text}).c
        return select(wanted.organization_id, wanted.text, take(wanted.lock))

    return build


_LOCK = Statement(_lock(_locked))
_TRY_LOCK = Statement(_lock(has_lock))


def _taken(dialect: Dialect) -> Any:
    wanted = rows_parameter(dialect, "wanted", {"organization_id": Id, "text": Text}).c
    same = and_(bookings.c.organization_id == wanted.organization_id, bookings.c.external_reference == wanted.text)
    found = select(bookings.c.id).where(same).correlate(wanted.text.table).exists()
    return select(wanted.organization_id, wanted.text).where(found)


_TAKEN = Statement(_taken)


def locks_query(dialect: Dialect, wanted: Collection[Reference], *, blocking: bool) -> Query[frozenset[Reference]]:
    """Return the query that locks references in sorted order, and returns those that are locked.

    Args:
        blocking: wait for references that another transaction has locked. They are left out otherwise.
    """
    if dialect.name == "sqlite":
        return Query(None, {}, lambda _: frozenset(wanted))
    rows = as_json(each._asdict() | {"lock": each.lock} for each in sorted(wanted))
    return Query(
        _LOCK if blocking else _TRY_LOCK,
        {"wanted": rows},
        lambda found: frozenset(
            Reference(organization_id, text) for organization_id, text, is_held in found if is_held
        ),
    )


def taken_query(wanted: Iterable[Reference]) -> Query[frozenset[Reference]]:
    """Return the query for those of the references that a booking has, to be sent after their locks."""
    return Query(_TAKEN, {"wanted": as_json(each._asdict() for each in wanted)}, _references)


def _references(found: Iterable[Row]) -> frozenset[Reference]:
    return frozenset(Reference(str(row[0]), str(row[1])) for row in found)


def is_taken(tx: Tx, reference: Reference) -> bool:
    """Return True if a booking has the reference."""
    return bool(tx.pipeline(taken_query([reference]))[0])


def require_free(tx: Tx, reference: Reference) -> None:
    """Lock a reference until the transaction ends, and check that no booking has it.

    Raises:
        Conflict: `external_reference_taken`.
    """
    _, found = tx.pipeline(locks_query(tx.dialect, [reference], blocking=True), taken_query([reference]))
    if found:
        raise taken()

"""External references that a booking has alone: their locks, and those that are taken."""

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import ColumnElement, Text, func, literal_column, select

from booking_core.bookings.rules import Reference
from booking_core.db.engine import Query
from booking_core.db.statements import Statement, as_json, is_of, rows_from_json, rows_parameter
from booking_core.db.tables import Id, bookings
from booking_core.records.idempotency import has_lock

# There is no unique index, since most references are not asked to be unique. Requests that ask lock the
# reference, after their departure, and look for it in a later statement. Of several at the same time the first one
# gets it, and the others find its booking.


def _lock_references(*, blocking: bool) -> Any:
    row = rows_from_json("wanted", {"organization_id": Id, "text": Text, "lock": Text}).c
    if blocking:  # the row that it returns is void
        is_held: ColumnElement[bool] = func.pg_advisory_xact_lock(
            func.hashtextextended(row.lock, literal_column("0"))
        ).is_not(None)
    else:
        is_held = has_lock(row.lock)
    return select(row.organization_id, row.text, is_held)


_LOCK_REFERENCES = Statement(_lock_references(blocking=True))
_TRY_LOCK_REFERENCES = Statement(_lock_references(blocking=False))


_row = rows_parameter("wanted", {"organization_id": Id, "text": Text})
_same = is_of(bookings.c, _row.c, external_reference="text")
_TAKEN_REFERENCES = Statement(
    select(_row.c.organization_id, _row.c.text).where(select(bookings.c.id).where(_same).correlate(_row).exists())
)


def references_query(references: Collection[Reference], *, blocking: bool) -> Query[frozenset[Reference]]:
    """Return the query that locks references in sorted order, and returns those that are locked.

    Args:
        blocking: wait for references that another transaction has locked. They are left out otherwise.
    """
    rows = as_json(reference._asdict() | {"lock": reference.lock} for reference in sorted(references))
    return Query(
        _LOCK_REFERENCES if blocking else _TRY_LOCK_REFERENCES,
        {"wanted": rows},
        lambda result_rows: frozenset(references).difference(
            Reference(organization_id, text) for organization_id, text, is_held in result_rows if not is_held
        ),
        is_lock=True,
    )


def taken_query(references: Iterable[Reference]) -> Query[frozenset[Reference]]:
    """Return the query for references that a booking has, to be sent after their locks."""
    rows = as_json(reference._asdict() for reference in references)
    return Query(_TAKEN_REFERENCES, {"wanted": rows}, lambda result_rows: frozenset(map(Reference._make, result_rows)))

"""The SQL that writes a delivery whose first attempt is over: its row, and that of the attempt (decisions/0062).

Most deliveries are written once, here. On PostgreSQL the rows of both tables are made of one JSON text, in which what
they share stands once.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import CTE, Table, insert, literal, select
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import dml

from booking_core.db.engine import Tx
from booking_core.db.statements import rows_from_json
from booking_core.db.tables import attempts, deliveries
from booking_core.db.unit_of_work import InsertFromSelect
from booking_core.models.limits import WEBHOOK_ATTEMPTS
from booking_core.models.webhooks import AttemptTrigger, DeliveryStatus, DeliveryTrigger

_OF_BOTH = ("organization_id", "delivery_id", "response_status", "error")
_OF_DELIVERY = (
    "endpoint_id",
    "event_id",
    "event_type",
    "event_sequence",
    "resource_id",
    "status",
    "failure_reason",
    "attempt_count",
    "next_attempt_at",
    "last_attempt_at",
    "completed_at",
    "lost_leases",
    "created_at",
    "updated_at",
    "generation",
)
_OF_ATTEMPT = ("attempt_id", "started_at", "duration_ms", "response_excerpt")
_IN_DELIVERIES = {"id": "delivery_id", "last_response_status": "response_status", "last_error": "error"}
"""The columns that have another name in `deliveries`."""
_IN_ATTEMPTS = {"id": "attempt_id"}
_DELIVERY: dict[str, Any] = {"trigger": DeliveryTrigger.EVENT.value, "max_attempts": WEBHOOK_ATTEMPTS}
_ATTEMPT: dict[str, Any] = {"trigger": AttemptTrigger.SCHEDULED.value, "number": 1}
"""The columns whose value is the same in every row."""
_SUCCEEDED: dict[str, Any] = {
    "status": DeliveryStatus.SUCCEEDED.value,
    "failure_reason": None,
    "attempt_count": 1,
    "next_attempt_at": None,
    "lost_leases": 0,
    "generation": 0,
    "error": None,
}
"""The columns that are the same for every first attempt that succeeded. Most rows leave them out, at two thirds of the
cost."""

_DELIVERIES = {"organization_id": "organization_id", **_IN_DELIVERIES, **{name: name for name in _OF_DELIVERY}}
_ATTEMPTS = {name: name for name in (*_OF_BOTH, *_OF_ATTEMPT[1:])} | _IN_ATTEMPTS
"""The collected column of each column."""


def _types() -> dict[str, Any]:
    own = {source: deliveries.c[name].type for name, source in _DELIVERIES.items()}
    return own | {source: attempts.c[name].type for name, source in _ATTEMPTS.items()}


def _inserting_both(known: Mapping[str, Any]) -> Callable[[Dialect, str], dml.Insert]:
    """Return the statement of PostgreSQL, which alone can insert into two tables at once.

    Args:
        known: collected columns that are not collected, and their values.
    """

    def build(dialect: Dialect, name: str) -> dml.Insert:
        collected = {source: kind for source, kind in _types().items() if source not in known}
        rows = select(*rows_from_json(dialect, name, collected).c).cte(f"{name}_rows")
        of_attempts = _insert(attempts, _ATTEMPTS, _ATTEMPT, known, rows)
        of_deliveries = _insert(deliveries, _DELIVERIES, _DELIVERY, known, rows)
        return of_deliveries.add_cte(of_attempts.cte(f"{name}_attempts"))

    return build


def _insert(
    table: Table, columns: Mapping[str, str], constants: Mapping[str, Any], known: Mapping[str, Any], rows: CTE
) -> dml.Insert:
    read = {column: rows.c[source] for column, source in columns.items() if source not in known}
    same = {column: known[source] for column, source in columns.items() if source in known} | dict(constants)
    literals = {column: literal(value, table.c[column].type) for column, value in same.items() if value is not None}
    return insert(table).from_select([*read, *literals], select(*read.values(), *literals.values()))


BOTH = InsertFromSelect("first_results", _inserting_both({}))
SUCCESSES = InsertFromSelect("first_successes", _inserting_both(_SUCCEEDED))


def write(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Collect the rows of deliveries and of their first attempts."""
    _write(tx, BOTH, rows)


def write_successes(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Collect the rows of those that succeeded, without the columns that are the same for all of them."""
    _write(tx, SUCCESSES, rows, _SUCCEEDED)


def _write(
    tx: Tx, target: InsertFromSelect, rows: Sequence[dict[str, Any]], known: Mapping[str, Any] = MappingProxyType({})
) -> None:
    if tx.dialect.name == "postgresql":
        if rows:
            tx.insert_all_from_select(target, rows)
        return
    for row in rows:
        full = {**row, **known}
        tx.insert(deliveries, **{name: full[source] for name, source in _DELIVERIES.items()}, **_DELIVERY)
        tx.insert(attempts, **{name: full[source] for name, source in _ATTEMPTS.items()}, **_ATTEMPT)

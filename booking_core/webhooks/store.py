"""The SQL of endpoints, their secrets and single deliveries. The delivery log is in `log`, the SQL of the worker in
`claiming` and `queue`."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, Text, bindparam, cast, func, literal_column, select

from booking_core.db.engine import Query, Tx
from booking_core.db.statements import Row, Statement, as_json, columns_of, is_of, rows_parameter
from booking_core.db.tables import Id, attempts, deliveries, webhook_endpoints, webhook_secrets, webhook_subscriptions
from booking_core.models.webhooks import DeliveryStatus
from booking_core.webhooks.rules import AttemptRow, DeliveryRow, EndpointRow, Event

ORGANIZATION_ID = bindparam("organization_id", type_=Id)
ENDPOINT_ID = bindparam("endpoint_id", type_=Id)
_id = bindparam("id", type_=Id)
_COMMA: Any = literal_column("','", Text)


def own(table: Any) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return the conditions for the rows of the given endpoint."""
    return table.c.organization_id == ORGANIZATION_ID, table.c.endpoint_id == ENDPOINT_ID


# Endpoints -------------------------------------------------------------------------------------------------------


def _joined(values: ColumnElement[str], table: Table, *conditions: ColumnElement[bool]) -> ColumnElement[str]:
    """Select the values of the rows of the enclosing query's endpoint, separated by commas."""
    of_endpoint = is_of(table.c, webhook_endpoints.c, endpoint_id="id")
    return select(func.aggregate_strings(values, _COMMA)).where(of_endpoint, *conditions).scalar_subquery()


_period, _secret = webhook_subscriptions.c, webhook_secrets.c
_DERIVED = {
    "event_types": _joined(_period.event_type, webhook_subscriptions, _period.until_sequence.is_(None)),
    "secrets_expire_at": _joined(cast(_secret.expires_at, Text), webhook_secrets),
}
ENDPOINT_COLUMNS = tuple(
    _DERIVED[name].label(name) if name in _DERIVED else webhook_endpoints.c[name] for name in EndpointRow._fields
)

_ENDPOINTS = select(*ENDPOINT_COLUMNS).where(
    webhook_endpoints.c.organization_id == ORGANIZATION_ID, webhook_endpoints.c.deleted_at.is_(None)
)
_FIND = Statement(_ENDPOINTS.order_by(webhook_endpoints.c.created_at.desc(), webhook_endpoints.c.id.desc()))
_GET = Statement(_ENDPOINTS.where(webhook_endpoints.c.id == _id))
# NO KEY UPDATE: deliveries that refer to the endpoint are inserted meanwhile, and no booking waits for a PATCH.
_LOCK = Statement(
    _ENDPOINTS.with_only_columns(webhook_endpoints.c.id)
    .where(webhook_endpoints.c.id == _id)
    .with_for_update(key_share=True)
)


def endpoint_from_row(row: Iterable[Any]) -> EndpointRow:
    """Return the row with booleans, which SQLite returns as 0 or 1."""
    endpoint = EndpointRow._make(row)
    return endpoint._replace(last_timed_out=bool(endpoint.last_timed_out))


def find(tx: Tx, organization_id: str) -> list[EndpointRow]:
    """Return every endpoint that is not deleted, the newest first."""
    return [endpoint_from_row(row) for row in tx.all(_FIND, organization_id=organization_id)]


def get(tx: Tx, organization_id: str, endpoint_id: str) -> EndpointRow | None:
    row = tx.first(_GET, organization_id=organization_id, id=endpoint_id)
    return endpoint_from_row(row) if row else None


def lock(tx: Tx, organization_id: str, endpoint_id: str) -> EndpointRow | None:
    """Lock the endpoint until the transaction ends, and return it.

    It is read after the lock: the locking statement would see the event types and the secrets of before its wait.
    """
    key = {"organization_id": organization_id, "id": endpoint_id}
    rows: list[Row] = tx.pipeline(Query(_LOCK, key, list), Query(_GET, key, list))[1]
    return endpoint_from_row(rows[0]) if rows else None


def insert(tx: Tx, organization_id: str, row: EndpointRow) -> None:
    tx.insert(webhook_endpoints, organization_id=organization_id, **_columns(row))


def _columns(row: EndpointRow) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name not in _DERIVED}


def save(tx: Tx, organization_id: str, row: EndpointRow) -> None:
    """Write the columns of an endpoint that is locked."""
    tx.update(webhook_endpoints, organization_id=organization_id, **_columns(row))


# Secrets ---------------------------------------------------------------------------------------------------------

_EXPIRE = Statement(
    webhook_secrets.update()
    .where(*own(webhook_secrets), _secret.expires_at.is_(None))
    .values(expires_at=bindparam("ends_at"))
)
_FORGET = Statement(webhook_secrets.delete().where(*own(webhook_secrets), _secret.expires_at <= bindparam("until")))


def expire_secret(tx: Tx, organization_id: str, endpoint_id: str, *, ends_at: int, forgotten_until: int) -> None:
    """Give the current secret of an endpoint its end, and delete the former ones that end until that instant."""
    key = {"organization_id": organization_id, "endpoint_id": endpoint_id}
    tx.run(_EXPIRE, **key, ends_at=ends_at)
    tx.run(_FORGET, **key, until=forgotten_until)


# Deliveries ------------------------------------------------------------------------------------------------------


_of = rows_parameter("deliveries", {"organization_id": Id, "id": Id}).c
_ATTEMPTS = Statement(
    select(attempts.c.delivery_id, *columns_of(AttemptRow._fields, attempts))
    .where(is_of(attempts.c, _of, delivery_id="id"))
    .order_by(attempts.c.number)
)


def with_attempts(tx: Tx, organization_id: str, rows: Sequence[DeliveryRow]) -> list[DeliveryRow]:
    """Return the deliveries with their attempts."""
    if not rows:
        return []
    parameter = as_json({"organization_id": organization_id, "id": row.id} for row in rows)
    of_delivery: dict[str, list[AttemptRow]] = {row.id: [] for row in rows}
    for delivery_id, *columns in tx.all(_ATTEMPTS, deliveries=parameter):
        of_delivery[delivery_id].append(AttemptRow._make(columns))
    return [row._replace(attempts=tuple(of_delivery[row.id])) for row in rows]


# By its own id, or by the id of any of its attempts.
_ID_OR_ATTEMPT = deliveries.c.id == func.coalesce(
    select(attempts.c.delivery_id)
    .where(attempts.c.organization_id == ORGANIZATION_ID, attempts.c.id == _id)
    .scalar_subquery(),
    _id,
)
DELIVERY_COLUMNS = [deliveries.c[name] for name in DeliveryRow._fields if name != "attempts"]
_DELIVERY = select(*DELIVERY_COLUMNS).where(*own(deliveries), _ID_OR_ATTEMPT)
GET_DELIVERY = Statement(_DELIVERY)
LOCK_DELIVERY = Statement(_DELIVERY.with_for_update(of=deliveries, key_share=True))
_NO_LEASE = {"lease_token": None, "lease_until": None, "lost_leases": 0}
_QUEUED = ("status", "next_attempt_at", "completed_at", "updated_at")
_STARTED_OVER = ("failure_reason", "trigger", "max_attempts", "recovery_id")


def get_delivery(
    tx: Tx, organization_id: str, endpoint_id: str, delivery_id: str, *, statement: Statement = GET_DELIVERY
) -> DeliveryRow | None:
    """Return the row of a delivery, by its own id or by the id of any of its attempts."""
    row = tx.first(statement, organization_id=organization_id, endpoint_id=endpoint_id, id=delivery_id)
    return with_attempts(tx, organization_id, [DeliveryRow(*row)])[0] if row else None


def lock_delivery(tx: Tx, organization_id: str, endpoint_id: str, delivery_id: str) -> DeliveryRow | None:
    """Lock one delivery of an endpoint that is locked already."""
    return get_delivery(tx, organization_id, endpoint_id, delivery_id, statement=LOCK_DELIVERY)


_EMPTY = frozenset(
    ("attempts", "attempt_count", "failure_reason", "completed_at", "last_response_status", "last_error")
)


def insert_delivery(tx: Tx, organization_id: str, row: DeliveryRow, event: Event) -> None:
    """Insert a delivery that was never tried. Columns without a value are left out: each is parsed, row by row."""
    columns = {name: value for name, value in row._asdict().items() if name not in _EMPTY}
    columns |= {"event_sequence": event.sequence, "resource_id": event.resource_id}
    tx.insert(deliveries, organization_id=organization_id, **columns)


def queue_again(tx: Tx, organization_id: str, row: DeliveryRow, *, at: int) -> DeliveryRow:
    """Queue a delivery for an attempt at that instant, and return it."""
    row = row._replace(
        status=DeliveryStatus.QUEUED, next_attempt_at=at, completed_at=None, updated_at=max(at, row.updated_at)
    )
    changed = {name: getattr(row, name) for name in (*_QUEUED, *_STARTED_OVER)}
    tx.update(deliveries, organization_id=organization_id, id=row.id, **changed, **_NO_LEASE)
    return row

"""The SQL of endpoints, their secrets and the delivery log. The SQL of the worker is in `queue`."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    null,
    select,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import dml
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from booking_core.db.engine import Row, Tx
from booking_core.db.paging import KeysetList
from booking_core.db.statements import Statement, as_json, in_rows, rows_parameter
from booking_core.db.tables import Id, attempts, deliveries, webhook_endpoints, webhook_secrets, webhook_subscriptions
from booking_core.db.unit_of_work import InsertFromSelect, Update
from booking_core.models.webhooks import DeliveryStatus, DeliveryTrigger
from booking_core.webhooks.rules import ATTEMPT, DeliveryRow, EndpointRow, OldSecret

_organization_id = bindparam("organization_id", type_=Id)
_endpoint_id = bindparam("endpoint_id", type_=Id)
_id = bindparam("id", type_=Id)
_at = bindparam("at", type_=BigInteger)

QUEUED = literal_column(f"'{DeliveryStatus.QUEUED}'", Text)
"""A literal and not a parameter, so that the planner uses the partial index of queued deliveries."""

# Functions that the two databases spell differently ----------------------------------------------------------------


class json_values(FunctionElement[str]):  # noqa: N801 - named as the functions that it stands for
    """The arguments as a JSON array, in text."""

    type = Text()
    inherit_cache = True


class joined(FunctionElement[str]):  # noqa: N801
    """The texts of many rows, separated by commas, in any order."""

    type = Text()
    inherit_cache = True


@compiles(json_values, "postgresql")
def _json_values_postgresql(element: Any, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_build_array({compiler.process(element.clauses, **kw)})::text"


@compiles(json_values, "sqlite")
def _json_values_sqlite(element: Any, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_array({compiler.process(element.clauses, **kw)})"


@compiles(joined, "postgresql")
def _joined_postgresql(element: Any, compiler: SQLCompiler, **kw: Any) -> str:
    return f"string_agg({compiler.process(element.clauses, **kw)}, ',')"


@compiles(joined, "sqlite")
def _joined_sqlite(element: Any, compiler: SQLCompiler, **kw: Any) -> str:
    return f"group_concat({compiler.process(element.clauses, **kw)}, ',')"


# Endpoints -------------------------------------------------------------------------------------------------------


def _event_types() -> ColumnElement[str]:
    """Select the event types of the endpoint of the enclosing query."""
    subscribed = webhook_subscriptions.c
    return (
        select(joined(subscribed.event_type))
        .where(
            subscribed.organization_id == webhook_endpoints.c.organization_id,
            subscribed.endpoint_id == webhook_endpoints.c.id,
        )
        .scalar_subquery()
    )


def _secret_expires_at() -> ColumnElement[int]:
    """Select the last expiry of the old secrets of the endpoint of the enclosing query."""
    secret = webhook_secrets.c
    return (
        select(func.max(secret.expires_at))
        .where(
            secret.organization_id == webhook_endpoints.c.organization_id,
            secret.endpoint_id == webhook_endpoints.c.id,
        )
        .scalar_subquery()
    )


_DERIVED: dict[str, ColumnElement[Any]] = {"event_types": _event_types(), "secret_expires_at": _secret_expires_at()}
ENDPOINT_COLUMNS = tuple(
    _DERIVED[name].label(name) if name in _DERIVED else webhook_endpoints.c[name] for name in EndpointRow._fields
)

_ENDPOINTS = select(*ENDPOINT_COLUMNS).where(
    webhook_endpoints.c.organization_id == _organization_id, webhook_endpoints.c.deleted_at.is_(None)
)
_FIND = Statement(_ENDPOINTS.order_by(webhook_endpoints.c.created_at.desc(), webhook_endpoints.c.id.desc()))
_GET = Statement(_ENDPOINTS.where(webhook_endpoints.c.id == _id))
# NO KEY UPDATE: deliveries that refer to the endpoint are inserted meanwhile, and no booking waits for a PATCH.
_LOCK = Statement(_ENDPOINTS.where(webhook_endpoints.c.id == _id).with_for_update(of=webhook_endpoints, key_share=True))
_COUNT = Statement(
    select(func.count()).where(
        webhook_endpoints.c.organization_id == _organization_id, webhook_endpoints.c.deleted_at.is_(None)
    )
)


def endpoint_from_row(row: Row) -> EndpointRow:
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
    """Lock the endpoint until the transaction ends."""
    row = tx.first(_LOCK, organization_id=organization_id, id=endpoint_id)
    return endpoint_from_row(row) if row else None


def count(tx: Tx, organization_id: str) -> int:
    row = tx.first(_COUNT, organization_id=organization_id)
    assert row is not None
    return int(row[0])


def insert(tx: Tx, organization_id: str, row: EndpointRow) -> None:
    columns = {name: value for name, value in row._asdict().items() if name not in _DERIVED}
    tx.insert(webhook_endpoints, organization_id=organization_id, **columns)
    subscribe(tx, organization_id, row.id, row.event_types.split(","))


def subscribe(tx: Tx, organization_id: str, endpoint_id: str, types: Iterable[str]) -> None:
    for kind in sorted(types):
        tx.insert(webhook_subscriptions, organization_id=organization_id, endpoint_id=endpoint_id, event_type=kind)


_UNSUBSCRIBE = Statement(
    delete(webhook_subscriptions).where(
        webhook_subscriptions.c.organization_id == _organization_id,
        webhook_subscriptions.c.endpoint_id == _endpoint_id,
    )
)


def unsubscribe(tx: Tx, organization_id: str, endpoint_id: str) -> None:
    tx.run(_UNSUBSCRIBE, organization_id=organization_id, endpoint_id=endpoint_id)


@lru_cache(maxsize=64)
def _change(columns: tuple[str, ...]) -> Update:
    return Update("change_endpoint", webhook_endpoints, sets=columns)


def change(tx: Tx, organization_id: str, endpoint_id: str, **columns: object) -> None:
    """Set these columns of one endpoint."""
    target = _change(tuple(sorted(columns)))
    tx.update(target, organization_id=organization_id, id=endpoint_id, **columns)


# Secrets ---------------------------------------------------------------------------------------------------------

_OLD_SECRETS = Statement(
    select(webhook_secrets.c.id, webhook_secrets.c.expires_at).where(
        webhook_secrets.c.organization_id == _organization_id,
        webhook_secrets.c.endpoint_id == _endpoint_id,
    )
)
_FORGET = Statement(
    lambda dialect: delete(webhook_secrets).where(
        webhook_secrets.c.organization_id == _organization_id,
        in_rows(dialect, webhook_secrets.c.id, "forgotten", "id"),
    )
)
_EXPIRE = Update("expire_secret", webhook_secrets, sets=("expires_at",))


def insert_secret(
    tx: Tx, organization_id: str, *, secret_id: str, endpoint_id: str, secret_sealed: str, at: int
) -> None:
    tx.insert(
        webhook_secrets,
        organization_id=organization_id,
        id=secret_id,
        endpoint_id=endpoint_id,
        secret_sealed=secret_sealed,
        expires_at=None,
        created_at=at,
    )


def secrets(tx: Tx, organization_id: str, endpoint_id: str) -> tuple[list[str], list[OldSecret]]:
    """Return the id of the current secret, as a list, and the old secrets with their expiry."""
    found = tx.all(_OLD_SECRETS, organization_id=organization_id, endpoint_id=endpoint_id)
    current = [secret_id for secret_id, expires_at in found if expires_at is None]
    return current, [OldSecret(*row) for row in found if row[1] is not None]


def expire_secret(tx: Tx, organization_id: str, secret_id: str, at: int) -> None:
    tx.update(_EXPIRE, organization_id=organization_id, id=secret_id, expires_at=at)


def forget_secrets(tx: Tx, organization_id: str, secret_ids: Iterable[str]) -> None:
    forgotten = [{"id": secret_id} for secret_id in secret_ids]
    if forgotten:
        tx.run(_FORGET, organization_id=organization_id, forgotten=as_json(forgotten))


# Failing queued deliveries ---------------------------------------------------------------------------------------

_GIVEN_UP: dict[str, Any] = {"organization_id": Id, "endpoint_id": Id, "failure_reason": Text, "at": BigInteger}


def _fail_queued(dialect: Dialect, name: str) -> dml.Update:
    """Return the statement that fails every queued delivery of the endpoints.

    A delivery whose attempt is in flight keeps its lease, so that its result is still recorded.
    """
    of = rows_parameter(dialect, name, _GIVEN_UP).c
    return (
        update(deliveries)
        .where(
            deliveries.c.organization_id == of.organization_id,
            deliveries.c.endpoint_id == of.endpoint_id,
            deliveries.c.status == QUEUED,
        )
        .values(
            status=DeliveryStatus.FAILED.value,
            failure_reason=of.failure_reason,
            next_attempt_at=null(),
            completed_at=of.at,
            updated_at=of.at,
        )
    )


FAIL_QUEUED = InsertFromSelect("fail_queued", _fail_queued)
_FAIL_QUEUED = Statement(lambda dialect: _fail_queued(dialect, "fail_queued"))


def fail_queued_row(organization_id: str, endpoint_id: str, reason: str, at: int) -> dict[str, Any]:
    """Return the row for FAIL_QUEUED."""
    return {"organization_id": organization_id, "endpoint_id": endpoint_id, "failure_reason": reason, "at": at}


def fail_queued(tx: Tx, organization_id: str, endpoint_id: str, reason: str, at: int) -> None:
    """Fail the queued deliveries of the endpoint."""
    tx.run(_FAIL_QUEUED, fail_queued=as_json([fail_queued_row(organization_id, endpoint_id, reason, at)]))


# Deliveries ------------------------------------------------------------------------------------------------------


def _attempts(delivery: Any) -> ColumnElement[str]:
    """Select all attempts of the delivery as text for `rules.DeliveryRow`."""
    shown = json_values(*(attempts.c[name] for name in ATTEMPT))
    return (
        select(joined(shown))
        .where(attempts.c.organization_id == _organization_id, attempts.c.delivery_id == delivery.c.id)
        .scalar_subquery()
    )


_OWN = [deliveries.c[name] for name in DeliveryRow._fields if name != "attempts"]
_OF_ENDPOINT = and_(
    deliveries.c.organization_id == _organization_id,
    deliveries.c.endpoint_id == _endpoint_id,
)
_ENDPOINT_EXISTS = exists().where(
    webhook_endpoints.c.organization_id == _organization_id,
    webhook_endpoints.c.id == _endpoint_id,
    webhook_endpoints.c.deleted_at.is_(None),
)


def _with_attempts(page: Any) -> Select[Any]:
    return select(*(page.c[column.name] for column in _OWN), _attempts(page).label("attempts"))


# The endpoint is a filter, so that a cursor of one endpoint opens no other endpoint's log. Final statuses have one
# partial index and queued deliveries another; each condition is written as in its index.
LIST = KeysetList(
    "deliveries",
    deliveries,
    select(*_OWN).where(deliveries.c.organization_id == _organization_id, _ENDPOINT_EXISTS),
    {
        "endpoint_id": deliveries.c.endpoint_id == _endpoint_id,
        "queued": deliveries.c.status == QUEUED,
        "ended": and_(deliveries.c.status == bindparam("ended", type_=Text), deliveries.c.completed_at.is_not(None)),
        "event_type": deliveries.c.event_type == bindparam("event_type", type_=Text),
        "event_id": deliveries.c.event_id == bindparam("event_id", type_=Id),
    },
    joined=_with_attempts,
    scattered={
        # In the order of its index, so that no planner searches the log itself for the first few hundred.
        "queued": select(deliveries.c.organization_id, deliveries.c.id)
        .where(_OF_ENDPOINT, deliveries.c.status == QUEUED, _ENDPOINT_EXISTS)
        .order_by(deliveries.c.next_attempt_at)
    },
)

# By its own id, or by the id of any of its attempts.
_NAMED = deliveries.c.id == func.coalesce(
    select(attempts.c.delivery_id)
    .where(attempts.c.organization_id == _organization_id, attempts.c.id == _id)
    .scalar_subquery(),
    _id,
)
_DELIVERY = select(*_OWN, _attempts(deliveries).label("attempts")).where(_OF_ENDPOINT, _NAMED)
_GET_DELIVERY = Statement(_DELIVERY.where(_ENDPOINT_EXISTS))
_LOCK_DELIVERY = Statement(_DELIVERY.with_for_update(of=deliveries, key_share=True))
_RETRY = Update(
    "retry",
    deliveries,
    sets=("status", "max_attempts", "next_attempt_at", "completed_at", "updated_at"),
)


def get_delivery(tx: Tx, organization_id: str, endpoint_id: str, delivery_id: str) -> DeliveryRow | None:
    """Return one delivery of an endpoint that is not deleted."""
    row = tx.first(_GET_DELIVERY, organization_id=organization_id, endpoint_id=endpoint_id, id=delivery_id)
    return DeliveryRow._make(row) if row else None


def lock_delivery(tx: Tx, organization_id: str, endpoint_id: str, delivery_id: str) -> DeliveryRow | None:
    """Lock one delivery of an endpoint that is locked already."""
    row = tx.first(_LOCK_DELIVERY, organization_id=organization_id, endpoint_id=endpoint_id, id=delivery_id)
    return DeliveryRow._make(row) if row else None


def insert_delivery(tx: Tx, organization_id: str, row: DeliveryRow, *, event_sequence: int) -> None:
    columns = {name: value for name, value in row._asdict().items() if name != "attempts"}
    tx.insert(deliveries, organization_id=organization_id, event_sequence=event_sequence, **columns)


def retry(tx: Tx, organization_id: str, row: DeliveryRow) -> None:
    """Queue the delivery. Its failure reason stays and marks the next attempt as manual."""
    changed = {name: getattr(row, name) for name in _RETRY.sets}
    tx.update(_RETRY, organization_id=organization_id, id=row.id, **changed)


def _recover(statuses: int, types: int, until: bool) -> dml.Update:
    wanted: list[ColumnElement[bool]] = [
        deliveries.c.status.in_([bindparam(f"status_{i}", type_=Text) for i in range(statuses)])
    ]
    if types:
        wanted.append(deliveries.c.event_type.in_([bindparam(f"type_{i}", type_=Text) for i in range(types)]))
    if until:
        wanted.append(deliveries.c.created_at < bindparam("until", type_=BigInteger))
    return (
        update(deliveries)
        .where(
            _OF_ENDPOINT,
            deliveries.c.created_at >= bindparam("since", type_=BigInteger),
            deliveries.c.trigger != DeliveryTrigger.TEST.value,
            *wanted,
        )
        .values(
            status=DeliveryStatus.QUEUED.value,
            failure_reason=null(),
            trigger=DeliveryTrigger.RECOVER.value,
            max_attempts=deliveries.c.attempt_count + bindparam("attempts", type_=Integer),
            next_attempt_at=_at,
            completed_at=null(),
            lease_token=null(),
            lease_until=null(),
            lost_leases=0,
            updated_at=_at,
        )
    )


@lru_cache(maxsize=256)
def _recover_statement(statuses: int, types: int, until: bool) -> Statement:
    return Statement(_recover(statuses, types, until))


def recover(
    tx: Tx,
    organization_id: str,
    endpoint_id: str,
    *,
    since: int,
    until: int | None,
    statuses: Sequence[str],
    types: Sequence[str],
    more_attempts: int,
    at: int,
) -> int:
    """Queue deliveries of the endpoint again, and return how many."""
    statement = _recover_statement(len(statuses), len(types), until is not None)
    parameters: dict[str, Any] = {f"status_{i}": status for i, status in enumerate(statuses)}
    parameters |= {f"type_{i}": kind for i, kind in enumerate(types)}
    if until is not None:
        parameters["until"] = until
    return tx.run(
        statement,
        organization_id=organization_id,
        endpoint_id=endpoint_id,
        since=since,
        attempts=more_attempts,
        at=at,
        **parameters,
    )

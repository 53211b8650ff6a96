"""The data that is kept about a guest, as an operator hands it out on request.

It is read for one guest at a time, and also along conditions that no index serves: an index for it would cost every
booking. Keys, hashes, sealed texts and the columns of leases are left out: they are not about the guest.
"""

from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import Column, ColumnElement, Table, Text, and_, bindparam, func, or_, select

from booking_core import customers
from booking_core.base.clock import Zone
from booking_core.base.context import Actor
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import OWNER, Statement, as_ids, in_rows
from booking_core.db.tables import Id
from booking_core.records.outbox import OutboxKind

_HIDDEN = frozenset(
    {
        *("organization_id", "email_key", "message", "lease_token", "lease_until", "lost_leases", "occurrence"),
        *("code_hash", "code_sealed", "manage_key_id", "client_secret_sealed", "check_at", "check_count"),
        "fingerprint",
    }
)
_JSON = frozenset({"tags", "guests", "add_ons", "metadata", "body", "data", "details"})
_EMAIL = bindparam("email", type_=Text)

_CUSTOMER = bindparam("customer_id", type_=Id)


def _among(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that the column has one of the ids of the parameter `wanted`."""
    return in_rows(column, "wanted", "id")


def _has_address(*columns: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that a column has the guest's address, in any case."""
    return or_(*(func.lower(column) == func.lower(_EMAIL) for column in columns))


_bookings, _cards, _mails = tables.bookings.c, tables.gift_cards.c, tables.mails.c
_OWN_BOOKINGS = or_(
    _bookings.customer_id == _CUSTOMER,
    and_(_bookings.customer_id.is_(None), _has_address(_bookings.guest_email)),  # a legacy row
)
_OWN_MAILS = or_(
    _among(_mails.booking_id),
    and_(_mails.kind == OutboxKind.GIFT_CARD_MAIL.value, _has_address(_mails.recipient)),
)

_OF_BOOKINGS = ("payments", "payment_records", "refunds", "payment_intents", "gift_card_entries", "reservations")
_PARTS: dict[str, tuple[Table, ColumnElement[bool]]] = {
    "bookings": (tables.bookings, _OWN_BOOKINGS),
    "gift_cards": (tables.gift_cards, _has_address(_cards.purchaser_email, _cards.recipient_email)),
    "timeline": (tables.timeline, tables.timeline.c.customer_id == _CUSTOMER),
    **{
        name: (table, _among(table.c.booking_id))
        for name, table in tables.metadata.tables.items()
        if name in _OF_BOOKINGS
    },
    "mails": (tables.mails, _OWN_MAILS),
    "events": (tables.events, _among(tables.events.c.resource_id)),
    "deliveries": (tables.deliveries, _among(tables.deliveries.c.resource_id)),
    "delivery_attempts": (tables.attempts, _among(tables.attempts.c.delivery_id)),
}
"""The rows of a table that are about a guest, by their name in the export."""


def _columns(table: Table) -> list[Column[Any]]:
    return [column for column in table.c if column.name not in _HIDDEN]


def _statement(table: Table, condition: ColumnElement[bool]) -> Statement:
    """Return the statement that selects the rows of a part in the order of their creation."""
    owner = table.c.organization_id == OWNER
    order = table.c.started_at if "started_at" in table.c else table.c.created_at
    last = table.c.id if "id" in table.c else table.c.booking_id
    return Statement(select(*_columns(table)).where(owner, condition).order_by(order, last))


_STATEMENTS = {name: _statement(*part) for name, part in _PARTS.items()}


def export(tx: Tx, actor: Actor, customer_id: str) -> dict[str, Any]:
    """Return everything that is kept about a customer, as JSON: instants in the organization's zone, money in minor
    units.

    Answers that are stored for idempotency keys repeat bookings and customers, and are left out.

    Raises:
        NotFound: the organization has no such customer.
    """
    customer = customers.get(tx, actor, customer_id)
    guest = {"organization_id": actor.organization.id, "customer_id": customer_id, "email": customer["email"]}

    def rows(name: str, ids: Sequence[str] = ()) -> list[dict[str, Any]]:
        names = [column.name for column in _columns(_PARTS[name][0])]
        result_rows = tx.all(_STATEMENTS[name], **guest, wanted=as_ids(ids))
        zone = actor.organization.zone
        return [{key: _shown(key, value, zone) for key, value in zip(names, row, strict=True)} for row in result_rows]

    with tx.without_statement_timeout():
        parts = {name: rows(name) for name in ("bookings", "gift_cards", "timeline")}
        bookings, cards = ([row["id"] for row in parts[name]] for name in ("bookings", "gift_cards"))
        parts |= {name: rows(name, bookings) for name in (*_OF_BOOKINGS, "mails")}
        parts |= {name: rows(name, [customer_id, *bookings, *cards]) for name in ("events", "deliveries")}
        parts["delivery_attempts"] = rows("delivery_attempts", [row["id"] for row in parts["deliveries"]])
    exported_at = actor.organization.zone.iso(actor.at)
    return {"organization": actor.organization.slug, "exported_at": exported_at, "customer": customer, **parts}


def _shown(name: str, value: Any, zone: Zone) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if name in _JSON:
        return orjson.loads(value)
    if name.endswith("_at"):
        return zone.iso(value)
    return value if isinstance(value, int) else str(value)

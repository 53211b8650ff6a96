"""The data that is kept about a guest, as an operator hands it out on request.

It is read for one guest at a time, and also along conditions that no index serves: an index for it would cost every
booking. Keys, hashes, sealed texts and the columns of leases are left out: they are not about the guest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Table, Text, and_, bindparam, func, or_, select
from sqlalchemy.engine import Dialect

from booking_core import customers
from booking_core.base.clock import Zone
from booking_core.base.context import Actor
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, in_rows
from booking_core.db.tables import Id
from booking_core.records.outbox import OutboxKind

_HIDDEN = frozenset(
    {
        *("organization_id", "email_key", "message", "lease_token", "lease_until", "generation", "lost_leases"),
        *("code_hash", "code_sealed", "manage_key_id", "occurrence", "client_secret_sealed", "check_at", "check_count"),
    }
)
_JSON = frozenset({"tags", "guests", "add_ons", "metadata", "body", "data"})
_EMAIL = bindparam("email", type_=Text)

Condition = Callable[[Dialect], ColumnElement[bool]]


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of a table that are about a guest, in the order of their creation."""

    name: str
    table: Table
    condition: Condition

    def statement(self) -> Statement:
        owner = self.table.c.organization_id == bindparam("organization_id", type_=Id)
        shown = [column for column in self.table.c if column.name not in _HIDDEN]
        order = self.table.c.started_at if "started_at" in self.table.c else self.table.c.created_at
        last = self.table.c.id if "id" in self.table.c else self.table.c.booking_id
        return Statement(lambda dialect: select(*shown).where(owner, self.condition(dialect)).order_by(order, last))

    def rows(self, found: Sequence[Any], zone: Zone) -> list[dict[str, Any]]:
        names = [column.name for column in self.table.c if column.name not in _HIDDEN]
        return [{name: _shown(name, value, zone) for name, value in zip(names, row, strict=True)} for row in found]


def _among(column: ColumnElement[Any]) -> Condition:
    """Return the condition that the column has one of the ids of the parameter `wanted`."""
    return lambda dialect: in_rows(dialect, column, "wanted", "id")


def _has_address(*columns: ColumnElement[Any]) -> Condition:
    """Return the condition that a column has the guest's address, in any case."""
    return lambda _: or_(*(func.lower(column) == func.lower(_EMAIL) for column in columns))


_bookings = tables.bookings.c
_OWN_BOOKINGS: Condition = lambda dialect: or_(  # noqa: E731
    _bookings.customer_id == bindparam("customer_id", type_=Id),
    and_(_bookings.customer_id.is_(None), _has_address(_bookings.guest_email)(dialect)),  # a legacy row
)
_cards = tables.gift_cards.c

_mails = tables.mails.c
_OWN_MAILS: Condition = lambda dialect: or_(  # noqa: E731
    _among(_mails.booking_id)(dialect),
    and_(_mails.kind == OutboxKind.GIFT_CARD_MAIL.value, _has_address(_mails.recipient)(dialect)),
)

_BOOKINGS = _Part("bookings", tables.bookings, _OWN_BOOKINGS)
_OF_BOOKINGS = (
    _Part("payments", tables.payments, _among(tables.payments.c.booking_id)),
    _Part("payment_records", tables.payment_records, _among(tables.payment_records.c.booking_id)),
    _Part("refunds", tables.refunds, _among(tables.refunds.c.booking_id)),
    _Part("payment_intents", tables.payment_intents, _among(tables.payment_intents.c.booking_id)),
    _Part("gift_card_entries", tables.gift_card_entries, _among(tables.gift_card_entries.c.booking_id)),
    _Part("mails", tables.mails, _OWN_MAILS),
)
_TIMELINE = _Part(
    "timeline", tables.timeline, lambda _: tables.timeline.c.customer_id == bindparam("customer_id", type_=Id)
)
_EVENTS = _Part("events", tables.events, _among(tables.events.c.resource_id))
_GIFT_CARDS = _Part("gift_cards", tables.gift_cards, _has_address(_cards.purchaser_email, _cards.recipient_email))
_DELIVERIES = _Part("deliveries", tables.deliveries, _among(tables.deliveries.c.resource_id))
_ATTEMPTS = _Part("delivery_attempts", tables.attempts, _among(tables.attempts.c.delivery_id))

_STATEMENTS = {
    part.name: part.statement()
    for part in (_BOOKINGS, *_OF_BOOKINGS, _TIMELINE, _EVENTS, _GIFT_CARDS, _DELIVERIES, _ATTEMPTS)
}


def export(tx: Tx, actor: Actor, customer_id: str) -> dict[str, Any]:
    """Return everything that is kept about a customer, as JSON: instants in the organization's zone, money in minor
    units.

    Answers that are stored for idempotency keys repeat bookings and customers, and are left out.

    Raises:
        NotFound: the organization has no such customer.
    """
    customer = customers.get(tx, actor, customer_id)
    reader = _Reader(tx, actor, {"customer_id": customer_id, "email": customer["email"]})
    with tx.without_statement_timeout():
        bookings = reader.rows(_BOOKINGS)
        booking_ids = [each["id"] for each in bookings]
        found = {part.name: reader.rows(part, booking_ids) for part in _OF_BOOKINGS}
        cards = reader.rows(_GIFT_CARDS)
        resources = [customer_id, *booking_ids, *(each["id"] for each in cards)]
        found |= {part.name: reader.rows(part, resources) for part in (_EVENTS, _DELIVERIES)}
        attempts = reader.rows(_ATTEMPTS, [each["id"] for each in found["deliveries"]])
        timeline = reader.rows(_TIMELINE)
    return {
        "organization": actor.organization.slug,
        "exported_at": actor.organization.zone.iso(actor.at),
        "customer": customer,
        "bookings": bookings,
        "gift_cards": cards,
        "timeline": timeline,
        **found,
        "delivery_attempts": attempts,
    }


@dataclass(frozen=True, slots=True)
class _Reader:
    tx: Tx
    actor: Actor
    guest: dict[str, str]

    def rows(self, part: _Part, ids: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return the rows of a part; those of ids, if its condition is about ids."""
        parameters = {"organization_id": self.actor.organization.id, "wanted": as_json({"id": each} for each in ids)}
        statement = _STATEMENTS[part.name]
        return part.rows(self.tx.all(statement, **parameters, **self.guest), self.actor.organization.zone)


def _shown(name: str, value: Any, zone: Zone) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if name in _JSON:
        return orjson.loads(value)
    if name.endswith("_at"):
        return zone.iso(value)
    return value if isinstance(value, int) else str(value)

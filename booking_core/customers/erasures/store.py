"""The SQL of erasures. It reads and writes the tables of many packages, since one guest's data is in all of them."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    func,
    literal_column,
    null,
    or_,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.engine import Dialect

from booking_core.base.clock import MINUTE
from booking_core.customers.erasures.rules import ANONYMOUS, Erasure, Step
from booking_core.db import tables
from booking_core.db.due import NIL_ID
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, in_rows, rows_parameter
from booking_core.db.tables import Id
from booking_core.db.unit_of_work import Update

OWNER = bindparam("organization_id", type_=Id)
_LIMIT = bindparam("limit", type_=Integer)
_CUSTOMER = bindparam("customer_id", type_=Id)
_bookings, _departures, _experiences = tables.bookings.c, tables.departures.c, tables.experiences.c
_timeline, _events, _mails = tables.timeline.c, tables.events.c, tables.mails.c


def ids(wanted: Iterable[str]) -> str:
    """Return the rows parameter `wanted`."""
    return as_json({"id": each} for each in wanted)


# Erasures --------------------------------------------------------------------------------------------------------

_ADVANCE = Update(
    "advance_erasure",
    tables.erasures,
    sets=("step", "position", "progressed_at"),
    keys=("organization_id", "customer_id"),
)
_FINISH = Update(
    "finish_erasure",
    tables.erasures,
    sets=("addresses", "position", "progressed_at", "finished_at"),
    keys=("organization_id", "customer_id"),
)
_SHOWN = select(*(tables.erasures.c[name] for name in ("customer_id", "addresses", "step", "position"))).where(
    tables.erasures.c.organization_id == OWNER
)
_LOCK = Statement(
    lambda dialect: (
        _SHOWN.where(
            in_rows(dialect, tables.erasures.c.customer_id, "wanted", "id"), tables.erasures.c.finished_at.is_(None)
        )
        .order_by(tables.erasures.c.requested_at, tables.erasures.c.customer_id)
        .with_for_update(skip_locked=True)
    )
)
_GET = Statement(
    select(tables.erasures.c.requested_at, tables.erasures.c.finished_at).where(
        tables.erasures.c.organization_id == OWNER, tables.erasures.c.customer_id == _CUSTOMER
    )
)


def insert(tx: Tx, organization_id: str, customer_id: str, addresses: Collection[str], at: int) -> None:
    """Insert an erasure at its beginning."""
    tx.insert(
        tables.erasures,
        organization_id=organization_id,
        customer_id=customer_id,
        requested_at=at,
        addresses=orjson.dumps(sorted(addresses)).decode(),
        step=str(next(iter(Step))),
        position="[]",
        progressed_at=at,
    )


def lock(tx: Tx, organization_id: str, customer_ids: Collection[str]) -> list[Erasure]:
    """Lock those of the erasures that are unfinished, the oldest first, and skip locked ones."""
    found = tx.all(_LOCK, organization_id=organization_id, wanted=ids(customer_ids))
    return [
        Erasure(customer_id, frozenset(orjson.loads(addresses)), Step(step), tuple(orjson.loads(position)))
        for customer_id, addresses, step, position in found
    ]


def advance(tx: Tx, organization_id: str, erasure: Erasure, at: int) -> None:
    """Write the step and the position of an erasure."""
    position = orjson.dumps(erasure.position).decode()
    key = {"organization_id": organization_id, "customer_id": erasure.customer_id}
    tx.update(_ADVANCE, **key, step=str(erasure.step), position=position, progressed_at=at)


def finish(tx: Tx, organization_id: str, customer_id: str, at: int) -> None:
    """Write that an erasure is finished, and forget its addresses."""
    key = {"organization_id": organization_id, "customer_id": customer_id}
    tx.update(_FINISH, **key, addresses="[]", position="[]", progressed_at=at, finished_at=at)


def get(tx: Tx, organization_id: str, customer_id: str) -> tuple[int, int | None] | None:
    """Return when the erasure of a customer was requested and finished."""
    row = tx.first(_GET, organization_id=organization_id, customer_id=customer_id)
    return (int(row[0]), row[1]) if row else None


# Requests --------------------------------------------------------------------------------------------------------

ends_at = func.coalesce(
    _departures.ends_at,
    _departures.starts_at
    + cast(func.coalesce(_experiences.duration_minutes, literal_column("0")), BigInteger) * literal_column(str(MINUTE)),
    type_=BigInteger,
)
"""The end of a booking's departure (decision B2)."""


def of_bookings(query: Select[Any], source: Any) -> Select[Any]:
    """Join a query of timeline entries, or of bookings, with the bookings, their departures and experiences."""
    joined = source
    if source is not tables.bookings:
        own = and_(_bookings.organization_id == source.c.organization_id, _bookings.id == source.c.booking_id)
        joined = source.join(tables.bookings, own)
    departed = and_(_departures.organization_id == _bookings.organization_id, _departures.id == _bookings.departure_id)
    offered = and_(
        _experiences.organization_id == _bookings.organization_id, _experiences.id == _bookings.experience_id
    )
    return query.select_from(joined.join(tables.departures, departed).join(tables.experiences, offered))


_OF_CUSTOMER = (
    _timeline.organization_id == OWNER,
    _timeline.customer_id == _CUSTOMER,
    _bookings.customer_id == _timeline.customer_id,
)
_IS_TO_COME = and_(_bookings.status != literal_column("'cancelled'"), ends_at > bindparam("at", type_=BigInteger))
_TO_COME = Statement(
    of_bookings(select(_bookings.booking_number, _bookings.id), tables.timeline)
    .where(*_OF_CUSTOMER, _IS_TO_COME)
    .distinct()
    .order_by(_bookings.booking_number)
    .limit(_LIMIT)
)
_LEGACY_TO_COME = Statement(
    of_bookings(select(_bookings.id, _bookings.guest_email), tables.bookings).where(
        _bookings.organization_id == OWNER,
        _bookings.booking_number.is_(None),
        _bookings.customer_id.is_(None),
        _bookings.guest_email.is_not(None),
        _IS_TO_COME,
    )
)
OPEN_REFUNDS = ("requested", "sending", "failed", "needs_review")
IS_OPEN_REFUND = tables.refunds.c.status.in_([literal_column(f"'{status}'") for status in OPEN_REFUNDS])
_REFUND = and_(
    tables.refunds.c.organization_id == _timeline.organization_id, tables.refunds.c.booking_id == _timeline.booking_id
)
_OPEN_REFUND = Statement(
    select(tables.refunds.c.id)
    .join_from(tables.timeline, tables.refunds, _REFUND)
    .where(_timeline.organization_id == OWNER, _timeline.customer_id == _CUSTOMER, IS_OPEN_REFUND)
    .limit(literal_column("1"))
)
_COUNT = Statement(
    of_bookings(select(func.count(_bookings.id.distinct()), func.max(ends_at)), tables.timeline).where(*_OF_CUSTOMER)
)
_ADDRESSES = Statement(
    lambda dialect: (
        select(_timeline.customer_id, _bookings.guest_email)
        .join_from(
            tables.timeline,
            tables.bookings,
            and_(_bookings.organization_id == _timeline.organization_id, _bookings.id == _timeline.booking_id),
        )
        .where(
            _timeline.organization_id == OWNER,
            in_rows(dialect, _timeline.customer_id, "wanted", "id"),
            _bookings.guest_email.is_not(None),
        )
        .distinct()
    )
)
_HOLDERS = Statement(
    lambda dialect: select(tables.customers.c.email_key, tables.customers.c.id).where(
        tables.customers.c.organization_id == OWNER,
        in_rows(dialect, tables.customers.c.email_key, "wanted", "email_key"),
    )
)


def bookings_to_come(
    tx: Tx, organization_id: str, customer_id: str, at: int, limit: int
) -> list[tuple[int | None, str]]:
    """Return number and id of bookings that are not cancelled and whose departure has not ended."""
    found = tx.all(_TO_COME, organization_id=organization_id, customer_id=customer_id, at=at, limit=limit)
    return [(row[0], str(row[1])) for row in found]


def legacy_bookings_to_come(tx: Tx, organization_id: str, at: int) -> list[tuple[str, str]]:
    """Return id and guest's address of bookings to come that have neither number nor customer."""
    return [(row[0], row[1]) for row in tx.all(_LEGACY_TO_COME, organization_id=organization_id, at=at)]


def open_refund(tx: Tx, organization_id: str, customer_id: str) -> str | None:
    """Return the id of a refund that is owed to the customer, by the gateway or by staff."""
    row = tx.first(_OPEN_REFUND, organization_id=organization_id, customer_id=customer_id)
    return row[0] if row else None


def count_bookings(tx: Tx, organization_id: str, customer_id: str) -> tuple[int, int | None]:
    """Return the number of a customer's bookings, and the end of the last."""
    row = tx.first(_COUNT, organization_id=organization_id, customer_id=customer_id)
    assert row is not None
    return int(row[0]), row[1]


def guest_emails(tx: Tx, organization_id: str, customer_ids: Collection[str]) -> list[tuple[str, str]]:
    """Return (customer id, e-mail address) of the customers' bookings."""
    found = tx.all(_ADDRESSES, organization_id=organization_id, wanted=ids(customer_ids))
    return [(row[0], row[1]) for row in found]


def holders(tx: Tx, organization_id: str, email_keys: Iterable[str]) -> dict[str, str]:
    """Return the customers that have the e-mail keys now, by key."""
    wanted = as_json({"email_key": each} for each in sorted(set(email_keys)))
    return {row[0]: row[1] for row in tx.all(_HOLDERS, organization_id=organization_id, wanted=wanted)}


# Bookings --------------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A timeline entry."""

    created_at: int
    id: str
    booking_id: str | None
    data: str


class GuestBooking(NamedTuple):
    """A booking that has personal data."""

    id: str
    guest_name: str | None
    guest_email: str | None
    guest_phone: str | None
    updated_at: int
    status: str
    ends_at: int

    @property
    def is_anonymous(self) -> bool:
        return (self.guest_name, self.guest_email) == (ANONYMOUS, None)

    def is_to_come(self, at: int) -> bool:
        return self.status != "cancelled" and self.ends_at > at


_POSITION = tuple_(bindparam("after_at", type_=BigInteger), bindparam("after_id", type_=Id))
_ENTRIES = Statement(
    select(*(_timeline[name] for name in Entry._fields))
    .where(
        _timeline.organization_id == OWNER,
        _timeline.customer_id == _CUSTOMER,
        tuple_(_timeline.created_at, _timeline.id) > _POSITION,
    )
    .order_by(_timeline.created_at, _timeline.id)
    .limit(_LIMIT)
)
_UPDATE_ENTRY = Update(
    "anonymize_timeline",
    tables.timeline,
    sets=("data",),
    keys=("organization_id", "customer_id", "created_at", "id"),
)
_BOOKING_COLUMNS = tuple(ends_at if name == "ends_at" else _bookings[name] for name in GuestBooking._fields)
_BOOKINGS = of_bookings(select(*_BOOKING_COLUMNS), tables.bookings).where(_bookings.organization_id == OWNER)
_LOCK_BOOKINGS = Statement(
    lambda dialect: (
        _BOOKINGS.where(in_rows(dialect, _bookings.id, "wanted", "id"), _bookings.customer_id == _CUSTOMER)
        .order_by(_bookings.id)
        .with_for_update(of=tables.bookings)
    )
)
_LEGACY = Statement(
    _BOOKINGS.where(
        _bookings.booking_number.is_(None),
        _bookings.customer_id.is_(None),
        _bookings.id > bindparam("after_id", type_=Id),
    )
    .order_by(_bookings.id)
    .limit(_LIMIT)
)
_EMPTIED = (
    *("guest_email", "guest_phone", "note", "cancel_note"),
    *("external_reference", "metadata", "manage_key_id", "manage_expires_at"),
)
"""Columns of a booking that are null once its guest is anonymized."""
_ANONYMIZE_BOOKING = Update("anonymize_booking", tables.bookings, sets=("guest_name", *_EMPTIED, "updated_at"))


def _without_notes(table: Table, **values: Any) -> Statement:
    """Return the statement that replaces notes of staff in the rows of bookings."""
    notes = or_(*(table.c[name].is_not(None) for name in values))
    written = {name: literal_column(f"'{ANONYMOUS}'") if value else null() for name, value in values.items()}
    return Statement(
        lambda dialect: (
            update(table)
            .where(table.c.organization_id == OWNER, in_rows(dialect, table.c.booking_id, "wanted", "id"), notes)
            .values(written)
        )
    )


_RECORDS = _without_notes(tables.payment_records, note=None, voided_note=None)
_REFUNDS = _without_notes(tables.refunds, settled_note=ANONYMOUS)  # one that is settled has a note


def find_entries(tx: Tx, organization_id: str, customer_id: str, position: tuple[Any, ...], limit: int) -> list[Entry]:
    """Return the next timeline entries of a customer."""
    after_at, after_id = position or (-(2**63), NIL_ID)
    key = {"organization_id": organization_id, "customer_id": customer_id}
    found = tx.all(_ENTRIES, **key, after_at=after_at, after_id=after_id, limit=limit)
    return [Entry._make(row) for row in found]


def update_entry(tx: Tx, organization_id: str, customer_id: str, entry: Entry, data: str) -> None:
    """Write the data of a timeline entry."""
    key = {"organization_id": organization_id, "customer_id": customer_id}
    tx.update(_UPDATE_ENTRY, **key, created_at=entry.created_at, id=entry.id, data=data)


def lock_bookings(tx: Tx, organization_id: str, customer_id: str, booking_ids: Collection[str]) -> list[GuestBooking]:
    """Lock those of the bookings that are of the customer."""
    key = {"organization_id": organization_id, "customer_id": customer_id}
    return [GuestBooking._make(row) for row in tx.all(_LOCK_BOOKINGS, **key, wanted=ids(booking_ids))]


def find_legacy_bookings(tx: Tx, organization_id: str, position: tuple[Any, ...], limit: int) -> list[GuestBooking]:
    """Return the next bookings without number and customer."""
    (after_id,) = position or (NIL_ID,)
    found = tx.all(_LEGACY, organization_id=organization_id, after_id=after_id, limit=limit)
    return [GuestBooking._make(row) for row in found]


def anonymize_bookings(tx: Tx, organization_id: str, bookings: Sequence[GuestBooking], at: int) -> None:
    """Replace the personal data of bookings, and the notes on their payments and refunds. Guests' links end."""
    for booking in bookings:
        tx.update(
            _ANONYMIZE_BOOKING,
            organization_id=organization_id,
            id=booking.id,
            guest_name=ANONYMOUS,
            **dict.fromkeys(_EMPTIED),
            updated_at=max(at, booking.updated_at),
        )
    wanted = ids(booking.id for booking in bookings)
    for statement in (_RECORDS, _REFUNDS):
        tx.run(statement, organization_id=organization_id, wanted=wanted)


_GIVE_BOOKING = Update("give_booking", tables.bookings, sets=("customer_id",))
_GIVE_ENTRIES = Statement(
    update(tables.timeline)
    .where(
        _timeline.organization_id == OWNER,
        _timeline.customer_id == _CUSTOMER,
        _timeline.booking_id == bindparam("booking_id", type_=Id),
    )
    .values(customer_id=bindparam("new_customer_id", type_=Id))
)


def give_booking(tx: Tx, organization_id: str, booking_id: str, *, customer_id: str, new_customer_id: str) -> None:
    """Give a booking and its timeline to another customer."""
    tx.update(_GIVE_BOOKING, organization_id=organization_id, id=booking_id, customer_id=new_customer_id)
    key = {"organization_id": organization_id, "customer_id": customer_id, "booking_id": booking_id}
    tx.run(_GIVE_ENTRIES, **key, new_customer_id=new_customer_id)


# Events and deliveries -------------------------------------------------------------------------------------------


class EventRow(NamedTuple):
    """An event about a guest."""

    sequence: int
    type: str
    resource_id: str
    body: str


# The sums hide columns of other indexes, which SQLite would scan rather than sort the few rows of this one.
_EVENTS_OF = Statement(
    lambda dialect: (
        select(*(_events[name] for name in EventRow._fields))
        .where(
            _events.organization_id == OWNER,
            in_rows(dialect, _events.resource_id, "wanted", "id"),
            _events.sequence + literal_column("0") > bindparam("after", type_=BigInteger),
        )
        .order_by(_events.sequence + literal_column("0"))
        .limit(_LIMIT)
    )
)
_UPDATE_EVENT = Update("anonymize_event", tables.events, sets=("body",), keys=("organization_id", "sequence"))


def _deliveries(dialect: Dialect) -> Any:
    """Select the deliveries of events, by a look-up for each endpoint of the organization, and the leases of first
    attempts that may be about the events."""
    wanted = rows_parameter(dialect, "wanted", {"type": Text, "sequence": BigInteger})
    endpoints, deliveries, leases = tables.webhook_endpoints.c, tables.deliveries.c, tables.webhook_leases.c
    in_flight = and_(
        leases.organization_id == OWNER,
        leases.first_sequence <= wanted.c.sequence,
        leases.last_sequence >= wanted.c.sequence,
    )
    of_event = and_(
        deliveries.organization_id == endpoints.organization_id,
        deliveries.endpoint_id == endpoints.id,
        deliveries.event_type == wanted.c.type,
        deliveries.event_sequence == wanted.c.sequence,
    )
    return union_all(
        select(deliveries.id, deliveries.lease_until)
        .join_from(wanted, tables.webhook_endpoints, endpoints.organization_id == OWNER)
        .join(tables.deliveries, of_event),
        select(leases.id, leases.lease_until).join_from(wanted, tables.webhook_leases, in_flight),
    )


_DELIVERIES = Statement(_deliveries)
_FORGET_EXCERPTS = Statement(
    lambda dialect: (
        update(tables.attempts)
        .where(
            tables.attempts.c.organization_id == OWNER,
            in_rows(dialect, tables.attempts.c.delivery_id, "wanted", "id"),
            tables.attempts.c.response_excerpt.is_not(None),
        )
        .values(response_excerpt=null())
    )
)


def find_events(
    tx: Tx, organization_id: str, resource_ids: Collection[str], *, after: int = 0, limit: int = 2**31 - 1
) -> list[EventRow]:
    """Return the next events about the resources."""
    wanted = ids(resource_ids)
    found = tx.all(_EVENTS_OF, organization_id=organization_id, wanted=wanted, after=after, limit=limit)
    return [EventRow._make(row) for row in found]


def update_event(tx: Tx, organization_id: str, sequence: int, body: str) -> None:
    """Write the body of an event."""
    tx.update(_UPDATE_EVENT, organization_id=organization_id, sequence=sequence, body=body)


def find_deliveries(tx: Tx, organization_id: str, events: Sequence[EventRow]) -> list[tuple[str, bool]]:
    """Return the ids of the deliveries of events, and whether an attempt of each is in flight."""
    wanted = as_json({"type": event.type, "sequence": event.sequence} for event in events)
    found = tx.all(_DELIVERIES, organization_id=organization_id, wanted=wanted) if events else []
    return [(row[0], row[1] is not None) for row in found]


def forget_excerpts(tx: Tx, organization_id: str, delivery_ids: Collection[str]) -> None:
    """Empty the excerpts of what receivers answered."""
    if delivery_ids:
        tx.run(_FORGET_EXCERPTS, organization_id=organization_id, wanted=ids(delivery_ids))


# Gift cards ------------------------------------------------------------------------------------------------------

CONTACTS = ("purchaser_name", "purchaser_email", "recipient_name", "recipient_email")
_cards = tables.gift_cards.c
_CARDS = Statement(
    select(_cards.id, _cards.updated_at, *(_cards[name] for name in CONTACTS))
    .where(_cards.organization_id == OWNER, _cards.id > bindparam("after_id", type_=Id))
    .order_by(_cards.id)
    .limit(_LIMIT)
)
_UPDATE_CARD = Update("anonymize_card", tables.gift_cards, sets=(*CONTACTS, "updated_at"))


class CardRow(NamedTuple):
    """A gift card with its contacts."""

    id: str
    updated_at: int
    contacts: dict[str, str | None]


def find_cards(tx: Tx, organization_id: str, position: tuple[Any, ...], limit: int) -> list[CardRow]:
    """Return the next gift cards."""
    (after_id,) = position or (NIL_ID,)
    found = tx.all(_CARDS, organization_id=organization_id, after_id=after_id, limit=limit)
    return [CardRow(row[0], row[1], dict(zip(CONTACTS, row[2:], strict=True))) for row in found]


def update_card(tx: Tx, organization_id: str, card: CardRow, at: int) -> None:
    """Write the contacts of a gift card."""
    tx.update(
        _UPDATE_CARD,
        organization_id=organization_id,
        id=card.id,
        **card.contacts,
        updated_at=max(at, card.updated_at),
    )


# Mails -----------------------------------------------------------------------------------------------------------

_IS_ANONYMOUS = and_(_bookings.guest_name == literal_column(f"'{ANONYMOUS}'"), _bookings.guest_email.is_(None))
_MAILS = Statement(
    select(_mails.id, _mails.effect_key, _IS_ANONYMOUS)
    .join_from(
        tables.mails,
        tables.bookings,
        and_(_bookings.organization_id == _mails.organization_id, _bookings.id == _mails.booking_id),
        isouter=True,
    )
    .where(_mails.organization_id == OWNER, _mails.id > bindparam("after_id", type_=Id))
    .order_by(_mails.id)
    .limit(_LIMIT)
)


def find_mails(tx: Tx, organization_id: str, position: tuple[Any, ...], limit: int) -> list[tuple[str, str, bool]]:
    """Return the next mails: id, key of the outbox row, and whether it is about an anonymized booking."""
    (after_id,) = position or (NIL_ID,)
    found = tx.all(_MAILS, organization_id=organization_id, after_id=after_id, limit=limit)
    return [(row[0], row[1], bool(row[2])) for row in found]


# Stored answers --------------------------------------------------------------------------------------------------

_answers = tables.idempotency.c
_ANSWERS = Statement(
    select(_answers.created_at, _answers.key, _answers.body_sealed)
    .where(
        _answers.organization_id == OWNER,
        tuple_(_answers.created_at, _answers.key)
        > tuple_(bindparam("after_at", type_=BigInteger), bindparam("after_key", type_=Text)),
    )
    .order_by(_answers.created_at, _answers.key)
    .limit(_LIMIT)
)
_UPDATE_ANSWER = Update("anonymize_answer", tables.idempotency, sets=("body_sealed",), keys=("organization_id", "key"))


def _among(table: Table, is_anonymous: ColumnElement[bool]) -> Statement:
    """Return the statement that selects those of the ids whose row is anonymized."""
    return Statement(
        lambda dialect: select(table.c.id).where(
            table.c.organization_id == OWNER, in_rows(dialect, table.c.id, "wanted", "id"), is_anonymous
        )
    )


_ANONYMOUS = {
    tables.bookings: _among(tables.bookings, _IS_ANONYMOUS),
    tables.customers: _among(tables.customers, tables.customers.c.anonymized_at.is_not(None)),
}


def find_answers(tx: Tx, organization_id: str, position: tuple[Any, ...], limit: int) -> list[tuple[int, str, str]]:
    """Return the next stored answers: instant, key and sealed body."""
    after_at, after_key = position or (-(2**63), "")
    found = tx.all(_ANSWERS, organization_id=organization_id, after_at=after_at, after_key=after_key, limit=limit)
    return [(row[0], row[1], row[2]) for row in found]


def update_answer(tx: Tx, organization_id: str, key: str, body_sealed: str) -> None:
    """Write the sealed body of a stored answer."""
    tx.update(_UPDATE_ANSWER, organization_id=organization_id, key=key, body_sealed=body_sealed)


def anonymous_ids(tx: Tx, organization_id: str, table: Table, wanted: Collection[str]) -> set[str]:
    """Return those of the ids of bookings, or of customers, that are anonymized."""
    found = tx.all(_ANONYMOUS[table], organization_id=organization_id, wanted=ids(wanted)) if wanted else []
    return {row[0] for row in found}

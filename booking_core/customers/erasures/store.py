"""The SQL of erasures. It reads and writes the tables of many packages, since one guest's data is in all of them."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    null,
    or_,
    select,
    update,
)

from booking_core.base.clock import MINUTE
from booking_core.customers.erasures.rules import Erasure, ErasureStep
from booking_core.customers.rules import ANONYMOUS
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.paging import Scan
from booking_core.db.statements import (
    OWNER,
    Statement,
    as_ids,
    as_json,
    columns_of,
    has_key,
    in_rows,
    is_of,
    rows_parameter,
)
from booking_core.db.tables import Id, Personal
from booking_core.due_work.rows import DueRows

_CUSTOMER = bindparam("customer_id", type_=Id)
_AT = bindparam("at", type_=BigInteger)
_ANONYMOUS: ColumnElement[str] = literal_column(f"'{ANONYMOUS}'", type_=Text)
_ALL = 2**31 - 1
_bookings, _departures, _experiences = tables.bookings.c, tables.departures.c, tables.experiences.c
_customers, _timeline, _events, _mails = tables.customers.c, tables.timeline.c, tables.events.c, tables.mails.c
_erasures, _answers = tables.erasures.c, tables.idempotency.c


# Replacements, as the columns say -------------------------------------------------------------------------------


def columns(table: Table, *kinds: Personal) -> list[str]:
    """Return the columns of a table with personal data of these kinds."""
    return [str(column.name) for column in table.c if column.info.get("personal") in kinds]


def _replacement(table: Table, key: str) -> Statement:
    """Return the statement that empties and replaces the personal columns of the rows with the keys `wanted`."""
    values: dict[str, Any] = dict.fromkeys(columns(table, Personal.EMPTIED), null())
    values |= dict.fromkeys(columns(table, Personal.REPLACED), _ANONYMOUS)
    holds_data = or_(*(table.c[name].is_not(None) for name in values))
    if "updated_at" in table.c:
        values["updated_at"] = case((table.c.updated_at < _AT, _AT), else_=table.c.updated_at)
    return Statement(
        update(table)
        .where(table.c.organization_id == OWNER, in_rows(table.c[key], "wanted", "id"), holds_data)
        .values(values)
    )


_BOOKING = [
    _replacement(tables.bookings, "id"),
    _replacement(tables.payment_records, "booking_id"),
    _replacement(tables.refunds, "booking_id"),
    _replacement(tables.reservations, "booking_id"),
]
_ATTEMPTS = _replacement(tables.attempts, "delivery_id")


def anonymize_bookings(tx: Tx, organization_id: str, booking_ids: Collection[str], at: int) -> None:
    """Replace the personal data of bookings, and the notes on their payments and refunds. Guests' links end."""
    for statement in _BOOKING:
        tx.run(statement, organization_id=organization_id, wanted=as_ids(booking_ids), at=at)


def forget_excerpts(tx: Tx, organization_id: str, delivery_ids: Collection[str]) -> None:
    """Empty the excerpts of the receivers' answers."""
    if delivery_ids:
        tx.run(_ATTEMPTS, organization_id=organization_id, wanted=as_ids(delivery_ids))


# Erasures --------------------------------------------------------------------------------------------------------

SETTLED_AFTER = MINUTE
"""Requests that began before the customer was anonymized have ended after this time, and their rows are committed."""
DUE = DueRows(
    tables.erasures,
    _erasures.requested_at,
    _erasures.customer_id,
    (_erasures.finished_at.is_(None),),
    ahead=-SETTLED_AFTER,
)
_LOCK = DUE.locking(select(_erasures.customer_id, _erasures.addresses, _erasures.step, _erasures.position))
_GET = Statement(
    select(_erasures.requested_at, _erasures.finished_at).where(
        _erasures.organization_id == OWNER, _erasures.customer_id == _CUSTOMER
    )
)


def insert(tx: Tx, organization_id: str, customer_id: str, addresses: Collection[str], at: int) -> None:
    """Insert an erasure at its beginning."""
    new = Erasure(customer_id, frozenset(addresses), next(iter(ErasureStep)))
    tx.insert(tables.erasures, organization_id=organization_id, requested_at=at, **_state(new, at))


def _state(erasure: Erasure, at: int) -> dict[str, Any]:
    """Return the columns of an erasure that it changes; without addresses once it is finished."""
    return {
        "customer_id": erasure.customer_id,
        "addresses": orjson.dumps([] if erasure.is_finished else sorted(erasure.addresses)).decode(),
        "step": str(erasure.step),
        "position": orjson.dumps(erasure.position).decode(),
        "progressed_at": at,
        "finished_at": at if erasure.is_finished else None,
    }


def lock(tx: Tx, organization_id: str, customer_ids: Collection[str]) -> list[Erasure]:
    """Lock the unfinished erasures, the oldest first, and skip locked ones."""
    rows = DUE.lock(tx, _LOCK, organization_id, customer_ids)
    return [
        Erasure(customer_id, frozenset(orjson.loads(addresses)), ErasureStep(step), tuple(orjson.loads(position)))
        for customer_id, addresses, step, position in rows
    ]


def save(tx: Tx, organization_id: str, erasure: Erasure, at: int) -> None:
    """Write the progress of an erasure."""
    tx.update(tables.erasures, organization_id=organization_id, **_state(erasure, at))


def get(tx: Tx, organization_id: str, customer_id: str) -> tuple[int, int | None] | None:
    """Return when the erasure of a customer was requested and finished."""
    row = tx.first(_GET, organization_id=organization_id, customer_id=customer_id)
    return (int(row[0]), row[1]) if row else None


# Bookings --------------------------------------------------------------------------------------------------------

ends_at = func.coalesce(
    _departures.ends_at,
    _departures.starts_at
    + cast(func.coalesce(_experiences.duration_minutes, literal_column("0")), BigInteger) * literal_column(str(MINUTE)),
    type_=BigInteger,
)
"""The end of a booking's departure (decision B2)."""


class GuestBooking(NamedTuple):
    """A booking that has personal data."""

    id: str
    booking_number: int | None
    customer_id: str | None
    guest_name: str | None
    guest_email: str | None
    guest_phone: str | None
    status: str
    ends_at: int

    @property
    def is_anonymous(self) -> bool:
        return (self.guest_name, self.guest_email) == (ANONYMOUS, None)

    def is_to_come(self, at: int) -> bool:
        return self.status != "cancelled" and self.ends_at > at


def of_bookings(query: Select[Any], source: Any) -> Select[Any]:
    """Join a query of timeline entries, or of bookings, with the bookings, their departures and experiences."""
    joined = source
    if source is not tables.bookings:
        joined = source.join(tables.bookings, has_key(tables.bookings, source, id="booking_id"))
    offered = has_key(tables.experiences, tables.bookings, id="experience_id")
    return query.select_from(joined.join(tables.departures).join(tables.experiences, offered))


_GUEST_BOOKINGS = select(*columns_of(GuestBooking._fields, tables.bookings, ends_at=ends_at))
_BOOKINGS = of_bookings(_GUEST_BOOKINGS, tables.bookings).where(_bookings.organization_id == OWNER)
_OF_CUSTOMERS = Statement(
    of_bookings(_GUEST_BOOKINGS, tables.timeline)
    .where(
        _timeline.organization_id == OWNER,
        in_rows(_timeline.customer_id, "wanted", "id"),
        _bookings.customer_id == _timeline.customer_id,
    )
    .distinct()
    .order_by(_bookings.booking_number)
)
_LOCK_BOOKINGS = Statement(
    _BOOKINGS.where(in_rows(_bookings.id, "wanted", "id"), _bookings.customer_id == _CUSTOMER)
    .order_by(_bookings.id)
    .with_for_update(of=tables.bookings)
)
_LEGACY = Scan(
    _BOOKINGS.where(
        _bookings.booking_number.is_(None), _bookings.customer_id.is_(None), ends_at > bindparam("ends_after")
    )
)
_GIVE_ENTRIES = Statement(
    update(tables.timeline)
    .where(
        _timeline.organization_id == OWNER,
        _timeline.customer_id == _CUSTOMER,
        _timeline.booking_id == bindparam("booking_id"),
    )
    .values(customer_id=bindparam("new_customer_id"))
)
OPEN_REFUNDS = ("requested", "sending", "failed", "needs_review")
IS_OPEN_REFUND = tables.refunds.c.status.in_([literal_column(f"'{status}'") for status in OPEN_REFUNDS])
OF_ENTRY = is_of(tables.refunds.c, _timeline, booking_id="booking_id")
_OPEN_REFUND = Statement(
    select(tables.refunds.c.id)
    .join_from(tables.timeline, tables.refunds, OF_ENTRY)
    .where(_timeline.organization_id == OWNER, _timeline.customer_id == _CUSTOMER, IS_OPEN_REFUND)
    .limit(literal_column("1"))
)
_HOLDERS = Statement(
    select(_customers.email_key, _customers.id).where(
        _customers.organization_id == OWNER, in_rows(_customers.email_key, "wanted", "id")
    )
)


def bookings_of(tx: Tx, organization_id: str, customer_ids: Collection[str]) -> list[GuestBooking]:
    """Return the bookings of customers, in the order of their numbers."""
    rows = tx.all(_OF_CUSTOMERS, organization_id=organization_id, wanted=as_ids(customer_ids))
    return [GuestBooking._make(row) for row in rows]


def lock_bookings(tx: Tx, organization_id: str, customer_id: str, booking_ids: Collection[str]) -> list[GuestBooking]:
    """Lock the bookings of the customer."""
    key = {"organization_id": organization_id, "customer_id": customer_id}
    rows = tx.all(_LOCK_BOOKINGS, **key, wanted=as_ids(booking_ids)) if booking_ids else []
    return [GuestBooking._make(row) for row in rows]


def legacy_bookings(
    tx: Tx, organization_id: str, position: Sequence[Any] = (), limit: int = _ALL, *, ends_after: int = -(2**63)
) -> tuple[list[GuestBooking], tuple[Any, ...] | None]:
    """Return the next bookings that have neither number nor customer, and their last position."""
    rows, last = _LEGACY.page(tx, position, limit, organization_id=organization_id, ends_after=ends_after)
    return [GuestBooking._make(row) for row in rows], last


def give_booking(tx: Tx, organization_id: str, booking_id: str, *, customer_id: str, new_customer_id: str) -> None:
    """Give a booking and its timeline to another customer."""
    tx.update(tables.bookings, organization_id=organization_id, id=booking_id, customer_id=new_customer_id)
    key = {"organization_id": organization_id, "customer_id": customer_id, "booking_id": booking_id}
    tx.run(_GIVE_ENTRIES, **key, new_customer_id=new_customer_id)


def open_refund(tx: Tx, organization_id: str, customer_id: str) -> str | None:
    """Return the id of a pending refund of the customer, by the gateway or by staff."""
    row = tx.first(_OPEN_REFUND, organization_id=organization_id, customer_id=customer_id)
    return row[0] if row else None


def holders(tx: Tx, organization_id: str, email_keys: Iterable[str]) -> dict[str, str]:
    """Return the customers that have the e-mail keys now, by key."""
    rows = tx.all(_HOLDERS, organization_id=organization_id, wanted=as_ids(sorted(set(email_keys))))
    return {row[0]: row[1] for row in rows}


# Events and deliveries -------------------------------------------------------------------------------------------


class StoredEvent(NamedTuple):
    """An event about a guest."""

    sequence: int
    type: str
    resource_id: str
    body: str


# The sum hides columns of other indexes, which SQLite would scan rather than sort the few rows of this one.
_sequence = (_events.sequence + literal_column("0")).label("sequence")
_EVENTS = Scan(
    select(*columns_of(StoredEvent._fields, tables.events, sequence=_sequence)).where(
        _events.organization_id == OWNER, in_rows(_events.resource_id, "wanted", "id")
    )
)


def _deliveries() -> Any:
    """Select the deliveries of events, by a look-up for each endpoint of the organization."""
    rows = rows_parameter("wanted", {"type": Text, "sequence": BigInteger})
    endpoints, deliveries = tables.webhook_endpoints.c, tables.deliveries.c
    of_event = and_(
        is_of(deliveries, endpoints, endpoint_id="id"),
        deliveries.event_type == rows.c.type,
        deliveries.event_sequence == rows.c.sequence,
    )
    return (
        select(deliveries.id, deliveries.lease_until)
        .join_from(rows, tables.webhook_endpoints, endpoints.organization_id == OWNER)
        .join(tables.deliveries, of_event)
    )


_DELIVERIES = Statement(_deliveries())


def find_events(
    tx: Tx, organization_id: str, resource_ids: Collection[str], position: Sequence[Any] = (), limit: int = _ALL
) -> tuple[list[StoredEvent], tuple[Any, ...] | None]:
    """Return the next events about the resources, and their last position."""
    if not resource_ids:
        return [], None
    rows, last = _EVENTS.page(tx, position, limit, organization_id=organization_id, wanted=as_ids(resource_ids))
    return [StoredEvent._make(row) for row in rows], last


def find_deliveries(tx: Tx, organization_id: str, events: Sequence[StoredEvent]) -> list[tuple[str, bool]]:
    """Return the ids of the deliveries of events, and whether an attempt of each is in flight."""
    keys = as_json({"type": event.type, "sequence": event.sequence} for event in events)
    rows = tx.all(_DELIVERIES, organization_id=organization_id, wanted=keys) if events else []
    return [(row[0], row[1] is not None) for row in rows]


# Rows that are rewritten -----------------------------------------------------------------------------------------

CONTACTS = tuple(columns(tables.gift_cards, Personal.EMPTIED))
_IS_ANONYMOUS = and_(_bookings.guest_name == _ANONYMOUS, _bookings.guest_email.is_(None))
_OF_MAIL = has_key(tables.bookings, tables.mails, id="booking_id")

ENTRIES = Scan(
    select(_timeline.created_at, _timeline.id, _timeline.booking_id, _timeline.data).where(
        _timeline.organization_id == OWNER, _timeline.customer_id == _CUSTOMER
    ),
    key=2,
)
CARDS = Scan(
    select(*columns_of(("id", "updated_at", *CONTACTS), tables.gift_cards)).where(
        tables.gift_cards.c.organization_id == OWNER
    )
)
MAILS = Scan(
    select(_mails.id, _mails.effect_key, _IS_ANONYMOUS)
    .join_from(tables.mails, tables.bookings, _OF_MAIL, isouter=True)
    .where(_mails.organization_id == OWNER)
)
ANSWERS = Scan(
    select(_answers.created_at, _answers.key, _answers.body_sealed).where(_answers.organization_id == OWNER), 2
)


def _among(table: Table, is_anonymous: ColumnElement[bool]) -> Statement:
    """Return the statement that selects the ids whose row is anonymized."""
    return Statement(
        select(table.c.id).where(table.c.organization_id == OWNER, in_rows(table.c.id, "wanted", "id"), is_anonymous)
    )


_ANONYMOUS_BOOKINGS = _among(tables.bookings, _IS_ANONYMOUS)
_ANONYMOUS_CUSTOMERS = _among(tables.customers, _customers.anonymized_at.is_not(None))


def anonymous_ids(tx: Tx, organization_id: str, resource_ids: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the ids of anonymized bookings, and of anonymized customers."""
    key = {"organization_id": organization_id, "wanted": as_ids(resource_ids)}
    bookings, people = (
        {row[0] for row in tx.all(statement, **key)} for statement in (_ANONYMOUS_BOOKINGS, _ANONYMOUS_CUSTOMERS)
    )
    return bookings, people

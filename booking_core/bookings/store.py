"""The SQL of bookings."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)
from sqlalchemy.engine import Dialect

from booking_core import organizations
from booking_core.bookings.rules import BookingRow
from booking_core.clock import HOUR
from booking_core.context import Organization
from booking_core.db import tables
from booking_core.db.engine import Query, Row, Tx
from booking_core.db.paging import KeysetList
from booking_core.db.statements import Statement, as_json, in_rows, now_us, rows_parameter
from booking_core.db.tables import Id, bookings, customers, departures, experiences, holds, idempotency, timeline
from booking_core.db.unit_of_work import Update
from booking_core.idempotency import has_lock
from booking_core.models.pages import Order

TAKE_SEATS = Update("take_seats", departures, sets=("updated_at",), adds=("seats_taken",))
"""Also gives them back, with a negative number. The table's own check refuses one seat too many."""

CANCEL = Update(
    "cancel_booking",
    bookings,
    sets=("status", "payment_status", "cancelled_at", "cancel_reason", "cancel_note", "expires_at", "updated_at"),
)
CONFIRM = Update(
    "confirm_booking",
    bookings,
    sets=("status", "payment_status", "confirmed_at", "expires_at", "updated_at"),
)
PAY = Update("pay_booking", bookings, sets=("payment_status", "updated_at"))
RECORD = Update(
    "record_payment", bookings, sets=("payment_status", "invoice_due", "updated_at"), adds=("recorded_minor",)
)
MOVE = Update("move_booking", bookings, sets=("departure_id", "experience_id", "manage_expires_at", "updated_at"))
CANCEL_DEPARTURE = Update(
    "cancel_departure", departures, sets=("status", "cancelling", "updated_at"), adds=("seats_taken",)
)
"""With the seats of the bookings that are cancelled in the same breath: one row is changed once in a transaction."""
CHECK_MINIMUM = Update("check_minimum", departures, sets=("minimum_checked_at",))

_COLUMNS: dict[str, Any] = {
    "experience_title": experiences.c.title,
    "experience_slug": experiences.c.slug,
    "starts_at": departures.c.starts_at,
    "ends_at": departures.c.ends_at,
    "duration_minutes": experiences.c.duration_minutes,
}


def _joined(page: FromClause) -> Select[Any]:
    """Bookings with what is shown of their departure and experience."""
    departed = and_(departures.c.organization_id == page.c.organization_id, departures.c.id == page.c.departure_id)
    offered = and_(experiences.c.organization_id == page.c.organization_id, experiences.c.id == page.c.experience_id)
    columns = (_COLUMNS[name] if name in _COLUMNS else page.c[name] for name in BookingRow._fields)
    return select(*columns).join_from(page, departures, departed).join(experiences, offered)


_OWN = select(bookings).where(bookings.c.organization_id == bindparam("organization_id", type_=Id))


_DEPARTS = and_(
    departures.c.organization_id == bindparam("organization_id", type_=Id),
    departures.c.starts_at >= bindparam("departs_from", type_=BigInteger),
    departures.c.starts_at < bindparam("departs_before", type_=BigInteger),
)
_UPDATED_SINCE = bookings.c.updated_at >= bindparam("updated_since", type_=BigInteger)
_KEY = (bookings.c.organization_id, bookings.c.id)
_HAS_ADDRESS = and_(
    customers.c.organization_id == bindparam("organization_id", type_=Id),
    customers.c.email_key == bindparam("email_key", type_=Text),
)
# By the customer's timeline, which has an entry for each of their bookings: an index of bookings by customer would be
# paid for by every booking that is made.
_BOOKED_BY = (
    select(timeline.c.organization_id, timeline.c.booking_id.label("id"))
    .join_from(
        customers,
        timeline,
        and_(timeline.c.organization_id == customers.c.organization_id, timeline.c.customer_id == customers.c.id),
    )
    .where(_HAS_ADDRESS, timeline.c.kind == literal_column("'booking_created'"))
)
# Within coalesce() the column cannot be exchanged for what it is compared with: else SQLite may turn the join around,
# and read all of an organization's bookings.
_ABOARD = and_(
    bookings.c.organization_id == func.coalesce(departures.c.organization_id, departures.c.organization_id),
    bookings.c.departure_id == departures.c.id,
)
LIST = KeysetList(
    "bookings",
    bookings,
    _OWN,
    {
        "status": bookings.c.status == bindparam("status", type_=Text),
        "experience_id": bookings.c.experience_id == bindparam("experience_id", type_=Id),
        "window": bookings.c.departure_id.in_(select(departures.c.id).where(_DEPARTS)),
        "updated_since": _UPDATED_SINCE,
        "number": bookings.c.booking_number == bindparam("number", type_=BigInteger),
        "departure_id": bookings.c.departure_id == bindparam("departure_id", type_=Id),
        "email_key": bookings.c.customer_id == select(customers.c.id).where(_HAS_ADDRESS).scalar_subquery(),
    },
    _joined,
    {
        "window": select(*_KEY).join_from(departures, bookings, _ABOARD).where(_DEPARTS),
        # In the order of its index, so that PostgreSQL does not look for the first few in the table itself.
        "updated_since": _OWN.with_only_columns(*_KEY).where(_UPDATED_SINCE).order_by(bookings.c.updated_at),
        "departure_id": _OWN.with_only_columns(*_KEY).where(
            bookings.c.departure_id == bindparam("departure_id", type_=Id)
        ),
        "email_key": _BOOKED_BY,
    },
)

_GET = Statement(_joined(_OWN.where(bookings.c.id == bindparam("id", type_=Id)).subquery("page")))
_LOCKED = (
    bookings.c.id,
    bookings.c.customer_id,
    bookings.c.seats,
    bookings.c.send_confirmation_email,
    bookings.c.notify_staff,
    bookings.c.cancel_reason,
    bookings.c.recorded_minor,
)
_LOCK = Statement(
    select(*_LOCKED)
    .where(
        bookings.c.organization_id == bindparam("organization_id", type_=Id),
        bookings.c.id == bindparam("id", type_=Id),
    )
    .with_for_update(key_share=True)
)


def get(tx: Tx, organization_id: str, booking_id: str) -> BookingRow | None:
    row = tx.first(_GET, organization_id=organization_id, id=booking_id)
    return BookingRow._make(row) if row else None


# What staff looks for -------------------------------------------------------------------------------------------

SLICE = 2_000
"""Bookings whose texts are compared at once: a few milliseconds."""

_CUSTOMER = Statement(select(customers.c.id).where(_HAS_ADDRESS))
_ID_OF_NUMBER = Statement(
    _OWN.with_only_columns(bookings.c.id).where(bookings.c.booking_number == bindparam("number", type_=BigInteger))
)


def has_customer(tx: Tx, organization_id: str, email_key: str) -> bool:
    """Return whether a customer record has that address now."""
    return tx.first(_CUSTOMER, organization_id=organization_id, email_key=email_key) is not None


def id_of_number(tx: Tx, organization_id: str, number: int) -> str | None:
    """Return the id of the booking with that number."""
    row = tx.first(_ID_OF_NUMBER, organization_id=organization_id, number=number)
    return str(row[0]) if row else None


class Texts(NamedTuple):
    """What a booking is found by that no index holds; the first two place it in the list."""

    created_at: int
    id: str
    guest_name: str | None
    guest_email: str | None


@lru_cache(maxsize=256)
def _texts(order: Order, is_continued: bool, filters: tuple[str, ...]) -> Statement:
    here = tuple_(bookings.c.created_at, bookings.c.id)
    there = tuple_(bindparam("after_created_at", type_=BigInteger), bindparam("after_id", type_=Id))
    conditions = [LIST.filters[name] for name in filters]
    if is_continued:
        conditions.append(here > there if order is Order.ASC else here < there)
    columns = [bookings.c[name] for name in Texts._fields]
    place = [column if order is Order.ASC else column.desc() for column in columns[:2]]
    # A limit in the text: of a parameter PostgreSQL expects a tenth of the table.
    limit: ColumnElement[int] = literal_column(str(SLICE))
    return Statement(_OWN.with_only_columns(*columns).where(*conditions).order_by(*place).limit(limit))


def texts(
    tx: Tx, organization_id: str, *, order: Order, after: tuple[int, str] | None, filters: Mapping[str, Any]
) -> list[Texts]:
    """Return what is compared of the next bookings that pass the filters of `LIST`, at most `SLICE`."""
    parameters: dict[str, Any] = {"organization_id": organization_id}
    for name, value in filters.items():
        parameters |= value if isinstance(value, dict) else {name: value}
    if after is not None:
        parameters["after_created_at"], parameters["after_id"] = after
    statement = _texts(order, after is not None, tuple(sorted(filters)))
    return [Texts._make(row) for row in tx.all(statement, **parameters)]


class Locked(NamedTuple):
    """What a booking that is about to change needs, beside what is shown of it."""

    id: str
    customer_id: str | None
    seats: int
    send_confirmation_email: bool
    notify_staff: bool
    cancel_reason: str | None
    recorded_minor: int
    """Received by hand, as staff recorded it."""


def lock(tx: Tx, organization_id: str, booking_id: str) -> Locked | None:
    """The booking, held until the transaction ends."""
    row = tx.first(_LOCK, organization_id=organization_id, id=booking_id)
    return Locked._make(row) if row else None


_HAS_IT = (
    select(bookings.c.id)
    .where(bookings.c.organization_id == tables.organizations.c.id, bookings.c.id == bindparam("id", type_=Id))
    .correlate(tables.organizations)
)
_OWNER = Statement(select(*organizations.COLUMNS).where(_HAS_IT.exists()))


def owner(tx: Tx, booking_id: str) -> Organization | None:
    """Whose booking it is. One look-up for each organization: no index begins with a booking's id."""
    row = tx.first(_OWNER, id=booking_id)
    return organizations.from_row(row) if row else None


class DepartureRow(NamedTuple):
    """A departure with its experience, as a booking is decided on it."""

    organization_id: str
    id: str
    starts_at: int
    ends_at: int | None
    status: str
    seats_total: int
    seats_taken: int
    price_minor: int | None
    prices: str | None
    experience_id: str
    title: str
    slug: str
    duration_minutes: int | None
    currency: str
    price_from_minor: int | None
    price_tiers: str
    add_ons: str
    hours_before_booking_closes: int | None


def _lock_departures(dialect: Dialect, wanted: FromClause) -> Any:
    locked = (
        select(departures)
        .where(departures.c.organization_id == wanted.c.organization_id, departures.c.id == wanted.c.id)
        .order_by(departures.c.organization_id, departures.c.id)
        .with_for_update(key_share=True, of=departures)
        .cte("locked")
    )
    columns = (locked.c[name] if name in departures.c else experiences.c[name] for name in DepartureRow._fields)
    return select(*columns).join_from(
        locked,
        experiences,
        and_(experiences.c.organization_id == locked.c.organization_id, experiences.c.id == locked.c.experience_id),
    )


_DEPARTURE_KEY: Mapping[str, Any] = {"organization_id": Id, "id": Id}


def _with_key_held(dialect: Dialect) -> Any:
    """Of those whose idempotency key this transaction has: who finds theirs in use is told so at once, and does not
    wait for the departure that the key's holder has."""
    wanted = rows_parameter(dialect, "wanted", {**_DEPARTURE_KEY, "lock": Text}).c
    keys = select(wanted.organization_id, wanted.id).distinct()
    held = keys.where(has_lock(wanted.lock)) if dialect.name == "postgresql" else keys
    return _lock_departures(dialect, held.subquery("held"))


_LOCK_DEPARTURES = Statement(
    lambda dialect: _lock_departures(dialect, rows_parameter(dialect, "wanted", _DEPARTURE_KEY))
)
_LOCK_WITH_KEY_HELD = Statement(_with_key_held)


def lock_departures(tx: Tx, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], DepartureRow]:
    """The departures of those (organization id, id), held until the transaction ends, locked in sorted order."""
    keys = as_json(
        {"organization_id": organization_id, "id": row_id} for organization_id, row_id in sorted(set(wanted))
    )
    return _by_key(tx.all(_LOCK_DEPARTURES, wanted=keys))


def departures_query(wanted: Iterable[tuple[tuple[str, str], str]]) -> Query[dict[tuple[str, str], DepartureRow]]:
    """The same for (organization id, id) and the name of a lock, as far as this transaction has or gets the lock."""
    keys = ({"organization_id": key[0], "id": key[1], "lock": lock} for key, lock in wanted)
    return Query(_LOCK_WITH_KEY_HELD, {"wanted": as_json(keys)}, _by_key)


def _by_key(found: Iterable[Row]) -> dict[tuple[str, str], DepartureRow]:
    return {(row.organization_id, row.id): row for row in map(DepartureRow._make, found)}


class Surroundings(NamedTuple):
    """What else one request depends on, read when its departure is held."""

    position: int
    at: int
    fingerprint: str | None
    status: int | None
    body_sealed: str | None
    seats_held: int
    customer_id: str | None


def _held(dialect: Dialect, organization_id: ColumnElement[Any], departure_id: ColumnElement[Any]) -> Select[Any]:
    """How many seats of a departure are held in other checkouts now."""
    return select(func.coalesce(func.sum(holds.c.seats), 0)).where(
        holds.c.organization_id == organization_id,
        holds.c.departure_id == departure_id,
        holds.c.ended_at.is_(None),
        holds.c.expires_at > now_us(dialect),
    )


def _surroundings(dialect: Dialect) -> Any:
    kinds: Mapping[str, Any] = {"i": Integer, "organization_id": Id, "key": Text, "departure_id": Id, "email_key": Text}
    wanted = rows_parameter(dialect, "wanted", kinds).c
    held = _held(dialect, wanted.organization_id, wanted.departure_id).correlate(wanted.i.table).scalar_subquery()
    stored = and_(idempotency.c.organization_id == wanted.organization_id, idempotency.c.key == wanted.key)
    known = and_(customers.c.organization_id == wanted.organization_id, customers.c.email_key == wanted.email_key)
    return (
        select(
            wanted.i,
            now_us(dialect),
            idempotency.c.fingerprint,
            idempotency.c.status,
            idempotency.c.body_sealed,
            held,
            customers.c.id,
        )
        .select_from(wanted.i.table)
        .join(tables.idempotency, stored, isouter=True)
        .join(tables.customers, known, isouter=True)
    )


_SURROUNDINGS = Statement(_surroundings)


def surroundings_query(wanted: Iterable[Mapping[str, object]]) -> Query[dict[int, Surroundings]]:
    """By position: the clock, the answer stored for the key, the seats held in other checkouts, the known customer.

    One statement for all of it, since a batch is bound by its round trips; and one of its own, after the locks, since
    only then does its snapshot hold what their former holders committed.
    """
    return Query(_SURROUNDINGS, {"wanted": as_json(wanted)}, _by_position)


def _by_position(found: Iterable[Row]) -> dict[int, Surroundings]:
    return {row.position: row for row in map(Surroundings._make, found)}


# One booking by itself -------------------------------------------------------------------------------------------


class Around(NamedTuple):
    """What else one booking depends on, read when its departure is held."""

    at: int
    seats_held: int
    customer_id: str | None


def _around(dialect: Dialect) -> Any:
    organization_id = bindparam("organization_id", type_=Id)
    held = _held(dialect, organization_id, bindparam("departure_id", type_=Id)).where(
        holds.c.id.is_distinct_from(bindparam("hold_id", type_=Id))
    )
    known = select(customers.c.id).where(
        customers.c.organization_id == organization_id, customers.c.email_key == bindparam("email_key", type_=Text)
    )
    return select(now_us(dialect), held.scalar_subquery(), known.scalar_subquery())


_AROUND = Statement(_around)


def around(
    tx: Tx, organization_id: str, departure_id: str, *, email_key: str | None = None, hold_id: str | None = None
) -> Around:
    """The clock, the seats held in checkouts other than the one of `hold_id`, and the customer of that address."""
    row = tx.first(
        _AROUND, organization_id=organization_id, departure_id=departure_id, email_key=email_key, hold_id=hold_id
    )
    assert row is not None
    return Around._make(row)


# What falls due --------------------------------------------------------------------------------------------------

# In the words of a partial index, so literal: PostgreSQL takes it for no parameter.
_PENDING = bookings.c.status == literal_column("'pending'")
_CONFIRMED = bookings.c.status == literal_column("'confirmed'")
_LIVE = bookings.c.status.in_([literal_column("'pending'"), literal_column("'confirmed'")])
_LIMIT = bindparam("limit", type_=Integer)


def _abandoned(dialect: Dialect, *columns: Any) -> Select[Any]:
    return (
        select(*columns)
        .where(_PENDING, bookings.c.expires_at <= now_us(dialect))
        .order_by(bookings.c.expires_at, bookings.c.id)
    )


def _next_abandoned(dialect: Dialect) -> Any:
    owner = tables.organizations
    due = _abandoned(dialect, *organizations.COLUMNS)
    return due.join_from(bookings, owner, owner.c.id == bookings.c.organization_id).limit(1)


def _lock_abandoned(dialect: Dialect) -> Any:
    mine = bookings.c.organization_id == bindparam("organization_id", type_=Id)
    due = _abandoned(dialect, *_LOCKED).where(mine).limit(_LIMIT)
    return due.with_for_update(key_share=True, skip_locked=True)


_NEXT_ABANDONED = Statement(_next_abandoned)
_LOCK_ABANDONED = Statement(_lock_abandoned)


def next_abandoned(tx: Tx) -> Organization | None:
    """The organization whose pending booking expired first."""
    row = tx.first(_NEXT_ABANDONED)
    return organizations.from_row(row) if row else None


def lock_abandoned(tx: Tx, organization_id: str, limit: int) -> list[Locked]:
    """Pending bookings that expired, the longest first, held; those that somebody pays for right now are left out."""
    return [Locked._make(row) for row in tx.all(_LOCK_ABANDONED, organization_id=organization_id, limit=limit)]


_OF_DEPARTURE = and_(
    bookings.c.organization_id == bindparam("organization_id", type_=Id),
    bookings.c.departure_id == bindparam("departure_id", type_=Id),
    _LIVE,
)
_LOCK_LIVE = Statement(
    select(*_LOCKED).where(_OF_DEPARTURE).order_by(bookings.c.id).limit(_LIMIT).with_for_update(key_share=True)
)
_COUNT_LIVE = Statement(select(func.count()).select_from(bookings).where(_OF_DEPARTURE))


def lock_live(tx: Tx, organization_id: str, departure_id: str, limit: int) -> list[Locked]:
    """Pending and confirmed bookings of a departure, held, in the order of their ids."""
    found = tx.all(_LOCK_LIVE, organization_id=organization_id, departure_id=departure_id, limit=limit)
    return [Locked._make(row) for row in found]


_SHOWN_LIVE = Statement(_joined(select(bookings).where(_OF_DEPARTURE).subquery("page")))


def live(tx: Tx, organization_id: str, departure_id: str) -> list[BookingRow]:
    """Return the pending and confirmed bookings of a departure."""
    found = tx.all(_SHOWN_LIVE, organization_id=organization_id, departure_id=departure_id)
    return [BookingRow._make(row) for row in found]


_RECORDED = Statement(
    select(bookings.c.id, bookings.c.recorded_minor).where(
        _OF_DEPARTURE, bookings.c.recorded_minor > literal_column("0")
    )
)


def recorded(tx: Tx, organization_id: str, departure_id: str) -> dict[str, int]:
    """Return what was received by hand for pending and confirmed bookings of a departure, by the booking's id."""
    found = tx.all(_RECORDED, organization_id=organization_id, departure_id=departure_id)
    return {str(booking_id): int(amount) for booking_id, amount in found}


class Counted(NamedTuple):
    """How many bookings of a departure have a status, and their seats."""

    departure_id: str
    status: str
    bookings: int
    seats: int


def _count_by_status(dialect: Dialect) -> Any:
    of = bookings.c.departure_id
    return (
        select(of, bookings.c.status, func.count(), func.sum(bookings.c.seats))
        .where(
            bookings.c.organization_id == bindparam("organization_id", type_=Id), in_rows(dialect, of, "wanted", "id")
        )
        .group_by(of, bookings.c.status)
    )


_COUNT_BY_STATUS = Statement(_count_by_status)


def count_by_status(tx: Tx, organization_id: str, departure_ids: Sequence[str]) -> list[Counted]:
    """Return how many bookings of each status those departures have."""
    wanted = as_json({"id": each} for each in departure_ids)
    return [Counted._make(row) for row in tx.all(_COUNT_BY_STATUS, organization_id=organization_id, wanted=wanted)]


class Offered(NamedTuple):
    """What a departure is of, and what staff did to it."""

    departure_id: str
    experience_id: str
    title: str
    slug: str
    seats_taken: int
    cancelling: str | None


def _offered(dialect: Dialect) -> Any:
    same = and_(
        experiences.c.organization_id == departures.c.organization_id, experiences.c.id == departures.c.experience_id
    )
    return (
        select(
            departures.c.id,
            experiences.c.id,
            experiences.c.title,
            experiences.c.slug,
            departures.c.seats_taken,
            departures.c.cancelling,
        )
        .join_from(departures, experiences, same)
        .where(
            departures.c.organization_id == bindparam("organization_id", type_=Id),
            in_rows(dialect, departures.c.id, "wanted", "id"),
        )
    )


_OFFERED = Statement(_offered)


def offered(tx: Tx, organization_id: str, departure_ids: Sequence[str]) -> dict[str, Offered]:
    """Return what those departures are of, by their ids."""
    wanted = as_json({"id": each} for each in departure_ids)
    found = map(Offered._make, tx.all(_OFFERED, organization_id=organization_id, wanted=wanted))
    return {each.departure_id: each for each in found}


def count_live(tx: Tx, organization_id: str, departure_id: str) -> int:
    """How many pending and confirmed bookings a departure has; exact while the departure is held."""
    row = tx.first(_COUNT_LIVE, organization_id=organization_id, departure_id=departure_id)
    assert row is not None
    return int(row[0])


class Participants(NamedTuple):
    """How many participants of a departure are certain, and how many bookings may still add to them."""

    seats_confirmed: int
    bookings_pending: int


_CONFIRMED_SEATS = func.coalesce(func.sum(bookings.c.seats).filter(_CONFIRMED), 0)
_COUNT_PARTICIPANTS = Statement(select(_CONFIRMED_SEATS, func.count().filter(_PENDING)).where(_OF_DEPARTURE))


def count_participants(tx: Tx, organization_id: str, departure_id: str) -> Participants:
    """Count the seats of confirmed bookings and the pending bookings of a departure. While the departure is held, no
    booking can become pending."""
    row = tx.first(_COUNT_PARTICIPANTS, organization_id=organization_id, departure_id=departure_id)
    assert row is not None
    return Participants(int(row[0]), int(row[1]))


_CANCELLING_REASON = Statement(
    select(departures.c.cancelling).where(
        departures.c.organization_id == bindparam("organization_id", type_=Id),
        departures.c.id == bindparam("departure_id", type_=Id),
        departures.c.cancelling.is_not(None),
    )
)


def cancelling_reason(tx: Tx, organization_id: str, departure_id: str) -> str | None:
    """Return why the bookings of a cancelled departure are being cancelled; none when that is done, or never began."""
    row = tx.first(_CANCELLING_REASON, organization_id=organization_id, departure_id=departure_id)
    return str(row[0]) if row else None


def _get_many(dialect: Dialect) -> Any:
    mine = bookings.c.organization_id == bindparam("organization_id", type_=Id)
    return _joined(select(bookings).where(mine, in_rows(dialect, bookings.c.id, "wanted", "id")).subquery("page"))


_GET_MANY = Statement(_get_many)


def get_many(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> dict[str, BookingRow]:
    """The bookings of those ids."""
    wanted = as_json({"id": each} for each in booking_ids)
    found = map(BookingRow._make, tx.all(_GET_MANY, organization_id=organization_id, wanted=wanted))
    return {row.id: row for row in found}


class Cancelling(NamedTuple):
    """A departure whose bookings are to be cancelled, and of whom it is."""

    departure_id: str
    reason: str
    organization: Organization


_CANCELLING = Statement(
    select(departures.c.id, departures.c.cancelling, *organizations.COLUMNS)
    .join_from(departures, tables.organizations, tables.organizations.c.id == departures.c.organization_id)
    .where(departures.c.cancelling.is_not(None), departures.c.status == literal_column("'cancelled'"))
    .order_by(departures.c.starts_at)
    .limit(1)
)


def next_cancelling(tx: Tx) -> Cancelling | None:
    """A cancelled departure that still has bookings, the next to start."""
    row = tx.first(_CANCELLING)
    return Cancelling(row[0], row[1], organizations.from_row(row[2:])) if row else None


class ClosedForBooking(NamedTuple):
    """A departure whose booking has closed, and how many participants it needs to run."""

    departure_id: str
    min_participants: int
    organization: Organization


def _closed_for_booking(dialect: Dialect) -> Select[Any]:
    """Departures that are to be counted, whoever has booked them."""
    owner = tables.organizations
    lead = func.coalesce(experiences.c.hours_before_booking_closes, owner.c.hours_before_booking_closes)
    now, start = now_us(dialect), departures.c.starts_at
    offered = and_(
        experiences.c.organization_id == departures.c.organization_id, experiences.c.id == departures.c.experience_id
    )
    return (
        select(departures.c.organization_id, departures.c.id, start, experiences.c.min_participants)
        .join_from(owner, departures, departures.c.organization_id == owner.c.id)
        .join(experiences, offered)
        .where(
            owner.c.cancel_under_minimum,
            start > now - bindparam("grace", type_=BigInteger),
            start - lead * literal_column(str(HOUR), type_=BigInteger) <= now,
            departures.c.status != literal_column("'cancelled'"),
            departures.c.minimum_checked_at.is_(None),
            experiences.c.min_participants.is_not(None),
        )
    )


def _can_be_counted(dialect: Dialect) -> Any:
    # Materialized, so that PostgreSQL begins with the organizations that have it on, and not with every departure.
    closed = _closed_for_booking(dialect).cte("closed").prefix_with("MATERIALIZED")
    owner, live = (
        tables.organizations,
        and_(bookings.c.organization_id == closed.c.organization_id, bookings.c.departure_id == closed.c.id, _LIVE),
    )
    confirmed = select(_CONFIRMED_SEATS).where(live).correlate(closed).scalar_subquery()
    pending = select(func.count()).where(live, _PENDING).correlate(closed).scalar_subquery()
    return (
        select(closed.c.id, closed.c.min_participants, *organizations.COLUMNS)
        .join_from(closed, owner, owner.c.id == closed.c.organization_id)
        .where(or_(closed.c.min_participants <= confirmed, pending == 0))
        .order_by(closed.c.starts_at, closed.c.id)
        .limit(1)
    )


_CAN_BE_COUNTED = Statement(_can_be_counted)


def next_closed(tx: Tx, *, grace: int) -> ClosedForBooking | None:
    """Return a departure whose booking has closed and whose participants can be counted: enough are confirmed, or no
    booking is pending. None that began longer ago than `grace`."""
    row = tx.first(_CAN_BE_COUNTED, grace=grace)
    return ClosedForBooking(row[0], row[1], organizations.from_row(row[2:])) if row else None

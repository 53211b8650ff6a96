"""SQL statements of bookings."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
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
    case,
    func,
    literal_column,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy.engine import Dialect

from booking_core import organizations
from booking_core.bookings.rules import BookingRow, LockedDeparture
from booking_core.clock import END_OF_TIME, HOUR
from booking_core.context import Organization
from booking_core.db import tables
from booking_core.db.due import NIL_ID, DueRow, DueRows, Page
from booking_core.db.engine import Query, Row, Tx
from booking_core.db.paging import KeysetList
from booking_core.db.statements import Statement, as_json, in_rows, now_us, rows_parameter
from booking_core.db.tables import Id, bookings, customers, departures, experiences, holds, idempotency, timeline
from booking_core.db.unit_of_work import Update
from booking_core.departures import select_seats_held
from booking_core.idempotency import has_lock
from booking_core.models.pages import Order

TAKE_SEATS = Update("take_seats", departures, sets=("updated_at",), adds=("seats_taken",))
"""A negative number gives seats back. The check of the table refuses more seats than the ceiling."""

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
"""Includes the seats of the bookings that are cancelled with it, because a transaction writes a row once."""
CHECK_MINIMUM = Update("check_minimum", departures, sets=("minimum_checked_at",))

_COLUMNS: dict[str, Any] = {
    "experience_title": experiences.c.title,
    "experience_slug": experiences.c.slug,
    "starts_at": departures.c.starts_at,
    "ends_at": departures.c.ends_at,
    "duration_minutes": experiences.c.duration_minutes,
}


def _joined(page: FromClause) -> Select[Any]:
    """Select `BookingRow`s: bookings joined with their departures and experiences."""
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
# Found through the customer's timeline, which has an entry for each booking: an index of bookings by customer would
# slow down every insert of a booking.
_BOOKED_BY = (
    select(timeline.c.organization_id, timeline.c.booking_id.label("id"))
    .join_from(
        customers,
        timeline,
        and_(timeline.c.organization_id == customers.c.organization_id, timeline.c.customer_id == customers.c.id),
    )
    .where(_HAS_ADDRESS, timeline.c.kind == literal_column("'booking_created'"))
)
# coalesce() keeps SQLite from using the equality in the other direction. It might then reverse the join and read all
# bookings of an organization.
_ON_DEPARTURE = and_(
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
        "window": select(*_KEY).join_from(departures, bookings, _ON_DEPARTURE).where(_DEPARTS),
        # Sorted as in its index, so that PostgreSQL does not search the first rows in the table itself.
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


# Search -------------------------------------------------------------------------------------------------------

SLICE = 2_000
"""Bookings whose texts one statement reads, in a few milliseconds."""

_CUSTOMER = Statement(select(customers.c.id).where(_HAS_ADDRESS))
_ID_OF_NUMBER = Statement(
    _OWN.with_only_columns(bookings.c.id).where(bookings.c.booking_number == bindparam("number", type_=BigInteger))
)


def has_customer(tx: Tx, organization_id: str, email_key: str) -> bool:
    """Return whether a customer record has this address."""
    return tx.first(_CUSTOMER, organization_id=organization_id, email_key=email_key) is not None


def id_of_number(tx: Tx, organization_id: str, number: int) -> str | None:
    """Return the id of the booking with this number."""
    row = tx.first(_ID_OF_NUMBER, organization_id=organization_id, number=number)
    return str(row[0]) if row else None


class SearchTexts(NamedTuple):
    """The texts of a booking that are searched without an index, after its position in the list."""

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
    columns = [bookings.c[name] for name in SearchTexts._fields]
    place = [column if order is Order.ASC else column.desc() for column in columns[:2]]
    # A literal limit: for a parameter PostgreSQL plans for a tenth of the table.
    limit: ColumnElement[int] = literal_column(str(SLICE))
    return Statement(_OWN.with_only_columns(*columns).where(*conditions).order_by(*place).limit(limit))


def texts(
    tx: Tx, organization_id: str, *, order: Order, after: tuple[int, str] | None, filters: Mapping[str, Any]
) -> list[SearchTexts]:
    """Return the searched texts of the next bookings that pass the filters of `LIST`, at most `SLICE`."""
    parameters: dict[str, Any] = {"organization_id": organization_id}
    for name, value in filters.items():
        parameters |= value if isinstance(value, dict) else {name: value}
    if after is not None:
        parameters["after_created_at"], parameters["after_id"] = after
    statement = _texts(order, after is not None, tuple(sorted(filters)))
    return [SearchTexts._make(row) for row in tx.all(statement, **parameters)]


class BookingDetails(NamedTuple):
    """The columns of a locked booking that are not shown."""

    id: str
    customer_id: str | None
    seats: int
    send_confirmation_email: bool
    notify_staff: bool
    cancel_reason: str | None
    recorded_minor: int
    """The sum of the payments that staff recorded."""


def lock(tx: Tx, organization_id: str, booking_id: str) -> BookingDetails | None:
    """Lock a booking until the transaction ends, and return its details."""
    row = tx.first(_LOCK, organization_id=organization_id, id=booking_id)
    return BookingDetails._make(row) if row else None


_HAS_BOOKING = (
    select(bookings.c.id)
    .where(bookings.c.organization_id == tables.organizations.c.id, bookings.c.id == bindparam("id", type_=Id))
    .correlate(tables.organizations)
)
_ORGANIZATION_OF = Statement(select(*organizations.COLUMNS).where(_HAS_BOOKING.exists()))


def organization_of(tx: Tx, booking_id: str) -> Organization | None:
    """Return the organization that a booking belongs to.

    Costs one look-up for each organization, because no index begins with the id of a booking.
    """
    row = tx.first(_ORGANIZATION_OF, id=booking_id)
    return organizations.from_row(row) if row else None


def _lock_departures(dialect: Dialect, wanted: FromClause, *, skip_locked: bool = False) -> Any:
    locked = (
        select(departures)
        .where(departures.c.organization_id == wanted.c.organization_id, departures.c.id == wanted.c.id)
        .order_by(departures.c.organization_id, departures.c.id)
        .with_for_update(key_share=True, of=departures, skip_locked=skip_locked)
        .cte("locked")
    )
    columns = (locked.c[name] if name in departures.c else experiences.c[name] for name in LockedDeparture._fields)
    return select(*columns).join_from(
        locked,
        experiences,
        and_(experiences.c.organization_id == locked.c.organization_id, experiences.c.id == locked.c.experience_id),
    )


_DEPARTURE_KEY: Mapping[str, Any] = {"organization_id": Id, "id": Id}


def _with_key_held(dialect: Dialect, *, skip_locked: bool) -> Any:
    """Lock the departures of the requests whose idempotency key this transaction has locked.

    A request whose key is in use is refused at once, and does not wait for the departure that the other request locks.
    """
    wanted = rows_parameter(dialect, "wanted", {**_DEPARTURE_KEY, "lock": Text}).c
    keys = select(wanted.organization_id, wanted.id).distinct()
    held = keys.where(has_lock(wanted.lock)) if dialect.name == "postgresql" else keys
    return _lock_departures(dialect, held.subquery("held"), skip_locked=skip_locked)


_LOCK_DEPARTURES = Statement(
    lambda dialect: _lock_departures(dialect, rows_parameter(dialect, "wanted", _DEPARTURE_KEY))
)
_LOCK_WITH_KEY_HELD = Statement(partial(_with_key_held, skip_locked=False))
_TRY_WITH_KEY_HELD = Statement(partial(_with_key_held, skip_locked=True))


def _existing(dialect: Dialect) -> Any:
    wanted = rows_parameter(dialect, "wanted", _DEPARTURE_KEY).c
    key = and_(departures.c.organization_id == wanted.organization_id, departures.c.id == wanted.id)
    return select(departures.c.organization_id, departures.c.id).join_from(wanted.id.table, departures, key)


_EXISTING = Statement(_existing)
_LIMIT_LOCK_WAIT = Statement(select(func.set_config("lock_timeout", bindparam("timeout", type_=Text), true())))


def lock_departures(tx: Tx, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], LockedDeparture]:
    """Lock departures by (organization id, id) in sorted order until the transaction ends, and return them by key."""
    keys = as_json(
        {"organization_id": organization_id, "id": row_id} for organization_id, row_id in sorted(set(wanted))
    )
    return _by_key(tx.all(_LOCK_DEPARTURES, wanted=keys))


def departures_query(
    wanted: Iterable[tuple[tuple[str, str], str]], *, blocking: bool
) -> Query[dict[tuple[str, str], LockedDeparture]]:
    """Return the query that locks departures by ((organization id, id), name of the idempotency lock).

    Args:
        blocking: wait for departures that another transaction has locked. They are left out otherwise.
    """
    keys = ({"organization_id": key[0], "id": key[1], "lock": lock} for key, lock in wanted)
    return Query(_LOCK_WITH_KEY_HELD if blocking else _TRY_WITH_KEY_HELD, {"wanted": as_json(keys)}, _by_key)


def existing_departures(tx: Tx, wanted: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return those of the departures, by (organization id, id), that exist, without a lock."""
    keys = as_json({"organization_id": organization_id, "id": row_id} for organization_id, row_id in wanted)
    return frozenset((str(organization_id), str(row_id)) for organization_id, row_id in tx.all(_EXISTING, wanted=keys))


def lock_wait_query(dialect: Dialect, seconds: float) -> Query[None]:
    """Return the query that limits how long each statement of the transaction waits for a lock."""
    timeout = f"{max(1, round(seconds * 1000))}ms"
    return Query(None if dialect.name == "sqlite" else _LIMIT_LOCK_WAIT, {"timeout": timeout}, lambda _: None)


def _by_key(found: Iterable[Row]) -> dict[tuple[str, str], LockedDeparture]:
    return {(row.organization_id, row.id): row for row in map(LockedDeparture._make, found)}


class BatchContext(NamedTuple):
    """The other data that a request of a batch depends on, read while its departure is locked."""

    position: int
    at: int
    fingerprint: str | None
    status: int | None
    body_sealed: str | None
    seats_held: int
    customer_id: str | None


def _batch_contexts(dialect: Dialect) -> Any:
    kinds: Mapping[str, Any] = {"i": Integer, "organization_id": Id, "key": Text, "departure_id": Id, "email_key": Text}
    wanted = rows_parameter(dialect, "wanted", kinds).c
    held = select_seats_held(wanted.organization_id, wanted.departure_id, now_us(dialect))
    stored = and_(idempotency.c.organization_id == wanted.organization_id, idempotency.c.key == wanted.key)
    known = and_(customers.c.organization_id == wanted.organization_id, customers.c.email_key == wanted.email_key)
    return (
        select(
            wanted.i,
            now_us(dialect),
            idempotency.c.fingerprint,
            idempotency.c.status,
            idempotency.c.body_sealed,
            held.correlate(wanted.i.table).scalar_subquery(),
            customers.c.id,
        )
        .select_from(wanted.i.table)
        .join(tables.idempotency, stored, isouter=True)
        .join(tables.customers, known, isouter=True)
    )


_BATCH_CONTEXTS = Statement(_batch_contexts)


def contexts_query(wanted: Iterable[Mapping[str, object]]) -> Query[dict[int, BatchContext]]:
    """Return the query for the contexts by position: clock, stored answer of the key, held seats and known customer.

    It is one statement, because round trips limit the speed of a batch. It comes after the locks, because only a later
    snapshot has the changes of their previous holders.
    """
    return Query(_BATCH_CONTEXTS, {"wanted": as_json(wanted)}, _by_position)


def _by_position(found: Iterable[Row]) -> dict[int, BatchContext]:
    return {row.position: row for row in map(BatchContext._make, found)}


# Single bookings -------------------------------------------------------------------------------------------------


class BookingContext(NamedTuple):
    """The other data that a single booking depends on, read while its departure is locked."""

    at: int
    seats_held: int
    customer_id: str | None


def _context(dialect: Dialect) -> Any:
    organization_id = bindparam("organization_id", type_=Id)
    departure_id = bindparam("departure_id", type_=Id)
    other_holds = holds.c.id.is_distinct_from(bindparam("hold_id", type_=Id))
    held = select_seats_held(organization_id, departure_id, now_us(dialect)).where(other_holds)
    known = select(customers.c.id).where(
        customers.c.organization_id == organization_id, customers.c.email_key == bindparam("email_key", type_=Text)
    )
    return select(now_us(dialect), held.scalar_subquery(), known.scalar_subquery())


_CONTEXT = Statement(_context)


def get_context(
    tx: Tx, organization_id: str, departure_id: str, *, email_key: str | None = None, hold_id: str | None = None
) -> BookingContext:
    """Return the clock, the seats of live holds other than `hold_id`, and the customer with this address."""
    row = tx.first(
        _CONTEXT, organization_id=organization_id, departure_id=departure_id, email_key=email_key, hold_id=hold_id
    )
    assert row is not None
    return BookingContext._make(row)


# Expiry and cancellation -----------------------------------------------------------------------------------------

# Literal, as in the partial index: PostgreSQL does not match the index with a parameter.
_PENDING = bookings.c.status == literal_column("'pending'")
_CONFIRMED = bookings.c.status == literal_column("'confirmed'")
_LIVE = bookings.c.status.in_([literal_column("'pending'"), literal_column("'confirmed'")])
_LIMIT = bindparam("limit", type_=Integer)


EXPIRED = DueRows(bookings, bookings.c.expires_at, bookings.c.id, lambda _: (_PENDING,))


def _lock_expired(dialect: Dialect) -> Any:
    """Build the statement that locks expired bookings, and skips those of a payment in progress."""
    mine = bookings.c.organization_id == bindparam("organization_id", type_=Id)
    due = (mine, _PENDING, bookings.c.expires_at <= now_us(dialect), in_rows(dialect, bookings.c.id, "wanted", "id"))
    return select(*_LOCKED).where(*due).order_by(bookings.c.id).with_for_update(key_share=True, skip_locked=True)


_LOCK_EXPIRED = Statement(_lock_expired)


def lock_expired(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> list[BookingDetails]:
    """Lock those of the bookings that are still pending and expired, by id, and skip locked ones."""
    wanted = as_json({"id": each} for each in booking_ids)
    found = tx.all(_LOCK_EXPIRED, organization_id=organization_id, wanted=wanted)
    return [BookingDetails._make(row) for row in found]


def _try_lock_departures(dialect: Dialect) -> Any:
    mine = departures.c.organization_id == bindparam("organization_id", type_=Id)
    wanted = select(departures.c.id).where(mine, in_rows(dialect, departures.c.id, "wanted", "id"))
    return wanted.order_by(departures.c.id).with_for_update(key_share=True, skip_locked=True)


_TRY_LOCK_DEPARTURES = Statement(_try_lock_departures)


def try_lock_departures(tx: Tx, organization_id: str, departure_ids: Iterable[str]) -> set[str]:
    """Lock departures that no other transaction has locked, and return their ids."""
    wanted = as_json({"id": each} for each in sorted(set(departure_ids)))
    return {row[0] for row in tx.all(_TRY_LOCK_DEPARTURES, organization_id=organization_id, wanted=wanted)}


_OF_DEPARTURE = and_(
    bookings.c.organization_id == bindparam("organization_id", type_=Id),
    bookings.c.departure_id == bindparam("departure_id", type_=Id),
    _LIVE,
)
_LOCK_LIVE = Statement(
    select(*_LOCKED).where(_OF_DEPARTURE).order_by(bookings.c.id).limit(_LIMIT).with_for_update(key_share=True)
)
_COUNT_LIVE = Statement(select(func.count()).select_from(bookings).where(_OF_DEPARTURE))


def lock_live(tx: Tx, organization_id: str, departure_id: str, limit: int) -> list[BookingDetails]:
    """Lock the pending and confirmed bookings of a departure, in the order of their ids."""
    found = tx.all(_LOCK_LIVE, organization_id=organization_id, departure_id=departure_id, limit=limit)
    return [BookingDetails._make(row) for row in found]


_SHOWN_LIVE = Statement(_joined(select(bookings).where(_OF_DEPARTURE).subquery("page")))


def find_live(tx: Tx, organization_id: str, departure_id: str) -> list[BookingRow]:
    """Return the pending and confirmed bookings of a departure."""
    found = tx.all(_SHOWN_LIVE, organization_id=organization_id, departure_id=departure_id)
    return [BookingRow._make(row) for row in found]


_RECORDED = Statement(
    select(bookings.c.id, bookings.c.recorded_minor).where(
        _OF_DEPARTURE, bookings.c.recorded_minor > literal_column("0")
    )
)


def recorded_amounts(tx: Tx, organization_id: str, departure_id: str) -> dict[str, int]:
    """Return the sums of recorded payments of the pending and confirmed bookings of a departure, by booking id."""
    found = tx.all(_RECORDED, organization_id=organization_id, departure_id=departure_id)
    return {str(booking_id): int(amount) for booking_id, amount in found}


class StatusCount(NamedTuple):
    """The number of bookings of a departure with a status, and their seats."""

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


def count_by_status(tx: Tx, organization_id: str, departure_ids: Sequence[str]) -> list[StatusCount]:
    """Count the bookings of departures by status."""
    wanted = as_json({"id": each} for each in departure_ids)
    return [StatusCount._make(row) for row in tx.all(_COUNT_BY_STATUS, organization_id=organization_id, wanted=wanted)]


class DepartureDetails(NamedTuple):
    """The experience and the sold seats of a departure, and the reason while its bookings are being cancelled."""

    departure_id: str
    experience_id: str
    title: str
    slug: str
    seats_taken: int
    cancelling: str | None


def _departure_details(dialect: Dialect) -> Any:
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


_DEPARTURE_DETAILS = Statement(_departure_details)


def departure_details(tx: Tx, organization_id: str, departure_ids: Sequence[str]) -> dict[str, DepartureDetails]:
    """Return the details of departures by their ids."""
    wanted = as_json({"id": each} for each in departure_ids)
    found = map(DepartureDetails._make, tx.all(_DEPARTURE_DETAILS, organization_id=organization_id, wanted=wanted))
    return {each.departure_id: each for each in found}


def count_live(tx: Tx, organization_id: str, departure_id: str) -> int:
    """Count the pending and confirmed bookings of a departure. The count is stable while the departure is locked."""
    row = tx.first(_COUNT_LIVE, organization_id=organization_id, departure_id=departure_id)
    assert row is not None
    return int(row[0])


class ParticipantCount(NamedTuple):
    """The confirmed participants of a departure, and the pending bookings that may add to them."""

    seats_confirmed: int
    bookings_pending: int


_CONFIRMED_SEATS = func.coalesce(func.sum(bookings.c.seats).filter(_CONFIRMED), 0)
_COUNT_PARTICIPANTS = Statement(select(_CONFIRMED_SEATS, func.count().filter(_PENDING)).where(_OF_DEPARTURE))


def count_participants(tx: Tx, organization_id: str, departure_id: str) -> ParticipantCount:
    """Count the seats of confirmed bookings, and the pending bookings, of a departure.

    No booking can become pending while the departure is locked.
    """
    row = tx.first(_COUNT_PARTICIPANTS, organization_id=organization_id, departure_id=departure_id)
    assert row is not None
    return ParticipantCount(int(row[0]), int(row[1]))


_CANCELLING_REASON = Statement(
    select(departures.c.cancelling).where(
        departures.c.organization_id == bindparam("organization_id", type_=Id),
        departures.c.id == bindparam("departure_id", type_=Id),
        departures.c.cancelling.is_not(None),
    )
)


def cancelling_reason(tx: Tx, organization_id: str, departure_id: str) -> str | None:
    """Return the reason while the bookings of a cancelled departure are being cancelled, else None."""
    row = tx.first(_CANCELLING_REASON, organization_id=organization_id, departure_id=departure_id)
    return str(row[0]) if row else None


def _get_many(dialect: Dialect) -> Any:
    mine = bookings.c.organization_id == bindparam("organization_id", type_=Id)
    return _joined(select(bookings).where(mine, in_rows(dialect, bookings.c.id, "wanted", "id")).subquery("page"))


_GET_MANY = Statement(_get_many)


def get_many(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> dict[str, BookingRow]:
    """Return bookings by their ids."""
    wanted = as_json({"id": each} for each in booking_ids)
    found = map(BookingRow._make, tx.all(_GET_MANY, organization_id=organization_id, wanted=wanted))
    return {row.id: row for row in found}


_IS_CANCELLING = (departures.c.cancelling.is_not(None), departures.c.status == literal_column("'cancelled'"))
CANCELLING = DueRows(
    departures,
    departures.c.starts_at,
    departures.c.id,
    lambda _: _IS_CANCELLING,
    ahead=END_OF_TIME,
)
"""Cancelled departures with bookings that are still to be cancelled, the first to start first, also in the future."""

# Minimum of participants -----------------------------------------------------------------------------------------


class ClosedDeparture(NamedTuple):
    """A departure that has closed for booking and whose minimum of participants is due to be checked."""

    starts_at: int
    id: str
    min_participants: int | None
    is_due: bool
    """False: it is none, or nothing can be decided yet."""


def _organizations_with_minimum(_: Dialect) -> Any:
    owner = tables.organizations.c
    behind = owner.id > bindparam("after", type_=Id)
    return select(owner.id, owner.cancel_under_minimum).where(behind).order_by(owner.id).limit(_LIMIT)


def _window(dialect: Dialect) -> Select[Any]:
    """Select a page of the departures of an organization that start within its longest lead, along their index."""
    mine, start = departures.c.organization_id == bindparam("organization_id", type_=Id), departures.c.starts_at
    now = select(now_us(dialect)).scalar_subquery()
    lead = func.coalesce(experiences.c.hours_before_booking_closes, tables.organizations.c.hours_before_booking_closes)
    longest = (
        select(func.max(lead) * literal_column(str(HOUR), type_=BigInteger))
        .join_from(experiences, tables.organizations, tables.organizations.c.id == experiences.c.organization_id)
        .where(
            experiences.c.organization_id == bindparam("organization_id", type_=Id),
            experiences.c.min_participants.is_not(None),
        )
        .scalar_subquery()
    )
    after = tuple_(bindparam("after_at", type_=BigInteger), bindparam("after_id", type_=Id))
    return (
        select(departures)
        .where(
            mine,
            start > now - bindparam("grace", type_=BigInteger),
            start <= now + longest,
            tuple_(start, departures.c.id) > after,
        )
        .order_by(start, departures.c.id)
        .limit(_LIMIT)
    )


def _closed(dialect: Dialect) -> Any:
    """Select the page, each departure with its minimum and whether it can be decided: enough confirmed seats, or no
    pending booking. Only the departures of the page that are unchecked are counted."""
    page, owner = _window(dialect).cte("page").prefix_with("MATERIALIZED"), tables.organizations
    lead = func.coalesce(experiences.c.hours_before_booking_closes, owner.c.hours_before_booking_closes)
    live = and_(bookings.c.organization_id == page.c.organization_id, bookings.c.departure_id == page.c.id, _LIVE)
    confirmed = select(_CONFIRMED_SEATS).where(live).correlate(page).scalar_subquery()
    pending = select(func.count()).where(live, _PENDING).correlate(page).scalar_subquery()
    is_unchecked = and_(
        owner.c.cancel_under_minimum,
        page.c.starts_at - lead * literal_column(str(HOUR), type_=BigInteger) <= now_us(dialect),
        page.c.status != literal_column("'cancelled'"),
        page.c.minimum_checked_at.is_(None),
        experiences.c.min_participants.is_not(None),
    )
    can_be_decided = or_(experiences.c.min_participants <= confirmed, pending == literal_column("0"))
    offered = and_(experiences.c.organization_id == page.c.organization_id, experiences.c.id == page.c.experience_id)
    return (
        select(
            page.c.starts_at,
            page.c.id,
            experiences.c.min_participants,
            case((is_unchecked, can_be_decided), else_=literal_column("false")),
        )
        .join_from(page, experiences, offered)
        .join(owner, owner.c.id == page.c.organization_id)
        .order_by(page.c.starts_at, page.c.id)
    )


_ORGANIZATIONS_WITH_MINIMUM = Statement(_organizations_with_minimum)
_CLOSED = Statement(_closed)
_PAGE = 200
"""Departures of a page: most of them have no minimum, or were checked before."""


class ClosedDepartures:
    """The departures that have closed for booking and whose participants are to be counted.

    Args:
        grace: microseconds after its start at which a departure is left out.
    """

    def __init__(self, grace: int) -> None:
        self._grace = grace

    def organizations(self, tx: Tx, *, after: str, limit: int) -> list[tuple[str, bool]]:
        """Return organizations behind `after`, and whether each cancels departures under their minimum."""
        return [(owner, bool(is_on)) for owner, is_on in tx.all(_ORGANIZATIONS_WITH_MINIMUM, after=after, limit=limit)]

    def find(self, tx: Tx, organization_id: str, *, after: DueRow | None, limit: int) -> Page:
        """Return the departures of the next page that can be decided, at most `limit`."""
        found = self.read(tx, organization_id, after=after, limit=_PAGE)
        due = [row for row in found if row.is_due]
        last = due[limit - 1] if len(due) > limit else found[-1] if len(found) == _PAGE else None
        rows = [DueRow(row.starts_at, row.id) for row in due[:limit]]
        return Page(rows, None if last is None else DueRow(last.starts_at, last.id))

    def read(self, tx: Tx, organization_id: str, *, after: DueRow | None, limit: int) -> list[ClosedDeparture]:
        """Return the next departures in the order of their start, whether they can be decided or not."""
        at, departure_id = after or (0, NIL_ID)
        position = {"after_at": at, "after_id": departure_id}
        found = tx.all(_CLOSED, organization_id=organization_id, grace=self._grace, limit=limit, **position)
        return [ClosedDeparture(row[0], row[1], row[2], bool(row[3])) for row in found]


_MINIMUM = Statement(
    select(experiences.c.min_participants)
    .join_from(
        departures,
        experiences,
        and_(
            experiences.c.organization_id == departures.c.organization_id,
            experiences.c.id == departures.c.experience_id,
        ),
    )
    .where(
        departures.c.organization_id == bindparam("organization_id", type_=Id),
        departures.c.id == bindparam("departure_id", type_=Id),
        departures.c.minimum_checked_at.is_(None),
    )
)


def unchecked_minimum(tx: Tx, organization_id: str, departure_id: str) -> int | None:
    """Return the minimum of participants of a departure that is still to be checked, else None."""
    row = tx.first(_MINIMUM, organization_id=organization_id, departure_id=departure_id)
    return None if row is None or row[0] is None else int(row[0])

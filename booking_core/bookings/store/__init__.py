"""SQL statements of bookings: single rows, the departures that they lock, and the bookings of departures.

`lists` has the statements of the lists and searches, `due` has the statements of the periodic jobs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
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
)
from sqlalchemy.engine import Dialect

from booking_core import payments
from booking_core.base.context import Organization
from booking_core.bookings.rules import BookingRow, LockedDeparture, Reference
from booking_core.catalogue.departures import select_seats_held
from booking_core.db import tables
from booking_core.db.engine import Query, Row, Tx
from booking_core.db.statements import Statement, as_json, in_rows, now_us, rows_from_json, rows_parameter
from booking_core.db.tables import Id, bookings, customers, departures, experiences, holds, idempotency
from booking_core.db.unit_of_work import Update
from booking_core.models.bookings import REFUNDABLE
from booking_core.payments import PaymentRow
from booking_core.records.departure_touches import ANNOUNCE
from booking_core.records.idempotency import has_lock

_OWNER = bindparam("organization_id", type_=Id)
_ID = bindparam("id", type_=Id)
_DEPARTURE_ID = bindparam("departure_id", type_=Id)
LIMIT = bindparam("limit", type_=Integer)
# Literal, as in the partial index: PostgreSQL does not match the index with a parameter.
PENDING = bookings.c.status == literal_column("'pending'")
CONFIRMED = bookings.c.status == literal_column("'confirmed'")
LIVE = bookings.c.status.in_([literal_column("'pending'"), literal_column("'confirmed'")])
OF_EXPERIENCE = and_(
    experiences.c.organization_id == departures.c.organization_id, experiences.c.id == departures.c.experience_id
)

# Bookings -----------------------------------------------------------------------------------------------------------

_COLUMNS: dict[str, Any] = {
    "experience_title": experiences.c.title,
    "experience_slug": experiences.c.slug,
    "starts_at": departures.c.starts_at,
    "ends_at": departures.c.ends_at,
    "duration_minutes": experiences.c.duration_minutes,
}


def joined(page: FromClause) -> Select[Any]:
    """Select `BookingRow`s: bookings joined with their departures and experiences."""
    departed = and_(departures.c.organization_id == page.c.organization_id, departures.c.id == page.c.departure_id)
    offered = and_(experiences.c.organization_id == page.c.organization_id, experiences.c.id == page.c.experience_id)
    columns = (_COLUMNS[name] if name in _COLUMNS else page.c[name] for name in BookingRow._fields)
    return select(*columns).join_from(page, departures, departed).join(experiences, offered)


_RECEIVED: list[ColumnElement[str]] = [literal_column(f"'{status.value}'") for status in sorted(REFUNDABLE)]


def shown(page: FromClause) -> Select[Any]:
    """Select bookings as they are read: `BookingRow`, the sum of the recorded payments, and `PaymentRow` where a
    cancellation would refund something (`rules.has_refundable_payment`)."""
    was_received = or_(page.c.recorded_minor != literal_column("0"), page.c.payment_status.in_(_RECEIVED))
    refundable_id = case((was_received, page.c.id))  # a comparison with null searches nothing
    return payments.with_payment(joined(page).add_columns(page.c.recorded_minor), page, refundable_id)


class ShownBooking(NamedTuple):
    """A booking with the data that decides about its refund after a cancellation."""

    row: BookingRow
    recorded_minor: int
    """The sum of the payments that staff recorded."""
    payment: PaymentRow | None


_WIDTH = len(BookingRow._fields)


def parse_shown(row: Sequence[Any]) -> ShownBooking:
    """Return the booking of a row of `shown`."""
    payment = None if row[_WIDTH + 1] is None else PaymentRow._make(row[_WIDTH + 1 :])
    return ShownBooking(BookingRow._make(row[:_WIDTH]), row[_WIDTH], payment)


OF_OWNER = select(bookings).where(bookings.c.organization_id == _OWNER)
_GET_SHOWN = Statement(shown(OF_OWNER.where(bookings.c.id == _ID).subquery("page")))
LOCKED = (
    bookings.c.id,
    bookings.c.customer_id,
    bookings.c.seats,
    bookings.c.send_confirmation_email,
    bookings.c.notify_staff,
    bookings.c.cancel_reason,
    bookings.c.recorded_minor,
    bookings.c.expires_at,
)
_DETAILS = select(*LOCKED).where(bookings.c.organization_id == _OWNER, bookings.c.id == _ID)
_GET_DETAILS = Statement(_DETAILS)
_LOCK = Statement(_DETAILS.with_for_update(key_share=True))


def get_shown(tx: Tx, organization_id: str, booking_id: str) -> ShownBooking | None:
    """Return a booking as it is read."""
    row = tx.first(_GET_SHOWN, organization_id=organization_id, id=booking_id)
    return parse_shown(row) if row else None


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
    expires_at: int | None


def get_details(tx: Tx, organization_id: str, booking_id: str, *, lock: bool) -> BookingDetails | None:
    """Return the details of a booking, and lock it until the transaction ends if that is wanted."""
    row = tx.first(_LOCK if lock else _GET_DETAILS, organization_id=organization_id, id=booking_id)
    return BookingDetails._make(row) if row else None


def _many(dialect: Dialect) -> FromClause:
    is_own = bookings.c.organization_id == _OWNER
    return select(bookings).where(is_own, in_rows(dialect, bookings.c.id, "wanted", "id")).subquery("page")


_GET_MANY = Statement(lambda dialect: joined(_many(dialect)))
_GET_MANY_SHOWN = Statement(lambda dialect: shown(_many(dialect)))


def get_many(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> dict[str, BookingRow]:
    """Return bookings by their ids."""
    ids = as_json({"id": booking_id} for booking_id in booking_ids)
    rows = map(BookingRow._make, tx.all(_GET_MANY, organization_id=organization_id, wanted=ids))
    return {row.id: row for row in rows}


def get_many_shown(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> dict[str, ShownBooking]:
    """Return bookings as they are read, by their ids."""
    ids = as_json({"id": booking_id} for booking_id in booking_ids)
    results = map(parse_shown, tx.all(_GET_MANY_SHOWN, organization_id=organization_id, wanted=ids))
    return {booking.row.id: booking for booking in results}


# Updates ------------------------------------------------------------------------------------------------------------

TAKE_SEATS = Update("take_seats", departures, sets=("updated_at",), adds=("seats_taken",), merges=(ANNOUNCE,))
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
RECORD = Update(
    "record_payment", bookings, sets=("payment_status", "invoice_due", "updated_at"), adds=("recorded_minor",)
)
MOVE = Update(
    "move_booking",
    bookings,
    sets=("departure_id", "experience_id", "manage_expires_at", "checked_in_at", "no_show_at", "updated_at"),
)
CHANGE_PARTY = Update(
    "change_party",
    bookings,
    sets=(
        *("guests", "add_ons", "seats", "subtotal_minor", "discount_minor", "gift_card_minor", "total_minor"),
        *("payment_method", "payment_source", "payment_status", "invoice_due", "on_site_fee_minor", "updated_at"),
    ),
    adds=("recorded_minor",),
)
ATTEND = Update("attend_booking", bookings, sets=("checked_in_at", "no_show_at", "updated_at"))
CANCEL_DEPARTURE = Update(
    "cancel_departure",
    departures,
    sets=("status", "cancelling", "updated_at"),
    adds=("seats_taken",),
    merges=(ANNOUNCE,),
)
"""Includes the seats of the bookings that are cancelled with it, because a transaction writes a row once."""
CHECK_MINIMUM = Update("check_minimum", departures, sets=("minimum_checked_at",))


# Departures that are booked -----------------------------------------------------------------------------------------


def _lock_departures(dialect: Dialect, keys: FromClause, *, skip_locked: bool = False) -> Any:
    locked = (
        select(departures)
        .where(departures.c.organization_id == keys.c.organization_id, departures.c.id == keys.c.id)
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
    row = rows_parameter(dialect, "wanted", {**_DEPARTURE_KEY, "lock": Text}).c
    keys = select(row.organization_id, row.id).distinct()
    locked_keys = keys.where(has_lock(row.lock)) if dialect.name == "postgresql" else keys
    return _lock_departures(dialect, locked_keys.subquery("held"), skip_locked=skip_locked)


_LOCK_DEPARTURES = Statement(
    lambda dialect: _lock_departures(dialect, rows_parameter(dialect, "wanted", _DEPARTURE_KEY))
)
_LOCK_WITH_KEY_HELD = Statement(partial(_with_key_held, skip_locked=False))
_TRY_WITH_KEY_HELD = Statement(partial(_with_key_held, skip_locked=True))


def _existing(dialect: Dialect) -> Any:
    row = rows_parameter(dialect, "wanted", _DEPARTURE_KEY).c
    key = and_(departures.c.organization_id == row.organization_id, departures.c.id == row.id)
    return select(departures.c.organization_id, departures.c.id).join_from(row.id.table, departures, key)


_EXISTING = Statement(_existing)


def lock_departures(tx: Tx, departure_keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], LockedDeparture]:
    """Lock departures by (organization id, id) in sorted order until the transaction ends, and return them by key."""
    keys = as_json(
        {"organization_id": organization_id, "id": row_id} for organization_id, row_id in sorted(set(departure_keys))
    )
    return _by_key(tx.all(_LOCK_DEPARTURES, wanted=keys))


def departures_query(
    departure_keys: Iterable[tuple[tuple[str, str], str]], *, blocking: bool
) -> Query[dict[tuple[str, str], LockedDeparture]]:
    """Return the query that locks departures by ((organization id, id), name of the idempotency lock).

    Args:
        blocking: wait for departures that another transaction has locked. They are left out otherwise.
    """
    keys = ({"organization_id": key[0], "id": key[1], "lock": lock} for key, lock in departure_keys)
    return Query(_LOCK_WITH_KEY_HELD if blocking else _TRY_WITH_KEY_HELD, {"wanted": as_json(keys)}, _by_key)


def existing_departures(tx: Tx, departure_keys: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return the departures that exist, by (organization id, id), without a lock."""
    keys = as_json({"organization_id": organization_id, "id": row_id} for organization_id, row_id in departure_keys)
    return frozenset((str(organization_id), str(row_id)) for organization_id, row_id in tx.all(_EXISTING, wanted=keys))


def _by_key(rows: Iterable[Row]) -> dict[tuple[str, str], LockedDeparture]:
    return {(row.organization_id, row.id): row for row in map(LockedDeparture._make, rows)}


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
    row = rows_parameter(dialect, "wanted", {**kinds, "ahead": BigInteger}).c
    now = now_us(dialect) + row.ahead  # the clock of a sandbox may be ahead of the others of the batch
    seats_held = select_seats_held(row.organization_id, row.departure_id, now)
    stored = and_(idempotency.c.organization_id == row.organization_id, idempotency.c.key == row.key)
    is_customer = and_(customers.c.organization_id == row.organization_id, customers.c.email_key == row.email_key)
    return (
        select(
            row.i,
            now,
            idempotency.c.fingerprint,
            idempotency.c.status,
            idempotency.c.body_sealed,
            seats_held.correlate(row.i.table).scalar_subquery(),
            customers.c.id,
        )
        .select_from(row.i.table)
        .join(tables.idempotency, stored, isouter=True)
        .join(tables.customers, is_customer, isouter=True)
    )


_BATCH_CONTEXTS = Statement(_batch_contexts)


def contexts_query(keys: Iterable[Mapping[str, object]]) -> Query[dict[int, BatchContext]]:
    """Return the query for the contexts by position: clock, stored answer of the key, held seats and known customer.

    It is one statement, because round trips limit the speed of a batch. It comes after the locks, because only a later
    snapshot has the changes of their previous holders.
    """
    return Query(_BATCH_CONTEXTS, {"wanted": as_json(keys)}, _by_position)


def _by_position(rows: Iterable[Row]) -> dict[int, BatchContext]:
    return {row.position: row for row in map(BatchContext._make, rows)}


class BookingContext(NamedTuple):
    """The other data that a single booking depends on, read while its departure is locked."""

    at: int
    seats_held: int
    customer_id: str | None


_OF_OTHER_HOLDS = holds.c.id.is_distinct_from(bindparam("hold_id", type_=Id))


def _context(dialect: Dialect) -> Any:
    seats_held = select_seats_held(_OWNER, _DEPARTURE_ID, now_us(dialect)).where(_OF_OTHER_HOLDS)
    customer = select(customers.c.id).where(
        customers.c.organization_id == _OWNER, customers.c.email_key == bindparam("email_key", type_=Text)
    )
    return select(now_us(dialect), seats_held.scalar_subquery(), customer.scalar_subquery())


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


# External references that a booking has alone -----------------------------------------------------------------------


# There is no unique index, since most references are not asked to be unique. Requests that ask lock the
# reference, after their departure, and look for it in a later statement. Of several at the same time the first one
# gets it, and the others find its booking.


def _lock_references(dialect: Dialect, *, blocking: bool) -> Any:
    row = rows_from_json(dialect, "wanted", {"organization_id": Id, "text": Text, "lock": Text}).c
    if blocking:  # the row that it returns is void
        is_held: ColumnElement[bool] = func.pg_advisory_xact_lock(
            func.hashtextextended(row.lock, literal_column("0"))
        ).is_not(None)
    else:
        is_held = has_lock(row.lock)
    return select(row.organization_id, row.text, is_held)


_LOCK_REFERENCES = Statement(partial(_lock_references, blocking=True))
_TRY_LOCK_REFERENCES = Statement(partial(_lock_references, blocking=False))


def _taken(dialect: Dialect) -> Any:
    row = rows_parameter(dialect, "wanted", {"organization_id": Id, "text": Text}).c
    same = and_(bookings.c.organization_id == row.organization_id, bookings.c.external_reference == row.text)
    is_taken = select(bookings.c.id).where(same).correlate(row.text.table).exists()
    return select(row.organization_id, row.text).where(is_taken)


_TAKEN_REFERENCES = Statement(_taken)


def references_query(
    dialect: Dialect, references: Collection[Reference], *, blocking: bool
) -> Query[frozenset[Reference]]:
    """Return the query that locks references in sorted order, and returns those that are locked.

    Args:
        blocking: wait for references that another transaction has locked. They are left out otherwise.
    """
    if dialect.name == "sqlite":
        return Query(None, {}, lambda _: frozenset(references))
    rows = as_json(reference._asdict() | {"lock": reference.lock} for reference in sorted(references))
    return Query(
        _LOCK_REFERENCES if blocking else _TRY_LOCK_REFERENCES,
        {"wanted": rows},
        lambda result_rows: frozenset(
            Reference(organization_id, text) for organization_id, text, is_held in result_rows if is_held
        ),
    )


def taken_query(references: Iterable[Reference]) -> Query[frozenset[Reference]]:
    """Return the query for references that a booking has, to be sent after their locks."""
    rows = as_json(reference._asdict() for reference in references)
    return Query(_TAKEN_REFERENCES, {"wanted": rows}, lambda result_rows: frozenset(map(Reference._make, result_rows)))


# The bookings of departures -----------------------------------------------------------------------------------------

_OF_DEPARTURE = and_(
    bookings.c.organization_id == _OWNER,
    bookings.c.departure_id == _DEPARTURE_ID,
    LIVE,
)
_LOCK_LIVE = Statement(
    select(*LOCKED).where(_OF_DEPARTURE).order_by(bookings.c.id).limit(LIMIT).with_for_update(key_share=True)
)
_COUNT_LIVE = Statement(select(func.count()).select_from(bookings).where(_OF_DEPARTURE))


def lock_live(tx: Tx, organization_id: str, departure_id: str, limit: int) -> list[BookingDetails]:
    """Lock the pending and confirmed bookings of a departure, in the order of their ids."""
    rows = tx.all(_LOCK_LIVE, organization_id=organization_id, departure_id=departure_id, limit=limit)
    return [BookingDetails._make(row) for row in rows]


_SHOWN_LIVE = Statement(shown(select(bookings).where(_OF_DEPARTURE).subquery("page")))


def find_live(tx: Tx, organization_id: str, departure_id: str) -> list[ShownBooking]:
    """Return the pending and confirmed bookings of a departure."""
    return list(map(parse_shown, tx.all(_SHOWN_LIVE, organization_id=organization_id, departure_id=departure_id)))


class StatusCount(NamedTuple):
    """The number of bookings of a departure with a status, and their seats."""

    departure_id: str
    status: str
    bookings: int
    seats: int


_COUNT_BY_STATUS = Statement(
    lambda dialect: (
        select(bookings.c.departure_id, bookings.c.status, func.count(), func.sum(bookings.c.seats))
        .where(bookings.c.organization_id == _OWNER, in_rows(dialect, bookings.c.departure_id, "wanted", "id"))
        .group_by(bookings.c.departure_id, bookings.c.status)
    )
)


def count_by_status(tx: Tx, organization_id: str, departure_ids: Sequence[str]) -> list[StatusCount]:
    """Count the bookings of departures by status."""
    ids = as_json({"id": departure_id} for departure_id in departure_ids)
    return [StatusCount._make(row) for row in tx.all(_COUNT_BY_STATUS, organization_id=organization_id, wanted=ids)]


class DepartureDetails(NamedTuple):
    """The experience and the sold seats of a departure, and the reason while its bookings are being cancelled."""

    departure_id: str
    experience_id: str
    title: str
    slug: str
    seats_taken: int
    cancelling: str | None


_DEPARTURE_DETAILS = Statement(
    lambda dialect: (
        select(
            departures.c.id,
            experiences.c.id,
            experiences.c.title,
            experiences.c.slug,
            departures.c.seats_taken,
            departures.c.cancelling,
        )
        .join_from(departures, experiences, OF_EXPERIENCE)
        .where(departures.c.organization_id == _OWNER, in_rows(dialect, departures.c.id, "wanted", "id"))
    )
)


def departure_details(tx: Tx, organization_id: str, departure_ids: Sequence[str]) -> dict[str, DepartureDetails]:
    """Return the details of departures by their ids."""
    ids = as_json({"id": departure_id} for departure_id in departure_ids)
    details = map(DepartureDetails._make, tx.all(_DEPARTURE_DETAILS, organization_id=organization_id, wanted=ids))
    return {detail.departure_id: detail for detail in details}


def count_live(tx: Tx, organization_id: str, departure_id: str) -> int:
    """Count the pending and confirmed bookings of a departure. The count is stable while the departure is locked."""
    row = tx.first(_COUNT_LIVE, organization_id=organization_id, departure_id=departure_id)
    assert row is not None
    return int(row[0])


CONFIRMED_SEATS = func.coalesce(func.sum(bookings.c.seats).filter(CONFIRMED), 0)
_COUNT_PARTICIPANTS = Statement(select(CONFIRMED_SEATS, func.count().filter(PENDING)).where(_OF_DEPARTURE))


def count_participants(tx: Tx, organization_id: str, departure_id: str) -> tuple[int, int]:
    """Return the seats of the confirmed bookings of a departure, and the number of its pending bookings.

    No booking can become pending while the departure is locked.
    """
    row = tx.first(_COUNT_PARTICIPANTS, organization_id=organization_id, departure_id=departure_id)
    assert row is not None
    return int(row[0]), int(row[1])


_CANCELLING_REASON = Statement(
    select(departures.c.cancelling).where(
        departures.c.organization_id == _OWNER,
        departures.c.id == _DEPARTURE_ID,
        departures.c.cancelling.is_not(None),
    )
)


def cancelling_reason(tx: Tx, organization_id: str, departure_id: str) -> str | None:
    """Return the reason while the bookings of a cancelled departure are being cancelled, else None."""
    row = tx.first(_CANCELLING_REASON, organization_id=organization_id, departure_id=departure_id)
    return str(row[0]) if row else None


# Departures without a lock ------------------------------------------------------------------------------------------

_AT = bindparam("at", type_=BigInteger)
_HELD_BY_OTHERS = (
    select_seats_held(departures.c.organization_id, departures.c.id, _AT)
    .where(_OF_OTHER_HOLDS)
    .correlate(departures)
    .scalar_subquery()
)
_READ = (
    select(
        *(departures.c[name] if name in departures.c else experiences.c[name] for name in LockedDeparture._fields),
        _HELD_BY_OTHERS,
    )
    .join_from(departures, experiences, OF_EXPERIENCE)
    .where(departures.c.organization_id == _OWNER)
)
_READ_ONE = Statement(_READ.where(departures.c.id == _ID))
_READ_OFFERED = Statement(
    _READ.where(
        departures.c.experience_id == bindparam("experience_id", type_=Id),
        departures.c.starts_at > _AT,
        departures.c.starts_at < bindparam("before", type_=BigInteger),
        departures.c.status == literal_column("'open'"),
    )
    .order_by(departures.c.starts_at)
    .limit(LIMIT)
)


def read_departure(
    tx: Tx, organization_id: str, departure_id: str, *, at: int, hold_id: str | None = None
) -> tuple[LockedDeparture, int] | None:
    """Return a departure, and the seats that live holds other than `hold_id` keep at an instant, without a lock."""
    row = tx.first(_READ_ONE, organization_id=organization_id, id=departure_id, at=at, hold_id=hold_id)
    return (LockedDeparture._make(row[:-1]), int(row[-1])) if row else None


def find_offered(
    tx: Tx, organization_id: str, experience_id: str, *, at: int, before: int, limit: int
) -> list[tuple[LockedDeparture, int]]:
    """Return the open departures of an experience that start between two instants, each with its held seats at the
    first."""
    window = {"at": at, "before": before, "limit": limit, "hold_id": None}
    rows = tx.all(_READ_OFFERED, organization_id=organization_id, experience_id=experience_id, **window)
    return [(LockedDeparture._make(row[:-1]), int(row[-1])) for row in rows]

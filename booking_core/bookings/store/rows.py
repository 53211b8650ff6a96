"""Single bookings: their columns, their joined row, and their lock."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, FromClause, Integer, Select, and_, bindparam, case, literal_column, or_, select
from sqlalchemy.engine import Dialect

from booking_core import organizations, payments
from booking_core.base.context import Organization
from booking_core.bookings.rules import BookingRow
from booking_core.db import tables
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement, as_json, in_rows
from booking_core.db.tables import Id, bookings, departures, experiences
from booking_core.models.bookings import REFUNDABLE
from booking_core.payments import PaymentRow

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
    wanted = case((was_received, page.c.id))  # a comparison with null searches nothing
    return payments.with_payment(joined(page).add_columns(page.c.recorded_minor), page, wanted)


class ShownBooking(NamedTuple):
    """A booking with what decides about the refund of its cancellation."""

    row: BookingRow
    recorded_minor: int
    """The sum of the payments that staff recorded."""
    payment: PaymentRow | None


_WIDTH = len(BookingRow._fields)


def parse_shown(row: Sequence[Any]) -> ShownBooking:
    """Return the booking of a row of `shown`."""
    payment = None if row[_WIDTH + 1] is None else PaymentRow._make(row[_WIDTH + 1 :])
    return ShownBooking(BookingRow._make(row[:_WIDTH]), row[_WIDTH], payment)


OWN = select(bookings).where(bookings.c.organization_id == bindparam("organization_id", type_=Id))
_GET_SHOWN = Statement(shown(OWN.where(bookings.c.id == bindparam("id", type_=Id)).subquery("page")))
_GET = Statement(joined(OWN.where(bookings.c.id == bindparam("id", type_=Id)).subquery("page")))
LOCKED = (
    bookings.c.id,
    bookings.c.customer_id,
    bookings.c.seats,
    bookings.c.send_confirmation_email,
    bookings.c.notify_staff,
    bookings.c.cancel_reason,
    bookings.c.recorded_minor,
)
_DETAILS = select(*LOCKED).where(
    bookings.c.organization_id == bindparam("organization_id", type_=Id), bookings.c.id == bindparam("id", type_=Id)
)
_GET_DETAILS = Statement(_DETAILS)
_LOCK = Statement(_DETAILS.with_for_update(key_share=True))


def get(tx: Tx, organization_id: str, booking_id: str) -> BookingRow | None:
    row = tx.first(_GET, organization_id=organization_id, id=booking_id)
    return BookingRow._make(row) if row else None


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


def lock(tx: Tx, organization_id: str, booking_id: str) -> BookingDetails | None:
    """Lock a booking until the transaction ends, and return its details."""
    row = tx.first(_LOCK, organization_id=organization_id, id=booking_id)
    return BookingDetails._make(row) if row else None


def get_details(tx: Tx, organization_id: str, booking_id: str) -> BookingDetails | None:
    """Return the details of a booking, without a lock."""
    row = tx.first(_GET_DETAILS, organization_id=organization_id, id=booking_id)
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


# Literal, as in the partial index: PostgreSQL does not match the index with a parameter.
PENDING = bookings.c.status == literal_column("'pending'")
CONFIRMED = bookings.c.status == literal_column("'confirmed'")
LIVE = bookings.c.status.in_([literal_column("'pending'"), literal_column("'confirmed'")])
LIMIT = bindparam("limit", type_=Integer)


def _many(dialect: Dialect) -> FromClause:
    mine = bookings.c.organization_id == bindparam("organization_id", type_=Id)
    return select(bookings).where(mine, in_rows(dialect, bookings.c.id, "wanted", "id")).subquery("page")


_GET_MANY = Statement(lambda dialect: joined(_many(dialect)))
_GET_MANY_SHOWN = Statement(lambda dialect: shown(_many(dialect)))


def get_many(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> dict[str, BookingRow]:
    """Return bookings by their ids."""
    wanted = as_json({"id": each} for each in booking_ids)
    found = map(BookingRow._make, tx.all(_GET_MANY, organization_id=organization_id, wanted=wanted))
    return {row.id: row for row in found}


def get_many_shown(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> dict[str, Row]:
    """Return the rows of `shown` of bookings, by their ids."""
    wanted = as_json({"id": each} for each in booking_ids)
    found = tx.all(_GET_MANY_SHOWN, organization_id=organization_id, wanted=wanted)
    return {str(row[BookingRow._fields.index("id")]): row for row in found}

"""Rows of bookings: read, locked, and the updates that a change makes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, FromClause, Select, case, literal_column, or_, select

from booking_core import payments
from booking_core.bookings.rules import BookingRow
from booking_core.db.engine import Tx
from booking_core.db.statements import OWNER, ROW_ID, Statement, as_ids, columns_of, has_key, in_rows
from booking_core.db.tables import bookings, departures, experiences
from booking_core.db.unit_of_work import Update
from booking_core.models.bookings import REFUNDABLE
from booking_core.payments import PaymentRow
from booking_core.records.departure_touches import ANNOUNCE

COLUMNS = tuple(name for name in BookingRow._fields if name in bookings.c)
"""The columns of the booking itself."""


def joined(page: FromClause) -> Select[Any]:
    """Select `BookingRow`s: bookings joined with their departures and experiences."""
    of_experience = {"experience_title": experiences.c.title, "experience_slug": experiences.c.slug}
    return (
        select(*columns_of(BookingRow._fields, page, departures, experiences, **of_experience))
        .join_from(page, departures, has_key(departures, page, id="departure_id"))
        .join(experiences, has_key(experiences, page, id="experience_id"))
    )


_RECEIVED: list[ColumnElement[str]] = [literal_column(f"'{status.value}'") for status in sorted(REFUNDABLE)]


def select_with_payment(page: FromClause) -> Select[Any]:
    """Select bookings: `BookingRow`, the sum of the recorded payments, and `PaymentRow` where a
    cancellation would refund something (`rules.has_refundable_payment`)."""
    was_received = or_(page.c.recorded_minor != literal_column("0"), page.c.payment_status.in_(_RECEIVED))
    refundable_id = case((was_received, page.c.id))  # a comparison with null searches nothing
    return payments.with_payment(joined(page).add_columns(page.c.recorded_minor), page, refundable_id)


class BookingWithPayment(NamedTuple):
    """A booking with the data that decides about its refund after a cancellation."""

    row: BookingRow
    recorded_minor: int
    """The sum of the payments that staff recorded."""
    payment: PaymentRow | None


_WIDTH = len(BookingRow._fields)


def parse_with_payment(row: Sequence[Any]) -> BookingWithPayment:
    """Return the booking of a row of `select_with_payment`."""
    payment = None if row[_WIDTH + 1] is None else PaymentRow._make(row[_WIDTH + 1 :])
    return BookingWithPayment(BookingRow._make(row[:_WIDTH]), row[_WIDTH], payment)


OF_OWNER = select(bookings).where(bookings.c.organization_id == OWNER)
_GET_WITH_PAYMENT = Statement(select_with_payment(OF_OWNER.where(bookings.c.id == ROW_ID).subquery("page")))


def get_with_payment(tx: Tx, organization_id: str, booking_id: str) -> BookingWithPayment | None:
    """Return a booking as it is read."""
    return tx.first_as(parse_with_payment, _GET_WITH_PAYMENT, organization_id=organization_id, id=booking_id)


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


LOCKED = columns_of(BookingDetails._fields, bookings)
_DETAILS = select(*LOCKED).where(bookings.c.organization_id == OWNER, bookings.c.id == ROW_ID)
_GET_DETAILS = Statement(_DETAILS)
_LOCK = Statement(_DETAILS.with_for_update(key_share=True))


def get_details(tx: Tx, organization_id: str, booking_id: str, *, lock: bool) -> BookingDetails | None:
    """Return the details of a booking, and lock it until the transaction ends if that is wanted."""
    row = tx.first(_LOCK if lock else _GET_DETAILS, organization_id=organization_id, id=booking_id)
    return BookingDetails._make(row) if row else None


_MANY = (
    select(bookings).where(bookings.c.organization_id == OWNER, in_rows(bookings.c.id, "wanted", "id")).subquery("page")
)
_GET_MANY, _GET_MANY_WITH_PAYMENT = Statement(joined(_MANY)), Statement(select_with_payment(_MANY))


def get_many(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> dict[str, BookingRow]:
    """Return bookings by their ids."""
    rows = map(BookingRow._make, tx.all(_GET_MANY, organization_id=organization_id, wanted=as_ids(booking_ids)))
    return {row.id: row for row in rows}


def get_many_with_payment(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> dict[str, BookingWithPayment]:
    """Return bookings as they are read, by their ids."""
    ids = as_ids(booking_ids)
    results = map(parse_with_payment, tx.all(_GET_MANY_WITH_PAYMENT, organization_id=organization_id, wanted=ids))
    return {booking.row.id: booking for booking in results}


TAKE_SEATS = Update("take_seats", departures, sets=("updated_at",), adds=("seats_taken",), merges=(ANNOUNCE,))
"""A negative number gives seats back. The check of the table refuses more seats than the ceiling."""
CANCEL_DEPARTURE = Update(
    "cancel_departure",
    departures,
    sets=("status", "cancelling", "updated_at"),
    adds=("seats_taken",),
    merges=(ANNOUNCE,),
)
"""Includes the seats of the bookings that are cancelled with it, because a transaction writes a row once."""

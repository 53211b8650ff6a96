"""Confirmed bookings that are not fully paid, and their JSON."""

from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Text, bindparam, literal_column, select

from booking_core.base.context import Organization
from booking_core.db.engine import Tx
from booking_core.db.statements import LIMIT, OWNER, Statement, columns_of, has_key
from booking_core.db.tables import bookings, departures, experiences
from booking_core.models.bookings import BookingStatus, PaymentMethod, PaymentStatus
from booking_core.models.money import money_json


class DueBooking(NamedTuple):
    """A confirmed booking that is not paid, or not wholly."""

    id: str
    booking_number: int | None
    guest_name: str | None
    guest_email: str | None
    guest_phone: str | None
    payment_method: str
    payment_source: str
    payment_status: str
    currency: str
    total_minor: int
    recorded_minor: int
    created_at: int
    starts_at: int
    title: str


@lru_cache
def _due(method: PaymentMethod | None, *, overdue: bool) -> Statement:
    unpaid = (literal_column(f"'{status}'", Text) for status in (PaymentStatus.UNPAID, PaymentStatus.PENDING))
    conditions = [
        bookings.c.organization_id == OWNER,
        bookings.c.status == literal_column(f"'{BookingStatus.CONFIRMED}'", Text),
        bookings.c.payment_status.in_(list(unpaid)),
    ]
    if method is not None:
        conditions.append(bookings.c.payment_method == literal_column(f"'{method}'", Text))
    if overdue:
        conditions.append(departures.c.starts_at <= bindparam("at"))
    return Statement(
        select(*columns_of(DueBooking._fields, bookings, departures, experiences))
        .join_from(bookings, departures, has_key(departures, bookings, id="departure_id"))
        .join(experiences, has_key(experiences, bookings, id="experience_id"))
        .where(*conditions)
        .order_by(departures.c.starts_at, bookings.c.id)
        .limit(LIMIT)
    )


def find_due(
    tx: Tx,
    organization: Organization,
    *,
    method: PaymentMethod | None = None,
    overdue: bool = False,
    limit: int,
) -> list[DueBooking]:
    """Return confirmed bookings that are not fully paid, the earliest departure first.

    Args:
        method: only `pay_on_site`, `invoice`, or `card` (confirmed by staff before the card was charged).
        overdue: only bookings whose departure has begun.

    It reads every confirmed booking of the organization. An index of unpaid bookings would slow down every new
    booking, and this list is read by a person now and then.
    """
    parameters: dict[str, Any] = {"at": tx.now()} if overdue else {}
    with tx.without_statement_timeout():
        rows = tx.all(_due(method, overdue=overdue), organization_id=organization.id, limit=limit, **parameters)
    return [DueBooking._make(row) for row in rows]


def present_due(due: DueBooking, organization: Organization, at: int) -> dict[str, Any]:
    """Return the unpaid booking as JSON-ready values, with the unpaid amount."""
    return {
        "id": due.id,
        "booking_number": due.booking_number,
        "customer": {"name": due.guest_name, "email": due.guest_email, "phone": due.guest_phone},
        "experience": due.title,
        "starts_at": organization.zone.iso_or_none(due.starts_at),
        "payment": {"method": due.payment_method, "source": due.payment_source, "status": due.payment_status},
        "total": money_json(due.total_minor, due.currency),
        "paid": money_json(due.recorded_minor, due.currency),
        "left": money_json(due.total_minor - due.recorded_minor, due.currency),
        "is_overdue": due.starts_at <= at,
        "created_at": organization.zone.iso_or_none(due.created_at),
    }

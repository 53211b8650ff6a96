"""Bookings as the API presents them. No storage, no clock."""

from typing import Any, NamedTuple

import orjson

from booking_core.clock import MINUTE, Zone
from booking_core.errors import Conflict
from booking_core.models.bookings import BookingStatus, PaymentSource, PaymentStatus

CREATED = 201
"""HTTP status of the stored answer of a new booking."""


class BookingRow(NamedTuple):
    """The columns of a booking, its departure and its experience that are shown, in the order of every query."""

    created_at: int
    id: str
    booking_number: int | None
    status: str
    source: str | None
    updated_at: int
    experience_id: str
    experience_title: str
    experience_slug: str
    departure_id: str
    starts_at: int
    ends_at: int | None
    duration_minutes: int | None
    guest_name: str | None
    guest_email: str | None
    guest_phone: str | None
    guests: str
    add_ons: str
    currency: str
    subtotal_minor: int
    discount_minor: int
    gift_card_minor: int
    total_minor: int
    payment_method: str
    payment_source: str
    payment_status: str
    note: str | None
    manage_key_id: str | None
    manage_expires_at: int | None
    checked_in_at: int | None = None
    no_show_at: int | None = None
    external_reference: str | None = None
    metadata: str | None = None
    """A JSON object of texts; None: there are none."""


class LockedDeparture(NamedTuple):
    """The columns of a locked departure and its experience that decide whether and at which price it is booked."""

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


def money(amount_minor: int, currency: str) -> dict[str, Any]:
    """Present an amount as in the API."""
    return {"amount_minor": amount_minor, "currency": currency}


def require_live(row: BookingRow) -> None:
    """Check that a booking is not cancelled.

    Raises:
        Conflict: `booking_cancelled`.
    """
    if row.status == BookingStatus.CANCELLED:
        raise Conflict("booking_cancelled", "The booking is cancelled.")


def require_confirmed(row: BookingRow) -> None:
    """Check that a booking is confirmed.

    Raises:
        Conflict: `booking_cancelled` or `booking_pending`.
    """
    require_live(row)
    if row.status == BookingStatus.PENDING:
        raise Conflict("booking_pending", "The booking is not confirmed yet.")


def unpaid_minor(row: BookingRow, recorded_minor: int) -> int:
    """Return the amount that is still due, given the sum of the payments that staff recorded."""
    is_open = row.payment_status in (PaymentStatus.UNPAID, PaymentStatus.PENDING)
    return row.total_minor - recorded_minor if is_open else 0


_REFUNDABLE = frozenset({PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED})
"""Somebody may have refunded a part at the gateway; the rest is refunded with the cancellation."""


def is_paid_by_card(row: BookingRow) -> bool:
    """Return whether the card of the booking was charged, and not all of it was refunded."""
    return row.payment_source == PaymentSource.STRIPE and row.payment_status in _REFUNDABLE


def has_refundable_payment(row: BookingRow, recorded_minor: int) -> bool:
    """Return whether a cancellation refunds the booking's payment by the policy: the card's, or the one that staff
    recorded."""
    return is_paid_by_card(row) or bool(recorded_minor)


_NO_METADATA: dict[str, str] = {}


def present(row: BookingRow, zone: Zone, manage: str | None = None) -> dict[str, Any]:
    """Present the booking as in the API, with `manage_url` last. The lines are stored in their final JSON form."""
    iso, currency = zone.iso, row.currency
    ends_at = row.ends_at if row.ends_at is not None else row.starts_at + (row.duration_minutes or 0) * MINUTE
    return {
        "id": row.id,
        "booking_number": row.booking_number,
        "status": row.status,
        "source": row.source,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "experience": {"id": row.experience_id, "title": row.experience_title, "slug": row.experience_slug},
        "departure": {"id": row.departure_id, "starts_at": iso(row.starts_at), "ends_at": iso(ends_at)},
        "customer": {"name": row.guest_name, "email": row.guest_email, "phone": row.guest_phone},
        "guests": orjson.Fragment(row.guests),
        "add_ons": orjson.Fragment(row.add_ons),
        "totals": {
            "subtotal": money(row.subtotal_minor, currency),
            "discount": money(row.discount_minor, currency),
            "gift_card": money(row.gift_card_minor, currency),
            "total": money(row.total_minor, currency),
        },
        "payment": {"method": row.payment_method, "source": row.payment_source, "status": row.payment_status},
        "note": row.note,
        "checked_in_at": None if row.checked_in_at is None else iso(row.checked_in_at),
        "no_show_at": None if row.no_show_at is None else iso(row.no_show_at),
        "external_reference": row.external_reference,
        "metadata": _NO_METADATA if row.metadata is None else orjson.Fragment(row.metadata),
        "manage_url": manage,
    }


_NO_LINK = b"null}"


def with_link(shown: bytes, manage: str | None) -> bytes:
    """Replace the null `manage_url` at the end of a rendered booking by the guest's link.

    One rendering then serves both the events, which never hold the link, and the response, which does.
    """
    return shown if manage is None else shown[: -len(_NO_LINK)] + orjson.dumps(manage) + b"}"

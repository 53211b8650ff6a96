"""Bookings as the API presents them. No storage, no clock."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import orjson

from booking_core.base.clock import Zone
from booking_core.base.errors import BookingError, Conflict
from booking_core.base.packed_json import packed_json
from booking_core.catalogue import departures
from booking_core.models.bookings import REFUNDABLE, BookingStatus, PaymentSource, PaymentStatus
from booking_core.models.money import money_json

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
    locale: str | None = None
    email_changes: int = 0
    """Changes of the guest's address, which the guest's link depends on."""


class BookingState(Protocol):
    """The columns that decide whether its guest may change a booking, of a row of any query."""

    @property
    def status(self) -> str: ...

    @property
    def starts_at(self) -> int: ...


class LockedDeparture(NamedTuple):
    """The columns of a locked departure and its experience that decide about a booking and its price."""

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


class Reference(NamedTuple):
    """An external reference that no other booking of its organization may have."""

    organization_id: str
    text: str

    @property
    def lock(self) -> str:
        """Return the name of its advisory lock, which no idempotency key has."""
        return f"{self.organization_id}/reference:{self.text}"


def reference_taken() -> Conflict:
    """Return the refusal of a reference that another booking has."""
    return Conflict("external_reference_taken", "A booking has this external reference.", "external_reference")


def ends_at(row: BookingRow | LockedDeparture) -> int:
    """Return the present end of a departure, or of the departure that is booked."""
    return departures.ends_at(row.starts_at, row.ends_at, row.duration_minutes)


def require(refusals: Iterable[BookingError]) -> None:
    """Raise the first of the refusals, if there is one."""
    for refusal in refusals:
        raise refusal


def refusals_of_cancelled(row: BookingState) -> Iterator[Conflict]:
    """Yield the refusal `booking_cancelled` of a cancelled booking."""
    if row.status == BookingStatus.CANCELLED:
        yield Conflict("booking_cancelled", "The booking is cancelled.")


def refusals_of_unconfirmed(row: BookingRow) -> Iterator[Conflict]:
    """Yield the refusal `booking_cancelled` or `booking_pending` of a booking that is not confirmed."""
    yield from refusals_of_cancelled(row)
    if row.status == BookingStatus.PENDING:
        yield Conflict("booking_pending", "The booking is not confirmed yet.")


def unpaid_minor(row: BookingRow, recorded_minor: int) -> int:
    """Return the amount that is still due, given the sum of the payments that staff recorded."""
    is_open = row.payment_status in (PaymentStatus.UNPAID, PaymentStatus.PENDING)
    return row.total_minor - recorded_minor if is_open else 0


def is_paid_by_card(row: BookingRow) -> bool:
    """Return whether the card of the booking was charged, and not all of it was refunded."""
    return row.payment_source == PaymentSource.STRIPE and row.payment_status in REFUNDABLE


def has_refundable_payment(row: BookingRow, recorded_minor: int) -> bool:
    """Return whether a cancellation refunds the booking's payment by the policy: a card payment, or a payment that
    staff recorded."""
    return is_paid_by_card(row) or bool(recorded_minor)


_NO_METADATA = orjson.Fragment("{}")
_RENDERED_MAX = 4_096


@lru_cache(_RENDERED_MAX)
def _totals(currency: str, subtotal: int, discount: int, gift_card: int, total: int) -> orjson.Fragment:
    totals = {
        "subtotal": money_json(subtotal, currency),
        "discount": money_json(discount, currency),
        "gift_card": money_json(gift_card, currency),
        "total": money_json(total, currency),
    }
    return orjson.Fragment(packed_json(totals))


@lru_cache(_RENDERED_MAX)
def _payment(method: str, source: str, status: str) -> orjson.Fragment:
    return orjson.Fragment(packed_json({"method": method, "source": source, "status": status}))


def present(row: BookingRow, zone: Zone, terms: bytes, manage: str | None = None) -> dict[str, Any]:
    """Present the booking as in the API, with `manage_url` last, ready for orjson.

    The lines are stored in their final JSON form, and what many bookings have in common is rendered once.

    Args:
        terms: of a cancellation, as JSON.
    """
    iso, iso_again = zone.iso, zone.iso_again
    ends_at = departures.ends_at(row.starts_at, row.ends_at, row.duration_minutes)
    created = iso(row.created_at)
    return {
        "id": row.id,
        "booking_number": row.booking_number,
        "status": row.status,
        "source": row.source,
        "created_at": created,
        "updated_at": created if row.updated_at == row.created_at else iso(row.updated_at),
        "experience": {"id": row.experience_id, "title": row.experience_title, "slug": row.experience_slug},
        "departure": {"id": row.departure_id, "starts_at": iso_again(row.starts_at), "ends_at": iso_again(ends_at)},
        "customer": {"name": row.guest_name, "email": row.guest_email, "phone": row.guest_phone},
        "guests": orjson.Fragment(row.guests),
        "add_ons": orjson.Fragment(row.add_ons),
        "totals": _totals(row.currency, row.subtotal_minor, row.discount_minor, row.gift_card_minor, row.total_minor),
        "payment": _payment(row.payment_method, row.payment_source, row.payment_status),
        "note": row.note,
        "checked_in_at": None if row.checked_in_at is None else iso(row.checked_in_at),
        "no_show_at": None if row.no_show_at is None else iso(row.no_show_at),
        "external_reference": row.external_reference,
        "metadata": _NO_METADATA if row.metadata is None else orjson.Fragment(row.metadata),
        "locale": row.locale,
        "cancellation": orjson.Fragment(terms),
        "manage_url": manage,
    }


_NO_LINK = b"null}"


def with_link(rendered: bytes, manage: str | None) -> bytes:
    """Add the guest's link to a booking that is rendered as in events: one rendering serves events and response."""
    return b"".join((rendered[: -len(_NO_LINK)], orjson.dumps(manage), b"}"))

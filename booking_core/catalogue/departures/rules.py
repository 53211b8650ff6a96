"""Seats, ends, closing times, status, and windows of days. No storage, no clock."""

from collections.abc import Callable, Mapping
from datetime import date, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from booking_core.base.clock import HOUR, MINUTE, Zone
from booking_core.base.errors import Unprocessable
from booking_core.catalogue.experiences import Tier, advertised_minor, tiers
from booking_core.models.departures import DepartureStatus
from booking_core.models.limits import AVAILABILITY_DAYS_DEFAULT, WINDOW_DAYS_MAX

_OPEN = str(DepartureStatus.OPEN)
_SOLD_OUT = str(DepartureStatus.SOLD_OUT)
_CLOSED = str(DepartureStatus.CLOSED)
_CANCELLED = str(DepartureStatus.CANCELLED)
_LOCAL = len("2026-12-24T10:00:00")
"""The length of a timestamp without its offset."""
_PRICES_MAX = 4096
"""The number of different prices that are kept presented."""


class DepartureRow(NamedTuple):
    """The columns of a departure that are shown, in the order of the query."""

    id: str
    experience_id: str
    starts_at: int
    ends_at: int | None
    status: str
    """The stored status, set by staff: open, closed or cancelled."""
    seats_total: int
    seats_taken: int
    seats_held: int
    price_minor: int | None
    prices: str | None
    price_from_minor: int | None
    price_tiers: str
    currency: str
    duration_minutes: int | None
    hours_before_booking_closes: int | None


def seats_available(total: int, seats_taken: int, seats_held: int) -> int:
    """Return the available seats; 0 where staff lowered the total below the sold seats (decision B3)."""
    return max(0, total - seats_taken - seats_held)


def ends_at(starts_at: int, own_end: int | None, duration_minutes: int | None) -> int:
    """Return the departure's own end, or its start plus the experience's duration in elapsed time (decision B2)."""
    return own_end if own_end is not None else starts_at + (duration_minutes or 0) * MINUTE


def closes_at(starts_at: int, experience_hours: int | None, organization_hours: int) -> int:
    """Return the instant when booking closes, in elapsed hours before the start (decision B2).

    The experience's setting comes before the organization's.
    """
    hours = organization_hours if experience_hours is None else experience_hours
    return starts_at - hours * HOUR


def status(stored: str, closes_at: int, available: int, at: int, *, has_price: bool) -> str:
    """Return the status at an instant, by precedence: cancelled, closed, sold out, open (decision B1).

    Args:
        stored: the status that staff set: open, closed or cancelled.
        has_price: False closes a departure that has neither a price tier nor a price.
    """
    if stored == _CANCELLED:
        return _CANCELLED
    if stored == _CLOSED or at >= closes_at or not has_price:
        return _CLOSED
    return _OPEN if available else _SOLD_OUT


def default_last_day(first: date) -> date:
    """Return the last day of a window that has only a first day. The calendar ends with the year 9999."""
    return first + min(timedelta(days=AVAILABILITY_DAYS_DEFAULT), date.max - first)


def window(zone: Zone, first: date, last: date, *, field: str) -> tuple[int, int]:
    """Return the half-open range of instants that covers the local days from `first` to `last`.

    Raises:
        Unprocessable: `last` is before `first`, or more than 92 days after it (decision L3). The error names `field`.
    """
    if last < first:
        raise Unprocessable.at(field, "The window ends before it begins.", "window_reversed")
    if (last - first).days > WINDOW_DAYS_MAX:
        raise Unprocessable.at(field, f"The window exceeds {WINDOW_DAYS_MAX} days.", "window_too_wide")
    return zone.day_start(first), zone.day_end(last)


def _present_tiers(offered: Mapping[str, Tier], currency: str) -> list[dict[str, Any]]:
    return [
        {
            "id": tier_id,
            "name": tier.label,
            "price": {"amount_minor": tier.price_minor, "currency": currency},
            "seats_per_unit": tier.seats_per_unit,
        }
        for tier_id, tier in offered.items()
    ]


_Prices = tuple[dict[str, Any] | None, list[dict[str, Any]]]
"""The advertised price, and the tiers with their prices at a departure."""


@lru_cache(_PRICES_MAX)
def _present_prices(
    price_tiers: str, price_from: int | None, price_minor: int | None, prices: str | None, currency: str
) -> _Prices:
    """Return the prices of a departure. Those with the same prices, in all responses, share the result: it must not be
    changed."""
    amount = advertised_minor(price_tiers, price_from, price_minor, prices)
    return (
        None if amount is None else {"amount_minor": amount, "currency": currency},
        _present_tiers(tiers(price_tiers, price_from, price_minor, prices), currency),
    )


def presenter(zone: Zone, organization_hours: int, at: int) -> Callable[[tuple[Any, ...]], dict[str, Any]]:
    """Return a function that presents a row of `store.available` as in API v1 section 2, at an instant.

    Rows are unpacked by position and common values are looked up once, because a response has thousands of rows.
    """
    iso, timezone = zone.iso_again, zone.name

    def present(row: tuple[Any, ...]) -> dict[str, Any]:
        (
            departure_id,
            experience_id,
            starts,
            own_end,
            stored_status,
            seats_total,
            seats_taken,
            seats_held,
            price_minor,
            prices,
            price_from,
            price_tiers,
            currency,
            duration_minutes,
            experience_hours,
        ) = row
        closes = closes_at(starts, experience_hours, organization_hours)
        available = seats_available(seats_total, seats_taken, seats_held)
        price, offered = _present_prices(price_tiers, price_from, price_minor, prices, currency)
        starts_at = iso(starts)
        return {
            "id": departure_id,
            "experience_id": experience_id,
            "starts_at": starts_at,
            "starts_at_local": starts_at[:_LOCAL],
            "timezone": timezone,
            "ends_at": iso(ends_at(starts, own_end, duration_minutes)),
            "seats_total": seats_total,
            "seats_available": available,
            "price": price,
            "price_tiers": offered,
            "booking_closes_at": iso(closes),
            "status": status(stored_status, closes, available, at, has_price=bool(offered)),
        }

    return present

"""Seats, ends, closing times, status, and windows of days. No storage, no clock."""

from collections.abc import Callable, Mapping
from datetime import date, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from booking_core.base.clock import HOUR, MINUTE, Zone
from booking_core.base.errors import Unprocessable
from booking_core.base.packed_json import packed_json
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
_RENDERED_MAX = 4096
"""The number of departures that are kept as JSON."""


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


_STARTS_AT = DepartureRow._fields.index("starts_at")
_HOURS_BEFORE_BOOKING_CLOSES = DepartureRow._fields.index("hours_before_booking_closes")


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


def status(stored: str, is_past_closing: bool, available: int, *, has_price: bool) -> str:
    """Return the status at an instant, by precedence: cancelled, closed, sold out, open (decision B1).

    Args:
        stored: the status that staff set: open, closed or cancelled.
        has_price: False closes a departure that has neither a price tier nor a price.
    """
    if stored == _CANCELLED:
        return _CANCELLED
    if stored == _CLOSED or is_past_closing or not has_price:
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
    """Return a function that presents a row of `store.available` as in API v1 section 2, at an instant."""

    def present(row: tuple[Any, ...]) -> dict[str, Any]:
        return _present(row, zone, organization_hours, _is_past_closing(row, organization_hours, at))

    return present


def renderer(zone: Zone, organization_hours: int, at: int) -> Callable[[tuple[Any, ...]], orjson.Fragment]:
    """Return a function that renders what `presenter` presents as JSON."""

    def render(row: tuple[Any, ...]) -> orjson.Fragment:
        return _render(row, zone, organization_hours, _is_past_closing(row, organization_hours, at))

    return render


def _is_past_closing(row: tuple[Any, ...], organization_hours: int, at: int) -> bool:
    return at >= closes_at(row[_STARTS_AT], row[_HOURS_BEFORE_BOOKING_CLOSES], organization_hours)


@lru_cache(_RENDERED_MAX)
def _render(row: tuple[Any, ...], zone: Zone, organization_hours: int, is_past_closing: bool) -> orjson.Fragment:
    """Return a departure as JSON. Most rows of a page are the same as when they were last read."""
    return orjson.Fragment(packed_json(_present(row, zone, organization_hours, is_past_closing)))


def _present(row: tuple[Any, ...], zone: Zone, organization_hours: int, is_past_closing: bool) -> dict[str, Any]:
    """Present a row, which is unpacked by position, because a response has thousands of rows."""
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
    available = seats_available(seats_total, seats_taken, seats_held)
    price, offered = _present_prices(price_tiers, price_from, price_minor, prices, currency)
    starts_at = zone.iso_again(starts)
    return {
        "id": departure_id,
        "experience_id": experience_id,
        "starts_at": starts_at,
        "starts_at_local": starts_at[:_LOCAL],
        "timezone": zone.name,
        "ends_at": zone.iso_again(ends_at(starts, own_end, duration_minutes)),
        "seats_total": seats_total,
        "seats_available": available,
        "price": price,
        "price_tiers": offered,
        "booking_closes_at": zone.iso_again(closes_at(starts, experience_hours, organization_hours)),
        "status": status(stored_status, is_past_closing, available, has_price=bool(offered)),
    }

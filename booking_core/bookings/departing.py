"""Departures as staff sees them: with the bookings they have, and who comes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import orjson

from booking_core import departures
from booking_core.bookings import rules, store
from booking_core.bookings.rules import BookingRow
from booking_core.context import Actor
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingStatus

Shown = dict[str, Any]


def find_departures(
    tx: Tx, actor: Actor, *, date_from: date, date_to: date | None = None, experience_id: str | None = None
) -> list[Shown]:
    """Return the departures of those local days, as `departures.find_available` does, each with its experience and
    the number of its bookings.

    Raises:
        Unprocessable: the window is reversed, or wider than 92 days.
    """
    found = departures.find_available(tx, actor, date_from=date_from, date_to=date_to, experience_id=experience_id)
    return _with_bookings(tx, actor, found["data"])


def get_departure(tx: Tx, actor: Actor, departure_id: str) -> Shown:
    """Return one departure with its experience and the number of its bookings.

    Raises:
        NotFound: the organization has no such departure.
    """
    (shown,) = _with_bookings(tx, actor, [departures.get(tx, actor, departure_id)])
    return shown


def _with_bookings(tx: Tx, actor: Actor, shown: Sequence[Shown]) -> list[Shown]:
    ids = [each["id"] for each in shown]
    if not ids:
        return []
    offered = store.offered(tx, actor.organization.id, ids)
    counts: dict[str, Shown] = {each: dict.fromkeys(map(str, BookingStatus), 0) for each in ids}
    for counted in store.count_by_status(tx, actor.organization.id, ids):
        counts[counted.departure_id][counted.status] = counted.bookings
    return [_shown(each, offered[each["id"]], counts[each["id"]]) for each in shown]


def _shown(departure: Shown, offered: store.Offered, bookings: Shown) -> Shown:
    experience = {"id": offered.experience_id, "title": offered.title, "slug": offered.slug}
    return departure | {
        "experience": experience,
        "seats_sold": offered.seats_taken,
        "bookings": bookings,
        "is_being_cancelled": offered.cancelling is not None,
    }


def live_bookings(tx: Tx, actor: Actor, departure_id: str) -> list[Shown]:
    """Return the pending and confirmed bookings of a departure, as the API shows them, by their numbers."""
    return [_plain(actor, row) for row in _by_number(tx, actor, departure_id)]


def _plain(actor: Actor, row: BookingRow) -> Shown:
    """Return the booking as plain values: its lines, which are stored as JSON, are read."""
    shown: Shown = orjson.loads(orjson.dumps(rules.present(row, actor.organization.zone)))
    return shown


def _by_number(tx: Tx, actor: Actor, departure_id: str) -> list[BookingRow]:
    return sorted(
        store.live(tx, actor.organization.id, departure_id), key=lambda row: (row.booking_number or 0, row.id)
    )


@dataclass(frozen=True, slots=True)
class WithBookings:
    """A departure that still has pending or confirmed bookings."""

    departure_id: str
    bookings: int
    seats: int


def count_live_bookings(tx: Tx, actor: Actor, departure_ids: Sequence[str]) -> list[WithBookings]:
    """Return how many pending and confirmed bookings those departures have; those that have none are left out."""
    bookings: Counter[str] = Counter()
    seats: Counter[str] = Counter()
    for counted in store.count_by_status(tx, actor.organization.id, departure_ids) if departure_ids else ():
        if counted.status != BookingStatus.CANCELLED:
            bookings[counted.departure_id] += counted.bookings
            seats[counted.departure_id] += counted.seats
    return [WithBookings(each, bookings[each], seats[each]) for each in departure_ids if bookings[each]]


def manifest(tx: Tx, actor: Actor, departure_id: str) -> Shown:
    """Return a departure and who comes: its pending and confirmed bookings by the guest's name, each with what is
    still to be paid, and the sums of all.

    Raises:
        NotFound: the organization has no such departure.
    """
    departure = get_departure(tx, actor, departure_id)
    rows = _by_number(tx, actor, departure_id)
    rows.sort(key=lambda row: (row.guest_name or "").casefold())
    recorded = store.recorded(tx, actor.organization.id, departure_id)
    unpaid = [rules.unpaid_minor(row, recorded.get(row.id, 0)) for row in rows]
    data = [_aboard(actor, row, left) for row, left in zip(rows, unpaid, strict=True)]
    return {"departure": departure, "totals": _totals(rows, unpaid), "data": data}


def _aboard(actor: Actor, row: BookingRow, unpaid_minor: int) -> Shown:
    return _plain(actor, row) | {"unpaid": {"amount_minor": unpaid_minor, "currency": row.currency}}


def _totals(rows: Sequence[BookingRow], unpaid_minor: Sequence[int]) -> Shown:
    guests: Counter[str] = Counter()
    add_ons: Counter[str] = Counter()
    unpaid: Counter[str] = Counter()
    for row, left in zip(rows, unpaid_minor, strict=True):
        for line in orjson.loads(row.guests):
            guests[line["tier_label"]] += line["count"]
        for line in orjson.loads(row.add_ons):
            add_ons[line["label"]] += line["count"]
        unpaid[row.currency] += left
    return {
        "bookings": len(rows),
        "guests": dict(guests),
        "add_ons": dict(add_ons),
        "unpaid": [{"amount_minor": amount, "currency": currency} for currency, amount in unpaid.items() if amount],
    }

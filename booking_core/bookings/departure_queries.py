"""Departures as staff sees them: with their bookings and their manifest."""

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

JsonObject = dict[str, Any]


def find_departures(
    tx: Tx, actor: Actor, *, date_from: date, date_to: date | None = None, experience_id: str | None = None
) -> list[JsonObject]:
    """Return the departures of `departures.find_available`, each with its experience and its numbers of bookings.

    Raises:
        Unprocessable: the window is reversed, or wider than 92 days.
    """
    found = departures.find_available(tx, actor, date_from=date_from, date_to=date_to, experience_id=experience_id)
    return _with_bookings(tx, actor, found["data"])


def get_departure(tx: Tx, actor: Actor, departure_id: str) -> JsonObject:
    """Return a departure with its experience and its numbers of bookings.

    Raises:
        NotFound: the organization has no such departure.
    """
    (shown,) = _with_bookings(tx, actor, [departures.get(tx, actor, departure_id)])
    return shown


def _with_bookings(tx: Tx, actor: Actor, shown: Sequence[JsonObject]) -> list[JsonObject]:
    ids = [each["id"] for each in shown]
    if not ids:
        return []
    details = store.departure_details(tx, actor.organization.id, ids)
    counts: dict[str, JsonObject] = {each: dict.fromkeys(map(str, BookingStatus), 0) for each in ids}
    for counted in store.count_by_status(tx, actor.organization.id, ids):
        counts[counted.departure_id][counted.status] = counted.bookings
    return [_shown(each, details[each["id"]], counts[each["id"]]) for each in shown]


def _shown(departure: JsonObject, details: store.DepartureDetails, bookings: JsonObject) -> JsonObject:
    experience = {"id": details.experience_id, "title": details.title, "slug": details.slug}
    return departure | {
        "experience": experience,
        "seats_sold": details.seats_taken,
        "bookings": bookings,
        "is_being_cancelled": details.cancelling is not None,
    }


def live_bookings(tx: Tx, actor: Actor, departure_id: str) -> list[JsonObject]:
    """Return the pending and confirmed bookings of a departure in the shape of the API, sorted by number."""
    return [_plain(actor, row) for row in _by_number(tx, actor, departure_id)]


def _plain(actor: Actor, row: BookingRow) -> JsonObject:
    """Present a booking with its lines parsed, which `rules.present` leaves as JSON fragments."""
    shown: JsonObject = orjson.loads(orjson.dumps(rules.present(row, actor.organization.zone)))
    return shown


def _by_number(tx: Tx, actor: Actor, departure_id: str) -> list[BookingRow]:
    return sorted(
        store.find_live(tx, actor.organization.id, departure_id), key=lambda row: (row.booking_number or 0, row.id)
    )


@dataclass(frozen=True, slots=True)
class LiveBookingCount:
    """The number of pending and confirmed bookings of a departure, and their seats."""

    departure_id: str
    bookings: int
    seats: int


def count_live_bookings(tx: Tx, actor: Actor, departure_ids: Sequence[str]) -> list[LiveBookingCount]:
    """Count the pending and confirmed bookings of each departure. Departures without any are left out."""
    bookings: Counter[str] = Counter()
    seats: Counter[str] = Counter()
    for counted in store.count_by_status(tx, actor.organization.id, departure_ids) if departure_ids else ():
        if counted.status != BookingStatus.CANCELLED:
            bookings[counted.departure_id] += counted.bookings
            seats[counted.departure_id] += counted.seats
    return [LiveBookingCount(each, bookings[each], seats[each]) for each in departure_ids if bookings[each]]


def manifest(tx: Tx, actor: Actor, departure_id: str) -> JsonObject:
    """Return the manifest of a departure: its live bookings by guest name, with unpaid amounts, and the totals.

    Raises:
        NotFound: the organization has no such departure.
    """
    departure = get_departure(tx, actor, departure_id)
    rows = _by_number(tx, actor, departure_id)
    rows.sort(key=lambda row: (row.guest_name or "").casefold())
    recorded = store.recorded_amounts(tx, actor.organization.id, departure_id)
    unpaid = [rules.unpaid_minor(row, recorded.get(row.id, 0)) for row in rows]
    data = [_manifest_entry(actor, row, left) for row, left in zip(rows, unpaid, strict=True)]
    return {"departure": departure, "totals": _totals(rows, unpaid), "data": data}


def _manifest_entry(actor: Actor, row: BookingRow, unpaid_minor: int) -> JsonObject:
    return _plain(actor, row) | {"unpaid": {"amount_minor": unpaid_minor, "currency": row.currency}}


def _totals(rows: Sequence[BookingRow], unpaid_minor: Sequence[int]) -> JsonObject:
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

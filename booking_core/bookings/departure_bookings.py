"""Departures as staff sees them: their numbers of bookings, their live bookings and their manifest."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

import orjson

from booking_core.base.context import Actor
from booking_core.base.errors import Conflict
from booking_core.bookings import presenting, rules, store
from booking_core.bookings.rules import BookingRow
from booking_core.bookings.store import BookingWithPayment
from booking_core.catalogue import departures
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingStatus
from booking_core.models.json import JsonObject
from booking_core.models.limits import COUNT_MAX, MANIFEST_BOOKINGS_MAX
from booking_core.models.money import money_json


def find_departures(
    tx: Tx, actor: Actor, *, date_from: date, date_to: date | None = None, experience_id: str | None = None
) -> list[JsonObject]:
    """Return the departures of `departures.find_available`, each with its experience and its numbers of bookings.

    Raises:
        Unprocessable: the window is reversed, or wider than 92 days.
    """
    available = departures.find_available(tx, actor, date_from=date_from, date_to=date_to, experience_id=experience_id)
    return _with_bookings(tx, actor, available["data"])


def get_departure(tx: Tx, actor: Actor, departure_id: str) -> JsonObject:
    """Return a departure with its experience and its numbers of bookings.

    Raises:
        NotFound: the organization has no such departure.
    """
    (departure,) = _with_bookings(tx, actor, [departures.get(tx, actor, departure_id)])
    return departure


def _with_bookings(tx: Tx, actor: Actor, presented: Sequence[JsonObject]) -> list[JsonObject]:
    ids = [departure["id"] for departure in presented]
    if not ids:
        return []
    details = store.departure_details(tx, actor.organization.id, ids)
    counts: dict[str, JsonObject] = {departure_id: dict.fromkeys(map(str, BookingStatus), 0) for departure_id in ids}
    for counted in store.count_by_status(tx, actor.organization.id, ids):
        counts[counted.departure_id][counted.status] = counted.bookings
    return [_with_counts(departure, details[departure["id"]], counts[departure["id"]]) for departure in presented]


def _with_counts(departure: JsonObject, details: store.DepartureDetails, bookings: JsonObject) -> JsonObject:
    return departure | {
        "experience": {"id": details.experience_id, "title": details.title, "slug": details.slug},
        "seats_sold": details.seats_taken,
        "bookings": bookings,
        "is_being_cancelled": details.cancelling is not None,
    }


def live_bookings(tx: Tx, actor: Actor, departure_id: str) -> list[JsonObject]:
    """Return the pending and confirmed bookings of a departure in the shape of the API, sorted by number."""
    bookings = store.find_live(tx, actor.organization.id, departure_id)
    bookings.sort(key=lambda booking: (booking.row.booking_number or 0, booking.row.id))
    present = presenting.presenter(actor, with_links=False)
    plain: list[JsonObject] = orjson.loads(orjson.dumps(list(map(present, bookings))))
    return plain


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
    return [
        LiveBookingCount(departure_id, bookings[departure_id], seats[departure_id])
        for departure_id in departure_ids
        if bookings[departure_id]
    ]


def manifest(tx: Tx, actor: Actor, departure_id: str) -> JsonObject:
    """Return the manifest of a departure: its live bookings by guest name, with unpaid amounts, and the totals.

    Raises:
        NotFound: the organization has no such departure.
    """
    presented: JsonObject = orjson.loads(render_manifest(tx, actor, departure_id, limit=COUNT_MAX))
    return presented


def render_manifest(tx: Tx, actor: Actor, departure_id: str, *, limit: int = MANIFEST_BOOKINGS_MAX) -> bytes:
    """Render the manifest of a departure as JSON.

    Raises:
        NotFound: the organization has no such departure.
        Conflict: `manifest_too_large`: more than `limit` bookings.
    """
    departure = get_departure(tx, actor, departure_id)
    if departure["bookings"]["pending"] + departure["bookings"]["confirmed"] > limit:
        raise Conflict("manifest_too_large", f"The departure has more than {limit} bookings: list them instead.")
    bookings = store.find_live(tx, actor.organization.id, departure_id)
    bookings.sort(
        key=lambda booking: ((booking.row.guest_name or "").casefold(), booking.row.booking_number or 0, booking.row.id)
    )
    rows = [booking.row for booking in bookings]
    unpaid = [rules.unpaid_minor(booking.row, booking.recorded_minor) for booking in bookings]
    head = orjson.dumps({"departure": departure, "totals": _totals(rows, unpaid)})
    return head[:-1] + b',"data":[' + b",".join(_render_entries(actor, bookings, unpaid)) + b"]}"


def _render_entries(
    actor: Actor, bookings: Sequence[BookingWithPayment], unpaid_minor: Sequence[int]
) -> Iterator[bytes]:
    """Render each entry separately: one call for all of them would hold every other thread of the process."""
    present = presenting.presenter(actor, with_links=False)
    for booking, unpaid in zip(bookings, unpaid_minor, strict=True):
        yield orjson.dumps(present(booking) | {"unpaid": money_json(unpaid, booking.row.currency)})


def _totals(rows: Sequence[BookingRow], unpaid_minor: Sequence[int]) -> JsonObject:
    guests: Counter[str] = Counter()
    add_ons: Counter[str] = Counter()
    unpaid: Counter[str] = Counter()
    for row, amount_minor in zip(rows, unpaid_minor, strict=True):
        guests.update(_counts(row.guests, "tier_label"))
        add_ons.update(_counts(row.add_ons, "label"))
        unpaid[row.currency] += amount_minor
    return {
        "bookings": len(rows),
        "checked_in": sum(row.checked_in_at is not None for row in rows),
        "no_shows": sum(row.no_show_at is not None for row in rows),
        "guests": dict(guests),
        "add_ons": dict(add_ons),
        "unpaid": [money_json(amount, currency) for currency, amount in unpaid.items() if amount],
    }


@lru_cache(1024)
def _counts(lines: str, label: str) -> Mapping[str, int]:
    """Return the counts of lines by their label. Most bookings of a departure have the lines of another one."""
    counts: Counter[str] = Counter()
    for line in orjson.loads(lines):
        counts[line[label]] += line["count"]
    return counts

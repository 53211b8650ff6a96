"""Read one booking, a list of them, or the bookings of a departure, as the API and staff see them.

A booking is read with the terms of a cancellation and the amount that a cancellation would return now. A cancellation
requests the same amount (`payments.refundable`). Responses have the terms as of their instant, events as of
`created_at` (decisions/0028).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import NamedTuple

import orjson

from booking_core import organizations, payments
from booking_core.base.clock import Zone
from booking_core.base.context import Actor, Caller, Organization
from booking_core.base.errors import Conflict, NotFound
from booking_core.base.guest_links import ManageLinks
from booking_core.bookings import rules, store
from booking_core.bookings.rules import BookingRow, LockedDeparture
from booking_core.bookings.store import ShownBooking, lists
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_core.db.engine import Row, Tx
from booking_core.db.paging import JsonPage, PageRequest
from booking_core.models.base import email_key
from booking_core.models.bookings import BookingStatus
from booking_core.models.json import JsonObject
from booking_core.models.limits import COUNT_MAX, MANIFEST_BOOKINGS_MAX, WINDOW_DAYS_MAX
from booking_core.models.scopes import Scope

# Bookings ------------------------------------------------------------------------------------------------------------


def find(
    tx: Tx,
    actor: Actor,
    page: PageRequest,
    *,
    status: BookingStatus | None = None,
    experience_id: str | None = None,
    departure_from: date | None = None,
    departure_to: date | None = None,
    updated_since: int | None = None,
    departure_id: str | None = None,
    customer_id: str | None = None,
    booking_number: int | None = None,
    email: str | None = None,
    external_reference: str | None = None,
) -> JsonPage:
    """Return a page of bookings.

    Args:
        email: the address of the customer's record, in any case.

    Raises:
        Unprocessable: the window of departures is reversed, or wider than 92 days.
    """
    return lists.LIST.find(
        tx,
        actor,
        page,
        presenter(actor),
        status=status,
        experience_id=experience_id,
        window=window(actor.organization.zone, departure_from, departure_to),
        updated_since=updated_since,
        departure_id=departure_id,
        customer_id=customer_id,
        number=booking_number,
        external_reference=external_reference,
        email_key=None if email is None else email_key(email.strip()),
    )


def window(zone: Zone, first: date | None, last: date | None) -> dict[str, int] | None:
    """Return the instants that bound a window of local days. A missing end is set 92 days from the other."""
    if first is None and last is None:
        return None
    span = timedelta(days=WINDOW_DAYS_MAX)
    if first is None:
        assert last is not None
        first = last - span if last - date.min >= span else date.min
    if last is None:
        last = first + span if date.max - first >= span else date.max
    departs_from, departs_before = departures.window(zone, first, last, field="departure_to")
    return {"departs_from": departs_from, "departs_before": departs_before}


def get(tx: Tx, actor: Actor, booking_id: str) -> JsonObject:
    """Return a booking.

    Raises:
        NotFound: the organization has no such booking.
    """
    return shown_presenter(actor)(_get(tx, actor, booking_id))


def _get(tx: Tx, actor: Actor, booking_id: str) -> ShownBooking:
    booking = store.get_shown(tx, actor.organization.id, booking_id)
    if booking is None:
        raise NotFound("There is no such booking.")
    return booking


def read(tx: Tx, actor: Actor, booking_id: str) -> bytes:
    """Return a booking as JSON, with the changes of this transaction."""
    return orjson.dumps(get(tx, actor, booking_id))


def organization_of(tx: Tx, booking_id: str) -> Organization:
    """Return the organization that a booking belongs to, for operator commands that take only an id.

    Raises:
        NotFound: there is no such booking.
    """
    return organizations.owner(tx, tables.bookings, booking_id, "booking")


# Presented -----------------------------------------------------------------------------------------------------------


def presenter(actor: Actor) -> Callable[[Row], JsonObject]:
    """Return a function that presents rows of bookings with the links that the actor may see, and with the terms of a
    cancellation now."""
    present = shown_presenter(actor)
    return lambda row: present(store.parse_shown(row))


def shown_presenter(actor: Actor, *, with_links: bool = True) -> Callable[[ShownBooking], JsonObject]:
    """Return a function that presents bookings as `presenter` does.

    Args:
        with_links: False leaves out the guests' links.
    """
    organization, link = actor.organization, _links(actor) if with_links else None
    zone, at = organization.zone, actor.at

    def present(booking: ShownBooking) -> JsonObject:
        terms = render_terms(booking, organization, at)
        return rules.present(booking.row, zone, terms, link(booking.row) if link else None)

    return present


def _links(actor: Actor) -> Callable[[BookingRow], str | None] | None:
    """Return a function that makes the guest's link of a booking, or None without the scope to write bookings."""
    if not (isinstance(actor, Caller) and actor.has(Scope.BOOKINGS_WRITE)):
        return None
    links, at = ManageLinks(actor.installation, actor.organization.id), actor.at
    return lambda row: links.of(row, ends_at(row), at)


def ends_at(row: BookingRow | LockedDeparture) -> int:
    """Return the present end of a departure, or of the departure that is booked."""
    return departures.ends_at(row.starts_at, row.ends_at, row.duration_minutes)


def show(actor: Actor, booking: ShownBooking) -> bytes:
    """Render the booking as JSON, as it is read: with the guest's link when the actor may see it, and with the terms of
    a cancellation now."""
    link, rendered = _links(actor), render(actor.organization, booking, actor.at)
    return rules.with_link(rendered, link(booking.row)) if link else rendered


def render(organization: Organization, booking: ShownBooking, at: int) -> bytes:
    """Render the booking as JSON without the guest's link, as in an event of that instant."""
    return orjson.dumps(rules.present(booking.row, organization.zone, render_terms(booking, organization, at)))


# The terms of a cancellation -----------------------------------------------------------------------------------------


class Refundable(NamedTuple):
    """The payment of a booking that a cancellation refunds by the policy, in minor units of its currency."""

    minor: int
    """The refund of a cancellation now."""
    received_minor: int
    """The payment, without the part that was refunded before."""
    by_card: bool
    """It goes back to the card; otherwise staff returns it."""


_NOTHING = Refundable(0, 0, by_card=False)
_CANCELLED = str(BookingStatus.CANCELLED)
_RENDERED_MAX = 16_384
"""As many as the instants that a zone remembers."""


def get_refundable(tx: Tx, actor: Actor, booking_id: str) -> Refundable:
    """Return the payment that the guest's cancellation now would refund.

    Raises:
        NotFound: the organization has no such booking.
    """
    return _refundable(_get(tx, actor, booking_id), actor.organization, actor.at)


def _refundable(booking: ShownBooking, organization: Organization, at: int) -> Refundable:
    row, payment = booking.row, booking.payment
    has_payment = payment is not None and rules.has_refundable_payment(row, booking.recorded_minor)
    if payment is None or not has_payment or row.status == BookingStatus.CANCELLED:
        return _NOTHING
    by_card = rules.is_paid_by_card(row)
    refund = payments.refundable(organization, payment, starts_at=row.starts_at, at=at, by_hand=not by_card)
    return Refundable(refund.amount_minor, payment.amount_minor - payment.refunded_minor, by_card)


def render_terms(booking: ShownBooking, organization: Organization, at: int) -> bytes:
    """Render the terms of a booking as in the API, at an instant."""
    row, zone, late_percent = booking.row, organization.zone, organization.refund_late_percent
    is_cancelled = row.status == _CANCELLED
    refund = 0 if booking.payment is None else _refundable(booking, organization, at).minor
    until = organization.refunds_in_full_until(row.starts_at)
    gift_card = 0 if is_cancelled else row.gift_card_minor
    return _render_terms(is_cancelled, refund, gift_card, row.currency, until, zone, late_percent)


@lru_cache(_RENDERED_MAX)
def _render_terms(
    is_cancelled: bool,
    refund_minor: int,
    gift_card_minor: int,
    currency: str,
    until: int,
    zone: Zone,
    late_percent: int,
) -> bytes:
    """Return the terms as JSON. Most bookings of one departure have the same."""
    terms = {
        "allowed": not is_cancelled,
        "refundable_amount": rules.money(refund_minor, currency),
        "gift_card_amount": rules.money(gift_card_minor, currency),
        "until": zone.iso(max(0, until)),
        "late_percent": late_percent,
    }
    return orjson.dumps(terms)


# Departures as staff sees them ---------------------------------------------------------------------------------------


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
    present = shown_presenter(actor, with_links=False)
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


def _render_entries(actor: Actor, bookings: Sequence[ShownBooking], unpaid_minor: Sequence[int]) -> Iterator[bytes]:
    """Render each entry separately: one call for all of them would hold every other thread of the process."""
    present = shown_presenter(actor, with_links=False)
    for booking, unpaid in zip(bookings, unpaid_minor, strict=True):
        yield orjson.dumps(present(booking) | {"unpaid": rules.money(unpaid, booking.row.currency)})


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
        "unpaid": [rules.money(amount, currency) for currency, amount in unpaid.items() if amount],
    }


@lru_cache(1024)
def _counts(lines: str, label: str) -> Mapping[str, int]:
    """Return the counts of lines by their label. Most bookings of a departure have the lines of another one."""
    counts: Counter[str] = Counter()
    for line in orjson.loads(lines):
        counts[line[label]] += line["count"]
    return counts

"""Present bookings as the API does: with the terms of a cancellation, and the guest's link for who may see it."""

from collections.abc import Callable

import orjson

from booking_core.base.context import Actor, Caller, Organization
from booking_core.base.guest_links import ManageLinks
from booking_core.bookings import rules, store, terms
from booking_core.bookings.rules import BookingRow
from booking_core.bookings.store import BookingWithPayment
from booking_core.db.engine import Row
from booking_core.models.json import JsonObject
from booking_core.models.scopes import Scope


def row_presenter(actor: Actor) -> Callable[[Row], JsonObject]:
    """Return a function that presents rows of bookings with the links that the actor may see, and with the terms of a
    cancellation now."""
    present = presenter(actor)
    return lambda row: present(store.parse_with_payment(row))


def presenter(actor: Actor, *, with_links: bool = True) -> Callable[[BookingWithPayment], JsonObject]:
    """Return a function that presents bookings as `row_presenter` does.

    Args:
        with_links: False leaves out the guests' links.
    """
    organization, link = actor.organization, _links(actor) if with_links else None
    zone, at = organization.zone, actor.at

    def present(booking: BookingWithPayment) -> JsonObject:
        link_now = link(booking.row) if link else None
        return rules.present(booking.row, zone, terms.render(booking, organization, at), link_now)

    return present


def _links(actor: Actor) -> Callable[[BookingRow], str | None] | None:
    """Return a function that makes the guest's link of a booking, or None without the scope to write bookings."""
    if not (isinstance(actor, Caller) and actor.has(Scope.BOOKINGS_WRITE)):
        return None
    links, at = ManageLinks(actor.installation, actor.organization.id), actor.at
    return lambda row: links.of(row, rules.ends_at(row), at)


def render_for(actor: Actor, booking: BookingWithPayment) -> bytes:
    """Render the booking as JSON, as it is read: with the guest's link when the actor may see it, and with the terms of
    a cancellation now."""
    link, rendered = _links(actor), render(actor.organization, booking, actor.at)
    return rules.with_link(rendered, link(booking.row)) if link else rendered


def render(organization: Organization, booking: BookingWithPayment, at: int) -> bytes:
    """Render the booking as JSON without the guest's link, as in an event of that instant."""
    return orjson.dumps(rules.present(booking.row, organization.zone, terms.render(booking, organization, at)))

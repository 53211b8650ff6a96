"""A new booking: what it costs, whether its departure can be booked, and every row it leaves.

The pieces that the batch of the API (`create`) and the single booking of staff and storefront (`single`) share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from booking_core import customers, departures, events, experiences, outbox, timeline
from booking_core.bookings import rules
from booking_core.bookings.rules import BookingRow, Charge, Quote
from booking_core.bookings.store import DepartureRow
from booking_core.context import Organization
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.errors import Conflict
from booking_core.events import NewEvent
from booking_core.models.bookings import (
    AddOnInput,
    BookingCreate,
    BookingSource,
    BookingStatus,
    GuestInput,
    GuestLineInput,
    PaymentMode,
    PaymentSource,
)
from booking_core.models.events import EventType
from booking_core.outbox import OutboxKind
from booking_core.timeline import TimelineKind

_SHOWN_OF_OTHERS = frozenset({"experience_title", "experience_slug", "starts_at", "ends_at", "duration_minutes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A booking as staff, an agent or the storefront asks for it."""

    departure_id: str
    guests: Sequence[GuestLineInput]
    customer: GuestInput
    source: BookingSource
    payment: Charge
    """By card it stays pending until it is paid, unless nothing is left to pay."""
    add_ons: Sequence[AddOnInput] = ()
    note: str | None = None
    discount_minor: int = 0
    gift_card_code: str | None = None
    hold_id: str | None = None
    """A hold of the departure whose seats this booking takes over; whoever calls ends it."""
    send_confirmation_email: bool = True
    notify_staff: bool = True


@dataclass(slots=True)
class Sale:
    """A booking that will be written."""

    organization: Organization
    terms: BookingCreate | Draft
    departure: DepartureRow
    quote: Quote
    at: int
    customer_id: str
    brings_customer: bool
    source: BookingSource
    discount_minor: int = 0
    gift_card_minor: int = 0


def price(organization: Organization, departure: DepartureRow, terms: BookingCreate | Draft) -> Quote:
    """What the lines cost at this departure, and how many seats they take.

    Raises:
        Unprocessable: a line that is not offered, or a sum beyond 64 bits.
    """
    tiers = experiences.tiers(
        departure.price_tiers, departure.price_from_minor, departure.price_minor, departure.prices
    )
    offered = rules.offer(departure.currency, tiers, departure.add_ons)
    return rules.quote(organization, offered, terms.guests, terms.add_ons or ())


def refuse_unbookable(departure: DepartureRow, organization: Organization, at: int) -> None:
    """Refuses a departure that is not for sale at that instant, in the order of decision B4.

    Raises:
        Conflict: `departure_cancelled`, `departure_closed` or `departure_started`.
    """
    lead = organization.hours_before_booking_closes
    if departure.status == "cancelled":
        raise Conflict("departure_cancelled", "The departure is cancelled.")
    if departure.status == "closed":
        raise Conflict("departure_closed", "The departure is closed for booking.")
    if at >= departure.starts_at:
        raise Conflict("departure_started", "The departure has started.")
    if at >= departures.closes_at(departure.starts_at, departure.hours_before_booking_closes, lead):
        raise Conflict("departure_closed", "Booking of this departure has closed.")


def row(sale: Sale, booking_id: str, manage_key_id: str, number: int | None = None) -> BookingRow:
    """The booking as it will be stored and shown; pending when a card has still to be charged."""
    terms, departure, quote = sale.terms, sale.departure, sale.quote
    total = quote.subtotal_minor - sale.discount_minor - sale.gift_card_minor
    method, source, status = rules.payment(terms.payment, total, sale.gift_card_minor)
    return BookingRow(
        created_at=sale.at,
        id=booking_id,
        booking_number=number,
        status=BookingStatus.PENDING if source is PaymentSource.STRIPE else BookingStatus.CONFIRMED,
        source=sale.source,
        updated_at=sale.at,
        experience_id=departure.experience_id,
        experience_title=departure.title,
        experience_slug=departure.slug,
        departure_id=departure.id,
        starts_at=departure.starts_at,
        ends_at=departure.ends_at,
        duration_minutes=departure.duration_minutes,
        guest_name=terms.customer.name,
        guest_email=terms.customer.email,
        guest_phone=terms.customer.phone or None,
        guests=quote.guests,
        add_ons=quote.add_ons,
        currency=departure.currency,
        subtotal_minor=quote.subtotal_minor,
        discount_minor=sale.discount_minor,
        gift_card_minor=sale.gift_card_minor,
        total_minor=total,
        payment_method=method,
        payment_source=source,
        payment_status=status,
        note=terms.note or None,
        manage_key_id=manage_key_id,
        manage_expires_at=departures.ends_at(departure.starts_at, departure.ends_at, departure.duration_minutes),
    )


def write(
    tx: Tx, sale: Sale, booked: BookingRow, sequence: int, *, also: Sequence[NewEvent] = (), **columns: object
) -> bytes:
    """Adds the booking, its customer when new, its events and what it owes to what is about to be written.

    Args:
        sequence: of its first event; they are told in order: the customer, the booking, what came of it, its
            confirmation.
        also: what else came of it.
        columns: of the booking's row, beside those that every new booking fills.

    Returns:
        The booking as JSON.
    """
    tolds = [add_customer(tx, sale)] if sale.brings_customer else []
    insert(tx, sale, booked, columns)
    shown = orjson.dumps(rules.present(booked, sale.organization.zone))
    tolds.append(NewEvent(EventType.BOOKING_CREATED, booked.id, shown))
    tolds.extend(also)
    if booked.status is BookingStatus.CONFIRMED:
        tolds.append(NewEvent(EventType.BOOKING_CONFIRMED, booked.id, shown))
    for offset, told in enumerate(tolds):
        events.append(tx, sale.organization, told, sequence=sequence + offset, at=sale.at)
    owe(tx, sale, booked)
    return shown


def add_customer(tx: Tx, sale: Sale) -> NewEvent:
    """The guest as a new customer, to be told of."""
    guest = sale.terms.customer
    customer = customers.add(
        tx,
        sale.organization,
        customer_id=sale.customer_id,
        email=guest.email,
        name=guest.name,
        phone=guest.phone or None,
        email_subscription=False,
        at=sale.at,
    )
    return NewEvent(EventType.CUSTOMER_CREATED, sale.customer_id, customer)


def insert(tx: Tx, sale: Sale, booked: BookingRow, columns: dict[str, object]) -> None:
    terms, organization = sale.terms, sale.organization
    own = {name: value for name, value in booked._asdict().items() if name not in _SHOWN_OF_OTHERS}
    tx.insert(
        tables.bookings,
        organization_id=organization.id,
        **own,
        customer_id=sale.customer_id,
        seats=sale.quote.seats,
        invoice_due=terms.payment is PaymentMode.INVOICE and booked.total_minor > 0,
        on_site_fee_minor=rules.on_site_fee(organization, terms.payment, booked.total_minor),
        send_confirmation_email=terms.send_confirmation_email is not False,
        notify_staff=terms.notify_staff is not False,
        confirmed_at=booked.created_at if booked.status is BookingStatus.CONFIRMED else None,
        **columns,
    )


def owe(tx: Tx, sale: Sale, booked: BookingRow) -> None:
    """The timeline entry of a new booking, and once it is confirmed the mails that go with that."""
    organization, at = sale.organization, booked.created_at
    if booked.status is BookingStatus.CONFIRMED:
        if sale.terms.send_confirmation_email is not False:
            outbox.enqueue(tx, organization.id, OutboxKind.BOOKING_CONFIRMATION_MAIL, booked.id, at=at)
        if sale.terms.notify_staff is not False and organization.notify_staff:
            outbox.enqueue(tx, organization.id, OutboxKind.STAFF_BOOKING_MAIL, booked.id, at=at)
    timeline.note(
        tx,
        organization.id,
        TimelineKind.BOOKING_CREATED,
        at=at,
        customer_id=sale.customer_id,
        booking_id=booked.id,
        booking_number=booked.booking_number,
        source=booked.source,
    )

"""Drafts of new bookings, and the rows that are written for one.

Shared by the batch of the API (`batch`) and the single bookings of staff and storefront (`create`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

import orjson

from booking_core import customers
from booking_core.base.context import Organization
from booking_core.bookings import presenting, pricing, rules, store
from booking_core.bookings.pricing import Charge, Quote
from booking_core.bookings.rules import BookingRow, LockedDeparture
from booking_core.bookings.store import BookingWithPayment
from booking_core.customers import CustomerRow
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.base import LanguageTag, Note
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
from booking_core.models.references import ExternalReference, Metadata, UniqueReference
from booking_core.records import events, outbox, timeline
from booking_core.records.events import NewEvent
from booking_core.records.outbox import OutboxKind
from booking_core.records.timeline import TimelineKind

_PENDING, _CONFIRMED = str(BookingStatus.PENDING), str(BookingStatus.CONFIRMED)
_written = itemgetter(*map(BookingRow._fields.index, store.COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingRequest:
    """A request for a booking by staff, an agent or the storefront."""

    departure_id: str
    guests: Sequence[GuestLineInput]
    customer: GuestInput
    source: BookingSource
    payment: Charge
    """A card booking stays pending until it is paid, unless nothing has to be paid."""
    add_ons: Sequence[AddOnInput] | None = None
    note: Note | None = None
    discount_minor: int = 0
    gift_card_code: str | None = None
    hold_id: str | None = None
    """A hold of the departure whose seats this booking takes over. The caller ends the hold."""
    send_confirmation_email: bool = True
    notify_staff: bool = True
    locale: LanguageTag | None = None
    """The guest's language (BCP 47); None: the organization's."""
    external_reference: ExternalReference | None = None
    external_reference_unique: UniqueReference | None = None
    metadata: Metadata | None = None
    check_due: Callable[[int, str], None] | None = None
    """Called with the amount to pay and its currency, before anything is written; it may refuse."""
    has_address: bool = True
    """False: the guest gave no address. The one of `customer` only names the customer's record."""


@dataclass(slots=True)
class BookingDraft:
    """A priced booking with its customer, ready to be written."""

    organization: Organization
    request: BookingCreate | BookingRequest
    departure: LockedDeparture
    quote: Quote
    at: int
    customer_id: str
    is_new_customer: bool
    source: BookingSource
    discount_minor: int = 0
    gift_card_minor: int = 0
    has_address: bool = True


def build_row(draft: BookingDraft, booking_id: str, manage_key_id: str, number: int | None = None) -> BookingRow:
    """Build the row of a new booking. It is pending while its card payment is missing."""
    request, departure, quote = draft.request, draft.departure, draft.quote
    total = quote.subtotal_minor - draft.discount_minor - draft.gift_card_minor
    method, source, status = pricing.payment(request.payment, total, draft.gift_card_minor)
    # Plain texts, as a row that was read has them: orjson takes five times as long for a member of an enum.
    return BookingRow(
        created_at=draft.at,
        id=booking_id,
        booking_number=number,
        status=_PENDING if source is PaymentSource.STRIPE else _CONFIRMED,
        source=str(draft.source),
        updated_at=draft.at,
        experience_id=departure.experience_id,
        experience_title=departure.title,
        experience_slug=departure.slug,
        departure_id=departure.id,
        starts_at=departure.starts_at,
        ends_at=departure.ends_at,
        duration_minutes=departure.duration_minutes,
        guest_name=request.customer.name,
        guest_email=request.customer.email if draft.has_address else None,
        guest_phone=request.customer.phone or None,
        guests=quote.guests,
        add_ons=quote.add_ons,
        currency=departure.currency,
        subtotal_minor=quote.subtotal_minor,
        discount_minor=draft.discount_minor,
        gift_card_minor=draft.gift_card_minor,
        total_minor=total,
        payment_method=str(method),
        payment_source=str(source),
        payment_status=str(status),
        note=request.note or None,
        manage_key_id=manage_key_id,
        manage_expires_at=rules.ends_at(departure),
        external_reference=request.external_reference,
        metadata=orjson.dumps(request.metadata).decode() if request.metadata else None,
        locale=request.locale,
    )


def write(
    tx: Tx,
    draft: BookingDraft,
    row: BookingRow,
    sequence: int,
    *,
    extra_events: Sequence[NewEvent] = (),
    **columns: object,
) -> bytes:
    """Insert the booking, its customer when new, its events, its mails and its timeline entry.

    Args:
        sequence: of the first event. The order is: customer, booking, `extra_events`, confirmation.
        extra_events: further events of the same booking.
        columns: of the booking's row, beside the columns that every new booking fills.

    Returns:
        The booking as JSON, as in its events.
    """
    organization = draft.organization
    new_events = [_insert_customer(tx, draft)] if draft.is_new_customer else []
    _insert_booking(tx, draft, row, columns)
    rendered = presenting.render(organization, BookingWithPayment(row, 0, None), draft.at)
    new_events += [NewEvent(EventType.BOOKING_CREATED, row.id, rendered), *extra_events]
    if row.status == _CONFIRMED:
        new_events.append(NewEvent(EventType.BOOKING_CONFIRMED, row.id, rendered))
        _enqueue_mails(tx, draft, row)
    for offset, event in enumerate(new_events):
        events.append(tx, organization, event, sequence=sequence + offset, at=draft.at)
    timeline.note(
        tx,
        organization.id,
        TimelineKind.BOOKING_CREATED,
        at=draft.at,
        customer_id=draft.customer_id,
        booking_id=row.id,
        booking_number=row.booking_number,
        source=row.source,
    )
    tx.tally("bookings", organization.slug)
    tx.tally("seats_sold", organization.slug, draft.quote.seats)
    return rendered


def _enqueue_mails(tx: Tx, draft: BookingDraft, row: BookingRow) -> None:
    """Enqueue the mails about a confirmed booking to its guest and to staff."""
    organization, request = draft.organization, draft.request
    if request.send_confirmation_email is not False:
        outbox.enqueue(tx, organization.id, OutboxKind.BOOKING_CONFIRMATION_MAIL, row.id, at=draft.at)
    if request.notify_staff is not False and organization.notify_staff:
        outbox.enqueue(tx, organization.id, OutboxKind.STAFF_BOOKING_MAIL, row.id, at=draft.at)


def _insert_customer(tx: Tx, draft: BookingDraft) -> NewEvent:
    """Insert the guest as a new customer, and return the event of it."""
    guest = draft.request.customer
    row = CustomerRow(draft.at, draft.customer_id, guest.name, guest.email, guest.phone or None)
    return customers.add(tx, draft.organization, row)


def _insert_booking(tx: Tx, draft: BookingDraft, row: BookingRow, columns: dict[str, object]) -> None:
    request, organization = draft.request, draft.organization
    tx.insert(
        tables.bookings,
        organization_id=organization.id,
        **dict(zip(store.COLUMNS, _written(row), strict=True)),
        customer_id=draft.customer_id,
        seats=draft.quote.seats,
        invoice_due=request.payment is PaymentMode.INVOICE and row.total_minor > 0,
        on_site_fee_minor=pricing.on_site_fee(organization, request.payment, row.total_minor),
        send_confirmation_email=request.send_confirmation_email is not False,
        notify_staff=request.notify_staff is not False,
        confirmed_at=row.created_at if row.status == _CONFIRMED else None,
        **columns,
    )

"""Creating bookings, written for many.

What waits is decided together: every departure, customer and stored answer that the requests need is read with one
statement each, the rules decide in memory, in order, each against the seats left by the one before, and everything is
written at once. A rush on one departure or one organization then costs one lock for a batch instead of one for each
booking. One booking is a batch of one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from booking_core import customers, departures, effects, idempotency, outbox, timeline, tokens
from booking_core.bookings import rules, store
from booking_core.bookings.rules import BookingRow, Quote
from booking_core.bookings.store import DepartureRow, Surroundings
from booking_core.caller import Caller
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.writes import Writes
from booking_core.effects import EffectKind
from booking_core.errors import (
    BookingError,
    Conflict,
    IdempotencyInProgress,
    IdempotencyKeyReused,
    InsufficientCapacity,
    NotFound,
)
from booking_core.idempotency import Answer, Once, Refuse
from booking_core.outbox import Told
from booking_core.timeline import TimelineKind
from booking_core.wire.base import email_key
from booking_core.wire.bookings import BookingCreate, BookingSource, BookingStatus, PaymentMode
from booking_core.wire.events import EventType

CREATED = 201


@dataclass(frozen=True, slots=True)
class Create:
    """One request to book, and how a refusal of it is answered."""

    caller: Caller
    request: BookingCreate
    once: Once
    refuse: Refuse

    @property
    def organization_id(self) -> str:
        return self.caller.organization.id

    @property
    def departure_key(self) -> tuple[str, str]:
        return self.organization_id, self.request.experience_date_id

    @property
    def customer_key(self) -> tuple[str, str]:
        return self.organization_id, email_key(self.request.customer.email)


@dataclass(slots=True)
class Accepted:
    """A booking that will be written."""

    position: int
    create: Create
    departure: DepartureRow
    quote: Quote
    at: int
    customer_id: str
    brings_customer: bool

    @property
    def event_count(self) -> int:
        """booking.created and booking.confirmed, and before them customer.created for a new customer."""
        return 2 + self.brings_customer


@dataclass(slots=True)
class Batch:
    """The requests of one transaction, and what became of each."""

    creates: Sequence[Create]
    departures: dict[tuple[str, str], DepartureRow]
    surroundings: dict[int, Surroundings]
    pending: Writes = field(default_factory=Writes)
    outcomes: dict[int, Answer | BookingError] = field(default_factory=dict)
    accepted: list[Accepted] = field(default_factory=list)
    seats_sold: Counter[tuple[str, str]] = field(default_factory=Counter)
    new_customers: dict[tuple[str, str], str] = field(default_factory=dict)
    first_by_key: dict[tuple[str, str], int] = field(default_factory=dict)


def create_many(tx: Tx, creates: Sequence[Create]) -> list[Answer | BookingError]:
    """The answer to each request, in order; an error for one that leaves no trace.

    Refusals that were reached by executing (decision I3) are answers, stored for their key like a success.
    """
    batch = _read(tx, creates)
    for position in range(len(creates)):
        if position not in batch.outcomes:
            _decide(batch, position)
    _write(tx, batch)
    return [_outcome(batch, position) for position in range(len(creates))]


def _read(tx: Tx, creates: Sequence[Create]) -> Batch:
    held = idempotency.try_locks(tx, [(create.organization_id, create.once.key) for create in creates])
    # Only for those that will be decided: whose key is in use is told so at once, and does not wait for the departure
    # that the key's holder has.
    locked = store.lock_departures(
        tx, (create.departure_key for create, is_held in zip(creates, held, strict=True) if is_held)
    )
    surroundings = store.surroundings(
        tx,
        (
            {
                "i": position,
                "organization_id": create.organization_id,
                "key": create.once.key,
                "departure_id": create.request.experience_date_id,
                "email_key": create.customer_key[1],
            }
            for position, create in enumerate(creates)
        ),
    )
    batch = Batch(creates, locked, surroundings)
    for position, is_held in enumerate(held):
        if not is_held:
            batch.outcomes[position] = IdempotencyInProgress()
    return batch


def _decide(batch: Batch, position: int) -> None:
    create, around = batch.creates[position], batch.surroundings[position]
    key = (create.organization_id, create.once.key)
    try:
        if around.fingerprint is not None and around.status is not None and around.body_sealed is not None:
            stored = (around.fingerprint, around.status, around.body_sealed)
            batch.outcomes[position] = idempotency.replay(create.caller.secret_keys, create.once, *stored)
        elif batch.first_by_key.setdefault(key, position) == position:
            _accept(batch, position, create, around)
        # else the same new key twice in one batch: answered as its first, see _outcome
    except idempotency.STORED_REFUSALS as error:
        answer = batch.outcomes[position] = create.refuse(error)
        idempotency.keep(batch.pending, create.caller, create.once, answer, at=around.at)
    except BookingError as error:
        batch.outcomes[position] = error


def _accept(batch: Batch, position: int, create: Create, around: Surroundings) -> None:
    """Takes the seats in memory, in the order of decision B4."""
    departure = batch.departures.get(create.departure_key)
    if departure is None:
        raise NotFound("There is no such departure.")
    _refuse_unbookable(departure, create.caller, around.at)
    price = departure.price_minor if departure.price_minor is not None else departure.price_from_minor
    offered = rules.offer(departure.currency, departure.price_tiers, departure.add_ons, price)
    quote = rules.quote(create.caller.organization, offered, create.request)
    taken = departure.seats_taken + batch.seats_sold[create.departure_key]
    available = departures.seats_available(departure.seats_total, taken, around.seats_held)
    if quote.seats > available:
        raise InsufficientCapacity(available)
    batch.seats_sold[create.departure_key] += quote.seats
    known = around.customer_id or batch.new_customers.get(create.customer_key)
    customer_id = known or batch.new_customers.setdefault(create.customer_key, tokens.new_id())
    batch.accepted.append(Accepted(position, create, departure, quote, around.at, customer_id, known is None))


def _refuse_unbookable(departure: DepartureRow, caller: Caller, at: int) -> None:
    lead = caller.organization.hours_before_booking_closes
    if departure.status == "cancelled":
        raise Conflict("departure_cancelled", "The departure is cancelled.")
    if departure.status == "closed":
        raise Conflict("departure_closed", "The departure is closed for booking.")
    if at >= departure.starts_at:
        raise Conflict("departure_started", "The departure has started.")
    if at >= departures.closes_at(departure.starts_at, departure.hours_before_booking_closes, lead):
        raise Conflict("departure_closed", "Booking of this departure has closed.")


def _write(tx: Tx, batch: Batch) -> None:
    wanted: dict[str, tuple[int, int]] = {}
    for accepted in batch.accepted:
        numbers, events = wanted.get(accepted.create.organization_id, (0, 0))
        wanted[accepted.create.organization_id] = numbers + 1, events + accepted.event_count
    counters = outbox.lock_sequences(tx, wanted) if wanted else {}
    for accepted in batch.accepted:
        organization_id = accepted.create.organization_id
        number, sequence = counters[organization_id]
        counters[organization_id] = number + 1, sequence + accepted.event_count
        batch.outcomes[accepted.position] = _write_one(batch.pending, accepted, number + 1, sequence + 1)
    _write_seats(batch)
    tx.write(batch.pending)


def _write_seats(batch: Batch) -> None:
    at = max((accepted.at for accepted in batch.accepted), default=0)
    for (organization_id, departure_id), seats in batch.seats_sold.items():
        if seats:
            change = {"organization_id": organization_id, "id": departure_id, "updated_at": at, "seats_taken": seats}
            batch.pending.change(store.TAKE_SEATS, **change)


def _write_one(pending: Writes, accepted: Accepted, number: int, sequence: int) -> Answer:
    create, at = accepted.create, accepted.at
    caller, request = create.caller, create.request
    organization, installation = caller.organization, caller.installation
    if accepted.brings_customer:
        guest = request.customer
        customer = customers.add(
            pending,
            organization,
            customer_id=accepted.customer_id,
            email=guest.email,
            name=guest.name,
            phone=guest.phone or None,
            email_subscription=False,
            at=at,
        )
        told = Told(EventType.CUSTOMER_CREATED, accepted.customer_id, customer)
        outbox.tell(pending, organization, told, sequence=sequence, at=at)
        sequence += 1
    booking_id = tokens.new_id()
    row = _row(accepted, booking_id, number, installation.secret_keys.first_id)
    _insert(pending, accepted, row)
    shown = orjson.dumps(rules.present(row, organization.zone))
    for offset, kind in enumerate((EventType.BOOKING_CREATED, EventType.BOOKING_CONFIRMED)):
        outbox.tell(pending, organization, Told(kind, booking_id, shown), sequence=sequence + offset, at=at)
    _owe(pending, accepted, row)
    link = rules.ManageLinks(installation, organization.id).of(row, at)
    answer = Answer(CREATED, rules.with_link(shown, link))
    idempotency.keep(pending, caller, create.once, answer, at=at)
    return answer


def _row(accepted: Accepted, booking_id: str, number: int, manage_key_id: str) -> BookingRow:
    request, departure, quote = accepted.create.request, accepted.departure, accepted.quote
    method, source, status = rules.payment(request.payment, quote.subtotal_minor)
    return BookingRow(
        created_at=accepted.at,
        id=booking_id,
        booking_number=number,
        status=BookingStatus.CONFIRMED,
        source=BookingSource.API,
        updated_at=accepted.at,
        experience_id=departure.experience_id,
        experience_title=departure.title,
        experience_slug=departure.slug,
        departure_id=departure.id,
        starts_at=departure.starts_at,
        ends_at=departure.ends_at,
        duration_minutes=departure.duration_minutes,
        guest_name=request.customer.name,
        guest_email=request.customer.email,
        guest_phone=request.customer.phone or None,
        guests=quote.guests,
        add_ons=quote.add_ons,
        currency=departure.currency,
        subtotal_minor=quote.subtotal_minor,
        discount_minor=0,
        gift_card_minor=0,
        total_minor=quote.subtotal_minor,
        payment_method=method,
        payment_source=source,
        payment_status=status,
        note=request.note or None,
        manage_key_id=manage_key_id,
        manage_expires_at=departures.ends_at(departure.starts_at, departure.ends_at, departure.duration_minutes),
    )


def _insert(pending: Writes, accepted: Accepted, row: BookingRow) -> None:
    request, organization = accepted.create.request, accepted.create.caller.organization
    shown_of_others = {"experience_title", "experience_slug", "starts_at", "ends_at", "duration_minutes"}
    own = {name: value for name, value in row._asdict().items() if name not in shown_of_others}
    pending.insert(
        tables.bookings,
        organization_id=organization.id,
        **own,
        customer_id=accepted.customer_id,
        seats=accepted.quote.seats,
        invoice_due=request.payment is PaymentMode.INVOICE and row.total_minor > 0,
        on_site_fee_minor=rules.on_site_fee(organization, request.payment, row.total_minor),
        send_confirmation_email=request.send_confirmation_email is not False,
        notify_staff=request.notify_staff is not False,
        confirmed_at=row.created_at,
    )


def _owe(pending: Writes, accepted: Accepted, row: BookingRow) -> None:
    """The mails and the timeline entry that a booking by staff would bring too."""
    request, organization, at = accepted.create.request, accepted.create.caller.organization, row.created_at
    if request.send_confirmation_email is not False:
        effects.owe(pending, organization.id, EffectKind.BOOKING_CONFIRMATION_MAIL, row.id, at=at)
    if request.notify_staff is not False and organization.notify_staff:
        effects.owe(pending, organization.id, EffectKind.STAFF_BOOKING_MAIL, row.id, at=at)
    timeline.note(
        pending,
        organization.id,
        TimelineKind.BOOKING_CREATED,
        at=at,
        customer_id=accepted.customer_id,
        booking_id=row.id,
        booking_number=row.booking_number,
        source=row.source,
    )


def _outcome(batch: Batch, position: int) -> Answer | BookingError:
    """The outcome of a request; for a key that came twice in one batch, a replay of its first."""
    create = batch.creates[position]
    first = batch.first_by_key.get((create.organization_id, create.once.key), position)
    outcome = batch.outcomes[first]
    if first == position or isinstance(outcome, BookingError):
        return outcome
    if create.once.fingerprint != batch.creates[first].once.fingerprint:
        return IdempotencyKeyReused()
    return Answer(outcome.status, outcome.body, replayed=True)

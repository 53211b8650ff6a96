"""Creating bookings, written for many.

What waits is decided together: every departure, customer and stored answer that the requests need is read with one
statement each, the rules decide in memory, in order, each against the seats left by the one before, and everything is
written at once. A rush on one departure or one organization then costs one lock for a batch instead of one for each
booking. One booking is a batch of one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from booking_core import departures, idempotency, outbox, tokens
from booking_core.bookings import rules, sale, store
from booking_core.bookings.sale import Sale
from booking_core.bookings.store import DepartureRow, Surroundings
from booking_core.caller import Caller
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.writes import Writes
from booking_core.errors import (
    BookingError,
    IdempotencyInProgress,
    IdempotencyKeyReused,
    InsufficientCapacity,
    NotFound,
)
from booking_core.idempotency import Answer, Once, Refuse
from booking_core.manage_links import ManageLinks
from booking_core.wire.base import email_key
from booking_core.wire.bookings import BookingCreate, BookingSource

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
    def key(self) -> tuple[str, str]:
        return self.organization_id, self.once.key

    @property
    def departure_key(self) -> tuple[str, str]:
        return self.organization_id, self.request.experience_date_id

    @property
    def customer_key(self) -> tuple[str, str]:
        return self.organization_id, email_key(self.request.customer.email)


@dataclass(slots=True)
class Accepted:
    """A request that becomes a booking."""

    position: int
    create: Create
    sale: Sale

    @property
    def event_count(self) -> int:
        """booking.created and booking.confirmed, and before them customer.created for a new customer."""
        return 2 + self.sale.brings_customer


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
    held, locked, surroundings = tx.together(
        idempotency.asking_locks(tx.dialect, [create.key for create in creates]),
        store.asking_departures((create.departure_key, idempotency.lock_name(*create.key)) for create in creates),
        store.asking_surroundings(
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
    try:
        if around.fingerprint is not None and around.status is not None and around.body_sealed is not None:
            stored = (around.fingerprint, around.status, around.body_sealed)
            batch.outcomes[position] = idempotency.replay(create.caller.secret_keys, create.once, *stored)
        elif batch.first_by_key.setdefault(create.key, position) == position:
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
    organization = create.caller.organization
    sale.refuse_unbookable(departure, organization, around.at)
    quote = sale.price(organization, departure, create.request)
    taken = departure.seats_taken + batch.seats_sold[create.departure_key]
    available = departures.seats_available(departure.seats_total, taken, around.seats_held)
    if quote.seats > available:
        raise InsufficientCapacity(available)
    batch.seats_sold[create.departure_key] += quote.seats
    known = around.customer_id or batch.new_customers.get(create.customer_key)
    customer_id = known or batch.new_customers.setdefault(create.customer_key, tokens.new_id())
    sold = Sale(
        organization, create.request, departure, quote, around.at, customer_id, known is None, BookingSource.API
    )
    batch.accepted.append(Accepted(position, create, sold))


def _write(tx: Tx, batch: Batch) -> None:
    wanted: dict[str, tuple[int, int]] = {}
    if batch.new_customers:
        # Named first, since SQLite writes table by table: a booking refers to its customer.
        batch.pending.rows = {tables.customers: [], **batch.pending.rows}
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
    at = max((accepted.sale.at for accepted in batch.accepted), default=0)
    for (organization_id, departure_id), seats in batch.seats_sold.items():
        if seats:
            change = {"organization_id": organization_id, "id": departure_id, "updated_at": at, "seats_taken": seats}
            batch.pending.change(store.TAKE_SEATS, **change)


def _write_one(pending: Writes, accepted: Accepted, number: int, sequence: int) -> Answer:
    create, sold = accepted.create, accepted.sale
    caller = create.caller
    booked = sale.row(sold, tokens.new_id(), caller.secret_keys.first_id, number)
    shown = sale.write(pending, sold, booked, sequence)
    link = ManageLinks(caller.installation, caller.organization.id).of(booked, sold.at)
    answer = Answer(CREATED, rules.with_link(shown, link))
    idempotency.keep(pending, caller, create.once, answer, at=sold.at)
    return answer


def _outcome(batch: Batch, position: int) -> Answer | BookingError:
    """The outcome of a request; for a key that came twice in one batch, a replay of its first."""
    create = batch.creates[position]
    first = batch.first_by_key.get(create.key, position)
    outcome = batch.outcomes[first]
    if first == position or isinstance(outcome, BookingError):
        return outcome
    if create.once.fingerprint != batch.creates[first].once.fingerprint:
        return IdempotencyKeyReused()
    return Answer(outcome.status, outcome.body, replayed=True)

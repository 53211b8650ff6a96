"""Creating bookings, written for many.

What waits is decided together: every departure, customer and stored answer that the requests need is read with one
statement each, the rules decide in memory, in order, each against the seats left by the one before, and everything is
written at once. A rush on one departure or one organization then costs one lock for a batch instead of one for each
booking. One booking is a batch of one.

Two processes whose batches meet in one organization of many would wait for each other's disk with everything they have
in hand. So a batch goes on without an organization whose numbers another transaction has, and puts its requests off.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from booking_core import departures, events, idempotency, tokens
from booking_core.bookings import rules, sale, service, store
from booking_core.bookings.sale import Sale
from booking_core.bookings.store import DepartureRow, Surroundings
from booking_core.context import Caller
from booking_core.db.engine import Tx
from booking_core.errors import (
    BookingError,
    IdempotencyInProgress,
    IdempotencyKeyReused,
    InsufficientCapacity,
    NotFound,
)
from booking_core.guest_links import ManageLinks
from booking_core.idempotency import Answer, Once, Refuse
from booking_core.models.base import email_key
from booking_core.models.bookings import BookingCreate, BookingSource

CREATED = 201


@dataclass(frozen=True, slots=True)
class Create:
    """One request to book, and how a refusal of it is answered."""

    caller: Caller
    request: BookingCreate
    once: Once
    refuse: Refuse
    waits: bool = False
    """Whether it waits for the numbers of its organization. Else it is put off when another transaction has them, and
    there are others in the batch that need not wait."""

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


class PutOff:
    """No answer yet: nothing was done, and the request is to be made again, then as one that waits."""


PUT_OFF = PutOff()
Outcome = Answer | BookingError | PutOff


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
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    refused: dict[int, int] = field(default_factory=dict)
    """The instant of each refusal that is kept for its key."""
    accepted: list[Accepted] = field(default_factory=list)
    seats_sold: Counter[tuple[str, str]] = field(default_factory=Counter)
    new_customers: dict[tuple[str, str], str] = field(default_factory=dict)
    first_by_key: dict[tuple[str, str], int] = field(default_factory=dict)


def create_many(tx: Tx, creates: Sequence[Create]) -> list[Outcome]:
    """The answer to each request, in order; an error for one that leaves no trace; and those that were put off.

    Refusals that were reached by executing (decision I3) are answers, stored for their key like a success.
    """
    batch = _read(tx, creates)
    for position in range(len(creates)):
        if position not in batch.outcomes:
            _decide(batch, position)
    _write(tx, batch)
    return [_outcome(batch, position) for position in range(len(creates))]


def _read(tx: Tx, creates: Sequence[Create]) -> Batch:
    held, locked, surroundings = tx.pipeline(
        idempotency.locks_query(tx.dialect, [create.key for create in creates]),
        store.departures_query((create.departure_key, idempotency.lock_name(*create.key)) for create in creates),
        store.surroundings_query(
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
            batch.outcomes[position] = idempotency.replay(create.caller, create.once, *stored)
        elif batch.first_by_key.setdefault(create.key, position) == position:
            _accept(batch, position, create, around)
        # else the same new key twice in one batch: answered as its first, see _outcome
    except idempotency.STORED_REFUSALS as error:
        batch.outcomes[position] = create.refuse(error)
        batch.refused[position] = around.at
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
    counters = _reserve(tx, batch)
    _put_off(batch, counters)
    for position, at in batch.refused.items():
        create, answer = batch.creates[position], batch.outcomes[position]
        assert isinstance(answer, Answer)
        idempotency.keep(tx, create.caller, create.once, answer, at=at)
    for accepted in batch.accepted:
        organization_id = accepted.create.organization_id
        number, sequence = counters[organization_id]
        counters[organization_id] = number + 1, sequence + accepted.event_count
        batch.outcomes[accepted.position] = _write_one(tx, accepted, number + 1, sequence + 1)
    _write_seats(tx, batch)


def _reserve(tx: Tx, batch: Batch) -> dict[str, tuple[int, int]]:
    """The last booking number and event sequence of each organization that books, but for those to be put off."""
    wanted: dict[str, tuple[int, int]] = {}
    for accepted in batch.accepted:
        numbers, sequences = wanted.get(accepted.create.organization_id, (0, 0))
        wanted[accepted.create.organization_id] = numbers + 1, sequences + accepted.event_count
    patient = {create.organization_id for create in batch.creates if create.waits or len(wanted) == 1}
    # Those that are waited for come first, and in order: nobody who waits has what it did not wait for, so none waits
    # in a circle.
    first = {each: numbers for each, numbers in wanted.items() if each in patient}
    others = {each: numbers for each, numbers in wanted.items() if each not in patient}
    reserved = events.lock_sequences(tx, first) if first else {}
    if others:
        reserved |= events.try_lock_sequences(tx, others) or ({} if first else events.lock_sequences(tx, others))
    return reserved


def _put_off(batch: Batch, reserved: Collection[str]) -> None:
    """Takes back what was decided for organizations without reserved numbers. Also what was refused there: it was
    decided on seats that bookings before it will only have later."""
    late = {accepted.create.organization_id for accepted in batch.accepted}.difference(reserved)
    if not late:
        return
    for position in [*batch.refused, *(accepted.position for accepted in batch.accepted)]:
        if batch.creates[position].organization_id in late:
            batch.outcomes[position] = PUT_OFF
            batch.refused.pop(position, None)
    batch.accepted = [accepted for accepted in batch.accepted if accepted.create.organization_id not in late]
    for key in [key for key in batch.seats_sold if key[0] in late]:
        del batch.seats_sold[key]


def _write_seats(tx: Tx, batch: Batch) -> None:
    at = max((accepted.sale.at for accepted in batch.accepted), default=0)
    for (organization_id, departure_id), seats in batch.seats_sold.items():
        if seats:
            change = {"organization_id": organization_id, "id": departure_id, "updated_at": at, "seats_taken": seats}
            tx.update(store.TAKE_SEATS, **change)


def _write_one(tx: Tx, accepted: Accepted, number: int, sequence: int) -> Answer:
    create, sold = accepted.create, accepted.sale
    caller = create.caller
    booked = sale.row(sold, tokens.new_id(), caller.secret_keys.first_id, number)
    shown = sale.write(tx, sold, booked, sequence)
    link = ManageLinks(caller.installation, caller.organization.id).of(booked, service.ends_at(booked), sold.at)
    answer = Answer(CREATED, rules.with_link(shown, link))
    idempotency.keep(tx, caller, create.once, answer, at=sold.at)
    return answer


def _outcome(batch: Batch, position: int) -> Outcome:
    """The outcome of a request; for a key that came twice in one batch, a replay of its first."""
    create = batch.creates[position]
    first = batch.first_by_key.get(create.key, position)
    outcome = batch.outcomes[first]
    if first == position or not isinstance(outcome, Answer):
        return outcome
    if create.once.fingerprint != batch.creates[first].once.fingerprint:
        return IdempotencyKeyReused()
    return Answer(outcome.status, outcome.body, replayed=True)

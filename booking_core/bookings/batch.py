"""Create many bookings in one transaction.

Waiting requests are decided together. One statement each reads every departure, customer and stored answer that the
requests need; the rules then decide in memory, in order, each request against the seats that the earlier ones left;
everything is written at once. Many requests for one departure or one organization then cost one lock for each batch
instead of one for each booking. One booking is a batch of one: its sequences are locked by the statements that read.
This saves a round trip, and few others wait for them meanwhile.

A batch has requests of many organizations, so it waits for no lock: it goes on without the requests whose departure or
counters another transaction has locked, and defers them. A batch that waits for locks has requests of one organization.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy.engine import Dialect

from booking_core.base import tokens
from booking_core.base.context import Caller
from booking_core.base.errors import BookingError, IdempotencyInProgress, IdempotencyKeyReused, NotFound
from booking_core.base.guest_links import ManageLinks
from booking_core.bookings import capacity, drafts, pricing, rules, store
from booking_core.bookings.drafts import BookingDraft
from booking_core.bookings.rules import LockedDeparture, Reference
from booking_core.bookings.store import BatchContext
from booking_core.catalogue import holds
from booking_core.catalogue.holds import HoldKey, HoldRow
from booking_core.db import tables
from booking_core.db.engine import Query, Tx, lock_wait_query
from booking_core.models.base import email_key
from booking_core.models.bookings import BookingCreate, BookingSource
from booking_core.records import events, idempotency
from booking_core.records.events import Sequences
from booking_core.records.idempotency import Answer, Once, Refuse


class LockWait:
    """The longest wait of a transaction for its locks, all of them together.

    PostgreSQL limits the wait for each lock, so the limit is set again after a lock that was waited for.

    Args:
        until_s: the end of the wait, by the clock.
        clock: returns monotonic seconds.
    """

    def __init__(self, until_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._until_s = until_s
        self._clock = clock
        self._limit_s = float("inf")

    def limit(self) -> Query[None]:
        """Return the query that limits the wait of each following statement to the time that is left."""
        self._limit_s = self._until_s - self._clock()
        return lock_wait_query(max(1, round(self._limit_s * 1000)))

    @property
    def has_waited(self) -> bool:
        """Return True if so much time has passed that the limit is to be set again."""
        return self._limit_s - (self._until_s - self._clock()) > _WAITED_S


_WAITED_S = 0.1


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """A request of the API to create a booking, with its idempotency key and the answer to a refusal."""

    caller: Caller
    request: BookingCreate
    once: Once
    refuse: Refuse
    traceparent: str | None = None
    """The trace context (W3C) of the request."""

    @property
    def organization_id(self) -> str:
        return self.caller.organization.id

    @property
    def key(self) -> tuple[str, str]:
        return self.organization_id, self.once.key

    @property
    def departure_key(self) -> tuple[str, str]:
        return self.organization_id, self.request.departure_id

    @property
    def customer_key(self) -> tuple[str, str]:
        return self.organization_id, email_key(self.request.customer.email)

    @property
    def hold_key(self) -> HoldKey | None:
        """Return the key of the hold whose seats the booking takes over."""
        hold_id = self.request.hold_id
        return None if hold_id is None else (self.organization_id, hold_id)

    @property
    def unique_reference(self) -> Reference | None:
        """Return the external reference that no other booking may have."""
        text = self.request.external_reference
        is_asked = text is not None and self.request.external_reference_unique
        return Reference(self.organization_id, text) if text is not None and is_asked else None


@dataclass(frozen=True, slots=True)
class Deferred:
    """The result of a request that changed nothing, since another transaction has a lock that it needs."""

    departure_id: str | None = None
    """The departure that is locked, or whose hold is; none when the organization's counters or a reference are."""


CreateResult = Answer | BookingError | Deferred


class AcceptedRequest(NamedTuple):
    """A request that becomes a booking."""

    position: int
    create: CreateRequest
    draft: BookingDraft
    event_count: int
    """booking.created and booking.confirmed, and customer.created for a new customer."""


@dataclass(slots=True)
class CreateBatch:
    """The requests of one transaction and their results, both by position."""

    creates: Sequence[CreateRequest]
    departures: dict[tuple[str, str], LockedDeparture]
    contexts: dict[int, BatchContext]
    departures_locked_by_others: Collection[tuple[str, str]] = ()
    references_locked: Collection[Reference] = ()
    """The external references that requests want to be unique, and that this transaction has locked."""
    references_taken: set[Reference] = field(default_factory=set)
    """Those that a booking has, of an earlier transaction or of this one."""
    sequences: Mapping[str, Sequences | None] = field(default_factory=dict)
    """Sequences that the first queries locked, by organization; None: another transaction has locked them."""
    holds: dict[HoldKey, HoldRow] = field(default_factory=dict)
    """Locked holds that requests take over, as the bookings before have left them. Most batches have none."""
    holds_locked_by_others: Collection[HoldKey] = ()
    holds_at: int = 0
    """The instant that decides whether they are live. All have the same: a hold that was counted must not expire before
    its seats are taken over."""
    held_by_others: dict[tuple[str, str], int] = field(default_factory=dict)
    """The seats of live holds that no request names, of the departures of `holds`."""
    results: dict[int, CreateResult] = field(default_factory=dict)
    refused_at: dict[int, int] = field(default_factory=dict)
    """The instant of each refusal that is stored for its idempotency key."""
    accepted: list[AcceptedRequest] = field(default_factory=list)
    seats_sold: Counter[tuple[str, str]] = field(default_factory=Counter)
    new_customers: dict[tuple[str, str], str] = field(default_factory=dict)
    first_by_key: dict[tuple[str, str], int] = field(default_factory=dict)


def create_many(tx: Tx, creates: Sequence[CreateRequest], *, lock_wait: LockWait | None = None) -> list[CreateResult]:
    """Create the bookings, and return the result of each request in order.

    A refusal that was reached by executing (decision I3) is an answer, stored for its key like a success. A request
    that stores nothing results in its error, and a deferred one in `Deferred`.

    Args:
        lock_wait: for requests of one organization. Without it no lock is waited for.

    Raises:
        Unavailable: `is_locked`: a lock was not free in time. Nothing was done.
    """
    queries: dict[str, Query[Any]] = {"limit": lock_wait.limit()} if lock_wait else {}
    queries |= first_queries(tx.dialect, creates, is_blocking=lock_wait is not None)
    answers = dict(zip(queries, tx.pipeline(*queries.values()), strict=True))
    return decide_many(tx, creates, answers, lock_wait=lock_wait)


def first_queries(
    dialect: Dialect, creates: Sequence[CreateRequest], *, is_blocking: bool = False
) -> dict[str, Query[Any]]:
    """Return the queries that lock and read what `decide_many` needs: one pipeline, the first of a transaction.

    They are in the order of every transaction's locks. `holds`, `references` and `sequence` are absent where no request
    needs them.

    Args:
        is_blocking: wait for locks.
    """
    names = [idempotency.lock_name(*create.key) for create in creates]
    wanted_holds = [(key, name) for create, name in zip(creates, names, strict=True) if (key := create.hold_key)]
    wanted_references = {reference for create in creates if (reference := create.unique_reference)}
    queries: dict[str, Query[Any]] = {}
    if wanted_holds:  # locked before their departures, as everywhere
        queries["holds"] = holds.locks_query(wanted_holds, blocking=is_blocking)
    departure_keys = zip((create.departure_key for create in creates), names, strict=True)
    queries["keys"] = idempotency.locks_query([create.key for create in creates])
    queries["departures"] = store.departures_query(departure_keys, blocking=is_blocking)
    queries["contexts"] = store.contexts_query(_context_keys(creates))
    if wanted_references:
        queries["references"] = store.references_query(wanted_references, blocking=is_blocking)
        queries["taken_references"] = store.taken_query(wanted_references)
    if len(creates) == 1 and not is_blocking and dialect.name != "sqlite":
        # The last lock. With several requests it waits until it is known which of them become bookings.
        queries["sequence"] = events.sequences_query(creates[0].organization_id)
    return queries


def _context_keys(creates: Sequence[CreateRequest]) -> Iterator[dict[str, object]]:
    for position, create in enumerate(creates):
        yield {
            "i": position,
            "organization_id": create.organization_id,
            "key": create.once.key,
            "departure_id": create.request.departure_id,
            "email_key": create.customer_key[1],
            "ahead": create.caller.organization.clock_offset or 0,
        }


def decide_many(
    tx: Tx, creates: Sequence[CreateRequest], answers: Mapping[str, Any], *, lock_wait: LockWait | None = None
) -> list[CreateResult]:
    """Decide about the requests, collect the rows to write, and return the results as `create_many` does.

    Args:
        answers: the results of `first_queries` by their names, in this transaction.
    """
    batch = _read(tx, creates, answers, is_blocking=lock_wait is not None)
    for position in range(len(creates)):
        if position not in batch.results:
            _decide(batch, position)
    _write(tx, batch, lock_wait)
    return [_result(batch, position) for position in range(len(creates))]


def _read(tx: Tx, creates: Sequence[CreateRequest], answers: Mapping[str, Any], *, is_blocking: bool) -> CreateBatch:
    batch = CreateBatch(creates, departures=answers["departures"], contexts=answers["contexts"])
    if "references" in answers:
        batch.references_locked, batch.references_taken = answers["references"], set(answers["taken_references"])
    if "sequence" in answers:
        batch.sequences = {creates[0].organization_id: answers["sequence"]}
    batch.results.update((i, IdempotencyInProgress()) for i, is_locked in enumerate(answers["keys"]) if not is_locked)
    can_be_locked = not is_blocking and tx.dialect.name == "postgresql"
    if can_be_locked:
        batch.departures_locked_by_others = _locked_departures(tx, batch)
    if "holds" in answers:
        _read_holds(tx, batch, answers["holds"], can_be_locked=can_be_locked)
    return batch


def _locked_departures(tx: Tx, batch: CreateBatch) -> Collection[tuple[str, str]]:
    """Return the departures that exist and were not locked. A statement is needed only when one was not found."""
    missing = {
        create.departure_key
        for position, create in enumerate(batch.creates)
        if position not in batch.results and batch.contexts[position].fingerprint is None
    }.difference(batch.departures)
    return store.existing(tx, tables.departures, missing) if missing else ()


def _read_holds(tx: Tx, batch: CreateBatch, locked: dict[HoldKey, HoldRow], *, can_be_locked: bool) -> None:
    """Read the seats of the holds that the requests name. Live and missing holds need statements."""
    missing = {
        key
        for position, create in enumerate(batch.creates)
        if position not in batch.results and (key := create.hold_key) and key not in locked
    }
    batch.holds = locked
    batch.holds_locked_by_others = store.existing(tx, tables.holds, missing) if missing and can_be_locked else ()
    batch.holds_at = at = max(context.at for context in batch.contexts.values())
    hold_ids: dict[tuple[str, str], list[str]] = {}
    for (organization_id, hold_id), hold in locked.items():
        departure_key = organization_id, hold.departure_id
        if departure_key in batch.departures and holds.is_live(hold, at):
            hold_ids.setdefault(departure_key, []).append(hold_id)
    batch.held_by_others = {
        key: holds.seats_held_by_others(tx, *key, own_ids=ids, at=at) for key, ids in hold_ids.items()
    }


def _decide(batch: CreateBatch, position: int) -> None:
    create, context = batch.creates[position], batch.contexts[position]
    try:
        if context.fingerprint is not None and context.status is not None and context.body_sealed is not None:
            stored = (context.fingerprint, context.status, context.body_sealed)
            batch.results[position] = idempotency.replay(create.caller, create.once, *stored)
        elif batch.first_by_key.setdefault(create.key, position) != position:
            pass
        elif (
            create.departure_key in batch.departures_locked_by_others or create.hold_key in batch.holds_locked_by_others
        ):
            batch.results[position] = Deferred(create.request.departure_id)
        elif create.unique_reference and create.unique_reference not in batch.references_locked:
            batch.results[position] = Deferred()
        else:
            _accept(batch, position, create, context)
        # A key that comes twice in one batch gets the result of its first request, see _result.
    except idempotency.STORED_REFUSALS as error:
        batch.results[position] = create.refuse(error)
        batch.refused_at[position] = context.at
    except BookingError as error:
        batch.results[position] = error


def _accept(batch: CreateBatch, position: int, create: CreateRequest, context: BatchContext) -> None:
    """Take the seats in memory, with the checks in the order of decision B4."""
    departure = batch.departures.get(create.departure_key)
    if departure is None:
        raise NotFound.of("departure")
    if create.unique_reference in batch.references_taken:
        raise rules.reference_taken()
    organization = create.caller.organization
    rules.require(capacity.refusals(departure, organization, context.at))
    seats_held = _seats_held(batch, create, context)
    quote = pricing.quote(organization, departure, create.request.guests, create.request.add_ons or ())
    sold = batch.seats_sold[create.departure_key]
    rules.require(capacity.refusals_of_seats(departure, quote.seats, seats_held=seats_held, seats_sold=sold))
    batch.seats_sold[create.departure_key] += quote.seats
    known_id = context.customer_id or batch.new_customers.get(create.customer_key)
    draft = BookingDraft(
        organization=organization,
        request=create.request,
        departure=departure,
        quote=quote,
        at=context.at,
        customer_id=known_id or batch.new_customers.setdefault(create.customer_key, tokens.new_id()),
        is_new_customer=known_id is None,
        source=BookingSource.API,
    )
    batch.accepted.append(AcceptedRequest(position, create, draft, 2 + draft.is_new_customer))
    if create.request.external_reference is not None:
        batch.references_taken.add(Reference(create.organization_id, create.request.external_reference))
    if create.hold_key is not None:
        hold = batch.holds[create.hold_key]
        batch.holds[create.hold_key] = hold._replace(ended_at=context.at, booking_id="")


def _seats_held(batch: CreateBatch, create: CreateRequest, context: BatchContext) -> int:
    """Return the seats that others hold, after a check of the hold that the request names.

    Raises:
        NotFound, Conflict: the hold cannot be taken over.
    """
    if create.hold_key is not None:
        holds.require_usable(batch.holds.get(create.hold_key), create.request.departure_id, batch.holds_at)
    others = batch.held_by_others.get(create.departure_key)
    if others is None:
        return context.seats_held
    return others + sum(
        hold.seats
        for (owner, hold_id), hold in batch.holds.items()
        if (owner, hold.departure_id) == create.departure_key
        and hold_id != create.request.hold_id
        and holds.is_live(hold, batch.holds_at)
    )


def _write(tx: Tx, batch: CreateBatch, lock_wait: LockWait | None) -> None:
    counters = _lock_counters(tx, batch, lock_wait)
    _defer(batch, counters)
    for position, at in batch.refused_at.items():
        create, answer = batch.creates[position], batch.results[position]
        assert isinstance(answer, Answer)
        idempotency.keep(tx, create.caller, create.once, answer, at=at)
    links: dict[str, ManageLinks] = {}
    for accepted in batch.accepted:
        organization_id = accepted.create.organization_id
        number, sequence = counters[organization_id]
        counters[organization_id] = number + 1, sequence + accepted.event_count
        tx.traceparent = accepted.create.traceparent
        if organization_id not in links:
            links[organization_id] = ManageLinks(accepted.create.caller.installation, organization_id)
        batch.results[accepted.position] = _write_one(tx, accepted, number + 1, sequence + 1, links[organization_id])
    _write_seats(tx, batch)


def _lock_counters(tx: Tx, batch: CreateBatch, lock_wait: LockWait | None) -> dict[str, tuple[int, int]]:
    """Lock the counters of the organizations that book, and return their last booking number and event sequence.

    Without a lock wait, organizations whose counters another transaction has locked are left out.
    """
    counts: dict[str, tuple[int, int]] = {}
    for accepted in batch.accepted:
        numbers, sequences = counts.get(accepted.create.organization_id, (0, 0))
        counts[accepted.create.organization_id] = numbers + 1, sequences + accepted.event_count
    if not counts:
        return {}
    if not batch.sequences:
        if lock_wait is None:
            return events.try_lock_sequences(tx, counts)
        if lock_wait.has_waited:
            tx.pipeline(lock_wait.limit())
        return events.lock_sequences(tx, counts)
    before = {}
    for organization_id, (numbers, sequences) in counts.items():
        if (locked := batch.sequences[organization_id]) is not None:
            events.advance(tx, organization_id, locked, numbers, sequences)
            before[organization_id] = (locked.last_booking_number, locked.last_event_sequence)
    return before


def _defer(batch: CreateBatch, locked: Collection[str]) -> None:
    """Defer the requests of organizations whose counters are not locked.

    Refusals are deferred too: they were decided on seats that earlier requests of the batch have not taken after all.
    """
    deferred = {accepted.create.organization_id for accepted in batch.accepted}.difference(locked)
    if not deferred:
        return
    for position in [*batch.refused_at, *(accepted.position for accepted in batch.accepted)]:
        if batch.creates[position].organization_id in deferred:
            batch.results[position] = Deferred()
            batch.refused_at.pop(position, None)
    batch.accepted = [accepted for accepted in batch.accepted if accepted.create.organization_id not in deferred]
    for key in [key for key in batch.seats_sold if key[0] in deferred]:
        del batch.seats_sold[key]


def _write_seats(tx: Tx, batch: CreateBatch) -> None:
    at: dict[str, int] = {}
    for accepted in batch.accepted:  # by organization: the clocks of sandboxes differ
        owner = accepted.create.organization_id
        at[owner] = max(at.get(owner, 0), accepted.draft.at)
    for (owner, departure_id), seats in batch.seats_sold.items():
        if seats:
            capacity.take_seats(tx, owner, departure_id, seats, at=at[owner])


def _write_one(tx: Tx, accepted: AcceptedRequest, number: int, sequence: int, links: ManageLinks) -> Answer:
    create, draft = accepted.create, accepted.draft
    caller = create.caller
    row = drafts.build_row(draft, tokens.new_id(), caller.secret_keys.first_id, number)
    rendered = drafts.write(tx, draft, row, sequence)
    if create.request.hold_id is not None:
        holds.take_over(tx, caller.organization.id, create.request.hold_id, row.id, at=draft.at)
    link = links.of(row, rules.ends_at(row), draft.at)
    answer = Answer(rules.CREATED, rules.with_link(rendered, link))
    idempotency.keep(tx, caller, create.once, answer, at=draft.at)
    return answer


def _result(batch: CreateBatch, position: int) -> CreateResult:
    """Return the result of a request; for a key that comes twice in one batch, a replay of its first result."""
    create = batch.creates[position]
    first = batch.first_by_key.get(create.key, position)
    result = batch.results[first]
    if first == position or not isinstance(result, Answer):
        return result
    if create.once.fingerprint != batch.creates[first].once.fingerprint:
        return IdempotencyKeyReused()
    return Answer(result.status, result.body, replayed=True)

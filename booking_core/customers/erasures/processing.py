"""Processes erasures: a bounded number of rows in each transaction, and what is left goes on in the next.

Each page replaces values by constants, so a page that is processed twice changes nothing the second time. The bodies of
a booking's events are replaced with the booking, since the doctor compares the two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from booking_core import customers, notifications, organizations
from booking_core.base.clock import MINUTE
from booking_core.base.context import Installation, Organization
from booking_core.customers.erasures import rules, store
from booking_core.customers.erasures.rules import Erasure, Progress, Step
from booking_core.customers.erasures.store import GuestBooking
from booking_core.db import tables
from booking_core.db.due import DueRows, Processed
from booking_core.db.engine import Tx
from booking_core.models.base import email_key
from booking_core.records import idempotency
from booking_core.records.outbox import OutboxKind

SETTLED_AFTER = MINUTE
"""Requests that began before the customer was anonymized have ended after this time, with what they have written."""
ROWS_MAX = 100
"""Rows that one transaction reads: on SQLite, which has one writer, a booking waits for it."""
_ENTRIES = 20
"""Timeline entries of a page. Each may be of another booking, with some events."""

DUE = DueRows(
    tables.erasures,
    tables.erasures.c.requested_at,
    tables.erasures.c.customer_id,
    lambda _: (tables.erasures.c.finished_at.is_(None),),
    ahead=-SETTLED_AFTER,
)


def process(tx: Tx, installation: Installation, organization_id: str, customer_ids: Sequence[str]) -> Processed[None]:
    """Process a part of those of the erasures that are unfinished, and skip locked ones."""
    found = {each.customer_id: each for each in store.lock(tx, organization_id, customer_ids)}
    if not found:
        return Processed()
    eraser = _Eraser(tx, installation, organizations.by_id(tx, organization_id), tx.now())
    left, done, rows = dict[str, Erasure](), list[str](), 0
    while rows < ROWS_MAX and (group := rules.next_group(list(found.values()))):
        progress = eraser.process_page(group)
        for each in group:
            _move(each, progress, found, left, done)
        rows += 1 + (progress.rows if progress else 0)
    _write(tx, organization_id, left, done, eraser.at)
    return Processed(done, list(found))


def _move(
    erasure: Erasure, progress: Progress | None, found: dict[str, Erasure], left: dict[str, Erasure], done: list[str]
) -> None:
    """Move an erasure behind a page; without progress it has to wait."""
    customer_id = erasure.customer_id
    following = rules.advanced(erasure, progress) if progress else None
    if following is not None:
        found[customer_id] = left[customer_id] = following
        return
    del found[customer_id]
    if progress:
        left.pop(customer_id, None)
        done.append(customer_id)


def _write(tx: Tx, organization_id: str, left: dict[str, Erasure], done: list[str], at: int) -> None:
    for erasure in left.values():
        store.advance(tx, organization_id, erasure, at)
    for customer_id in done:
        store.finish(tx, organization_id, customer_id, at)


@dataclass(frozen=True, slots=True)
class _Eraser:
    """Replaces the data of guests in one transaction."""

    tx: Tx
    installation: Installation
    organization: Organization
    at: int

    @property
    def owner(self) -> str:
        return self.organization.id

    def process_page(self, group: Sequence[Erasure]) -> Progress | None:
        """Process a page for the erasures, which are at one position. None: it waits for a delivery in flight."""
        pages: dict[Step, Callable[[Sequence[Erasure]], Progress | None]] = {
            Step.BOOKINGS: self._bookings,
            Step.LEGACY_BOOKINGS: self._legacy_bookings,
            Step.EVENTS: self._customer_events,
            Step.GIFT_CARDS: self._gift_cards,
            Step.MAILS: self._mails,
            Step.STORED_ANSWERS: self._answers,
        }
        return pages[group[0].step](group)

    # Steps of a customer -----------------------------------------------------------------------------------------

    def _bookings(self, group: Sequence[Erasure]) -> Progress | None:
        """Process bookings by the customer's timeline, in which each has an entry."""
        (erasure,) = group
        entries = store.find_entries(self.tx, self.owner, erasure.customer_id, erasure.position, _ENTRIES)
        named = {entry.booking_id for entry in entries if entry.booking_id is not None}
        found = store.lock_bookings(self.tx, self.owner, erasure.customer_id, named) if named else []
        over = [each for each in found if not (each.is_to_come(self.at) or each.is_anonymous)]
        events = self._anonymize_bookings(over)
        if events is None:
            return None
        for entry in entries:
            data = rules.timeline_data(entry.data)
            if data is not None:
                store.update_entry(self.tx, self.owner, erasure.customer_id, entry, data)
        for booking in found:
            if booking.is_to_come(self.at) and not booking.is_anonymous:
                self._give_to_new_customer(erasure.customer_id, booking)
        is_last = len(entries) < _ENTRIES
        return Progress(None if is_last else (entries[-1].created_at, entries[-1].id), len(entries) + events)

    def _legacy_bookings(self, group: Sequence[Erasure]) -> Progress | None:
        (erasure,) = group
        found = store.find_legacy_bookings(self.tx, self.owner, erasure.position, ROWS_MAX)
        own = [each for each in found if email_key(each.guest_email or "") in erasure.addresses]
        events = self._anonymize_bookings([each for each in own if not each.is_to_come(self.at)])
        if events is None:
            return None
        return Progress((found[-1].id,) if len(found) == ROWS_MAX else None, len(found) + events)

    def _anonymize_bookings(self, bookings: Sequence[GuestBooking]) -> int | None:
        """Anonymize bookings with their events; return how many events. None: a delivery is in flight."""
        if not bookings:
            return 0
        events = store.find_events(self.tx, self.owner, [each.id for each in bookings])
        if not self._anonymize_events(events, {each.id: rules.BOOKING for each in bookings}):
            return None
        store.anonymize_bookings(self.tx, self.owner, bookings, self.at)
        return len(events)

    def _give_to_new_customer(self, customer_id: str, booking: GuestBooking) -> None:
        """Give a booking that was made while its customer was anonymized to the present customer of its address."""
        shown, _ = customers.get_or_add(
            self.tx,
            self.organization,
            email=booking.guest_email or "",
            name=booking.guest_name or "",
            phone=booking.guest_phone,
            at=self.at,
        )
        store.give_booking(self.tx, self.owner, booking.id, customer_id=customer_id, new_customer_id=shown["id"])

    def _customer_events(self, group: Sequence[Erasure]) -> Progress | None:
        (erasure,) = group
        (after,) = erasure.position or (0,)
        events = store.find_events(self.tx, self.owner, [erasure.customer_id], after=after, limit=ROWS_MAX)
        contact = customers.anonymous_contact(erasure.customer_id)
        if not self._anonymize_events(events, {erasure.customer_id: contact}):
            return None
        return Progress((events[-1].sequence,) if len(events) == ROWS_MAX else None, len(events))

    def _anonymize_events(self, events: Sequence[store.EventRow], replacements: dict[str, dict[str, Any]]) -> bool:
        """Replace fields of the events' objects, and forget what receivers answered.

        Returns:
            False without a change if an attempt is in flight: its result would be recorded later.
        """
        deliveries = store.find_deliveries(self.tx, self.owner, events)
        if any(is_in_flight for _, is_in_flight in deliveries):
            return False
        for event in events:
            body = rules.event_body(event.body, replacements[event.resource_id])
            if body is not None:
                store.update_event(self.tx, self.owner, event.sequence, body)
        store.forget_excerpts(self.tx, self.owner, [delivery_id for delivery_id, _ in deliveries])
        return True

    # Steps of an organization ------------------------------------------------------------------------------------

    def _gift_cards(self, group: Sequence[Erasure]) -> Progress | None:
        addresses = frozenset[str]().union(*(each.addresses for each in group))
        cards = store.find_cards(self.tx, self.owner, group[0].position, ROWS_MAX)
        replaced: dict[str, store.CardRow] = {}
        for card in cards:
            emptied = rules.emptied_contacts(card.contacts, addresses)
            if emptied:
                replaced[card.id] = card._replace(contacts=card.contacts | emptied)
        events = store.find_events(self.tx, self.owner, list(replaced)) if replaced else []
        shown = {card.id: rules.shown_contacts(card.contacts) for card in replaced.values()}
        if not self._anonymize_events(events, shown):
            return None
        for card in replaced.values():
            store.update_card(self.tx, self.owner, card, self.at)
        notifications.anonymize(self.tx, self.owner, [f"{OutboxKind.GIFT_CARD_MAIL}:{card_id}" for card_id in replaced])
        return Progress((cards[-1].id,) if len(cards) == ROWS_MAX else None, len(cards) + len(events))

    def _mails(self, group: Sequence[Erasure]) -> Progress:
        found = store.find_mails(self.tx, self.owner, group[0].position, ROWS_MAX)
        keys = [key for _, key, is_anonymous in found if is_anonymous]
        notifications.anonymize(self.tx, self.owner, keys)
        return Progress((found[-1][0],) if len(found) == ROWS_MAX else None, len(found))

    def _answers(self, group: Sequence[Erasure]) -> Progress:
        """Replace the bookings and customers in stored answers, which only their own JSON names."""
        found = store.find_answers(self.tx, self.owner, group[0].position, ROWS_MAX)
        opened = {key: body for _, key, sealed in found if (body := self._opened(key, sealed)) is not None}
        named = {key: resource_id for key, body in opened.items() if (resource_id := rules.answered_id(body))}
        bookings, persons = (
            store.anonymous_ids(self.tx, self.owner, table, set(named.values()))
            for table in (tables.bookings, tables.customers)
        )
        for key, resource_id in named.items():
            if resource_id in bookings:
                self._keep(key, rules.answer_body(opened[key], rules.ANSWERED_BOOKING))
            elif resource_id in persons:
                self._keep(key, rules.answer_body(opened[key], customers.anonymous_contact(resource_id)))
        is_last = len(found) < ROWS_MAX
        return Progress(None if is_last else found[-1][:2], len(found))

    def _opened(self, key: str, sealed: str) -> bytes | None:
        """Return the body of an answer; None if no live secret key opens it, so that it is never shown again."""
        try:
            return self.installation.secret_keys.open(idempotency.SEALED_FOR, sealed, self.owner, key)
        except ValueError:
            return None

    def _keep(self, key: str, body: bytes | None) -> None:
        if body is not None:
            sealed = self.installation.secret_keys.seal(idempotency.SEALED_FOR, body, self.owner, key)
            store.update_answer(self.tx, self.owner, key, sealed)

"""Processes erasures: a bounded number of rows in each transaction. The next transaction goes on with the rest.

Each page replaces values by constants, so a page that is processed twice changes nothing the second time. The bodies of
a booking's events are replaced with the booking, since the doctor compares the two.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from booking_core import customers, notifications, organizations
from booking_core.base import tokens
from booking_core.base.context import Installation, Organization
from booking_core.customers import CustomerRow
from booking_core.customers.erasures import rules, store
from booking_core.customers.erasures.rules import Erasure, ErasureStep, PageProgress
from booking_core.customers.erasures.store import GuestBooking
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.due_work.rows import Processed
from booking_core.models.base import email_key
from booking_core.records import idempotency
from booking_core.records.outbox import OutboxKind

ROWS_MAX = 100
"""Rows that one transaction reads: on SQLite, which has one writer, a booking waits for it."""
_ENTRIES = 20
"""Timeline entries of a page. Each may be of another booking, with some events."""


def process(tx: Tx, installation: Installation, organization_id: str, customer_ids: Sequence[str]) -> Processed[None]:
    """Process a part of the unfinished erasures among these, and skip locked ones."""
    unfinished = store.lock(tx, organization_id, customer_ids)
    if not unfinished:
        return Processed()
    eraser = _Eraser(tx, installation, organizations.by_id(tx, organization_id), tx.now())
    changed, rows = dict[str, Erasure](), 0
    while rows < ROWS_MAX and (group := rules.next_group(unfinished)):
        progress = eraser.process_page(group)
        moved = [rules.advanced(erasure, progress) for erasure in group] if progress else []
        changed |= {erasure.customer_id: erasure for erasure in moved}
        unfinished = [erasure for erasure in unfinished if erasure not in group]
        unfinished += [erasure for erasure in moved if not erasure.is_finished]
        rows += 1 + (progress.rows if progress else 0)
    for erasure in changed.values():
        store.save(tx, organization_id, erasure, eraser.at)
    finished = [erasure.customer_id for erasure in changed.values() if erasure.is_finished]
    return Processed(finished, [erasure.customer_id for erasure in unfinished])


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

    def process_page(self, group: Sequence[Erasure]) -> PageProgress | None:
        """Process a page for the erasures, which are at one position. None: it waits for a delivery in flight."""
        pages: dict[ErasureStep, Callable[[Sequence[Erasure]], PageProgress | None]] = {
            ErasureStep.BOOKINGS: self._bookings,
            ErasureStep.LEGACY_BOOKINGS: self._legacy_bookings,
            ErasureStep.EVENTS: self._customer_events,
            ErasureStep.GIFT_CARDS: self._gift_cards,
            ErasureStep.MAILS: self._mails,
            ErasureStep.STORED_ANSWERS: self._answers,
        }
        return pages[group[0].step](group)

    # Steps of a customer -----------------------------------------------------------------------------------------

    def _bookings(self, group: Sequence[Erasure]) -> PageProgress | None:
        """Process bookings by the customer's timeline, which has an entry for each."""
        (erasure,) = group
        key = {"organization_id": self.owner, "customer_id": erasure.customer_id}
        entries, last = store.ENTRIES.page(self.tx, erasure.position, _ENTRIES, **key)
        booking_ids = {booking_id for _, _, booking_id, _ in entries if booking_id is not None}
        bookings = store.lock_bookings(self.tx, self.owner, erasure.customer_id, booking_ids)
        events = self._anonymize_bookings(
            [booking for booking in bookings if not (booking.is_to_come(self.at) or booking.is_anonymous)]
        )
        if events is None:
            return None
        for created_at, entry_id, _, data in entries:
            if (replaced := rules.timeline_data(data)) is not None:
                self.tx.update(tables.timeline, **key, created_at=created_at, id=entry_id, data=replaced)
        for booking in bookings:
            if booking.is_to_come(self.at) and not booking.is_anonymous:
                self._give_to_new_customer(erasure.customer_id, booking)
        return PageProgress(last, len(entries) + events)

    def _legacy_bookings(self, group: Sequence[Erasure]) -> PageProgress | None:
        (erasure,) = group
        bookings, last = store.legacy_bookings(self.tx, self.owner, erasure.position, ROWS_MAX)
        of_customer = [booking for booking in bookings if email_key(booking.guest_email or "") in erasure.addresses]
        events = self._anonymize_bookings([booking for booking in of_customer if not booking.is_to_come(self.at)])
        return None if events is None else PageProgress(last, len(bookings) + events)

    def _anonymize_bookings(self, bookings: Sequence[GuestBooking]) -> int | None:
        """Anonymize bookings with their events; return how many events. None: a delivery is in flight."""
        events, _ = store.find_events(self.tx, self.owner, [booking.id for booking in bookings])
        if not self._anonymize_events(events, {booking.id: rules.BOOKING for booking in bookings}):
            return None
        if bookings:
            store.anonymize_bookings(self.tx, self.owner, [booking.id for booking in bookings], self.at)
        return len(events)

    def _give_to_new_customer(self, customer_id: str, booking: GuestBooking) -> None:
        """Give a booking that was made while its customer was anonymized to the present customer of its address."""
        guest = booking.guest_name or "", booking.guest_email or "", booking.guest_phone or None
        customer, _ = customers.get_or_add(self.tx, self.organization, CustomerRow(self.at, tokens.new_id(), *guest))
        store.give_booking(self.tx, self.owner, booking.id, customer_id=customer_id, new_customer_id=customer["id"])

    def _customer_events(self, group: Sequence[Erasure]) -> PageProgress | None:
        (erasure,) = group
        events, last = store.find_events(self.tx, self.owner, [erasure.customer_id], erasure.position, ROWS_MAX)
        contact = customers.anonymous_contact(erasure.customer_id)
        is_done = self._anonymize_events(events, {erasure.customer_id: contact})
        return PageProgress(last, len(events)) if is_done else None

    def _anonymize_events(
        self, events: Sequence[store.StoredEvent], replacements: Mapping[str, dict[str, Any]]
    ) -> bool:
        """Replace fields of the events' objects, and forget the receivers' answers.

        Returns:
            False without a change if an attempt is in flight: its result would be recorded later.
        """
        deliveries = store.find_deliveries(self.tx, self.owner, events)
        if any(is_in_flight for _, is_in_flight in deliveries):
            return False
        for event in events:
            body = rules.event_body(event.body, replacements[event.resource_id])
            if body is not None:
                self.tx.update(tables.events, organization_id=self.owner, sequence=event.sequence, body=body)
        store.forget_excerpts(self.tx, self.owner, [delivery_id for delivery_id, _ in deliveries])
        return True

    # Steps of an organization ------------------------------------------------------------------------------------

    def _gift_cards(self, group: Sequence[Erasure]) -> PageProgress | None:
        addresses = frozenset[str]().union(*(erasure.addresses for erasure in group))
        cards, last = store.CARDS.page(self.tx, group[0].position, ROWS_MAX, organization_id=self.owner)
        replaced: dict[str, tuple[int, dict[str, str | None]]] = {}
        for card_id, updated_at, *values in cards:
            contacts = dict(zip(store.CONTACTS, values, strict=True))
            if emptied := rules.emptied_contacts(contacts, addresses):
                replaced[card_id] = updated_at, contacts | emptied
        events, _ = store.find_events(self.tx, self.owner, list(replaced))
        contacts_by_card = {card_id: rules.shown_contacts(contacts) for card_id, (_, contacts) in replaced.items()}
        if not self._anonymize_events(events, contacts_by_card):
            return None
        for card_id, (updated_at, contacts) in replaced.items():
            key = {"organization_id": self.owner, "id": card_id}
            self.tx.update(tables.gift_cards, **key, **contacts, updated_at=max(self.at, updated_at))
        notifications.anonymize(self.tx, self.owner, [f"{OutboxKind.GIFT_CARD_MAIL}:{card_id}" for card_id in replaced])
        return PageProgress(last, len(cards) + len(events))

    def _mails(self, group: Sequence[Erasure]) -> PageProgress:
        mails, last = store.MAILS.page(self.tx, group[0].position, ROWS_MAX, organization_id=self.owner)
        notifications.anonymize(self.tx, self.owner, [key for _, key, is_anonymous in mails if is_anonymous])
        return PageProgress(last, len(mails))

    def _answers(self, group: Sequence[Erasure]) -> PageProgress:
        """Replace the bookings and customers in stored answers, which only their own JSON names."""
        answers, last = store.ANSWERS.page(self.tx, group[0].position, ROWS_MAX, organization_id=self.owner)
        # An answer that no live secret key opens is never shown again.
        open_answer = partial(self.installation.secret_keys.open_or_none, idempotency.SEALED_FOR)
        bodies = ((key, open_answer(sealed, self.owner, key)) for _, key, sealed in answers)
        opened = {key: body for key, body in bodies if body is not None}
        resource_ids = {key: resource_id for key, body in opened.items() if (resource_id := rules.answered_id(body))}
        bookings, people = store.anonymous_ids(self.tx, self.owner, set(resource_ids.values()))
        replacements = dict.fromkeys(bookings, rules.ANSWERED_BOOKING)
        replacements |= {customer_id: customers.anonymous_contact(customer_id) for customer_id in people}
        for key, resource_id in resource_ids.items():
            body = rules.answer_body(opened[key], replacements.get(resource_id, {}))
            if body is not None:
                sealed = self.installation.secret_keys.seal(idempotency.SEALED_FOR, body, self.owner, key)
                self.tx.update(tables.idempotency, organization_id=self.owner, key=key, body_sealed=sealed)
        return PageProgress(last, len(answers))

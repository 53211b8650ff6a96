"""Settle refunds, and publish `booking.refunded` when money was returned, in the same transaction.

A refund returns money once: its row is locked, and changes to a status that it never leaves.
"""

import random
from collections.abc import Callable, Sequence
from itertools import groupby

from booking_core import organizations, payments
from booking_core.base.context import Actor, Organization
from booking_core.bookings import presenting, store
from booking_core.bookings.store import BookingWithPayment
from booking_core.db.engine import Tx
from booking_core.models.events import EventType
from booking_core.models.money import money_json
from booking_core.payments import Recorded, Refund, RefundResult, Returned
from booking_core.records import events
from booking_core.records.events import NewEvent


def settle_refunds(
    tx: Tx,
    results: Sequence[RefundResult],
    *,
    first_delay_s: float = payments.FIRST_RETRY_DELAY_S,
    jitter: Callable[[], float] = random.random,
) -> int:
    """Record the results of the gateway as `payments.settle` does, and return how many changed their refund."""
    changed, returned = payments.settle(tx, results, first_delay_s=first_delay_s, jitter=jitter)
    _publish(tx, returned)
    return changed


def settle_refund(tx: Tx, actor: Actor, refund_id: str, *, note: str, amount_minor: int | None = None) -> Refund:
    """Close a refund by hand as `payments.settle_refund` does, and return it."""
    _publish(tx, [payments.settle_refund(tx, actor, refund_id, note=note, amount_minor=amount_minor)])
    return payments.get_refund(tx, actor.organization, refund_id)


def record_refund(tx: Tx, actor: Actor, booking_id: str, *, amount_minor: int, note: str) -> Refund:
    """Record a refund by hand as `payments.record_refund` does, and return it."""
    returned = payments.record_refund(tx, actor, booking_id, amount_minor=amount_minor, note=note)
    _publish(tx, [returned])
    return payments.get_refund(tx, actor.organization, returned.refund.id)


def record_elsewhere(
    tx: Tx, actor: Actor, booking_id: str, gateway_minor: int, provider_refund_id: str | None
) -> Recorded:
    """Record refunds of the gateway as `payments.record_elsewhere` does, and return the result."""
    recorded = payments.record_elsewhere(tx, actor, booking_id, gateway_minor, provider_refund_id)
    _publish(tx, recorded.returned)
    return recorded


def _publish(tx: Tx, returned: Sequence[Returned]) -> None:
    """Publish returned money, the organizations in the order of their ids: their counters are locked together."""
    of = sorted((item for item in returned if item.amount_minor), key=lambda item: item.refund.organization_id)
    groups = {owner: list(group) for owner, group in groupby(of, lambda item: item.refund.organization_id)}
    owners = {owner: organizations.by_id(tx, owner) for owner in groups}
    new_events = {owner: _new_events(tx, owners[owner], group) for owner, group in groups.items()}
    counts = {owner: (0, len(of_owner)) for owner, of_owner in new_events.items()}
    last = events.lock_sequences(tx, counts) if counts else {}
    for owner, of_owner in new_events.items():
        for sequence, (event, at) in enumerate(of_owner, start=last[owner][1] + 1):
            events.append(tx, owners[owner], event, sequence=sequence, at=at)


def _new_events(tx: Tx, organization: Organization, returned: Sequence[Returned]) -> list[tuple[NewEvent, int]]:
    bookings = store.get_many_with_payment(tx, organization.id, [item.refund.booking_id for item in returned])
    return [(_refunded(organization, bookings[item.refund.booking_id], item), item.refund.at) for item in returned]


def _refunded(organization: Organization, after: BookingWithPayment, returned: Returned) -> NewEvent:
    """Return the event of a booking whose money was returned."""
    refund, before = returned.refund, after
    if refund.number == payments.CANCELLATION:  # else the money has left the payment before
        row = after.row._replace(payment_status=refund.payment_status)
        before = BookingWithPayment(row, after.recorded_minor, payments.payment_before(refund))
    amounts = {"refunded_amount": returned.amount_minor, "total_refunded": returned.total_minor}
    return events.updated(
        EventType.BOOKING_REFUNDED,
        refund.booking_id,
        before=presenting.render(organization, before, refund.at),
        after=presenting.render(organization, after, refund.at),
        extra={name: money_json(amount, refund.currency) for name, amount in amounts.items()},
    )

"""Ask Stripe for the state of payments whose webhook may have been lost: claimed, looked up, settled.

An intent is due shortly before the end of its checkout, so that a payment still books, and behind it, when an unpaid
one is canceled at Stripe, so that nobody pays for seats that are gone. A claim moves the instant of the next check: a
worker that dies leaves it to the next one, and two that settle one check record the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from booking_core import organizations, payments
from booking_core.base.clock import HOUR
from booking_core.base.context import Actor, Installation
from booking_core.bookings.checkouts import rules, store
from booking_core.bookings.checkouts.applying import Applied, apply
from booking_core.bookings.checkouts.rules import IntentState, IntentUpdate
from booking_core.bookings.checkouts.store import DueCheck
from booking_core.db.due import Processed
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingStatus
from booking_core.payments import stripe_accounts

DUE = store.DUE


@dataclass(frozen=True, slots=True)
class PaymentCheck:
    """An intent that is leased for one look-up at Stripe."""

    organization_id: str
    booking_id: str
    intent_id: str
    must_cancel: bool
    """Nothing is sold for it any more: it is canceled at Stripe, unless it was paid."""
    api_key: str = field(repr=False)
    """Empty in a sandbox."""

    @property
    def is_of_sandbox(self) -> bool:
        return payments.is_sandbox_intent(self.intent_id)


def claim(
    tx: Tx, installation: Installation, organization_id: str, booking_ids: Sequence[str]
) -> Processed[PaymentCheck]:
    """Lease those of the checks that are due. Without an account, or after many attempts, none is made any more."""
    found = store.due(tx, organization_id, booking_ids)
    account = stripe_accounts.find(tx, installation.secret_keys, organization_id) if found else None
    checks = []
    for due in found:
        has_gateway = account is not None or payments.is_sandbox_intent(due.intent_id)
        if not has_gateway or due.intent_id is None or due.check_count >= rules.CHECKS_MAX:
            _next(tx, organization_id, due, None)
            continue
        _next(tx, organization_id, due, rules.lease_until(due.at, due.check_count))
        must_cancel = due.booking_status == BookingStatus.CANCELLED
        api_key = account.api_key if account else ""
        checks.append(PaymentCheck(organization_id, due.booking_id, due.intent_id, must_cancel, api_key))
    return Processed([due.booking_id for due in found], results=checks)


def _next(tx: Tx, organization_id: str, due: DueCheck, check_at: int | None) -> None:
    key = {"organization_id": organization_id, "booking_id": due.booking_id}
    tx.update(store.LEASE, **key, check_at=check_at, check_count=due.check_count + 1)


def settle(tx: Tx, installation: Installation, check: PaymentCheck, update: IntentUpdate) -> Applied:
    """Record the state of a payment that Stripe has answered."""
    organization = organizations.by_id(tx, check.organization_id)
    at = organization.instant(tx.now())
    actor = Actor(installation=installation, organization=organization, at=at)
    result = apply(tx, actor, update)
    if update.state in (IntentState.WAITING, IntentState.DECLINED):
        _wait(tx, actor, check.booking_id)
    return result


def _wait(tx: Tx, actor: Actor, booking_id: str) -> None:
    """Ask again behind the end of the checkout."""
    row = store.lock(tx, actor.organization.id, booking_id)
    booking = store.pending(tx, actor.organization.id, booking_id)
    if row is None or booking is None or row.status not in rules.UNPAID:
        return
    if booking.status == BookingStatus.CONFIRMED:  # by staff; the guest may pay later
        check_at, count = actor.at + HOUR, row.check_count
    else:
        check_at, count = max(actor.at, booking.expires_at or 0) + rules.AFTER_END, 0
    store.change(tx, actor.organization.id, row._replace(check_at=check_at, check_count=count))

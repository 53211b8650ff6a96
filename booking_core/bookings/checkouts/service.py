"""Operations on checkouts: of the API, of staff, and of sandboxes. Ids are canonical UUIDs in lower case.

A checkout is created in two transactions with the call of Stripe between them: `create` makes the pending booking,
`record_intent` stores the intent that Stripe has made for it. The idempotency key of that call follows from the
booking: a process that dies in between, or a client that repeats its request, leaves one intent.
"""

from typing import Any, NamedTuple

import orjson

from booking_core import bookings, organizations, payments
from booking_core.base.clock import HOUR
from booking_core.base.context import Actor, Caller
from booking_core.base.errors import Conflict, Malformed, NotFound, Unprocessable
from booking_core.bookings import changes, storefront
from booking_core.bookings.checkouts import rules, store
from booking_core.bookings.checkouts.applying import apply
from booking_core.bookings.checkouts.rules import (
    SEALED_FOR,
    UNPAID,
    IntentRow,
    IntentState,
    IntentStatus,
    IntentUpdate,
    RefundUpdate,
)
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.base import multi_line
from booking_core.models.bookings import BookingSource, BookingStatus, PaymentSource
from booking_core.models.checkouts import CheckoutCreate
from booking_core.models.money import money_json
from booking_core.models.reasons import Fault
from booking_core.models.sandbox import SandboxPaymentStatus
from booking_core.payments import SandboxCard, stripe_accounts
from booking_core.payments.stripe_accounts import StripeAccount
from booking_core.records.timeline import TimelineKind

RETRYABLE = 20 * HOUR
"""Stripe forgets an idempotency key after a day: after this time no intent is made."""
NOTE_LENGTH_MAX = 500
_DECLINED = "card_declined"

# The API -------------------------------------------------------------------------------------------------------------


def create(tx: Tx, caller: Caller, request: CheckoutCreate) -> bytes:
    """Create the booking of a checkout and return it as JSON: pending until it is paid, or confirmed at once when
    nothing has to be paid.

    Raises:
        Conflict: `card_payments_not_configured`, or as `storefront.check_out`.
        Unprocessable: `amount_not_chargeable`: Stripe does not take so small a part of the currency; or as
            `storefront.check_out`.
        NotFound, InsufficientCapacity: as `storefront.check_out`.
    """
    can_charge = caller.organization.is_sandbox or stripe_accounts.exists(tx, caller.organization.id)

    def check_due(amount_minor: int, currency: str) -> None:
        if amount_minor and not can_charge:
            raise stripe_accounts.not_configured()
        if amount_minor % (unit := payments.gateway_unit(currency)):
            message = f"Cards are charged in steps of {unit} minor units of {currency}."
            raise Unprocessable.at("guests", message, "amount_not_chargeable")

    order = storefront.CheckoutRequest(
        departure_id=request.departure_id,
        guests=request.guests,
        customer=request.customer,
        add_ons=request.add_ons,
        note=request.note,
        gift_card_code=request.gift_card_code,
        locale=request.locale,
        hold_id=request.hold_id,
        external_reference=request.external_reference,
        external_reference_unique=request.external_reference_unique,
        metadata=request.metadata,
        check_due=check_due,
    )
    rendered = storefront.check_out(tx, caller, order)
    booking = orjson.loads(rendered)
    if booking["status"] == BookingStatus.PENDING:
        total = booking["totals"]["total"]
        row = rules.new_row(booking["id"], total["amount_minor"], total["currency"], caller.at)
        store.insert(tx, caller.organization.id, row)
    return rendered


class Prepared(NamedTuple):
    """The intent of a checkout, and the account that takes its payment."""

    row: IntentRow
    account: StripeAccount | None
    """None in a sandbox, and where the intent was made before and the organization has removed it since."""
    booking_number: int | None

    @property
    def has_intent(self) -> bool:
        return self.row.intent_id is not None


def prepare(tx: Tx, actor: Actor, booking_id: str) -> Prepared:
    """Return the intent of a checkout, or what Stripe needs to make it.

    Raises:
        NotFound: the booking is no checkout.
        Conflict: `card_payments_not_configured`; `payment_refused`: Stripe does not make such an intent;
            `checkout_expired`: it has no intent, and it is too late to make one.
    """
    row = store.get(tx, actor.organization.id, booking_id)
    booking = store.pending(tx, actor.organization.id, booking_id)
    if row is None or booking is None:
        raise NotFound.of("checkout")
    if row.status == IntentStatus.REFUSED:
        raise refusal(row.last_error)
    account = _account_of(tx, actor)
    if row.intent_id is None:
        if account is None and not actor.organization.is_sandbox:
            raise stripe_accounts.not_configured()
        is_live = booking.status == BookingStatus.PENDING and (booking.expires_at or 0) > actor.at
        if not is_live or actor.at - row.created_at > RETRYABLE:
            raise expired()
    return Prepared(row, account, booking.booking_number)


def _account_of(tx: Tx, actor: Actor) -> StripeAccount | None:
    is_sandbox = actor.organization.is_sandbox
    return None if is_sandbox else stripe_accounts.find(tx, actor.secret_keys, actor.organization.id)


def expired() -> Conflict:
    """Return the refusal of a checkout whose payment can no longer be asked for."""
    return Conflict("checkout_expired", "The checkout has ended: its booking no longer waits for a payment.")


def refusal(code: str | None) -> Conflict:
    """Return the refusal of a checkout without an intent at Stripe."""
    return Conflict("payment_refused", f"Stripe takes no such payment ({code}), and the booking is released.")


def record_intent(tx: Tx, actor: Actor, booking_id: str, intent_id: str, client_secret: str) -> IntentRow:
    """Store the intent that Stripe has made for a checkout; a second call changes nothing.

    Raises:
        NotFound: the booking is no checkout.
    """
    organization_id = actor.organization.id
    booking = changes.lock(tx, actor, booking_id)
    row = store.lock(tx, organization_id, booking_id)
    if row is None:
        raise NotFound.of("checkout")
    if row.client_secret_sealed is not None:
        return row
    expires_at = booking.details.expires_at or actor.at
    is_waiting = row.status == IntentStatus.REQUESTED
    changed = row._replace(
        intent_id=intent_id,
        client_secret_sealed=actor.secret_keys.seal(SEALED_FOR, client_secret.encode(), organization_id, booking_id),
        status=IntentStatus.OPEN if is_waiting else row.status,
        expires_at=expires_at,
        check_at=rules.first_check(actor.at, expires_at) if is_waiting else row.check_at,
        updated_at=actor.at,
    )
    store.change(tx, organization_id, changed)
    return changed


def refuse_intent(tx: Tx, actor: Actor, booking_id: str, code: str) -> None:
    """Record that Stripe makes no intent for a checkout, and let its booking expire at once."""
    organization_id = actor.organization.id
    booking = changes.lock(tx, actor, booking_id)
    row = store.lock(tx, organization_id, booking_id)
    if row is None or row.status != IntentStatus.REQUESTED:
        return
    changed = row._replace(status=IntentStatus.REFUSED, last_error=code[:100], updated_at=actor.at)
    store.change(tx, organization_id, changed)
    if booking.row.status == BookingStatus.PENDING:
        tx.update(tables.bookings, organization_id=organization_id, id=booking_id, expires_at=actor.at)


def get(tx: Tx, caller: Caller, booking_id: str) -> dict[str, Any]:
    """Return a checkout with its booking as it is now; the client secret while the guest can pay.

    Raises:
        NotFound: the organization has no such checkout.
    """
    presented = bookings.get(tx, caller, booking_id)
    booking = orjson.loads(orjson.dumps(presented))  # parts of it are rendered
    if booking["source"] != BookingSource.ONLINE:
        raise NotFound.of("checkout")
    if booking["payment"]["source"] != PaymentSource.STRIPE:
        return {"id": booking_id, "booking": presented, "payment": None}
    row = store.get(tx, caller.organization.id, booking_id)
    if row is None:  # made by the core's own function, and paid in another way
        total = booking["totals"]["total"]
        row = rules.new_row(booking_id, total["amount_minor"], total["currency"], caller.at)
    account = _account_of(tx, caller)
    if row.status not in UNPAID or booking["status"] == BookingStatus.CANCELLED:
        row = row._replace(client_secret_sealed=None)
    return {"id": booking_id, "booking": presented, "payment": present(caller, row, account)}


def present(actor: Actor, row: IntentRow, account: StripeAccount | None) -> dict[str, Any]:
    """Return the payment of a checkout as JSON-ready values, with its opened client secret."""
    sealed, secret = row.client_secret_sealed, None
    if sealed is not None:
        secret = actor.secret_keys.open(SEALED_FOR, sealed, actor.organization.id, row.booking_id).decode()
    return {
        "intent_id": row.intent_id,
        "client_secret": secret,
        "publishable_key": account.publishable_key if account else None,
        "amount": money_json(row.amount_minor, row.currency),
        "expires_at": actor.organization.zone.iso_or_none(row.expires_at),
    }


# For staff: payments that wait for a person ---------------------------------------------------------------------------


def find_intents(tx: Tx, actor: Actor, *, state: str | None = None, limit: int) -> list[dict[str, Any]]:
    """Return payments at Stripe, the last changed first.

    Args:
        state: `needs_review`, `disputed`, or `waiting` for both; by default all.
    """
    return [_present_for_staff(actor, *row) for row in store.find(tx, actor.organization.id, state, limit)]


def _present_for_staff(actor: Actor, row: IntentRow, booking: Any) -> dict[str, Any]:
    """Return a payment at Stripe as JSON-ready values for staff."""
    number, status, payment_status = booking
    dispute = None
    if row.dispute_id is not None:
        dispute = {
            "id": row.dispute_id,
            "status": row.dispute_status,
            "reason": row.dispute_reason,
            "amount": money_json(row.disputed_minor or 0, row.currency),
            "is_closed": row.dispute_closed_at is not None,
        }
    return {
        "booking_id": row.booking_id,
        "booking_number": number,
        "booking_status": status,
        "payment_status": payment_status,
        "payment_intent": row.intent_id,
        "status": row.status,
        "reason": row.last_error,
        "amount": money_json(row.amount_minor, row.currency),
        "refunded_elsewhere": money_json(row.returned_minor, row.currency),
        "dispute": dispute,
        "updated_at": actor.organization.zone.iso(row.updated_at),
    }


def resolve(tx: Tx, actor: Actor, booking_id: str, *, note: str) -> dict[str, Any]:
    """Close the review of a payment: staff has refunded it at Stripe, or decided otherwise, and says how.

    Raises:
        NotFound: the organization has no such booking, or it has no payment at Stripe.
        Conflict: `not_in_review`.
        Malformed: there is no note, or it is too long or not printable.
    """
    note = note.strip()
    try:
        multi_line(note)
    except Fault as error:
        raise Malformed.at("note", str(error), error.reason) from None
    if not 0 < len(note) <= NOTE_LENGTH_MAX:
        message = f"must have 1 to {NOTE_LENGTH_MAX} characters"
        raise Malformed.at("note", message, "too_long" if note else "too_short")
    booking = changes.lock(tx, actor, booking_id)
    row = store.lock(tx, actor.organization.id, booking_id)
    if row is None:
        raise NotFound("The booking has no payment at Stripe.")
    if row.status != IntentStatus.NEEDS_REVIEW:
        raise Conflict("not_in_review", "The payment waits for no review.")
    changed = row._replace(status=IntentStatus.RESOLVED, updated_at=actor.at)
    store.change(tx, actor.organization.id, changed)
    kind = TimelineKind.PAYMENT_REVIEWED
    changes.note(tx, actor, booking, kind, at=actor.at, reason=row.last_error, note=note)
    of_booking = booking.row.booking_number, booking.row.status, booking.row.payment_status
    return _present_for_staff(actor, changed, of_booking)


# Sandboxes: checkouts are paid by a test card, as a guest does at Stripe, and nothing is charged ----------------------


def pay_in_sandbox(tx: Tx, caller: Caller, booking_id: str, card: SandboxCard) -> dict[str, Any]:
    """Pay for a checkout of the caller's sandbox, and return the payment as JSON-ready values.

    It has the effects of Stripe's webhook, at once: the booking is confirmed, or the decline is recorded. A payment
    after the end of the checkout is returned (decision 0012), until the worker has canceled the intent.

    Raises:
        Conflict: `not_a_sandbox`; `paid_already`; `checkout_expired`: the intent was canceled.
        NotFound: the organization has no such checkout.
    """
    organizations.require_sandbox(caller.organization)
    row = _lock_payable(tx, caller, booking_id)
    store.change(tx, caller.organization.id, row._replace(test_card=card.value, updated_at=caller.at))
    is_declined = card is SandboxCard.DECLINED
    apply(tx, caller, _update(caller, row, card))
    status = SandboxPaymentStatus.DECLINED if is_declined else SandboxPaymentStatus.SUCCEEDED
    checkout = get(tx, caller, booking_id)
    return {"status": status.value, "error": _DECLINED if is_declined else None, "checkout": checkout}


def _lock_payable(tx: Tx, actor: Actor, booking_id: str) -> IntentRow:
    changes.lock(tx, actor, booking_id)
    payments.lock(tx, actor, booking_id)
    row = store.lock(tx, actor.organization.id, booking_id)
    if row is None or row.intent_id is None:
        raise NotFound.of("checkout")
    if row.status == IntentStatus.SUCCEEDED:
        raise Conflict("paid_already", "The checkout is paid.")
    if row.status not in UNPAID:
        raise expired()
    return row


def _update(actor: Actor, row: IntentRow, card: SandboxCard) -> IntentUpdate:
    assert row.intent_id is not None
    is_declined = card is SandboxCard.DECLINED
    return IntentUpdate(
        intent_id=row.intent_id,
        state=IntentState.DECLINED if is_declined else IntentState.SUCCEEDED,
        organization_id=actor.organization.id,
        booking_id=row.booking_id,
        received_minor=0 if is_declined else row.amount_minor,
        currency=row.currency,
        error=_DECLINED if is_declined else None,
        refunds=_whole_refund(row.intent_id, row) if card is SandboxCard.DASHBOARD_REFUND else None,
    )


def _whole_refund(intent_id: str, row: IntentRow) -> RefundUpdate:
    refund_id = f"re_test_{row.booking_id.replace('-', '')}"
    return RefundUpdate(intent_id=intent_id, refunded_minor=row.amount_minor, is_whole=True, refund_id=refund_id)


def sandbox_card_of(tx: Tx, organization_id: str, booking_id: str, payment_intent: str) -> SandboxCard:
    """Return the test card of a payment; the card whose refunds succeed where none is known."""
    card_of_intent = payments.sandbox_card_of(payment_intent)
    if card_of_intent is not None:
        return card_of_intent
    row = store.get(tx, organization_id, booking_id)
    test_card = row.test_card if row else None
    return SandboxCard(test_card) if test_card in set(SandboxCard) else SandboxCard.VISA

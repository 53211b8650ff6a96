"""`POST /stripe/webhooks/{organization}`: receive the events of an organization's account at Stripe.

The address names the organization: the secret and the cell are known before the body is read. Each event is applied in
its own transaction, in the lanes of writes. Stripe repeats an event that was refused with 503 or lost, and applying it
twice changes nothing (`booking_core.bookings.checkouts.applying`).
"""

import asyncio
import logging

from fastapi import APIRouter, Request, Response

import webhook_verify
from booking_core import organizations
from booking_core.base.errors import BookingError, Malformed, NotFound, Unavailable
from booking_core.bookings import checkouts
from booking_core.bookings.checkouts import Applied, StripeUpdate
from booking_core.db.engine import Tx
from booking_core.models.reasons import ErrorReason
from booking_core.payments import stripe_accounts
from booking_core.payments.stripe_accounts import WEBHOOK_PATH
from booking_server.adapters.stripe_intents import parse_event
from booking_server.api.dependencies import ServiceDep, credentials_of
from booking_server.execution.authenticator import Credentials
from booking_server.execution.service import Service
from booking_server.fastapi_ext.requests import read_body

log = logging.getLogger("booking.stripe")

TOLERANCE_S = 300
"""Stripe's own default: a request that was recorded is worth nothing five minutes later."""
SIGNATURE = "stripe-signature"
_SIGNATURE_FIELD = "Stripe-Signature"
_RECEIVED = b'{"received":true}'
_IGNORED = "ignored"
"""The outcome of an authentic event that no booking depends on."""
_FAILED = "failed"

router = APIRouter(include_in_schema=False)


@router.post(WEBHOOK_PATH + "{token}")
async def receive(token: str, request: Request, service: ServiceDep) -> Response:
    """Verify and apply an event."""
    owner_and_cell, outcome = stripe_accounts.organization_and_cell(token), _FAILED
    try:
        if owner_and_cell is None:
            raise NotFound
        update = await _verified(request, service, owner_and_cell[0])
        outcome = _IGNORED if update is None else str(await _apply(service, owner_and_cell[0], update))
    except BookingError as error:
        outcome = _outcome_of(error)
        reason = error.reason if isinstance(error, Unavailable) else str(error)
        log.warning(
            "a webhook of Stripe for %s was refused: %s",
            owner_and_cell[0] if owner_and_cell else "no organization",
            reason,
        )
        raise
    finally:
        request.app.state.monitor.metrics.observe_stripe_webhook(outcome)
    return Response(_RECEIVED, media_type="application/json")


def _outcome_of(error: BookingError) -> str:
    """Return the outcome of an event that was refused, for metrics."""
    if isinstance(error, Unavailable):
        return _FAILED
    if isinstance(error, NotFound):
        return "no_account"
    if isinstance(error, Malformed) and error.details and error.details[0].field == _SIGNATURE_FIELD:
        return "unsigned" if error.details[0].reason == "required" else "wrong_signature"
    return "refused"


async def _verified(request: Request, service: Service, organization_id: str) -> StripeUpdate | None:
    """Return the update of an authentic event; None for an event that no booking depends on.

    Raises:
        NotFound: the organization has no account at Stripe.
        Malformed: the signature is missing, wrong or too old, or the body is not an event.
        PayloadTooLarge: the body is larger than any request may be.
        RateLimited: too many requests with wrong signatures came from the address.
    """
    signature = request.headers.get(SIGNATURE)
    if not signature:
        raise await _refusal(request, service, "required")
    body = await read_body(request.scope, request.receive)
    if isinstance(body, BookingError):
        raise body
    # The client is not known before: a flood of forged events must not take the organization's own turns.
    secret = await service.reads.read_from(
        credentials_of(request).address, lambda tx: _secret(tx, service, organization_id)
    )
    if secret is None:
        raise NotFound
    now_s = service.database.clock() / 1_000_000
    try:
        webhook_verify.verify(body, signature, secret, tolerance=TOLERANCE_S, now=now_s)
    except webhook_verify.WebhookVerificationError as error:
        log.info("a signature of Stripe: %s", error)
        raise await _refusal(request, service, "wrong_signature") from None
    return parse_event(body)


def _secret(tx: Tx, service: Service, organization_id: str) -> str | None:
    account = stripe_accounts.find(tx, service.installation.secret_keys, organization_id)
    return account.webhook_secret if account else None


async def _refusal(request: Request, service: Service, reason: ErrorReason) -> BookingError:
    """Return the refusal of a request that Stripe did not sign, which counts against its address."""
    await asyncio.to_thread(service.authenticator.count_address, Credentials((), credentials_of(request).address))
    return Malformed.at(_SIGNATURE_FIELD, "is not the signature of this request by Stripe", reason)


async def _apply(service: Service, organization_id: str, update: StripeUpdate) -> Applied:
    def work(tx: Tx) -> Applied:
        return checkouts.apply(tx, organizations.actor_of(tx, service.installation, organization_id), update)

    return await service.write(work, organization_id=organization_id, is_once=False)

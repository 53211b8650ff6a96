"""`/api/v1/sandbox`: the clock of a sandbox, the mails that it has captured, and payments by test cards."""

from typing import Annotated

from fastapi import Query

from booking_core import sandboxes
from booking_core.base.errors import Conflict, Unprocessable
from booking_core.bookings import checkouts
from booking_core.models.pages import Page
from booking_core.models.sandbox import (
    SandboxCard,
    SandboxCheckoutPay,
    SandboxClock,
    SandboxClockAdvance,
    SandboxMail,
    SandboxPayment,
)
from booking_core.records.idempotency import Answer
from booking_server.api.commands import OptionallyIdempotentCommand
from booking_server.api.dependencies import AnyCaller, ApiRouter, BookingsWriter, CheckoutsWriter, Lane, ReadTx, runs_in
from booking_server.api.errors import refusals
from booking_server.api.parameters import ListQuery, PathId

router = ApiRouter(prefix="/api/v1/sandbox", tags=["Sandbox"])

_NOT_A_SANDBOX = Conflict("not_a_sandbox", "The organization is live.")


@router.get(
    "/clock",
    summary="Get the clock of the sandbox",
    response_model=SandboxClock,
    response_description="The clock, and the work that is due.",
    responses=refusals(_NOT_A_SANDBOX),
)
@runs_in(Lane.LOOK_UPS)
def get_sandbox_clock(caller: AnyCaller, tx: ReadTx) -> object:
    """`status` is `ready` once everything that is due at the present instant is done: expired bookings, refunds, mails
    and webhook deliveries. Poll it after an advance. Needs a key of a sandbox (`svc_test_`), with any scopes."""
    return sandboxes.clock(tx, caller)


@router.post(
    "/clock/advance",
    summary="Move the clock of the sandbox ahead",
    response_model=SandboxClock,
    response_description="The clock after the advance, with the work that has become due.",
    responses=refusals(
        _NOT_A_SANDBOX,
        Unprocessable.at("to", "The clock of a sandbox never goes back.", "in_the_past"),
    ),
)
async def advance_sandbox_clock(
    caller: BookingsWriter, command: OptionallyIdempotentCommand, body: SandboxClockAdvance
) -> Answer:
    """Moves the clock by `seconds`, or `to` an instant; it never goes back, and is at most 731 days ahead of the real
    time. Work that becomes due is done at the new instant, as after an outage of the service: move the clock in steps
    to see each retry of a webhook. Signatures of webhooks, rate limits and retention keep to the real time. `details`
    gives the reason of a `conflict` (`not_a_sandbox`) and of a 422 (`in_the_past`, `too_far_ahead`)."""
    return await command.write(caller, lambda tx: sandboxes.advance(tx, caller, body))


@router.get(
    "/mails",
    summary="List the mails that the sandbox has captured",
    response_model=Page[SandboxMail],
    response_description="A page of mails, in the order of their creation.",
    responses=refusals(_NOT_A_SANDBOX),
)
@runs_in(Lane.LISTS)
def list_sandbox_mails(caller: BookingsWriter, tx: ReadTx, query: Annotated[ListQuery, Query()]) -> object:
    """Mails to guests and to staff; none is sent. The text has the guest's link, hence the scope `bookings:write`."""
    return sandboxes.find_mails(tx, caller, query.page)


@router.post(
    "/checkouts/{id}/pay",
    summary="Pay for a checkout of the sandbox by a test card",
    response_model=SandboxPayment,
    response_description="The payment, and the checkout with its booking as it is now.",
    responses=refusals(_NOT_A_SANDBOX),
)
async def pay_sandbox_checkout(
    caller: CheckoutsWriter,
    command: OptionallyIdempotentCommand,
    booking_id: PathId,
    body: SandboxCheckoutPay = SandboxCheckoutPay(),  # noqa: B008 - frozen
) -> Answer:
    """Pays as a guest does in Stripe's form, with the effects of Stripe's webhook. Nothing is charged, and Stripe is
    not asked. The card decides about the payment, and about the refund of a later cancellation. A payment after the end
    of the checkout is refunded, as a late one of Stripe is. `details` gives the reason of a `conflict`:
    `not_a_sandbox`, `paid_already`, or `checkout_expired` once the worker has canceled the payment."""
    card = body.payment_method or SandboxCard.VISA
    return await command.write(caller, lambda tx: checkouts.pay_in_sandbox(tx, caller, booking_id, card))

"""`/api/v1/checkouts`: create and get."""

import orjson

from booking_core.base.context import Caller
from booking_core.base.errors import Conflict
from booking_core.bookings import checkouts
from booking_core.bookings.checkouts import IntentStatus, Prepared
from booking_core.models.bookings import BookingStatus
from booking_core.models.checkouts import Checkout, CheckoutCreate
from booking_core.records.idempotency import Answer
from booking_server.adapters.stripe_intents import IntentRefused, IntentRequest
from booking_server.api.commands import IdempotentCommand
from booking_server.api.dependencies import ApiRouter, CheckoutsWriter, Lane, ReadTx, ServiceDep, runs_in
from booking_server.api.errors import SALE_REFUSALS, refusals
from booking_server.api.parameters import PathId
from booking_server.execution.service import Service

router = ApiRouter(prefix="/api/v1/checkouts", tags=["Checkouts"])


_CREATED = 201


@router.post(
    "",
    summary="Create a checkout",
    status_code=_CREATED,
    response_model=Checkout,
    response_description="The checkout with its pending booking and its payment.",
    responses=refusals(
        Conflict("card_payments_not_configured", "The organization takes no card payments."), *SALE_REFUSALS
    ),
)
async def create_checkout(
    caller: CheckoutsWriter, command: IdempotentCommand, service: ServiceDep, body: CheckoutCreate
) -> Answer:
    """Books seats for a guest who pays by card at once. The booking is `pending` and keeps its seats until
    `payment.expires_at`; Stripe.js confirms the payment with `payment.client_secret` in the guest's browser, and
    Stripe's webhook confirms the booking. A booking with nothing to pay is confirmed at once, and `payment` is null. A
    retry with the same key never makes a second booking or a second PaymentIntent: after a 503 send the same request
    again. A sandbox does not call Stripe: `POST /sandbox/checkouts/{id}/pay` pays there. `details` gives the reason of
    a `conflict`: `card_payments_not_configured`, `payment_refused` (Stripe takes no such amount), `checkout_expired`,
    `external_reference_taken`, `hold_ended`, `hold_of_another_departure`, or one of `POST /bookings`."""

    async def finish(answer: Answer) -> Answer:
        return await _with_payment(service, caller, answer)

    # Before the write, or seats would be kept for guests who cannot pay.
    with service.payment_calls.place(caller.organization):
        return await command.write(caller, lambda tx: checkouts.create(tx, caller, body), finish)


async def _with_payment(service: Service, caller: Caller, answer: Answer) -> Answer:
    """Return the answer of the checkout from the answer of its booking, with its payment at Stripe.

    Stripe is called while no transaction is open. A repeated request finds the intent, or makes the same intent.
    """
    if answer.status != _CREATED:
        return answer
    booking = orjson.loads(answer.body)
    payment = None
    if booking["status"] == BookingStatus.PENDING:
        prepared = await _read(service, caller, booking["id"])
        if not prepared.has_intent:
            prepared = await _make_intent(service, caller, prepared)
        payment = checkouts.present(caller, prepared.row, prepared.account)
    checkout = {"id": booking["id"], "booking": booking, "payment": payment}
    return Answer(answer.status, orjson.dumps(checkout), answer.replayed)


async def _read(service: Service, caller: Caller, booking_id: str) -> Prepared:
    return await service.reads.read_of(
        caller.organization.id, lambda tx: checkouts.prepare(tx, caller, booking_id), is_list=False
    )


async def _make_intent(service: Service, caller: Caller, prepared: Prepared) -> Prepared:
    row, organization_id = prepared.row, caller.organization.id
    request = IntentRequest(
        organization_id=organization_id,
        booking_id=row.booking_id,
        booking_number=prepared.booking_number,
        amount_minor=row.amount_minor,
        currency=row.currency,
        api_key=prepared.account.api_key if prepared.account else None,
    )
    try:
        intent = await service.payment_calls.create(request)
    except IntentRefused as refused:
        code = refused.code
        await service.write(
            lambda tx: checkouts.refuse_intent(tx, caller, row.booking_id, code),
            organization_id=organization_id,
            is_once=False,
        )
        raise checkouts.refusal(code) from None
    stored = await service.write(
        lambda tx: checkouts.record_intent(tx, caller, row.booking_id, intent.id, intent.client_secret),
        organization_id=organization_id,
        is_once=False,
    )
    if stored.status != IntentStatus.OPEN:
        raise checkouts.expired()
    return Prepared(stored, prepared.account, prepared.booking_number)


@router.get(
    "/{id}",
    summary="Get a checkout",
    response_model=Checkout,
    response_description="The checkout with its booking as it is now.",
)
@runs_in(Lane.LOOK_UPS, has_etag=True)
def get_checkout(caller: CheckoutsWriter, tx: ReadTx, booking_id: PathId) -> object:
    """Returns the checkout by the id of its booking. `payment.client_secret` is null when the guest can no longer pay:
    the booking is paid (`booking.payment.status`) or cancelled. Bookings that were not made by a checkout are not
    found."""
    return checkouts.get(tx, caller, booking_id)

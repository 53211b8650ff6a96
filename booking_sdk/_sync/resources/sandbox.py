# Generated from booking_sdk/resources/sandbox.py by `make sync-client`. Do not edit.
"""The sandbox: its clock, the mails that it has captured, and payments by test cards."""

from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from booking_core.models.sandbox import SandboxClock, SandboxMail, SandboxPayment
from booking_sdk._sync._resource import APIResource
from booking_sdk._sync.pagination import Page, Paginator
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.params import IterateItems, ListItems, SandboxCardParam
from booking_sdk.request import path_segment, utc_timestamp

_POLL_S = 0.1


@scrub_tracebacks
class Sandbox(APIResource):
    """The sandbox of the client's key. A key of a live organization is refused.

    Moving the clock, and the mails, need the scope `bookings:write`; a payment needs `checkouts:write`.
    """

    def clock(self, *, options: RequestOptions | None = None) -> SandboxClock:
        """Return the clock, with the work that is due at its instant.

        Args:
            options: Settings for this call.

        Raises:
            ConflictError: The organization is live.
        """
        return self._get(SandboxClock, "sandbox", "clock", options=options)

    def advance(
        self, seconds: int, *, idempotency_key: str | None = None, options: RequestOptions | None = None
    ) -> SandboxClock:
        """Move the clock ahead, and return it. `wait_until_ready` waits for the work that has become due.

        Args:
            seconds: How far the clock moves.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            ConflictError: The organization is live.
            UnprocessableEntityError: The clock would be more than 731 days ahead of the real time.
        """
        return self._advance({"seconds": seconds}, idempotency_key, options)

    def advance_to(
        self, to: datetime, *, idempotency_key: str | None = None, options: RequestOptions | None = None
    ) -> SandboxClock:
        """Move the clock ahead to an instant, and return it.

        Args:
            to: The instant, later than the clock.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            ConflictError: The organization is live.
            UnprocessableEntityError: The instant is past, or more than 731 days ahead of the real time.
        """
        return self._advance({"to": utc_timestamp("to", to)}, idempotency_key, options)

    def _advance(self, body: dict[str, Any], key: str | None, options: RequestOptions | None) -> SandboxClock:
        return self._post(SandboxClock, "sandbox", "clock", "advance", body=body, key=key, options=options)

    def wait_until_ready(self, *, timeout: float = 30.0, options: RequestOptions | None = None) -> SandboxClock:
        """Wait until everything is done that is due at the clock's instant, and return the clock.

            client.sandbox.advance(3600)
            client.sandbox.wait_until_ready()

        Args:
            timeout: The longest wait in seconds.
            options: Settings for each request.

        Raises:
            ConflictError: The organization is live.
            TimeoutError: Something is still due after that time; the message counts it.
        """
        until = self._client._clock.monotonic() + timeout
        while (clock := self.clock(options=options)).status != "ready":
            if self._client._clock.monotonic() >= until:
                raise TimeoutError(f"the sandbox still has to do {clock.due.to_json()}")
            self._client._clock.sleep(_POLL_S)
        return clock

    def pay_checkout(
        self,
        checkout_id: str | UUID,
        payment_method: SandboxCardParam = "pm_card_visa",
        *,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> SandboxPayment:
        """Pay for a checkout by a test card, as a guest does at Stripe, and return the payment. Nothing is charged.

            checkout = client.checkouts.create(...)
            payment = client.sandbox.pay_checkout(checkout.id, "pm_card_chargeDeclined")
            assert (payment.status, payment.checkout.booking.status) == ("declined", "pending")

        Args:
            checkout_id: The id of the checkout.
            payment_method: The test card, which decides about the payment and about a later refund.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            ConflictError: The organization is live, or the checkout is paid or has ended; `details` names the reason.
            NotFoundError: No checkout has this id.
        """
        path = ("sandbox", "checkouts", path_segment("checkout_id", checkout_id), "pay")
        body = {"payment_method": payment_method}
        return self._post(SandboxPayment, *path, body=body, key=idempotency_key, options=options)

    def mails(self, **arguments: Unpack[ListItems]) -> Page[SandboxMail]:
        """List one page of the mails that the sandbox has captured, by creation time.

        Args:
            **arguments: The page, see `ListItems`.

        Raises:
            ConflictError: The organization is live.
        """
        return self._list(SandboxMail, ListItems, "sandbox", "mails", arguments=arguments)

    def iterate_mails(self, **arguments: Unpack[IterateItems]) -> Paginator[SandboxMail]:
        """Iterate over all mails that the sandbox has captured, by creation time.

        Args:
            **arguments: The pages, see `IterateItems`.
        """
        return self._iterate(SandboxMail, IterateItems, "sandbox", "mails", arguments=arguments)

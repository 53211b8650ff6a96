"""PaymentIntents at Stripe: made, looked up and canceled, on the event loop and within a bounded time.

The key belongs to the organization, so it comes with each call. The library is imported when it is opened, or with the
first call: an installation without card payments should not pay for it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from booking_core.base import tokens
from booking_core.base.errors import BookingError, Unavailable
from booking_core.bookings.checkouts import IntentState, IntentUpdate
from booking_core.payments import new_sandbox_checkout_intent, to_gateway
from booking_server.adapters import stripe_events

if TYPE_CHECKING:
    import stripe

T = TypeVar("T")

log = logging.getLogger("booking.stripe")

TIMEOUT_S = 8.0
"""Seconds for a whole call. httpx bounds single steps only, so that a server which drips could hold a call for ever."""
_RETRY_AFTER_S = 5
TRANSIENT = frozenset({"lock_timeout", "rate_limit", "idempotency_key_in_use"})
"""Error codes of requests that had no effect, whatever their HTTP status."""
_REFUSED = frozenset({400, 402})
CARD_ONLY = ["card"]
"""Cards and wallets, which settle at once. What takes days does not fit a booking that expires in half an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentRequest:
    """A payment to be made at Stripe."""

    organization_id: str
    booking_id: str
    booking_number: int | None
    amount_minor: int
    currency: str
    api_key: str | None = field(repr=False)
    """None in a sandbox, which asks no Stripe."""

    @property
    def idempotency_key(self) -> str:
        """Return the key of this booking's only intent."""
        return f"checkout-{self.booking_id}"


@dataclass(frozen=True, slots=True)
class Intent:
    """A PaymentIntent that Stripe has made."""

    id: str
    client_secret: str = field(repr=False)


class IntentRefused(Exception):
    """Stripe makes no such intent, and will not: the amount is too small, the currency not supported.

    Args:
        code: Stripe's own.
    """

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class StripeIntents:
    """Calls of Stripe. One object serves all organizations on one event loop.

    Args:
        base_url: of another Stripe, for tests.
    """

    def __init__(self, base_url: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._http: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def create(self, request: IntentRequest) -> Intent:
        """Make the intent of a booking, or return the one that was made for it.

        Raises:
            IntentRefused: Stripe will never make it.
            Unavailable: Stripe has not answered, or not as it should; the same request is safe.
        """
        fields: Any = {
            "amount": to_gateway(request.amount_minor, request.currency),
            "currency": request.currency.lower(),
            "payment_method_types": CARD_ONLY,
            "metadata": {"organization_id": request.organization_id, "booking_id": request.booking_id},
            "description": f"Booking {request.booking_number}",
        }
        options: Any = {"idempotency_key": request.idempotency_key}
        assert request.api_key is not None, "a sandbox has no account"
        made = await self._call(request.api_key, lambda v1: v1.payment_intents.create_async(fields, options))
        if not made.client_secret:
            raise unavailable("no_client_secret")
        return Intent(made.id, made.client_secret)

    async def look_up(self, api_key: str, intent_id: str) -> IntentUpdate:
        """Return the state of an intent.

        Raises:
            IntentRefused: there is no such intent in the account.
            Unavailable: as `create`.
        """
        expanded: Any = {"expand": ["latest_charge"]}
        found = await self._call(api_key, lambda v1: v1.payment_intents.retrieve_async(intent_id, expanded))
        return _read(stripe_events.intent_update, found)

    async def cancel(self, api_key: str, intent_id: str) -> IntentUpdate:
        """Cancel an intent, unless it was paid, and return its state.

        Raises:
            IntentRefused, Unavailable: as `look_up`.
        """
        try:
            canceled = await self._call(api_key, lambda v1: v1.payment_intents.cancel_async(intent_id))
            return _read(stripe_events.intent_update, canceled)
        except IntentRefused:  # it was paid, or canceled before
            return await self.look_up(api_key, intent_id)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._http is not None and self._loop is asyncio.get_running_loop():
            http, self._http = self._http, None
            await http.close_async()

    async def _call(self, api_key: str, act: "Callable[[stripe.V1Services], Awaitable[Any]]") -> Any:
        http = await self.open()
        import stripe

        client = stripe.StripeClient(
            api_key,
            base_addresses={"api": self._base_url} if self._base_url else {},
            max_network_retries=0,
            http_client=http,
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                return await act(client.v1)
        except TimeoutError:
            raise unavailable("timeout") from None
        except stripe.StripeError as error:
            raise _classified(error) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            log.warning("the response of Stripe cannot be read: %s", type(error).__name__)
            raise unavailable("unreadable_answer") from None

    async def open(self) -> Any:
        """Return the HTTP client of this event loop. The first call imports the library, in a thread."""
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            http = await asyncio.to_thread(_open_http, self._timeout_s)
            if self._http is None or self._loop is not loop:  # no other call was faster
                self._http, self._loop = http, loop
        return self._http


class SandboxIntents:
    """Makes the PaymentIntents of sandboxes by itself, in the shape of Stripe's. What pays for them is an operation of
    the API, which records it at once: a look-up finds an intent that is not paid."""

    async def create(self, request: IntentRequest) -> Intent:
        """Return the intent of a booking. The first one that is stored stays."""
        intent_id = new_sandbox_checkout_intent(request.booking_id)
        return Intent(intent_id, f"{intent_id}_secret_{tokens.new_id().replace('-', '')}")

    async def look_up(self, api_key: str, intent_id: str) -> IntentUpdate:
        """Return the state of an intent."""
        return IntentUpdate(intent_id=intent_id, state=IntentState.WAITING)

    async def cancel(self, api_key: str, intent_id: str) -> IntentUpdate:
        """Cancel an intent, and return its state."""
        return IntentUpdate(intent_id=intent_id, state=IntentState.CANCELED)


def _open_http(timeout_s: float) -> Any:
    import stripe

    # The library logs the bodies of responses, which hold client secrets, and each request.
    logging.getLogger("stripe").setLevel(logging.WARNING)
    http = stripe.HTTPXClient(timeout=timeout_s)
    assert stripe.StripeClient("sk_of_nobody", http_client=http).v1.payment_intents  # imported when it is first used
    return http


def _read(update: Callable[[dict[str, Any]], T], shown: Any) -> T:
    """Return the update of an object of Stripe."""
    try:
        return update(shown.to_dict(recursive=True))
    except (KeyError, TypeError, AttributeError):
        raise unavailable("unreadable_answer") from None


def error_code(error: "stripe.StripeError") -> str:
    """Return a short name of the error."""
    return error.code or (f"http_{error.http_status}" if error.http_status else "no_answer")


def _classified(error: "stripe.StripeError") -> Exception:
    import stripe

    code = error_code(error)
    is_refusal = isinstance(error, stripe.InvalidRequestError | stripe.CardError) and error.code not in TRANSIENT
    if is_refusal and error.http_status in (*_REFUSED, 404):
        return IntentRefused(code)
    if isinstance(error, stripe.AuthenticationError | stripe.PermissionError):
        log.error("Stripe refuses the key of an organization (%s)", code)
    return unavailable(code)


def unavailable(code: str) -> BookingError:
    """Return the refusal of a request for which Stripe is needed; it is safe to repeat."""
    message = f"Stripe cannot be asked at the moment ({code}); send the same request again."
    return Unavailable(message, retry_after_s=_RETRY_AFTER_S, reason="payment_gateway")

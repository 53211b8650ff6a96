"""PaymentIntents at Stripe: made, looked up and canceled, on the event loop and within a bounded time.

The key belongs to the organization, so it comes with each call. The library is imported when it is opened, or with the
first call: an installation without card payments should not pay for it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from booking_core.base.errors import BookingError, Unavailable
from booking_core.bookings.checkouts import DisputeUpdate, IntentUpdate
from booking_core.payments import to_gateway
from booking_server.adapters import stripe_events

if TYPE_CHECKING:
    import stripe

T = TypeVar("T")

log = logging.getLogger("booking.stripe")

REFUND_ID = "refund_id"
"""The metadata by which a refund of this service is known at Stripe."""

TIMEOUT_S = 8.0
"""Seconds for a whole call. httpx bounds single steps only, so that a server which drips could hold a call for ever."""
_RETRY_AFTER_S = 5
TRANSIENT = frozenset({"lock_timeout", "rate_limit", "idempotency_key_in_use"})
"""Error codes of requests that had no effect, whatever their HTTP status."""
_REFUSED = frozenset({400, 402})
_PAGE, _PAGES_MAX = 100, 5
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


@dataclass(frozen=True, slots=True)
class Refunded:
    """Payments that were refunded at Stripe."""

    intent_ids: tuple[str, ...]
    until_s: int
    """They are all up to this instant."""


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

    async def refunded(self, api_key: str, since_s: int, until_s: int) -> Refunded:
        """Return the payments that were refunded between two instants by somebody else than this service.

        Where there are too many refunds, the second instant is brought forward.

        Raises:
            IntentRefused, Unavailable: as `look_up`.
        """
        while True:
            found, has_more = await self._refunds(api_key, since_s, until_s)
            if not has_more or until_s - since_s <= 1:
                return Refunded(tuple(dict.fromkeys(found)), until_s)
            until_s = (since_s + until_s) // 2

    async def _refunds(self, api_key: str, since_s: int, until_s: int) -> tuple[list[str], bool]:
        """Return the intents of refunds, the newest first, and whether there are more than are read at once."""
        made, has_more = await self._listed(api_key, "refunds", {"gte": since_s, "lt": until_s})
        return [refund.payment_intent for refund in made if _is_of_others(refund)], has_more

    async def disputes(self, api_key: str, since_s: int) -> list[DisputeUpdate]:
        """Return the states of the disputes that were opened since an instant, the newest first.

        Raises:
            IntentRefused, Unavailable: as `look_up`.
        """
        opened, _ = await self._listed(api_key, "disputes", {"gte": since_s})
        return [update for each in opened if (update := _read(stripe_events.dispute_update, each)) is not None]

    async def _listed(self, api_key: str, service: str, created: dict[str, int]) -> tuple[list[Any], bool]:
        """Return objects, the newest first, and whether there are more than are read at once."""
        wanted: dict[str, Any] = {"created": created, "limit": _PAGE}
        found: list[Any] = []
        for _ in range(_PAGES_MAX):
            page = await self._page(api_key, service, wanted)
            found += page.data
            if not page.has_more:
                return found, False
            wanted = {**wanted, "starting_after": page.data[-1].id}
        return found, True

    async def _page(self, api_key: str, service: str, wanted: dict[str, Any]) -> Any:
        return await self._call(api_key, lambda v1: getattr(v1, service).list_async(wanted))

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


def metadata_of(refund: Any) -> dict[str, str]:
    """Return the metadata of a refund."""
    return {} if refund.metadata is None else dict(refund.metadata.to_dict())


def _is_of_others(refund: Any) -> bool:
    return REFUND_ID not in metadata_of(refund) and bool(refund.payment_intent)


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

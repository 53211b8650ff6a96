"""PaymentIntents at Stripe: made, looked up and canceled, on the event loop and within a bounded time; and its events.

Each call takes the key of its organization. The library is imported by `open` or by the first call, because an
installation without card payments should not pay for it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from booking_core.base import tokens
from booking_core.base.errors import BookingError, Malformed, Unavailable
from booking_core.bookings.checkouts import DisputeUpdate, IntentState, IntentUpdate, RefundUpdate, StripeUpdate
from booking_core.models.currencies import CURRENCIES
from booking_core.models.limits import AMOUNT_MINOR_MAX
from booking_core.payments import from_gateway, new_sandbox_checkout_intent, to_gateway

if TYPE_CHECKING:
    import stripe

T = TypeVar("T")

log = logging.getLogger("booking.stripe")

TIMEOUT_S = 8.0
"""Seconds for a whole call. httpx bounds single steps only: a server that sends slowly could hold a call
indefinitely."""
_RETRY_AFTER_S = 5
TRANSIENT = frozenset({"lock_timeout", "rate_limit", "idempotency_key_in_use"})
"""Error codes of requests that had no effect, with any HTTP status."""
_REFUSED = frozenset({400, 402})
CARD_ONLY = ["card"]
"""Cards and wallets, which settle at once. Methods that take days do not fit a booking that expires in half an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentRequest:
    """A payment to be made at Stripe."""

    organization_id: str
    booking_id: str
    booking_number: int | None
    amount_minor: int
    currency: str
    api_key: str | None = field(repr=False)
    """None in a sandbox, which does not call Stripe."""

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
        """Make the intent of a booking, or return its existing intent.

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
        intent = await self._call(request.api_key, lambda v1: v1.payment_intents.create_async(fields, options))
        if not intent.client_secret:
            raise unavailable("no_client_secret")
        return Intent(intent.id, intent.client_secret)

    async def look_up(self, api_key: str, intent_id: str) -> IntentUpdate:
        """Return the state of an intent.

        Raises:
            IntentRefused: there is no such intent in the account.
            Unavailable: as `create`.
        """
        expanded: Any = {"expand": ["latest_charge"]}
        intent = await self._call(api_key, lambda v1: v1.payment_intents.retrieve_async(intent_id, expanded))
        return _read(intent_update, intent)

    async def cancel(self, api_key: str, intent_id: str) -> IntentUpdate:
        """Cancel an intent, unless it was paid, and return its state.

        Raises:
            IntentRefused, Unavailable: as `look_up`.
        """
        try:
            canceled = await self._call(api_key, lambda v1: v1.payment_intents.cancel_async(intent_id))
            return _read(intent_update, canceled)
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
    """Makes the PaymentIntents of sandboxes, in the shape of Stripe's. An operation of the API pays for them and
    records the payment at once, so a look-up finds an unpaid intent."""

    async def create(self, request: IntentRequest) -> Intent:
        """Return the intent of a booking. The first stored intent stays."""
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


def _read(update: Callable[[dict[str, Any]], T], resource: Any) -> T:
    """Return the update of an object of Stripe."""
    try:
        return update(resource.to_dict(recursive=True))
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
    """Return the refusal of a request that needs Stripe; the request is safe to repeat."""
    message = f"Stripe cannot be asked at the moment ({code}); send the same request again."
    return Unavailable(message, retry_after_s=_RETRY_AFTER_S, reason="payment_gateway")


# Stripe's objects as updates of the core ------------------------------------------------------------------------------

# Pure functions of the JSON that Stripe sends. Only the fields that a booking depends on are read. An object of another
# shape is refused, and an event of another type has no update.

_CLOSED_DISPUTES = frozenset({"won", "lost", "warning_closed", "prevented"})
_TEXT_MAX = 200


def parse_event(body: bytes) -> StripeUpdate | None:
    """Return the update of an event; None for a type that no booking depends on.

    Raises:
        Malformed: it is not an event, or not of the shape that Stripe sends.
    """
    try:
        event = orjson.loads(body)
        kind, resource = event["type"], event["data"]["object"]
        read = _READERS.get(kind)
        return read(resource) if read else None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Malformed("The body is not an event of Stripe.") from None


def intent_update(intent: Mapping[str, Any]) -> IntentUpdate:
    """Return the update of a PaymentIntent; with an expanded `latest_charge` also its refunds.

    Raises:
        KeyError, TypeError, AttributeError: it is not of the shape that Stripe sends.
    """
    metadata, currency = intent.get("metadata") or {}, _currency(intent)
    intent_id = _text(intent["id"])
    return IntentUpdate(
        intent_id=intent_id,
        state=_state(intent),
        organization_id=_text_or_none(metadata.get("organization_id")),
        booking_id=_text_or_none(metadata.get("booking_id")),
        received_minor=_minor(intent.get("amount_received") or 0, currency),
        currency=currency,
        error=_error(intent),
        refunds=_refunds_of_charge(intent_id, intent.get("latest_charge")),
    )


def _state(intent: Mapping[str, Any]) -> IntentState:
    status = intent["status"]
    if status in ("succeeded", "canceled"):
        return IntentState(status)
    return IntentState.DECLINED if _error(intent) else IntentState.WAITING


def _error(intent: Mapping[str, Any]) -> str | None:
    error = intent.get("last_payment_error") or {}
    code = error.get("decline_code") or error.get("code")
    return _text(code)[:100] if code else None


def _failed(intent: Mapping[str, Any]) -> IntentUpdate:
    """Return the update of a failed attempt, with any present status of the intent."""
    update = intent_update(intent)
    return update if update.error else intent_update({**intent, "last_payment_error": {"code": "payment_failed"}})


def _refunds_of_charge(intent_id: str, charge: Any) -> RefundUpdate | None:
    if not isinstance(charge, Mapping):
        return None
    refunded = _minor(charge.get("amount_refunded") or 0, _currency(charge))
    refunds = (charge.get("refunds") or {}).get("data") or []
    refund_id = _text(refunds[0]["id"]) if refunds else None
    return RefundUpdate(
        intent_id=intent_id, refunded_minor=refunded, is_whole=charge.get("refunded") is True, refund_id=refund_id
    )


def _charge(charge: Mapping[str, Any]) -> RefundUpdate | None:
    intent_id = charge.get("payment_intent")
    return _refunds_of_charge(_text(intent_id), charge) if intent_id else None


def dispute_update(dispute: Mapping[str, Any]) -> DisputeUpdate | None:
    """Return the update of a dispute; None for one of a payment without a PaymentIntent.

    Raises:
        KeyError, TypeError, AttributeError: it is not of the shape that Stripe sends.
    """
    intent_id = dispute.get("payment_intent")
    if not intent_id:
        return None
    status = _text(dispute["status"])
    return DisputeUpdate(
        intent_id=_text(intent_id),
        dispute_id=_text(dispute["id"]),
        status=status,
        reason=_text(dispute.get("reason") or "unknown"),
        amount_minor=_minor(dispute["amount"], _currency(dispute)),
        is_closed=status in _CLOSED_DISPUTES,
    )


def _currency(resource: Mapping[str, Any]) -> str:
    return _text(resource["currency"]).upper()


def _minor(amount: Any, currency: str) -> int | None:
    """Return the amount in minor units; None for an amount or a currency that no booking can have."""
    if type(amount) is float and amount > AMOUNT_MINOR_MAX:  # orjson reads integers of more than 64 bits as floats
        return None
    if type(amount) is not int or amount < 0:
        raise TypeError("an amount of Stripe is a whole number")
    minor = from_gateway(amount, currency) if currency in CURRENCIES else None
    return minor if minor is None or minor <= AMOUNT_MINOR_MAX else None


def _text_or_none(value: Any) -> str | None:
    """Return a value of the metadata, or None if this service cannot have written it."""
    return value if isinstance(value, str) else None


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _TEXT_MAX or not value.isprintable():
        raise TypeError("a text of Stripe is short and printable")
    return value


_READERS: dict[str, Callable[[Mapping[str, Any]], StripeUpdate | None]] = {
    "payment_intent.succeeded": intent_update,
    "payment_intent.payment_failed": _failed,
    "payment_intent.canceled": intent_update,
    "charge.refunded": _charge,
    "charge.dispute.created": dispute_update,
    "charge.dispute.updated": dispute_update,
    "charge.dispute.closed": dispute_update,
}

"""Stripe's events and PaymentIntents as updates of the core. Pure functions of the JSON that Stripe sends.

Only what a booking depends on is read. An object of another shape is refused, and an event of another type has no
update.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from booking_core.base.errors import Malformed
from booking_core.bookings.checkouts import DisputeUpdate, IntentState, IntentUpdate, RefundUpdate, Update
from booking_core.models.currencies import CURRENCIES
from booking_core.models.limits import AMOUNT_MINOR_MAX
from booking_core.payments import from_gateway

_CLOSED_DISPUTES = frozenset({"won", "lost", "warning_closed", "prevented"})
_TEXT_MAX = 200


def parse(body: bytes) -> tuple[str, Update | None]:
    """Return the type of an event and its update; None for a type that no booking depends on.

    Raises:
        Malformed: it is not an event, or not of the shape that Stripe sends.
    """
    try:
        event = orjson.loads(body)
        kind, shown = event["type"], event["data"]["object"]
        read = _READERS.get(kind)
        return str(kind)[:_TEXT_MAX], read(shown) if read else None
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
    """Return the update of a failed attempt, whatever the intent's present status is."""
    update = intent_update(intent)
    return update if update.error else intent_update({**intent, "last_payment_error": {"code": "payment_failed"}})


def _refunds_of_charge(intent_id: str, charge: Any) -> RefundUpdate | None:
    if not isinstance(charge, Mapping):
        return None
    refunded = _minor(charge.get("amount_refunded") or 0, _currency(charge))
    made = (charge.get("refunds") or {}).get("data") or []
    refund_id = _text(made[0]["id"]) if made else None
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


def _currency(shown: Mapping[str, Any]) -> str:
    return _text(shown["currency"]).upper()


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


_READERS: dict[str, Callable[[Mapping[str, Any]], Update | None]] = {
    "payment_intent.succeeded": intent_update,
    "payment_intent.payment_failed": _failed,
    "payment_intent.canceled": intent_update,
    "charge.refunded": _charge,
    "charge.dispute.created": dispute_update,
    "charge.dispute.updated": dispute_update,
    "charge.dispute.closed": dispute_update,
}

"""Believable events for trying out a receiver, one of every type (API v1 section 6).

Made up from start to end: nothing is asked of the service. The shapes are those of the wire models, field by field,
and tests hold them against each other. Everything in one event fits together: the totals are the sum of the lines, and
a redeemed card has what the booking took from it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from booking_core.models.limits import API_VERSION

Json = dict[str, Any]

_CURRENCY = "NOK"
_ADULT_MINOR = 89_000
_DRYSUIT_MINOR = 15_000
_CARD_MINOR = 50_000


@dataclass(frozen=True, slots=True)
class Made:
    """What an event is made with."""

    now: datetime
    """Aware; its offset is the one that every timestamp shows."""
    new_id: Callable[[], str]

    def at(self, **ago: float) -> str:
        """So long ago, to the second; a negative length is yet to come."""
        return (self.now - timedelta(**ago)).isoformat(timespec="seconds")


def envelope(kind: str, made: Made) -> Json:
    """The body of a delivery of that type.

    Raises:
        KeyError: there is no such type.
    """
    data = _DATA[kind](made)
    return {
        "id": made.new_id(),
        "type": kind,
        "created_at": made.at(),
        "api_version": API_VERSION,
        "sequence": 1042,
        "data": data,
    }


def _money(amount_minor: int) -> Json:
    return {"amount_minor": amount_minor, "currency": _CURRENCY}


# Resources -------------------------------------------------------------------------------------------------------


def _booking(made: Made, *, status: str = "confirmed", gift_card_minor: int = 0, changed: bool = True) -> Json:
    subtotal = 2 * _ADULT_MINOR + _DRYSUIT_MINOR
    return {
        "id": made.new_id(),
        "booking_number": 318,
        "status": status,
        "source": "api",
        "created_at": made.at(minutes=30 if changed else 0),
        "updated_at": made.at(),
        "experience": {"id": made.new_id(), "title": "Fjord kayak", "slug": "fjord-kayak"},
        "departure": _departure(made, days=9),
        "customer": {"name": "Ada Lovelace", "email": "ada@example.com", "phone": "+47 22 00 00 00"},
        "guests": [{"tier_id": "adult", "tier_label": "Adult", "count": 2, "unit_price": _money(_ADULT_MINOR)}],
        "add_ons": [{"id": "drysuit", "label": "Dry suit", "count": 1, "unit_price": _money(_DRYSUIT_MINOR)}],
        "totals": {
            "subtotal": _money(subtotal),
            "discount": _money(0),
            "gift_card": _money(gift_card_minor),
            "total": _money(subtotal - gift_card_minor),
        },
        "payment": {"method": "pay_on_site", "source": "on_site", "status": "unpaid"},
        "note": "Vi kommer rett fra flyplassen.",
        "manage_url": None,
    }


def _departure(made: Made, *, days: int) -> Json:
    begins_at = made.now.replace(hour=10, minute=0, second=0, microsecond=0) + timedelta(days=days)
    ends_at = begins_at + timedelta(minutes=150)
    return {"id": made.new_id(), "starts_at": begins_at.isoformat(), "ends_at": ends_at.isoformat()}


def _customer(made: Made) -> Json:
    return {
        "id": made.new_id(),
        "name": "Ada Lovelace",
        "email": "ada@example.com",
        "phone": "+47 22 00 00 00",
        "tags": ["vip"],
        "email_subscription": False,
        "created_at": made.at(),
    }


def _gift_card(made: Made, *, spent_minor: int = 0) -> Json:
    return {
        "id": made.new_id(),
        "code_last4": "7KQ2",
        "status": "active",
        "initial_amount": _money(_CARD_MINOR),
        "balance": _money(_CARD_MINOR - spent_minor),
        "currency": _CURRENCY,
        "expires_at": made.at(days=-365),
        "purchaser": {"name": "Grace Hopper", "email": "grace@example.com"},
        "recipient": {"name": "Ada Lovelace", "email": "ada@example.com"},
        "created_at": made.at(days=3 if spent_minor else 0),
    }


def _endpoint(made: Made, **changed: Any) -> Json:
    return {
        "id": made.new_id(),
        "url": "https://hooks.example.com/calendar",
        "description": "The calendar",
        "event_types": ["booking.cancelled", "booking.confirmed"],
        "status": "enabled",
        "disabled_at": None,
        "disabled_reason": None,
        "consecutive_failures": 0,
        "last_success_at": made.at(hours=1),
        "last_failure_at": None,
        "previous_secret_expires_at": None,
        "api_version": API_VERSION,
        "created_at": made.at(days=40),
        "updated_at": made.at(),
        **changed,
    }


# Data ------------------------------------------------------------------------------------------------------------


def _created(made: Made) -> Json:
    return {"object": _booking(made, changed=False)}


def _confirmed(made: Made) -> Json:
    return {"object": _booking(made, changed=False)}


def _cancelled(made: Made) -> Json:
    return {"object": _booking(made, status="cancelled"), "reason": "customer"}


def _rescheduled(made: Made) -> Json:
    before = _departure(made, days=5)
    return {
        "object": _booking(made),
        "previous_departure": {"id": before["id"], "starts_at": before["starts_at"]},
    }


def _customer_created(made: Made) -> Json:
    return {"object": _customer(made)}


def _customer_updated(made: Made) -> Json:
    return {"object": _customer(made) | {"phone": "+47 23 00 00 00", "created_at": made.at(days=12)}}


def _issued(made: Made) -> Json:
    return {"object": _gift_card(made)}


def _redeemed(made: Made) -> Json:
    spent_minor = 20_000
    return {
        "object": _gift_card(made, spent_minor=spent_minor),
        "redeemed_amount": _money(spent_minor),
        "booking_id": made.new_id(),
    }


def _auto_disabled(made: Made) -> Json:
    off = {"status": "auto_disabled", "disabled_at": made.at(), "disabled_reason": "delivery_failures"}
    return {"object": _endpoint(made, **off, **_failing(made))}


def _enabled(made: Made) -> Json:
    return {"object": _endpoint(made)}


def _rotated(made: Made) -> Json:
    return {"object": _endpoint(made, previous_secret_expires_at=made.at(days=-1))}


def _dead(made: Made) -> Json:
    return {
        "object": _endpoint(made, **_failing(made), updated_at=made.at(days=40)),
        "delivery_id": made.new_id(),
        "event_id": made.new_id(),
        "event_type": "booking.confirmed",
    }


def _failing(made: Made) -> Json:
    return {"consecutive_failures": 6, "last_success_at": made.at(hours=73), "last_failure_at": made.at()}


def _ping(made: Made) -> Json:
    return {"object": {"message": "This is a test.", "endpoint_id": made.new_id()}}


_DATA: Mapping[str, Callable[[Made], Json]] = {
    "booking.created": _created,
    "booking.confirmed": _confirmed,
    "booking.cancelled": _cancelled,
    "booking.rescheduled": _rescheduled,
    "customer.created": _customer_created,
    "customer.updated": _customer_updated,
    "gift_card.issued": _issued,
    "gift_card.redeemed": _redeemed,
    "webhook.auto_disabled": _auto_disabled,
    "webhook.enabled": _enabled,
    "webhook.secret_rotated": _rotated,
    "webhook.delivery_dead": _dead,
    "ping": _ping,
}

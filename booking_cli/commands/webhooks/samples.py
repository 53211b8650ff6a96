"""Build sample events of every type (API v1 section 6) to test a receiver.

Nothing is requested from the service. The shapes are those of the models, which a test compares. The values of an event
are consistent: totals are the sum of the lines, and the balance of a gift card lacks the redeemed amount.
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
class Source:
    """The time and the ids of a sample."""

    now: datetime
    """An aware datetime. Every timestamp has its offset."""
    new_id: Callable[[], str]

    def at(self, **ago: float) -> str:
        """Return the timestamp of this long ago, to the second; a negative duration is in the future."""
        return (self.now - timedelta(**ago)).isoformat(timespec="seconds")


def envelope(kind: str, source: Source) -> Json:
    """Return the body of a delivery of that type.

    Raises:
        KeyError: there is no such type.
    """
    data = _DATA[kind](source)
    return {
        "id": source.new_id(),
        "type": kind,
        "created_at": source.at(),
        "api_version": API_VERSION,
        "sequence": 1042,
        "data": data,
    }


def _money(amount_minor: int) -> Json:
    return {"amount_minor": amount_minor, "currency": _CURRENCY}


def _booking(source: Source, *, status: str = "confirmed", gift_card_minor: int = 0, changed: bool = True) -> Json:
    subtotal = 2 * _ADULT_MINOR + _DRYSUIT_MINOR
    return {
        "id": source.new_id(),
        "booking_number": 318,
        "status": status,
        "source": "api",
        "created_at": source.at(minutes=30 if changed else 0),
        "updated_at": source.at(),
        "experience": {"id": source.new_id(), "title": "Fjord kayak", "slug": "fjord-kayak"},
        "departure": _departure(source, days=9),
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


def _departure(source: Source, *, days: int) -> Json:
    begins_at = source.now.replace(hour=10, minute=0, second=0, microsecond=0) + timedelta(days=days)
    ends_at = begins_at + timedelta(minutes=150)
    return {"id": source.new_id(), "starts_at": begins_at.isoformat(), "ends_at": ends_at.isoformat()}


def _customer(source: Source) -> Json:
    return {
        "id": source.new_id(),
        "name": "Ada Lovelace",
        "email": "ada@example.com",
        "phone": "+47 22 00 00 00",
        "tags": ["vip"],
        "email_subscription": False,
        "created_at": source.at(),
    }


def _gift_card(source: Source, *, spent_minor: int = 0) -> Json:
    return {
        "id": source.new_id(),
        "code_last4": "7KQ2",
        "status": "active",
        "initial_amount": _money(_CARD_MINOR),
        "balance": _money(_CARD_MINOR - spent_minor),
        "currency": _CURRENCY,
        "expires_at": source.at(days=-365),
        "purchaser": {"name": "Grace Hopper", "email": "grace@example.com"},
        "recipient": {"name": "Ada Lovelace", "email": "ada@example.com"},
        "created_at": source.at(days=3 if spent_minor else 0),
    }


def _endpoint(source: Source, **changed: Any) -> Json:
    return {
        "id": source.new_id(),
        "url": "https://hooks.example.com/calendar",
        "description": "The calendar",
        "event_types": ["booking.cancelled", "booking.confirmed"],
        "status": "enabled",
        "disabled_at": None,
        "disabled_reason": None,
        "consecutive_failures": 0,
        "last_success_at": source.at(hours=1),
        "last_failure_at": None,
        "previous_secret_expires_at": None,
        "api_version": API_VERSION,
        "created_at": source.at(days=40),
        "updated_at": source.at(),
        **changed,
    }


def _created(source: Source) -> Json:
    return {"object": _booking(source, changed=False)}


def _cancelled(source: Source) -> Json:
    return {"object": _booking(source, status="cancelled"), "reason": "customer"}


def _rescheduled(source: Source) -> Json:
    before = _departure(source, days=5)
    return {
        "object": _booking(source),
        "previous_departure": {"id": before["id"], "starts_at": before["starts_at"]},
        "changes": {"departure": before},
    }


def _updated(source: Source) -> Json:
    booking = _booking(source)
    paid = booking | {"payment": booking["payment"] | {"status": "paid"}}
    return {"object": paid, "changes": {"payment": booking["payment"]}}


def _refunded(source: Source) -> Json:
    booking = _booking(source, status="cancelled")
    paid = {"method": "card", "source": "stripe", "status": "paid"}
    return {
        "object": booking | {"payment": paid | {"status": "refunded"}},
        "refunded_amount": booking["totals"]["total"],
        "total_refunded": booking["totals"]["total"],
        "changes": {"payment": paid},
    }


def _departure_updated(source: Source) -> Json:
    departure = _departure(source, days=9)
    shown = {
        "id": departure["id"],
        "experience_id": source.new_id(),
        "starts_at": departure["starts_at"],
        "starts_at_local": departure["starts_at"][: len("2026-12-24T10:00:00")],
        "timezone": "Europe/Oslo",
        "ends_at": departure["ends_at"],
        "seats_total": 12,
        "seats_available": 8,
        "price": _money(_ADULT_MINOR),
        "price_tiers": [{"id": "adult", "name": "Adult", "price": _money(89000), "seats_per_unit": 1}],
        "booking_closes_at": departure["starts_at"],
        "status": "open",
    }
    return {"object": shown, "changes": {"seats_available": 10}}


def _customer_created(source: Source) -> Json:
    return {"object": _customer(source)}


def _customer_updated(source: Source) -> Json:
    former = _customer(source) | {"created_at": source.at(days=12)}
    return {"object": former | {"phone": "+47 23 00 00 00"}, "changes": {"phone": former["phone"]}}


def _issued(source: Source) -> Json:
    return {"object": _gift_card(source)}


def _redeemed(source: Source) -> Json:
    spent_minor = 20_000
    return {
        "object": _gift_card(source, spent_minor=spent_minor),
        "redeemed_amount": _money(spent_minor),
        "booking_id": source.new_id(),
    }


def _restored(source: Source) -> Json:
    return {
        "object": _gift_card(source) | {"created_at": source.at(days=3)},
        "restored_amount": _money(20_000),
        "booking_id": source.new_id(),
    }


def _began_to_fail(source: Source) -> Json:
    failing = _failing(source) | {"last_success_at": source.at(hours=1)}
    return {"object": _endpoint(source, **failing), "failing_since": failing["last_success_at"]}


def _auto_disabled(source: Source) -> Json:
    off = {"status": "auto_disabled", "disabled_at": source.at(), "disabled_reason": "delivery_failures"}
    return {"object": _endpoint(source, **off, **_failing(source))}


def _enabled(source: Source) -> Json:
    return {"object": _endpoint(source)}


def _rotated(source: Source) -> Json:
    return {"object": _endpoint(source, previous_secret_expires_at=source.at(days=-1))}


def _dead(source: Source) -> Json:
    return {
        "object": _endpoint(source, **_failing(source), updated_at=source.at(days=40)),
        "delivery_id": source.new_id(),
        "event_id": source.new_id(),
        "event_type": "booking.confirmed",
    }


def _failing(source: Source) -> Json:
    return {"consecutive_failures": 6, "last_success_at": source.at(hours=73), "last_failure_at": source.at()}


def _ping(source: Source) -> Json:
    return {"object": {"message": "This is a test.", "endpoint_id": source.new_id()}}


_DATA: Mapping[str, Callable[[Source], Json]] = {
    "booking.created": _created,
    "booking.confirmed": _created,
    "booking.cancelled": _cancelled,
    "booking.rescheduled": _rescheduled,
    "booking.updated": _updated,
    "booking.refunded": _refunded,
    "departure.updated": _departure_updated,
    "customer.created": _customer_created,
    "customer.updated": _customer_updated,
    "gift_card.issued": _issued,
    "gift_card.redeemed": _redeemed,
    "gift_card.restored": _restored,
    "webhook.failing": _began_to_fail,
    "webhook.auto_disabled": _auto_disabled,
    "webhook.enabled": _enabled,
    "webhook.secret_rotated": _rotated,
    "webhook.delivery_dead": _dead,
    "ping": _ping,
}

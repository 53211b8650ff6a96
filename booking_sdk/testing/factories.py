"""Resources as the service would give them, with every field filled and any of them to be chosen.

make_booking(status="cancelled", note="Wheelchair")
make_event("booking.cancelled", reason="customer")
"""

import itertools
import uuid
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, cast, get_args

from booking_core.models.base import Resource
from booking_core.models.customers import Customer
from booking_core.models.departures import Departure
from booking_core.models.experiences import Experience
from booking_core.models.limits import API_VERSION
from booking_sdk.event_parsing import parse_event
from booking_sdk.models import EVENT_CLASSES, AnyEvent, Booking, GiftCard

_EPOCH = datetime(2026, 6, 1, 9, 30, tzinfo=UTC)
_numbers = itertools.count(1)
_sequences = itertools.count(1)


def _at(hours: float = 0) -> str:
    return (_EPOCH + timedelta(hours=hours)).isoformat()


def new_id() -> str:
    return str(uuid.uuid4())


def money(amount_minor: int, currency: str = "NOK") -> dict[str, Any]:
    return {"amount_minor": amount_minor, "currency": currency}


def experience_fields(currency: str = "NOK", **over: Any) -> dict[str, Any]:
    """An experience with an adult tier."""
    adult = {"id": "adult", "name": "Adult", "price": money(89000, currency), "seats_per_unit": 1}
    return {
        "id": new_id(),
        "slug": f"fjord-kayak-{next(_numbers)}",
        "title": "Fjord kayak",
        "is_published": True,
        "excerpt": None,
        "duration_minutes": 150,
        "duration": "2 h 30 min",
        "difficulty": None,
        "address": None,
        "latitude": None,
        "longitude": None,
        "image_url": None,
        "languages": ["en"],
        "tags": [],
        "price_from": money(89000, currency),
        "price_tiers": [adult],
        "min_participants": None,
        "hours_before_booking_closes": None,
        "created_at": _at(),
        "updated_at": _at(),
        **over,
    }


def departure_fields(**over: Any) -> dict[str, Any]:
    """An open departure of twelve seats."""
    return {
        "id": new_id(),
        "experience_id": new_id(),
        "starts_at": _at(48),
        "ends_at": _at(50.5),
        "seats_total": 12,
        "seats_available": 12,
        "price": money(89000),
        "booking_closes_at": _at(48),
        "status": "open",
        **over,
    }


def booking_fields(**over: Any) -> dict[str, Any]:
    """A confirmed booking for two."""
    none, total = money(0), money(178000)
    return {
        "id": new_id(),
        "booking_number": next(_numbers),
        "status": "confirmed",
        "source": "api",
        "created_at": _at(),
        "updated_at": _at(),
        "experience": {"id": new_id(), "title": "Fjord kayak", "slug": "fjord-kayak"},
        "departure": {"id": new_id(), "starts_at": _at(48), "ends_at": _at(50.5)},
        "customer": {"name": "Ada Lovelace", "email": "ada@example.com", "phone": None},
        "guests": [{"tier_id": "adult", "tier_label": "Adult", "count": 2, "unit_price": money(89000)}],
        "add_ons": [],
        "totals": {"subtotal": total, "discount": none, "gift_card": none, "total": total},
        "payment": {"method": "pay_on_site", "source": "on_site", "status": "unpaid"},
        "note": None,
        "manage_url": None,
        **over,
    }


def customer_fields(**over: Any) -> dict[str, Any]:
    """A customer."""
    return {
        "id": new_id(),
        "name": "Ada Lovelace",
        "email": f"ada-{next(_numbers)}@example.com",
        "phone": None,
        "tags": [],
        "email_subscription": False,
        "created_at": _at(),
        **over,
    }


def gift_card_fields(**over: Any) -> dict[str, Any]:
    """An active gift card of 500 kroner, without its code."""
    return {
        "id": new_id(),
        "code_last4": "7K2M",
        "status": "active",
        "initial_amount": money(50000),
        "balance": money(50000),
        "currency": "NOK",
        "expires_at": None,
        "purchaser": {"name": "Ada Lovelace", "email": "ada@example.com"},
        "recipient": {"name": "Charles Babbage", "email": "charles@example.com"},
        "created_at": _at(),
        **over,
    }


def webhook_endpoint_fields(**over: Any) -> dict[str, Any]:
    """An endpoint that listens to new bookings, without its secret."""
    return {
        "id": new_id(),
        "url": "https://hooks.example.com/booking",
        "description": None,
        "event_types": ["booking.created"],
        "status": "enabled",
        "disabled_at": None,
        "disabled_reason": None,
        "consecutive_failures": 0,
        "last_success_at": None,
        "last_failure_at": None,
        "previous_secret_expires_at": None,
        "api_version": API_VERSION,
        "created_at": _at(),
        "updated_at": _at(),
        **over,
    }


_EXTRA: dict[str, dict[str, Any]] = {
    "booking.cancelled": {"reason": "api"},
    "booking.rescheduled": {"previous_departure": {"id": new_id(), "starts_at": _at(24)}},
    "gift_card.redeemed": {"redeemed_amount": money(50000), "booking_id": new_id()},
    "webhook.delivery_dead": {"delivery_id": new_id(), "event_id": new_id(), "event_type": "booking.created"},
}


def object_fields(event_type: str) -> dict[str, Any]:
    """What an event of the type is about."""
    resource = event_type.partition(".")[0]
    if resource == "booking":
        return booking_fields(status="cancelled" if event_type == "booking.cancelled" else "confirmed")
    if resource == "customer":
        return customer_fields()
    if resource == "gift_card":
        return gift_card_fields()
    if resource == "webhook":
        return webhook_endpoint_fields()
    return {"message": "This is a test.", "endpoint_id": new_id()} if event_type == "ping" else {"id": new_id()}


def event_fields(event_type: str, *, about: Any = None, **data: Any) -> dict[str, Any]:
    """The envelope of a delivery: what a webhook's body holds."""
    return {
        "id": new_id(),
        "type": event_type,
        "created_at": _at(),
        "api_version": API_VERSION,
        "sequence": next(_sequences),
        "data": {"object": about or object_fields(event_type), **_EXTRA.get(event_type, {}), **data},
    }


def known(kind: type[Resource], over: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Return the fields that a test chose.

    Raises:
        TypeError: there is no such field, here or in what one of them holds: a typing error would go unnoticed, since
            models keep fields that they do not know.
    """
    for name, value in over.items():
        field = kind.model_fields.get(name)
        if field is None:
            near = get_close_matches(name, kind.model_fields, 1)
            hint = f"; did you mean {path}{near[0]}?" if near else ""
            raise TypeError(f"{kind.__name__} has no field {path}{name}{hint}")
        inner = next((one for one in (field.annotation, *get_args(field.annotation)) if _is_resource(one)), None)
        for part in value if isinstance(value, list) else [value]:
            if inner is not None and isinstance(part, dict):
                known(inner, part, f"{path}{name}.")
    return over


def _is_resource(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Resource)


def make_experience(**over: Any) -> Experience:
    """An experience."""
    return Experience.model_validate(experience_fields(**known(Experience, over)))


def make_departure(**over: Any) -> Departure:
    """A departure."""
    return Departure.model_validate(departure_fields(**known(Departure, over)))


def make_booking(**over: Any) -> Booking:
    """A booking."""
    return Booking.model_validate(booking_fields(**known(Booking, over)))


def make_customer(**over: Any) -> Customer:
    """A customer."""
    return Customer.model_validate(customer_fields(**known(Customer, over)))


def make_gift_card(**over: Any) -> GiftCard:
    """A gift card."""
    return GiftCard.model_validate(gift_card_fields(**known(GiftCard, over)))


def make_event(event_type: str = "booking.created", *, about: Any = None, **data: Any) -> AnyEvent:
    """An event as a handler gets it, of any type, also one that does not exist yet.

    Args:
        about: the resource, as a model or as fields.
        data: what stands beside it, such as `reason`.

    Raises:
        TypeError: events of this type have no such data.
    """
    kind = EVENT_CLASSES.get(event_type)
    if kind is not None:
        known(cast("type[Resource]", kind.model_fields["data"].annotation), data)
    fields = about.to_json() if hasattr(about, "to_json") else about
    return parse_event(event_fields(event_type, about=fields, **data))

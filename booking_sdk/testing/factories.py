"""Factories for resources and events. Every field has a sample value; a test overrides the ones it is about.

    make_booking(status="cancelled", note="Wheelchair")
    make_event("booking.cancelled", reason="customer")

The field names come from the models.
"""

import itertools
import uuid
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, cast, get_args, get_origin

from pydantic import AwareDatetime

from booking_core.models.base import Resource
from booking_core.models.bookings import (
    BookedDeparture,
    BookedExperience,
    Guest,
    GuestLine,
    Payment,
    Totals,
)
from booking_core.models.customers import Customer
from booking_core.models.departures import Departure
from booking_core.models.experiences import Experience, PriceTier
from booking_core.models.gift_cards import GiftCardContact
from booking_core.models.limits import API_VERSION
from booking_core.models.money import Money
from booking_core.models.webhooks import WebhookEndpoint
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
    return resource_fields(Money, amount_minor=amount_minor, currency=currency)


def resource_fields(model: type[Resource], **values: Any) -> dict[str, Any]:
    """Return the JSON fields of a resource, in the order of its model.

    A nullable field without a value is None, and a list without a value is empty.

    Args:
        model: The model, from which the field names come.
        values: The values of the other fields; fields that the model does not have are kept.

    Raises:
        TypeError: A required field has no value.
    """
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name in values:
            fields[name] = values.pop(name)
        elif field.is_required():
            fields[name] = _empty_value(model, name, field.annotation)
    return {**fields, **values}


def _empty_value(model: type[Resource], name: str, annotation: Any) -> Any:
    if type(None) in get_args(annotation):
        return None
    if get_origin(annotation) is list:
        return []
    raise TypeError(f"{model.__name__}.{name} needs a value")


def sample_fields(model: type[Resource], **over: Any) -> dict[str, Any]:
    """Return the fields of any resource, with a sample value for each required field of a simple type."""
    values = {name: _sample_value(name, field.annotation) for name, field in model.model_fields.items()}
    return resource_fields(model, **{name: value for name, value in values.items() if value is not None} | over)


def _sample_value(name: str, annotation: Any) -> Any:
    """Return a value for a field of a simple type; None for any other."""
    if annotation is str:
        return new_id() if name == "id" else name
    return {bool: True, int: 1, AwareDatetime: _at()}.get(annotation)


def experience_fields(currency: str = "NOK", **over: Any) -> dict[str, Any]:
    """Return the fields of an experience with an adult tier."""
    adult = resource_fields(PriceTier, id="adult", name="Adult", price=money(89000, currency), seats_per_unit=1)
    sample = {
        "id": new_id(),
        "slug": f"fjord-kayak-{next(_numbers)}",
        "title": "Fjord kayak",
        "is_published": True,
        "duration_minutes": 150,
        "duration": "2 h 30 min",
        "languages": ["en"],
        "price_from": money(89000, currency),
        "price_tiers": [adult],
        "add_ons": [],
        "what_to_bring": [],
        "translations": {},
        "created_at": _at(),
        "updated_at": _at(),
    }
    return resource_fields(Experience, **{**sample, **over})


_SHOWN_ONLY = ("duration", "created_at", "updated_at")
"""Fields of an experience that the service computes."""


def experience_entry(currency: str, **over: Any) -> dict[str, Any]:
    """Return an experience as a catalogue file has it, by default from the lowest price of its tiers."""
    fields = experience_fields(currency, **over)
    if fields["price_tiers"] and over.get("price_from") is None:
        fields["price_from"] = min(
            (tier["price"] for tier in fields["price_tiers"]), key=lambda each: each["amount_minor"]
        )
    return {name: value for name, value in fields.items() if value is not None and name not in _SHOWN_ONLY}


def departure_fields(**over: Any) -> dict[str, Any]:
    """Return the fields of an open departure with twelve seats."""
    sample = {
        "id": new_id(),
        "experience_id": new_id(),
        "starts_at": _at(48),
        "starts_at_local": _at(48)[:19],
        "timezone": "UTC",
        "ends_at": _at(50.5),
        "seats_total": 12,
        "seats_available": 12,
        "price": money(89000),
        "price_tiers": [{"id": "adult", "name": "Adult", "price": money(89000), "seats_per_unit": 1}],
        "booking_closes_at": _at(48),
        "status": "open",
    }
    return resource_fields(Departure, **{**sample, **over})


def totals_fields(subtotal_minor: int, currency: str = "NOK") -> dict[str, Any]:
    """Return the totals of a booking without discount and gift card."""
    none, subtotal = money(0, currency), money(subtotal_minor, currency)
    return resource_fields(Totals, subtotal=subtotal, discount=none, gift_card=none, total=subtotal)


def booking_fields(**over: Any) -> dict[str, Any]:
    """Return the fields of a confirmed booking for two guests."""
    guests = resource_fields(GuestLine, tier_id="adult", tier_label="Adult", count=2, unit_price=money(89000))
    sample = {
        "id": new_id(),
        "booking_number": next(_numbers),
        "status": "confirmed",
        "source": "api",
        "created_at": _at(),
        "updated_at": _at(),
        "experience": resource_fields(BookedExperience, id=new_id(), title="Fjord kayak", slug="fjord-kayak"),
        "departure": resource_fields(BookedDeparture, id=new_id(), starts_at=_at(48), ends_at=_at(50.5)),
        "customer": resource_fields(Guest, name="Ada Lovelace", email="ada@example.com"),
        "guests": [guests],
        "totals": totals_fields(178000),
        "payment": resource_fields(Payment, method="pay_on_site", source="on_site", status="unpaid"),
        "checked_in_at": None,
        "no_show_at": None,
        "external_reference": None,
        "metadata": {},
        "locale": None,
    }
    return resource_fields(Booking, **{**sample, **over})


def customer_fields(**over: Any) -> dict[str, Any]:
    """Return the fields of a customer."""
    sample = {
        "id": new_id(),
        "name": "Ada Lovelace",
        "email": f"ada-{next(_numbers)}@example.com",
        "email_subscription": False,
        "created_at": _at(),
    }
    return resource_fields(Customer, **{**sample, **over})


def gift_card_fields(**over: Any) -> dict[str, Any]:
    """Return the fields of an active gift card of 500 kroner, without its code."""
    sample = {
        "id": new_id(),
        "code_last4": "7K2M",
        "status": "active",
        "initial_amount": money(50000),
        "balance": money(50000),
        "currency": "NOK",
        "purchaser": resource_fields(GiftCardContact, name="Ada Lovelace", email="ada@example.com"),
        "recipient": resource_fields(GiftCardContact, name="Charles Babbage", email="charles@example.com"),
        "created_at": _at(),
    }
    return resource_fields(GiftCard, **{**sample, **over})


def webhook_endpoint_fields(**over: Any) -> dict[str, Any]:
    """Return the fields of an enabled webhook endpoint, without its secret."""
    sample = {
        "id": new_id(),
        "url": "https://hooks.example.com/booking",
        "event_types": ["booking.created"],
        "status": "enabled",
        "consecutive_failures": 0,
        "api_version": API_VERSION,
        "created_at": _at(),
        "updated_at": _at(),
    }
    return resource_fields(WebhookEndpoint, **{**sample, **over})


_FORMER = new_id()
_EXTRA: dict[str, dict[str, Any]] = {
    "booking.cancelled": {"reason": "api"},
    "booking.rescheduled": {
        "previous_departure": {"id": _FORMER, "starts_at": _at(24)},
        "changes": {"departure": {"id": _FORMER, "starts_at": _at(24), "ends_at": _at(26.5)}},
    },
    "booking.updated": {"changes": {"payment": {"method": "invoice", "source": "on_site", "status": "unpaid"}}},
    "booking.refunded": {
        "refunded_amount": money(178000),
        "total_refunded": money(178000),
        "changes": {"payment": {"method": "card", "source": "stripe", "status": "paid"}},
    },
    "departure.updated": {"changes": {"seats_available": 10}},
    "customer.updated": {"changes": {"phone": None}},
    "gift_card.redeemed": {"redeemed_amount": money(50000), "booking_id": new_id()},
    "gift_card.restored": {"restored_amount": money(50000), "booking_id": new_id()},
    "webhook.failing": {"failing_since": _at(-1)},
    "webhook.delivery_dead": {"delivery_id": new_id(), "event_id": new_id(), "event_type": "booking.created"},
}


def object_fields(event_type: str) -> dict[str, Any]:
    """Return the resource that an event of the type is about."""
    resource = event_type.partition(".")[0]
    if resource == "booking":
        has_ended = event_type in ("booking.cancelled", "booking.refunded")
        return booking_fields(status="cancelled" if has_ended else "confirmed")
    if resource == "departure":
        return departure_fields()
    if resource == "customer":
        return customer_fields()
    if resource == "gift_card":
        return gift_card_fields()
    if resource == "webhook":
        return webhook_endpoint_fields()
    return {"message": "This is a test.", "endpoint_id": new_id()} if event_type == "ping" else {"id": new_id()}


def event_fields(event_type: str, *, about: Any = None, **data: Any) -> dict[str, Any]:
    """Return the body of a webhook delivery."""
    return {
        "id": new_id(),
        "type": event_type,
        "created_at": _at(),
        "api_version": API_VERSION,
        "sequence": next(_sequences),
        "data": {"object": about or object_fields(event_type), **_EXTRA.get(event_type, {}), **data},
    }


def checked_fields(kind: type[Resource], over: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Return the fields that a test overrides, after checking their names.

    Models keep unknown fields, so a misspelled name would go unnoticed.

    Raises:
        TypeError: The model, or the model of a nested object, has no such field.
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
                checked_fields(inner, part, f"{path}{name}.")
    return over


def _is_resource(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Resource)


def make_experience(**over: Any) -> Experience:
    """Return an experience. `over` overrides its fields."""
    return Experience.model_validate(experience_fields(**checked_fields(Experience, over)))


def make_departure(**over: Any) -> Departure:
    """Return a departure. `over` overrides its fields."""
    return Departure.model_validate(departure_fields(**checked_fields(Departure, over)))


def make_booking(**over: Any) -> Booking:
    """Return a booking. `over` overrides its fields."""
    return Booking.model_validate(booking_fields(**checked_fields(Booking, over)))


def make_customer(**over: Any) -> Customer:
    """Return a customer. `over` overrides its fields."""
    return Customer.model_validate(customer_fields(**checked_fields(Customer, over)))


def make_gift_card(**over: Any) -> GiftCard:
    """Return a gift card. `over` overrides its fields."""
    return GiftCard.model_validate(gift_card_fields(**checked_fields(GiftCard, over)))


def make_event(event_type: str = "booking.created", *, about: Any = None, **data: Any) -> AnyEvent:
    """Return an event as a handler receives it.

    Args:
        event_type: The type of the event, which may be unknown to the SDK.
        about: The resource, as a model or as fields.
        data: The other data of the event, such as `reason`.

    Raises:
        TypeError: Events of this type have no such data.
    """
    kind = EVENT_CLASSES.get(event_type)
    if kind is not None:
        checked_fields(cast("type[Resource]", kind.model_fields["data"].annotation), data)
    fields = about.to_json() if hasattr(about, "to_json") else about
    return parse_event(event_fields(event_type, about=fields, **data))

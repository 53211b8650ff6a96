"""Factories for resources and events. Every field has a sample value; a test overrides the fields that it is about.

    make_booking(status="cancelled", note="Wheelchair")
    make_event("booking.cancelled", reason="customer")

`samples.json` has the values.
"""

import itertools
import json
import uuid
from copy import deepcopy
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin

from pydantic import AwareDatetime

from booking_core.models.base import Resource
from booking_core.models.bookings import Booking
from booking_core.models.customers import Customer
from booking_core.models.departures import Departure
from booking_core.models.experiences import Experience
from booking_core.models.gift_cards import GiftCard
from booking_core.models.limits import API_VERSION
from booking_sdk.event_parsing import parse_event
from booking_sdk.models import EVENT_CLASSES, AnyEvent

ResourceT = TypeVar("ResourceT", bound=Resource)

_EPOCH = datetime(2026, 6, 1, 9, 30, tzinfo=UTC).isoformat()
_numbers = itertools.count(1)
_sequences = itertools.count(1)
_samples = json.loads(Path(__file__).with_name("samples.json").read_text(encoding="utf-8"))


def new_id() -> str:
    return str(uuid.uuid4())


def money(amount_minor: int, currency: str) -> dict[str, Any]:
    return {"amount_minor": amount_minor, "currency": currency}


def sample_fields(model: type[Resource], **over: Any) -> dict[str, Any]:
    """Return the fields of any resource, with a sample value for each required field of a simple type.

    Raises:
        TypeError: Another required field has no value.
    """
    required = {name: field.annotation for name, field in model.model_fields.items() if field.is_required()}
    samples = {name: _sample_value(model, name, kind) for name, kind in required.items() if name not in over}
    return samples | over


def _sample_value(model: type[Resource], name: str, annotation: Any) -> Any:
    if type(None) in get_args(annotation):
        return None
    if get_origin(annotation) is list:
        return []
    simple = {str: new_id() if name == "id" else name, bool: True, int: 1, AwareDatetime: _EPOCH}
    if annotation not in simple:
        raise TypeError(f"{model.__name__}.{name} needs a value")
    return simple[annotation]


def _resource(kind: str) -> dict[str, Any]:
    """Return the sample of a kind of resource, with the values that are unique."""
    number = next(_numbers)
    unique: dict[str, dict[str, Any]] = {
        "booking": {"booking_number": number},
        "experience": {"slug": f"fjord-kayak-{number}"},
        "customer": {"email": f"ada-{number}@example.com"},
        "webhook": {"api_version": API_VERSION},
    }
    own_id = {} if kind == "ping" else {"id": new_id()}
    return {**own_id, **unique.get(kind, {}), **deepcopy(_samples["resources"].get(kind, {}))}


_SHOWN_ONLY = ("duration", "created_at", "updated_at")
"""Fields of an experience that the service computes."""


def experience_entry(currency: str, **over: Any) -> dict[str, Any]:
    """Return an experience as a catalogue file has it, by default from the lowest price of its tiers."""
    sample = _resource("experience")
    for price in (sample["price_from"], sample["price_tiers"][0]["price"]):
        price["currency"] = currency
    fields = sample | over
    if fields["price_tiers"] and over.get("price_from") is None:
        fields["price_from"] = min(
            (tier["price"] for tier in fields["price_tiers"]), key=lambda amount: amount["amount_minor"]
        )
    return {name: value for name, value in fields.items() if value is not None and name not in _SHOWN_ONLY}


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


def _make(model: type[ResourceT], kind: str, over: dict[str, Any]) -> ResourceT:
    return model.model_validate(_resource(kind) | checked_fields(model, over))


def make_experience(**over: Any) -> Experience:
    """Return an experience. `over` overrides its fields."""
    return _make(Experience, "experience", over)


def make_departure(**over: Any) -> Departure:
    """Return a departure. `over` overrides its fields."""
    return _make(Departure, "departure", over)


def make_booking(**over: Any) -> Booking:
    """Return a booking. `over` overrides its fields."""
    return _make(Booking, "booking", over)


def make_customer(**over: Any) -> Customer:
    """Return a customer. `over` overrides its fields."""
    return _make(Customer, "customer", over)


def make_gift_card(**over: Any) -> GiftCard:
    """Return a gift card. `over` overrides its fields."""
    return _make(GiftCard, "gift_card", over)


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
    return parse_event(
        {
            "id": new_id(),
            "type": event_type,
            "created_at": _EPOCH,
            "api_version": API_VERSION,
            "sequence": next(_sequences),
            "data": {"object": fields or _about(event_type), **_samples["event_data"].get(event_type, {}), **data},
        }
    )


def _about(event_type: str) -> dict[str, Any]:
    """Return the resource that an event of the type is about."""
    has_ended = event_type in ("booking.cancelled", "booking.refunded")
    return _resource(event_type.partition(".")[0]) | ({"status": "cancelled"} if has_ended else {})

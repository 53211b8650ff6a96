"""Validators of rows that are simpler in Python than in two dialects of SQL. None shows a guest's text.

Each returns the message of a row that breaks its invariant, or None.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from booking_core.base import clock
from booking_core.base.clock import SECOND
from booking_core.models.base import email_key
from booking_core.models.experiences import ExperienceTexts
from booking_core.models.scopes import Scope


def validate_lines(row: list[Any]) -> str | None:
    """Compare a booking's lines with its subtotal and its currency."""
    number, guests, add_ons, subtotal, currency = row
    try:
        lines = [*orjson.loads(guests), *orjson.loads(add_ons)]
        amount = sum(line["count"] * line["unit_price"]["amount_minor"] for line in lines)
        currencies = {line["unit_price"]["currency"] for line in lines}
    except (ValueError, TypeError, KeyError) as error:
        return f"its lines cannot be read: {error}"
    if number is None and not lines:
        return None
    if amount != subtotal:
        return f"subtotal is {subtotal} minor {currency}, its lines come to {amount} minor {currency}"
    if currencies - {currency}:
        return f"is in {currency}, its lines in {', '.join(sorted(map(str, currencies)))}"
    return None


def validate_seats(row: list[Any]) -> str | None:
    """Compare the seats of a booking with its guests, if the price tiers of the sale are known."""
    seats, guests, price_tiers = row
    try:
        lines = [(line["tier_id"], line["count"]) for line in orjson.loads(guests)]
        per_unit = {tier["id"]: tier["seats_per_unit"] for tier in orjson.loads(price_tiers or "[]")}
    except (ValueError, TypeError, KeyError):
        return None  # another check reads the lines
    if not seats and sum(count for _, count in lines):
        return "takes no seats, but has guests"
    if price_tiers is None or any(tier not in per_unit for tier, _ in lines):
        return None
    guest_seats = sum(count * per_unit[tier] for tier, count in lines)
    return None if guest_seats == seats else f"takes {seats} seats, its guests need {guest_seats}"


def validate_address(row: list[Any]) -> str | None:
    """Compare the customer's e-mail address with the guest's. The message does not show the addresses."""
    customer_id, guest_email, key = row
    return None if email_key(guest_email) == key else f"customer {customer_id} has another e-mail address"


def validate_customer(row: list[Any]) -> str | None:
    """Compare a customer's key with the normalised e-mail address."""
    email, key = row
    return None if email_key(email) == key else "its key does not match its e-mail address"


def validate_scopes(row: list[Any]) -> str | None:
    """Look for scopes of a key that do not exist."""
    (stored,) = row
    try:
        scopes = orjson.loads(stored)
        unknown = sorted(set(scopes) - set(Scope)) if isinstance(scopes, list) else None
    except (ValueError, TypeError):
        unknown = None
    if unknown is None:
        return "its scopes cannot be read"
    return f"no such scope: {', '.join(unknown)}" if unknown else None


def validate_translations(row: list[Any]) -> str | None:
    """Read the translated texts of an experience, which every answer and mail about it needs."""
    (stored,) = row
    try:
        translations: dict[str, Any] = orjson.loads(stored)
        unread = [tag for tag, texts in translations.items() if not _are_texts(texts)]
    except (ValueError, AttributeError):
        return "its translations cannot be read"
    return f"its translations cannot be read: {', '.join(unread)}" if unread else None


def _are_texts(texts: object) -> bool:
    try:
        ExperienceTexts.model_validate(texts)
    except ValidationError:
        return False
    return True


def validate_state(row: list[Any]) -> str | None:
    """Compare a departure with its last `departure.updated`."""
    starts_at, status, seats_total, seats_taken, seats_held, body = row
    try:
        resource = orjson.loads(body)["data"]["object"]
        announced = {name: resource[name] for name in ("seats_total", "seats_available")}
        announced["starts_at"] = clock.from_datetime(datetime.fromisoformat(resource["starts_at"]))
        announced["is_cancelled"] = resource["status"] == "cancelled"
    except (ValueError, TypeError, KeyError) as error:
        return f"its event cannot be read: {type(error).__name__}"
    expected = {
        "seats_total": seats_total,
        "seats_available": announced["seats_available"] if seats_held else max(0, seats_total - seats_taken),
        "starts_at": starts_at // SECOND * SECOND,
        "is_cancelled": status == "cancelled",
    }
    differing = [name for name, value in expected.items() if announced[name] != value]
    return f"its last event differs in {', '.join(differing)}" if differing else None


# Bodies of events -----------------------------------------------------------------------------------------------

_SECRETS = {"booking": ("manage_url",), "gift_card": ("code",), "webhook": ("secret",)}
"""The fields that an event's object never contains, by resource type."""


class CheckedEvent(NamedTuple):
    """An event, with the columns that its body must agree with."""

    id: str
    sequence: int
    type: str
    resource_type: str
    resource_id: str | None
    created_at: int
    card_id: str | None
    body: str
    newest: int | None
    """The sequence of the newest event about the same booking."""
    updated: int | None
    """The sequence of the newest `booking.updated` about it."""
    booking_number: int | None
    """None: the event is not about a booking, or about a legacy row."""
    status: str | None
    cancel_reason: str | None
    source: str | None
    departure_id: str | None
    experience_id: str | None
    guest_name: str | None
    guest_email: str | None
    guest_phone: str | None
    currency: str | None
    subtotal_minor: int | None
    discount_minor: int | None
    gift_card_minor: int | None
    total_minor: int | None
    payment_method: str | None
    payment_source: str | None


def validate_event(row: list[Any]) -> str | None:
    """Compare an event's body with its row and with its booking."""
    event = CheckedEvent._make(row)
    try:
        body = orjson.loads(event.body)
        data = body["data"]
        resource = dict(data["object"])
        dated_at = clock.from_datetime(datetime.fromisoformat(body["created_at"]))
        identity = (body["type"], body["sequence"], bool(body["api_version"]))
    except (ValueError, TypeError, KeyError) as error:
        return f"its body cannot be read: {type(error).__name__}"
    if identity != (event.type, event.sequence, True):
        return f"the body says {identity[0]} number {identity[1]}, the row {event.type} number {event.sequence}"
    if dated_at != event.created_at // SECOND * SECOND:
        return f"the body is dated {body['created_at']}, the row {event.created_at}"
    changes = data.get("changes") or {}
    if not isinstance(changes, dict) or not changes.keys() <= resource.keys():
        return "its changes are not of fields that the resource has"
    if any(
        values.get(secret) is not None
        for values in (resource, changes)
        for secret in _SECRETS.get(event.resource_type, ())
    ):
        return "the body contains a secret"
    return _id_mismatch(event, body.get("id"), resource) or _content_mismatch(event, data, resource)


def _id_mismatch(event: CheckedEvent, body_id: object, resource: dict[str, Any]) -> str | None:
    """Compare the ids of the event and of its resource."""
    is_known = event.resource_type != "gift_card" or event.card_id
    if is_known and event.resource_id and resource.get("id") != str(event.resource_id):
        return f"the body is about {resource.get('id')}, the row about {event.resource_id}"
    return None if body_id == str(event.id) else "the ids differ"


def _content_mismatch(event: CheckedEvent, data: dict[str, Any], resource: dict[str, Any]) -> str | None:
    """Compare the body with the type of the event and with the booking."""
    status = {"booking.confirmed": "confirmed", "booking.cancelled": "cancelled"}.get(event.type)
    if status and resource.get("status") != status:
        return f"{event.type} shows a booking that is {resource.get('status')}"
    if event.type == "booking.cancelled" and data.get("reason") != event.cancel_reason:
        return f"the event's reason is {data.get('reason')}, the booking's is {event.cancel_reason}"
    if event.booking_number is None:
        return None
    differing = [name for name, expected in _expected_of(event).items() if _value_at(resource, name) != expected]
    # Only the names of the fields are shown, since their values are personal data.
    return f"{event.type} and the booking differ in {', '.join(differing)}" if differing else None


def _expected_of(event: CheckedEvent) -> dict[str, Any]:
    """Return the fields that the body of a booking's event must show.

    An event after which the booking was updated may show other lines, amounts, methods of payment and contact
    details. The newest event
    must also show the fields that other events change. A payment's status may change without an event.
    """
    constant: dict[str, Any] = {
        "booking_number": event.booking_number,
        "source": event.source,
    }
    if event.updated is not None and event.sequence < event.updated:
        return constant
    constant |= {
        "customer": {"name": event.guest_name, "email": event.guest_email, "phone": event.guest_phone},
        "totals.subtotal": _money(event.subtotal_minor, event.currency),
        "totals.discount": _money(event.discount_minor, event.currency),
        "totals.gift_card": _money(event.gift_card_minor, event.currency),
        "totals.total": _money(event.total_minor, event.currency),
        "payment.method": event.payment_method,
        "payment.source": event.payment_source,
    }
    if event.sequence != event.newest:
        return constant
    return constant | {
        "status": event.status,
        "departure.id": str(event.departure_id),
        "experience.id": str(event.experience_id),
    }


def _money(amount_minor: int | None, currency: str | None) -> dict[str, Any]:
    return {"amount_minor": amount_minor, "currency": currency}


def _value_at(resource: dict[str, Any], path: str) -> Any:
    value: Any = resource
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


VALIDATORS: dict[str, Callable[[Any], str | None]] = {
    "lines": validate_lines,
    "seats": validate_seats,
    "addresses": validate_address,
    "bodies": validate_event,
    "announced_states": validate_state,
    "scopes": validate_scopes,
    "customer_keys": validate_customer,
    "translations": validate_translations,
}
"""By the name of the query."""

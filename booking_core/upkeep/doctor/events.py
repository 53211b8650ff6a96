"""Checks of events: a dense sequence, one event for each change, in order, with the documented body."""

from datetime import datetime
from typing import Any, NamedTuple

import orjson

from booking_core.base import clock
from booking_core.base.clock import SECOND
from booking_core.db import sql_files
from booking_core.upkeep.doctor.checks import Check, RowScan

SQL = sql_files.load(__name__)

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
        shown = dict(data["object"])
        dated_at = clock.from_datetime(datetime.fromisoformat(body["created_at"]))
        named = (body["type"], body["sequence"], bool(body["api_version"]))
    except (ValueError, TypeError, KeyError) as error:
        return f"its body cannot be read: {type(error).__name__}"
    if named != (event.type, event.sequence, True):
        return f"the body says {named[0]} number {named[1]}, the row {event.type} number {event.sequence}"
    if dated_at != event.created_at // SECOND * SECOND:
        return f"the body is dated {body['created_at']}, the row {event.created_at}"
    changes = data.get("changes") or {}
    if not isinstance(changes, dict) or not changes.keys() <= shown.keys():
        return "its changes are not of fields that the resource has"
    if any(
        each.get(secret) is not None for each in (shown, changes) for secret in _SECRETS.get(event.resource_type, ())
    ):
        return "the body contains a secret"
    return _id_mismatch(event, body.get("id"), shown) or _content_mismatch(event, data, shown)


def _id_mismatch(event: CheckedEvent, body_id: object, shown: dict[str, Any]) -> str | None:
    """Compare the ids of the event and of its resource."""
    is_known = event.resource_type != "gift_card" or event.card_id
    if is_known and event.resource_id and shown.get("id") != str(event.resource_id):
        return f"the body is about {shown.get('id')}, the row about {event.resource_id}"
    return None if body_id == str(event.id) else "the ids differ"


def _content_mismatch(event: CheckedEvent, data: dict[str, Any], shown: dict[str, Any]) -> str | None:
    """Compare the body with the type of the event and with the booking."""
    status = {"booking.confirmed": "confirmed", "booking.cancelled": "cancelled"}.get(event.type)
    if status and shown.get("status") != status:
        return f"{event.type} shows a booking that is {shown.get('status')}"
    if event.type == "booking.cancelled" and data.get("reason") != event.cancel_reason:
        return f"the event's reason is {data.get('reason')}, the booking's is {event.cancel_reason}"
    if event.booking_number is None:
        return None
    differing = [name for name, expected in _expected_of(event).items() if _value_at(shown, name) != expected]
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


def _value_at(shown: dict[str, Any], path: str) -> Any:
    value: Any = shown
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


CHECKS = (
    Check(
        "event sequences are dense up to the counter",
        SQL.text("sequences"),
        remedy="never lower a counter: raise it to the highest sequence, and accept the gap",
    ),
    Check("no event is purged before its retention ends", SQL.text("early_purges")),
    Check(
        "a booking has one event each for its creation, confirmation and cancellation", SQL.text("events_of_bookings")
    ),
    Check("a booking's created event is its first, and its cancelled event its last", SQL.text("order_of_events")),
    Check("an event that can happen only once is published once", SQL.text("repeated_events")),
    Check("a customer created by a booking has a customer.created event", SQL.text("events_of_customers")),
    Check("each redemption of a gift card has one event", SQL.text("events_of_redemptions")),
    Check("each restoration of a gift card has one event", SQL.text("events_of_restorations")),
    Check("each refund that returned money has one event", SQL.text("events_of_refunds")),
    Check("an event refers to an existing booking or customer", SQL.text("missing_resources")),
    RowScan(
        "an event's body agrees with its row, and contains no secret", SQL.text("bodies"), "e.sequence", validate_event
    ),
)

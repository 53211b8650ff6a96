"""Checks of events: a dense sequence, one event for each change, in order, with the documented body."""
# ruff: noqa: S608 - the texts of SQL are made of nothing but constants

from datetime import datetime
from typing import Any, NamedTuple

import orjson

from booking_core import clock
from booking_core.clock import SECOND
from booking_core.doctor.checks import Check, RowScan

_ONCE = "('booking.created', 'booking.confirmed', 'booking.cancelled', 'customer.created', 'gift_card.issued')"
_SECRETS = {"booking": ("manage_url",), "gift_card": ("code",), "webhook": ("secret",)}
"""The fields that an event's object never contains, by resource type."""

_FEED_START = """(SELECT o.id AS organization_id, coalesce(f.sequence, c.last_event_sequence + 1) AS lowest,
                      f.created_at AS oldest
                 FROM organizations o
                 JOIN counters c ON c.organization_id = o.id
                 LEFT JOIN events f ON f.organization_id = o.id AND f.sequence = (
                      SELECT min(m.sequence) FROM events m WHERE m.organization_id = o.id))"""
"""The first event that is kept of each organization's feed. Earlier events were published, and purged since."""


def _must_be_in_feed(at: str) -> str:
    """Return the SQL condition that an event of this time must still be in the feed."""
    return f"({at} IS NOT NULL AND (k.lowest = 1 OR {at} > k.oldest + :skew OR {at} > :events_since))"


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
    if any(shown.get(secret) is not None for secret in _SECRETS.get(event.resource_type, ())):
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

    The newest event must also show the fields that may change. A payment's status may change without an event.
    """
    constant = {
        "booking_number": event.booking_number,
        "source": event.source,
        "customer": {"name": event.guest_name, "email": event.guest_email, "phone": event.guest_phone},
        "payment.method": event.payment_method,
        "payment.source": event.payment_source,
        "totals.subtotal": _money(event.subtotal_minor, event.currency),
        "totals.discount": _money(event.discount_minor, event.currency),
        "totals.gift_card": _money(event.gift_card_minor, event.currency),
        "totals.total": _money(event.total_minor, event.currency),
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
    # One pass over the primary key of the events.
    Check(
        "event sequences are dense up to the counter",
        """SELECT c.organization_id, 'events', 'counter ' || c.last_event_sequence || ', highest '
                  || coalesce(k.highest, 0) || ', lowest ' || coalesce(k.lowest, 0) || ', count ' || coalesce(k.kept, 0)
             FROM counters c
             LEFT JOIN (SELECT e.organization_id, count(*) AS kept, max(e.sequence) AS highest,
                               min(e.sequence) AS lowest
                          FROM events e WHERE [e] GROUP BY e.organization_id) k
               ON k.organization_id = c.organization_id
            WHERE [c] AND k.kept > 0
              AND (k.highest <> c.last_event_sequence OR k.kept <> k.highest - k.lowest + 1 OR k.lowest < 1)""",
        remedy="never lower a counter: raise it to the highest sequence, and accept the gap",
    ),
    # One look-up for each organization.
    Check(
        "no event is purged before its retention ends",
        f"""SELECT k.organization_id, 'events', 'the first that is kept is ' || k.lowest
                  || ', and the organization is younger than what events are kept for'
             FROM {_FEED_START} k JOIN organizations o ON o.id = k.organization_id
            WHERE [k] AND k.lowest > 1 AND o.created_at > :events_since""",
    ),
    # Three look-ups along one index for each booking: with the bodies below, the most expensive check.
    Check(
        "a booking has one event each for its creation, confirmation and cancellation",
        f"""SELECT b.organization_id, b.id, b.status || ', created ' || coalesce('' || c.sequence, 'without event')
                  || ', confirmed ' || coalesce('' || f.sequence, 'without event')
                  || ', cancelled ' || coalesce('' || x.sequence, 'without event')
             FROM bookings b
             JOIN {_FEED_START} k ON k.organization_id = b.organization_id
             LEFT JOIN events c ON c.organization_id = b.organization_id AND c.resource_id = b.id
              AND c.type = 'booking.created' AND c.occurrence = 0
             LEFT JOIN events f ON f.organization_id = b.organization_id AND f.resource_id = b.id
              AND f.type = 'booking.confirmed' AND f.occurrence = 0
             LEFT JOIN events x ON x.organization_id = b.organization_id AND x.resource_id = b.id
              AND x.type = 'booking.cancelled' AND x.occurrence = 0
            WHERE [b] AND b.booking_number IS NOT NULL
              AND ((c.sequence IS NULL AND {_must_be_in_feed("b.created_at")})
                   OR (f.sequence IS NULL AND {_must_be_in_feed("b.confirmed_at")})
                   OR (f.sequence IS NOT NULL AND b.confirmed_at IS NULL)
                   OR (x.sequence IS NULL AND {_must_be_in_feed("b.cancelled_at")})
                   OR (x.sequence IS NOT NULL AND b.status <> 'cancelled'))""",
    ),
    # Two look-ups for each booking.
    Check(
        "a booking's created event is its first, and its cancelled event its last",
        """SELECT e.organization_id, e.resource_id, e.type || ' is ' || e.sequence || ', ' || l.type || ' is '
                  || l.sequence
             FROM events e
             JOIN events l ON l.organization_id = e.organization_id AND l.resource_id = e.resource_id
              AND l.sequence < e.sequence
            WHERE [e] AND e.type IN ('booking.created', 'booking.confirmed') AND e.resource_type = 'booking'
              AND (e.type = 'booking.created' OR l.type = 'booking.cancelled')""",
    ),
    # One pass over the index of resources, in its order.
    Check(
        "an event that can happen only once is published once",
        f"""SELECT e.organization_id, e.resource_id, e.type || ' was published ' || count(*) || ' times'
             FROM events e WHERE [e] AND e.type IN {_ONCE} AND e.resource_id IS NOT NULL
            GROUP BY e.organization_id, e.resource_id, e.type HAVING count(*) > 1""",
    ),
    # Two look-ups for each customer. An imported customer or gift card has no event; a customer created by a booking
    # has the booking's created_at.
    Check(
        "a customer created by a booking has a customer.created event",
        f"""SELECT u.organization_id, u.id, 'there is no customer.created event' FROM customers u
             JOIN {_FEED_START} k ON k.organization_id = u.organization_id
            WHERE [u] AND {_must_be_in_feed("u.created_at")}
              AND EXISTS (SELECT 1 FROM bookings b
                           WHERE b.organization_id = u.organization_id AND b.created_at = u.created_at
                             AND b.customer_id = u.id)
              AND NOT EXISTS (SELECT 1 FROM events e
                               WHERE e.organization_id = u.organization_id AND e.resource_id = u.id
                                 AND e.type = 'customer.created')""",
    ),
    # One pass over the ledger and the redemption events.
    Check(
        "each redemption of a gift card has one event",
        f"""SELECT g.organization_id, g.id, coalesce(n.taken, 0) || ' redemptions, '
                  || coalesce(t.published, 0) || ' events'
             FROM gift_cards g
             JOIN {_FEED_START} k ON k.organization_id = g.organization_id
             LEFT JOIN (SELECT n.organization_id, n.gift_card_id, count(*) AS taken
                          FROM gift_card_entries n JOIN {_FEED_START} k ON k.organization_id = n.organization_id
                         WHERE [n] AND n.kind = 'redeem' AND {_must_be_in_feed("n.created_at")}
                         GROUP BY n.organization_id, n.gift_card_id) n
               ON n.organization_id = g.organization_id AND n.gift_card_id = g.id
             LEFT JOIN (SELECT e.organization_id, e.resource_id, count(*) AS published FROM events e
                         WHERE [e] AND e.type = 'gift_card.redeemed' GROUP BY e.organization_id, e.resource_id) t
               ON t.organization_id = g.organization_id AND t.resource_id = g.id
            WHERE [g] AND (coalesce(t.published, 0) < coalesce(n.taken, 0)
                           OR (k.lowest = 1 AND coalesce(t.published, 0) > coalesce(n.taken, 0)))""",
    ),
    # A look-up for each event about a booking or a customer.
    Check(
        "an event refers to an existing booking or customer",
        """SELECT e.organization_id, e.id, e.type || ' is about ' || coalesce('' || e.resource_id, 'nothing')
             FROM events e
            WHERE [e] AND ((e.resource_type = 'booking'
                            AND NOT EXISTS (SELECT 1 FROM bookings b
                                             WHERE b.organization_id = e.organization_id AND b.id = e.resource_id))
                       OR (e.resource_type = 'customer'
                            AND NOT EXISTS (SELECT 1 FROM customers u
                                             WHERE u.organization_id = e.organization_id AND u.id = e.resource_id)))""",
    ),
    # Every body is read, which takes as long as all other checks together, with a look-up of its booking and of the
    # booking's other events for each.
    RowScan(
        "an event's body agrees with its row, and contains no secret",
        """SELECT e.sequence, e.id, e.id, e.sequence, e.type, e.resource_type, e.resource_id, e.created_at, g.id,
                  e.body, CASE WHEN b.id IS NOT NULL THEN
                  (SELECT max(l.sequence) FROM events l
                    WHERE l.organization_id = e.organization_id AND l.resource_id = e.resource_id) END,
                  b.booking_number, b.status, b.cancel_reason, b.source, b.departure_id, b.experience_id, b.guest_name,
                  b.guest_email, b.guest_phone, b.currency, b.subtotal_minor, b.discount_minor, b.gift_card_minor,
                  b.total_minor, b.payment_method, b.payment_source
             FROM events e
             LEFT JOIN gift_cards g ON g.organization_id = e.organization_id AND g.id = e.resource_id
              AND e.resource_type = 'gift_card'
             LEFT JOIN bookings b ON b.organization_id = e.organization_id AND b.id = e.resource_id
              AND e.resource_type = 'booking'
            WHERE e.organization_id = :organization_id""",
        "e.sequence",
        validate_event,
    ),
)

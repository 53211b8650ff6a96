"""Every corruption of the rows is found, with no finding except those that it causes."""

from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import text
from support.world import SECRET

from booking_core.base.clock import END_OF_TIME
from booking_core.base.tokens import SecretKeys
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.upkeep import doctor
from booking_core.upkeep.doctor import announcements

EXACT = doctor.CheckOptions(skew_s=0, overdue_s=100 * 86_400, openers=doctor.openers(SecretKeys(SECRET)))
MISSING_ID = "'00000000-0000-4000-8000-000000000000'"

SEATS = "seats taken are the seats of pending and confirmed bookings"
CEILING = "no departure is sold beyond its highest capacity"
HOLD = "a hold has seats, and ends after it began"
BOOKED_HOLD = "a hold that was booked has ended, and its booking exists and took no other"
OVERBOOKED = "live holds keep no more seats than were left for them"
NUMBERS = "booking numbers are 1 to n without a gap, and n is the counter"
COUNTERS = "every organization has its counters"
NUMBER_ORDER = "booking numbers follow the order of the booking.created events"
TOTALS = "totals add up"
LINES = "a subtotal is the sum of its lines, in one currency"
EXPERIENCE = "a booking has the experience of its departure"
STATUS = "a booking's status agrees with its timestamps"
CHANGED = "a booking is last changed no earlier than it is created, confirmed and cancelled"
UPDATED = "no row is changed before it is created"
ABANDONED = "a pending booking expires when its time to pay ends"
BALANCE = "a gift card's balance is its face value and its ledger"
TAKEN = "the amount taken from a gift card is the amount on the booking"
LEDGER = "a booking paid by a gift card has an entry in the card's ledger"
RESTORED = "a gift card is restored once, when the booking is cancelled"
PAYMENT = "a card booking has one payment of its total, and no other booking has any"
PAYMENT_STATUS = "a booking's payment status agrees with its payment"
REFUND = "a refund belongs to a cancelled booking that was paid here, and is no more than was paid"
RECORDED = "payments recorded by staff add up to the amounts of the payment and the booking"
BY_HAND = "a refund settled by hand has an amount, a time and a note"
RELEASED = "a payment has released at least what was refunded for guests who left"
REFUNDED = "a payment's refunded amount agrees with its refund"
REFUND_DUE = "a refund is sent when it is due"
DENSE = "event sequences are dense up to the counter"
PURGED = "no event is purged before its retention ends"
LIFE_EVENTS = "a booking has one event each for its creation, confirmation and cancellation"
EVENT_ORDER = "a booking's created event is its first, and its cancelled event its last"
ONCE = "an event that can happen only once is published once"
CREATED = "a customer created by a booking has a customer.created event"
REDEEMED = "each redemption of a gift card has one event"
RESTORED_EVENT = "each restoration of a gift card has one event"
REFUNDED_EVENT = "each refund that returned money has one event"
ABOUT = "an event refers to an existing booking or customer"
BODY = "an event's body agrees with its row, and contains no secret"
ONE_DELIVERY = "an event has at most one delivery for each endpoint"
A_DELIVERY = "an event has a delivery for each endpoint that subscribes to its type"
SUBSCRIBED = "an endpoint receives only events that it subscribes to, and none about itself"
PING = "a ping goes to one endpoint, and only pings are sent as tests"
OF_EVENT = "a delivery agrees with its event"
DELIVERY = "a delivery's status agrees with its other columns"
ATTEMPTS = "a delivery's attempt count is the number of its attempts, and within the limit"
SUCCEEDED = "a delivery that succeeded has an attempt that was answered with 2xx"
FIRST = "first attempts for one resource are made in the order of its events"
DISABLED = "no delivery is queued for a disabled endpoint"
ENDPOINT = "an endpoint's status agrees with its other columns"
AUTO_DISABLED = "an endpoint is disabled automatically only after enough failures over enough time"
ENDPOINT_LIMIT = "an organization has at most 10 endpoints"
ONE_SECRET = "an endpoint has one current secret, and a deleted endpoint has none"
DUE = "a delivery is sent when it is due, and an expired lease is rescued"
UNRECORDED = "the result of every delivery can be recorded"
NEVER_BOTH = "a delivery has a row, or is still an event of the log, and never both"
PLACE = "an endpoint has its place in the log, and misses what occurs while it is disabled"
MARKED = "an organization with events to be delivered is marked"
KEYS = "an organization has at most 20 active keys"
SCOPES = "the scopes of an API key exist"
MIXED = "the keys of a sandbox are test keys, those of a live organization are not"
ANSWERS = "every API booking has the stored response of its idempotency key"
ANSWERED_ONCE = "an idempotency key has one stored response"
EMAIL = "an e-mail address belongs to one customer"
IDENTITY = "a customer's key is the normalised e-mail address"
TRANSLATIONS = "the translations of an experience can be read"
REFERS = "no row refers to a missing row of its organization"
EFFECT = "an outbox row exists once, and its status agrees with its timestamps"
DONE = "an outbox row that is done has its mail, or the reason why there is none"
MAIL = "a mail is written once, under one Message-ID, and its status agrees with its timestamps"
GUEST_MAILS = "a booking has outbox rows for the mails to its guest, unless they were suppressed"
PLAIN_TEXT = "no secret is stored in plain text"
PROCESSED = "outbox rows and mails are processed when they are due"
STAFF_MAILS = "a booking has outbox rows for the mails to staff where these are enabled"
SEATED = "a booking takes the seats of its guests"
BOOKED = "the creation of a booking is in the timeline of its customer"
GUEST = "a booking's customer has the e-mail address of its guest"
ERASING = "the data of an anonymized customer is replaced by the worker"
ERASED = "a booking of an anonymized customer has no personal data"
ERASURE = "an anonymized customer has an erasure"
PAYMENT_METHOD = "a booking's payment status is one that its method allows"
INTENT = "a payment intent pays for one booking"
INTENT_STATE = "a payment intent agrees with the payment of its booking"
OWN_INTENT = "a payment intent pays for its own booking"
INTENT_CHECK = "a payment is looked up at Stripe when it is due"
TIMELINE_MONEY = "payments and refunds in the timeline exist"
POLICY = "a paid booking that was cancelled has the refund that the policy requires"
TIME_LIMIT = "no timestamp is further in the future than its limit"
OPENS = "every sealed value opens with a live secret key"
CLOCK = "the database's clock agrees with the retention clock"


ATTENDANCE = "a booking that is checked in or a no-show was confirmed, and is not both"


@dataclass(frozen=True)
class Corruption:
    """A statement that corrupts rows, the invariant that it breaks, and others that may break with it."""

    invariant: str
    sql: str
    also: frozenset[str] = frozenset()


def corrupt(invariant: str, *sqls: str, also: tuple[str, ...] = ()) -> list[Corruption]:
    return [Corruption(invariant, " ".join(sql.split()), frozenset(also)) for sql in sqls]


def booking(number: int) -> str:
    """Return SQL for the id of a booking.

    1 was created by the API, paid by hand, cancelled and refunded by hand; 2 is confirmed; 3 is confirmed and partly
    paid by hand; 4 is pending; 5 is paid by card and gift card; 6 too, then cancelled and refunded.
    """
    return f"(SELECT id FROM bookings WHERE booking_number = {number})"


def erasures_of(at: int, *, finished_at: int | None = None) -> str:
    """Return SQL for an erasure of each customer."""
    finished = "CAST(NULL AS bigint)" if finished_at is None else finished_at
    return f"SELECT organization_id, id, {at}, '[]', 'bookings', '[]', {at}, {finished} FROM customers"


def event(kind: str, number: int) -> str:
    return f"type = 'booking.{kind}' AND resource_id = {booking(number)}"


BOOKINGS = (
    *corrupt(
        ATTENDANCE,
        "UPDATE bookings SET checked_in_at = updated_at, no_show_at = updated_at WHERE booking_number = 2",
        "UPDATE bookings SET checked_in_at = updated_at WHERE booking_number = 4",
        "UPDATE bookings SET no_show_at = updated_at WHERE booking_number = 4",
        "UPDATE bookings SET checked_in_at = updated_at + 1 WHERE booking_number = 2",
        "UPDATE bookings SET no_show_at = confirmed_at - 1 WHERE booking_number = 3",
    ),
    *corrupt(
        SEATS,
        "UPDATE departures SET seats_taken = seats_taken + 1",
        "UPDATE bookings SET seats = seats + 1 WHERE status = 'pending'",
        "UPDATE bookings SET seats = seats + 1 WHERE booking_number = 2",
        also=(SEATED,),
    ),
    *corrupt(
        CEILING,
        "UPDATE departures SET seats_ceiling = seats_taken - 1, seats_total = seats_taken - 1",
        "UPDATE departures SET seats_ceiling = seats_total - 1",
    ),
    *corrupt(CEILING, "UPDATE departures SET seats_taken = -1", also=(SEATS,)),
    *corrupt(
        HOLD,
        "UPDATE holds SET seats = 0",
        "UPDATE holds SET expires_at = created_at - 1",
        "UPDATE holds SET ended_at = created_at - 1",
    ),
    *corrupt(
        BOOKED_HOLD,
        f"UPDATE holds SET booking_id = {booking(2)}",
        f"UPDATE holds SET ended_at = created_at, booking_id = {MISSING_ID}",
        f"""INSERT INTO holds (organization_id, id, departure_id, seats, expires_at, ended_at, booking_id, created_at)
            SELECT h.organization_id, b.id, h.departure_id, 1, h.expires_at, h.created_at, {booking(2)}, h.created_at
              FROM holds h JOIN bookings b ON b.organization_id = h.organization_id AND b.booking_number IN (2, 3)""",
    ),
    *corrupt(OVERBOOKED, "UPDATE holds SET seats = 100000, created_at = expires_at"),
    *corrupt(
        NUMBERS,
        "UPDATE bookings SET booking_number = 8 WHERE booking_number = 7",
        "UPDATE counters SET last_booking_number = last_booking_number + 1",
        "UPDATE counters SET last_booking_number = last_booking_number - 1",
        also=(BODY,),
    ),
    *corrupt(NUMBERS, "UPDATE bookings SET booking_number = 4 WHERE booking_number = 5", also=(NUMBER_ORDER, BODY)),
    *corrupt(COUNTERS, "DELETE FROM counters"),
    *corrupt(
        NUMBER_ORDER,
        "UPDATE bookings SET booking_number = 5 - booking_number WHERE booking_number IN (2, 3)",
        also=(BODY,),
    ),
    *corrupt(
        TOTALS,
        "UPDATE bookings SET total_minor = total_minor + 1 WHERE booking_number = 2",
        "UPDATE bookings SET total_minor = -1, discount_minor = subtotal_minor + 1 WHERE booking_number = 2",
        also=(BODY,),
    ),
    *corrupt(
        LINES,
        "UPDATE bookings SET subtotal_minor = subtotal_minor + 1, total_minor = total_minor + 1"
        " WHERE booking_number = 2",
        "UPDATE bookings SET currency = 'EUR' WHERE booking_number = 2",
        "UPDATE bookings SET guests = '[]' WHERE booking_number = 2",
        "UPDATE bookings SET guests = 'none' WHERE booking_number = 2",
        "UPDATE bookings SET add_ons = guests WHERE booking_number = 2",
        also=(BODY, SEATED),
    ),
    *corrupt(EXPERIENCE, "UPDATE bookings SET experience_id = departure_id WHERE booking_number = 2", also=(BODY,)),
    *corrupt(
        EXPERIENCE, "UPDATE bookings SET departure_id = experience_id WHERE booking_number = 2", also=(SEATS, BODY)
    ),
    *corrupt(
        STATUS,
        "UPDATE bookings SET expires_at = NULL WHERE status = 'pending'",
        "UPDATE bookings SET source = NULL WHERE booking_number = 4",
        "UPDATE bookings SET source = 'unknown' WHERE booking_number = 4",
        "UPDATE bookings SET cancel_reason = 'api' WHERE booking_number = 2",
        also=(BODY,),
    ),
    *corrupt(STATUS, "UPDATE bookings SET confirmed_at = NULL WHERE booking_number = 2", also=(LIFE_EVENTS,)),
    *corrupt(STATUS, "UPDATE bookings SET status = 'cancelled' WHERE booking_number = 2", also=(SEATS, BODY)),
    *corrupt(
        STATUS,
        "UPDATE bookings SET cancel_reason = NULL WHERE booking_number = 1",
        "UPDATE bookings SET cancel_reason = 'whim' WHERE booking_number = 1",
        "UPDATE bookings SET cancel_reason = 'abandoned' WHERE booking_number = 6",
        also=(BODY,),
    ),
    *corrupt(
        CHANGED,
        "UPDATE bookings SET updated_at = created_at - 1 WHERE booking_number = 2",
        "UPDATE bookings SET cancelled_at = confirmed_at - 1 WHERE booking_number = 6",
        "UPDATE bookings SET updated_at = cancelled_at - 1 WHERE booking_number = 6",
        "UPDATE bookings SET confirmed_at = created_at - 1 WHERE booking_number = 5",
    ),
    *corrupt(
        UPDATED,
        *(
            f"UPDATE {table} SET updated_at = created_at - 1"
            for table in ("experiences", "departures", "customers", "gift_cards", "payments", "refunds", "deliveries")
        ),
        "UPDATE webhook_endpoints SET updated_at = created_at - 1 WHERE status = 'auto_disabled'",
    ),
    *corrupt(ABANDONED, "UPDATE bookings SET expires_at = 1 WHERE status = 'pending'"),
)

AMOUNTS = (
    *corrupt(BALANCE, "UPDATE gift_cards SET balance_minor = balance_minor - 1"),
    *corrupt(BALANCE, "UPDATE gift_card_entries SET amount_minor = amount_minor - 1", also=(TAKEN, RESTORED)),
    *corrupt(
        TAKEN,
        f"UPDATE bookings SET gift_card_minor = gift_card_minor + 1, discount_minor = -1 WHERE id = {booking(5)}",
        also=(TOTALS, BODY),
    ),
    *corrupt(TAKEN, "UPDATE gift_cards SET currency = 'EUR'"),
    *corrupt(LEDGER, f"DELETE FROM gift_card_entries WHERE booking_id = {booking(5)}", also=(BALANCE, REDEEMED)),
    *corrupt(
        RESTORED,
        "DELETE FROM gift_card_entries WHERE kind = 'restore'",
        "INSERT INTO gift_card_entries SELECT * FROM gift_card_entries WHERE kind = 'restore'",
        also=(BALANCE,),
    ),
    *corrupt(
        RESTORED,
        f"UPDATE gift_card_entries SET booking_id = {booking(5)} WHERE kind = 'restore'",
        f"UPDATE gift_card_entries SET booking_id = {booking(2)} WHERE kind = 'restore'",
    ),
    *corrupt(
        PAYMENT,
        f"UPDATE payments SET amount_minor = amount_minor + 1 WHERE booking_id = {booking(5)}",
        f"UPDATE payments SET currency = 'EUR' WHERE booking_id = {booking(5)}",
        f"DELETE FROM payments WHERE booking_id = {booking(4)}",
        f"INSERT INTO payments SELECT * FROM payments WHERE booking_id = {booking(4)}",
    ),
    *corrupt(PAYMENT, f"DELETE FROM payment_records WHERE booking_id = {booking(3)}", also=(RECORDED,)),
    *corrupt(
        PAYMENT,
        "UPDATE bookings SET payment_method = 'external_paid' WHERE booking_number = 3",
        also=(BODY, PAYMENT_METHOD),
    ),
    *corrupt(
        RECORDED,
        "UPDATE bookings SET recorded_minor = recorded_minor + 1 WHERE booking_number = 3",
        "UPDATE payment_records SET amount_minor = amount_minor + 1 WHERE amount_minor = 500",
        "UPDATE payment_records SET voided_at = NULL",
        "UPDATE payment_records SET currency = 'EUR' WHERE amount_minor = 500",
        f"UPDATE payments SET amount_minor = amount_minor + 1 WHERE booking_id = {booking(3)}",
    ),
    *corrupt(
        BY_HAND,
        "UPDATE refunds SET settled_note = NULL WHERE status = 'settled'",
        "UPDATE refunds SET settled_at = NULL WHERE status = 'settled'",
        "UPDATE refunds SET settled_at = 1 WHERE status = 'succeeded'",
        "UPDATE refunds SET settled_at = created_at - 1 WHERE status = 'settled'",
    ),
    *corrupt(
        BY_HAND, "UPDATE refunds SET settled_minor = NULL WHERE status = 'settled'", also=(REFUNDED, REFUNDED_EVENT)
    ),
    *corrupt(
        REFUNDED,
        "UPDATE refunds SET status = 'failed' WHERE status = 'settled'",
        "UPDATE refunds SET settled_minor = 1 WHERE status = 'settled'",
        "UPDATE refunds SET settled_minor = NULL, settled_at = NULL, status = 'needs_review' WHERE status = 'settled'",
        also=(BY_HAND, REFUNDED_EVENT),
    ),
    *corrupt(
        PAYMENT,
        "UPDATE bookings SET payment_source = 'external' WHERE booking_number = 5",
        also=(PAYMENT_METHOD, BODY, RECORDED),
    ),
    *corrupt(
        PAYMENT_STATUS,
        f"UPDATE payments SET status = 'paid' WHERE booking_id = {booking(3)}",
        "UPDATE bookings SET payment_status = 'paid' WHERE booking_number = 3",
        "UPDATE bookings SET payment_status = 'unpaid' WHERE booking_number = 5",
        "UPDATE payments SET status = 'refunded' WHERE refunded_minor > 0",
        also=(TIMELINE_MONEY, PAYMENT_METHOD),
    ),
    *corrupt(REFUND, "UPDATE refunds SET currency = 'EUR'"),
    *corrupt(
        REFUND,
        "UPDATE refunds SET amount_minor = amount_minor + 100000",
        "UPDATE refunds SET amount_minor = 0",
        f"UPDATE refunds SET booking_id = {booking(5)} WHERE status = 'succeeded'",
        also=(REFUNDED, TIMELINE_MONEY, POLICY),
    ),
    *corrupt(REFUND, "INSERT INTO refunds SELECT * FROM refunds"),
    *corrupt(
        REFUNDED,
        "UPDATE payments SET refunded_minor = refunded_minor + 1 WHERE status = 'partially_refunded'",
        "UPDATE refunds SET status = 'failed' WHERE status = 'succeeded'",
        "UPDATE refunds SET provider_refund_id = NULL",
    ),
    *corrupt(RELEASED, f"UPDATE payments SET released_minor = -1 WHERE booking_id = {booking(5)}"),
    *corrupt(RELEASED, "UPDATE refunds SET number = 1 WHERE status = 'succeeded'", also=(REFUND, REFUNDED, POLICY)),
    *corrupt(TAKEN, "UPDATE gift_card_entries SET number = 1 WHERE kind = 'restore'", also=(RESTORED,)),
    *corrupt(
        REFUND_DUE,
        "UPDATE refunds SET status = 'requested', next_attempt_at = 1 WHERE status = 'succeeded'",
        "UPDATE refunds SET status = 'sending', next_attempt_at = NULL WHERE status = 'succeeded'",
        "UPDATE refunds SET status = 'sending', lease_until = 1 WHERE status = 'succeeded'",
        also=(REFUNDED,),
    ),
)

EVENTS = (
    *corrupt(DENSE, "UPDATE counters SET last_event_sequence = last_event_sequence - 1", also=(PLACE,)),
    *corrupt(DENSE, "DELETE FROM events WHERE type = 'customer.updated'", also=(OF_EVENT,)),
    *corrupt(PURGED, "DELETE FROM events WHERE sequence < 4", also=(CREATED, OF_EVENT)),
    *corrupt(
        LIFE_EVENTS,
        f"DELETE FROM events WHERE {event('created', 2)}",
        f"DELETE FROM events WHERE {event('confirmed', 2)}",
        f"DELETE FROM events WHERE {event('cancelled', 6)}",
        also=(DENSE, OF_EVENT, BODY),
    ),
    *corrupt(LIFE_EVENTS, f"UPDATE events SET occurrence = 9 WHERE {event('confirmed', 2)}"),
    *corrupt(
        LIFE_EVENTS,
        "UPDATE bookings SET status = 'confirmed', cancelled_at = NULL, cancel_reason = NULL WHERE booking_number = 1",
        also=(SEATS, BODY, REFUND, PAYMENT_METHOD),
    ),
    *corrupt(
        EVENT_ORDER,
        """UPDATE events SET type = CASE type WHEN 'booking.created' THEN 'booking.confirmed'
                                              ELSE 'booking.created' END
            WHERE type IN ('booking.created', 'booking.confirmed')""",
        also=(LIFE_EVENTS, BODY, OF_EVENT, NUMBER_ORDER, A_DELIVERY),
    ),
    *corrupt(
        EVENT_ORDER,
        f"UPDATE events SET sequence = sequence + 1000 WHERE {event('confirmed', 6)}",
        f"UPDATE events SET type = 'booking.rescheduled', sequence = 0 WHERE {event('confirmed', 2)}",
        also=(LIFE_EVENTS, BODY, DENSE, GUEST_MAILS, STAFF_MAILS),
    ),
    *corrupt(ONCE, f"INSERT INTO events SELECT * FROM events WHERE {event('confirmed', 2)}", also=(DENSE,)),
    *corrupt(
        CREATED,
        """DELETE FROM events WHERE type = 'customer.created'
               AND resource_id = (SELECT customer_id FROM bookings WHERE booking_number = 5)""",
        also=(DENSE, OF_EVENT),
    ),
    *corrupt(REDEEMED, "DELETE FROM events WHERE type = 'gift_card.redeemed'", also=(DENSE,)),
    *corrupt(REFUNDED_EVENT, "DELETE FROM events WHERE type = 'booking.refunded'", also=(DENSE,)),
    *corrupt(
        RESTORED_EVENT,
        "UPDATE timeline SET kind = 'gift_card_restored', data = '{\"balance_minor\":1}'"
        " WHERE kind = 'payment_received'",
    ),
    *corrupt(
        ABOUT, f"UPDATE events SET resource_id = {MISSING_ID} WHERE {event('confirmed', 2)}", also=(LIFE_EVENTS, BODY)
    ),
    *corrupt(
        ABOUT,
        f"UPDATE events SET resource_id = {MISSING_ID} WHERE type = 'customer.created'",
        also=(CREATED, BODY, OF_EVENT, ONCE),
    ),
    *corrupt(
        BODY,
        *(
            f"UPDATE events SET body = replace(body, '{old}', '{new}') WHERE type = '{kind}'"
            for kind, old, new in (
                ("booking.confirmed", '"manage_url":null', '"manage_url":"https"'),
                ("booking.confirmed", '"type":"booking.confirmed"', '"type":"booking.created"'),
                ("booking.confirmed", '"sequence":', '"sequence":1'),
                ("booking.confirmed", '"status":"confirmed"', '"status":"pending"'),
                ("booking.cancelled", '"reason":"admin"', '"reason":"api"'),
                ("gift_card.issued", '"object":{', '"object":{"code":"SUMMER",'),
                ("gift_card.issued", '"object":{"id": "', '"object":{"id":"x'),
                ("customer.created", '"api_version":"', '"api_version":"","x":"'),
                ("booking.updated", '"changes":{"', '"changes":{"colour":1,"'),
                ("booking.updated", '"changes":{"', '"changes":{"manage_url":"https","'),
            )
        ),
        "UPDATE events SET body = 'none' WHERE type = 'booking.confirmed'",
        "UPDATE events SET body = '{\"data\":{\"object\":[]}}' WHERE type = 'booking.confirmed'",
        *(
            f"UPDATE events SET body = replace(body, '{old}', '{new}') WHERE type LIKE 'booking.%'"
            for old, new in (
                ('"booking_number":', '"booking_number":1'),
                ('"source":"api"', '"source":"admin"'),
                ('"total":{"amount_minor":', '"total":{"amount_minor":1'),
                ('"subtotal":{"amount_minor":', '"subtotal":{"amount_minor":1'),
                ('"currency":"NOK"}},"payment"', '"currency":"EUR"}},"payment"'),
                ('"customer":{"name":"', '"customer":{"name":"x'),
                ('"email":"', '"email":"x'),
                ('"method":"card"', '"method":"invoice"'),
            )
        ),
        *(
            f"UPDATE events SET body = replace(body, '{old}', '{new}') WHERE {event('confirmed', number)}"
            for number, old, new in (
                (2, '"departure":{"id":"', '"departure":{"id":"x'),
                (3, '"experience":{"id":"', '"experience":{"id":"x'),
            )
        ),
        f'UPDATE events SET body = replace(body, \'"status":"pending"\', \'"status":"paused"\')'
        f" WHERE {event('created', 4)}",
        "UPDATE events SET created_at = created_at + 1000000 WHERE type = 'booking.confirmed'",
        f"UPDATE events SET id = {MISSING_ID} WHERE {event('confirmed', 2)}",
    ),
)


def lease_of(attempts: str, until: str, lost_leases: int = 0) -> str:
    """Return a statement that inserts a lease of first attempts for each endpoint that is enabled."""
    columns = "organization_id, endpoint_id, id, token, lease_until, lost_leases, claimed_at, generation"
    return f"""INSERT INTO webhook_leases ({columns}, first_sequence, last_sequence, attempts)
               SELECT e.organization_id, e.id, e.id, 'held', {until}, {lost_leases}, 1, 0, 1, 1, {attempts}
                 FROM webhook_endpoints e WHERE e.status = 'enabled'"""


SUCCEEDED_EVENT = "(SELECT CAST(min(CAST(event_id AS text)) AS text) FROM deliveries WHERE status = 'succeeded')"
SOON = "(SELECT max(created_at) FROM events)"
LATER = "(SELECT max(event_sequence) FROM deliveries WHERE event_type = 'customer.updated')"

DELIVERIES = (
    *corrupt(
        ONE_DELIVERY,
        "INSERT INTO deliveries SELECT * FROM deliveries WHERE status = 'queued' AND event_type = 'booking.cancelled'",
    ),
    *corrupt(A_DELIVERY, "DELETE FROM deliveries WHERE event_type = 'booking.cancelled'"),
    *corrupt(NEVER_BOTH, "UPDATE webhook_cursors SET served_sequence = 0", also=(MARKED,)),
    *corrupt(
        NEVER_BOTH,
        """INSERT INTO webhook_ranges
                  (organization_id, endpoint_id, event_type, from_sequence, until_sequence, missed_at)
           SELECT d.organization_id, d.endpoint_id, d.event_type, d.event_sequence - 1, d.event_sequence, 1
             FROM deliveries d WHERE d.status = 'succeeded'""",
        lease_of(SUCCEEDED_EVENT, SOON),
    ),
    *corrupt(
        PLACE,
        "UPDATE webhook_cursors SET served_sequence = 1000000",
        """INSERT INTO webhook_ranges (organization_id, endpoint_id, event_type, from_sequence, missed_at)
           SELECT e.organization_id, e.id, 'ping', 1, 1 FROM webhook_endpoints e WHERE e.status = 'enabled'""",
        "DELETE FROM webhook_cursors",
        "DELETE FROM webhook_ranges",
    ),
    *corrupt(
        MARKED,
        "UPDATE counters SET has_webhooks = false",
        "UPDATE counters SET has_undelivered = false, last_event_sequence = last_event_sequence + 1",
        also=(DENSE,),
    ),
    *corrupt(SUBSCRIBED, "DELETE FROM webhook_subscriptions WHERE event_type = 'booking.cancelled'"),
    *corrupt(
        SUBSCRIBED,
        "UPDATE deliveries SET resource_id = endpoint_id WHERE event_type = 'booking.cancelled'",
        also=(OF_EVENT,),
    ),
    *corrupt(
        SUBSCRIBED,
        """UPDATE webhook_endpoints SET deleted_at = created_at, status = 'disabled', disabled_at = created_at,
                  disabled_reason = 'manual' WHERE status = 'enabled'""",
        also=(DISABLED, ONE_SECRET),
    ),
    *corrupt(PING, """UPDATE deliveries SET "trigger" = 'test' WHERE event_type = 'booking.cancelled'"""),
    *corrupt(PING, f"UPDATE events SET type = 'ping' WHERE {event('confirmed', 2)}", also=(LIFE_EVENTS, BODY)),
    *corrupt(
        OF_EVENT,
        "UPDATE deliveries SET event_sequence = event_sequence + 100 WHERE event_type = 'booking.cancelled'",
        also=(A_DELIVERY, NEVER_BOTH),
    ),
    *corrupt(OF_EVENT, "UPDATE deliveries SET resource_id = NULL WHERE event_type = 'booking.cancelled'"),
    *corrupt(
        OF_EVENT,
        "UPDATE deliveries SET event_type = 'booking.created' WHERE event_type = 'booking.cancelled'",
        also=(A_DELIVERY,),
    ),
    *corrupt(
        OF_EVENT,
        f"UPDATE deliveries SET event_id = {MISSING_ID} WHERE event_type = 'booking.cancelled'",
        also=(ONE_DELIVERY, A_DELIVERY),
    ),
    *corrupt(
        DELIVERY,
        "UPDATE deliveries SET completed_at = NULL WHERE status = 'dead'",
        "UPDATE deliveries SET next_attempt_at = 1 WHERE status = 'succeeded'",
        "UPDATE deliveries SET next_attempt_at = NULL WHERE status = 'queued'",
        "UPDATE deliveries SET failure_reason = NULL WHERE status = 'failed'",
        "UPDATE deliveries SET failure_reason = 'endpoint_deleted' WHERE status = 'dead'",
        "UPDATE deliveries SET failure_reason = 'endpoint_deleted' WHERE status = 'succeeded'",
        "UPDATE deliveries SET lease_token = 'held' WHERE status = 'queued'",
        "UPDATE deliveries SET status = 'lost' WHERE status = 'failed'",
    ),
    *corrupt(
        ATTEMPTS,
        "UPDATE deliveries SET attempt_count = 7 WHERE status = 'dead'",
        "UPDATE deliveries SET max_attempts = 7 WHERE status = 'dead'",
        "UPDATE deliveries SET max_attempts = 5 WHERE event_type = 'booking.cancelled'",
        "DELETE FROM attempts WHERE error = 'http_status'",
        "UPDATE attempts SET number = 9 WHERE number = 6",
        "UPDATE deliveries SET attempt_count = 1 WHERE event_type = 'booking.cancelled'",
    ),
    *corrupt(
        SUCCEEDED,
        "UPDATE attempts SET response_status = 302 WHERE error IS NULL",
        "UPDATE attempts SET error = 'timeout' WHERE error IS NULL",
        "UPDATE attempts SET duration_ms = NULL WHERE error IS NULL",
    ),
    *corrupt(
        FIRST,
        f"""UPDATE attempts SET started_at = 1
             WHERE number = 1 AND delivery_id IN (SELECT id FROM deliveries WHERE event_sequence = {LATER})""",
    ),
    *corrupt(
        DISABLED,
        """UPDATE deliveries SET status = 'queued', completed_at = NULL, failure_reason = NULL,
                  next_attempt_at = created_at, generation = 1 WHERE status = 'failed'""",
    ),
    *corrupt(
        ENDPOINT,
        "UPDATE webhook_endpoints SET disabled_reason = 'manual' WHERE status = 'auto_disabled'",
        "UPDATE webhook_endpoints SET disabled_at = 1 WHERE status = 'enabled'",
        "UPDATE webhook_endpoints SET consecutive_failures = -1 WHERE status = 'enabled'",
        "UPDATE webhook_endpoints SET status = 'paused' WHERE status = 'auto_disabled'",
        "DELETE FROM webhook_subscriptions WHERE event_type = 'customer.updated'",
    ),
    *corrupt(
        AUTO_DISABLED,
        "UPDATE webhook_endpoints SET consecutive_failures = 5 WHERE status = 'auto_disabled'",
        "UPDATE webhook_endpoints SET enabled_at = disabled_at - 1 WHERE status = 'auto_disabled'",
        "UPDATE webhook_endpoints SET last_success_at = disabled_at - 1 WHERE status = 'auto_disabled'",
    ),
    *corrupt(
        ENDPOINT_LIMIT,
        """INSERT INTO webhook_endpoints
           SELECT e.* FROM webhook_endpoints e, (SELECT 1 FROM events LIMIT 9) n WHERE e.status = 'enabled'""",
        also=(ONE_SECRET,),
    ),
    *corrupt(ONE_SECRET, "DELETE FROM webhook_secrets", "UPDATE webhook_secrets SET expires_at = 1"),
    *corrupt(
        DUE,
        "UPDATE deliveries SET next_attempt_at = 1 WHERE status = 'queued'",
        "UPDATE deliveries SET lease_until = 1, lease_token = 'held' WHERE status = 'queued'",
        lease_of("'[]'", "1"),
    ),
    *corrupt(
        UNRECORDED,
        """UPDATE deliveries SET lease_until = next_attempt_at + 1, lease_token = 'held', lost_leases = 3
            WHERE status = 'queued'""",
        lease_of("'[]'", SOON, lost_leases=3),
    ),
)

RECORDS = (
    *corrupt(KEYS, "UPDATE api_keys SET revoked_at = NULL"),
    *corrupt(
        SCOPES,
        """UPDATE api_keys SET scopes = '["bookings:read", "bookings:erase"]'""",
        """UPDATE api_keys SET scopes = '{"bookings:read": 1}'""",
        """UPDATE api_keys SET scopes = '[["bookings:read"]]'""",
        """UPDATE api_keys SET scopes = '["bookings'""",
    ),
    *corrupt(
        MIXED,
        "UPDATE api_keys SET prefix = 'svc_test_3kPz9QwX'",
        "UPDATE organizations SET clock_offset = 0",
        "UPDATE organizations SET clock_offset = -1",
    ),
    *corrupt(ANSWERS, "DELETE FROM idempotency WHERE key = 'healthy-1'", "DELETE FROM idempotency"),
    *corrupt(ANSWERS, "UPDATE idempotency SET created_at = created_at + 1 WHERE key = 'healthy-1'"),
    *corrupt(ANSWERED_ONCE, "INSERT INTO idempotency SELECT * FROM idempotency"),
    *corrupt(EMAIL, "INSERT INTO customers SELECT * FROM customers"),
    *corrupt(EMAIL, "UPDATE customers SET email_key = 'one@example.com'", also=(IDENTITY, GUEST)),
    *corrupt(
        TRANSLATIONS,
        """UPDATE experiences SET translations = '["de"]'""",
        """UPDATE experiences SET translations = '{"de": "Kajak"}'""",
        """UPDATE experiences SET translations = '{"de": {"price_tiers": ["Erwachsene"]}}'""",
        """UPDATE experiences SET translations = '{"de": {"title"'""",
    ),
    *corrupt(IDENTITY, "UPDATE customers SET email = 'another@example.com'"),
    *corrupt(
        REFERS,
        f"UPDATE timeline SET customer_id = {MISSING_ID}",
        f"UPDATE timeline SET booking_id = {MISSING_ID}",
        f"UPDATE mails SET booking_id = {MISSING_ID}",
        also=(TIMELINE_MONEY, BOOKED),
    ),
    *corrupt(REFERS, "UPDATE mails SET effect_key = 'nothing'", also=(DONE,)),
    *corrupt(DONE, "DELETE FROM mails"),
    *corrupt(REFERS, f"UPDATE deliveries SET endpoint_id = {MISSING_ID}", also=(A_DELIVERY,)),
    *corrupt(REFERS, f"UPDATE attempts SET delivery_id = {MISSING_ID}", also=(ATTEMPTS, SUCCEEDED)),
    *corrupt(
        REFERS,
        f"UPDATE effects SET subject_id = {MISSING_ID} WHERE kind = 'booking_rescheduling_mail'",
        f"UPDATE effects SET subject_id = {MISSING_ID} WHERE kind LIKE 'staff_webhook%'",
        "UPDATE effects SET kind = 'staff_key_expiring_mail' WHERE kind = 'booking_rescheduling_mail'",
        also=(EFFECT,),
    ),
    *corrupt(
        EFFECT,
        "UPDATE effects SET completed_at = 1 WHERE status = 'queued'",
        "UPDATE effects SET completed_at = NULL WHERE status = 'done'",
        "UPDATE effects SET status = 'lost' WHERE status = 'done'",
        "INSERT INTO effects SELECT * FROM effects",
        "UPDATE effects SET key = key || 'x' WHERE kind = 'staff_booking_mail'",
        also=(STAFF_MAILS,),
    ),
    *corrupt(
        MAIL,
        "UPDATE mails SET sent_at = NULL",
        "UPDATE mails SET completed_at = NULL",
        "UPDATE mails SET status = 'lost'",
        "INSERT INTO mails SELECT * FROM mails",
    ),
    *corrupt(
        GUEST_MAILS,
        "DELETE FROM effects WHERE kind = 'booking_confirmation_mail'",
        "UPDATE bookings SET send_confirmation_email = false WHERE booking_number = 2",
        "DELETE FROM effects WHERE kind = 'booking_cancellation_mail'",
    ),
    *corrupt(
        STAFF_MAILS,
        "DELETE FROM effects WHERE kind = 'staff_booking_mail'",
        "DELETE FROM effects WHERE kind = 'staff_cancellation_mail'",
    ),
    *corrupt(
        GUEST_MAILS,
        f"UPDATE events SET type = 'booking.rescheduled' WHERE {event('created', 7)}",
        also=(STAFF_MAILS, LIFE_EVENTS, BODY, OF_EVENT, A_DELIVERY),
    ),
    *corrupt(
        PLAIN_TEXT,
        "UPDATE api_keys SET key_hash = 'svc_open'",
        "UPDATE webhook_secrets SET secret_sealed = 'whsec_open'",
        "UPDATE idempotency SET body_sealed = '{}'",
        "UPDATE mails SET message = 'https://example.com/manage/open'",
        also=(OPENS,),
    ),
    *corrupt(
        PROCESSED,
        "UPDATE effects SET due_at = 1 WHERE status = 'queued'",
        "UPDATE effects SET lease_until = 1 WHERE status = 'queued'",
        "UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL, next_attempt_at = 1",
        "UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL",
    ),
    *corrupt(
        CLOCK,
        "INSERT INTO retention_clock (id, at, moved_at) VALUES (1, 0, 9000000000000000)",
        "INSERT INTO retention_clock (id, at, moved_at) VALUES (1, 9000000000000000, 9000000000000000)",
    ),
)

IN_2100 = "4102444800000000"

GUESTS = (
    *corrupt(
        SEATED,
        "UPDATE bookings SET seats = 0 WHERE booking_number = 2",
        "UPDATE bookings SET seats = 0 WHERE booking_number = 4",
        also=(SEATS,),
    ),
    *corrupt(SEATED, "UPDATE bookings SET seats = 0 WHERE booking_number = 1"),
    *corrupt(
        SEATED,
        """UPDATE experiences SET price_tiers = replace(price_tiers, '"seats_per_unit": 1', '"seats_per_unit": 2')""",
    ),
    *corrupt(GUEST, "UPDATE bookings SET guest_email = 'another@example.com' WHERE booking_number = 2", also=(BODY,)),
    *corrupt(
        GUEST,
        "UPDATE bookings SET customer_id = (SELECT customer_id FROM bookings WHERE booking_number = 2)"
        " WHERE booking_number = 5",
        also=(BOOKED,),
    ),
    *corrupt(
        BOOKED,
        f"DELETE FROM timeline WHERE booking_id = {booking(2)}",
        f"DELETE FROM timeline WHERE kind = 'booking_created' AND booking_id = {booking(4)}",
        f"UPDATE timeline SET booking_id = {booking(3)} WHERE booking_id = {booking(2)}",
    ),
    *corrupt(ERASING, f"INSERT INTO erasures {erasures_of(1)}"),
    *corrupt(ERASED, f"INSERT INTO erasures {erasures_of(1, finished_at=1)}"),
    *corrupt(ERASURE, "UPDATE customers SET anonymized_at = 1"),
)

PAYMENT_STATES = (
    *corrupt(
        PAYMENT_METHOD,
        "UPDATE bookings SET payment_status = 'refunded' WHERE booking_number = 2",
        "UPDATE bookings SET payment_status = 'pending' WHERE booking_number = 2",
        "UPDATE bookings SET payment_status = 'failed' WHERE booking_number = 1",
        "UPDATE bookings SET invoice_due = true WHERE booking_number = 2",
        "UPDATE bookings SET on_site_fee_minor = 1 WHERE booking_number = 5",
        "UPDATE bookings SET payment_status = 'maybe' WHERE booking_number = 3",
        also=(PAYMENT_STATUS,),
    ),
    *corrupt(
        PAYMENT_METHOD,
        "UPDATE bookings SET payment_method = 'external_paid', payment_source = 'on_site' WHERE booking_number = 2",
        "UPDATE bookings SET payment_method = 'external_paid', payment_source = 'external', payment_status = 'unpaid'"
        " WHERE booking_number = 2",
        "UPDATE bookings SET payment_method = 'free' WHERE booking_number = 3",
        "UPDATE bookings SET payment_method = 'barter' WHERE booking_number = 3",
        also=(BODY, PAYMENT),
    ),
    *corrupt(
        PAYMENT_METHOD,
        "UPDATE bookings SET payment_status = 'paid', recorded_minor = 0 WHERE payment_method = 'pay_on_site'",
        "UPDATE bookings SET payment_status = 'paid', invoice_due = false WHERE payment_method = 'invoice'",
        also=(PAYMENT_STATUS, RECORDED, REFUND),
    ),
    *corrupt(
        PAYMENT_METHOD, "UPDATE bookings SET payment_status = 'unpaid' WHERE booking_number = 4", also=(PAYMENT_STATUS,)
    ),
    *corrupt(
        INTENT,
        "UPDATE payments SET payment_intent = 'pi_of_all' WHERE payment_intent IS NOT NULL",
        also=(INTENT_STATE,),
    ),
    *corrupt(
        INTENT_STATE,
        "UPDATE payment_intents SET intent_id = 'pi_of_nobody'",
        "UPDATE payment_intents SET intent_id = NULL",
        "UPDATE payment_intents SET status = 'requested'",
        "UPDATE payment_intents SET status = 'canceled'",
        f"UPDATE payment_intents SET booking_id = {booking(4)}, intent_id = 'pi_of_nobody'",
        f"UPDATE payment_intents SET booking_id = {MISSING_ID}, intent_id = 'pi_of_nobody'",
        also=(OPENS,),
    ),
    *corrupt(
        INTENT_STATE,
        f"UPDATE payments SET status = 'pending' WHERE booking_id = {booking(5)}",
        also=(PAYMENT_STATUS, TIMELINE_MONEY),
    ),
    *corrupt(
        OWN_INTENT,
        f"UPDATE payments SET payment_intent = 'pi_' || {booking(5)} WHERE booking_id = {booking(6)}",
        also=(INTENT,),
    ),
    *corrupt(
        INTENT_CHECK,
        "UPDATE payment_intents SET check_at = 1",
    ),
    *corrupt(
        TIMELINE_MONEY,
        f"UPDATE timeline SET kind = 'refund_requested' WHERE kind = 'payment_received' AND booking_id = {booking(5)}",
        f"UPDATE timeline SET kind = 'payment_received' WHERE kind = 'booking_created' AND booking_id = {booking(2)}",
    ),
    *corrupt(TIMELINE_MONEY, "DELETE FROM refunds WHERE status = 'succeeded'", also=(REFUNDED,)),
    *corrupt(POLICY, "DELETE FROM refunds WHERE status = 'requested'"),
)

TIME_LIMITS = (
    *corrupt(
        TIME_LIMIT,
        f"UPDATE holds SET expires_at = {IN_2100}",
        f"UPDATE bookings SET expires_at = {IN_2100} WHERE status = 'pending'",
        f"UPDATE payment_intents SET check_at = {IN_2100}",
        f"UPDATE webhook_cursors SET next_send_at = {IN_2100}",
        f"UPDATE departures SET announce_at = {IN_2100}",
        f"UPDATE deliveries SET next_attempt_at = {IN_2100} WHERE status = 'queued'",
        f"UPDATE deliveries SET lease_until = {IN_2100}, lease_token = 'held' WHERE status = 'queued'",
        lease_of("'[]'", IN_2100),
        f"UPDATE refunds SET next_attempt_at = {IN_2100} WHERE status = 'requested'",
        f"UPDATE refunds SET lease_until = {IN_2100} WHERE status = 'requested'",
        f"UPDATE effects SET due_at = {IN_2100} WHERE status = 'queued'",
        f"UPDATE effects SET lease_until = {IN_2100} WHERE status = 'queued'",
        f"""UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL,
                   next_attempt_at = {END_OF_TIME} - 1""",
        f"""UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL, lease_until = {IN_2100},
                   next_attempt_at = {END_OF_TIME}""",
    ),
    *corrupt(TIME_LIMIT, f"INSERT INTO erasures {erasures_of(IN_2100)}"),
    *corrupt(TIME_LIMIT, f"UPDATE webhook_secrets SET expires_at = {IN_2100}", also=(ONE_SECRET,)),
)

SEALED = corrupt(
    OPENS,
    "UPDATE webhook_secrets SET secret_sealed = 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'",
    "UPDATE gift_cards SET code_sealed = 'sealed'",
    "UPDATE idempotency SET body_sealed = 'AAAA'",
    "UPDATE stripe_accounts SET credentials_sealed = 'AAAA'",
    "UPDATE payment_intents SET client_secret_sealed = 'AAAA'",
    f"""UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL, message = 'AAAA',
               next_attempt_at = {END_OF_TIME}""",
)

CORRUPTIONS = (*BOOKINGS, *AMOUNTS, *EVENTS, *DELIVERIES, *RECORDS, *GUESTS, *PAYMENT_STATES, *TIME_LIMITS, *SEALED)


class RollBack(Exception):
    pass


def found_after(history: Any, sql: str) -> list[doctor.Finding]:
    """Run a statement, return the findings of the doctor, and roll the statement back."""
    found: list[doctor.Finding] = []

    def work(tx: Tx) -> None:
        assert tx.run(Statement(text(sql.replace(":", "\\:")))) > 0, "no row was changed"
        found.extend(doctor.examine(tx, options=EXACT))
        raise RollBack

    with pytest.raises(RollBack):
        history.world.database.write(work)
    return found


@pytest.fixture(scope="module")
def typed(unconstrained: Any) -> set[str]:
    """Return what guests and staff have typed into the history and into the corruptions, as it is compared."""
    rows = [
        *unconstrained.world.rows(tables.customers),
        *unconstrained.world.rows(tables.bookings),
    ]
    found = {
        row[name]
        for row in rows
        for name in row.keys() & {"email", "email_key", "name", "guest_email", "guest_name", "note"}
    }
    return {text.casefold() for text in found if text} | {"one@example.com", "another@example.com"}


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda corruption: corruption.sql[:90])
def test_a_corruption_is_found_without_unrelated_findings_and_without_personal_data(
    unconstrained: Any, typed: set[str], corruption: Corruption
) -> None:
    findings = found_after(unconstrained, corruption.sql)
    invariants = {finding.invariant for finding in findings}
    assert corruption.invariant in invariants
    assert invariants <= {corruption.invariant} | corruption.also
    for finding in findings:
        shown = f"{finding.subject} {finding.message} {finding.remedy}".casefold()
        assert not [text for text in typed if text in shown], finding
        assert " minor " not in shown


def test_personal_data_is_in_the_history_that_is_corrupted(typed: set[str]) -> None:
    assert len(typed) > 2


def test_every_check_has_a_corruption_that_it_finds() -> None:
    elsewhere = {check.invariant for check in announcements.CHECKS}  # in departures/test_announcing.py
    broken = {check.invariant for check in doctor.CHECKS if check.kind is doctor.FindingKind.BROKEN} - elsewhere
    assert {corruption.invariant for corruption in CORRUPTIONS} == broken


def test_no_corruption_is_left_in_the_history(unconstrained: Any) -> None:
    assert unconstrained.world.database.read(lambda tx: doctor.examine(tx, options=EXACT)) == []

"""Each thing that can be off is found, and nothing else beside it but what it drags along."""

from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import text
from support.world import SECRET

from booking_core import doctor
from booking_core.clock import END_OF_TIME
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.tokens import SecretKeys

EXACT = doctor.Terms(skew_s=0, overdue_s=100 * 86_400, openers=doctor.openers(SecretKeys(SECRET)))
NOBODY = "'00000000-0000-4000-8000-000000000000'"

SEATS = "seats taken are the seats of pending and confirmed bookings"
CEILING = "no departure is sold beyond what it ever had"
HOLD = "a hold is of seats, and ends after it began"
NUMBERS = "booking numbers are 1 to n without a gap, and n is the counter"
COUNTERS = "every organization has its counters"
NUMBER_ORDER = "booking numbers follow the order in which bookings were told"
TOTALS = "totals add up"
LINES = "a subtotal is the sum of its lines, in one currency"
EXPERIENCE = "a booking is of the experience of its departure"
STATUS = "a booking's status agrees with its instants"
CHANGED = "a booking is changed no earlier than it is made, confirmed, and cancelled"
UPDATED = "nothing is changed before it is made"
ABANDONED = "a pending booking is abandoned when its time is up"
BALANCE = "a gift card's balance is its face value and its ledger"
TAKEN = "what a booking takes from a gift card is what it is paid by"
LEDGER = "a booking paid by a gift card stands in its ledger"
RESTORED = "what was taken from a gift card goes back once, when the booking is cancelled"
PAYMENT = "a card booking has one payment of its total, and no other booking has any"
SAYS = "a booking says of its payment what the payment says"
REFUND = "a refund is of a cancelled booking whose money was received here, and of no more than was paid"
RECORDED = "what staff recorded for a booking is what its payment and the booking say"
BY_HAND = "a refund that was settled by hand says how much, when and why"
GAVE_BACK = "what a payment gave back is what its refund did"
REFUND_DUE = "a refund is sent when it is due"
DENSE = "event sequences are dense up to the counter"
PURGED = "no event is purged before its time"
TOLD = "a booking is told created once, confirmed once when it was, cancelled once when it is"
TOLD_ORDER = "a booking is told created before confirmed, and cancelled last"
ONCE = "what happens once is told once"
CREATED = "a customer who came with a booking is told created"
REDEEMED = "each redemption of a gift card is told once"
ABOUT = "an event is about a booking or a customer that there is"
BODY = "an event's body is what its row says, and holds no secret"
ONE_DELIVERY = "an event has one delivery for each endpoint at most"
A_DELIVERY = "an event has a delivery for each endpoint that subscribes to its type"
SUBSCRIBED = "an endpoint gets what it subscribes to, and nothing about itself"
PING = "a ping goes to one endpoint, and nothing else is sent as a test"
OF_EVENT = "a delivery is of an event of its organization, as that is"
DELIVERY = "a delivery's status agrees with what is said beside it"
ATTEMPTS = "a delivery has as many attempts as it counts, and no more than it may"
SUCCEEDED = "what succeeded was answered with 2xx"
FIRST = "first attempts for one resource are made in the order of its events"
OFF = "nothing is queued for an endpoint that is off"
ENDPOINT = "an endpoint's status agrees with what is said beside it"
SWITCHED_OFF = "an endpoint is switched off by failures that were many and lasted"
TEN = "at most 10 endpoints of an organization stand"
ONE_SECRET = "an endpoint that stands has one current secret, and one that is deleted has none"
DUE = "a delivery is sent when it is due, and a lease that was lost is taken back"
KEYS = "at most 20 keys of an organization are active"
ANSWERS = "every API booking has the stored answer of its key"
ANSWERED_ONCE = "a key was answered once"
EMAIL = "an e-mail address is one customer's"
IDENTITY = "a customer is known by the e-mail, normalised"
REFERS = "no row refers to what its organization does not have"
EFFECT = "an effect is owed once, and its status agrees with its instants"
DONE = "an effect that is done has its mail, or says why there is none"
MAIL = "a mail is written once, under one Message-ID, and its status agrees with its instants"
OWED = "a guest is owed the mails of a booking, unless they were suppressed"
OPEN = "no secret lies open"
TAKEN_UP = "an effect and a mail are taken up when they are due"
STAFF_OWED = "staff is owed the mails of a booking where they are switched on"
SEATED = "a booking takes the seats of its guests"
GUEST = "a booking's customer has the e-mail address of its guest"
MODE = "a booking's payment is one that its method allows"
INTENT = "a payment intent pays for one booking"
LOST = "money that the timeline tells of is in the payments and refunds"
POLICY = "a paid booking that was cancelled has the refund that the policy owes"
FAR = "no instant lies further ahead than its limit allows"
OPENS = "every sealed value opens with a live secret key"
CLOCK = "the clock agrees with what the workers have measured"


@dataclass(frozen=True)
class Harm:
    """What is done to the rows, the invariant that it breaks, and those that cannot but break with it."""

    invariant: str
    sql: str
    also: frozenset[str] = frozenset()


def harms(invariant: str, *sqls: str, also: tuple[str, ...] = ()) -> list[Harm]:
    return [Harm(invariant, " ".join(sql.split()), frozenset(also)) for sql in sqls]


def booking(number: int) -> str:
    """1 was made by the API, paid by hand, cancelled and returned by hand; 2 stands, 3 does and is partly paid by
    hand; 4 is pending, 5 paid by card and gift card, 6 the same,
    cancelled and refunded."""
    return f"(SELECT id FROM bookings WHERE booking_number = {number})"


def event(kind: str, number: int) -> str:
    return f"type = 'booking.{kind}' AND resource_id = {booking(number)}"


SELLING = (
    *harms(
        SEATS,
        "UPDATE departures SET seats_taken = seats_taken + 1",
        "UPDATE bookings SET seats = seats + 1 WHERE status = 'pending'",
        "UPDATE bookings SET seats = seats + 1 WHERE booking_number = 2",
        also=(SEATED,),
    ),
    *harms(
        CEILING,
        "UPDATE departures SET seats_ceiling = seats_taken - 1, seats_total = seats_taken - 1",
        "UPDATE departures SET seats_ceiling = seats_total - 1",
    ),
    *harms(CEILING, "UPDATE departures SET seats_taken = -1", also=(SEATS,)),
    *harms(
        HOLD,
        "UPDATE holds SET seats = 0",
        "UPDATE holds SET expires_at = created_at - 1",
        "UPDATE holds SET ended_at = created_at - 1",
    ),
    *harms(
        NUMBERS,
        "UPDATE bookings SET booking_number = 8 WHERE booking_number = 7",
        "UPDATE counters SET last_booking_number = last_booking_number + 1",
        "UPDATE counters SET last_booking_number = last_booking_number - 1",
        also=(BODY,),
    ),
    *harms(NUMBERS, "UPDATE bookings SET booking_number = 4 WHERE booking_number = 5", also=(NUMBER_ORDER, BODY)),
    *harms(COUNTERS, "DELETE FROM counters"),
    *harms(
        NUMBER_ORDER,
        "UPDATE bookings SET booking_number = 5 - booking_number WHERE booking_number IN (2, 3)",
        also=(BODY,),
    ),
    *harms(
        TOTALS,
        "UPDATE bookings SET total_minor = total_minor + 1 WHERE booking_number = 2",
        "UPDATE bookings SET total_minor = -1, discount_minor = subtotal_minor + 1 WHERE booking_number = 2",
        also=(BODY,),
    ),
    *harms(
        LINES,
        "UPDATE bookings SET subtotal_minor = subtotal_minor + 1, total_minor = total_minor + 1"
        " WHERE booking_number = 2",
        "UPDATE bookings SET currency = 'EUR' WHERE booking_number = 2",
        "UPDATE bookings SET guests = '[]' WHERE booking_number = 2",
        "UPDATE bookings SET guests = 'none' WHERE booking_number = 2",
        "UPDATE bookings SET add_ons = guests WHERE booking_number = 2",
        also=(BODY, SEATED),
    ),
    *harms(EXPERIENCE, "UPDATE bookings SET experience_id = departure_id WHERE booking_number = 2", also=(BODY,)),
    *harms(EXPERIENCE, "UPDATE bookings SET departure_id = experience_id WHERE booking_number = 2", also=(SEATS, BODY)),
    *harms(
        STATUS,
        "UPDATE bookings SET expires_at = NULL WHERE status = 'pending'",
        "UPDATE bookings SET source = NULL WHERE booking_number = 4",
        "UPDATE bookings SET source = 'unknown' WHERE booking_number = 4",
        "UPDATE bookings SET cancel_reason = 'api' WHERE booking_number = 2",
        also=(BODY,),
    ),
    *harms(STATUS, "UPDATE bookings SET confirmed_at = NULL WHERE booking_number = 2", also=(TOLD,)),
    *harms(STATUS, "UPDATE bookings SET status = 'cancelled' WHERE booking_number = 2", also=(SEATS, BODY)),
    *harms(
        STATUS,
        "UPDATE bookings SET cancel_reason = NULL WHERE booking_number = 1",
        "UPDATE bookings SET cancel_reason = 'whim' WHERE booking_number = 1",
        "UPDATE bookings SET cancel_reason = 'abandoned' WHERE booking_number = 6",
        also=(BODY,),
    ),
    *harms(
        CHANGED,
        "UPDATE bookings SET updated_at = created_at - 1 WHERE booking_number = 2",
        "UPDATE bookings SET cancelled_at = confirmed_at - 1 WHERE booking_number = 6",
        "UPDATE bookings SET updated_at = cancelled_at - 1 WHERE booking_number = 6",
        "UPDATE bookings SET confirmed_at = created_at - 1 WHERE booking_number = 5",
    ),
    *harms(
        UPDATED,
        *(
            f"UPDATE {table} SET updated_at = created_at - 1"
            for table in ("experiences", "departures", "customers", "gift_cards", "payments", "refunds", "deliveries")
        ),
        "UPDATE webhook_endpoints SET updated_at = created_at - 1 WHERE status = 'auto_disabled'",
    ),
    *harms(ABANDONED, "UPDATE bookings SET expires_at = 1 WHERE status = 'pending'"),
)

MONEY = (
    *harms(BALANCE, "UPDATE gift_cards SET balance_minor = balance_minor - 1"),
    *harms(BALANCE, "UPDATE gift_card_entries SET amount_minor = amount_minor - 1", also=(TAKEN, RESTORED)),
    *harms(
        TAKEN,
        f"UPDATE bookings SET gift_card_minor = gift_card_minor + 1, discount_minor = -1 WHERE id = {booking(5)}",
        also=(TOTALS, BODY),
    ),
    *harms(TAKEN, "UPDATE gift_cards SET currency = 'EUR'"),
    *harms(LEDGER, f"DELETE FROM gift_card_entries WHERE booking_id = {booking(5)}", also=(BALANCE, REDEEMED)),
    *harms(
        RESTORED,
        "DELETE FROM gift_card_entries WHERE kind = 'restore'",
        "INSERT INTO gift_card_entries SELECT * FROM gift_card_entries WHERE kind = 'restore'",
        also=(BALANCE,),
    ),
    *harms(
        RESTORED,
        f"UPDATE gift_card_entries SET booking_id = {booking(5)} WHERE kind = 'restore'",
        f"UPDATE gift_card_entries SET booking_id = {booking(2)} WHERE kind = 'restore'",
    ),
    *harms(
        PAYMENT,
        f"UPDATE payments SET amount_minor = amount_minor + 1 WHERE booking_id = {booking(5)}",
        f"UPDATE payments SET currency = 'EUR' WHERE booking_id = {booking(5)}",
        f"DELETE FROM payments WHERE booking_id = {booking(4)}",
        f"INSERT INTO payments SELECT * FROM payments WHERE booking_id = {booking(4)}",
    ),
    *harms(
        PAYMENT,
        f"DELETE FROM payment_records WHERE booking_id = {booking(3)}",
        also=(RECORDED,),
    ),
    *harms(PAYMENT, "UPDATE bookings SET payment_method = 'external_paid' WHERE booking_number = 3", also=(BODY, MODE)),
    *harms(
        RECORDED,
        "UPDATE bookings SET recorded_minor = recorded_minor + 1 WHERE booking_number = 3",
        "UPDATE payment_records SET amount_minor = amount_minor + 1 WHERE amount_minor = 500",
        "UPDATE payment_records SET voided_at = NULL",
        "UPDATE payment_records SET currency = 'EUR' WHERE amount_minor = 500",
        f"UPDATE payments SET amount_minor = amount_minor + 1 WHERE booking_id = {booking(3)}",
    ),
    *harms(
        BY_HAND,
        "UPDATE refunds SET settled_note = NULL WHERE status = 'settled'",
        "UPDATE refunds SET settled_at = NULL WHERE status = 'settled'",
        "UPDATE refunds SET settled_at = 1 WHERE status = 'succeeded'",
        "UPDATE refunds SET settled_at = created_at - 1 WHERE status = 'settled'",
    ),
    *harms(BY_HAND, "UPDATE refunds SET settled_minor = NULL WHERE status = 'settled'", also=(GAVE_BACK,)),
    *harms(
        GAVE_BACK,
        "UPDATE refunds SET status = 'failed' WHERE status = 'settled'",
        "UPDATE refunds SET settled_minor = 1 WHERE status = 'settled'",
        "UPDATE refunds SET settled_minor = NULL, settled_at = NULL, status = 'needs_review' WHERE status = 'settled'",
        also=(BY_HAND,),
    ),
    *harms(
        PAYMENT, "UPDATE bookings SET payment_source = 'external' WHERE booking_number = 5", also=(MODE, BODY, RECORDED)
    ),
    *harms(
        SAYS,
        f"UPDATE payments SET status = 'paid' WHERE booking_id = {booking(3)}",
        "UPDATE bookings SET payment_status = 'paid' WHERE booking_number = 3",
        f"UPDATE payments SET status = 'pending' WHERE booking_id = {booking(5)}",
        "UPDATE bookings SET payment_status = 'unpaid' WHERE booking_number = 5",
        "UPDATE payments SET status = 'refunded' WHERE refunded_minor > 0",
        also=(LOST, MODE),
    ),
    *harms(REFUND, "UPDATE refunds SET currency = 'EUR'"),
    *harms(
        REFUND,
        "UPDATE refunds SET amount_minor = amount_minor + 100000",
        "UPDATE refunds SET amount_minor = 0",
        f"UPDATE refunds SET booking_id = {booking(5)} WHERE status = 'succeeded'",
        also=(GAVE_BACK, LOST, POLICY),
    ),
    *harms(REFUND, "INSERT INTO refunds SELECT * FROM refunds"),
    *harms(
        GAVE_BACK,
        "UPDATE payments SET refunded_minor = refunded_minor + 1 WHERE status = 'partially_refunded'",
        "UPDATE refunds SET status = 'failed' WHERE status = 'succeeded'",
        "UPDATE refunds SET provider_refund_id = NULL",
    ),
    *harms(
        REFUND_DUE,
        "UPDATE refunds SET status = 'requested', next_attempt_at = 1 WHERE status = 'succeeded'",
        "UPDATE refunds SET status = 'sending', next_attempt_at = NULL WHERE status = 'succeeded'",
        "UPDATE refunds SET status = 'sending', lease_until = 1 WHERE status = 'succeeded'",
        also=(GAVE_BACK,),
    ),
)

TELLING = (
    *harms(DENSE, "UPDATE counters SET last_event_sequence = last_event_sequence - 1"),
    *harms(DENSE, "DELETE FROM events WHERE type = 'customer.updated'", also=(OF_EVENT,)),
    *harms(PURGED, "DELETE FROM events WHERE sequence < 4", also=(CREATED, OF_EVENT)),
    *harms(
        TOLD,
        f"DELETE FROM events WHERE {event('created', 2)}",
        f"DELETE FROM events WHERE {event('confirmed', 2)}",
        f"DELETE FROM events WHERE {event('cancelled', 6)}",
        also=(DENSE, OF_EVENT, BODY),
    ),
    *harms(TOLD, f"UPDATE events SET occurrence = 9 WHERE {event('confirmed', 2)}"),
    *harms(
        TOLD,
        "UPDATE bookings SET status = 'confirmed', cancelled_at = NULL, cancel_reason = NULL WHERE booking_number = 1",
        also=(SEATS, BODY, REFUND, MODE),
    ),
    *harms(
        TOLD_ORDER,
        """UPDATE events SET type = CASE type WHEN 'booking.created' THEN 'booking.confirmed'
                                              ELSE 'booking.created' END
            WHERE type IN ('booking.created', 'booking.confirmed')""",
        also=(TOLD, BODY, OF_EVENT, NUMBER_ORDER, A_DELIVERY),
    ),
    *harms(
        TOLD_ORDER,
        f"UPDATE events SET sequence = sequence + 1000 WHERE {event('confirmed', 6)}",
        f"UPDATE events SET type = 'booking.rescheduled', sequence = 0 WHERE {event('confirmed', 2)}",
        also=(TOLD, BODY, DENSE, OWED, STAFF_OWED),
    ),
    *harms(ONCE, f"INSERT INTO events SELECT * FROM events WHERE {event('confirmed', 2)}", also=(DENSE,)),
    *harms(
        CREATED,
        """DELETE FROM events WHERE type = 'customer.created'
               AND resource_id = (SELECT customer_id FROM bookings WHERE booking_number = 5)""",
        also=(DENSE, OF_EVENT),
    ),
    *harms(REDEEMED, "DELETE FROM events WHERE type = 'gift_card.redeemed'", also=(DENSE,)),
    *harms(ABOUT, f"UPDATE events SET resource_id = {NOBODY} WHERE {event('confirmed', 2)}", also=(TOLD, BODY)),
    *harms(
        ABOUT,
        f"UPDATE events SET resource_id = {NOBODY} WHERE type = 'customer.created'",
        also=(CREATED, BODY, OF_EVENT, ONCE),
    ),
    *harms(
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
        f"UPDATE events SET id = {NOBODY} WHERE {event('confirmed', 2)}",
    ),
)

LATER = "(SELECT max(event_sequence) FROM deliveries WHERE event_type = 'customer.updated')"

DELIVERING = (
    *harms(
        ONE_DELIVERY,
        "INSERT INTO deliveries SELECT * FROM deliveries WHERE status = 'queued' AND event_type = 'booking.cancelled'",
    ),
    *harms(A_DELIVERY, "DELETE FROM deliveries WHERE event_type = 'booking.cancelled'"),
    *harms(SUBSCRIBED, "DELETE FROM webhook_subscriptions WHERE event_type = 'booking.cancelled'"),
    *harms(
        SUBSCRIBED,
        "UPDATE deliveries SET resource_id = endpoint_id WHERE event_type = 'booking.cancelled'",
        also=(OF_EVENT,),
    ),
    *harms(
        SUBSCRIBED,
        """UPDATE webhook_endpoints SET deleted_at = created_at, status = 'disabled', disabled_at = created_at,
                  disabled_reason = 'manual' WHERE status = 'enabled'""",
        also=(OFF, ONE_SECRET),
    ),
    *harms(PING, """UPDATE deliveries SET "trigger" = 'test' WHERE event_type = 'booking.cancelled'"""),
    *harms(PING, f"UPDATE events SET type = 'ping' WHERE {event('confirmed', 2)}", also=(TOLD, BODY)),
    *harms(
        OF_EVENT,
        "UPDATE deliveries SET event_sequence = event_sequence + 100 WHERE event_type = 'booking.cancelled'",
        "UPDATE deliveries SET resource_id = NULL WHERE event_type = 'booking.cancelled'",
    ),
    *harms(
        OF_EVENT,
        "UPDATE deliveries SET event_type = 'booking.created' WHERE event_type = 'booking.cancelled'",
    ),
    *harms(
        OF_EVENT,
        f"UPDATE deliveries SET event_id = {NOBODY} WHERE event_type = 'booking.cancelled'",
        also=(ONE_DELIVERY, A_DELIVERY),
    ),
    *harms(
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
    *harms(
        ATTEMPTS,
        "UPDATE deliveries SET attempt_count = 7 WHERE status = 'dead'",
        "UPDATE deliveries SET max_attempts = 7 WHERE status = 'dead'",
        "UPDATE deliveries SET max_attempts = 5 WHERE event_type = 'booking.cancelled'",
        "DELETE FROM attempts WHERE error = 'http_status'",
        "UPDATE attempts SET number = 9 WHERE number = 6",
        "UPDATE deliveries SET attempt_count = 1 WHERE event_type = 'booking.cancelled'",
    ),
    *harms(
        SUCCEEDED,
        "UPDATE attempts SET response_status = 302 WHERE error IS NULL",
        "UPDATE attempts SET error = 'timeout' WHERE error IS NULL",
        "UPDATE attempts SET duration_ms = NULL WHERE error IS NULL",
    ),
    *harms(
        FIRST,
        f"""UPDATE attempts SET started_at = 1
             WHERE number = 1 AND delivery_id IN (SELECT id FROM deliveries WHERE event_sequence = {LATER})""",
    ),
    *harms(
        OFF,
        """UPDATE deliveries SET status = 'queued', completed_at = NULL, failure_reason = NULL,
                  next_attempt_at = created_at WHERE status = 'failed'""",
    ),
    *harms(
        ENDPOINT,
        "UPDATE webhook_endpoints SET disabled_reason = 'manual' WHERE status = 'auto_disabled'",
        "UPDATE webhook_endpoints SET disabled_at = 1 WHERE status = 'enabled'",
        "UPDATE webhook_endpoints SET consecutive_failures = -1 WHERE status = 'enabled'",
        "UPDATE webhook_endpoints SET status = 'paused' WHERE status = 'auto_disabled'",
        "DELETE FROM webhook_subscriptions WHERE event_type = 'customer.updated'",
    ),
    *harms(
        SWITCHED_OFF,
        "UPDATE webhook_endpoints SET consecutive_failures = 5 WHERE status = 'auto_disabled'",
        "UPDATE webhook_endpoints SET enabled_at = disabled_at - 1 WHERE status = 'auto_disabled'",
        "UPDATE webhook_endpoints SET last_success_at = disabled_at - 1 WHERE status = 'auto_disabled'",
    ),
    *harms(
        TEN,
        """INSERT INTO webhook_endpoints
           SELECT e.* FROM webhook_endpoints e, (SELECT 1 FROM events LIMIT 9) n WHERE e.status = 'enabled'""",
        also=(ONE_SECRET,),
    ),
    *harms(ONE_SECRET, "DELETE FROM webhook_secrets", "UPDATE webhook_secrets SET expires_at = 1"),
    *harms(
        DUE,
        "UPDATE deliveries SET next_attempt_at = 1 WHERE status = 'queued'",
        "UPDATE deliveries SET lease_until = 1, lease_token = 'held' WHERE status = 'queued'",
    ),
)

KEEPING = (
    *harms(KEYS, "UPDATE api_keys SET revoked_at = NULL"),
    *harms(ANSWERS, "DELETE FROM idempotency WHERE key = 'healthy-1'", "DELETE FROM idempotency"),
    *harms(ANSWERS, "UPDATE idempotency SET created_at = created_at + 1 WHERE key = 'healthy-1'"),
    *harms(ANSWERED_ONCE, "INSERT INTO idempotency SELECT * FROM idempotency"),
    *harms(EMAIL, "INSERT INTO customers SELECT * FROM customers"),
    *harms(EMAIL, "UPDATE customers SET email_key = 'one@example.com'", also=(IDENTITY, GUEST)),
    *harms(IDENTITY, "UPDATE customers SET email = 'another@example.com'"),
    *harms(
        REFERS,
        f"UPDATE timeline SET customer_id = {NOBODY}",
        f"UPDATE timeline SET booking_id = {NOBODY}",
        f"UPDATE mails SET booking_id = {NOBODY}",
        also=(LOST,),
    ),
    *harms(REFERS, "UPDATE mails SET effect_key = 'nothing'", also=(DONE,)),
    *harms(DONE, "DELETE FROM mails"),
    *harms(REFERS, f"UPDATE deliveries SET endpoint_id = {NOBODY}", also=(A_DELIVERY,)),
    *harms(REFERS, f"UPDATE attempts SET delivery_id = {NOBODY}", also=(ATTEMPTS, SUCCEEDED)),
    *harms(
        REFERS,
        f"UPDATE effects SET subject_id = {NOBODY} WHERE kind = 'booking_rescheduling_mail'",
        f"UPDATE effects SET subject_id = {NOBODY} WHERE kind LIKE 'staff_webhook%'",
        "UPDATE effects SET kind = 'staff_key_expiring_mail' WHERE kind = 'booking_rescheduling_mail'",
        also=(EFFECT,),
    ),
    *harms(
        EFFECT,
        "UPDATE effects SET completed_at = 1 WHERE status = 'queued'",
        "UPDATE effects SET completed_at = NULL WHERE status = 'done'",
        "UPDATE effects SET status = 'lost' WHERE status = 'done'",
        "INSERT INTO effects SELECT * FROM effects",
        "UPDATE effects SET key = key || 'x' WHERE kind = 'staff_booking_mail'",
        also=(STAFF_OWED,),
    ),
    *harms(
        MAIL,
        "UPDATE mails SET sent_at = NULL",
        "UPDATE mails SET completed_at = NULL",
        "UPDATE mails SET status = 'lost'",
        "INSERT INTO mails SELECT * FROM mails",
    ),
    *harms(
        OWED,
        "DELETE FROM effects WHERE kind = 'booking_confirmation_mail'",
        "UPDATE bookings SET send_confirmation_email = false WHERE booking_number = 2",
        "DELETE FROM effects WHERE kind = 'booking_cancellation_mail'",
    ),
    *harms(
        STAFF_OWED,
        "DELETE FROM effects WHERE kind = 'staff_booking_mail'",
        "DELETE FROM effects WHERE kind = 'staff_cancellation_mail'",
    ),
    *harms(
        OWED,
        f"UPDATE events SET type = 'booking.rescheduled' WHERE {event('created', 7)}",
        also=(STAFF_OWED, TOLD, BODY, OF_EVENT, A_DELIVERY),
    ),
    *harms(
        OPEN,
        "UPDATE api_keys SET key_hash = 'svc_open'",
        "UPDATE webhook_secrets SET secret_sealed = 'whsec_open'",
        "UPDATE idempotency SET body_sealed = '{}'",
        "UPDATE mails SET message = 'https://example.com/manage/open'",
        also=(OPENS,),
    ),
    *harms(
        TAKEN_UP,
        "UPDATE effects SET due_at = 1 WHERE status = 'queued'",
        "UPDATE effects SET lease_until = 1 WHERE status = 'queued'",
        "UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL, next_attempt_at = 1",
        "UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL",
    ),
    *harms(
        CLOCK,
        "INSERT INTO retention_clock (id, at, moved_at) VALUES (1, 0, 9000000000000000)",
        "INSERT INTO retention_clock (id, at, moved_at) VALUES (1, 9000000000000000, 9000000000000000)",
    ),
)

IN_2100 = "4102444800000000"

GUESTS = (
    *harms(
        SEATED,
        "UPDATE bookings SET seats = 0 WHERE booking_number = 2",
        "UPDATE bookings SET seats = 0 WHERE booking_number = 4",
        also=(SEATS,),
    ),
    *harms(SEATED, "UPDATE bookings SET seats = 0 WHERE booking_number = 1"),
    *harms(
        SEATED,
        """UPDATE experiences SET price_tiers = replace(price_tiers, '"seats_per_unit": 1', '"seats_per_unit": 2')""",
    ),
    *harms(GUEST, "UPDATE bookings SET guest_email = 'another@example.com' WHERE booking_number = 2", also=(BODY,)),
    *harms(
        GUEST,
        "UPDATE bookings SET customer_id = (SELECT customer_id FROM bookings WHERE booking_number = 2)"
        " WHERE booking_number = 5",
    ),
)

PAYING = (
    *harms(
        MODE,
        "UPDATE bookings SET payment_status = 'refunded' WHERE booking_number = 2",
        "UPDATE bookings SET payment_status = 'pending' WHERE booking_number = 2",
        "UPDATE bookings SET payment_status = 'failed' WHERE booking_number = 1",
        "UPDATE bookings SET invoice_due = true WHERE booking_number = 2",
        "UPDATE bookings SET on_site_fee_minor = 1 WHERE booking_number = 5",
        "UPDATE bookings SET payment_status = 'maybe' WHERE booking_number = 3",
        also=(SAYS,),
    ),
    *harms(
        MODE,
        "UPDATE bookings SET payment_method = 'external_paid', payment_source = 'on_site' WHERE booking_number = 2",
        "UPDATE bookings SET payment_method = 'external_paid', payment_source = 'external', payment_status = 'unpaid'"
        " WHERE booking_number = 2",
        "UPDATE bookings SET payment_method = 'free' WHERE booking_number = 3",
        "UPDATE bookings SET payment_method = 'barter' WHERE booking_number = 3",
        also=(BODY, PAYMENT),
    ),
    *harms(MODE, "UPDATE bookings SET payment_status = 'unpaid' WHERE booking_number = 4", also=(SAYS,)),
    *harms(INTENT, "UPDATE payments SET payment_intent = 'pi_of_all' WHERE payment_intent IS NOT NULL"),
    *harms(
        LOST,
        f"UPDATE timeline SET kind = 'refund_requested' WHERE kind = 'payment_received' AND booking_id = {booking(5)}",
        f"UPDATE timeline SET kind = 'payment_received' WHERE kind = 'booking_created' AND booking_id = {booking(2)}",
    ),
    *harms(LOST, "DELETE FROM refunds WHERE status = 'succeeded'", also=(GAVE_BACK,)),
    *harms(POLICY, "DELETE FROM refunds WHERE status = 'requested'"),
)

FAR_AHEAD = (
    *harms(
        FAR,
        f"UPDATE holds SET expires_at = {IN_2100}",
        f"UPDATE bookings SET expires_at = {IN_2100} WHERE status = 'pending'",
        f"UPDATE deliveries SET next_attempt_at = {IN_2100} WHERE status = 'queued'",
        f"UPDATE deliveries SET lease_until = {IN_2100}, lease_token = 'held' WHERE status = 'queued'",
        f"UPDATE refunds SET next_attempt_at = {IN_2100} WHERE status = 'requested'",
        f"UPDATE refunds SET lease_until = {IN_2100} WHERE status = 'requested'",
        f"UPDATE effects SET due_at = {IN_2100} WHERE status = 'queued'",
        f"UPDATE effects SET lease_until = {IN_2100} WHERE status = 'queued'",
        f"""UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL,
                   next_attempt_at = {END_OF_TIME} - 1""",
        f"""UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL, lease_until = {IN_2100},
                   next_attempt_at = {END_OF_TIME}""",
    ),
    *harms(FAR, f"UPDATE webhook_secrets SET expires_at = {IN_2100}", also=(ONE_SECRET,)),
)

SEALED = harms(
    OPENS,
    "UPDATE webhook_secrets SET secret_sealed = 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'",
    "UPDATE gift_cards SET code_sealed = 'sealed'",
    "UPDATE idempotency SET body_sealed = 'AAAA'",
    f"""UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL, message = 'AAAA',
               next_attempt_at = {END_OF_TIME}""",
)

HARMS = (*SELLING, *MONEY, *TELLING, *DELIVERING, *KEEPING, *GUESTS, *PAYING, *FAR_AHEAD, *SEALED)


class Undone(Exception):
    pass


def found_after(past: Any, sql: str) -> list[doctor.Finding]:
    """What the doctor finds once that was done, which is undone again."""
    found: list[doctor.Finding] = []

    def work(tx: Tx) -> None:
        assert tx.run(Statement(text(sql.replace(":", "\\:")))) > 0, "no harm was done"
        found.extend(doctor.examine(tx, terms=EXACT))
        raise Undone

    with pytest.raises(Undone):
        past.world.database.write(work)
    return found


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.sql[:90])
def test_what_is_off_is_found_and_nothing_else(unbound: Any, harm: Harm) -> None:
    invariants = {finding.invariant for finding in found_after(unbound, harm.sql)}
    assert harm.invariant in invariants
    assert invariants <= {harm.invariant} | harm.also


def test_findings_show_no_personal_data(unbound: Any) -> None:
    rows = [*unbound.world.rows(tables.customers), *unbound.world.rows(tables.bookings)]
    typed = {
        row[name]
        for row in rows
        for name in row.keys() & {"email", "email_key", "name", "guest_email", "guest_name", "note"}
    }
    typed = {text.casefold() for text in typed if text} | {"one@example.com", "another@example.com"}
    for harm in HARMS:
        for finding in found_after(unbound, harm.sql):
            shown = f"{finding.subject} {finding.message} {finding.remedy}".casefold()
            assert not [text for text in typed if text in shown], finding


def test_every_check_of_the_doctor_is_tried_here() -> None:
    broken = {check.invariant for check in doctor.CHECKS if check.kind is doctor.FindingKind.BROKEN}
    assert {harm.invariant for harm in HARMS} == broken


def test_after_every_harm_nothing_is_found(unbound: Any) -> None:
    assert unbound.world.database.read(lambda tx: doctor.examine(tx, terms=EXACT)) == []

"""What must always be true, checked on a live database: each invariant is one query that finds what breaks it.

A healthy database gives no finding. Reads only; safe to run beside a serving process.
"""

from dataclasses import dataclass

from sqlalchemy import text

from booking_core.db.engine import Tx
from booking_core.db.statements import Statement


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is off."""

    invariant: str
    organization_id: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Check:
    """An invariant in words, and the query that gives (organization_id, subject, message) of what breaks it."""

    invariant: str
    query: str


CHECKS = (
    Check(
        "seats taken are the seats of pending and confirmed bookings",
        """SELECT d.organization_id, d.id,
                  'seats_taken is ' || d.seats_taken || ', bookings hold ' || coalesce(b.seats, 0)
             FROM departures d
             LEFT JOIN (SELECT organization_id, departure_id, sum(seats) AS seats FROM bookings
                         WHERE status IN ('pending', 'confirmed') GROUP BY organization_id, departure_id) b
               ON b.organization_id = d.organization_id AND b.departure_id = d.id
            WHERE d.seats_taken <> coalesce(b.seats, 0)""",
    ),
    Check(
        "no departure is sold beyond what it ever had",
        """SELECT organization_id, id, seats_taken || ' of ' || seats_ceiling || ' seats'
             FROM departures WHERE seats_taken > seats_ceiling OR seats_taken < 0 OR seats_ceiling < seats_total""",
    ),
    Check(
        "booking numbers are 1 to n without a gap, and n is the counter",
        """SELECT c.organization_id, 'bookings', 'counter ' || c.last_booking_number || ', highest '
                  || coalesce(b.highest, 0) || ', count ' || coalesce(b.numbered, 0)
             FROM counters c
             LEFT JOIN (SELECT organization_id, count(booking_number) AS numbered, max(booking_number) AS highest
                          FROM bookings GROUP BY organization_id) b ON b.organization_id = c.organization_id
            WHERE c.last_booking_number <> coalesce(b.numbered, 0)
               OR c.last_booking_number <> coalesce(b.highest, 0)""",
    ),
    Check(
        "event sequences are dense up to the counter",
        """SELECT c.organization_id, 'events', 'counter ' || c.last_event_sequence || ', highest '
                  || coalesce(e.highest, 0) || ', lowest ' || coalesce(e.lowest, 0) || ', count ' || coalesce(e.kept, 0)
             FROM counters c
             LEFT JOIN (SELECT organization_id, count(*) AS kept, max(sequence) AS highest, min(sequence) AS lowest
                          FROM events GROUP BY organization_id) e ON e.organization_id = c.organization_id
            WHERE e.kept > 0 AND (e.highest <> c.last_event_sequence OR e.kept <> e.highest - e.lowest + 1)""",
    ),
    Check(
        "a booking is told created once, confirmed once when it was, cancelled once when it is",
        """SELECT b.organization_id, b.id, 'created ' || coalesce(e.created, 0) || ', confirmed '
                  || coalesce(e.confirmed, 0) || ', cancelled ' || coalesce(e.cancelled, 0)
             FROM bookings b
             JOIN (SELECT organization_id, min(sequence) AS lowest, min(created_at) AS oldest
                     FROM events GROUP BY organization_id) k ON k.organization_id = b.organization_id
             LEFT JOIN (SELECT organization_id, resource_id,
                               sum(CASE WHEN type = 'booking.created' THEN 1 ELSE 0 END) AS created,
                               sum(CASE WHEN type = 'booking.confirmed' THEN 1 ELSE 0 END) AS confirmed,
                               sum(CASE WHEN type = 'booking.cancelled' THEN 1 ELSE 0 END) AS cancelled
                          FROM events WHERE resource_type = 'booking' GROUP BY organization_id, resource_id) e
               ON e.organization_id = b.organization_id AND e.resource_id = b.id
            WHERE b.booking_number IS NOT NULL
              AND (k.lowest = 1 OR b.created_at > k.oldest)
              AND (coalesce(e.created, 0) <> 1
                   OR coalesce(e.confirmed, 0) <> CASE WHEN b.confirmed_at IS NULL THEN 0 ELSE 1 END
                   OR coalesce(e.cancelled, 0) <> CASE WHEN b.status = 'cancelled' THEN 1 ELSE 0 END)""",
    ),
    Check(
        "a booking is told created before confirmed",
        """SELECT c.organization_id, c.resource_id, 'created is ' || c.sequence || ', confirmed is ' || f.sequence
             FROM events c JOIN events f ON f.organization_id = c.organization_id AND f.resource_id = c.resource_id
            WHERE c.type = 'booking.created' AND f.type = 'booking.confirmed' AND c.sequence >= f.sequence""",
    ),
    Check(
        "every API booking has the stored answer of its key",
        """SELECT b.organization_id, 'bookings', b.booked || ' bookings of the last day, ' || coalesce(i.kept, 0)
                  || ' stored answers'
             FROM (SELECT organization_id, count(*) AS booked, min(created_at) AS since FROM bookings
                    WHERE source = 'api' GROUP BY organization_id) b
             LEFT JOIN (SELECT organization_id, count(*) AS kept, min(created_at) AS since FROM idempotency
                         WHERE status = 201 GROUP BY organization_id) i ON i.organization_id = b.organization_id
            WHERE coalesce(i.since, 0) <= b.since AND coalesce(i.kept, 0) < b.booked""",
    ),
    Check(
        "an event has one delivery for each endpoint at most",
        """SELECT organization_id, event_id, count(*) || ' deliveries to ' || endpoint_id FROM deliveries
            GROUP BY organization_id, event_id, endpoint_id HAVING count(*) > 1""",
    ),
    Check(
        "totals add up",
        """SELECT organization_id, id, 'total ' || total_minor || ' of subtotal ' || subtotal_minor FROM bookings
            WHERE total_minor <> subtotal_minor - discount_minor - gift_card_minor OR total_minor < 0""",
    ),
    Check(
        "a gift card's balance is its face value and its ledger",
        """SELECT g.organization_id, g.id, 'balance ' || g.balance_minor || ', ledger ' || coalesce(l.moved, 0)
             FROM gift_cards g
             JOIN (SELECT organization_id, gift_card_id, sum(amount_minor) AS moved FROM gift_card_entries
                    GROUP BY organization_id, gift_card_id) l
               ON l.organization_id = g.organization_id AND l.gift_card_id = g.id
            WHERE g.balance_minor <> g.initial_minor + l.moved""",
    ),
    Check(
        "at most 20 keys of an organization are active",
        """SELECT organization_id, 'api_keys', count(*) || ' active' FROM api_keys
            WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :at)
            GROUP BY organization_id HAVING count(*) > 20""",
    ),
)

_STATEMENTS = tuple((check.invariant, Statement(text(check.query))) for check in CHECKS)


def examine(tx: Tx, organization_id: str | None = None) -> list[Finding]:
    """Everything that is off, in one organization or in all."""
    at = tx.now()
    findings = [
        Finding(invariant, str(row[0]), str(row[1]), str(row[2]))
        for invariant, statement in _STATEMENTS
        for row in tx.all(statement, at=at)
    ]
    return [finding for finding in findings if organization_id in (None, finding.organization_id)]

"""Checks of seats, booking numbers, totals, and the status of bookings.

A booking without a number is a legacy row, to which other rules applied.
"""
# ruff: noqa: S608 - the texts of SQL are made of nothing but constants

from typing import Any

import orjson

from booking_core.doctor.checks import Check, RowScan


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
        return f"subtotal is {subtotal}, its lines come to {amount}"
    if currencies - {currency}:
        return f"is in {currency}, its lines in {', '.join(sorted(map(str, currencies)))}"
    return None


CHECKS = (
    # One pass over the bookings, grouped by departure.
    Check(
        "seats taken are the seats of pending and confirmed bookings",
        """SELECT d.organization_id, d.id AS subject,
                  'seats_taken is ' || d.seats_taken || ', bookings hold ' || coalesce(s.seats, 0) AS message
             FROM departures d
             LEFT JOIN (SELECT b.organization_id, b.departure_id, sum(b.seats) AS seats FROM bookings b
                         WHERE [b] AND b.status IN ('pending', 'confirmed')
                         GROUP BY b.organization_id, b.departure_id) s
               ON s.organization_id = d.organization_id AND s.departure_id = d.id
            WHERE [d] AND d.seats_taken <> coalesce(s.seats, 0)""",
        remedy="set seats_taken of the departure to the seats of its pending and confirmed bookings",
    ),
    # One pass over the departures.
    Check(
        "no departure is sold beyond its highest capacity",
        """SELECT d.organization_id, d.id, d.seats_taken || ' taken, ceiling ' || d.seats_ceiling || ', total '
                  || d.seats_total
             FROM departures d
            WHERE [d] AND (d.seats_taken > d.seats_ceiling OR d.seats_taken < 0 OR d.seats_ceiling < d.seats_total)""",
    ),
    # One pass over the holds.
    Check(
        "a hold has seats, and ends after it began",
        """SELECT h.organization_id, h.id, h.seats || ' seats from ' || h.created_at || ' until ' || h.expires_at
             FROM holds h
            WHERE [h] AND (h.seats <= 0 OR h.expires_at < h.created_at OR h.ended_at < h.created_at)""",
    ),
    # One pass over the index of booking numbers.
    Check(
        "booking numbers are 1 to n without a gap, and n is the counter",
        """SELECT c.organization_id, 'bookings', 'counter ' || c.last_booking_number || ', highest '
                  || coalesce(n.highest, 0) || ', lowest ' || coalesce(n.lowest, 1) || ', numbered '
                  || coalesce(n.numbered, 0) || ', different ' || coalesce(n.different, 0)
             FROM counters c
             LEFT JOIN (SELECT b.organization_id, count(b.booking_number) AS numbered,
                               count(DISTINCT b.booking_number) AS different,
                               min(b.booking_number) AS lowest, max(b.booking_number) AS highest
                          FROM bookings b WHERE [b] GROUP BY b.organization_id) n
               ON n.organization_id = c.organization_id
            WHERE [c] AND (c.last_booking_number <> coalesce(n.numbered, 0)
                           OR c.last_booking_number <> coalesce(n.different, 0)
                           OR c.last_booking_number <> coalesce(n.highest, 0) OR n.lowest <> 1)""",
        remedy="never lower a counter: raise it to the highest number, and accept the gap",
    ),
    # One pass over the organizations.
    Check(
        "every organization has its counters",
        """SELECT o.id, 'counters', 'there is no row' FROM (SELECT id AS organization_id, id FROM organizations) o
            WHERE [o] AND NOT EXISTS (SELECT 1 FROM counters c WHERE c.organization_id = o.id)""",
    ),
    # A look-up of its first event for each booking, and one sort of them.
    Check(
        "booking numbers follow the order of the booking.created events",
        """SELECT t.organization_id, t.id, 'number ' || t.booking_number || ' has event ' || t.sequence
                  || ', the number before it event ' || t.earlier
             FROM (SELECT b.organization_id, b.id, b.booking_number, e.sequence,
                          lag(e.sequence) OVER (PARTITION BY b.organization_id ORDER BY b.booking_number) AS earlier
                     FROM bookings b
                     JOIN events e ON e.organization_id = b.organization_id AND e.resource_id = b.id
                      AND e.type = 'booking.created' AND e.occurrence = 0
                    WHERE [b] AND b.booking_number IS NOT NULL) t
            WHERE t.sequence < t.earlier""",
    ),
    # One pass over the bookings.
    Check(
        "totals add up",
        """SELECT b.organization_id, b.id, 'total ' || b.total_minor || ' of subtotal ' || b.subtotal_minor
                  || ', discount ' || b.discount_minor || ', gift card ' || b.gift_card_minor
             FROM bookings b
            WHERE [b] AND (b.total_minor <> b.subtotal_minor - b.discount_minor - b.gift_card_minor
                           OR b.total_minor < 0 OR b.discount_minor < 0 OR b.gift_card_minor < 0)""",
    ),
    # Every booking is read.
    RowScan(
        "a subtotal is the sum of its lines, in one currency",
        """SELECT b.id, b.id, b.booking_number, b.guests, b.add_ons, b.subtotal_minor, b.currency
             FROM bookings b WHERE b.organization_id = :organization_id""",
        "b.id",
        validate_lines,
    ),
    # A look-up of its departure for each booking.
    Check(
        "a booking has the experience of its departure",
        """SELECT b.organization_id, b.id, 'the departure is not of experience ' || b.experience_id
             FROM bookings b
             LEFT JOIN departures d ON d.organization_id = b.organization_id AND d.id = b.departure_id
            WHERE [b] AND (d.id IS NULL OR d.experience_id <> b.experience_id)""",
    ),
    # One pass over the bookings.
    Check(
        "a booking's status agrees with its timestamps",
        """SELECT b.organization_id, b.id, b.status || ', confirmed_at ' || coalesce('' || b.confirmed_at, 'none')
                  || ', cancelled_at ' || coalesce('' || b.cancelled_at, 'none')
                  || ', reason ' || coalesce(b.cancel_reason, 'none')
             FROM bookings b
            WHERE [b] AND b.booking_number IS NOT NULL
              AND (b.status NOT IN ('pending', 'confirmed', 'cancelled')
                   OR (b.status = 'confirmed' AND b.confirmed_at IS NULL)
                   OR (b.status = 'pending' AND (b.confirmed_at IS NOT NULL OR b.expires_at IS NULL))
                   OR (b.status = 'cancelled') <> (b.cancelled_at IS NOT NULL)
                   OR (b.status = 'cancelled') <> (b.cancel_reason IS NOT NULL)
                   OR b.cancel_reason NOT IN ('admin', 'customer', 'min_participants', 'abandoned', 'api', 'agent')
                   OR (b.cancel_reason = 'abandoned' AND b.confirmed_at IS NOT NULL)
                   OR b.source NOT IN ('online', 'admin', 'agency', 'ai', 'api') OR b.source IS NULL)""",
    ),
    # One pass over the bookings.
    Check(
        "a booking is last changed no earlier than it is created, confirmed and cancelled",
        """SELECT b.organization_id, b.id, 'created at ' || b.created_at || ', confirmed at '
                  || coalesce('' || b.confirmed_at, 'none') || ', cancelled at '
                  || coalesce('' || b.cancelled_at, 'none') || ', changed at ' || b.updated_at
             FROM bookings b
            WHERE [b] AND b.booking_number IS NOT NULL
              AND (b.updated_at < b.created_at OR b.confirmed_at < b.created_at OR b.cancelled_at < b.created_at
                   OR b.cancelled_at < b.confirmed_at OR b.updated_at < b.confirmed_at
                   OR b.updated_at < b.cancelled_at)""",
    ),
    # One pass over each of these tables.
    Check(
        "no row is changed before it is created",
        "\nUNION ALL ".join(
            f"""SELECT x.organization_id, x.id, 'in {table}: created at ' || x.created_at || ', changed at '
                       || x.updated_at
                  FROM {table} x WHERE [x] AND x.updated_at < x.created_at"""
            for table in (
                "experiences",
                "departures",
                "customers",
                "gift_cards",
                "payments",
                "refunds",
                "webhook_endpoints",
                "deliveries",
            )
        ),
    ),
    # An index holds the pending bookings alone.
    Check(
        "a pending booking expires when its time to pay ends",
        """SELECT b.organization_id, b.id, 'pending since ' || b.created_at || ', until ' || b.expires_at
             FROM bookings b WHERE [b] AND b.status = 'pending' AND b.expires_at < :overdue""",
        remedy="check that a worker is running",
        needs_worker=True,
    ),
)

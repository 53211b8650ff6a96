"""The SQL of the floors. What the service does in many lines stands here once, as short as the answer allows.

Two kinds live here. The reads run against the service's own tables, with the statement one would write by hand, and
give the same JSON as the service (the bench compares the two answers before it measures). The booking runs against a
minimal schema of its own, and is one statement: it is what PostgreSQL can do, not what the service could do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from string import Template
from typing import Any
from zoneinfo import ZoneInfo

import orjson

FLOOR_SCHEMA = """
CREATE TABLE counter (
    org_id uuid PRIMARY KEY, booking_no bigint NOT NULL DEFAULT 0, event_seq bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE departure (
    org_id uuid NOT NULL, id uuid NOT NULL, starts_at timestamptz NOT NULL,
    seats_total int NOT NULL, seats_taken int NOT NULL DEFAULT 0,
    PRIMARY KEY (org_id, id), CHECK (seats_taken BETWEEN 0 AND seats_total)
) WITH (fillfactor = 50);
CREATE TABLE booking (
    org_id uuid NOT NULL, id uuid NOT NULL, number bigint NOT NULL, departure_id uuid NOT NULL, status text NOT NULL,
    customer_name text NOT NULL, customer_email text NOT NULL, seats int NOT NULL, total_minor bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, id), UNIQUE (org_id, number)
);
CREATE INDEX booking_listed ON booking (org_id, created_at, id);
CREATE TABLE booking_line (
    org_id uuid NOT NULL, booking_id uuid NOT NULL, position int NOT NULL, tier text NOT NULL, count int NOT NULL,
    unit_minor bigint NOT NULL, PRIMARY KEY (org_id, booking_id, position)
);
CREATE TABLE event (
    org_id uuid NOT NULL, seq bigint NOT NULL, id uuid NOT NULL, type text NOT NULL, resource_id uuid NOT NULL,
    body text NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, seq), UNIQUE (org_id, id)
);
CREATE TABLE idempotency (
    org_id uuid NOT NULL, key text NOT NULL, fingerprint text NOT NULL, status int NOT NULL, body text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (org_id, key)
);
"""
"""Fillfactor as a careful schema would set it for the rows that are updated all the time."""

FILL_FLOOR = """
INSERT INTO counter (org_id) SELECT ('00000000-0000-4000-8000-' || lpad(to_hex(o), 12, '0'))::uuid
  FROM generate_series(1, {organizations}) o;
INSERT INTO departure (org_id, id, starts_at, seats_total)
SELECT c.org_id, ('00000000-0000-4000-8000-' || lpad(to_hex(d), 12, '0'))::uuid, now() + interval '30 days', 100000000
  FROM counter c, generate_series(1, {departures}) d;
"""
"""Organizations and departures are numbered from 1, so that every driver can name them: see `numbered`."""

_BOOK = Template("""
WITH seat AS (
  UPDATE departure SET seats_taken = seats_taken + $seats
   WHERE org_id = $org AND id = $departure AND seats_taken + $seats <= seats_total
  RETURNING id),
counted AS (
  UPDATE counter SET booking_no = booking_no + 1, event_seq = event_seq + 2
   WHERE org_id = $org AND EXISTS (SELECT FROM seat)
  RETURNING booking_no, event_seq),
booked AS (
  INSERT INTO booking (org_id, id, number, departure_id, status, customer_name, customer_email, seats, total_minor)
  SELECT $org, $booking, booking_no, $departure, 'confirmed', $name, $email, $seats, $total FROM counted
  RETURNING id),
lines AS (
  INSERT INTO booking_line (org_id, booking_id, position, tier, count, unit_minor)
  SELECT $org, id, 1, 'adult', $seats, $total / $seats FROM booked),
told AS (
  INSERT INTO event (org_id, seq, id, type, resource_id, body)
  SELECT $org, event_seq - 1, $created, 'booking.created', id, $head || booking_no || $tail FROM counted, booked
  UNION ALL
  SELECT $org, event_seq, $confirmed, 'booking.confirmed', id, $head || booking_no || $tail FROM counted, booked)
INSERT INTO idempotency (org_id, key, fingerprint, status, body)
SELECT $org, $key, $fingerprint, 201, $head || booking_no || $tail FROM counted
RETURNING body
""")
"""One booking as one statement: seats guarded, number and event sequence dense, two events, the answer kept.

No row comes back when the seats do not suffice (409); a key seen before breaks the primary key of `idempotency` and
takes everything else with it.
"""

BOOK_ARGUMENTS = {
    "org": "uuid",
    "departure": "uuid",
    "seats": "int",
    "booking": "uuid",
    "name": "text",
    "email": "text",
    "total": "bigint",
    "created": "uuid",
    "confirmed": "uuid",
    "head": "text",
    "tail": "text",
    "key": "text",
    "fingerprint": "text",
}
"""The statement's parameters and their types, in the order the asyncpg variant passes them."""


def book_psycopg() -> str:
    return _BOOK.substitute({name: f"%({name})s::{kind}" for name, kind in BOOK_ARGUMENTS.items()})


def book_asyncpg() -> str:
    return _BOOK.substitute({name: f"${at}::{kind}" for at, (name, kind) in enumerate(BOOK_ARGUMENTS.items(), 1)})


def book_pgbench(organizations: int, departures: int) -> str:
    """The statement as a pgbench script: random organization and departure, ids made by the database."""
    values = {
        "org": numbered(":org"),
        "departure": numbered(":departure"),
        "seats": "1",
        "booking": "uuidv7()",
        "name": "'Ingrid Solheim'",
        "email": "'guest@example.com'",
        "total": "89000",
        "created": "uuidv7()",
        "confirmed": "uuidv7()",
        "head": f"'{'x' * 500}'",
        "tail": f"'{'y' * 500}'",
        "key": "uuidv4()::text",
        "fingerprint": f"'{'f' * 64}'",
    }
    statement = " ".join(_BOOK.substitute(values).split())
    return f"\\set org random(1, {organizations})\n\\set departure random(1, {departures})\n{statement};\n"


def numbered(number: str) -> str:
    """The SQL of the id of organization or departure `number`."""
    return f"('00000000-0000-4000-8000-' || lpad(to_hex({number}::bigint), 12, '0'))::uuid"


def numbered_id(number: int) -> str:
    """The id of organization or departure `number`, as `numbered` makes it."""
    return f"00000000-0000-4000-8000-{number:012x}"


Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A list as one would write it by hand: the statement, and what a row becomes."""

    sql: str
    item: Callable[[Row, ZoneInfo], dict[str, Any]]

    def page(self, rows: Sequence[Row], zone: str, limit: int | None = None) -> bytes:
        """The answer as JSON. The cursor, which only the service can sign, is left out."""
        where = _zone(zone)
        shown = rows if limit is None else rows[:limit]
        data = [self.item(row, where) for row in shown]
        return orjson.dumps({"data": data, "has_more": len(rows) > len(shown), "next_cursor": None})


_zone = lru_cache(ZoneInfo)


@lru_cache(100_000)
def _at(microseconds: int, zone: ZoneInfo) -> str:
    """The instant with the zone's offset. Remembered: the same page is asked for again and again, and what a service
    spends on its calendar is not to be hidden behind a slow floor."""
    return datetime.fromtimestamp(microseconds // 1_000_000, zone).isoformat()


def _money(minor: int | None, currency: str) -> dict[str, Any] | None:
    return None if minor is None else {"amount_minor": minor, "currency": currency}


def _booking(row: Row, zone: ZoneInfo) -> dict[str, Any]:
    id_, number, status, source, created, updated = row[:6]
    experience, title, slug, departure, starts, ends = row[6:12]
    name, email, phone, guests, add_ons, note = row[12:18]
    currency, subtotal, discount, gift_card, total, method, paid_by, paid = row[18:]
    return {
        "id": id_,
        "booking_number": number,
        "status": status,
        "source": source,
        "created_at": _at(created, zone),
        "updated_at": _at(updated, zone),
        "experience": {"id": experience, "title": title, "slug": slug},
        "departure": {"id": departure, "starts_at": _at(starts, zone), "ends_at": _at(ends, zone)},
        "customer": {"name": name, "email": email, "phone": phone},
        # Stored as the JSON that is answered: it goes through as it is.
        "guests": orjson.Fragment(guests),
        "add_ons": orjson.Fragment(add_ons),
        "totals": {
            "subtotal": _money(subtotal, currency),
            "discount": _money(discount, currency),
            "gift_card": _money(gift_card, currency),
            "total": _money(total, currency),
        },
        "payment": {"method": method, "source": paid_by, "status": paid},
        "note": note,
        "manage_url": None,
    }


_BOOKINGS = Template("""
SELECT b.id, b.booking_number, b.status, b.source, b.created_at, b.updated_at, e.id, e.title, e.slug,
       d.id, d.starts_at, coalesce(d.ends_at, d.starts_at + e.duration_minutes * 60000000::bigint),
       b.guest_name, b.guest_email, b.guest_phone, b.guests, b.add_ons, b.note,
       b.currency, b.subtotal_minor, b.discount_minor, b.gift_card_minor, b.total_minor,
       b.payment_method, b.payment_source, b.payment_status
  FROM (SELECT * FROM (SELECT * FROM bookings b WHERE b.organization_id = %(org)s $below
                        ORDER BY b.created_at DESC, b.id DESC LIMIT 101) few
         ORDER BY created_at DESC, id DESC LIMIT %(limit)s + 1) b
  JOIN departures d ON d.organization_id = b.organization_id AND d.id = b.departure_id
  JOIN experiences e ON e.organization_id = b.organization_id AND e.id = b.experience_id
 ORDER BY b.created_at DESC, b.id DESC
""")

# The first of the two limits is there for PostgreSQL's planner, as in the service: with one that it does not know it
# would plan each page anew, which takes as long as to read it.
BOOKINGS = Read(_BOOKINGS.substitute(below=""), _booking)
BOOKINGS_BEFORE = Read(
    _BOOKINGS.substitute(below="AND (b.created_at, b.id) < (%(before)s::bigint, %(id)s::uuid)"), _booking
)
"""The page below a booking, which is named by what the lists are ordered by."""


@lru_cache(10_000)
def _lowest_price(tiers: str, prices: str | None, single: int | None) -> int | None:
    """Return the price of the cheapest tier: the departure's own, else the tier's. Without tiers, the single price.

    Cached, as the service caches it: departures of an experience mostly share their prices.
    """
    own = orjson.loads(prices) if prices else {}
    amounts = [own.get(tier["id"], tier["price"]["amount_minor"]) for tier in orjson.loads(tiers)]
    return min(amounts, default=single)


def _departure(row: Row, zone: ZoneInfo) -> dict[str, Any]:
    id_, experience, starts, ends, seats_total, seats_available, tiers, prices, single, currency, closes, status = row
    return {
        "id": id_,
        "experience_id": experience,
        "starts_at": _at(starts, zone),
        "ends_at": _at(ends, zone),
        "seats_total": seats_total,
        "seats_available": seats_available,
        "price": _money(_lowest_price(tiers, prices, single), currency),
        "booking_closes_at": _at(closes, zone),
        "status": status,
    }


AVAILABILITY = Read(
    """
WITH clock AS (SELECT (extract(epoch FROM now()) * 1000000)::bigint AS now),
held AS (
  SELECT departure_id, sum(seats) AS seats FROM holds
   WHERE organization_id = %(org)s AND ended_at IS NULL AND expires_at > (SELECT now FROM clock)
   GROUP BY departure_id),
shown AS (
  SELECT d.id, d.experience_id, d.starts_at,
         coalesce(d.ends_at, d.starts_at + e.duration_minutes * 60000000::bigint) AS ends_at, d.seats_total,
         greatest(0, d.seats_total - d.seats_taken - coalesce(held.seats, 0))::int AS seats_available,
         e.price_tiers, d.prices, coalesce(d.price_minor, e.price_from_minor) AS single_price, e.currency,
         d.starts_at - coalesce(e.hours_before_booking_closes, o.hours_before_booking_closes) * 3600000000::bigint
           AS closes_at, d.status
    FROM departures d
    JOIN experiences e ON e.organization_id = d.organization_id AND e.id = d.experience_id
    JOIN organizations o ON o.id = d.organization_id
    LEFT JOIN held ON held.departure_id = d.id
   WHERE d.organization_id = %(org)s AND d.starts_at >= %(from)s AND d.starts_at < %(until)s)
SELECT id, experience_id, starts_at, ends_at, seats_total, seats_available, price_tiers, prices, single_price,
       currency, closes_at,
       CASE WHEN status = 'cancelled' THEN 'cancelled'
            WHEN status = 'closed' OR closes_at <= (SELECT now FROM clock) THEN 'closed'
            WHEN seats_available = 0 THEN 'sold_out' ELSE 'open' END
  FROM shown ORDER BY starts_at, id
""",
    _departure,
)

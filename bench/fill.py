"""Rows for the lists: an organization filled by the database itself, a hundred thousand bookings in seconds.

It writes into the service's own tables, with what a request would have written where a list shows it: bookings,
departures with their seats, experiences, customers, numbers. It leaves out what no list of these shows (events, mails,
answers kept for retries), so the organization is for reading only.
"""

from datetime import date

import psycopg
from sqlalchemy import create_engine

EXPERIENCES = 25
DEPARTURES = 5_000
FIRST_DAY = date(2031, 6, 1)
DAYS = 92
"""The filled departures lie in this many days from the first on."""

_ORGANIZATION = """
INSERT INTO organizations (id, slug, name, timezone, default_currency, created_at, updated_at)
VALUES (uuidv7(), %(slug)s, 'Filled', 'Europe/Oslo', 'NOK', 0, 0)
"""

_FILL = (
    """
INSERT INTO experiences (organization_id, id, slug, title, is_published, excerpt, duration_minutes, languages, tags,
                         currency, price_from_minor, price_tiers, add_ons, created_at, updated_at)
SELECT o.id, uuidv7(), 'filled-' || n, 'Filled tour number ' || n, true, 'A tour like many others.', 150,
       '["en","nb"]', '["water"]', 'NOK', 89000,
       '[{"id":"adult","name":"Adult","price":{"amount_minor":89000,"currency":"NOK"},"seats_per_unit":1}]', '[]', n, n
  FROM organizations o, generate_series(1, %(experiences)s) n WHERE o.slug = %(slug)s
""",
    """
INSERT INTO departures (organization_id, id, experience_id, starts_at, seats_total, seats_ceiling, seats_taken,
                        created_at, updated_at)
SELECT o.id, uuidv7(), e.id,
       (extract(epoch FROM %(first)s::timestamptz) + n::bigint * %(days)s * 86400 / (%(departures)s + 1))::bigint
         * 1000000,
       seats.taken + 12, seats.taken + 12, seats.taken, n, n
  FROM organizations o, generate_series(1, %(departures)s) n
  JOIN experiences e ON e.slug = 'filled-' || 1 + n %% %(experiences)s,
       LATERAL (SELECT 2 * (%(bookings)s / %(departures)s + (n <= %(bookings)s %% %(departures)s)::int) AS taken) seats
 WHERE o.slug = %(slug)s AND e.organization_id = o.id
""",
    """
INSERT INTO customers (organization_id, id, email, email_key, name, tags, email_subscription, created_at, updated_at)
SELECT o.id, uuidv7(), 'filled' || n || '@example.com', 'filled' || n || '@example.com', 'Guest ' || n, '[]', false,
       n, n
  FROM organizations o, generate_series(1, greatest(1, %(bookings)s / 10)) n WHERE o.slug = %(slug)s
""",
    """
INSERT INTO bookings (organization_id, id, booking_number, status, source, departure_id, experience_id, customer_id,
                      guest_name, guest_email, guest_phone, guests, add_ons, seats, currency, subtotal_minor,
                      total_minor, payment_method, payment_source, payment_status, note, send_confirmation_email,
                      notify_staff, confirmed_at, created_at, updated_at)
SELECT o.id, uuidv7(), n, 'confirmed', 'api', d.id, d.experience_id, c.id, c.name, c.email, '+4790000000',
       '[{"tier_id":"adult","tier_label":"Adult","count":2,"unit_price":{"amount_minor":89000,"currency":"NOK"}}]',
       '[]', 2, 'NOK', 178000, 178000, 'pay_on_site', 'on_site', 'unpaid',
       'Arrives by the early ferry, needs a large life vest.', true, true, made.at, made.at, made.at
  FROM organizations o, generate_series(1, %(bookings)s) n
  JOIN (SELECT *, created_at AS at FROM departures) d ON d.at = 1 + (n - 1) %% %(departures)s
  JOIN customers c ON c.created_at = 1 + n %% greatest(1, %(bookings)s / 10),
       LATERAL (SELECT (extract(epoch FROM now())::bigint - %(bookings)s + n) * 1000000 AS at) made
 WHERE o.slug = %(slug)s AND d.organization_id = o.id AND c.organization_id = o.id
 ORDER BY n
""",
    """
INSERT INTO counters (organization_id, last_booking_number)
SELECT id, %(bookings)s FROM organizations WHERE slug = %(slug)s
ON CONFLICT (organization_id) DO UPDATE SET last_booking_number = excluded.last_booking_number
""",
)


def create(url: str, slug: str) -> None:
    """Make the service's tables from their definition, and an empty organization, without the service."""
    from booking_core.db.tables import metadata

    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    metadata.create_all(engine)
    engine.dispose()
    with psycopg.connect(url) as connection:
        connection.execute(_ORGANIZATION, {"slug": slug})


def fill(url: str, slug: str, bookings: int) -> None:
    """Fill an existing, empty organization with 5,000 departures in 92 days and that many bookings of them."""
    arguments = {
        "slug": slug,
        "experiences": EXPERIENCES,
        "departures": DEPARTURES,
        "first": f"{FIRST_DAY} Europe/Oslo",
        "days": DAYS,
        "bookings": bookings,
    }
    # Literals instead of parameters: the statements run once, and untyped parameters would each need a cast.
    with psycopg.connect(url) as connection, psycopg.ClientCursor(connection) as cursor:
        for statement in _FILL:
            cursor.execute(statement, arguments)
            cursor.execute("ANALYZE")

-- The statements of floor_sql.py, for psycopg.

-- name: floor_schema
-- Create the tables of the floor's bookings. Fillfactor is set as for rows that are updated all the time.
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

-- name: fill_floor
-- Fill the floor's tables with organizations and departures, numbered from 1, so that every driver can name them.
INSERT INTO counter (org_id) SELECT ('00000000-0000-4000-8000-' || lpad(to_hex(o), 12, '0'))::uuid
  FROM generate_series(1, {organizations}) o;
INSERT INTO departure (org_id, id, starts_at, seats_total)
SELECT c.org_id, ('00000000-0000-4000-8000-' || lpad(to_hex(d), 12, '0'))::uuid, now() + interval '30 days', 100000000
  FROM counter c, generate_series(1, {departures}) d;

-- name: book
-- Write one booking: seats guarded, number and event sequence dense, two events, the answer kept. No row comes back
-- when the seats do not suffice (409); a known key breaks the primary key of idempotency and undoes all the rest.
WITH seat AS (
  UPDATE departure SET seats_taken = seats_taken + %(seats)s::int
   WHERE org_id = %(org)s::uuid AND id = %(departure)s::uuid AND seats_taken + %(seats)s::int <= seats_total
  RETURNING id),
counted AS (
  UPDATE counter SET booking_no = booking_no + 1, event_seq = event_seq + 2
   WHERE org_id = %(org)s::uuid AND EXISTS (SELECT FROM seat)
  RETURNING booking_no, event_seq),
booked AS (
  INSERT INTO booking (org_id, id, number, departure_id, status, customer_name, customer_email, seats, total_minor)
  SELECT %(org)s::uuid, %(booking)s::uuid, booking_no, %(departure)s::uuid, 'confirmed', %(name)s::text, %(email)s::text, %(seats)s::int, %(total)s::bigint FROM counted
  RETURNING id),
lines AS (
  INSERT INTO booking_line (org_id, booking_id, position, tier, count, unit_minor)
  SELECT %(org)s::uuid, id, 1, 'adult', %(seats)s::int, %(total)s::bigint / %(seats)s::int FROM booked),
published AS (
  INSERT INTO event (org_id, seq, id, type, resource_id, body)
  SELECT %(org)s::uuid, event_seq - 1, %(created)s::uuid, 'booking.created', id, %(head)s::text || booking_no || %(tail)s::text FROM counted, booked
  UNION ALL
  SELECT %(org)s::uuid, event_seq, %(confirmed)s::uuid, 'booking.confirmed', id, %(head)s::text || booking_no || %(tail)s::text FROM counted, booked)
INSERT INTO idempotency (org_id, key, fingerprint, status, body)
SELECT %(org)s::uuid, %(key)s::text, %(fingerprint)s::text, 201, %(head)s::text || booking_no || %(tail)s::text FROM counted
RETURNING body

-- name: bookings
-- Select a page of an organization's bookings, the newest first. The first of the two limits is there for PostgreSQL's
-- planner, as in the service: with an unknown limit it would plan each page again, which takes as long as to read it.
SELECT b.id, b.booking_number, b.status, b.source, b.created_at, b.updated_at, e.id, e.title, e.slug,
       d.id, d.starts_at, coalesce(d.ends_at, d.starts_at + e.duration_minutes * 60000000::bigint),
       b.guest_name, b.guest_email, b.guest_phone, b.guests, b.add_ons, b.note,
       b.currency, b.subtotal_minor, b.discount_minor, b.gift_card_minor, b.total_minor,
       b.payment_method, b.payment_source, b.payment_status, b.checked_in_at, b.no_show_at,
       b.external_reference, b.metadata, b.locale,
       o.refund_full_until_hours, o.refund_late_percent, o.guest_cancel_until_hours, b.recorded_minor, p.amount_minor, p.refunded_minor,
       EXISTS (SELECT FROM refunds r WHERE r.organization_id = b.organization_id AND r.booking_id = b.id)
  FROM (SELECT * FROM (SELECT * FROM bookings b WHERE b.organization_id = %(org)s
                        ORDER BY b.created_at DESC, b.id DESC LIMIT 101) few
         ORDER BY created_at DESC, id DESC LIMIT %(limit)s::int + 1) b
  JOIN departures d ON d.organization_id = b.organization_id AND d.id = b.departure_id
  JOIN experiences e ON e.organization_id = b.organization_id AND e.id = b.experience_id
  JOIN organizations o ON o.id = b.organization_id
  LEFT JOIN payments p ON p.organization_id = b.organization_id AND p.booking_id = b.id
 ORDER BY b.created_at DESC, b.id DESC

-- name: availability
-- Select an organization's departures with the seats that are left, by their start.
WITH clock AS (SELECT (extract(epoch FROM now()) * 1000000)::bigint AS now),
held AS (
  SELECT departure_id, sum(seats) AS seats FROM holds
   WHERE organization_id = %(org)s AND ended_at IS NULL AND expires_at > (SELECT now FROM clock)
   GROUP BY departure_id),
shown AS (
  SELECT d.id, d.experience_id, d.starts_at,
         coalesce(d.ends_at, d.starts_at + e.duration_minutes * 60000000::bigint) AS ends_at, d.seats_total,
         greatest(0, d.seats_total - d.seats_taken - coalesce(held.seats, 0))::int AS seats_available,
         e.price_tiers, d.prices, e.price_from_minor, e.currency,
         d.starts_at - coalesce(e.hours_before_booking_closes, o.hours_before_booking_closes) * 3600000000::bigint
           AS closes_at, d.status
    FROM departures d
    JOIN experiences e ON e.organization_id = d.organization_id AND e.id = d.experience_id
    JOIN organizations o ON o.id = d.organization_id
    LEFT JOIN held ON held.departure_id = d.id
   WHERE d.organization_id = %(org)s AND d.starts_at >= %(from)s::bigint AND d.starts_at < %(until)s::bigint)
SELECT id, experience_id, starts_at, ends_at, seats_total, seats_available, price_tiers, prices,
       price_from_minor, currency, closes_at,
       CASE WHEN status = 'cancelled' THEN 'cancelled'
            WHEN status = 'closed' OR closes_at <= (SELECT now FROM clock) THEN 'closed'
            WHEN seats_available = 0 THEN 'sold_out' ELSE 'open' END
  FROM shown ORDER BY starts_at, id

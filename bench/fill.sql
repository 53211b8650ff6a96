-- The statements of fill.py, for PostgreSQL: the rows of bookings by staff who suppressed the mails, as far as the lists
-- show them.

-- name: departures (postgresql)
-- Insert departures at equal distances, each of an experience in turn.
INSERT INTO departures (organization_id, id, experience_id, starts_at, seats_total, seats_ceiling, seats_taken,
                        created_at, updated_at)
SELECT :organization, gen_random_uuid(), experiences.ids[1 + n % array_length(experiences.ids, 1)],
       CAST(:first AS bigint) + n * CAST(:step AS bigint), 20, 20, 8, :now, :now
  FROM generate_series(0, CAST(:count AS int) - 1) n,
       (SELECT array_agg(id) AS ids FROM experiences WHERE organization_id = :organization) experiences

-- name: customers (postgresql)
-- Insert customers, each with an address of their own.
INSERT INTO customers (organization_id, id, email, email_key, name, tags, email_subscription, created_at, updated_at)
SELECT :organization, gen_random_uuid(), 'filled' || n || '@example.com', 'filled' || n || '@example.com',
       'Guest ' || n, '[]', false, :now, :now
  FROM generate_series(1, CAST(:count AS int)) n

-- name: bookings (postgresql)
-- Insert bookings of two adults, a second apart. Ids begin with the time, as the service makes them.
INSERT INTO bookings (organization_id, id, booking_number, status, source, departure_id, experience_id, customer_id,
                      guest_name, guest_email, guest_phone, guests, add_ons, seats, currency, subtotal_minor,
                      total_minor, payment_method, payment_source, payment_status, note, send_confirmation_email,
                      notify_staff, confirmed_at, created_at, updated_at)
SELECT :organization, CAST('0190f3e2-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid), n, 'confirmed', 'admin',
       departures.id, departures.experience_id, customers.id, customers.name, customers.email, '+4790000000',
       :guests, '[]', 2, 'NOK', 178000, 178000, 'pay_on_site', 'on_site', 'unpaid', :note, false, false,
       created.at, created.at, created.at
  FROM generate_series(CAST(:first AS int), CAST(:last AS int)) n
  CROSS JOIN LATERAL (SELECT CAST(:start AS bigint) + n * 1000000::bigint AS at) created
  JOIN (SELECT d.*, row_number() OVER () AS place, count(*) OVER () AS rows FROM departures d
         WHERE organization_id = :organization) departures ON departures.place = 1 + n % departures.rows
  JOIN (SELECT c.*, row_number() OVER () AS place, count(*) OVER () AS rows FROM customers c
         WHERE organization_id = :organization) customers ON customers.place = 1 + n % customers.rows

-- name: counters (postgresql)
-- Set the number of the last booking.
UPDATE counters SET last_booking_number = :count WHERE organization_id = :organization

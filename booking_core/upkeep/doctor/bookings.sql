-- Checks of seats, booking numbers, totals and the status of bookings, and of their guests: their seats, their
-- customer, and the erasure of their data. A booking without a number is a legacy row, to which other rules applied.
-- `[b]` stands for the condition that the row of the alias b belongs to the organization that is checked.

-- name: seats_taken
-- Select departures whose seats_taken is not the seats of their bookings.
-- Cost: one pass over the bookings, grouped by departure.
-- check: seats taken are the seats of pending and confirmed bookings
-- remedy: set seats_taken of the departure to the seats of its pending and confirmed bookings
SELECT d.organization_id, d.id AS subject,
       'seats_taken is ' || d.seats_taken || ', bookings hold ' || coalesce(s.seats, 0) AS message
  FROM departures d
  LEFT JOIN (SELECT b.organization_id, b.departure_id, sum(b.seats) AS seats FROM bookings b
              WHERE [b] AND b.status IN ('pending', 'confirmed')
              GROUP BY b.organization_id, b.departure_id) s
    ON s.organization_id = d.organization_id AND s.departure_id = d.id
 WHERE [d] AND d.seats_taken <> coalesce(s.seats, 0)

-- name: oversold_departures
-- Select departures with more seats taken than their highest capacity.
-- Cost: one pass over the departures.
-- check: no departure is sold beyond its highest capacity
SELECT d.organization_id, d.id, d.seats_taken || ' taken, ceiling ' || d.seats_ceiling || ', total '
       || d.seats_total
  FROM departures d
 WHERE [d] AND (d.seats_taken > d.seats_ceiling OR d.seats_taken < 0 OR d.seats_ceiling < d.seats_total)

-- name: holds
-- Select holds without seats, or that end before they began.
-- Cost: one pass over the holds.
-- check: a hold has seats, and ends after it began
SELECT h.organization_id, h.id, h.seats || ' seats from ' || h.created_at || ' until ' || h.expires_at
  FROM holds h
 WHERE [h] AND (h.seats <= 0 OR h.expires_at < h.created_at OR h.ended_at < h.created_at)

-- name: booked_holds
-- Select holds whose booking does not exist, or that share it with another hold, or that a booking took and did not end.
-- Cost: one pass over the holds, with a look-up of its booking for each that has one.
-- check: a hold that was booked has ended, and its booking exists and took no other
SELECT h.organization_id, h.id, 'is booked by ' || h.booking_id || CASE
       WHEN h.ended_at IS NULL THEN ', and keeps its seats'
       WHEN b.id IS NULL THEN ', which does not exist'
       ELSE ', as is another hold' END
  FROM holds h
  LEFT JOIN bookings b ON b.organization_id = h.organization_id AND b.id = h.booking_id
 WHERE [h] AND h.booking_id IS NOT NULL
   AND (h.ended_at IS NULL OR b.id IS NULL
        OR EXISTS (SELECT 1 FROM holds o WHERE o.organization_id = h.organization_id AND o.booking_id = h.booking_id
                      AND o.id <> h.id))

-- name: overbooked_holds
-- Select departures whose live holds keep more seats than were left when the newest of them began, or when the last
-- booking was made.
-- Cost: one pass over the live holds, grouped by departure, with a look-up of the bookings of each departure that is
-- found. A departure that was changed since by anything but a booking without a hold is left out: staff may have lowered
-- its seats.
-- check: live holds keep no more seats than were left for them
-- remedy: release holds of the departure with `booking storefront release`
SELECT d.organization_id, d.id, d.seats_taken || ' taken and ' || h.seats || ' held, ceiling ' || d.seats_ceiling
  FROM (SELECT h.organization_id, h.departure_id, sum(h.seats) AS seats, max(h.created_at) AS newest FROM holds h
         WHERE [h] AND h.ended_at IS NULL AND h.expires_at > :at
         GROUP BY h.organization_id, h.departure_id) h
  JOIN departures d ON d.organization_id = h.organization_id AND d.id = h.departure_id
 WHERE d.seats_taken <= d.seats_ceiling AND d.seats_taken + h.seats > d.seats_ceiling
   AND (d.updated_at + :skew < h.newest
        OR EXISTS (SELECT 1 FROM bookings b
                    WHERE b.organization_id = d.organization_id AND b.departure_id = d.id
                      AND b.created_at = d.updated_at
                      AND NOT EXISTS (SELECT 1 FROM holds o
                                       WHERE o.organization_id = b.organization_id AND o.booking_id = b.id)))

-- name: booking_numbers
-- Select organizations whose booking numbers have gaps, or do not end at the counter.
-- Cost: one pass over the index of booking numbers.
-- check: booking numbers are 1 to n without a gap, and n is the counter
-- remedy: never lower a counter: raise it to the highest number, and accept the gap
SELECT c.organization_id, 'bookings', 'counter ' || c.last_booking_number || ', highest '
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
                OR c.last_booking_number <> coalesce(n.highest, 0) OR n.lowest <> 1)

-- name: missing_counters
-- Select organizations without a row of counters.
-- Cost: one pass over the organizations.
-- check: every organization has its counters
SELECT o.id, 'counters', 'there is no row' FROM (SELECT id AS organization_id, id FROM organizations) o
 WHERE [o] AND NOT EXISTS (SELECT 1 FROM counters c WHERE c.organization_id = o.id)

-- name: order_of_numbers
-- Select bookings numbered in another order than that of their created events.
-- Cost: a look-up of its first event for each booking, and one sort of them.
-- check: booking numbers follow the order of the booking.created events
SELECT t.organization_id, t.id, 'number ' || t.booking_number || ' has event ' || t.sequence
       || ', the number before it event ' || t.earlier
  FROM (SELECT b.organization_id, b.id, b.booking_number, e.sequence,
               lag(e.sequence) OVER (PARTITION BY b.organization_id ORDER BY b.booking_number) AS earlier
          FROM bookings b
          JOIN events e ON e.organization_id = b.organization_id AND e.resource_id = b.id
           AND e.type = 'booking.created' AND e.occurrence = 0
         WHERE [b] AND b.booking_number IS NOT NULL) t
 WHERE t.sequence < t.earlier

-- name: totals
-- Select bookings whose total is not subtotal less discount and gift card.
-- Cost: one pass over the bookings.
-- check: totals add up
SELECT b.organization_id, b.id, 'total ' || b.total_minor || ' minor ' || b.currency || ' of subtotal '
       || b.subtotal_minor || ' minor ' || b.currency || ', discount ' || b.discount_minor || ' minor ' || b.currency
       || ', gift card ' || b.gift_card_minor || ' minor ' || b.currency
  FROM bookings b
 WHERE [b] AND (b.total_minor <> b.subtotal_minor - b.discount_minor - b.gift_card_minor
                OR b.total_minor < 0 OR b.discount_minor < 0 OR b.gift_card_minor < 0)

-- name: lines
-- Select the lines and the subtotal of each booking of an organization.
-- Cost: every booking is read.
-- check: a subtotal is the sum of its lines, in one currency
-- rows: b.id
SELECT b.id, b.id, b.booking_number, b.guests, b.add_ons, b.subtotal_minor, b.currency
  FROM bookings b WHERE b.organization_id = :organization_id

-- name: experiences
-- Select bookings of another experience than that of their departure.
-- Cost: a look-up of its departure for each booking.
-- check: a booking has the experience of its departure
SELECT b.organization_id, b.id, 'the departure is not of experience ' || b.experience_id
  FROM bookings b
  LEFT JOIN departures d ON d.organization_id = b.organization_id AND d.id = b.departure_id
 WHERE [b] AND (d.id IS NULL OR d.experience_id <> b.experience_id)

-- name: statuses
-- Select bookings whose status contradicts their timestamps or their reason.
-- Cost: one pass over the bookings.
-- check: a booking's status agrees with its timestamps
SELECT b.organization_id, b.id, b.status || ', confirmed_at ' || coalesce('' || b.confirmed_at, 'none')
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
        OR b.source NOT IN ('online', 'admin', 'agency', 'ai', 'api') OR b.source IS NULL)

-- name: order_of_changes
-- Select bookings whose timestamps are out of order.
-- Cost: one pass over the bookings.
-- check: a booking is last changed no earlier than it is created, confirmed and cancelled
SELECT b.organization_id, b.id, 'created at ' || b.created_at || ', confirmed at '
       || coalesce('' || b.confirmed_at, 'none') || ', cancelled at '
       || coalesce('' || b.cancelled_at, 'none') || ', changed at ' || b.updated_at
  FROM bookings b
 WHERE [b] AND b.booking_number IS NOT NULL
   AND (b.updated_at < b.created_at OR b.confirmed_at < b.created_at OR b.cancelled_at < b.created_at
        OR b.cancelled_at < b.confirmed_at OR b.updated_at < b.confirmed_at
        OR b.updated_at < b.cancelled_at)

-- name: attendance
-- Select bookings that are both checked in and a no-show, or either without having been confirmed, or before that.
-- Cost: one pass over the bookings.
-- check: a booking that is checked in or a no-show was confirmed, and is not both
SELECT b.organization_id, b.id, b.status || ', checked in at ' || coalesce('' || b.checked_in_at, 'none')
       || ', no-show at ' || coalesce('' || b.no_show_at, 'none')
  FROM bookings b
 WHERE [b] AND ((b.checked_in_at IS NOT NULL AND b.no_show_at IS NOT NULL)
                OR ((b.checked_in_at IS NOT NULL OR b.no_show_at IS NOT NULL)
                    AND b.confirmed_at IS NULL AND b.booking_number IS NOT NULL)
                OR b.checked_in_at < b.confirmed_at OR b.no_show_at < b.confirmed_at
                OR b.updated_at < b.checked_in_at OR b.updated_at < b.no_show_at)

-- name: early_changes
-- Select rows that were changed before they were created.
-- Cost: one pass over each of these tables.
-- check: no row is changed before it is created
SELECT t.organization_id, t.id, 'in ' || t.name || ': created at ' || t.created_at || ', changed at ' || t.updated_at
  FROM (SELECT 'experiences' AS name, x.organization_id, x.id, x.created_at, x.updated_at FROM experiences x WHERE [x]
        UNION ALL SELECT 'departures', x.organization_id, x.id, x.created_at, x.updated_at FROM departures x WHERE [x]
        UNION ALL SELECT 'customers', x.organization_id, x.id, x.created_at, x.updated_at FROM customers x WHERE [x]
        UNION ALL SELECT 'gift_cards', x.organization_id, x.id, x.created_at, x.updated_at FROM gift_cards x WHERE [x]
        UNION ALL SELECT 'payments', x.organization_id, x.id, x.created_at, x.updated_at FROM payments x WHERE [x]
        UNION ALL SELECT 'refunds', x.organization_id, x.id, x.created_at, x.updated_at FROM refunds x WHERE [x]
        UNION ALL SELECT 'webhook_endpoints', x.organization_id, x.id, x.created_at, x.updated_at
                    FROM webhook_endpoints x WHERE [x]
        UNION ALL SELECT 'deliveries', x.organization_id, x.id, x.created_at, x.updated_at FROM deliveries x WHERE [x]) t
 WHERE t.updated_at < t.created_at

-- name: overdue_bookings
-- Select pending bookings whose time to pay ended before the limit.
-- Cost: an index holds the pending bookings alone.
-- check: a pending booking expires when its time to pay ends
-- waits for: worker
-- remedy: check that a worker is running
SELECT b.organization_id, b.id, 'pending since ' || b.created_at || ', until ' || b.expires_at
  FROM bookings b WHERE [b] AND b.status = 'pending' AND b.expires_at < :overdue

-- name: seats
-- Select each booking's seats and guests, and the price tiers of its sale where they are known.
-- Cost: every booking is read, with a look-up of its experience and of a move for each. Tiers are compared only if
-- they are those of the sale: neither the experience nor the booking was changed since.
-- check: a booking takes the seats of its guests
-- rows: b.id
SELECT b.id, b.id, b.seats, b.guests, e.price_tiers
  FROM bookings b
  LEFT JOIN experiences e ON e.organization_id = b.organization_id AND e.id = b.experience_id
   AND e.updated_at + :skew < b.created_at AND b.updated_at IN (b.created_at, b.confirmed_at)
   AND NOT EXISTS (SELECT 1 FROM events v WHERE v.organization_id = b.organization_id
                      AND v.resource_id = b.id AND v.type = 'booking.rescheduled')
 WHERE b.organization_id = :organization_id AND b.booking_number IS NOT NULL

-- name: addresses
-- Select bookings whose guest may have another address than their customer.
-- Cost: a look-up of its customer for each booking, and of the customer's changes, and of the customer who has the
-- guest's address, where the addresses look different. A customer that was changed since may have another address now,
-- unless another customer has had the guest's address since before the booking. Bookings whose guest was given another
-- address are left out.
-- check: a booking's customer has the e-mail address of its guest
-- rows: b.id
SELECT b.id, b.id, b.customer_id, b.guest_email, u.email_key
  FROM bookings b
  JOIN customers u ON u.organization_id = b.organization_id AND u.id = b.customer_id
 WHERE b.organization_id = :organization_id AND b.booking_number IS NOT NULL AND b.email_changes = 0
   AND b.guest_email IS NOT NULL AND lower(b.guest_email) <> u.email_key
   AND (EXISTS (SELECT 1 FROM customers c
                 WHERE c.organization_id = b.organization_id AND c.email_key = lower(b.guest_email)
                   AND c.updated_at + :skew <= b.created_at)
        OR (u.updated_at <= b.created_at
            AND NOT EXISTS (SELECT 1 FROM events v WHERE v.organization_id = b.organization_id
                               AND v.resource_id = u.id AND v.type = 'customer.updated'
                               AND v.created_at >= b.created_at)))

-- name: bookings_without_timeline
-- Select bookings whose creation is not in the timeline of their customer.
-- Cost: a look-up along the primary key of the timeline for each booking.
-- check: the creation of a booking is in the timeline of its customer
SELECT b.organization_id, b.id, 'the timeline of its customer ' || b.customer_id || ' has no entry of its creation'
  FROM bookings b
 WHERE [b] AND b.booking_number IS NOT NULL AND b.customer_id IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM timeline t
                    WHERE t.organization_id = b.organization_id AND t.customer_id = b.customer_id
                      AND t.created_at = b.created_at AND t.booking_id = b.id)

-- name: unfinished_erasures
-- Select erasures that were requested, and with which no worker has made progress since the limit.
-- Cost: an index holds the unfinished erasures.
-- check: the data of an anonymized customer is replaced by the worker
-- waits for: worker
-- remedy: check that a worker is running; booking customers anonymize {subject} --org {org} says how far it is
SELECT x.organization_id, x.customer_id, 'requested at ' || x.requested_at || ', at the step ' || x.step || ' since '
       || x.progressed_at
  FROM erasures x WHERE [x] AND x.finished_at IS NULL AND x.progressed_at < :overdue

-- name: unerased_bookings
-- Select bookings of anonymized customers that still have personal data, though the erasure is finished.
-- Cost: a look-up of its booking for each timeline entry of an anonymized customer.
-- check: a booking of an anonymized customer has no personal data
SELECT DISTINCT x.organization_id, b.id, 'its customer ' || x.customer_id || ' is anonymized, the booking is not'
  FROM erasures x
  JOIN timeline t ON t.organization_id = x.organization_id AND t.customer_id = x.customer_id
  JOIN bookings b ON b.organization_id = t.organization_id AND b.id = t.booking_id AND b.customer_id = x.customer_id
 WHERE [x] AND x.finished_at IS NOT NULL
   AND (b.guest_email IS NOT NULL OR b.guest_phone IS NOT NULL OR b.note IS NOT NULL OR b.cancel_note IS NOT NULL
        OR b.external_reference IS NOT NULL OR b.metadata IS NOT NULL OR b.manage_key_id IS NOT NULL)

-- name: customers_without_erasure
-- Select anonymized customers whose data elsewhere is not replaced by any erasure.
-- Cost: one pass over the customers.
-- check: an anonymized customer has an erasure
SELECT u.organization_id, u.id, 'it is anonymized, and there is no erasure' FROM customers u
 WHERE [u] AND u.anonymized_at IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM erasures x
                    WHERE x.organization_id = u.organization_id AND x.customer_id = u.id)

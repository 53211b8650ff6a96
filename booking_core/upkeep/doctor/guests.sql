-- The statements of guests.py.

-- name: seats
-- Select each booking's seats and guests, and the price tiers of its sale where they are known.
-- Cost: every booking is read, with a look-up of its experience and of a move for each. Tiers are compared only if
-- they are those of the sale: neither the experience nor the booking was changed since.
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
-- unless another customer has had the guest's address since before the booking; the guest's address is never changed.
SELECT b.id, b.id, b.customer_id, b.guest_email, u.email_key
  FROM bookings b
  JOIN customers u ON u.organization_id = b.organization_id AND u.id = b.customer_id
 WHERE b.organization_id = :organization_id AND b.booking_number IS NOT NULL
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
SELECT b.organization_id, b.id, 'the timeline of its customer ' || b.customer_id || ' has no entry of its creation'
  FROM bookings b
 WHERE [b] AND b.booking_number IS NOT NULL AND b.customer_id IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM timeline t
                    WHERE t.organization_id = b.organization_id AND t.customer_id = b.customer_id
                      AND t.created_at = b.created_at AND t.booking_id = b.id)

-- name: unfinished_erasures
-- Select erasures that were requested, and with which no worker has made progress since the limit.
-- Cost: an index holds the unfinished erasures.
SELECT x.organization_id, x.customer_id, 'requested at ' || x.requested_at || ', at the step ' || x.step || ' since '
       || x.progressed_at
  FROM erasures x WHERE [x] AND x.finished_at IS NULL AND x.progressed_at < :overdue

-- name: unerased_bookings
-- Select bookings of anonymized customers that still have personal data, though the erasure is finished.
-- Cost: a look-up of its booking for each timeline entry of an anonymized customer.
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
SELECT u.organization_id, u.id, 'it is anonymized, and there is no erasure' FROM customers u
 WHERE [u] AND u.anonymized_at IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM erasures x
                    WHERE x.organization_id = u.organization_id AND x.customer_id = u.id)

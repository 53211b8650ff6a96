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
-- Cost: a look-up of its customer for each booking, and of the customer's changes where the addresses look
-- different. A customer that was changed since may have another address now; the guest's address is never changed.
SELECT b.id, b.id, b.customer_id, b.guest_email, u.email_key
  FROM bookings b
  JOIN customers u ON u.organization_id = b.organization_id AND u.id = b.customer_id
 WHERE b.organization_id = :organization_id AND b.booking_number IS NOT NULL
   AND b.guest_email IS NOT NULL AND lower(b.guest_email) <> u.email_key AND u.updated_at <= b.created_at
   AND NOT EXISTS (SELECT 1 FROM events v WHERE v.organization_id = b.organization_id
                      AND v.resource_id = u.id AND v.type = 'customer.updated'
                      AND v.created_at >= b.created_at)

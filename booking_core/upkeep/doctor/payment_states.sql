-- The statements of payment_states.py.
-- `[b]` stands for the condition that the row of the alias b belongs to the organization that is checked.

-- name: payment_states
-- Select bookings whose payment status does not fit their payment method. What is paid on site, or by invoice, is paid
-- once staff has recorded all of it.
-- Cost: one pass over the bookings, with a look-up for each that is not cancelled and refunded.
SELECT b.organization_id, b.id, b.status || ', paid by ' || b.payment_method || ' (' || b.payment_source
       || '), ' || b.payment_status || ', recorded ' || b.recorded_minor || ' minor ' || b.currency
       || ', total ' || b.total_minor || ' minor ' || b.currency || CASE WHEN b.invoice_due
       THEN ', invoice due' ELSE '' END
  FROM bookings b
 WHERE [b] AND b.booking_number IS NOT NULL
   AND (b.payment_method NOT IN ('card', 'pay_on_site', 'invoice', 'external_paid', 'gift_card', 'free')
        OR b.payment_source <> CASE b.payment_method WHEN 'card' THEN 'stripe'
                                    WHEN 'pay_on_site' THEN 'on_site' ELSE 'external' END
        OR CASE WHEN b.payment_method = 'card'
                THEN b.payment_status NOT IN ('pending', 'paid', 'failed', 'partially_refunded', 'refunded')
                WHEN b.payment_method IN ('pay_on_site', 'invoice')
                THEN b.payment_status NOT IN ('unpaid', 'paid', 'partially_refunded', 'refunded')
                ELSE b.payment_status <> 'paid' END
        OR (b.payment_method IN ('pay_on_site', 'invoice') AND b.payment_status = 'paid'
            AND b.recorded_minor < b.total_minor)
        OR (b.status <> 'cancelled' AND b.payment_status = 'failed')
        OR (b.status <> 'cancelled' AND b.payment_status IN ('partially_refunded', 'refunded')
            AND NOT EXISTS (SELECT 1 FROM payment_intents i
                             WHERE i.organization_id = b.organization_id AND i.booking_id = b.id
                               AND i.returned_minor > 0))
        OR (b.status = 'cancelled' AND b.payment_status = 'pending')
        OR (b.status = 'pending' AND (b.payment_method <> 'card' OR b.payment_status <> 'pending'))
        OR (b.total_minor > 0 AND b.payment_method IN ('gift_card', 'free'))
        OR (b.total_minor = 0 AND b.payment_method NOT IN ('gift_card', 'free')
            AND NOT EXISTS (SELECT 1 FROM payments p  -- of which a change of party released all
                             WHERE p.organization_id = b.organization_id AND p.booking_id = b.id))
        OR (b.payment_method = 'gift_card' AND b.gift_card_minor = 0)
        OR (b.payment_method = 'free' AND b.gift_card_minor > 0)
        OR (b.invoice_due AND (b.payment_method <> 'invoice' OR b.payment_status = 'paid'))
        OR (b.on_site_fee_minor <> 0 AND b.payment_method <> 'pay_on_site'))

-- name: shared_intents
-- Select payment intents that pay for more than one booking.
-- Cost: one pass over the payments, and one sort of them.
SELECT p.organization_id, min('' || p.booking_id), count(*) || ' bookings are paid by one payment intent, '
       || 'the last of them is ' || max('' || p.booking_id)
  FROM payments p WHERE [p] AND p.payment_intent IS NOT NULL
 GROUP BY p.organization_id, p.payment_intent HAVING count(*) > 1

-- name: timeline_without_payment
-- Select timeline entries about a refund or a payment that does not exist.
-- Cost: one pass over the timeline, with a look-up for each of its entries about money.
SELECT t.organization_id, '' || t.booking_id, 'the timeline says ' || min(t.kind)
       || ', and the booking has no refund'
  FROM timeline t
 WHERE [t] AND t.booking_id IS NOT NULL AND t.kind LIKE 'refund_%'
   AND NOT EXISTS (SELECT 1 FROM refunds r
                    WHERE r.organization_id = t.organization_id AND r.booking_id = t.booking_id)
 GROUP BY t.organization_id, t.booking_id
UNION ALL
SELECT t.organization_id, '' || t.booking_id, 'the timeline says ' || t.kind || ', the payment is '
       || coalesce(p.status, 'gone')
  FROM timeline t
  LEFT JOIN payments p ON p.organization_id = t.organization_id AND p.booking_id = t.booking_id
 WHERE [t] AND t.booking_id IS NOT NULL AND t.kind = 'payment_received'
   AND (p.id IS NULL OR p.status IN ('pending', 'failed'))

-- name: lost_refunds
-- Select cancelled bookings without the refund that the policy requires.
-- Cost: one pass over the payments of cancelled bookings that are paid and have no refund, with a look-up for each
-- of its timeline entry, policy and departure. Left out are bookings whose policy or start may have changed since,
-- bookings whose refund staff declined (by the timeline entry), and amounts too small for a refund by the gateway.
SELECT b.organization_id, b.id, 'cancelled at ' || b.cancelled_at || ' (' || b.cancel_reason || '), '
       || p.amount_minor || ' minor ' || p.currency || ' was paid, and no refund is queued'
  FROM payments p
  JOIN bookings b ON b.organization_id = p.organization_id AND b.id = p.booking_id
  JOIN organizations o ON o.id = p.organization_id
  LEFT JOIN departures d ON d.organization_id = b.organization_id AND d.id = b.departure_id
  LEFT JOIN experiences e ON e.organization_id = b.organization_id AND e.id = b.experience_id
 WHERE [p] AND p.status IN ('paid', 'unpaid') AND p.amount_minor >= 100 AND b.status = 'cancelled'
   AND NOT EXISTS (SELECT 1 FROM refunds r
                    WHERE r.organization_id = p.organization_id AND r.booking_id = p.booking_id AND r.number = 0)
   AND (b.cancel_reason = 'abandoned'  -- the payment arrived later, and is refunded in full
        OR EXISTS (SELECT 1 FROM timeline t
                    WHERE t.organization_id = b.organization_id AND t.customer_id = b.customer_id
                      AND t.created_at = b.cancelled_at AND t.booking_id = b.id
                      AND t.kind = 'booking_cancelled'
                      AND (t.data LIKE '%"refund":"full"%' OR (t.data LIKE '%"refund":"auto"%'
                           AND o.updated_at + :skew < b.cancelled_at
                           AND b.manage_expires_at = coalesce(d.ends_at, d.starts_at
                               + coalesce(CAST(e.duration_minutes AS BIGINT), 0) * 60000000)
                           AND (b.cancelled_at <= d.starts_at
                                - CAST(o.refund_full_until_hours AS BIGINT) * 3600000000
                                OR p.amount_minor / 100 * o.refund_late_percent >= 100)))))

-- name: intents_without_payment
-- Select payment intents whose state contradicts their booking or its payment.
-- Cost: one pass over the intents, with a look-up of its booking and payment for each.
SELECT i.organization_id, i.booking_id, 'the intent ' || coalesce(i.intent_id, 'without an id') || ' is ' || i.status
       || ', the payment is ' || coalesce(p.status, 'gone') || ' by ' || coalesce(p.payment_intent, 'no intent')
       || ', the booking is ' || coalesce(b.status, 'gone')
  FROM payment_intents i
  LEFT JOIN bookings b ON b.organization_id = i.organization_id AND b.id = i.booking_id
  LEFT JOIN payments p ON p.organization_id = i.organization_id AND p.booking_id = i.booking_id
 WHERE [i] AND (b.id IS NULL OR (i.status IN ('requested', 'open', 'succeeded') AND p.id IS NULL)
                OR (i.status = 'succeeded' AND (p.status IN ('pending', 'failed') OR b.status = 'pending'
                                                OR coalesce(p.payment_intent, '') <> coalesce(i.intent_id, '')))
                OR (i.status = 'requested' AND i.intent_id IS NOT NULL)
                OR (i.status IN ('open', 'succeeded', 'canceled', 'needs_review')
                    AND i.expires_at IS NOT NULL AND i.intent_id IS NULL)
                OR (p.status = 'paid' AND p.payment_intent = i.intent_id AND i.status = 'canceled'))

-- name: intents_of_two_bookings
-- Select payment intents that pay for another booking than their own.
-- Cost: one pass over the intents, with a look-up along an index of payments for each.
SELECT i.organization_id, i.booking_id, 'the intent ' || i.intent_id || ' has paid for the booking ' || p.booking_id
  FROM payment_intents i
  JOIN payments p ON p.organization_id = i.organization_id AND p.payment_intent = i.intent_id
 WHERE [i] AND i.intent_id IS NOT NULL AND p.booking_id <> i.booking_id

-- name: overdue_checks
-- Select payment intents whose check is due since before the limit.
-- Cost: a partial index holds the intents that are to be checked.
SELECT i.organization_id, i.booking_id, 'the intent ' || coalesce(i.intent_id, 'without an id') || ' is ' || i.status
       || ', to be checked since ' || i.check_at
  FROM payment_intents i
 WHERE [i] AND i.check_at IS NOT NULL AND i.check_at < :overdue

-- Checks of gift cards, payments and refunds. The payment of a booking that is paid on site or by invoice is the sum of
-- the payments that staff recorded.
-- `[b]` stands for the condition that the row of the alias b belongs to the organization that is checked.

-- name: gift_card_balances
-- Select gift cards whose balance is not the sum of their ledger, or whose ledger does not begin with their face value.
-- Cost: one pass over the ledger, grouped by card.
-- check: a gift card's balance is the sum of its ledger, from its issue
SELECT g.organization_id, g.id, 'balance ' || g.balance_minor || ' minor ' || g.currency || ' of '
       || g.initial_minor || ' minor ' || g.currency || ', ledger ' || coalesce(l.moved, 0) || ', issued '
       || coalesce(l.issued, 0)
  FROM gift_cards g
  LEFT JOIN (SELECT n.organization_id, n.gift_card_id, sum(n.amount_minor) AS moved,
                    sum(CASE WHEN n.kind = 'issue' THEN n.amount_minor ELSE 0 END) AS issued
               FROM gift_card_entries n WHERE [n] GROUP BY n.organization_id, n.gift_card_id) l
    ON l.organization_id = g.organization_id AND l.gift_card_id = g.id
 WHERE [g] AND (g.balance_minor <> coalesce(l.moved, 0) OR g.initial_minor <> coalesce(l.issued, 0)
                OR g.balance_minor < 0 OR g.balance_minor > g.initial_minor)

-- name: gift_card_ledgers
-- Select ledger entries whose balance is not the sum of the entries of their card up to them.
-- Cost: one pass over the ledger, sorted by card.
-- check: each entry of a gift card's ledger has the balance after it
SELECT s.organization_id, s.gift_card_id, 'entry ' || s.id || ' has the balance ' || s.balance_minor
       || ', the sum is ' || s.moved
  FROM (SELECT n.organization_id, n.gift_card_id, n.id, n.balance_minor, sum(n.amount_minor) OVER (
               PARTITION BY n.organization_id, n.gift_card_id ORDER BY n.created_at, n.id) AS moved
          FROM gift_card_entries n WHERE [n]) s
 WHERE s.balance_minor <> s.moved

-- name: gift_card_redemptions
-- Select ledger entries whose amount, less what changes of the party restored, or whose currency is not that of their
-- booking.
-- Cost: one pass over the ledger, with a look-up of its booking and of its restored parts for each entry.
-- check: the amount taken from a gift card is the amount on the booking
SELECT n.organization_id, n.id, 'took ' || -n.amount_minor || ' minor ' || g.currency || ', the booking says '
       || b.gift_card_minor || ' minor ' || b.currency
  FROM gift_card_entries n
  JOIN bookings b ON b.organization_id = n.organization_id AND b.id = n.booking_id
  JOIN gift_cards g ON g.organization_id = n.organization_id AND g.id = n.gift_card_id
 WHERE [n] AND n.kind = 'redeem'
   AND (-n.amount_minor - coalesce((SELECT sum(r.amount_minor) FROM gift_card_entries r
                                     WHERE r.organization_id = n.organization_id AND r.booking_id = n.booking_id
                                       AND r.kind = 'restore' AND r.number > 0), 0) <> b.gift_card_minor
        OR n.amount_minor >= 0 OR g.currency <> b.currency)

-- name: redemptions_without_entry
-- Select bookings paid by a gift card that have no entry in its ledger.
-- Cost: one pass over the bookings, and a look-up for each that a card paid for.
-- check: a booking paid by a gift card has an entry in the card's ledger
SELECT b.organization_id, b.id, b.gift_card_minor || ' minor ' || b.currency || ' were taken without a ledger entry'
  FROM bookings b
 WHERE [b] AND b.booking_number IS NOT NULL AND b.gift_card_minor > 0
   AND NOT EXISTS (SELECT 1 FROM gift_card_entries n
                    WHERE n.organization_id = b.organization_id AND n.booking_id = b.id
                      AND n.kind = 'redeem')

-- name: gift_card_restorations
-- Select redemptions that were not restored exactly once when their booking was cancelled.
-- Cost: one pass over the ledger, with a look-up of its booking and its counterpart for each entry.
-- check: a gift card is restored once, when the booking is cancelled
SELECT n.organization_id, '' || n.id, 'the booking is ' || b.status || ', taken ' || -n.amount_minor || ' minor '
       || b.currency || ', restored ' || coalesce(r.amount_minor, 0) || ' minor ' || b.currency
  FROM gift_card_entries n
  JOIN bookings b ON b.organization_id = n.organization_id AND b.id = n.booking_id
  LEFT JOIN gift_card_entries r ON r.organization_id = n.organization_id AND r.booking_id = n.booking_id
   AND r.kind = 'restore' AND r.number = 0 AND r.gift_card_id = n.gift_card_id
 WHERE [n] AND n.kind = 'redeem'
   AND coalesce(r.amount_minor, 0) <> CASE WHEN b.status = 'cancelled' THEN b.gift_card_minor ELSE 0 END
UNION ALL
SELECT r.organization_id, '' || r.id, r.amount_minor || ' minor ' || g.currency || ' were restored, but never taken'
  FROM gift_card_entries r
  JOIN gift_cards g ON g.organization_id = r.organization_id AND g.id = r.gift_card_id
 WHERE [r] AND r.kind = 'restore'
   AND NOT EXISTS (SELECT 1 FROM gift_card_entries n
                    WHERE n.organization_id = r.organization_id AND n.booking_id = r.booking_id
                      AND n.kind = 'redeem')
UNION ALL
SELECT n.organization_id, min('' || n.id), count(*) || ' times ' || n.kind || ' for booking ' || n.booking_id
  FROM gift_card_entries n WHERE [n] AND n.booking_id IS NOT NULL
 GROUP BY n.organization_id, n.booking_id, n.kind, n.number HAVING count(*) > 1

-- name: payments_of_bookings
-- Select payments that do not fit their booking, and card bookings without one payment. A payment that was refunded in part
-- at the gateway may be larger than its booking, whose party was made smaller then: by no more than was refunded.
-- Cost: one pass over the payments, with a look-up of its booking for each; and over the bookings by card.
-- check: a card booking has one payment of its total, and no other booking has any
SELECT p.organization_id, '' || p.id, 'pays ' || p.amount_minor || ' minor ' || p.currency || ' of '
       || b.total_minor || ' minor ' || b.currency || ', source ' || b.payment_source
  FROM payments p JOIN bookings b ON b.organization_id = p.organization_id AND b.id = p.booking_id
 WHERE [p] AND (p.currency <> b.currency
                OR (p.amount_minor > b.total_minor
                    AND (p.refunded_minor = 0 OR p.amount_minor - p.refunded_minor > b.total_minor))
                OR (p.amount_minor < b.total_minor AND b.payment_source = 'stripe')
                OR b.payment_method NOT IN ('card', 'pay_on_site', 'invoice')
                OR (b.payment_source <> 'stripe') <> EXISTS
                   (SELECT 1 FROM payment_records m
                     WHERE m.organization_id = p.organization_id AND m.booking_id = p.booking_id))
UNION ALL
SELECT b.organization_id, '' || b.id, 'is paid by card, and has no payment' FROM bookings b
 WHERE [b] AND b.booking_number IS NOT NULL AND b.payment_source = 'stripe'
   AND NOT EXISTS (SELECT 1 FROM payments p
                    WHERE p.organization_id = b.organization_id AND p.booking_id = b.id)
UNION ALL
SELECT p.organization_id, min('' || p.id), count(*) || ' payments of booking ' || p.booking_id
  FROM payments p WHERE [p] GROUP BY p.organization_id, p.booking_id HAVING count(*) > 1

-- name: recorded_payments
-- Select bookings whose recorded payments, less what was released for guests who left, do not add up.
-- Cost: one pass over the records, grouped by booking; one over the bookings, with a look-up for each that has any.
-- check: payments recorded by staff add up to the amounts of the payment and the booking
SELECT b.organization_id, b.id, 'recorded are ' || coalesce(m.amount, 0) || ' minor ' || b.currency
       || ', the booking says ' || b.recorded_minor || ' minor ' || b.currency || ', the payment '
       || coalesce(p.amount_minor, 0) || ' minor ' || b.currency
  FROM bookings b
  LEFT JOIN payments p ON p.organization_id = b.organization_id AND p.booking_id = b.id
   AND b.payment_source <> 'stripe'
  LEFT JOIN (SELECT m.organization_id, m.booking_id,
                    sum(CASE WHEN m.voided_at IS NULL THEN m.amount_minor ELSE 0 END) AS amount,
                    min(m.currency) AS currency, max(m.currency) AS another
               FROM payment_records m WHERE [m] GROUP BY m.organization_id, m.booking_id) m
    ON m.organization_id = b.organization_id AND m.booking_id = b.id
 WHERE [b] AND (b.recorded_minor <> coalesce(m.amount, 0) - coalesce(p.released_minor, 0)
                OR b.recorded_minor <> coalesce(p.amount_minor, 0)
                OR m.currency <> b.currency OR m.another <> b.currency)

-- name: payment_statuses
-- Select payments whose status contradicts their amounts or their booking.
-- Cost: one pass over the payments, with a look-up of its booking for each.
-- check: a booking's payment status agrees with its payment
SELECT p.organization_id, p.id, 'the payment is ' || p.status || ', the booking says ' || b.payment_status
       || ' and is ' || b.status
  FROM payments p JOIN bookings b ON b.organization_id = p.organization_id AND b.id = p.booking_id
 WHERE [p] AND (p.status <> b.payment_status OR (b.status = 'pending' AND p.status <> 'pending')
                OR (b.status = 'cancelled' AND p.status = 'pending')
                OR (p.status = 'unpaid' AND b.payment_source = 'stripe')
                OR (p.status IN ('paid', 'unpaid') AND b.payment_source <> 'stripe'
                    AND (p.status = 'paid') <> (p.amount_minor = b.total_minor))
                OR (p.status = 'refunded') <> (p.refunded_minor = p.amount_minor AND p.amount_minor > 0)
                OR (p.status = 'partially_refunded') <>
                   (p.refunded_minor > 0 AND p.refunded_minor < p.amount_minor))

-- name: refunds_of_bookings
-- Select refunds that do not fit their payment or their booking. The refund of a cancellation has the number 0, and is
-- of the payment; those of changes of the party are of what the payment released.
-- Cost: one pass over the refunds, with a look-up of its payment and booking for each.
-- check: a refund belongs to a cancelled booking that was paid here, and is no more than was paid
SELECT r.organization_id, '' || r.id, 'refunds '  || r.amount_minor || ' minor ' || r.currency || ' of '
       || p.amount_minor || ' minor ' || p.currency || ', the booking is ' || b.status || ', by '
       || b.payment_source
  FROM refunds r
  JOIN payments p ON p.organization_id = r.organization_id AND p.id = r.payment_id
  JOIN bookings b ON b.organization_id = r.organization_id AND b.id = r.booking_id
 WHERE [r] AND (r.amount_minor <= 0 OR r.currency <> p.currency OR p.booking_id <> r.booking_id OR r.number < 0
                OR r.amount_minor > CASE WHEN r.number = 0 THEN p.amount_minor ELSE p.released_minor END
                OR (r.number = 0 AND b.status <> 'cancelled')
                OR (r.number = 0 AND b.payment_source <> 'stripe' AND b.recorded_minor = 0)
                OR p.status IN ('pending', 'failed'))
UNION ALL
SELECT r.organization_id, min('' || r.id), count(*) || ' refunds of booking ' || r.booking_id
  FROM refunds r WHERE [r] GROUP BY r.organization_id, r.booking_id, r.number HAVING count(*) > 1

-- name: released_payments
-- Select payments that changes of the party have released less of than was refunded for them.
-- Cost: one pass over the refunds of changes of the party, grouped by payment, with a look-up of it for each group.
-- check: a payment has released at least what was refunded for guests who left
SELECT p.organization_id, p.id, 'released ' || p.released_minor || ' minor ' || p.currency || ', refunds of it are '
       || coalesce(s.refunds, 0) || ' minor ' || p.currency
  FROM payments p
  LEFT JOIN (SELECT r.organization_id, r.payment_id, sum(r.amount_minor) AS refunds FROM refunds r
              WHERE [r] AND r.number > 0 GROUP BY r.organization_id, r.payment_id) s
    ON s.organization_id = p.organization_id AND s.payment_id = p.id
 WHERE [p] AND (p.released_minor < 0 OR p.amount_minor < 0 OR p.released_minor < coalesce(s.refunds, 0))

-- name: refunded_amounts
-- Select payments whose refunded amount is not that of their refund and of what was refunded elsewhere.
-- Cost: one pass over the payments, with a look-up of its refund and intent for each; and over the refunds, with one of its
-- booking.
-- check: a payment's refunded amount agrees with its refund
SELECT p.organization_id, p.id, 'refunded '  || p.refunded_minor || ' minor ' || p.currency || ', its refund is '
       || coalesce(r.status || ' for ' || coalesce(r.settled_minor, r.amount_minor) || ' minor ' || r.currency, 'none')
       || ', and refunded elsewhere were ' || coalesce(i.returned_minor, 0) || ' minor ' || p.currency
  FROM payments p
  LEFT JOIN refunds r ON r.organization_id = p.organization_id AND r.booking_id = p.booking_id AND r.number = 0
  LEFT JOIN payment_intents i ON i.organization_id = p.organization_id AND i.booking_id = p.booking_id
 WHERE [p] AND p.refunded_minor <> coalesce(i.returned_minor, 0)
                                   + CASE r.status WHEN 'succeeded' THEN r.amount_minor
                                                   WHEN 'settled' THEN r.settled_minor ELSE 0 END
UNION ALL
SELECT r.organization_id, r.id, 'succeeded, and it has no id of the gateway' FROM refunds r
 WHERE [r] AND r.status = 'succeeded' AND r.provider_refund_id IS NULL
UNION ALL
SELECT r.organization_id, r.id, r.status || ', and the money was taken by hand'
  FROM refunds r
  JOIN bookings b ON b.organization_id = r.organization_id AND b.id = r.booking_id
 WHERE [r] AND b.payment_source <> 'stripe' AND r.status NOT IN ('needs_review', 'settled')

-- name: settled_refunds
-- Select refunds whose columns about a settlement by hand contradict their status.
-- Cost: one pass over the refunds.
-- check: a refund settled by hand has an amount, a time and a note
SELECT r.organization_id, r.id, r.status || ', settled '
       || coalesce(r.settled_minor || ' minor ' || r.currency, 'no amount')
       || ' at ' || coalesce('' || r.settled_at, 'no time')
  FROM refunds r
 WHERE [r] AND ((r.status = 'settled') <> (r.settled_minor IS NOT NULL)
                OR (r.status = 'settled') <> (r.settled_at IS NOT NULL)
                OR (r.status = 'settled' AND (r.settled_note IS NULL OR r.settled_minor < 0
                    OR r.settled_at < r.created_at)))

-- name: overdue_refunds
-- Select refunds that are due, or whose lease expired, before the limit.
-- Cost: a partial index holds the refunds that are not settled.
-- check: a refund is sent when it is due
-- waits for: worker
-- remedy: check that a worker is running, and BOOKING_STRIPE_API_KEY set
SELECT r.organization_id, r.id, r.status || ', due at ' || coalesce('' || r.next_attempt_at, 'no time')
  FROM refunds r
 WHERE [r] AND r.status IN ('requested', 'sending')
   AND (r.lease_until < :overdue OR (r.lease_until IS NULL
        AND (r.next_attempt_at < :overdue OR r.next_attempt_at IS NULL)))

-- name: payment_states
-- Select bookings whose payment status does not fit their payment method. What is paid on site, or by invoice, is paid
-- once staff has recorded all of it.
-- Cost: one pass over the bookings, with a look-up for each that is not cancelled and refunded.
-- check: a booking's payment method allows its payment status
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
-- check: a payment intent pays for one booking
-- remedy: look up the payment at the gateway: it paid only one of the bookings
SELECT p.organization_id, min('' || p.booking_id), count(*) || ' bookings are paid by one payment intent, '
       || 'the last of them is ' || max('' || p.booking_id)
  FROM payments p WHERE [p] AND p.payment_intent IS NOT NULL
 GROUP BY p.organization_id, p.payment_intent HAVING count(*) > 1

-- name: intents_without_payment
-- Select payment intents whose state contradicts their booking or its payment.
-- Cost: one pass over the intents, with a look-up of its booking and payment for each.
-- check: a payment intent agrees with the payment of its booking
-- remedy: look up the payment at Stripe; if it succeeded, booking storefront pay {subject} --payment-intent PI
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
-- check: a payment intent pays for its own booking
-- remedy: look up the payment at Stripe: its metadata has the booking that it was made for
SELECT i.organization_id, i.booking_id, 'the intent ' || i.intent_id || ' has paid for the booking ' || p.booking_id
  FROM payment_intents i
  JOIN payments p ON p.organization_id = i.organization_id AND p.payment_intent = i.intent_id
 WHERE [i] AND i.intent_id IS NOT NULL AND p.booking_id <> i.booking_id

-- name: overdue_checks
-- Select payment intents whose check is due since before the limit.
-- Cost: a partial index holds the intents that are to be checked.
-- check: a payment is looked up at Stripe when it is due
-- waits for: worker
-- remedy: check that a worker is running, and that it reaches Stripe
SELECT i.organization_id, i.booking_id, 'the intent ' || coalesce(i.intent_id, 'without an id') || ' is ' || i.status
       || ', to be checked since ' || i.check_at
  FROM payment_intents i
 WHERE [i] AND i.check_at IS NOT NULL AND i.check_at < :overdue

-- name: timeline_without_payment
-- Select timeline entries about a refund or a payment that does not exist.
-- Cost: one pass over the timeline, with a look-up for each of its entries about money.
-- check: payments and refunds in the timeline exist
-- remedy: look up the payment at the gateway, then booking refunds record {subject} --amount A --note TEXT
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
-- check: a paid booking that was cancelled has the refund that the policy requires
-- remedy: look up at the gateway whether the payment was refunded, since no refund is queued, then booking refunds
--   record {subject} --amount A --note TEXT
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

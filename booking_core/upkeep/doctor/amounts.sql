-- The statements of amounts.py.
-- `[b]` stands for the condition that the row of the alias b belongs to the organization that is checked.

-- name: gift_card_balances
-- Select gift cards whose balance is not their face value and their ledger.
-- Cost: one pass over the ledger, grouped by card.
SELECT g.organization_id, g.id, 'balance ' || g.balance_minor || ' minor ' || g.currency || ' of '
       || g.initial_minor || ' minor ' || g.currency || ', ledger ' || coalesce(l.moved, 0) || ' minor ' || g.currency
  FROM gift_cards g
  LEFT JOIN (SELECT n.organization_id, n.gift_card_id, sum(n.amount_minor) AS moved
               FROM gift_card_entries n WHERE [n] GROUP BY n.organization_id, n.gift_card_id) l
    ON l.organization_id = g.organization_id AND l.gift_card_id = g.id
 WHERE [g] AND (g.balance_minor <> g.initial_minor + coalesce(l.moved, 0)
                OR g.balance_minor < 0 OR g.balance_minor > g.initial_minor)

-- name: gift_card_redemptions
-- Select ledger entries whose amount, less what changes of the party restored, or whose currency is not that of their
-- booking.
-- Cost: one pass over the ledger, with a look-up of its booking and of its restored parts for each entry.
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
SELECT b.organization_id, b.id, b.gift_card_minor || ' minor ' || b.currency || ' were taken without a ledger entry'
  FROM bookings b
 WHERE [b] AND b.booking_number IS NOT NULL AND b.gift_card_minor > 0
   AND NOT EXISTS (SELECT 1 FROM gift_card_entries n
                    WHERE n.organization_id = b.organization_id AND n.booking_id = b.id
                      AND n.kind = 'redeem')

-- name: gift_card_restorations
-- Select redemptions that were not restored exactly once when their booking was cancelled.
-- Cost: one pass over the ledger, with a look-up of its booking and its counterpart for each entry.
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
SELECT r.organization_id, r.id, r.status || ', due at ' || coalesce('' || r.next_attempt_at, 'no time')
  FROM refunds r
 WHERE [r] AND r.status IN ('requested', 'sending')
   AND (r.lease_until < :overdue OR (r.lease_until IS NULL
        AND (r.next_attempt_at < :overdue OR r.next_attempt_at IS NULL)))

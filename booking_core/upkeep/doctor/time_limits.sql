-- The statements of time_limits.py.
-- `[b]` stands for the condition that the row of the alias b belongs to the organization that is checked.

-- name: timestamps_ahead
-- Select rows with a timestamp further in the future than its limit.
-- Cost: one pass over the holds, the cursors, and the index of each queue: pending bookings, deliveries, refunds,
-- effects, mails, erasures and checks of payments that are not done; leases are looked for in one pass over each of four
-- tables, deliveries by their index.
SELECT h.organization_id, h.id, 'in holds: holds its seats until ' || h.expires_at FROM holds h
 WHERE [h] AND h.ended_at IS NULL AND h.expires_at > :hold_until
UNION ALL
SELECT d.organization_id, d.id, 'in departures: to be announced at ' || d.announce_at
  FROM departures d WHERE [d] AND d.announce_at > :hold_until
UNION ALL
SELECT i.organization_id, i.booking_id, 'in payment_intents: Stripe is asked at ' || i.check_at
  FROM payment_intents i JOIN organizations o ON o.id = i.organization_id
 WHERE [i] AND i.check_at > :pending_until + coalesce(CAST(o.pending_minutes AS BIGINT) * 60000000, :pending)
UNION ALL
SELECT c.organization_id, c.endpoint_id, 'in webhook_cursors: nothing is sent until ' || c.next_send_at
  FROM webhook_cursors c WHERE [c] AND c.next_send_at > :send_until
UNION ALL
SELECT b.organization_id, b.id, 'in bookings: may be paid until ' || b.expires_at
  FROM bookings b JOIN organizations o ON o.id = b.organization_id
 WHERE [b] AND b.status = 'pending'
   AND b.expires_at > :pending_until + coalesce(CAST(o.pending_minutes AS BIGINT) * 60000000, :pending)
UNION ALL
SELECT d.organization_id, d.id, 'in deliveries: next attempt at ' || d.next_attempt_at FROM deliveries d
 WHERE [d] AND d.status = 'queued' AND d.next_attempt_at > :delivery_until
UNION ALL
SELECT r.organization_id, r.id, 'in refunds: next attempt at ' || r.next_attempt_at FROM refunds r
 WHERE [r] AND r.status IN ('requested', 'sending') AND r.next_attempt_at > :refund_until
UNION ALL
SELECT x.organization_id, x.subject_id, x.key || ' is due at ' || x.due_at FROM effects x
 WHERE [x] AND x.status = 'queued' AND x.due_at > :effect_until
UNION ALL
SELECT m.organization_id, m.id, 'in mails: next attempt at ' || m.next_attempt_at FROM mails m
 WHERE [m] AND m.status = 'queued' AND m.next_attempt_at > :mail_until
   AND m.next_attempt_at <> :end_of_time  -- the mail waits for a mail server to be configured
UNION ALL
SELECT s.organization_id, s.endpoint_id, 'in webhook_secrets: an old secret signs until ' || s.expires_at
  FROM webhook_secrets s WHERE [s] AND s.expires_at > :secret_until
UNION ALL
SELECT x.organization_id, x.id, 'in deliveries: leased until ' || x.lease_until FROM deliveries x
 WHERE [x] AND x.lease_until > :lease_until
UNION ALL
SELECT x.organization_id, x.id, 'in webhook_leases: leased until ' || x.lease_until FROM webhook_leases x
 WHERE [x] AND x.lease_until > :lease_until
UNION ALL
SELECT x.organization_id, x.id, 'in refunds: leased until ' || x.lease_until FROM refunds x
 WHERE [x] AND x.lease_until > :lease_until
UNION ALL
SELECT x.organization_id, x.id, 'in mails: leased until ' || x.lease_until FROM mails x
 WHERE [x] AND x.lease_until > :lease_until
UNION ALL
SELECT x.organization_id, x.subject_id, 'in effects: leased until ' || x.lease_until FROM effects x
 WHERE [x] AND x.lease_until > :lease_until
UNION ALL
SELECT x.organization_id, x.customer_id, 'in erasures: requested at ' || x.requested_at FROM erasures x
 WHERE [x] AND x.finished_at IS NULL AND x.requested_at - :skew > :at

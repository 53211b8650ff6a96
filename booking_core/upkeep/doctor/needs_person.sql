-- Checks of work that waits for a person: these rows are correct, but no worker can process them further
-- (decisions/0034). A finding has the number of rows and the newest id; its remedy names the command that lists all of
-- them.
-- `[b]` stands for the condition that the row of the alias b belongs to the organization that is checked.

-- name: refunds_to_review
-- Count the refunds that need a review, by currency.
-- Cost: one pass over the refunds.
-- check: refunds that the gateway cannot make wait for a person
-- waits for: person
-- remedy: booking refunds list --org {org} --status needs_review, then booking refunds retry ID, or booking refunds
--   settle ID --note TEXT
SELECT r.organization_id, max('' || r.id), 'refunds that need a review: ' || count(*) || ', together '
       || sum(r.amount_minor) || ' minor ' || r.currency || ', the newest is ' || max('' || r.id)
  FROM refunds r WHERE [r] AND r.status = 'needs_review' GROUP BY r.organization_id, r.currency

-- name: failed_refunds
-- Count the refunds that failed, by currency.
-- Cost: one pass over the refunds.
-- check: refunds that the gateway refused wait for a person
-- waits for: person
-- remedy: booking refunds list --org {org} --status failed, then booking refunds settle ID --note TEXT
SELECT r.organization_id, max('' || r.id), 'refunds that failed: ' || count(*) || ', together '
       || sum(r.amount_minor) || ' minor ' || r.currency || ', the newest is ' || max('' || r.id)
  FROM refunds r WHERE [r] AND r.status = 'failed' GROUP BY r.organization_id, r.currency

-- name: payments_to_review
-- Count the payments at Stripe that do not fit their booking.
-- Cost: one pass over the payment intents.
-- check: payments that do not fit their booking wait for a person
-- waits for: person
-- remedy: booking stripe payments --org {org} --state needs_review, then refund it at Stripe, or booking storefront pay
--   BOOKING --payment-intent PI, then booking stripe resolve BOOKING --note TEXT
SELECT i.organization_id, max('' || i.booking_id), 'payments at Stripe that need a review: ' || count(*)
       || ', the booking of one is ' || max('' || i.booking_id)
  FROM payment_intents i WHERE [i] AND i.status = 'needs_review' GROUP BY i.organization_id

-- name: open_disputes
-- Count the disputes that are open.
-- Cost: one pass over the payment intents.
-- check: disputes of payments wait for a person
-- waits for: person
-- remedy: booking stripe payments --org {org} --state disputed, then answer the dispute at Stripe
SELECT i.organization_id, max('' || i.booking_id), 'open disputes: ' || count(*) || ', the booking of one is '
       || max('' || i.booking_id)
  FROM payment_intents i
 WHERE [i] AND i.dispute_id IS NOT NULL AND i.dispute_closed_at IS NULL GROUP BY i.organization_id

-- name: dead_deliveries
-- Count the dead deliveries of each enabled endpoint.
-- Cost: one pass over the dead deliveries of enabled endpoints, in an index.
-- check: dead deliveries wait for their receiver to be fixed
-- waits for: person
-- remedy: booking webhooks deliveries list {subject} --status dead, then booking webhooks recover {subject} --since
--   {since} --status dead
SELECT e.organization_id, e.id, 'dead deliveries: ' || count(*) || ', the newest is '
       || (SELECT '' || n.id FROM deliveries n
            WHERE n.organization_id = e.organization_id AND n.endpoint_id = e.id AND n.status = 'dead'
              AND n.completed_at IS NOT NULL AND n."trigger" <> 'test'
            ORDER BY n.created_at DESC, n.id DESC LIMIT 1), min(d.created_at)
  FROM webhook_endpoints e
  JOIN deliveries d ON d.organization_id = e.organization_id AND d.endpoint_id = e.id
   AND d.status = 'dead' AND d.completed_at IS NOT NULL AND d."trigger" <> 'test'
 WHERE [e] AND e.deleted_at IS NULL AND e.status = 'enabled'
 GROUP BY e.organization_id, e.id

-- name: disabled_endpoints
-- Select the endpoints that were disabled automatically, with the deliveries that were not made.
-- Cost: one pass over the endpoints, with a count along an index for each disabled endpoint.
-- check: webhook endpoints disabled by failures wait for a person
-- waits for: person
-- remedy: fix the receiver, then booking webhooks enable {subject}, then booking webhooks recover {subject} --since
--   {since}
SELECT e.organization_id, e.id, 'failures in a row: ' || e.consecutive_failures
       || ', deliveries that were not made: ' || (
           (SELECT count(*) FROM deliveries d
             WHERE d.organization_id = e.organization_id AND d.endpoint_id = e.id
               AND d.status IN ('failed', 'dead'))
         + (SELECT count(*) FROM webhook_subscriptions s
              JOIN events v ON v.organization_id = s.organization_id AND v.type = s.event_type
               AND v.sequence > s.from_sequence AND v.sequence <= coalesce(s.until_sequence, v.sequence)
             WHERE s.organization_id = e.organization_id AND s.endpoint_id = e.id AND s.missed_at IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM deliveries d
                                WHERE d.organization_id = e.organization_id AND d.endpoint_id = e.id
                                  AND d.event_type = v.type AND d.event_sequence = v.sequence))),
       coalesce(e.last_success_at, e.enabled_at)
  FROM webhook_endpoints e WHERE [e] AND e.deleted_at IS NULL AND e.status = 'auto_disabled'

-- name: failed_mails
-- Count the failed mails that can still be retried.
-- Cost: one pass over the index of mails that ended, and one over that of outbox rows without a mail.
-- check: mails that could not be sent in the last 72 hours wait for a person
-- waits for: person
-- remedy: booking mails list --org {org} --status failed, then booking mails retry --failed --org {org}
SELECT m.organization_id, max('' || m.id),
       'mails that failed: ' || count(*) || ', the newest is ' || max('' || m.id)
  FROM mails m
 WHERE [m] AND m.status = 'failed' AND m.completed_at IS NOT NULL AND m.created_at > :mail_retryable_since
 GROUP BY m.organization_id

-- name: unwritten_mails
-- Count the outbox rows that failed and can still be retried.
-- check: mails that could not be written in the last 72 hours wait for a person
-- waits for: person
-- remedy: booking mails list --org {org} --status unwritten, then booking mails retry --failed --org {org}
SELECT x.organization_id, max(x.key),
       'mails that could not be written: ' || count(*) || ', one is ' || max(x.key)
  FROM effects x
 WHERE [x] AND x.status = 'failed' AND x.completed_at IS NOT NULL AND x.last_error IS NOT NULL
   AND x.created_at > :mail_retryable_since
 GROUP BY x.organization_id

-- name: parked_rows
-- Select the rows that a job of the worker cannot process.
-- Cost: one pass over the parked rows. One whose attempt is long overdue was not found again: it is no longer due.
-- check: rows that a job of the worker cannot process wait for a person
-- waits for: person
-- remedy: repair the row, the worker's log says what is wrong with it; the worker tries it again within an hour
SELECT p.organization_id, p.subject_id,
       p.job || ' failed ' || p.failures || ' times, the last time with ' || p.error
       || ', next attempt at ' || p.retry_at
  FROM parked_work p WHERE [p] AND p.retry_at > :parked_since

-- name: cancelled_departures
-- Select cancelled departures to come that still have bookings.
-- Cost: one pass over the departures that are cancelled and to come, with a look-up along an index for each.
-- check: bookings of a cancelled departure wait for a person
-- waits for: person
-- remedy: booking departures cancel {subject}, or booking bookings reschedule ID --departure ID
SELECT d.organization_id, d.id,
       'the departure is cancelled, and its seats that are still sold: ' || d.seats_taken
  FROM departures d
 WHERE [d] AND d.status = 'cancelled' AND d.cancelling IS NULL AND d.starts_at > :at
   AND EXISTS (SELECT 1 FROM bookings b
                WHERE b.organization_id = d.organization_id AND b.departure_id = d.id
                  AND b.status IN ('pending', 'confirmed'))

-- Checks of API keys, stored responses, customers, the outbox (table `effects`), mails and the timeline, and of
-- timestamps too far in the future: rows that wait for one of them would wait for ever.
-- `[b]` stands for the condition that the row of the alias b belongs to the organization that is checked.

-- name: active_keys
-- Select organizations with more active API keys than the limit.
-- Cost: one pass over the keys.
-- check: an organization has at most {ACTIVE_API_KEYS_PER_ORGANIZATION} active keys
SELECT a.organization_id, 'api_keys', count(*) || ' active' FROM api_keys a
 WHERE [a] AND a.revoked_at IS NULL AND (a.expires_at IS NULL OR a.expires_at > :at)
 GROUP BY a.organization_id HAVING count(*) > :active_keys_max

-- name: scopes
-- Select the scopes of each key.
-- Cost: every key is read.
-- check: the scopes of an API key exist
-- rows: a.id
-- remedy: booking keys revoke {subject}, and create a key with the scopes that it needs
SELECT a.id, a.id, a.scopes FROM api_keys a WHERE a.organization_id = :organization_id

-- name: mixed_keys
-- Select keys of sandboxes that are called like those of live organizations, and the reverse; sandboxes whose clocks were
-- set back, or that have a Stripe account.
-- Cost: one pass over the keys, one over the accounts, and one over the organizations.
-- check: the keys of a sandbox are test keys, those of a live organization are not
-- remedy: revoke the key, which is refused; remove the Stripe account
SELECT a.organization_id, '' || a.id,
       CASE WHEN o.clock_offset IS NULL THEN 'a live organization has' ELSE 'a sandbox has' END || ' the key ' || a.prefix
  FROM api_keys a JOIN organizations o ON o.id = a.organization_id
 WHERE [a] AND (o.clock_offset IS NOT NULL) <> (a.prefix LIKE 'svc~_test~_%' ESCAPE '~')
 UNION ALL
SELECT s.organization_id, 'stripe_account', 'a sandbox has a Stripe account'
  FROM stripe_accounts s JOIN organizations o ON o.id = s.organization_id WHERE [s] AND o.clock_offset IS NOT NULL
 UNION ALL
SELECT o.organization_id, 'clock_offset', 'the clock is ' || o.clock_offset || ' microseconds ahead'
  FROM (SELECT id AS organization_id, clock_offset FROM organizations) o WHERE [o] AND o.clock_offset < 0

-- name: missing_responses
-- Select API bookings without the stored response of their idempotency key.
-- Cost: one pass over the bookings, and one over the stored responses, grouped by timestamp. A response is sealed,
-- so that its booking is unknown; but both have the same created_at, since they are written together.
-- check: every API booking has the stored response of its idempotency key
SELECT b.organization_id, b.first, b.booked || ' bookings of ' || b.created_at || ', ' || coalesce(i.kept, 0)
       || ' stored responses'
  FROM (SELECT b.organization_id, b.created_at, count(*) AS booked, min('' || b.id) AS first FROM bookings b
         WHERE [b] AND b.source = 'api' AND b.created_at > :answers_since
         GROUP BY b.organization_id, b.created_at) b
  LEFT JOIN (SELECT i.organization_id, i.created_at, count(*) AS kept FROM idempotency i
              WHERE [i] AND i.status = 201 AND i.created_at > :answers_since
              GROUP BY i.organization_id, i.created_at) i
    ON i.organization_id = b.organization_id AND i.created_at = b.created_at
 WHERE coalesce(i.kept, 0) < b.booked

-- name: repeated_responses
-- Select idempotency keys with two stored responses.
-- Cost: one pass over the primary key.
-- check: an idempotency key has one stored response
SELECT i.organization_id, i.key, count(*) || ' stored responses' FROM idempotency i WHERE [i]
 GROUP BY i.organization_id, i.key HAVING count(*) > 1

-- name: repeated_addresses
-- Select e-mail addresses of two customers.
-- Cost: one pass over a unique index, in its order.
-- check: an e-mail address belongs to one customer
SELECT u.organization_id, min('' || u.id), count(*) || ' customers have one e-mail address'
  FROM customers u WHERE [u] GROUP BY u.organization_id, u.email_key HAVING count(*) > 1

-- name: customer_keys
-- Select each customer's e-mail address and key.
-- Cost: every customer is read.
-- check: a customer's key is the normalised e-mail address
-- rows: u.id
SELECT u.id, u.id, u.email, u.email_key FROM customers u WHERE u.organization_id = :organization_id

-- name: translations
-- Select the translated texts of each experience that has some.
-- Cost: every experience is read.
-- check: the translations of an experience can be read
-- rows: x.id
-- remedy: import the experience again, with its translations
SELECT x.id, x.id, x.translations FROM experiences x
 WHERE x.organization_id = :organization_id AND x.translations IS NOT NULL

-- name: missing_references
-- Select rows that refer to a missing row of their organization.
-- Cost: a look-up for each row of these tables, which have no foreign key.
-- check: no row refers to a missing row of its organization
SELECT x.organization_id, x.id, 'the timeline of no customer ' || x.customer_id FROM timeline x
 WHERE [x]
   AND NOT EXISTS (SELECT 1 FROM customers y
                    WHERE y.organization_id = x.organization_id AND y.id = x.customer_id)
UNION ALL
SELECT x.organization_id, x.id, 'the timeline of no booking ' || x.booking_id FROM timeline x
 WHERE [x] AND x.booking_id IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM bookings y
                    WHERE y.organization_id = x.organization_id AND y.id = x.booking_id)
UNION ALL
SELECT x.organization_id, x.id, 'a delivery to no endpoint ' || x.endpoint_id FROM deliveries x
 WHERE [x]
   AND NOT EXISTS (SELECT 1 FROM webhook_endpoints y
                    WHERE y.organization_id = x.organization_id AND y.id = x.endpoint_id)
UNION ALL
SELECT x.organization_id, x.id, 'an attempt of no delivery ' || x.delivery_id FROM attempts x
 WHERE [x]
   AND NOT EXISTS (SELECT 1 FROM deliveries y
                    WHERE y.organization_id = x.organization_id AND y.id = x.delivery_id)
UNION ALL
SELECT x.organization_id, x.id, 'a mail about no booking ' || x.booking_id FROM mails x
 WHERE [x] AND x.booking_id IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM bookings y
                    WHERE y.organization_id = x.organization_id AND y.id = x.booking_id)
UNION ALL
SELECT x.organization_id, x.id, 'a mail without an outbox row:  ' || x.effect_key FROM mails x
 WHERE [x]
   AND NOT EXISTS (SELECT 1 FROM effects y
                    WHERE y.organization_id = x.organization_id AND y.key = x.effect_key)
UNION ALL
SELECT x.organization_id, x.subject_id, x.key || ' is about no booking' FROM effects x
 WHERE [x] AND (x.kind LIKE '%booking%' OR x.kind LIKE '%cancellation%' OR x.kind LIKE '%rescheduling%'
                OR x.kind LIKE '%refund%')
   AND NOT EXISTS (SELECT 1 FROM bookings y
                    WHERE y.organization_id = x.organization_id AND y.id = x.subject_id)
UNION ALL
SELECT x.organization_id, x.subject_id, x.key || ' is about no endpoint' FROM effects x
 WHERE [x] AND x.kind LIKE '%webhook%' AND x.created_at > :deliveries_since  -- a deleted endpoint is purged
   AND NOT EXISTS (SELECT 1 FROM webhook_endpoints y
                    WHERE y.organization_id = x.organization_id AND y.id = x.subject_id)
UNION ALL
SELECT x.organization_id, x.subject_id, x.key || ' is about no key' FROM effects x
 WHERE [x] AND x.kind LIKE '%key%'
   AND NOT EXISTS (SELECT 1 FROM api_keys y
                    WHERE y.organization_id = x.organization_id AND y.id = x.subject_id)

-- name: outbox_statuses
-- Select outbox rows that exist twice, or whose status contradicts their timestamps.
-- Cost: one pass over the outbox.
-- check: an outbox row exists once, and its status agrees with its timestamps
SELECT x.organization_id, '' || x.subject_id, x.key || ' is ' || x.status || ', completed '
       || coalesce('' || x.completed_at, 'never')
  FROM effects x
 WHERE [x] AND (x.status NOT IN ('queued', 'done', 'failed')
                OR (x.status = 'queued') <> (x.completed_at IS NULL)
                OR x.key <> x.kind || ':' || x.subject_id
                   AND x.key NOT LIKE x.kind || ':' || x.subject_id || ':%')
UNION ALL
SELECT x.organization_id, min('' || x.subject_id), count(*) || ' times ' || x.key FROM effects x
 WHERE [x] GROUP BY x.organization_id, x.key HAVING count(*) > 1

-- name: outbox_without_mail
-- Select outbox rows that are done without a mail or a reason for none.
-- Cost: a look-up of its mail for each outbox row that is done.
-- check: an outbox row that is done has its mail, or the reason why there is none
SELECT x.organization_id, x.subject_id, x.key || ' is done, and there is no mail' FROM effects x
 WHERE [x] AND x.status = 'done' AND x.last_error IS NULL
   AND NOT EXISTS (SELECT 1 FROM mails y
                    WHERE y.organization_id = x.organization_id AND y.effect_key = x.key)

-- name: mail_statuses
-- Select mails that exist twice, or whose status contradicts their timestamps.
-- Cost: one pass over the mails, by each of two unique indexes.
-- check: a mail is written once, under one Message-ID, and its status agrees with its timestamps
SELECT m.organization_id, '' || m.id, m.kind || ' is ' || m.status || ', sent at '
       || coalesce('' || m.sent_at, 'no time') || ', completed ' || coalesce('' || m.completed_at, 'never')
  FROM mails m
 WHERE [m] AND (m.status NOT IN ('queued', 'sent', 'failed')
                OR (m.status = 'sent') <> (m.sent_at IS NOT NULL)
                OR (m.status = 'queued') <> (m.completed_at IS NULL))
UNION ALL
SELECT m.organization_id, min('' || m.id), count(*) || ' mails for ' || m.effect_key FROM mails m
 WHERE [m] GROUP BY m.organization_id, m.effect_key HAVING count(*) > 1
UNION ALL
SELECT m.organization_id, min('' || m.id), count(*) || ' mails with the id ' || m.message_id FROM mails m
 WHERE [m] GROUP BY m.organization_id, m.message_id HAVING count(*) > 1

-- name: missing_guest_mails
-- Select bookings without an outbox row for a mail to their guest.
-- Cost: a look-up of an outbox row for each booking and each rescheduling. Outbox rows are purged like deliveries.
-- An abandoned checkout has no mail, unless its payment arrived later.
-- check: a booking has outbox rows for the mails to its guest, unless they were suppressed
SELECT b.organization_id, b.id, 'confirmed, and no mail to the guest was queued' FROM bookings b
 WHERE [b] AND b.booking_number IS NOT NULL AND b.confirmed_at > :deliveries_since
   AND b.send_confirmation_email AND b.guest_email IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                      AND x.key = 'booking_confirmation_mail:' || b.id)
UNION ALL
SELECT b.organization_id, b.id, 'cancelled, and no mail to the guest was queued' FROM bookings b
 WHERE [b] AND b.booking_number IS NOT NULL AND b.cancelled_at > :deliveries_since
   AND (b.cancel_reason <> 'abandoned' OR b.payment_status IN ('paid', 'partially_refunded', 'refunded'))
   AND b.guest_email IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                      AND x.key = 'booking_cancellation_mail:' || b.id)
UNION ALL
SELECT e.organization_id, e.resource_id, 'moved by event ' || e.id || ', and no mail to the guest was queued'
  FROM events e
 WHERE [e] AND e.type = 'booking.rescheduled' AND e.created_at > :deliveries_since
   AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = e.organization_id
                      AND x.key = 'booking_rescheduling_mail:' || e.resource_id || ':' || e.id)
UNION ALL
SELECT b.organization_id, b.id, 'a confirmation was suppressed, but queued' FROM bookings b
 WHERE [b] AND NOT b.send_confirmation_email
   AND EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                  AND x.key = 'booking_confirmation_mail:' || b.id)

-- name: missing_staff_mails
-- Select bookings without an outbox row for a mail to staff.
-- Cost: the same, for organizations that have not changed their settings since.
-- check: a booking has outbox rows for the mails to staff where these are enabled
SELECT b.organization_id, b.id, 'confirmed, and no mail to staff was queued'
  FROM bookings b JOIN organizations o ON o.id = b.organization_id
 WHERE [b] AND b.booking_number IS NOT NULL AND b.confirmed_at > :deliveries_since
   AND b.notify_staff AND o.notify_staff AND o.updated_at + :skew < b.confirmed_at
   AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                      AND x.key = 'staff_booking_mail:' || b.id)
UNION ALL
SELECT b.organization_id, b.id, 'cancelled, and no mail to staff was queued'
  FROM bookings b JOIN organizations o ON o.id = b.organization_id
 WHERE [b] AND b.booking_number IS NOT NULL AND b.cancelled_at > :deliveries_since
   AND b.cancel_reason <> 'abandoned'
   AND o.notify_staff AND o.updated_at + :skew < b.cancelled_at
   AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                      AND x.key = 'staff_cancellation_mail:' || b.id)
UNION ALL
SELECT e.organization_id, e.resource_id, 'moved by event ' || e.id || ', and no mail to staff was queued'
  FROM events e
  JOIN bookings b ON b.organization_id = e.organization_id AND b.id = e.resource_id
  JOIN organizations o ON o.id = e.organization_id
 WHERE [e] AND e.type = 'booking.rescheduled' AND e.created_at > :deliveries_since
   AND o.notify_staff AND o.updated_at + :skew < e.created_at
   AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = e.organization_id
                      AND x.key = 'staff_rescheduling_mail:' || e.resource_id || ':' || e.id)

-- name: plain_secrets
-- Select rows with a secret that is not hashed or sealed.
-- Cost: one pass over each of these tables.
-- check: no secret is stored in plain text
SELECT a.organization_id, '' || a.id, 'the key is not hashed' FROM api_keys a
 WHERE [a] AND (a.key_hash LIKE 'svc%' OR length(a.key_hash) <> 64
       OR length(a.prefix) > CASE WHEN a.prefix LIKE 'svc~_test~_%' ESCAPE '~' THEN 17 ELSE 12 END)
UNION ALL
SELECT s.organization_id, '' || s.id, 'the webhook secret is not sealed' FROM webhook_secrets s
 WHERE [s] AND s.secret_sealed LIKE 'whsec%'
UNION ALL
SELECT i.organization_id, i.key, 'the stored answer is not sealed' FROM idempotency i
 WHERE [i] AND i.body_sealed LIKE '{%'
UNION ALL
SELECT m.organization_id, '' || m.id, 'the mail is not sealed' FROM mails m
 WHERE [m] AND m.message LIKE '%/manage/%'

-- name: overdue_mails
-- Select outbox rows and mails that are due, or whose lease expired, before the limit.
-- Cost: partial indexes hold the queued outbox rows and the queued mails.
-- check: outbox rows and mails are processed when they are due
-- waits for: worker
-- remedy: check that a worker is running, and BOOKING_SMTP_URL or BOOKING_MAIL_DIR set
SELECT x.organization_id, x.subject_id, x.key || ' is due since ' || x.due_at FROM effects x
 WHERE [x] AND x.status = 'queued'
   AND (x.lease_until < :overdue OR (x.lease_until IS NULL AND x.due_at < :overdue))
UNION ALL
SELECT m.organization_id, m.id, m.kind || ' is due since ' || coalesce('' || m.next_attempt_at, 'no time')
  FROM mails m
 WHERE [m] AND m.status = 'queued'
   AND (m.lease_until < :overdue OR (m.lease_until IS NULL
        AND (m.next_attempt_at < :overdue OR m.next_attempt_at IS NULL)))

-- name: clocks
-- Compare the retention clock with the database's clock.
-- Cost: one row, which counts only if a worker updated it within the last hour: an older one may itself be wrong.
-- check: the database's clock agrees with the retention clock
-- waits for: worker
-- remedy: correct the clock. After a pause of the service, wait: the retention clock catches up eight hours in one, and
--   until then nothing more is purged
SELECT '', 'clock', 'the database''s clock is ' || (abs(:at - r.at) / 3600000000) || ' hours '
       || CASE WHEN :at > r.at THEN 'ahead of' ELSE 'behind' END || ' the retention clock'
  FROM retention_clock r
 WHERE abs(:at - r.at) > 86400000000 AND :at - r.moved_at < 3600000000

-- name: timestamps_ahead
-- Select rows with a timestamp further in the future than its limit.
-- Cost: one pass over the holds, the cursors, and the index of each queue: pending bookings, deliveries, refunds,
-- effects, mails, erasures and checks of payments that are not done; leases are looked for in one pass over each of four
-- tables, deliveries by their index.
-- check: no timestamp is further in the future than its limit
-- remedy: a clock may have been ahead: set the timestamp to now, and a worker continues with the row
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

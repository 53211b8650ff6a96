-- The statements of sandboxes.py: the clocks of sandboxes, and what is due in one of them.

-- name: due_deliveries
-- Count the deliveries of an organization that are due or in flight, and the events that wait behind the cursors of its
-- enabled endpoints, up to the limit.
SELECT count(*) FROM (
    SELECT 1 FROM deliveries d
      JOIN webhook_endpoints e ON e.organization_id = d.organization_id AND e.id = d.endpoint_id
     WHERE d.organization_id = :organization_id AND d.status = 'queued'
       AND (d.lease_until IS NOT NULL
            OR d.next_attempt_at <= :at AND (e.status = 'enabled' OR d."trigger" = 'test'))
    UNION ALL
    SELECT 1 FROM webhook_cursors c
      JOIN webhook_endpoints e
        ON e.organization_id = c.organization_id AND e.id = c.endpoint_id AND e.status = 'enabled'
      JOIN webhook_subscriptions s ON s.organization_id = c.organization_id AND s.endpoint_id = c.endpoint_id
      JOIN events v ON v.organization_id = c.organization_id AND v.type = s.event_type
     WHERE c.organization_id = :organization_id AND s.missed_at IS NULL
       AND v.sequence > c.served_sequence AND v.sequence > s.from_sequence
       AND (s.until_sequence IS NULL OR v.sequence <= s.until_sequence)
       AND (v.resource_id IS NULL OR v.resource_id <> c.endpoint_id)
     LIMIT :limit) due

-- name: due_refunds
-- Count the refunds of an organization that are due or in flight, up to the limit.
SELECT count(*) FROM (
    SELECT 1 FROM refunds r
     WHERE r.organization_id = :organization_id AND r.status IN ('requested', 'sending')
       AND (r.next_attempt_at <= :at OR r.lease_until IS NOT NULL)
     LIMIT :limit) due

-- name: due_mails
-- Count the mails of an organization that are due or in flight, up to the limit.
SELECT count(*) FROM (
    SELECT 1 FROM mails m
     WHERE m.organization_id = :organization_id AND m.status = 'queued'
       AND (m.next_attempt_at <= :at OR m.lease_until IS NOT NULL)
     LIMIT :limit) due

-- name: count
-- Count the sandboxes, along their index.
SELECT count(*) FROM organizations WHERE clock_offset IS NOT NULL

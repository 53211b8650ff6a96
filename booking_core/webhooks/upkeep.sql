-- The statements of upkeep.py.

-- name: given_up (postgresql)
-- Select disabled and deleted endpoints with deliveries that are still queued and no single tests, and lock them.
SELECT e.organization_id, e.id, e.disabled_at, e.deleted_at FROM webhook_endpoints e
 WHERE e.status <> 'enabled' AND EXISTS (
       SELECT 1 FROM deliveries d
        WHERE d.organization_id = e.organization_id AND d.endpoint_id = e.id AND d.status = 'queued'
          AND d.max_attempts > 1)
 LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED

-- name: given_up (sqlite)
-- Select the same.
SELECT e.organization_id, e.id, e.disabled_at, e.deleted_at FROM webhook_endpoints e
 WHERE e.status <> 'enabled' AND EXISTS (
       SELECT 1 FROM deliveries d
        WHERE d.organization_id = e.organization_id AND d.endpoint_id = e.id AND d.status = 'queued'
          AND d.max_attempts > 1)
 LIMIT :limit

-- name: passed
-- Delete periods of subscriptions that have ended: active ones that were passed, and missed ones without events.
DELETE FROM webhook_subscriptions
 WHERE until_sequence <= CASE WHEN missed_at IS NULL
       THEN (SELECT c.served_sequence FROM webhook_cursors c
              WHERE c.organization_id = webhook_subscriptions.organization_id
                AND c.endpoint_id = webhook_subscriptions.endpoint_id)
       ELSE (SELECT coalesce(min(v.sequence), 0) - 1 FROM events v
              WHERE v.organization_id = webhook_subscriptions.organization_id) END

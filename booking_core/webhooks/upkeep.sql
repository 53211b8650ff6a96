-- The statements of upkeep.py.

-- name: passed
-- Delete periods of subscriptions that have ended: active ones that were passed, and missed ones without events.
DELETE FROM webhook_subscriptions
 WHERE until_sequence <= CASE WHEN missed_at IS NULL
       THEN (SELECT c.served_sequence FROM webhook_cursors c
              WHERE c.organization_id = webhook_subscriptions.organization_id
                AND c.endpoint_id = webhook_subscriptions.endpoint_id)
       ELSE (SELECT coalesce(min(v.sequence), 0) - 1 FROM events v
              WHERE v.organization_id = webhook_subscriptions.organization_id) END

-- The statements of following.py: endpoints and organizations that wait for nothing.

-- name: idle
-- Select endpoints behind the log that wait for nothing in it: disabled ones, and those without a subscribed event.
WITH behind AS (
-- include: picking.behind
)
SELECT b.organization_id, b.endpoint_id, b.served_sequence, b.last_sequence
  FROM behind b
 WHERE (SELECT e.status FROM webhook_endpoints e
         WHERE e.organization_id = b.organization_id AND e.id = b.endpoint_id) <> 'enabled'
    OR NOT EXISTS (
       SELECT 1 FROM webhook_subscriptions s
        WHERE s.organization_id = b.organization_id AND s.endpoint_id = b.endpoint_id
          AND EXISTS (SELECT 1 FROM events v
                       WHERE v.organization_id = b.organization_id AND v.type = s.event_type
                         AND v.sequence > b.served_sequence AND v.sequence > s.from_sequence
                         AND v.sequence <= coalesce(s.until_sequence, b.last_sequence)
                         AND v.sequence <= b.last_sequence
                         AND (v.resource_id IS NULL OR v.resource_id <> b.endpoint_id)))
 LIMIT :limit

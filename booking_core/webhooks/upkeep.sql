-- The statements of upkeep.py.

-- name: idle
-- Select endpoints behind the log that wait for nothing in it: disabled ones, and those without a subscribed event.
WITH behind AS (
-- include: claiming.behind
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

-- name: given_up (postgresql)
-- Select queued deliveries of an earlier generation, so many of each endpoint, and lock them. Cost: an index skip scan.
WITH RECURSIVE waiting AS (
-- include: claiming.waiting
)
SELECT d.organization_id, d.id, e.given_up_at, e.deleted_at
  FROM waiting w
 CROSS JOIN LATERAL (
       SELECT e.* FROM webhook_endpoints e
        WHERE e.organization_id = w.organization_id AND e.id = w.endpoint_id LIMIT 1) e
 CROSS JOIN LATERAL (
       SELECT d.organization_id, d.id FROM deliveries d
        WHERE d.organization_id = w.organization_id AND d.endpoint_id = w.endpoint_id AND d.status = 'queued'
          AND d.lease_until IS NULL AND d.generation < e.generation
        ORDER BY d.generation, d.next_attempt_at LIMIT :each FOR UPDATE SKIP LOCKED) d
 WHERE w.generation < e.generation
 LIMIT :limit

-- name: given_up (sqlite)
-- Select the same.
WITH RECURSIVE waiting AS (
-- include: claiming.waiting
)
SELECT d.organization_id, d.id, e.given_up_at, e.deleted_at
  FROM waiting w
 CROSS JOIN webhook_endpoints e ON e.organization_id = w.organization_id AND e.id = w.endpoint_id
 CROSS JOIN deliveries d ON d.rowid IN (
       SELECT q.rowid FROM deliveries q
        WHERE q.organization_id = w.organization_id AND q.endpoint_id = w.endpoint_id AND q.status = 'queued'
          AND q.lease_until IS NULL AND q.generation < e.generation
        ORDER BY q.generation, q.next_attempt_at LIMIT :each)
 WHERE w.generation < e.generation
 LIMIT :limit

-- name: old (postgresql)
-- Select deliveries that ended before an instant, and lock them. Cost: an index skip scan over the logs, one of each
-- type of each endpoint, and of each log the oldest rows.
WITH RECURSIVE logs AS (
    (SELECT organization_id, endpoint_id, event_type, created_at FROM deliveries
      ORDER BY organization_id, endpoint_id, event_type, event_sequence LIMIT 1)
    UNION ALL
    SELECT following.* FROM logs l CROSS JOIN LATERAL (
        SELECT d.organization_id, d.endpoint_id, d.event_type, d.created_at FROM deliveries d
         WHERE (d.organization_id, d.endpoint_id, d.event_type) > (l.organization_id, l.endpoint_id, l.event_type)
         ORDER BY d.organization_id, d.endpoint_id, d.event_type, d.event_sequence LIMIT 1) following
)
SELECT d.organization_id, d.id
  FROM logs l
 CROSS JOIN LATERAL (
       SELECT o.organization_id, o.id FROM (
              SELECT f.* FROM deliveries f
               WHERE f.organization_id = l.organization_id AND f.endpoint_id = l.endpoint_id
                 AND f.event_type = l.event_type
               ORDER BY f.event_sequence LIMIT CAST(:looked_at AS bigint)) o
        WHERE o.created_at < :before AND o.status <> 'queued' AND o.lease_until IS NULL AND o.completed_at < :before
        ORDER BY o.event_sequence LIMIT :limit) old
 CROSS JOIN LATERAL (
       SELECT d.organization_id, d.id FROM deliveries d
        WHERE d.organization_id = old.organization_id AND d.id = old.id
          AND coalesce(d.status, '') <> 'queued' AND d.lease_until IS NULL
          FOR UPDATE SKIP LOCKED) d
 WHERE l.created_at < :before
 LIMIT :limit

-- name: old (sqlite)
-- Select the same.
WITH RECURSIVE logs AS (
    SELECT * FROM (
        SELECT organization_id, endpoint_id, event_type, created_at FROM deliveries
         ORDER BY organization_id, endpoint_id, event_type, event_sequence LIMIT 1)
    UNION ALL
    SELECT d.organization_id, d.endpoint_id, d.event_type, d.created_at
      FROM logs l CROSS JOIN deliveries d ON d.rowid = coalesce(
           (SELECT f.rowid FROM deliveries f
             WHERE f.organization_id = l.organization_id AND f.endpoint_id = l.endpoint_id
               AND f.event_type > l.event_type
             ORDER BY f.event_type, f.event_sequence LIMIT 1),
           (SELECT f.rowid FROM deliveries f
             WHERE f.organization_id = l.organization_id AND f.endpoint_id > l.endpoint_id
             ORDER BY f.endpoint_id, f.event_type, f.event_sequence LIMIT 1),
           (SELECT f.rowid FROM deliveries f WHERE f.organization_id > l.organization_id
             ORDER BY f.organization_id, f.endpoint_id, f.event_type, f.event_sequence LIMIT 1))
)
SELECT d.organization_id, d.id
  FROM logs l CROSS JOIN deliveries d ON d.rowid IN (
       SELECT f.rowid FROM deliveries f
        WHERE f.organization_id = l.organization_id AND f.endpoint_id = l.endpoint_id AND f.event_type = l.event_type
        ORDER BY f.event_sequence LIMIT :looked_at)
 WHERE l.created_at < :before AND d.created_at < :before
   AND d.status <> 'queued' AND d.lease_until IS NULL AND d.completed_at < :before
 LIMIT :limit

-- The statements of purging.py: old deliveries.

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

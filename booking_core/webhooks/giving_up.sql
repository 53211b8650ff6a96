-- The statements of giving_up.py: deliveries of an earlier generation of their endpoint.

-- name: given_up (postgresql)
-- Select queued deliveries of an earlier generation, so many of each endpoint, and lock them. Cost: an index skip scan.
WITH RECURSIVE waiting AS (
-- include: picking.waiting
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
-- include: picking.waiting
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

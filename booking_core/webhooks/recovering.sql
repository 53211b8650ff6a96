-- The statements of recovering.py.

-- name: waiting
-- Count the deliveries of an endpoint that wait for an attempt, up to the limit.
SELECT count(*) FROM (
    SELECT 1 FROM deliveries d
     WHERE d.organization_id = :organization_id AND d.endpoint_id = :endpoint_id AND d.status = 'queued'
       AND d.lease_until IS NULL
     LIMIT :limit) waiting

-- name: unfinished
-- Select endpoints with unfinished recoveries, in any order.
SELECT r.organization_id, r.endpoint_id FROM webhook_recoveries r
 GROUP BY r.organization_id, r.endpoint_id ORDER BY random() LIMIT :limit

-- name: next
-- Select the first unfinished recovery of an endpoint.
SELECT r.request FROM webhook_recoveries r
 WHERE r.organization_id = :organization_id AND r.endpoint_id = :endpoint_id
 ORDER BY r.id LIMIT 1

-- name: end
-- Delete a recovery.
DELETE FROM webhook_recoveries WHERE organization_id = :organization_id AND id = :id

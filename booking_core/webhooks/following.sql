-- The statements of following.py.

-- name: miss_all
-- Mark the active periods of an endpoint that begin at its cursor or later as missed.
UPDATE webhook_subscriptions SET missed_at = :at
 WHERE organization_id = :organization_id AND endpoint_id = :endpoint_id AND missed_at IS NULL
   AND from_sequence >= (SELECT c.served_sequence FROM webhook_cursors c
                          WHERE c.organization_id = :organization_id AND c.endpoint_id = :endpoint_id)

-- name: miss_rest
-- Insert a missed period for the part of each other active period that is after the cursor.
INSERT INTO webhook_subscriptions
       (organization_id, endpoint_id, event_type, from_sequence, until_sequence, missed_at)
SELECT s.organization_id, s.endpoint_id, s.event_type, c.served_sequence, s.until_sequence, CAST(:at AS bigint)
  FROM webhook_cursors c
  JOIN webhook_subscriptions s ON s.organization_id = c.organization_id AND s.endpoint_id = c.endpoint_id
 WHERE c.organization_id = :organization_id AND c.endpoint_id = :endpoint_id AND s.missed_at IS NULL
   AND s.from_sequence < c.served_sequence AND coalesce(s.until_sequence > c.served_sequence, true)

-- name: end_active
-- End the active periods of an endpoint at its cursor.
UPDATE webhook_subscriptions
   SET until_sequence = (SELECT c.served_sequence FROM webhook_cursors c
                          WHERE c.organization_id = :organization_id AND c.endpoint_id = :endpoint_id)
 WHERE organization_id = :organization_id AND endpoint_id = :endpoint_id AND missed_at IS NULL
   AND coalesce(until_sequence > (SELECT c.served_sequence FROM webhook_cursors c
                                   WHERE c.organization_id = :organization_id AND c.endpoint_id = :endpoint_id), true)

-- name: move_to_end
-- Move the cursor of an endpoint to the end of the log.
UPDATE webhook_cursors
   SET served_sequence = (SELECT k.last_event_sequence FROM counters k WHERE k.organization_id = :organization_id)
 WHERE organization_id = :organization_id AND endpoint_id = :endpoint_id

-- name: forget_period
-- Delete the open periods of a type that have no event yet.
DELETE FROM webhook_subscriptions
 WHERE organization_id = :organization_id AND endpoint_id = :endpoint_id AND event_type = :event_type
   AND until_sequence IS NULL AND from_sequence >= :last

-- name: end_period
-- End the open period of a type.
UPDATE webhook_subscriptions SET until_sequence = :last
 WHERE organization_id = :organization_id AND endpoint_id = :endpoint_id AND event_type = :event_type
   AND until_sequence IS NULL

-- name: fail_queued
-- Fail queued deliveries of an endpoint, except for single tests. One in flight keeps its lease: it may still succeed.
UPDATE deliveries
   SET status = 'failed', failure_reason = :reason, next_attempt_at = NULL,
       completed_at = CASE WHEN created_at > :at THEN created_at ELSE :at END,
       updated_at = CASE WHEN created_at > :at THEN created_at ELSE :at END
 WHERE organization_id = :organization_id AND status = 'queued'
   AND id IN (SELECT d.id FROM deliveries d
               WHERE d.organization_id = :organization_id AND d.endpoint_id = :endpoint_id AND d.status = 'queued'
                 AND d.max_attempts > 1
               LIMIT :limit)

-- The statements of backlog.py: what waits for the worker, of all organizations together.

-- name: backlog
-- Count the rows that wait for the worker now, of each kind, and select since when the oldest of them is due. Both sources
-- of an endpoint with a limit are one kind: it waits because its client wants it to. Those of an endpoint whose last
-- attempt timed out are another one: they wait for a share of the attempts, and not for a worker.
WITH queued AS (
    SELECT CASE WHEN e.max_per_second IS NOT NULL THEN 'limited' WHEN e.last_timed_out THEN 'slow' ELSE 'usual' END AS pace,
           count(*) AS waiting, min(d.next_attempt_at) AS due_at
      FROM deliveries d
      JOIN webhook_endpoints e ON e.organization_id = d.organization_id AND e.id = d.endpoint_id
     WHERE d.status = 'queued' AND d.lease_until IS NULL AND e.status = 'enabled'
       AND d.next_attempt_at <= CAST(:at AS BIGINT)
     GROUP BY 1
),
unqueued AS (
    SELECT CASE WHEN e.max_per_second IS NOT NULL THEN 'limited' WHEN e.last_timed_out THEN 'slow' ELSE 'usual' END AS pace,
           sum(c.last_event_sequence - w.served_sequence) AS waiting,
           min((SELECT v.created_at FROM events v
                 WHERE v.organization_id = w.organization_id AND v.sequence = w.served_sequence + 1)) AS due_at
      FROM counters c
      JOIN webhook_cursors w ON w.organization_id = c.organization_id
      JOIN webhook_endpoints e ON e.organization_id = w.organization_id AND e.id = w.endpoint_id
     WHERE w.served_sequence < c.last_event_sequence AND e.status = 'enabled'
     GROUP BY 1
)
SELECT 'delivery' AS kind, coalesce(sum(waiting), 0) AS waiting, min(due_at) AS due_at FROM queued WHERE pace = 'usual'
UNION ALL
SELECT 'event', coalesce(sum(waiting), 0), min(due_at) FROM unqueued WHERE pace = 'usual'
UNION ALL
SELECT 'limited_delivery', coalesce(sum(waiting), 0), min(due_at)
  FROM (SELECT * FROM queued UNION ALL SELECT * FROM unqueued) either
 WHERE pace = 'limited'
UNION ALL
SELECT 'slow_delivery', coalesce(sum(waiting), 0), min(due_at)
  FROM (SELECT * FROM queued UNION ALL SELECT * FROM unqueued) either
 WHERE pace = 'slow'
UNION ALL
SELECT 'mail_to_write', count(*), min(due_at) FROM effects
 WHERE status = 'queued' AND due_at <= CAST(:at AS BIGINT)
UNION ALL
SELECT 'mail', count(*), min(next_attempt_at) FROM mails
 WHERE status = 'queued' AND next_attempt_at <= CAST(:at AS BIGINT)
UNION ALL
SELECT 'refund', count(*), min(next_attempt_at) FROM refunds
 WHERE status IN ('requested', 'sending') AND next_attempt_at <= CAST(:at AS BIGINT)
UNION ALL
SELECT 'checkout', count(*), min(expires_at) FROM bookings
 WHERE status = 'pending' AND expires_at <= CAST(:at AS BIGINT)
UNION ALL
SELECT 'cancelled_departure', count(*), min(updated_at) FROM departures
 WHERE cancelling IS NOT NULL
UNION ALL
SELECT 'payment_check', count(*), min(check_at) FROM payment_intents
 WHERE check_at IS NOT NULL AND check_at <= CAST(:at AS BIGINT)
UNION ALL
SELECT 'departure_update', count(*), min(announce_at) FROM departures
 WHERE announce_at IS NOT NULL AND announce_at <= CAST(:at AS BIGINT)

-- name: endpoints
-- Count the webhook endpoints by status, and those of each whose last attempts failed.
SELECT status, count(*), count(*) FILTER (WHERE consecutive_failures > 0)
  FROM webhook_endpoints
 WHERE deleted_at IS NULL
 GROUP BY status

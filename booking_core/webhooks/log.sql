-- The statements of log.py.

-- name: stretches
-- Select where the events of an endpoint are that may have no row: of each active period the part after the cursor, and
-- each missed period.
SELECT s.event_type,
       CASE WHEN s.missed_at IS NULL AND s.from_sequence < c.served_sequence THEN c.served_sequence
            ELSE s.from_sequence END AS after,
       coalesce(s.until_sequence, 9223372036854775807) AS until, s.missed_at
  FROM webhook_endpoints e
  JOIN webhook_cursors c ON c.organization_id = e.organization_id AND c.endpoint_id = e.id
  JOIN webhook_subscriptions s ON s.organization_id = e.organization_id AND s.endpoint_id = e.id
 WHERE e.organization_id = :organization_id AND e.id = :endpoint_id
   AND coalesce(s.until_sequence > CASE WHEN s.missed_at IS NULL THEN c.served_sequence ELSE s.from_sequence END, true)

-- name: first_sequence
-- Select the first sequence since an instant. Sequences follow the instants to within a transaction's length: a minute.
SELECT min(v.sequence) FROM events v
 WHERE v.organization_id = :organization_id AND v.created_at >= :at
   AND v.created_at < 60000000 + (SELECT min(f.created_at) FROM events f
                                   WHERE f.organization_id = :organization_id AND f.created_at >= :at)

-- name: row_counts
-- Count the rows since a sequence, by endpoint and state: those that have ended by an index alone.
SELECT d.endpoint_id, d.status AS state, count(*) FROM deliveries d
 WHERE d.organization_id = :organization_id AND d.event_sequence >= :since AND d.status <> 'queued'
 GROUP BY d.endpoint_id, d.status
UNION ALL
SELECT d.endpoint_id, CASE WHEN d.attempt_count > 0 THEN 'retrying' ELSE 'queued' END AS state, count(*)
  FROM deliveries d
 WHERE d.organization_id = :organization_id AND d.event_sequence >= :since AND d.status = 'queued'
 GROUP BY d.endpoint_id, CASE WHEN d.attempt_count > 0 THEN 'retrying' ELSE 'queued' END

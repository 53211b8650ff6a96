-- The statements of claiming.py, by which workers lease the deliveries that are due: one for each database.
--
-- On PostgreSQL, LATERAL with a LIMIT or a lock runs row by row along an index, whatever number of rows the planner
-- estimates; a plain join would now and then read a whole table. On SQLite, CROSS JOIN keeps the tables in the order in
-- which they are written, and there is one writer, and nothing to lock.

-- name: claim (postgresql)
-- Select due deliveries within all limits, and lock them and the cursors of their endpoints. Read it from `waiting`.
-- Cost: grows with the number of endpoints with queued deliveries, and not with that of the deliveries.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT coalesce(CAST(:now AS bigint), CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)) AS at
),
busy AS (SELECT * FROM json_to_recordset(CAST(:in_flight AS json)) AS b (endpoint_id uuid, attempts integer)),
-- The endpoints with a delivery that is queued and not leased, by an index skip scan.
waiting AS (
    (SELECT organization_id, endpoint_id FROM deliveries WHERE status = 'queued' AND lease_until IS NULL
      ORDER BY organization_id, endpoint_id, next_attempt_at, event_sequence LIMIT 1)
    UNION ALL
    SELECT following.* FROM waiting w CROSS JOIN LATERAL (
        SELECT d.organization_id, d.endpoint_id FROM deliveries d
         WHERE d.status = 'queued' AND d.lease_until IS NULL
           AND (d.organization_id, d.endpoint_id) > (w.organization_id, w.endpoint_id)
         ORDER BY d.organization_id, d.endpoint_id, d.next_attempt_at, d.event_sequence LIMIT 1) following
),
-- The due deliveries of each endpoint, the longest due first: as many as it may have in flight beside those that it
-- has, and of one with a limit as many as `burst` returns. `ahead`: by how much the clock of a sandbox is ahead. A
-- first attempt waits for the first attempt of each earlier event about the same resource (decision W13).
due AS (
    SELECT w.organization_id, w.endpoint_id, d.id, d.next_attempt_at, o.ahead, c.last_claimed_at,
           e.url, e.last_timed_out, e.max_per_second, e.headers_sealed,
           row_number() OVER (PARTITION BY w.endpoint_id ORDER BY d.next_attempt_at, d.event_sequence) AS place
      FROM waiting w
      LEFT JOIN busy b ON b.endpoint_id = w.endpoint_id
     CROSS JOIN LATERAL (
           SELECT coalesce(o.clock_offset, 0) AS ahead FROM organizations o WHERE o.id = w.organization_id LIMIT 1) o
     CROSS JOIN LATERAL (
           SELECT e.* FROM webhook_endpoints e
            WHERE e.organization_id = w.organization_id AND e.id = w.endpoint_id LIMIT 1) e
     CROSS JOIN LATERAL (
           SELECT c.* FROM webhook_cursors c
            WHERE c.organization_id = w.organization_id AND c.endpoint_id = w.endpoint_id LIMIT 1) c
     CROSS JOIN LATERAL (
           SELECT d.id, d.next_attempt_at, d.event_sequence FROM deliveries d
            WHERE d.organization_id = w.organization_id AND d.endpoint_id = w.endpoint_id AND d.status = 'queued'
              AND d.lease_until IS NULL AND d.next_attempt_at <= (SELECT at FROM clock) + o.ahead
              AND (e.status = 'enabled' OR d."trigger" = 'test')
              AND (d.attempt_count > 0 OR d.resource_id IS NULL OR NOT EXISTS (
                   SELECT 1 FROM deliveries p
                    WHERE p.organization_id = d.organization_id AND p.endpoint_id = d.endpoint_id
                      AND p.resource_id = d.resource_id AND p.event_sequence < d.event_sequence
                      AND p.completed_at IS NULL AND p.attempt_count = 0))
            ORDER BY d.next_attempt_at, d.event_sequence
            LIMIT least(greatest(CAST(:per_endpoint AS integer) - coalesce(b.attempts, 0), 0),
                        (e.max_per_second + CAST(:claims_per_second AS integer) - 1)
                        / CAST(:claims_per_second AS integer))) d
     WHERE (c.next_send_at IS NULL OR c.next_send_at <= (SELECT at FROM clock))
       AND (NOT e.last_timed_out OR CAST(:slow_free AS integer) > 0)
),
-- One from each endpoint before two from any; the endpoint that was served least recently comes first.
in_lanes AS (
    SELECT d.*, row_number() OVER (PARTITION BY d.last_timed_out ORDER BY d.place, d.last_claimed_at NULLS FIRST)
               AS place_in_lane
      FROM due d
),
picked AS (
    SELECT * FROM in_lanes l
     WHERE NOT l.last_timed_out OR l.place_in_lane <= CAST(:slow_free AS integer)
     ORDER BY l.place, l.last_claimed_at NULLS FIRST, l.endpoint_id LIMIT CAST(:free AS integer)
)
SELECT d.organization_id, d.id, d.endpoint_id, d.event_id, d.event_type,
       CASE WHEN d.failure_reason IS NULL THEN 'scheduled' ELSE 'manual' END AS "trigger",
       coalesce((SELECT max(a.number) FROM attempts a
                  WHERE a.organization_id = d.organization_id AND a.delivery_id = d.id), 0) + 1 AS number,
       k.url, k.last_timed_out, k.max_per_second, v.traceparent, (SELECT at FROM clock) AS at, k.ahead,
       v.body, k.headers_sealed
  FROM picked k
 CROSS JOIN LATERAL (
       -- One worker at a time claims for an endpoint, and not within the pause after another's claim.
       SELECT c.endpoint_id FROM webhook_cursors c
        WHERE c.organization_id = k.organization_id AND c.endpoint_id = k.endpoint_id
          AND coalesce(c.next_send_at, 0) <= (SELECT at FROM clock)
          FOR NO KEY UPDATE SKIP LOCKED) c
 CROSS JOIN LATERAL (
       -- Checked again once it is locked. Within coalesce() the status is only a filter: the planner must not choose
       -- the index of all queued deliveries for it.
       SELECT d.* FROM deliveries d
        WHERE d.organization_id = k.organization_id AND d.id = k.id AND coalesce(d.status, '') = 'queued'
          -- Another worker may have sent it and failed since this statement began: then it waits again.
          AND d.lease_until IS NULL AND coalesce(d.next_attempt_at, 0) = k.next_attempt_at
          FOR UPDATE SKIP LOCKED) d
  LEFT JOIN LATERAL (
       SELECT v.body, v.traceparent FROM events v
        WHERE v.organization_id = d.organization_id AND v.id = d.event_id LIMIT 1) v ON true
 ORDER BY k.place

-- name: claim (sqlite)
-- Select the same. A skip scan takes two look-ups for each step, since SQLite scans row by row for a comparison of
-- pairs.
WITH RECURSIVE clock AS (SELECT :now AS at),
busy AS (
    SELECT json_extract(value, '$.endpoint_id') AS endpoint_id, json_extract(value, '$.attempts') AS attempts
      FROM json_each(:in_flight)
),
waiting AS (
    SELECT * FROM (
        SELECT organization_id, endpoint_id FROM deliveries WHERE status = 'queued' AND lease_until IS NULL
         ORDER BY organization_id, endpoint_id, next_attempt_at, event_sequence LIMIT 1)
    UNION ALL
    SELECT d.organization_id, d.endpoint_id
      FROM waiting w CROSS JOIN deliveries d ON d.rowid = coalesce(
           (SELECT f.rowid FROM deliveries f
             WHERE f.status = 'queued' AND f.lease_until IS NULL
               AND f.organization_id = w.organization_id AND f.endpoint_id > w.endpoint_id
             ORDER BY f.endpoint_id, f.next_attempt_at, f.event_sequence LIMIT 1),
           (SELECT f.rowid FROM deliveries f
             WHERE f.status = 'queued' AND f.lease_until IS NULL AND f.organization_id > w.organization_id
             ORDER BY f.organization_id, f.endpoint_id, f.next_attempt_at, f.event_sequence LIMIT 1))
),
due AS (
    SELECT w.organization_id, w.endpoint_id, d.id, d.next_attempt_at, coalesce(o.clock_offset, 0) AS ahead,
           c.last_claimed_at, e.url, e.last_timed_out, e.max_per_second, e.headers_sealed,
           :per_endpoint - coalesce(b.attempts, 0) AS room,
           row_number() OVER (PARTITION BY w.endpoint_id ORDER BY d.next_attempt_at, d.event_sequence) AS place
      FROM waiting w
      LEFT JOIN busy b ON b.endpoint_id = w.endpoint_id
     CROSS JOIN organizations o ON o.id = w.organization_id
     CROSS JOIN webhook_endpoints e ON e.organization_id = w.organization_id AND e.id = w.endpoint_id
     CROSS JOIN webhook_cursors c ON c.organization_id = w.organization_id AND c.endpoint_id = w.endpoint_id
     CROSS JOIN deliveries d ON d.rowid IN (
           SELECT d.rowid FROM deliveries d
            WHERE d.organization_id = w.organization_id AND d.endpoint_id = w.endpoint_id AND d.status = 'queued'
              AND d.lease_until IS NULL
              AND d.next_attempt_at <= (SELECT at FROM clock) + coalesce(o.clock_offset, 0)
              AND (e.status = 'enabled' OR d."trigger" = 'test')
              AND (d.attempt_count > 0 OR d.resource_id IS NULL OR NOT EXISTS (
                   SELECT 1 FROM deliveries p
                    WHERE p.organization_id = d.organization_id AND p.endpoint_id = d.endpoint_id
                      AND p.resource_id = d.resource_id AND p.event_sequence < d.event_sequence
                      AND p.completed_at IS NULL AND p.attempt_count = 0))
            ORDER BY d.next_attempt_at, d.event_sequence LIMIT max(:per_endpoint, 0))
     WHERE (c.next_send_at IS NULL OR c.next_send_at <= (SELECT at FROM clock))
       AND (NOT e.last_timed_out OR :slow_free > 0)
),
in_lanes AS (
    SELECT d.*, row_number() OVER (PARTITION BY d.last_timed_out ORDER BY d.place, d.last_claimed_at NULLS FIRST)
               AS place_in_lane
      FROM due d
     WHERE d.place <= d.room
       AND (d.max_per_second IS NULL
            OR d.place <= (d.max_per_second + :claims_per_second - 1) / :claims_per_second)
),
picked AS (
    SELECT * FROM in_lanes l
     WHERE NOT l.last_timed_out OR l.place_in_lane <= :slow_free
     ORDER BY l.place, l.last_claimed_at NULLS FIRST, l.endpoint_id LIMIT :free
)
SELECT d.organization_id, d.id, d.endpoint_id, d.event_id, d.event_type,
       CASE WHEN d.failure_reason IS NULL THEN 'scheduled' ELSE 'manual' END AS "trigger",
       coalesce((SELECT max(a.number) FROM attempts a
                  WHERE a.organization_id = d.organization_id AND a.delivery_id = d.id), 0) + 1 AS number,
       k.url, k.last_timed_out, k.max_per_second, v.traceparent, (SELECT at FROM clock) AS at, k.ahead,
       v.body, k.headers_sealed
  FROM picked k
 CROSS JOIN deliveries d ON d.organization_id = k.organization_id AND d.id = k.id
  LEFT JOIN events v ON v.organization_id = d.organization_id AND v.id = d.event_id
 ORDER BY k.place

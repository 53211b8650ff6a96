-- The statements of claiming.py, by which workers make deliveries of events and lease the deliveries that are due.
--
-- On PostgreSQL, LATERAL with a LIMIT or a lock runs row by row along an index, whatever number of rows the planner
-- estimates; a plain join would now and then read a whole table. On SQLite, CROSS JOIN keeps the tables in the order in
-- which they are written, and there is one writer, and nothing to lock.

-- name: next_events (postgresql)
-- Select the next events of endpoints that are behind the log, and lock the cursors. An endpoint without a subscribed
-- event has one row with nulls. One with :ahead first attempts that are not over gets no more.
-- Cost: grows with the number of endpoints that are behind.
WITH clock AS MATERIALIZED (
    SELECT coalesce(CAST(:now AS bigint), CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)) AS at
),
behind AS (
    SELECT c.organization_id, c.endpoint_id, k.last_event_sequence
      FROM counters k CROSS JOIN LATERAL (
           SELECT c.* FROM webhook_cursors c
            WHERE c.organization_id = k.organization_id AND c.served_sequence < k.last_event_sequence LIMIT 1000) c
     CROSS JOIN LATERAL (
           SELECT e.status FROM webhook_endpoints e
            WHERE e.organization_id = c.organization_id AND e.id = c.endpoint_id LIMIT 1) e
     WHERE k.has_undelivered AND e.status = 'enabled'
       AND (SELECT count(*) FROM (
                SELECT 1 FROM deliveries p
                 WHERE p.organization_id = c.organization_id AND p.endpoint_id = c.endpoint_id
                   AND p.completed_at IS NULL AND p.attempt_count = 0
                 LIMIT CAST(:ahead AS integer)) first_attempts) < CAST(:ahead AS integer)
     ORDER BY c.last_claimed_at NULLS FIRST LIMIT CAST(:endpoints AS integer)
),
-- A cursor that another worker has moved since this statement began is read as it is now.
locked AS MATERIALIZED (
    SELECT c.organization_id, c.endpoint_id, c.served_sequence, b.last_event_sequence
      FROM behind b CROSS JOIN LATERAL (
           SELECT c.* FROM webhook_cursors c
            WHERE c.organization_id = b.organization_id AND c.endpoint_id = b.endpoint_id
              FOR NO KEY UPDATE SKIP LOCKED) c
)
SELECT l.organization_id, l.endpoint_id, l.served_sequence, l.last_event_sequence,
       (SELECT at FROM clock) + coalesce((SELECT o.clock_offset FROM organizations o WHERE o.id = l.organization_id), 0)
           AS at,
       v.id, v.type, v.sequence, v.resource_id, v.created_at
  FROM locked l LEFT JOIN LATERAL (
       SELECT n.* FROM webhook_subscriptions s CROSS JOIN LATERAL (
              SELECT v.id, v.type, v.sequence, v.resource_id, v.created_at FROM events v
               WHERE v.organization_id = l.organization_id AND v.type = s.event_type
                 AND v.sequence > greatest(l.served_sequence, s.from_sequence)
                 AND v.sequence <= least(l.last_event_sequence, s.until_sequence)
                 AND v.resource_id IS DISTINCT FROM l.endpoint_id
               ORDER BY v.sequence LIMIT CAST(:events AS integer)) n
        WHERE s.organization_id = l.organization_id AND s.endpoint_id = l.endpoint_id AND s.missed_at IS NULL
        ORDER BY n.sequence LIMIT CAST(:events AS integer)) v ON true

-- name: next_events (sqlite)
-- Select the same.
WITH behind AS (
    SELECT c.organization_id, c.endpoint_id, c.served_sequence, k.last_event_sequence
      FROM counters k CROSS JOIN webhook_cursors c CROSS JOIN webhook_endpoints e
     WHERE k.has_undelivered AND c.organization_id = k.organization_id AND c.served_sequence < k.last_event_sequence
       AND e.organization_id = c.organization_id AND e.id = c.endpoint_id AND e.status = 'enabled'
       AND (SELECT count(*) FROM (
                SELECT 1 FROM deliveries p
                 WHERE p.organization_id = c.organization_id AND p.endpoint_id = c.endpoint_id
                   AND p.completed_at IS NULL AND p.attempt_count = 0
                 LIMIT :ahead) first_attempts) < :ahead
     ORDER BY c.last_claimed_at NULLS FIRST LIMIT :endpoints
)
SELECT l.organization_id, l.endpoint_id, l.served_sequence, l.last_event_sequence,
       :now + coalesce((SELECT o.clock_offset FROM organizations o WHERE o.id = l.organization_id), 0) AS at,
       v.id, v.type, v.sequence, v.resource_id, v.created_at
  FROM behind l LEFT JOIN events v ON v.rowid IN (
       SELECT x.rowid FROM webhook_subscriptions s CROSS JOIN events x ON x.rowid IN (
              SELECT y.rowid FROM events y
               WHERE y.organization_id = l.organization_id AND y.type = s.event_type
                 AND y.sequence > max(l.served_sequence, s.from_sequence)
                 AND y.sequence <= min(l.last_event_sequence, coalesce(s.until_sequence, l.last_event_sequence))
                 AND y.resource_id IS NOT l.endpoint_id
               ORDER BY y.sequence LIMIT :events)
        WHERE s.organization_id = l.organization_id AND s.endpoint_id = l.endpoint_id AND s.missed_at IS NULL
        ORDER BY x.sequence LIMIT :events)

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
-- How many more attempts each endpoint, and its organization, may have in flight. An endpoint that has none may always
-- have one: endpoints that hang must not use up the limit of their organization for an endpoint that answers. `ahead`:
-- by how much the clock of its organization is ahead, if that is a sandbox.
room AS (
    SELECT w.organization_id, w.endpoint_id, coalesce(b.attempts, 0) = 0 AS is_idle,
           CAST(:per_endpoint AS integer) - coalesce(b.attempts, 0) AS of_endpoint,
           CAST(:per_organization AS integer) - sum(coalesce(b.attempts, 0)) OVER (PARTITION BY w.organization_id)
               AS of_organization,
           coalesce((SELECT o.clock_offset FROM organizations o
                      WHERE o.id = w.organization_id AND o.clock_offset IS NOT NULL), 0) AS ahead
      FROM waiting w LEFT JOIN busy b ON b.endpoint_id = w.endpoint_id
),
-- The due deliveries, the longest due first. A first attempt waits for the first attempt of each earlier event about
-- the same resource (decision W13).
due AS (
    SELECT r.*, e.url, e.last_timed_out, e.max_per_second, c.last_claimed_at, d.id, d.next_attempt_at,
           row_number() OVER (PARTITION BY r.endpoint_id ORDER BY d.next_attempt_at, d.event_sequence) AS place
      FROM room r
     CROSS JOIN LATERAL (
           SELECT e.* FROM webhook_endpoints e
            WHERE e.organization_id = r.organization_id AND e.id = r.endpoint_id LIMIT 1) e
     CROSS JOIN LATERAL (
           SELECT c.* FROM webhook_cursors c
            WHERE c.organization_id = r.organization_id AND c.endpoint_id = r.endpoint_id LIMIT 1) c
     CROSS JOIN LATERAL (
           SELECT d.id, d.next_attempt_at, d.event_sequence FROM deliveries d
            WHERE d.organization_id = r.organization_id AND d.endpoint_id = r.endpoint_id AND d.status = 'queued'
              AND d.lease_until IS NULL AND d.next_attempt_at <= (SELECT at FROM clock) + r.ahead
              AND (e.status = 'enabled' OR d."trigger" = 'test')
              AND (d.attempt_count > 0 OR d.resource_id IS NULL OR NOT EXISTS (
                   SELECT 1 FROM deliveries p
                    WHERE p.organization_id = d.organization_id AND p.endpoint_id = d.endpoint_id
                      AND p.resource_id = d.resource_id AND p.event_sequence < d.event_sequence
                      AND p.completed_at IS NULL AND p.attempt_count = 0))
            ORDER BY d.next_attempt_at, d.event_sequence LIMIT greatest(r.of_endpoint, 0)) d
     WHERE r.of_endpoint > 0 AND (r.of_organization > 0 OR r.is_idle)
       AND (c.next_send_at IS NULL OR c.next_send_at <= (SELECT at FROM clock))
       AND (NOT e.last_timed_out OR CAST(:slow_free AS integer) > 0)
),
-- One from each endpoint before two from any; the endpoint that was served least recently comes first. `burst`.
fair AS (
    SELECT d.*, row_number() OVER (PARTITION BY d.organization_id ORDER BY d.place, d.last_claimed_at NULLS FIRST)
               AS place_in_organization
      FROM due d
     WHERE d.max_per_second IS NULL
        OR d.place <= (d.max_per_second + CAST(:claims_per_second AS integer) - 1)
                      / CAST(:claims_per_second AS integer)
),
in_lanes AS (
    SELECT f.*, row_number() OVER (PARTITION BY f.last_timed_out ORDER BY f.place, f.last_claimed_at NULLS FIRST)
               AS place_in_lane
      FROM fair f WHERE f.place_in_organization <= f.of_organization OR (f.is_idle AND f.place = 1)
),
picked AS (
    SELECT * FROM in_lanes l
     WHERE NOT l.last_timed_out OR l.place_in_lane <= CAST(:slow_free AS integer)
     ORDER BY l.place, l.last_claimed_at NULLS FIRST, l.endpoint_id LIMIT CAST(:free AS integer)
),
-- Each picked endpoint, with its valid secrets; a secret that never expires has the end of time. One whose cursor
-- another worker holds at this instant is not marked as served: that is not worth a wait or a deadlock.
served AS MATERIALIZED (
    SELECT k.organization_id, k.endpoint_id, c.endpoint_id IS NOT NULL AS is_locked, c.next_send_at,
           (SELECT h.headers_sealed FROM webhook_endpoints h
             WHERE h.organization_id = k.organization_id AND h.id = k.endpoint_id) AS headers_sealed,
           (SELECT string_agg(coalesce(s.expires_at, 253402473600000000) || ':' || s.created_at
                                || ':' || s.id || ':' || s.secret_sealed, ' ')
              FROM webhook_secrets s WHERE s.organization_id = k.organization_id AND s.endpoint_id = k.endpoint_id
               AND (s.expires_at IS NULL OR s.expires_at > (SELECT at FROM clock) + k.ahead)) AS secrets
      FROM (SELECT DISTINCT organization_id, endpoint_id, ahead FROM picked) k
      LEFT JOIN LATERAL (
           SELECT c.* FROM webhook_cursors c
            WHERE c.organization_id = k.organization_id AND c.endpoint_id = k.endpoint_id
              FOR NO KEY UPDATE SKIP LOCKED) c ON true
)
SELECT d.organization_id, d.id, d.endpoint_id, d.event_id, d.event_type, d.failure_reason, k.url, k.last_timed_out,
       coalesce((SELECT max(a.number) FROM attempts a
                  WHERE a.organization_id = d.organization_id AND a.delivery_id = d.id), 0) + 1 AS number,
       v.body, v.traceparent, f.secrets, f.headers_sealed, (SELECT at FROM clock) AS at, k.ahead, k.max_per_second,
       f.is_locked
  FROM picked k
  JOIN served f ON f.endpoint_id = k.endpoint_id AND f.organization_id = k.organization_id
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
   -- Of an endpoint with a limit only for the worker that has its cursor, and not within the pause after the last one.
 WHERE k.max_per_second IS NULL
    OR (f.is_locked AND (f.next_send_at IS NULL OR f.next_send_at <= (SELECT at FROM clock)))
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
room AS (
    SELECT w.organization_id, w.endpoint_id, coalesce(b.attempts, 0) = 0 AS is_idle,
           :per_endpoint - coalesce(b.attempts, 0) AS of_endpoint,
           :per_organization - sum(coalesce(b.attempts, 0)) OVER (PARTITION BY w.organization_id) AS of_organization,
           coalesce((SELECT o.clock_offset FROM organizations o
                      WHERE o.id = w.organization_id AND o.clock_offset IS NOT NULL), 0) AS ahead
      FROM waiting w LEFT JOIN busy b ON b.endpoint_id = w.endpoint_id
),
due AS (
    SELECT r.*, e.url, e.last_timed_out, e.max_per_second, c.last_claimed_at, d.id, d.next_attempt_at,
           row_number() OVER (PARTITION BY r.endpoint_id ORDER BY d.next_attempt_at, d.event_sequence) AS place
      FROM room r
     CROSS JOIN webhook_endpoints e ON e.organization_id = r.organization_id AND e.id = r.endpoint_id
     CROSS JOIN webhook_cursors c ON c.organization_id = r.organization_id AND c.endpoint_id = r.endpoint_id
     CROSS JOIN deliveries d ON d.rowid IN (
           SELECT d.rowid FROM deliveries d
            WHERE d.organization_id = r.organization_id AND d.endpoint_id = r.endpoint_id AND d.status = 'queued'
              AND d.lease_until IS NULL AND d.next_attempt_at <= (SELECT at FROM clock) + r.ahead
              AND (e.status = 'enabled' OR d."trigger" = 'test')
              AND (d.attempt_count > 0 OR d.resource_id IS NULL OR NOT EXISTS (
                   SELECT 1 FROM deliveries p
                    WHERE p.organization_id = d.organization_id AND p.endpoint_id = d.endpoint_id
                      AND p.resource_id = d.resource_id AND p.event_sequence < d.event_sequence
                      AND p.completed_at IS NULL AND p.attempt_count = 0))
            ORDER BY d.next_attempt_at, d.event_sequence LIMIT max(:per_endpoint, 0))
     WHERE r.of_endpoint > 0 AND (r.of_organization > 0 OR r.is_idle)
       AND (c.next_send_at IS NULL OR c.next_send_at <= (SELECT at FROM clock))
       AND (NOT e.last_timed_out OR :slow_free > 0)
),
fair AS (
    SELECT d.*, row_number() OVER (PARTITION BY d.organization_id ORDER BY d.place, d.last_claimed_at NULLS FIRST)
               AS place_in_organization
      FROM due d
     WHERE d.place <= d.of_endpoint
       AND (d.max_per_second IS NULL
            OR d.place <= (d.max_per_second + :claims_per_second - 1) / :claims_per_second)
),
in_lanes AS (
    SELECT f.*, row_number() OVER (PARTITION BY f.last_timed_out ORDER BY f.place, f.last_claimed_at NULLS FIRST)
               AS place_in_lane
      FROM fair f WHERE f.place_in_organization <= f.of_organization OR (f.is_idle AND f.place = 1)
),
picked AS (
    SELECT * FROM in_lanes l
     WHERE NOT l.last_timed_out OR l.place_in_lane <= :slow_free
     ORDER BY l.place, l.last_claimed_at NULLS FIRST, l.endpoint_id LIMIT :free
),
served AS MATERIALIZED (
    SELECT k.organization_id, k.endpoint_id,
           (SELECT h.headers_sealed FROM webhook_endpoints h
             WHERE h.organization_id = k.organization_id AND h.id = k.endpoint_id) AS headers_sealed,
           (SELECT group_concat(coalesce(s.expires_at, 253402473600000000) || ':' || s.created_at
                                  || ':' || s.id || ':' || s.secret_sealed, ' ')
              FROM webhook_secrets s WHERE s.organization_id = k.organization_id AND s.endpoint_id = k.endpoint_id
               AND (s.expires_at IS NULL OR s.expires_at > (SELECT at FROM clock) + k.ahead)) AS secrets
      FROM (SELECT DISTINCT organization_id, endpoint_id, ahead FROM picked) k
)
SELECT d.organization_id, d.id, d.endpoint_id, d.event_id, d.event_type, d.failure_reason, k.url, k.last_timed_out,
       coalesce((SELECT max(a.number) FROM attempts a
                  WHERE a.organization_id = d.organization_id AND a.delivery_id = d.id), 0) + 1 AS number,
       v.body, v.traceparent, f.secrets, f.headers_sealed, (SELECT at FROM clock) AS at, k.ahead, k.max_per_second,
       true AS is_locked
  FROM picked k
 CROSS JOIN served f ON f.organization_id = k.organization_id AND f.endpoint_id = k.endpoint_id
 CROSS JOIN deliveries d ON d.organization_id = k.organization_id AND d.id = k.id
  LEFT JOIN events v ON v.organization_id = d.organization_id AND v.id = d.event_id
 ORDER BY k.place

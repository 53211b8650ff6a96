-- The statements of claiming.py: what a worker may send next.
--
-- On PostgreSQL, LATERAL with a LIMIT or a lock runs row by row along an index, whatever number of rows the planner
-- estimates; a plain join would now and then read a whole table. On SQLite, CROSS JOIN keeps the tables in the order in
-- which they are written.

-- part: waiting (postgresql)
-- Select the endpoints with a delivery that is queued and not leased, each with its earliest generation, by an index
-- skip scan. Cost: grows with the number of endpoints.
(SELECT organization_id, endpoint_id, generation FROM deliveries WHERE status = 'queued' AND lease_until IS NULL
  ORDER BY organization_id, endpoint_id, generation, next_attempt_at LIMIT 1)
UNION ALL
SELECT following.* FROM waiting w CROSS JOIN LATERAL (
    SELECT d.organization_id, d.endpoint_id, d.generation FROM deliveries d
     WHERE d.status = 'queued' AND d.lease_until IS NULL
       AND (d.organization_id, d.endpoint_id) > (w.organization_id, w.endpoint_id)
     ORDER BY d.organization_id, d.endpoint_id, d.generation, d.next_attempt_at LIMIT 1) following

-- part: waiting (sqlite)
-- Select the same. Two look-ups for each step, since SQLite scans row by row for a comparison of pairs.
SELECT * FROM (
    SELECT organization_id, endpoint_id, generation FROM deliveries
     WHERE status = 'queued' AND lease_until IS NULL
     ORDER BY organization_id, endpoint_id, generation, next_attempt_at LIMIT 1)
UNION ALL
SELECT d.organization_id, d.endpoint_id, d.generation
  FROM waiting w CROSS JOIN deliveries d ON d.rowid = coalesce(
       (SELECT f.rowid FROM deliveries f
         WHERE f.status = 'queued' AND f.lease_until IS NULL
           AND f.organization_id = w.organization_id AND f.endpoint_id > w.endpoint_id
         ORDER BY f.endpoint_id, f.generation, f.next_attempt_at LIMIT 1),
       (SELECT f.rowid FROM deliveries f
         WHERE f.status = 'queued' AND f.lease_until IS NULL AND f.organization_id > w.organization_id
         ORDER BY f.organization_id, f.endpoint_id, f.generation, f.next_attempt_at LIMIT 1))

-- part: behind (postgresql)
-- Select the endpoints with events behind their cursors, of the organizations that are marked.
SELECT c.organization_id, c.endpoint_id, c.served_sequence, k.last_event_sequence AS last_sequence
  FROM counters k CROSS JOIN LATERAL (
       SELECT c.* FROM webhook_cursors c
        WHERE c.organization_id = k.organization_id AND c.served_sequence < k.last_event_sequence LIMIT 1000) c
 WHERE k.has_undelivered

-- part: behind (sqlite)
-- Select the same.
SELECT c.organization_id, c.endpoint_id, c.served_sequence, k.last_event_sequence AS last_sequence
  FROM counters k CROSS JOIN webhook_cursors c
 WHERE k.has_undelivered AND c.organization_id = k.organization_id AND c.served_sequence < k.last_event_sequence

-- part: due
-- Select by these conditions, and in this order, the due deliveries of one endpoint, the longest due first. A first
-- attempt waits for the first attempts of earlier events about the same resource (decision W13), of which those in
-- flight are in leases.
AND d.generation = e.generation
AND d.next_attempt_at <= (SELECT at FROM clock) + r.ahead AND d.lease_until IS NULL
AND (e.status = 'enabled' OR d."trigger" = 'test')
AND CASE WHEN d.attempt_count > 0 OR d.resource_id IS NULL THEN true
         ELSE d.event_sequence = (
              SELECT min(p.event_sequence) FROM deliveries p
               WHERE p.organization_id = d.organization_id AND p.endpoint_id = d.endpoint_id
                 AND p.resource_id = d.resource_id AND p.generation = d.generation
                 AND p.completed_at IS NULL AND p.attempt_count = 0)
              AND NOT EXISTS (
              SELECT 1 FROM webhook_leases l
               WHERE l.organization_id = d.organization_id AND l.endpoint_id = d.endpoint_id
                 AND l.attempts LIKE '%' || CAST(d.resource_id AS text) || '%') END
ORDER BY d.next_attempt_at LIMIT CAST(:per_endpoint AS integer)

-- part: due_rows (postgresql)
-- Select the due deliveries of one endpoint.
LATERAL (
       SELECT d.id, d.next_attempt_at FROM deliveries d
        WHERE d.organization_id = r.organization_id AND d.endpoint_id = r.endpoint_id AND d.status = 'queued'
        -- include: due
       ) due

-- part: due_rows (sqlite)
-- Select the same.
deliveries due ON due.rowid IN (
       SELECT d.rowid FROM deliveries d
        WHERE d.organization_id = r.organization_id AND d.endpoint_id = r.endpoint_id AND d.status = 'queued'
        -- include: due
       )

-- part: next_events (postgresql)
-- Select the next events behind the cursor of one endpoint, of the types that it subscribes to.
LATERAL (
       SELECT next.* FROM webhook_subscriptions s CROSS JOIN LATERAL (
              SELECT v.id, v.sequence, v.created_at FROM events v
               WHERE v.organization_id = r.organization_id AND v.type = s.event_type
                 AND v.sequence > greatest(c.served_sequence, s.from_sequence)
                 AND v.sequence <= least(r.last_sequence, s.until_sequence)
                 AND v.resource_id IS DISTINCT FROM r.endpoint_id
               ORDER BY v.sequence LIMIT greatest(r.of_endpoint, 0)) next
        WHERE s.organization_id = r.organization_id AND s.endpoint_id = r.endpoint_id
        ORDER BY next.sequence LIMIT greatest(r.of_endpoint, 0)) v

-- part: next_events (sqlite)
-- Select the same.
events v ON v.rowid IN (
       SELECT x.rowid FROM webhook_subscriptions s CROSS JOIN events x ON x.rowid IN (
              SELECT y.rowid FROM events y
               WHERE y.organization_id = r.organization_id AND y.type = s.event_type
                 AND y.sequence > max(c.served_sequence, s.from_sequence)
                 AND y.sequence <= min(r.last_sequence, coalesce(s.until_sequence, r.last_sequence))
                 AND y.resource_id IS NOT r.endpoint_id
               ORDER BY y.sequence LIMIT :per_endpoint)
        WHERE s.organization_id = r.organization_id AND s.endpoint_id = r.endpoint_id
        ORDER BY x.sequence LIMIT :per_endpoint)

-- part: endpoint (postgresql)
-- Look up the endpoint.
LATERAL (
       SELECT e.* FROM webhook_endpoints e
        WHERE e.organization_id = r.organization_id AND e.id = r.endpoint_id LIMIT 1) e

-- part: endpoint (sqlite)
-- Look up the same.
webhook_endpoints e ON e.organization_id = r.organization_id AND e.id = r.endpoint_id

-- part: cursor (postgresql)
-- Look up the endpoint's cursor.
LATERAL (
       SELECT c.* FROM webhook_cursors c
        WHERE c.organization_id = r.organization_id AND c.endpoint_id = r.endpoint_id LIMIT 1) c

-- part: cursor (sqlite)
-- Look up the same.
webhook_cursors c ON c.organization_id = r.organization_id AND c.endpoint_id = r.endpoint_id

-- part: in_room
-- Restrict what is offered to endpoints that may have more attempts in flight, and whose limit leaves room now.
AND (c.next_send_at IS NULL OR c.next_send_at <= (SELECT at FROM clock))
AND r.of_endpoint > 0 AND (r.of_organization > 0 OR r.is_idle)
AND (NOT e.last_timed_out OR CAST(:slow_free AS integer) > 0)

-- part: offered_rows
-- Select the queued deliveries that are due.
SELECT r.organization_id, r.endpoint_id, r.is_idle, r.of_endpoint, r.of_organization, r.ahead, e.url, e.last_timed_out,
       e.generation, e.max_per_second, c.last_claimed_at, c.served_sequence, due.id, due.next_attempt_at AS due_at,
       CAST(NULL AS bigint) AS sequence
  FROM room r
 CROSS JOIN -- include: endpoint
 CROSS JOIN -- include: cursor
 CROSS JOIN -- include: due_rows
 WHERE r.has_rows
-- include: in_room

-- part: since (postgresql)
-- Return how long the events of one endpoint are due: as long as the first of them, so what is picked has no gap.
least(min(v.created_at) OVER (PARTITION BY r.endpoint_id), (SELECT at FROM clock) + r.ahead) AS due_at

-- part: since (sqlite)
-- Return the same.
min(min(v.created_at) OVER (PARTITION BY r.endpoint_id), (SELECT at FROM clock) + r.ahead) AS due_at

-- part: offered_events
-- Select the next events. Nothing more is taken from the log for an endpoint with 256 first attempts that wait for
-- others, or that a worker has lost.
SELECT r.organization_id, r.endpoint_id, r.is_idle, r.of_endpoint, r.of_organization, r.ahead, e.url, e.last_timed_out,
       e.generation, e.max_per_second, c.last_claimed_at, c.served_sequence, v.id,
       -- include: since
       , v.sequence
  FROM room r
 CROSS JOIN -- include: endpoint
 CROSS JOIN -- include: cursor
 CROSS JOIN -- include: next_events
 WHERE r.last_sequence > c.served_sequence AND e.status = 'enabled'
   AND (SELECT count(*) FROM (
            SELECT 1 FROM deliveries p
             WHERE p.organization_id = r.organization_id AND p.endpoint_id = r.endpoint_id
               AND p.completed_at IS NULL AND p.attempt_count = 0 AND p."trigger" = 'event'
               AND p.generation = e.generation LIMIT 256) first_attempts) < 256
-- include: in_room

-- part: picked
-- Select what the limits leave of both sources, from `candidates` to `picked`.
candidates AS (
    SELECT organization_id, endpoint_id, max(has_rows) = 1 AS has_rows, max(last_sequence) AS last_sequence
      FROM (SELECT organization_id, endpoint_id, 1 AS has_rows, CAST(NULL AS bigint) AS last_sequence FROM waiting
             UNION ALL
            SELECT organization_id, endpoint_id, 0, last_sequence FROM behind) either
     GROUP BY organization_id, endpoint_id
),
-- How many more attempts each endpoint, and its organization, may have in flight. An endpoint that has none may always
-- have one: endpoints that hang must not use up the limit of their organization for an endpoint that answers. `ahead`:
-- by how much the clock of its organization is ahead, if that is a sandbox.
room AS (
    SELECT w.organization_id, w.endpoint_id, w.has_rows, w.last_sequence, coalesce(b.attempts, 0) = 0 AS is_idle,
           CAST(:per_endpoint AS integer) - coalesce(b.attempts, 0) AS of_endpoint,
           CAST(:per_organization AS integer) - sum(coalesce(b.attempts, 0)) OVER (PARTITION BY w.organization_id)
               AS of_organization,
           coalesce((SELECT o.clock_offset FROM organizations o
                      WHERE o.id = w.organization_id AND o.clock_offset IS NOT NULL), 0) AS ahead
      FROM candidates w LEFT JOIN busy b ON b.endpoint_id = w.endpoint_id
),
-- Of an endpoint one row, then one event, so that neither source keeps the other waiting.
in_source AS (
    SELECT o.*, row_number() OVER (PARTITION BY o.endpoint_id, o.sequence IS NULL ORDER BY o.due_at, o.sequence)
               AS place_in_source
      FROM (
-- include: offered_rows
 UNION ALL
-- include: offered_events
) o
),
offered AS (
    SELECT i.*, row_number() OVER (PARTITION BY i.endpoint_id ORDER BY i.place_in_source, i.due_at, i.sequence)
               AS place
      FROM in_source i
),
-- One from each before two from any; the endpoint that was served least recently comes first.
fair AS (
    SELECT o.*, row_number() OVER (PARTITION BY o.organization_id ORDER BY o.place, o.last_claimed_at NULLS FIRST)
               AS place_in_organization
      FROM offered o WHERE o.place <= o.of_endpoint
       -- `burst`.
       AND (o.max_per_second IS NULL
            OR o.place <= (o.max_per_second + CAST(:claims_per_second AS integer) - 1)
                          / CAST(:claims_per_second AS integer))
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
)

-- part: secrets (postgresql)
-- Select the secrets of an endpoint that are valid. A secret that never expires has the end of time.
(SELECT string_agg(coalesce(s.expires_at, 253402473600000000) || ':' || s.created_at
                     || ':' || s.id || ':' || s.secret_sealed, ' ')
   FROM webhook_secrets s WHERE s.organization_id = k.organization_id AND s.endpoint_id = k.endpoint_id
    AND (s.expires_at IS NULL OR s.expires_at > (SELECT at FROM clock) + k.ahead)) AS secrets

-- part: secrets (sqlite)
-- Select the same.
(SELECT group_concat(coalesce(s.expires_at, 253402473600000000) || ':' || s.created_at
                       || ':' || s.id || ':' || s.secret_sealed, ' ')
   FROM webhook_secrets s WHERE s.organization_id = k.organization_id AND s.endpoint_id = k.endpoint_id
    AND (s.expires_at IS NULL OR s.expires_at > (SELECT at FROM clock) + k.ahead)) AS secrets

-- part: signing
-- Select what all deliveries to an endpoint share: its secrets and its headers.
(SELECT h.headers_sealed FROM webhook_endpoints h
  WHERE h.organization_id = k.organization_id AND h.id = k.endpoint_id) AS headers_sealed,
-- include: secrets

-- part: in_order (postgresql)
-- Select what the order of first attempts needs of an endpoint: whether some with a row are not over, and its leases in
-- lines, each the worker and the attempts.
(SELECT 1 FROM deliveries p
  WHERE p.organization_id = k.organization_id AND p.endpoint_id = k.endpoint_id
    AND p.completed_at IS NULL AND p.attempt_count = 0
  ORDER BY p.organization_id, p.endpoint_id, p.resource_id LIMIT 1) IS NOT NULL AS has_unfinished,
(SELECT string_agg(substr(l.token, 1, 36) || l.attempts, chr(10)) FROM webhook_leases l
  WHERE l.organization_id = k.organization_id AND l.endpoint_id = k.endpoint_id) AS leases

-- part: in_order (sqlite)
-- Select the same.
(SELECT 1 FROM deliveries p
  WHERE p.organization_id = k.organization_id AND p.endpoint_id = k.endpoint_id
    AND p.completed_at IS NULL AND p.attempt_count = 0
  ORDER BY p.organization_id, p.endpoint_id, p.resource_id LIMIT 1) IS NOT NULL AS has_unfinished,
(SELECT group_concat(substr(l.token, 1, 36) || l.attempts, char(10)) FROM webhook_leases l
  WHERE l.organization_id = k.organization_id AND l.endpoint_id = k.endpoint_id) AS leases

-- part: leases_about_it (postgresql)
-- Select these leases if one of them has a first attempt about the same resource.
CASE WHEN strpos(f.leases, CAST(v.resource_id AS text)) > 0 THEN f.leases END AS in_flight

-- part: leases_about_it (sqlite)
-- Select the same.
CASE WHEN instr(f.leases, v.resource_id) > 0 THEN f.leases END AS in_flight

-- part: claimed_row
-- Select the columns of `DueDelivery` of a queued delivery.
d.organization_id, d.id, d.endpoint_id, d.event_id, d.event_type, d.failure_reason, k.url, k.last_timed_out,
coalesce((SELECT max(a.number) FROM attempts a
           WHERE a.organization_id = d.organization_id AND a.delivery_id = d.id), 0) + 1 AS number,
(SELECT v.body FROM events v WHERE v.organization_id = d.organization_id AND v.id = d.event_id) AS body,
f.secrets, f.headers_sealed, (SELECT at FROM clock) AS at, k.ahead,
d.resource_id, CAST(NULL AS bigint) AS sequence, d.generation, d.created_at,
(SELECT v.traceparent FROM events v
  WHERE v.organization_id = d.organization_id AND v.id = d.event_id) AS traceparent,
NULL AS unfinished, NULL AS in_flight, k.max_per_second

-- part: claimed_event
-- Select the columns of `DueDelivery` of an event. An attempt that this worker has in flight may be followed by the
-- next one about the same resource; any other may not.
v.organization_id, v.id, k.endpoint_id, v.id AS event_id, v.type AS event_type, NULL AS failure_reason, k.url,
k.last_timed_out, 1 AS number, v.body, f.secrets, f.headers_sealed, (SELECT at FROM clock) AS at, k.ahead,
v.resource_id, v.sequence, k.generation, v.created_at, v.traceparent,
CASE WHEN f.has_unfinished THEN (
    SELECT CASE WHEN count(*) = 1 AND max(CASE WHEN p.lease_until IS NOT NULL
                                                 AND substr(p.lease_token, 1, 36) = CAST(:worker AS text)
                                           THEN 1 ELSE 0 END) = 1
                THEN max(CAST(p.id AS text)) WHEN count(*) > 0 THEN '' END
      FROM deliveries p
     WHERE p.organization_id = v.organization_id AND p.endpoint_id = k.endpoint_id
       AND p.resource_id = v.resource_id AND p.generation = k.generation
       AND p.completed_at IS NULL AND p.attempt_count = 0) END AS unfinished,
-- include: leases_about_it
, k.max_per_second

-- name: claim (postgresql)
-- Select due deliveries and next events, and lock them and the cursors of their endpoints. Read it from `waiting`.
-- Cost: grows with the number of endpoints and not with that of queued deliveries.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT coalesce(CAST(:now AS bigint), CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)) AS at
),
busy AS (SELECT * FROM json_to_recordset(CAST(:in_flight AS json)) AS b (endpoint_id uuid, attempts integer)),
waiting AS (
-- include: waiting
),
behind AS (
-- include: behind
),
-- include: picked
,
-- Each picked endpoint, once for all that is picked for it. One that another worker serves at this instant is not
-- marked as served, and none of its events are taken: that is not worth a wait or a deadlock.
served AS MATERIALIZED (
    SELECT k.organization_id, k.endpoint_id, c.served_sequence, c.next_send_at,
-- include: signing
           ,
-- include: in_order
      FROM (SELECT DISTINCT organization_id, endpoint_id, ahead FROM picked) k
      LEFT JOIN LATERAL (
           SELECT c.* FROM webhook_cursors c
            WHERE c.organization_id = k.organization_id AND c.endpoint_id = k.endpoint_id
              FOR NO KEY UPDATE SKIP LOCKED) c ON true
)
SELECT
-- include: claimed_row
       , f.served_sequence
  FROM picked k
  JOIN served f ON f.endpoint_id = k.endpoint_id AND f.organization_id = k.organization_id
 CROSS JOIN LATERAL (
       -- Checked again once it is locked. Within coalesce() the status is only a filter: the planner must not choose
       -- the index of all queued deliveries for it.
       SELECT d.* FROM deliveries d
        WHERE d.organization_id = k.organization_id AND d.id = k.id AND coalesce(d.status, '') = 'queued'
          -- Another worker may have sent it and failed since this statement began: then it waits again.
          AND d.lease_until IS NULL AND coalesce(d.next_attempt_at, 0) = k.due_at
          FOR UPDATE SKIP LOCKED) d
 WHERE k.sequence IS NULL
   -- Of an endpoint with a limit only for the worker that has its cursor, and not within the pause after the last one.
   AND (k.max_per_second IS NULL
        OR (f.served_sequence IS NOT NULL
            AND (f.next_send_at IS NULL OR f.next_send_at <= (SELECT at FROM clock))))
 UNION ALL
SELECT
-- include: claimed_event
       , f.served_sequence
  FROM picked k
  -- No other worker has served the endpoint since this statement began, nor was it disabled while events were waiting.
  JOIN served f ON f.endpoint_id = k.endpoint_id AND f.organization_id = k.organization_id
   AND f.served_sequence = k.served_sequence
   AND (k.max_per_second IS NULL OR f.next_send_at IS NULL OR f.next_send_at <= (SELECT at FROM clock))
 CROSS JOIN LATERAL (
       SELECT v.* FROM events v WHERE v.organization_id = k.organization_id AND v.sequence = k.sequence LIMIT 1) v
 WHERE k.sequence IS NOT NULL

-- name: claim (sqlite)
-- Select the same. There is one writer, and nothing to lock.
WITH RECURSIVE clock AS (SELECT :now AS at),
busy AS (
    SELECT json_extract(value, '$.endpoint_id') AS endpoint_id, json_extract(value, '$.attempts') AS attempts
      FROM json_each(:in_flight)
),
waiting AS (
-- include: waiting
),
behind AS (
-- include: behind
),
-- include: picked
,
served AS MATERIALIZED (
    SELECT k.organization_id, k.endpoint_id,
-- include: signing
           ,
-- include: in_order
      FROM (SELECT DISTINCT organization_id, endpoint_id, ahead FROM picked) k
)
SELECT
-- include: claimed_row
       , k.served_sequence
  FROM picked k
 CROSS JOIN served f ON f.organization_id = k.organization_id AND f.endpoint_id = k.endpoint_id
 CROSS JOIN deliveries d ON d.organization_id = k.organization_id AND d.id = k.id
 WHERE k.sequence IS NULL
 UNION ALL
SELECT
-- include: claimed_event
       , k.served_sequence
  FROM picked k
 CROSS JOIN served f ON f.organization_id = k.organization_id AND f.endpoint_id = k.endpoint_id
 CROSS JOIN events v ON v.organization_id = k.organization_id AND v.sequence = k.sequence
 WHERE k.sequence IS NOT NULL

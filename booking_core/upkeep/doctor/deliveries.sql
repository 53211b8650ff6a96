-- Checks of webhook endpoints, deliveries and their attempts. They compare rows with each other: the content that a
-- receiver got, and its signature, are not stored.
-- `[b]` stands for the condition that the row of the alias b belongs to the organization that is checked.

-- name: repeated_deliveries
-- Select events with two deliveries to one endpoint.
-- Cost: one pass over a unique index, in its order.
-- check: an event has at most one delivery for each endpoint
SELECT d.organization_id, d.event_id, count(*) || ' deliveries to ' || d.endpoint_id
  FROM deliveries d WHERE [d]
 GROUP BY d.organization_id, d.event_id, d.endpoint_id HAVING count(*) > 1

-- name: missing_deliveries
-- Select events without a delivery to an endpoint that subscribes to their type.
-- Cost: a look-up for each event of the retention and each endpoint that subscribes to it.
-- check: an event has a delivery for each endpoint that subscribes to its type
SELECT v.organization_id, v.id, v.type || ' number ' || v.sequence || ' was never queued for ' || e.id
  FROM webhook_endpoints e
  JOIN webhook_cursors c ON c.organization_id = e.organization_id AND c.endpoint_id = e.id
  JOIN webhook_subscriptions s ON s.organization_id = e.organization_id AND s.endpoint_id = e.id
  JOIN events v ON v.organization_id = e.organization_id AND v.type = s.event_type
   AND v.sequence > s.from_sequence AND v.sequence <= c.served_sequence
   AND v.sequence <= coalesce(s.until_sequence, v.sequence)
 WHERE [e] AND [v] AND e.deleted_at IS NULL AND s.missed_at IS NULL AND v.created_at > :deliveries_since
   AND (v.resource_id IS NULL OR v.resource_id <> e.id)
   AND NOT EXISTS (SELECT 1 FROM deliveries d
                    WHERE d.organization_id = e.organization_id AND d.endpoint_id = e.id
                      AND d.event_type = v.type AND d.event_sequence = v.sequence)

-- name: deliveries_to_be_repeated
-- Select deliveries of events after the cursor of their endpoint.
-- Cost: a look-up of the cursor of its endpoint for each delivery.
-- check: a delivery has a row, or is still an event of the log, and never both
SELECT d.organization_id, d.id, d.event_type || ' number ' || d.event_sequence || ' for ' || d.endpoint_id
       || ' is to be made again'
  FROM deliveries d
  JOIN webhook_endpoints e ON e.organization_id = d.organization_id AND e.id = d.endpoint_id
  JOIN webhook_cursors c ON c.organization_id = d.organization_id AND c.endpoint_id = d.endpoint_id
  JOIN webhook_subscriptions s ON s.organization_id = d.organization_id AND s.endpoint_id = d.endpoint_id
   AND s.event_type = d.event_type AND s.missed_at IS NULL AND d.event_sequence > s.from_sequence
   AND d.event_sequence <= coalesce(s.until_sequence, d.event_sequence)
 WHERE [d] AND d."trigger" <> 'test' AND e.status = 'enabled' AND d.event_sequence > c.served_sequence

-- name: places_in_the_log
-- Select endpoints without a place in the log, and those that miss events while enabled or send them while disabled.
-- Cost: one pass over the endpoints and their subscriptions.
-- check: an endpoint has its place in the log, and misses what occurs while it is disabled
SELECT e.organization_id, e.id, 'has no place in the log, or one behind its end'
  FROM webhook_endpoints e
  JOIN counters k ON k.organization_id = e.organization_id
  LEFT JOIN webhook_cursors c ON c.organization_id = e.organization_id AND c.endpoint_id = e.id
 WHERE [e] AND e.deleted_at IS NULL
   AND (c.served_sequence IS NULL OR c.served_sequence > k.last_event_sequence)
UNION ALL
SELECT e.organization_id, e.id, s.event_type || ' is missed while enabled, or sent while disabled'
  FROM webhook_endpoints e
  JOIN webhook_subscriptions s ON s.organization_id = e.organization_id AND s.endpoint_id = e.id
 WHERE [e] AND e.deleted_at IS NULL AND s.until_sequence IS NULL
   AND (e.status = 'enabled') <> (s.missed_at IS NULL)

-- name: unwanted_deliveries
-- Select deliveries of events that their endpoint does not subscribe to.
-- Cost: a look-up of its endpoint and its subscription for each delivery.
-- check: an endpoint receives only events that it subscribes to, and none about itself
SELECT d.organization_id, d.id, d.event_type || ' of ' || d.created_at || ' for ' || d.endpoint_id
  FROM deliveries d
  JOIN webhook_endpoints e ON e.organization_id = d.organization_id AND e.id = d.endpoint_id
 WHERE [d] AND d."trigger" <> 'test'
   AND (d.event_type = 'ping' OR d.resource_id = e.id OR d.created_at > e.deleted_at + :skew
        -- A client may have any event delivered again, whatever its endpoint subscribes to.
        OR (e.deleted_at IS NULL AND d.created_at > e.updated_at + :skew AND d."trigger" <> 'redeliver'
            AND NOT EXISTS (SELECT 1 FROM webhook_subscriptions s
                             WHERE s.organization_id = e.organization_id AND s.endpoint_id = e.id
                               AND s.event_type = d.event_type)))

-- name: pings
-- Select pings without exactly one delivery, and tests that are no pings.
-- Cost: a look-up for each ping.
-- check: a ping goes to one endpoint, and only pings are sent as tests
SELECT v.organization_id, v.id, 'went to ' || count(d.id) || ' endpoints'
  FROM events v
  LEFT JOIN deliveries d ON d.organization_id = v.organization_id AND d.event_id = v.id
 WHERE [v] AND v.type = 'ping' AND v.created_at > :deliveries_since
 GROUP BY v.organization_id, v.id HAVING count(d.id) <> 1
UNION ALL
SELECT d.organization_id, d.id, d.event_type || ' was sent as a test' FROM deliveries d
 WHERE [d] AND d."trigger" = 'test' AND d.event_type <> 'ping'

-- name: events_of_deliveries
-- Select deliveries that differ from their event.
-- Cost: a look-up of its event for each delivery.
-- check: a delivery agrees with its event
SELECT d.organization_id, d.id, d.status || ' ' || d.event_type || ' number ' || d.event_sequence || ', '
       || coalesce('its event is ' || v.type || ' number ' || v.sequence, 'and its event is gone')
  FROM deliveries d
  LEFT JOIN events v ON v.organization_id = d.organization_id AND v.id = d.event_id
 WHERE [d] AND ((v.id IS NULL AND (d.status = 'queued' OR d.created_at > :events_since))
                OR v.type <> d.event_type OR v.sequence <> d.event_sequence
                OR v.resource_id <> d.resource_id
                OR (v.id IS NOT NULL AND (v.resource_id IS NULL) <> (d.resource_id IS NULL)))

-- name: delivery_statuses
-- Select deliveries whose status contradicts their other columns.
-- Cost: one pass over the deliveries.
-- check: a delivery's status agrees with its other columns
SELECT d.organization_id, d.id, d.status || ', reason ' || coalesce(d.failure_reason, 'none') || ', due '
       || coalesce('' || d.next_attempt_at, 'never') || ', completed '
       || coalesce('' || d.completed_at, 'never')
  FROM deliveries d
 WHERE [d]
   AND (d.status NOT IN ('queued', 'succeeded', 'failed', 'dead')
        OR (d.status = 'queued') <> (d.completed_at IS NULL)
        OR (d.status = 'queued') <> (d.next_attempt_at IS NOT NULL)
        OR (d.status = 'succeeded' AND d.failure_reason IS NOT NULL)
        OR (d.status = 'dead' AND coalesce(d.failure_reason, '') <> 'attempts_exhausted')
        OR (d.status = 'failed'
            AND coalesce(d.failure_reason, '') NOT IN ('endpoint_disabled', 'endpoint_deleted'))
        OR (d.status = 'queued' AND d.failure_reason <> 'attempts_exhausted')
        OR (d.lease_token IS NULL) <> (d.lease_until IS NULL))

-- name: attempt_counts
-- Select deliveries whose attempt count is not the number of their attempts.
-- Cost: one pass over the deliveries and one over the attempts, grouped by delivery.
-- check: a delivery's attempt count is the number of its attempts, and within the limit
SELECT d.organization_id, d.id, d.status || ', counts ' || d.attempt_count || ' of ' || d.max_attempts
       || ', stored '  || coalesce(t.made, 0) || ', the last is number ' || coalesce(t.last, 0)
  FROM deliveries d
  LEFT JOIN (SELECT a.organization_id, a.delivery_id, count(*) AS made, max(a.number) AS last
               FROM attempts a WHERE [a] GROUP BY a.organization_id, a.delivery_id) t
    ON t.organization_id = d.organization_id AND t.delivery_id = d.id
 WHERE [d]
   AND (d.attempt_count > d.max_attempts OR d.attempt_count > coalesce(t.made, 0)
        OR coalesce(t.last, 0) <> coalesce(t.made, 0)
        OR (d.status = 'dead' AND d.attempt_count < d.max_attempts)
        OR (d."trigger" <> 'test' AND d.max_attempts < :attempts_min))

-- name: successes_without_attempt
-- Select deliveries that succeeded without a successful attempt.
-- Cost: a look-up of its attempts for each delivery that succeeded.
-- check: a delivery that succeeded has an attempt that was answered with 2xx
SELECT d.organization_id, d.id, 'succeeded without an attempt that did'
  FROM deliveries d
 WHERE [d] AND d.status = 'succeeded'
   AND NOT EXISTS (SELECT 1 FROM attempts a
                    WHERE a.organization_id = d.organization_id AND a.delivery_id = d.id
                      AND a.duration_ms IS NOT NULL AND a.error IS NULL
                      AND a.response_status BETWEEN 200 AND 299)

-- name: order_of_attempts
-- Select deliveries first attempted before that of an earlier event about the same resource.
-- Cost: a look-up of its first attempt for each delivery, and one sort of them.
-- check: first attempts for one resource are made in the order of its events
SELECT f.organization_id, f.id, 'event number ' || f.event_sequence || ' was first tried at ' || f.started_at
       || ', an earlier one at ' || f.earlier
  FROM (SELECT d.organization_id, d.id, d.event_sequence, a.started_at,
               lag(a.started_at) OVER (PARTITION BY d.organization_id, d.endpoint_id, d.resource_id
                                       ORDER BY d.event_sequence) AS earlier
          FROM deliveries d
          JOIN attempts a ON a.organization_id = d.organization_id AND a.delivery_id = d.id AND a.number = 1
         WHERE [d] AND d.resource_id IS NOT NULL AND d."trigger" = 'event') f
 WHERE f.started_at + :skew < f.earlier

-- name: queued_for_disabled_endpoint
-- Select deliveries that are queued for a disabled or deleted endpoint. Of more than a thousand, workers fail the rest
-- within seconds.
-- Cost: one pass over the index of queued deliveries.
-- check: no delivery is queued for a disabled endpoint
SELECT d.organization_id, d.id, 'queued for an endpoint that is ' || e.status
  FROM deliveries d
  JOIN webhook_endpoints e ON e.organization_id = d.organization_id AND e.id = d.endpoint_id
 WHERE [d] AND d.status = 'queued' AND (e.deleted_at IS NOT NULL OR (e.status <> 'enabled' AND d."trigger" <> 'test'))

-- name: endpoint_statuses
-- Select endpoints whose status contradicts their other columns.
-- Cost: one pass over the endpoints.
-- check: an endpoint's status agrees with its other columns
SELECT e.organization_id, e.id, e.status || ', disabled_at ' || coalesce('' || e.disabled_at, 'none')
       || ', reason ' || coalesce(e.disabled_reason, 'none')
  FROM webhook_endpoints e
 WHERE [e]
   AND (e.status NOT IN ('enabled', 'disabled', 'auto_disabled') OR e.consecutive_failures < 0
        OR (e.status = 'enabled') <> (e.disabled_at IS NULL)
        OR coalesce(e.disabled_reason, '') <> CASE e.status WHEN 'disabled' THEN 'manual'
           WHEN 'auto_disabled' THEN 'delivery_failures' ELSE '' END
        OR (e.deleted_at IS NOT NULL AND e.status <> 'disabled')
        OR (e.deleted_at IS NULL AND NOT EXISTS (
            SELECT 1 FROM webhook_subscriptions s
             WHERE s.organization_id = e.organization_id AND s.endpoint_id = e.id)))

-- name: automatic_disabling
-- Select endpoints that were disabled too early.
-- Cost: one pass over the endpoints.
-- check: an endpoint is disabled automatically only after enough failures over enough time
SELECT e.organization_id, e.id, e.consecutive_failures || ' failures in a row, off at ' || e.disabled_at
       || ', on since ' || e.enabled_at || ', last success ' || coalesce('' || e.last_success_at, 'none')
  FROM webhook_endpoints e
 WHERE [e] AND e.status = 'auto_disabled'
   -- A delivery in flight may have succeeded since, which resets the count.
   AND coalesce(e.last_success_at < e.disabled_at, true)
   AND (e.consecutive_failures < :failures_to_disable
        OR e.disabled_at - e.enabled_at < :disable_after OR e.disabled_at - e.created_at < :disable_after
        OR e.disabled_at - e.last_success_at < :disable_after)

-- name: endpoint_counts
-- Select organizations with more endpoints than the limit.
-- Cost: one pass over the endpoints.
-- check: an organization has at most {WEBHOOK_ENDPOINTS_PER_ORGANIZATION} endpoints
SELECT e.organization_id, 'webhook_endpoints', count(*) || ' endpoints'
  FROM webhook_endpoints e WHERE [e] AND e.deleted_at IS NULL
 GROUP BY e.organization_id HAVING count(*) > :endpoints_max

-- name: current_secrets
-- Select endpoints without exactly one current secret, and deleted ones with any.
-- Cost: one pass over the secrets.
-- check: an endpoint has one current secret, and a deleted endpoint has none
SELECT e.organization_id, e.id, count(s.id) || ' current secrets'
  FROM webhook_endpoints e
  LEFT JOIN webhook_secrets s ON s.organization_id = e.organization_id AND s.endpoint_id = e.id
   AND s.expires_at IS NULL
 WHERE [e] GROUP BY e.organization_id, e.id, e.deleted_at
HAVING count(s.id) <> CASE WHEN e.deleted_at IS NULL THEN 1 ELSE 0 END

-- name: overdue_deliveries
-- Select deliveries that are due, or whose lease expired, before the limit.
-- Cost: one pass over the index of queued deliveries, and one over that of leases.
-- check: a delivery is sent when it is due, and an expired lease is rescued
-- waits for: worker
-- remedy: check that a worker is running
SELECT d.organization_id, d.id, 'due at ' || coalesce('' || d.next_attempt_at, 'no time')
  FROM deliveries d
 WHERE [d] AND d.status = 'queued' AND d.lease_until IS NULL AND d.next_attempt_at < :overdue
UNION ALL
SELECT c.organization_id, c.endpoint_id, 'served up to ' || c.served_sequence || ', and number '
       || v.sequence || ' waits since ' || v.created_at
  FROM webhook_cursors c
  JOIN webhook_endpoints e ON e.organization_id = c.organization_id AND e.id = c.endpoint_id
  JOIN webhook_subscriptions s ON s.organization_id = c.organization_id AND s.endpoint_id = c.endpoint_id
  JOIN events v ON v.organization_id = c.organization_id AND v.type = s.event_type
   AND v.sequence = (SELECT min(w.sequence) FROM events w
                      WHERE w.organization_id = c.organization_id AND w.type = s.event_type
                        AND w.sequence > c.served_sequence AND w.sequence > s.from_sequence)
 WHERE [c] AND e.status = 'enabled' AND s.missed_at IS NULL AND v.created_at < :overdue
   AND v.sequence <= coalesce(s.until_sequence, v.sequence)
UNION ALL
SELECT d.organization_id, d.id, 'leased until ' || d.lease_until
  FROM deliveries d WHERE [d] AND d.lease_until < :overdue

-- name: unrecorded_deliveries
-- Select deliveries whose results could not be recorded again and again.
-- Cost: one pass over the index of leases.
-- check: the result of every delivery can be recorded
-- remedy: look in the log of the worker for the id of the delivery, and correct the row that it names
SELECT d.organization_id, d.id, 'not recorded for endpoint ' || d.endpoint_id || ', tried again at '
       || d.lease_until
  FROM deliveries d WHERE [d] AND d.lease_until IS NOT NULL AND d.lost_leases >= :expired_leases_max

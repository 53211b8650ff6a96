"""The statement CLAIM: what a worker may send next, of queued rows and of the events of the log.

It is plain SQL, once for each database. Read it from `waiting`: the endpoints with a queued delivery are found by an
index skip scan, from one endpoint to the next, so its cost grows with the number of endpoints and not with that of
queued deliveries. `behind` are the endpoints with events behind their cursors, of the organizations that are marked.
`picked` is what the limits leave of both.
"""

from collections.abc import Mapping
from typing import NamedTuple

from booking_core.clock import END_OF_TIME
from booking_core.db.engine import Tx
from booking_core.db.statements import as_json
from booking_core.db.tables import deliveries, webhook_cursors
from booking_core.db.unit_of_work import Update
from booking_core.webhooks.queue import clock_parameter, for_each

_DUE = """
              AND {d}.generation = e.generation
              AND {d}.next_attempt_at <= (SELECT at FROM clock) AND {d}.lease_until IS NULL
              AND (e.status = 'enabled' OR {d}."trigger" = 'test')
              -- A first attempt waits for the first attempts of earlier events about the same resource (decision W13).
              AND CASE WHEN {d}.attempt_count > 0 OR {d}.resource_id IS NULL THEN true
                       ELSE {d}.event_sequence = (
                            SELECT min(p.event_sequence) FROM deliveries p
                             WHERE p.organization_id = {d}.organization_id AND p.endpoint_id = {d}.endpoint_id
                               AND p.resource_id = {d}.resource_id AND p.generation = {d}.generation
                               AND p.completed_at IS NULL AND p.attempt_count = 0) END
            ORDER BY {d}.next_attempt_at LIMIT CAST(:per_endpoint AS integer)"""
"""The due deliveries of one endpoint, the longest due first."""

WAITING_MAX = 256
"""Nothing more is taken from the log for an endpoint with so many first attempts in flight, or waiting for others."""

_FOLLOWS = f"""
       e.status = 'enabled'
       AND (SELECT count(*) FROM (
                SELECT 1 FROM deliveries p
                 WHERE p.organization_id = r.organization_id AND p.endpoint_id = r.endpoint_id
                   AND p.completed_at IS NULL AND p.attempt_count = 0 AND p."trigger" = 'event'
                   AND p.generation = e.generation LIMIT {WAITING_MAX}) first_attempts) < {WAITING_MAX}"""  # noqa: S608

_IN_ROOM = """
       AND r.of_endpoint > 0 AND (r.of_organization > 0 OR r.is_idle)
       AND (NOT e.last_timed_out OR CAST(:slow_free AS integer) > 0)"""

_OFFERED_ROWS = """
    SELECT r.organization_id, r.endpoint_id, r.is_idle, r.of_endpoint, r.of_organization, e.url, e.last_timed_out,
           e.generation, c.last_claimed_at, c.served_sequence, due.id, due.next_attempt_at AS due_at,
           CAST(NULL AS bigint) AS sequence
      FROM room r
     CROSS JOIN {endpoint}
     CROSS JOIN {cursor}
     CROSS JOIN {due}
     WHERE r.has_rows {in_room}
"""
# The events of one endpoint are as long due as the first of them: so what is picked of them has no gap.
_OFFERED_EVENTS = """
    SELECT r.organization_id, r.endpoint_id, r.is_idle, r.of_endpoint, r.of_organization, e.url, e.last_timed_out,
           e.generation, c.last_claimed_at, c.served_sequence, v.id,
           {least}(min(v.created_at) OVER (PARTITION BY r.endpoint_id), (SELECT at FROM clock)) AS due_at, v.sequence
      FROM room r
     CROSS JOIN {endpoint}
     CROSS JOIN {cursor}
     CROSS JOIN {events}
     WHERE r.last_sequence > c.served_sequence AND {follows} {in_room}
"""

_PICKED = """
candidates AS (
    SELECT organization_id, endpoint_id, max(has_rows) = 1 AS has_rows, max(last_sequence) AS last_sequence
      FROM (SELECT organization_id, endpoint_id, 1 AS has_rows, CAST(NULL AS bigint) AS last_sequence FROM waiting
             UNION ALL
            SELECT organization_id, endpoint_id, 0, last_sequence FROM behind) either
     GROUP BY organization_id, endpoint_id
),
-- How many more attempts each endpoint, and its organization, may have in flight. An endpoint that has none may always
-- have one: endpoints that hang must not use up the limit of their organization for an endpoint that answers.
room AS (
    SELECT w.organization_id, w.endpoint_id, w.has_rows, w.last_sequence, coalesce(b.attempts, 0) = 0 AS is_idle,
           CAST(:per_endpoint AS integer) - coalesce(b.attempts, 0) AS of_endpoint,
           CAST(:per_organization AS integer) - sum(coalesce(b.attempts, 0)) OVER (PARTITION BY w.organization_id)
               AS of_organization
      FROM candidates w LEFT JOIN busy b ON b.endpoint_id = w.endpoint_id
),
-- Of an endpoint one row, then one event, so that neither source keeps the other waiting.
in_source AS (
    SELECT o.*, row_number() OVER (PARTITION BY o.endpoint_id, o.sequence IS NULL ORDER BY o.due_at, o.sequence)
               AS place_in_source
      FROM ({rows} UNION ALL {events}) o
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
)"""

_SECRETS = f"""
       (SELECT {{joined}}(coalesce(s.expires_at, {END_OF_TIME}) || ':' || s.created_at
                            || ':' || s.id || ':' || s.secret_sealed, ' ')
          FROM webhook_secrets s WHERE s.organization_id = k.organization_id AND s.endpoint_id = k.endpoint_id
           AND (s.expires_at IS NULL OR s.expires_at > (SELECT at FROM clock))) AS secrets,
       (SELECT at FROM clock) AS at"""  # noqa: S608 - built from constants only

_CLAIMED_ROW = f"""
       d.organization_id, d.id, d.endpoint_id, d.event_id, d.event_type, d.failure_reason, k.url, k.last_timed_out,
       coalesce((SELECT max(a.number) FROM attempts a
                  WHERE a.organization_id = d.organization_id AND a.delivery_id = d.id), 0) + 1 AS number,
       (SELECT v.body FROM events v WHERE v.organization_id = d.organization_id AND v.id = d.event_id) AS body,
       {_SECRETS}, d.resource_id, CAST(NULL AS bigint) AS sequence, d.generation, d.created_at,
       (SELECT v.traceparent FROM events v
         WHERE v.organization_id = d.organization_id AND v.id = d.event_id) AS traceparent, NULL AS unfinished"""  # noqa: S608

# An attempt that this worker has in flight may be followed by the next one about the same resource; any other may not.
_UNFINISHED = """
       (SELECT CASE WHEN count(*) = 1 AND max(CASE WHEN p.lease_until IS NOT NULL
                                                    AND substr(p.lease_token, 1, 36) = {worker} THEN 1 ELSE 0 END) = 1
                    THEN max(CAST(p.id AS text)) WHEN count(*) > 0 THEN '' END
          FROM deliveries p
         WHERE p.organization_id = v.organization_id AND p.endpoint_id = k.endpoint_id
           AND p.resource_id = v.resource_id AND p.generation = k.generation
           AND p.completed_at IS NULL AND p.attempt_count = 0) AS unfinished"""

_CLAIMED_EVENT = f"""
       v.organization_id, v.id, k.endpoint_id, v.id AS event_id, v.type AS event_type, NULL AS failure_reason, k.url,
       k.last_timed_out, 1 AS number, v.body, {_SECRETS}, v.resource_id, v.sequence, k.generation,
       v.created_at, v.traceparent, {_UNFINISHED}"""

# LATERAL with a LIMIT or a lock runs row by row along an index, whatever number of rows the planner estimates; a plain
# join would now and then read a whole table.
WAITING_POSTGRESQL = """
waiting AS (
    (SELECT organization_id, endpoint_id, generation FROM deliveries WHERE status = 'queued' AND lease_until IS NULL
      ORDER BY organization_id, endpoint_id, generation, next_attempt_at LIMIT 1)
    UNION ALL
    SELECT following.* FROM waiting w CROSS JOIN LATERAL (
        SELECT d.organization_id, d.endpoint_id, d.generation FROM deliveries d
         WHERE d.status = 'queued' AND d.lease_until IS NULL
           AND (d.organization_id, d.endpoint_id) > (w.organization_id, w.endpoint_id)
         ORDER BY d.organization_id, d.endpoint_id, d.generation, d.next_attempt_at LIMIT 1) following
)"""
"""The endpoints with a delivery that is queued and not leased, each with its earliest generation."""
_BEHIND = """
behind AS (
    SELECT c.organization_id, c.endpoint_id, c.served_sequence, k.last_event_sequence AS last_sequence
      FROM counters k CROSS JOIN {cursors}
     WHERE k.has_undelivered {condition}
)"""
BEHIND_POSTGRESQL = _BEHIND.format(
    cursors="""LATERAL (
           SELECT c.* FROM webhook_cursors c
            WHERE c.organization_id = k.organization_id AND c.served_sequence < k.last_event_sequence LIMIT 1000) c""",
    condition="",
)
_ENDPOINT_POSTGRESQL = """LATERAL (
           SELECT e.* FROM webhook_endpoints e
            WHERE e.organization_id = r.organization_id AND e.id = r.endpoint_id LIMIT 1) e"""
_CURSOR_POSTGRESQL = """LATERAL (
           SELECT c.* FROM webhook_cursors c
            WHERE c.organization_id = r.organization_id AND c.endpoint_id = r.endpoint_id LIMIT 1) c"""
_ROWS_POSTGRESQL = _OFFERED_ROWS.format(
    endpoint=_ENDPOINT_POSTGRESQL,
    cursor=_CURSOR_POSTGRESQL,
    due=f"""LATERAL (
           SELECT d.id, d.next_attempt_at FROM deliveries d
            WHERE d.organization_id = r.organization_id AND d.endpoint_id = r.endpoint_id AND d.status = 'queued'
            {_DUE.format(d="d")}) due""",  # noqa: S608
    in_room=_IN_ROOM,
)
_EVENTS_POSTGRESQL = _OFFERED_EVENTS.format(
    least="least",
    endpoint=_ENDPOINT_POSTGRESQL,
    cursor=_CURSOR_POSTGRESQL,
    events="""LATERAL (
           SELECT next.* FROM webhook_subscriptions s CROSS JOIN LATERAL (
                  SELECT v.id, v.sequence, v.created_at FROM events v
                   WHERE v.organization_id = r.organization_id AND v.type = s.event_type
                     AND v.sequence > greatest(c.served_sequence, s.from_sequence)
                     AND v.sequence <= least(r.last_sequence, s.until_sequence)
                     AND v.resource_id IS DISTINCT FROM r.endpoint_id
                   ORDER BY v.sequence LIMIT CAST(:per_endpoint AS integer)) next
            WHERE s.organization_id = r.organization_id AND s.endpoint_id = r.endpoint_id
            ORDER BY next.sequence LIMIT CAST(:per_endpoint AS integer)) v""",
    follows=_FOLLOWS,
    in_room=_IN_ROOM,
)
_CLAIM_POSTGRESQL = f"""
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT coalesce(CAST(:now AS bigint), CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)) AS at
),
busy AS (SELECT * FROM json_to_recordset(CAST(:in_flight AS json)) AS b (endpoint_id uuid, attempts integer)),
{WAITING_POSTGRESQL},
{BEHIND_POSTGRESQL},
{_PICKED.format(rows=_ROWS_POSTGRESQL, events=_EVENTS_POSTGRESQL)},
-- An endpoint that another worker serves at this instant is not marked as served, and none of its events are taken:
-- that is not worth a wait or a deadlock.
served AS MATERIALIZED (
    SELECT c.organization_id, c.endpoint_id, c.served_sequence
      FROM (SELECT DISTINCT organization_id, endpoint_id FROM picked) s
     CROSS JOIN LATERAL (
           SELECT c.* FROM webhook_cursors c
            WHERE c.organization_id = s.organization_id AND c.endpoint_id = s.endpoint_id
              FOR NO KEY UPDATE SKIP LOCKED) c
)
SELECT {_CLAIMED_ROW.format(joined="string_agg")},
       (SELECT s.served_sequence FROM served s
         WHERE s.organization_id = d.organization_id AND s.endpoint_id = d.endpoint_id) AS served_sequence
  FROM picked k
 CROSS JOIN LATERAL (
       -- Checked again once it is locked. Within coalesce() the status is only a filter: the planner must not choose
       -- the index of all queued deliveries for it.
       SELECT d.* FROM deliveries d
        WHERE d.organization_id = k.organization_id AND d.id = k.id AND coalesce(d.status, '') = 'queued'
          -- Another worker may have sent it and failed since this statement began: then it waits again.
          AND d.lease_until IS NULL AND coalesce(d.next_attempt_at, 0) = k.due_at
          FOR UPDATE SKIP LOCKED) d
 WHERE k.sequence IS NULL
 UNION ALL
SELECT {_CLAIMED_EVENT.format(joined="string_agg", worker="CAST(:worker AS text)")}, s.served_sequence
  FROM picked k
  -- Nobody served the endpoint since this statement began, nor disabled it while events were waiting.
  JOIN served s ON s.organization_id = k.organization_id AND s.endpoint_id = k.endpoint_id
   AND s.served_sequence = k.served_sequence
 CROSS JOIN LATERAL (
       SELECT v.* FROM events v WHERE v.organization_id = k.organization_id AND v.sequence = k.sequence LIMIT 1) v
 WHERE k.sequence IS NOT NULL
"""  # noqa: S608

# Two look-ups for each step, since SQLite scans row by row for a comparison of pairs; CROSS JOIN keeps the tables in
# the order in which they are written.
WAITING_SQLITE = """
waiting AS (
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
)"""
BEHIND_SQLITE = _BEHIND.format(
    cursors="webhook_cursors c",
    condition="AND c.organization_id = k.organization_id AND c.served_sequence < k.last_event_sequence",
)
_ENDPOINT_SQLITE = "webhook_endpoints e ON e.organization_id = r.organization_id AND e.id = r.endpoint_id"
_CURSOR_SQLITE = "webhook_cursors c ON c.organization_id = r.organization_id AND c.endpoint_id = r.endpoint_id"
_ROWS_SQLITE = _OFFERED_ROWS.format(
    endpoint=_ENDPOINT_SQLITE,
    cursor=_CURSOR_SQLITE,
    due=f"""deliveries due ON due.rowid IN (
           SELECT q.rowid FROM deliveries q
            WHERE q.organization_id = r.organization_id AND q.endpoint_id = r.endpoint_id AND q.status = 'queued'
            {_DUE.format(d="q")})""",  # noqa: S608
    in_room=_IN_ROOM,
)
_EVENTS_SQLITE = _OFFERED_EVENTS.format(
    least="min",
    endpoint=_ENDPOINT_SQLITE,
    cursor=_CURSOR_SQLITE,
    events="""events v ON v.rowid IN (
           SELECT x.rowid FROM webhook_subscriptions s CROSS JOIN events x ON x.rowid IN (
                  SELECT y.rowid FROM events y
                   WHERE y.organization_id = r.organization_id AND y.type = s.event_type
                     AND y.sequence > max(c.served_sequence, s.from_sequence)
                     AND y.sequence <= min(r.last_sequence, coalesce(s.until_sequence, r.last_sequence))
                     AND y.resource_id IS NOT r.endpoint_id
                   ORDER BY y.sequence LIMIT :per_endpoint)
            WHERE s.organization_id = r.organization_id AND s.endpoint_id = r.endpoint_id
            ORDER BY x.sequence LIMIT :per_endpoint)""",
    follows=_FOLLOWS,
    in_room=_IN_ROOM,
)
_CLAIM_SQLITE = f"""
WITH RECURSIVE clock AS (SELECT :now AS at),
busy AS (
    SELECT json_extract(value, '$.endpoint_id') AS endpoint_id, json_extract(value, '$.attempts') AS attempts
      FROM json_each(:in_flight)
),
{WAITING_SQLITE},
{BEHIND_SQLITE},
{_PICKED.format(rows=_ROWS_SQLITE, events=_EVENTS_SQLITE)}
SELECT {_CLAIMED_ROW.format(joined="group_concat")}, k.served_sequence
  FROM picked k CROSS JOIN deliveries d ON d.organization_id = k.organization_id AND d.id = k.id
 WHERE k.sequence IS NULL
 UNION ALL
SELECT {_CLAIMED_EVENT.format(joined="group_concat", worker=":worker")}, k.served_sequence
  FROM picked k CROSS JOIN events v ON v.organization_id = k.organization_id AND v.sequence = k.sequence
 WHERE k.sequence IS NOT NULL
"""  # noqa: S608


CLAIM = for_each(_CLAIM_POSTGRESQL, _CLAIM_SQLITE)


class DueDelivery(NamedTuple):
    """A due delivery, or the next event of an endpoint, in the order of the columns of CLAIM."""

    organization_id: str
    id: str
    """That of the delivery, or of the event."""
    endpoint_id: str
    event_id: str
    event_type: str
    failure_reason: str | None
    url: str
    last_timed_out: bool
    number: int
    body: str | None
    """Null: the event is no longer kept."""
    secrets: str | None
    at: int
    resource_id: str | None
    sequence: int | None
    """Of an event, which is no delivery yet."""
    generation: int
    created_at: int
    traceparent: str | None
    """The trace context (W3C) of the event."""
    unfinished: str | None
    """The delivery of an earlier event about the same resource, when its first attempt is the only one that is not over
    and this worker holds it. Empty: there are others. Null: there is none."""
    served_sequence: int | None
    """The cursor of its endpoint, which is locked. Null: another worker has it."""


def pick(
    tx: Tx,
    *,
    free: int,
    in_flight: Mapping[str, int],
    slow_free: int,
    per_endpoint: int,
    per_organization: int,
    worker: str | None,
    now: int | None,
) -> list[DueDelivery]:
    """Return due deliveries and next events, at most `free`; on PostgreSQL it locks them and skips locked ones."""
    busy = as_json({"endpoint_id": endpoint_id, "attempts": count} for endpoint_id, count in in_flight.items())
    found = tx.all(
        CLAIM,
        free=free,
        in_flight=busy,
        slow_free=slow_free,
        per_endpoint=per_endpoint,
        per_organization=per_organization,
        worker=worker,
        **clock_parameter(now),
    )
    return [DueDelivery._make(row) for row in found]


def live_secrets(secrets: str | None) -> list[tuple[str, str]]:
    """Return (id, sealed secret) of a claimed delivery, the newest first.

    The current secret never expires; of the others, an older secret expires sooner.
    """
    split = [secret.split(":") for secret in (secrets or "").split()]
    split.sort(key=lambda parts: (-int(parts[0]), -int(parts[1])))
    return [(secret_id, sealed) for _, _, secret_id, sealed in split]


LEASE = Update("lease", deliveries, sets=("lease_token", "lease_until", "last_attempt_at"))
SERVED = Update(
    "served",
    webhook_cursors,
    sets=("served_sequence", "last_claimed_at"),
    keys=("organization_id", "endpoint_id"),
)

# What is due next ------------------------------------------------------------------------------------------------

_NEXT = """
SELECT min(at) FROM (
    SELECT (SELECT d.next_attempt_at FROM deliveries d
             WHERE d.organization_id = w.organization_id AND d.endpoint_id = w.endpoint_id AND d.status = 'queued'
               AND d.lease_until IS NULL
               AND d.generation = (SELECT e.generation FROM webhook_endpoints e
                                    WHERE e.organization_id = w.organization_id AND e.id = w.endpoint_id)
             ORDER BY d.next_attempt_at LIMIT 1) AS at
      FROM waiting w
    UNION ALL
    SELECT (SELECT min((SELECT v.created_at FROM events v
                         WHERE v.organization_id = b.organization_id AND v.type = s.event_type
                           AND v.sequence > b.served_sequence AND v.sequence > s.from_sequence
                           AND v.sequence <= coalesce(s.until_sequence, b.last_sequence)
                         ORDER BY v.sequence LIMIT 1))
              FROM webhook_subscriptions s
             WHERE s.organization_id = b.organization_id AND s.endpoint_id = b.endpoint_id)
      FROM behind b
     WHERE (SELECT e.status FROM webhook_endpoints e
             WHERE e.organization_id = b.organization_id AND e.id = b.endpoint_id) = 'enabled'
    UNION ALL
    SELECT min(lease_until) FROM deliveries WHERE lease_until IS NOT NULL
) due
"""
NEXT = for_each(
    f"WITH RECURSIVE {WAITING_POSTGRESQL}, {BEHIND_POSTGRESQL} {_NEXT}",
    f"WITH RECURSIVE {WAITING_SQLITE}, {BEHIND_SQLITE} {_NEXT}",
)

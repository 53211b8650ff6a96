-- The statements of announcements.py.

-- name: overdue_touches
-- Select departures that were to be announced before the limit.
-- Cost: one pass over the departures that are to be announced, which are few.
SELECT t.organization_id, t.departure_id, 'to be announced at ' || min(t.due_at)
  FROM departure_touches t WHERE [t] AND t.due_at < :overdue GROUP BY t.organization_id, t.departure_id

-- name: followed_sequences
-- Select organizations that are followed beyond their log, or that nothing follows any more.
-- Cost: two look-ups for each organization that is followed.
SELECT f.organization_id, 'departures', 'followed up to ' || f.followed_sequence || ', the log ends at '
       || coalesce('' || c.last_event_sequence, 'nothing')
  FROM departure_followers f
  LEFT JOIN counters c ON c.organization_id = f.organization_id
 WHERE [f] AND (c.last_event_sequence IS NULL OR f.followed_sequence > c.last_event_sequence)

-- name: subscriptions_without_follower
-- Select organizations with an endpoint that wants departures, and that no worker follows.
-- Cost: one pass over the subscriptions of endpoints.
SELECT DISTINCT s.organization_id, 'departures', 'an endpoint subscribes to departure.updated'
  FROM webhook_subscriptions s
 WHERE [s] AND s.event_type = 'departure.updated' AND s.until_sequence IS NULL
   AND NOT EXISTS (SELECT 1 FROM departure_followers f WHERE f.organization_id = s.organization_id)

-- name: states
-- Select each departure that was announced and is not to be announced again, with its last event.
-- Cost: three look-ups for each departure of an organization that is followed.
SELECT d.id, d.id, d.starts_at, d.status, d.seats_total, d.seats_taken,
       (SELECT count(*) FROM holds h
         WHERE h.organization_id = d.organization_id AND h.departure_id = d.id AND h.ended_at IS NULL
           AND h.expires_at > :at) AS held,
       v.body
  FROM departures d
  JOIN departure_followers f ON f.organization_id = d.organization_id
  JOIN events v ON v.organization_id = d.organization_id
   AND v.sequence = (SELECT max(e.occurrence) FROM events e
                      WHERE e.organization_id = d.organization_id AND e.resource_id = d.id
                        AND e.type = 'departure.updated')
 WHERE d.organization_id = :organization_id
   AND NOT EXISTS (SELECT 1 FROM departure_touches t
                    WHERE t.organization_id = d.organization_id AND t.departure_id = d.id)
   AND NOT EXISTS (SELECT 1 FROM events e
                    WHERE e.organization_id = d.organization_id AND e.sequence > f.followed_sequence
                      AND e.resource_type = 'booking')

-- The statements of announcements.py.

-- name: overdue
-- Select departures that were to be announced before the limit.
-- Cost: one pass over the departures that are to be announced, which are few.
SELECT d.organization_id, d.id, 'to be announced at ' || d.announce_at
  FROM departures d WHERE [d] AND d.announce_at IS NOT NULL AND d.announce_at < :overdue

-- name: states
-- Select each departure that was announced to a subscription that goes on, and is not to be announced again, with its
-- last event.
-- Cost: three look-ups for each departure of an organization with such a subscription.
SELECT d.id, d.id, d.starts_at, d.status, d.seats_total, d.seats_taken,
       (SELECT count(*) FROM holds h
         WHERE h.organization_id = d.organization_id AND h.departure_id = d.id AND h.ended_at IS NULL
           AND h.expires_at > :at) AS held,
       v.body
  FROM departures d
  JOIN events v ON v.organization_id = d.organization_id
   AND v.sequence = (SELECT max(e.occurrence) FROM events e
                      WHERE e.organization_id = d.organization_id AND e.resource_id = d.id
                        AND e.type = 'departure.updated')
 WHERE d.organization_id = :organization_id AND d.announce_at IS NULL
   AND EXISTS (SELECT 1 FROM webhook_subscriptions s
                WHERE s.organization_id = d.organization_id AND s.event_type = 'departure.updated'
                  AND s.until_sequence IS NULL AND s.from_sequence < v.sequence)

-- The statements of store.py.

-- name: open_links
-- Count the guests' links that have not expired, by the secret key that made them.
SELECT b.manage_key_id, count(*)
  FROM bookings b
  JOIN departures d ON d.organization_id = b.organization_id AND d.id = b.departure_id
  JOIN experiences e ON e.organization_id = b.organization_id AND e.id = b.experience_id
 WHERE b.manage_key_id IS NOT NULL
   AND (b.manage_expires_at > CAST(:at AS bigint)
        OR coalesce(d.ends_at, d.starts_at + coalesce(e.duration_minutes, 0) * CAST(60000000 AS bigint))
           > CAST(:at AS bigint))
 GROUP BY b.manage_key_id

-- Checks of events: a dense sequence, one event for each change, in order, with the documented body; and of the
-- announcement of departures.
-- `[b]` stands for the condition that the row of the alias b belongs to the organization that is checked.

-- name: feeds
-- Select the first event that is kept of each organization's feed, and the time since which the feed is complete.
-- Earlier events were published, and purged since.
SELECT o.id AS organization_id, coalesce(f.sequence, c.last_event_sequence + 1) AS lowest,
       CASE WHEN coalesce(f.sequence, c.last_event_sequence + 1) = 1 THEN -1
            WHEN f.created_at + :skew < :events_since THEN f.created_at + :skew
            ELSE :events_since END AS complete_since
  FROM organizations o
  JOIN counters c ON c.organization_id = o.id
  LEFT JOIN events f ON f.organization_id = o.id
   AND f.sequence = (SELECT min(m.sequence) FROM events m WHERE m.organization_id = o.id)

-- name: published
-- Count the events about money by their resource and type.
-- Cost: the index of events by type has them.
SELECT e.organization_id, e.resource_id, e.type, count(*) AS published
  FROM events e
 WHERE [e] AND e.type IN ('gift_card.redeemed', 'gift_card.restored', 'booking.refunded')
 GROUP BY e.organization_id, e.resource_id, e.type

-- name: sequences
-- Select organizations whose event sequences have gaps, or do not end at the counter.
-- Cost: one pass over the primary key of the events.
-- check: event sequences are dense up to the counter
-- remedy: never lower a counter: raise it to the highest sequence, and accept the gap
SELECT c.organization_id, 'events', 'counter ' || c.last_event_sequence || ', highest '
       || coalesce(k.highest, 0) || ', lowest ' || coalesce(k.lowest, 0) || ', count ' || coalesce(k.kept, 0)
  FROM counters c
  LEFT JOIN (SELECT e.organization_id, count(*) AS kept, max(e.sequence) AS highest,
                    min(e.sequence) AS lowest
               FROM events e WHERE [e] GROUP BY e.organization_id) k
    ON k.organization_id = c.organization_id
 WHERE [c] AND k.kept > 0
   AND (k.highest <> c.last_event_sequence OR k.kept <> k.highest - k.lowest + 1 OR k.lowest < 1)

-- name: early_purges
-- Select organizations whose first events were purged before their retention ended.
-- Cost: one look-up for each organization.
-- check: no event is purged before its retention ends
SELECT k.organization_id, 'events', 'the first that is kept is ' || k.lowest
       || ', and the organization is younger than what events are kept for'
  FROM (-- include: feeds
       ) k JOIN organizations o ON o.id = k.organization_id
 WHERE [k] AND k.lowest > 1 AND o.created_at > :events_since

-- name: events_of_bookings
-- Select bookings without an event of their creation, confirmation or cancellation.
-- Cost: three look-ups along one index for each booking: with the bodies below, the most expensive check.
-- check: a booking has one event each for its creation, confirmation and cancellation
SELECT b.organization_id, b.id, b.status || ', created ' || coalesce('' || c.sequence, 'without event')
       || ', confirmed ' || coalesce('' || f.sequence, 'without event')
       || ', cancelled ' || coalesce('' || x.sequence, 'without event')
  FROM bookings b
  JOIN (-- include: feeds
       ) k ON k.organization_id = b.organization_id
  LEFT JOIN events c ON c.organization_id = b.organization_id AND c.resource_id = b.id
   AND c.type = 'booking.created' AND c.occurrence = 0
  LEFT JOIN events f ON f.organization_id = b.organization_id AND f.resource_id = b.id
   AND f.type = 'booking.confirmed' AND f.occurrence = 0
  LEFT JOIN events x ON x.organization_id = b.organization_id AND x.resource_id = b.id
   AND x.type = 'booking.cancelled' AND x.occurrence = 0
 WHERE [b] AND b.booking_number IS NOT NULL
   AND ((c.sequence IS NULL AND b.created_at > k.complete_since)
        OR (f.sequence IS NULL AND b.confirmed_at > k.complete_since)
        OR (f.sequence IS NOT NULL AND b.confirmed_at IS NULL)
        OR (x.sequence IS NULL AND b.cancelled_at > k.complete_since)
        OR (x.sequence IS NOT NULL AND b.status <> 'cancelled'))

-- name: order_of_events
-- Select created events that are not a booking's first, and events after its cancellation.
-- Cost: two look-ups for each booking.
-- check: a booking's created event is its first, and its cancelled event its last
SELECT e.organization_id, e.resource_id, e.type || ' is ' || e.sequence || ', ' || l.type || ' is '
       || l.sequence
  FROM events e
  JOIN events l ON l.organization_id = e.organization_id AND l.resource_id = e.resource_id
   AND l.sequence < e.sequence
 WHERE [e] AND e.type IN ('booking.created', 'booking.confirmed') AND e.resource_type = 'booking'
   AND (e.type = 'booking.created' OR l.type = 'booking.cancelled')

-- name: repeated_events
-- Select resources with a second event of a type that can happen once.
-- Cost: one pass over the index of resources, in its order.
-- check: an event that can happen only once is published once
SELECT e.organization_id, e.resource_id, e.type || ' was published ' || count(*) || ' times'
  FROM events e
 WHERE [e] AND e.resource_id IS NOT NULL
   AND e.type IN ('booking.created', 'booking.confirmed', 'booking.cancelled', 'customer.created', 'gift_card.issued')
 GROUP BY e.organization_id, e.resource_id, e.type HAVING count(*) > 1

-- name: events_of_customers
-- Select customers created by a booking without a customer.created event.
-- Cost: two look-ups for each customer. An imported customer or gift card has no event; a customer created by a
-- booking has the booking's created_at.
-- check: a customer created by a booking has a customer.created event
SELECT u.organization_id, u.id, 'there is no customer.created event' FROM customers u
  JOIN (-- include: feeds
       ) k ON k.organization_id = u.organization_id
 WHERE [u] AND u.created_at > k.complete_since
   AND EXISTS (SELECT 1 FROM bookings b
                WHERE b.organization_id = u.organization_id AND b.created_at = u.created_at
                  AND b.customer_id = u.id)
   AND NOT EXISTS (SELECT 1 FROM events e
                    WHERE e.organization_id = u.organization_id AND e.resource_id = u.id
                      AND e.type = 'customer.created')

-- name: events_of_redemptions
-- Select gift cards with another number of redemptions than of redemption events.
-- Cost: one pass over the ledger and the redemption events.
-- check: each redemption of a gift card has one event
SELECT g.organization_id, g.id, coalesce(n.taken, 0) || ' redemptions, '
       || coalesce(t.published, 0) || ' events'
  FROM gift_cards g
  JOIN (-- include: feeds
       ) k ON k.organization_id = g.organization_id
  LEFT JOIN (SELECT n.organization_id, n.gift_card_id, count(*) AS taken
               FROM gift_card_entries n JOIN (-- include: feeds
       ) k ON k.organization_id = n.organization_id
              WHERE [n] AND n.kind = 'redeem' AND n.created_at > k.complete_since
              GROUP BY n.organization_id, n.gift_card_id) n
    ON n.organization_id = g.organization_id AND n.gift_card_id = g.id
  LEFT JOIN (-- include: published
       ) t ON t.organization_id = g.organization_id AND t.resource_id = g.id AND t.type = 'gift_card.redeemed'
 WHERE [g] AND (coalesce(t.published, 0) < coalesce(n.taken, 0)
                OR (k.lowest = 1 AND coalesce(t.published, 0) > coalesce(n.taken, 0)))

-- name: events_of_restorations
-- Select gift cards with fewer events than restorations, or with more. The timeline entry of a restoration that was
-- published has the balance.
-- Cost: one pass over the timeline, the ledger and the events of restorations.
-- check: each restoration of a gift card has one event
SELECT g.organization_id, g.id, coalesce(t.noted, 0) || ' restorations in the timeline, ' || coalesce(n.restored, 0)
       || ' in the ledger, ' || coalesce(p.published, 0) || ' events'
  FROM gift_cards g
  JOIN (-- include: feeds
       ) k ON k.organization_id = g.organization_id
  LEFT JOIN (SELECT n.organization_id, n.gift_card_id, count(*) AS restored FROM gift_card_entries n
              WHERE [n] AND n.kind = 'restore' GROUP BY n.organization_id, n.gift_card_id) n
    ON n.organization_id = g.organization_id AND n.gift_card_id = g.id
  LEFT JOIN (SELECT n.organization_id, n.gift_card_id, count(DISTINCT t.id) AS noted
               FROM timeline t
               JOIN gift_card_entries n ON n.organization_id = t.organization_id AND n.booking_id = t.booking_id
                AND n.kind = 'restore'
               JOIN (-- include: feeds
       ) k ON k.organization_id = t.organization_id
              WHERE [t] AND t.kind = 'gift_card_restored' AND t.data LIKE '%"balance_minor":%'
                AND t.created_at > k.complete_since
              GROUP BY n.organization_id, n.gift_card_id) t
    ON t.organization_id = g.organization_id AND t.gift_card_id = g.id
  LEFT JOIN (-- include: published
       ) p ON p.organization_id = g.organization_id AND p.resource_id = g.id AND p.type = 'gift_card.restored'
 WHERE [g] AND (coalesce(p.published, 0) < coalesce(t.noted, 0)
                OR coalesce(p.published, 0) > coalesce(n.restored, 0))

-- name: events_of_refunds
-- Select bookings with fewer events than refunds that returned money, or with more. The timeline entry of a refund that
-- was published has the total.
-- Cost: one pass over the timeline, the refunds and the events of refunds.
-- check: each refund that returned money has one event
SELECT b.organization_id, b.id, coalesce(t.noted, 0) || ' refunds in the timeline, ' || coalesce(r.made, 0)
       || ' made, ' || coalesce(p.published, 0) || ' events'
  FROM bookings b
  JOIN (SELECT t.organization_id, t.booking_id AS id FROM timeline t
         WHERE [t] AND t.kind IN ('refund_settled', 'payment_returned')
         UNION
        SELECT e.organization_id, e.resource_id FROM events e WHERE [e] AND e.type = 'booking.refunded') of
    ON of.organization_id = b.organization_id AND of.id = b.id
  LEFT JOIN (SELECT m.organization_id, m.booking_id, count(*) AS made
               FROM (SELECT r.organization_id, r.booking_id FROM refunds r
                      WHERE [r] AND (r.status = 'succeeded' OR r.settled_minor > 0)
                      UNION ALL
                     SELECT t.organization_id, t.booking_id FROM timeline t
                      WHERE [t] AND t.kind = 'payment_returned') m
              GROUP BY m.organization_id, m.booking_id) r
    ON r.organization_id = b.organization_id AND r.booking_id = b.id
  LEFT JOIN (SELECT t.organization_id, t.booking_id, count(*) AS noted
               FROM timeline t
               JOIN (-- include: feeds
       ) k ON k.organization_id = t.organization_id
              WHERE [t] AND t.kind IN ('refund_settled', 'payment_returned')
                AND t.data LIKE '%"total_refunded_minor":%'
                AND t.created_at > k.complete_since
              GROUP BY t.organization_id, t.booking_id) t
    ON t.organization_id = b.organization_id AND t.booking_id = b.id
  LEFT JOIN (-- include: published
       ) p ON p.organization_id = b.organization_id AND p.resource_id = b.id AND p.type = 'booking.refunded'
 WHERE [b] AND (coalesce(p.published, 0) < coalesce(t.noted, 0)
                OR coalesce(p.published, 0) > coalesce(r.made, 0))

-- name: missing_resources
-- Select events about a booking or a customer that does not exist.
-- Cost: a look-up for each event about a booking or a customer.
-- check: an event refers to an existing booking or customer
SELECT e.organization_id, e.id, e.type || ' is about ' || coalesce('' || e.resource_id, 'nothing')
  FROM events e
 WHERE [e] AND ((e.resource_type = 'booking'
                 AND NOT EXISTS (SELECT 1 FROM bookings b
                                  WHERE b.organization_id = e.organization_id AND b.id = e.resource_id))
            OR (e.resource_type = 'customer'
                 AND NOT EXISTS (SELECT 1 FROM customers u
                                  WHERE u.organization_id = e.organization_id AND u.id = e.resource_id)))

-- name: bodies
-- Select each event of an organization with the columns that its body must agree with.
-- Cost: every body is read, which takes as long as all other checks together, with a look-up of its booking and of
-- the booking's other events for each.
-- check: an event's body agrees with its row, and contains no secret
-- rows: e.sequence
SELECT e.sequence, e.id, e.id, e.sequence, e.type, e.resource_type, e.resource_id, e.created_at, g.id,
       e.body, CASE WHEN b.id IS NOT NULL THEN
       (SELECT max(l.sequence) FROM events l
         WHERE l.organization_id = e.organization_id AND l.resource_id = e.resource_id) END,
       CASE WHEN b.id IS NOT NULL THEN
       (SELECT max(l.sequence) FROM events l
         WHERE l.organization_id = e.organization_id AND l.resource_id = e.resource_id
           AND l.type = 'booking.updated') END,
       b.booking_number, b.status, b.cancel_reason, b.source, b.departure_id, b.experience_id, b.guest_name,
       b.guest_email, b.guest_phone, b.currency, b.subtotal_minor, b.discount_minor, b.gift_card_minor,
       b.total_minor, b.payment_method, b.payment_source
  FROM events e
  LEFT JOIN gift_cards g ON g.organization_id = e.organization_id AND g.id = e.resource_id
   AND e.resource_type = 'gift_card'
  LEFT JOIN bookings b ON b.organization_id = e.organization_id AND b.id = e.resource_id
   AND e.resource_type = 'booking'
 WHERE e.organization_id = :organization_id

-- name: announcements
-- Select departures that were to be announced before the limit.
-- Cost: one pass over the departures that are to be announced, which are few.
-- check: a departure that changed is announced
-- waits for: worker
-- remedy: check that a worker is running
SELECT d.organization_id, d.id, 'to be announced at ' || d.announce_at
  FROM departures d WHERE [d] AND d.announce_at IS NOT NULL AND d.announce_at < :overdue

-- name: announced_states
-- Select each departure that was announced to a subscription that goes on, or since the last change of the settings of
-- an organization with `availability_events`, and is not to be announced again, with its last event.
-- Cost: four look-ups for each departure of an organization with such a subscription or setting.
-- check: the last departure.updated shows the departure as it is
-- rows: d.id
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
   AND (EXISTS (SELECT 1 FROM webhook_subscriptions s
                 WHERE s.organization_id = d.organization_id AND s.event_type = 'departure.updated'
                   AND s.until_sequence IS NULL AND s.from_sequence < v.sequence)
        OR EXISTS (SELECT 1 FROM organizations o
                    WHERE o.id = d.organization_id AND o.availability_events AND o.updated_at < v.created_at))

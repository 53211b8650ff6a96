-- Statements that corrupt rows, below the names of the checks that find them: the first does, others may too.
--
-- A check is named by its query in the doctor's .sql files. [booking_1] was created by the API, paid by hand, cancelled
-- and refunded by hand; 2 is confirmed; 3 is confirmed and partly paid by hand; 4 is pending; 5 is paid by card and gift
-- card; 6 too, then cancelled and refunded. test_corruption.py replaces the texts in brackets.

-- attendance
UPDATE bookings SET checked_in_at = updated_at, no_show_at = updated_at WHERE booking_number = 2;
UPDATE bookings SET checked_in_at = updated_at WHERE booking_number = 4;
UPDATE bookings SET no_show_at = updated_at WHERE booking_number = 4;
UPDATE bookings SET checked_in_at = updated_at + 1 WHERE booking_number = 2;
UPDATE bookings SET no_show_at = confirmed_at - 1 WHERE booking_number = 3;

-- seats_taken, seats
UPDATE departures SET seats_taken = seats_taken + 1;
UPDATE bookings SET seats = seats + 1 WHERE status = 'pending';
UPDATE bookings SET seats = seats + 1 WHERE booking_number = 2;

-- oversold_departures
UPDATE departures SET seats_ceiling = seats_taken - 1, seats_total = seats_taken - 1;
UPDATE departures SET seats_ceiling = seats_total - 1;

-- oversold_departures, seats_taken
UPDATE departures SET seats_taken = -1;

-- holds
UPDATE holds SET seats = 0;
UPDATE holds SET expires_at = created_at - 1;
UPDATE holds SET ended_at = created_at - 1;

-- booked_holds
UPDATE holds SET booking_id = [booking_2];
UPDATE holds SET ended_at = created_at, booking_id = [missing_id];
INSERT INTO holds (organization_id, id, departure_id, seats, expires_at, ended_at, booking_id, created_at) SELECT
    h.organization_id, b.id, h.departure_id, 1, h.expires_at, h.created_at, [booking_2], h.created_at FROM holds h
    JOIN bookings b ON b.organization_id = h.organization_id AND b.booking_number IN (2, 3);

-- overbooked_holds
UPDATE holds SET seats = 100000, created_at = expires_at;

-- booking_numbers, bodies
UPDATE bookings SET booking_number = 8 WHERE booking_number = 7;
UPDATE counters SET last_booking_number = last_booking_number + 1;
UPDATE counters SET last_booking_number = last_booking_number - 1;

-- booking_numbers, bodies, order_of_numbers
UPDATE bookings SET booking_number = 4 WHERE booking_number = 5;

-- missing_counters
DELETE FROM counters;

-- order_of_numbers, bodies
UPDATE bookings SET booking_number = 5 - booking_number WHERE booking_number IN (2, 3);

-- totals, bodies
UPDATE bookings SET total_minor = total_minor + 1 WHERE booking_number = 2;
UPDATE bookings SET total_minor = -1, discount_minor = subtotal_minor + 1 WHERE booking_number = 2;

-- lines, bodies, seats
UPDATE bookings SET subtotal_minor = subtotal_minor + 1, total_minor = total_minor + 1 WHERE booking_number = 2;
UPDATE bookings SET currency = 'EUR' WHERE booking_number = 2;
UPDATE bookings SET guests = '[]' WHERE booking_number = 2;
UPDATE bookings SET guests = 'none' WHERE booking_number = 2;
UPDATE bookings SET add_ons = guests WHERE booking_number = 2;

-- experiences, bodies
UPDATE bookings SET experience_id = departure_id WHERE booking_number = 2;

-- experiences, bodies, seats_taken
UPDATE bookings SET departure_id = experience_id WHERE booking_number = 2;

-- statuses, bodies
UPDATE bookings SET expires_at = NULL WHERE status = 'pending';
UPDATE bookings SET source = NULL WHERE booking_number = 4;
UPDATE bookings SET source = 'unknown' WHERE booking_number = 4;
UPDATE bookings SET cancel_reason = 'api' WHERE booking_number = 2;

-- statuses, events_of_bookings
UPDATE bookings SET confirmed_at = NULL WHERE booking_number = 2;

-- statuses, bodies, seats_taken
UPDATE bookings SET status = 'cancelled' WHERE booking_number = 2;

-- statuses, bodies
UPDATE bookings SET cancel_reason = NULL WHERE booking_number = 1;
UPDATE bookings SET cancel_reason = 'whim' WHERE booking_number = 1;
UPDATE bookings SET cancel_reason = 'abandoned' WHERE booking_number = 6;

-- order_of_changes
UPDATE bookings SET updated_at = created_at - 1 WHERE booking_number = 2;
UPDATE bookings SET cancelled_at = confirmed_at - 1 WHERE booking_number = 6;
UPDATE bookings SET updated_at = cancelled_at - 1 WHERE booking_number = 6;
UPDATE bookings SET confirmed_at = created_at - 1 WHERE booking_number = 5;

-- early_changes
UPDATE experiences SET updated_at = created_at - 1;
UPDATE departures SET updated_at = created_at - 1;
UPDATE customers SET updated_at = created_at - 1;
UPDATE gift_cards SET updated_at = created_at - 1;
UPDATE payments SET updated_at = created_at - 1;
UPDATE refunds SET updated_at = created_at - 1;
UPDATE deliveries SET updated_at = created_at - 1;
UPDATE webhook_endpoints SET updated_at = created_at - 1 WHERE status = 'auto_disabled';

-- overdue_bookings
UPDATE bookings SET expires_at = 1 WHERE status = 'pending';

-- gift_card_balances
UPDATE gift_cards SET balance_minor = balance_minor - 1;
UPDATE gift_cards SET balance_minor = 1 WHERE balance_minor = 0;

-- gift_card_ledgers
UPDATE gift_card_entries SET balance_minor = balance_minor + 1 WHERE kind = 'redeem';
UPDATE gift_card_entries SET created_at = created_at - 86400000000 WHERE kind = 'restore';

-- gift_card_balances
UPDATE gift_card_entries SET kind = 'adjust' WHERE kind = 'issue';

-- gift_card_balances, gift_card_ledgers
UPDATE gift_cards SET balance_minor = balance_minor - 1, initial_minor = initial_minor - 1;
DELETE FROM gift_card_entries WHERE kind = 'issue';

-- gift_card_balances, gift_card_redemptions, gift_card_restorations, gift_card_ledgers
UPDATE gift_card_entries SET amount_minor = amount_minor - 1;

-- gift_card_redemptions, bodies, totals
UPDATE bookings SET gift_card_minor = gift_card_minor + 1, discount_minor = -1 WHERE id = [booking_5];

-- gift_card_redemptions
UPDATE gift_cards SET currency = 'EUR';

-- redemptions_without_entry, events_of_redemptions, gift_card_balances
DELETE FROM gift_card_entries WHERE booking_id = [booking_5];

-- gift_card_restorations, gift_card_balances, gift_card_ledgers, events_of_restorations
DELETE FROM gift_card_entries WHERE kind = 'restore';
INSERT INTO gift_card_entries SELECT * FROM gift_card_entries WHERE kind = 'restore';

-- gift_card_restorations
UPDATE gift_card_entries SET booking_id = [booking_5] WHERE kind = 'restore';
UPDATE gift_card_entries SET booking_id = [booking_2] WHERE kind = 'restore';

-- payments_of_bookings
UPDATE payments SET amount_minor = amount_minor + 1 WHERE booking_id = [booking_5];
UPDATE payments SET currency = 'EUR' WHERE booking_id = [booking_5];
DELETE FROM payments WHERE booking_id = [booking_4];
INSERT INTO payments SELECT * FROM payments WHERE booking_id = [booking_4];

-- payments_of_bookings, recorded_payments
DELETE FROM payment_records WHERE booking_id = [booking_3];

-- payments_of_bookings, bodies, payment_states
UPDATE bookings SET payment_method = 'external_paid' WHERE booking_number = 3;

-- recorded_payments
UPDATE bookings SET recorded_minor = recorded_minor + 1 WHERE booking_number = 3;
UPDATE payment_records SET amount_minor = amount_minor + 1 WHERE amount_minor = 500;
UPDATE payment_records SET voided_at = NULL;
UPDATE payment_records SET currency = 'EUR' WHERE amount_minor = 500;
UPDATE payments SET amount_minor = amount_minor + 1 WHERE booking_id = [booking_3];

-- settled_refunds
UPDATE refunds SET settled_note = NULL WHERE status = 'settled';
UPDATE refunds SET settled_at = NULL WHERE status = 'settled';
UPDATE refunds SET settled_at = 1 WHERE status = 'succeeded';
UPDATE refunds SET settled_at = created_at - 1 WHERE status = 'settled';

-- settled_refunds, events_of_refunds, refunded_amounts
UPDATE refunds SET settled_minor = NULL WHERE status = 'settled';

-- refunded_amounts, events_of_refunds, settled_refunds
UPDATE refunds SET status = 'failed' WHERE status = 'settled';
UPDATE refunds SET settled_minor = 1 WHERE status = 'settled';
UPDATE refunds SET settled_minor = NULL, settled_at = NULL, status = 'needs_review' WHERE status = 'settled';

-- payments_of_bookings, bodies, payment_states, recorded_payments
UPDATE bookings SET payment_source = 'external' WHERE booking_number = 5;

-- payment_statuses, payment_states, timeline_without_payment
UPDATE payments SET status = 'paid' WHERE booking_id = [booking_3];
UPDATE bookings SET payment_status = 'paid' WHERE booking_number = 3;
UPDATE bookings SET payment_status = 'unpaid' WHERE booking_number = 5;
UPDATE payments SET status = 'refunded' WHERE refunded_minor > 0;

-- refunds_of_bookings
UPDATE refunds SET currency = 'EUR';

-- refunds_of_bookings, lost_refunds, refunded_amounts, timeline_without_payment, events_of_refunds
UPDATE refunds SET amount_minor = amount_minor + 100000;
UPDATE refunds SET amount_minor = 0;
UPDATE refunds SET booking_id = [booking_5] WHERE status = 'succeeded';

-- refunds_of_bookings
INSERT INTO refunds SELECT * FROM refunds;

-- refunded_amounts
UPDATE payments SET refunded_minor = refunded_minor + 1 WHERE status = 'partially_refunded';
UPDATE refunds SET provider_refund_id = NULL;

-- refunded_amounts, events_of_refunds
UPDATE refunds SET status = 'failed' WHERE status = 'succeeded';

-- released_payments
UPDATE payments SET released_minor = -1 WHERE booking_id = [booking_5];

-- released_payments, lost_refunds, refunded_amounts, refunds_of_bookings
UPDATE refunds SET number = 1 WHERE status = 'succeeded';

-- gift_card_redemptions, gift_card_restorations
UPDATE gift_card_entries SET number = 1 WHERE kind = 'restore';

-- overdue_refunds, refunded_amounts, events_of_refunds
UPDATE refunds SET status = 'requested', next_attempt_at = 1 WHERE status = 'succeeded';
UPDATE refunds SET status = 'sending', next_attempt_at = NULL WHERE status = 'succeeded';
UPDATE refunds SET status = 'sending', lease_until = 1 WHERE status = 'succeeded';

-- sequences, places_in_the_log
UPDATE counters SET last_event_sequence = last_event_sequence - 1;

-- sequences, events_of_deliveries
DELETE FROM events WHERE type = 'customer.updated';

-- early_purges, events_of_customers, events_of_deliveries
DELETE FROM events WHERE sequence < 4;

-- events_of_bookings, bodies, events_of_deliveries, sequences
DELETE FROM events WHERE type = 'booking.created' AND resource_id = [booking_2];
DELETE FROM events WHERE type = 'booking.confirmed' AND resource_id = [booking_2];
DELETE FROM events WHERE type = 'booking.cancelled' AND resource_id = [booking_6];

-- events_of_bookings
UPDATE events SET occurrence = 9 WHERE type = 'booking.confirmed' AND resource_id = [booking_2];

-- events_of_bookings, bodies, payment_states, refunds_of_bookings, seats_taken
UPDATE bookings SET status = 'confirmed', cancelled_at = NULL, cancel_reason = NULL WHERE booking_number = 1;

-- order_of_events, bodies, events_of_bookings, events_of_deliveries, missing_deliveries, order_of_numbers
UPDATE events SET type = CASE type WHEN 'booking.created' THEN 'booking.confirmed' ELSE 'booking.created' END WHERE
    type IN ('booking.created', 'booking.confirmed');

-- order_of_events, bodies, events_of_bookings, missing_guest_mails, missing_staff_mails, sequences
UPDATE events SET sequence = sequence + 1000 WHERE type = 'booking.confirmed' AND resource_id = [booking_6];
UPDATE events SET type = 'booking.rescheduled', sequence = 0 WHERE type = 'booking.confirmed' AND resource_id =
    [booking_2];

-- repeated_events, sequences
INSERT INTO events SELECT * FROM events WHERE type = 'booking.confirmed' AND resource_id = [booking_2];

-- events_of_customers, events_of_deliveries, sequences
DELETE FROM events WHERE type = 'customer.created' AND resource_id = (SELECT customer_id FROM bookings WHERE
    booking_number = 5);

-- events_of_redemptions, sequences
DELETE FROM events WHERE type = 'gift_card.redeemed';

-- events_of_refunds, sequences
DELETE FROM events WHERE type = 'booking.refunded';

-- events_of_restorations
UPDATE timeline SET kind = 'gift_card_restored', data = '{"balance_minor":1}' WHERE kind = 'payment_received';

-- missing_resources, bodies, events_of_bookings
UPDATE events SET resource_id = [missing_id] WHERE type = 'booking.confirmed' AND resource_id = [booking_2];

-- missing_resources, bodies, events_of_customers, events_of_deliveries, repeated_events
UPDATE events SET resource_id = [missing_id] WHERE type = 'customer.created';

-- bodies
UPDATE events SET body = replace(body, '"manage_url":null', '"manage_url":"https"') WHERE type = 'booking.confirmed';
UPDATE events SET body = replace(body, '"type":"booking.confirmed"', '"type":"booking.created"') WHERE type =
    'booking.confirmed';
UPDATE events SET body = replace(body, '"sequence":', '"sequence":1') WHERE type = 'booking.confirmed';
UPDATE events SET body = replace(body, '"status":"confirmed"', '"status":"pending"') WHERE type = 'booking.confirmed';
UPDATE events SET body = replace(body, '"reason":"admin"', '"reason":"api"') WHERE type = 'booking.cancelled';
UPDATE events SET body = replace(body, '"object":{', '"object":{"code":"SUMMER",') WHERE type = 'gift_card.issued';
UPDATE events SET body = replace(body, '"object":{"id":"', '"object":{"id":"x') WHERE type = 'gift_card.issued';
UPDATE events SET body = replace(body, '"api_version":"', '"api_version":"","x":"') WHERE type = 'customer.created';
UPDATE events SET body = replace(body, '"changes":{"', '"changes":{"colour":1,"') WHERE type = 'booking.updated';
UPDATE events SET body = replace(body, '"changes":{"', '"changes":{"manage_url":"https","') WHERE type =
    'booking.updated';
UPDATE events SET body = 'none' WHERE type = 'booking.confirmed';
UPDATE events SET body = '{"data":{"object":[]}}' WHERE type = 'booking.confirmed';
UPDATE events SET body = replace(body, '"booking_number":', '"booking_number":1') WHERE type LIKE 'booking.%';
UPDATE events SET body = replace(body, '"source":"api"', '"source":"admin"') WHERE type LIKE 'booking.%';
UPDATE events SET body = replace(body, '"total":{"amount_minor":', '"total":{"amount_minor":1') WHERE type LIKE
    'booking.%';
UPDATE events SET body = replace(body, '"subtotal":{"amount_minor":', '"subtotal":{"amount_minor":1') WHERE type LIKE
    'booking.%';
UPDATE events SET body = replace(body, '"currency":"NOK"}},"payment"', '"currency":"EUR"}},"payment"') WHERE type LIKE
    'booking.%';
UPDATE events SET body = replace(body, '"customer":{"name":"', '"customer":{"name":"x') WHERE type LIKE 'booking.%';
UPDATE events SET body = replace(body, '"email":"', '"email":"x') WHERE type LIKE 'booking.%';
UPDATE events SET body = replace(body, '"method":"card"', '"method":"invoice"') WHERE type LIKE 'booking.%';
UPDATE events SET body = replace(body, '"departure":{"id":"', '"departure":{"id":"x') WHERE type = 'booking.confirmed'
    AND resource_id = [booking_2];
UPDATE events SET body = replace(body, '"experience":{"id":"', '"experience":{"id":"x') WHERE type =
    'booking.updated' AND resource_id = [booking_3];
UPDATE events SET body = replace(body, '"status":"pending"', '"status":"paused"') WHERE type = 'booking.created' AND
    resource_id = [booking_4];
UPDATE events SET created_at = created_at + 1000000 WHERE type = 'booking.confirmed';
UPDATE events SET id = [missing_id] WHERE type = 'booking.confirmed' AND resource_id = [booking_2];

-- repeated_deliveries
INSERT INTO deliveries SELECT * FROM deliveries WHERE status = 'queued' AND event_type = 'booking.cancelled';

-- missing_deliveries
DELETE FROM deliveries WHERE event_type = 'booking.cancelled';

-- deliveries_to_be_repeated, unmarked_organizations
UPDATE webhook_cursors SET served_sequence = 0;

-- places_in_the_log
UPDATE webhook_cursors SET served_sequence = 1000000;
UPDATE webhook_subscriptions SET missed_at = 1 WHERE until_sequence IS NULL;
UPDATE webhook_subscriptions SET missed_at = NULL;
DELETE FROM webhook_cursors;

-- sequences
UPDATE counters SET last_event_sequence = last_event_sequence + 1;

-- unwanted_deliveries
DELETE FROM webhook_subscriptions WHERE event_type = 'booking.cancelled';

-- unwanted_deliveries, events_of_deliveries
UPDATE deliveries SET resource_id = endpoint_id WHERE event_type = 'booking.cancelled';

-- unwanted_deliveries, current_secrets, queued_for_disabled_endpoint
UPDATE webhook_endpoints SET deleted_at = created_at, status = 'disabled', disabled_at = created_at, disabled_reason =
    'manual' WHERE status = 'enabled';

-- pings
UPDATE deliveries SET "trigger" = 'test' WHERE event_type = 'booking.cancelled';

-- pings, bodies, events_of_bookings
UPDATE events SET type = 'ping' WHERE type = 'booking.confirmed' AND resource_id = [booking_2];

-- events_of_deliveries, deliveries_to_be_repeated, missing_deliveries
UPDATE deliveries SET event_sequence = event_sequence + 100 WHERE event_type = 'booking.cancelled';

-- events_of_deliveries
UPDATE deliveries SET resource_id = NULL WHERE event_type = 'booking.cancelled';

-- events_of_deliveries, missing_deliveries
UPDATE deliveries SET event_type = 'booking.created' WHERE event_type = 'booking.cancelled';

-- events_of_deliveries, missing_deliveries, repeated_deliveries
UPDATE deliveries SET event_id = [missing_id] WHERE event_type = 'booking.cancelled';

-- delivery_statuses
UPDATE deliveries SET completed_at = NULL WHERE status = 'dead';
UPDATE deliveries SET next_attempt_at = 1 WHERE status = 'succeeded';
UPDATE deliveries SET next_attempt_at = NULL WHERE status = 'queued';
UPDATE deliveries SET failure_reason = NULL WHERE status = 'failed';
UPDATE deliveries SET failure_reason = 'endpoint_deleted' WHERE status = 'dead';
UPDATE deliveries SET failure_reason = 'endpoint_deleted' WHERE status = 'succeeded';
UPDATE deliveries SET lease_token = 'held' WHERE status = 'queued';
UPDATE deliveries SET status = 'lost' WHERE status = 'failed';

-- attempt_counts
UPDATE deliveries SET attempt_count = 7 WHERE status = 'dead';
UPDATE deliveries SET max_attempts = 7 WHERE status = 'dead';
UPDATE deliveries SET max_attempts = 5 WHERE event_type = 'booking.cancelled';
DELETE FROM attempts WHERE error = 'http_status';
UPDATE attempts SET number = 9 WHERE number = 6;
UPDATE deliveries SET attempt_count = 1 WHERE event_type = 'booking.cancelled';

-- successes_without_attempt
UPDATE attempts SET response_status = 302 WHERE error IS NULL;
UPDATE attempts SET error = 'timeout' WHERE error IS NULL;
UPDATE attempts SET duration_ms = NULL WHERE error IS NULL;

-- order_of_attempts
UPDATE attempts SET started_at = 1 WHERE number = 1 AND delivery_id IN (SELECT id FROM deliveries WHERE event_sequence
    = (SELECT max(event_sequence) FROM deliveries WHERE event_type = 'customer.updated'));

-- queued_for_disabled_endpoint
UPDATE deliveries SET status = 'queued', completed_at = NULL, failure_reason = NULL, next_attempt_at = created_at
    WHERE status = 'failed';

-- endpoint_statuses
UPDATE webhook_endpoints SET disabled_reason = 'manual' WHERE status = 'auto_disabled';
UPDATE webhook_endpoints SET disabled_at = 1 WHERE status = 'enabled';
UPDATE webhook_endpoints SET consecutive_failures = -1 WHERE status = 'enabled';
UPDATE webhook_endpoints SET status = 'paused' WHERE status = 'auto_disabled';
DELETE FROM webhook_subscriptions WHERE event_type = 'customer.updated';

-- automatic_disabling
UPDATE webhook_endpoints SET consecutive_failures = 5 WHERE status = 'auto_disabled';
UPDATE webhook_endpoints SET enabled_at = disabled_at - 1 WHERE status = 'auto_disabled';
UPDATE webhook_endpoints SET last_success_at = disabled_at - 1 WHERE status = 'auto_disabled';

-- endpoint_counts, current_secrets
INSERT INTO webhook_endpoints SELECT e.* FROM webhook_endpoints e, (SELECT 1 FROM events LIMIT 9) n WHERE e.status =
    'enabled';

-- current_secrets
DELETE FROM webhook_secrets;
UPDATE webhook_secrets SET expires_at = 1;

-- overdue_deliveries
UPDATE deliveries SET next_attempt_at = 1 WHERE status = 'queued';
UPDATE deliveries SET lease_until = 1, lease_token = 'held' WHERE status = 'queued';

-- unrecorded_deliveries
UPDATE deliveries SET lease_until = next_attempt_at + 1, lease_token = 'held', lost_leases = 3 WHERE status =
    'queued';

-- active_keys
UPDATE api_keys SET revoked_at = NULL;

-- scopes
UPDATE api_keys SET scopes = '["bookings:read", "bookings:erase"]';
UPDATE api_keys SET scopes = '{"bookings:read": 1}';
UPDATE api_keys SET scopes = '[["bookings:read"]]';
UPDATE api_keys SET scopes = '["bookings';

-- mixed_keys
UPDATE api_keys SET prefix = 'svc_test_3kPz9QwX';
UPDATE organizations SET clock_offset = 0;
UPDATE organizations SET clock_offset = -1;

-- missing_responses
DELETE FROM idempotency WHERE key = 'healthy-1';
DELETE FROM idempotency;
UPDATE idempotency SET created_at = created_at + 1 WHERE key = 'healthy-1';

-- repeated_responses
INSERT INTO idempotency SELECT * FROM idempotency;

-- repeated_addresses
INSERT INTO customers SELECT * FROM customers;

-- repeated_addresses, addresses, customer_keys
UPDATE customers SET email_key = 'one@example.com';

-- translations
UPDATE experiences SET translations = '["de"]';
UPDATE experiences SET translations = '{"de": "Kajak"}';
UPDATE experiences SET translations = '{"de": {"price_tiers": ["Erwachsene"]}}';
UPDATE experiences SET translations = '{"de": {"title"';

-- customer_keys
UPDATE customers SET email = 'another@example.com';

-- missing_references, bookings_without_timeline, timeline_without_payment
UPDATE timeline SET customer_id = [missing_id];
UPDATE timeline SET booking_id = [missing_id];
UPDATE mails SET booking_id = [missing_id];

-- missing_references, outbox_without_mail
UPDATE mails SET effect_key = 'nothing';

-- outbox_without_mail
DELETE FROM mails;

-- missing_references, missing_deliveries
UPDATE deliveries SET endpoint_id = [missing_id];

-- missing_references, attempt_counts, successes_without_attempt
UPDATE attempts SET delivery_id = [missing_id];

-- missing_references, outbox_statuses
UPDATE effects SET subject_id = [missing_id] WHERE kind = 'booking_rescheduling_mail';
UPDATE effects SET subject_id = [missing_id] WHERE kind LIKE 'staff_webhook%';
UPDATE effects SET kind = 'staff_key_expiring_mail' WHERE kind = 'booking_rescheduling_mail';

-- outbox_statuses, missing_staff_mails
UPDATE effects SET completed_at = 1 WHERE status = 'queued';
UPDATE effects SET completed_at = NULL WHERE status = 'done';
UPDATE effects SET status = 'lost' WHERE status = 'done';
INSERT INTO effects SELECT * FROM effects;
UPDATE effects SET key = key || 'x' WHERE kind = 'staff_booking_mail';

-- mail_statuses
UPDATE mails SET sent_at = NULL;
UPDATE mails SET completed_at = NULL;
UPDATE mails SET status = 'lost';
INSERT INTO mails SELECT * FROM mails;

-- missing_guest_mails
DELETE FROM effects WHERE kind = 'booking_confirmation_mail';
UPDATE bookings SET send_confirmation_email = false WHERE booking_number = 2;
DELETE FROM effects WHERE kind = 'booking_cancellation_mail';

-- missing_staff_mails
DELETE FROM effects WHERE kind = 'staff_booking_mail';
DELETE FROM effects WHERE kind = 'staff_cancellation_mail';

-- missing_guest_mails, bodies, events_of_bookings, events_of_deliveries, missing_deliveries, missing_staff_mails
UPDATE events SET type = 'booking.rescheduled' WHERE type = 'booking.created' AND resource_id = [booking_7];

-- plain_secrets, sealed_values
UPDATE api_keys SET key_hash = 'svc_open';
UPDATE webhook_secrets SET secret_sealed = 'whsec_open';
UPDATE idempotency SET body_sealed = '{}';
UPDATE mails SET message = 'https://example.com/manage/open';

-- overdue_mails
UPDATE effects SET due_at = 1 WHERE status = 'queued';
UPDATE effects SET lease_until = 1 WHERE status = 'queued';

-- overdue_mails, sealed_values
UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL, next_attempt_at = 1;
UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL;

-- clocks
INSERT INTO retention_clock (id, at, moved_at) VALUES (1, 0, 9000000000000000);
INSERT INTO retention_clock (id, at, moved_at) VALUES (1, 9000000000000000, 9000000000000000);

-- seats, seats_taken
UPDATE bookings SET seats = 0 WHERE booking_number = 2;
UPDATE bookings SET seats = 0 WHERE booking_number = 4;

-- seats
UPDATE bookings SET seats = 0 WHERE booking_number = 1;
UPDATE experiences SET price_tiers = replace(price_tiers, '"seats_per_unit": 1', '"seats_per_unit": 2');

-- addresses, bodies
UPDATE bookings SET guest_email = 'another@example.com' WHERE booking_number = 2;

-- addresses, bookings_without_timeline
UPDATE bookings SET customer_id = (SELECT customer_id FROM bookings WHERE booking_number = 2) WHERE booking_number =
    5;

-- bookings_without_timeline
DELETE FROM timeline WHERE booking_id = [booking_2];
DELETE FROM timeline WHERE kind = 'booking_created' AND booking_id = [booking_4];
UPDATE timeline SET booking_id = [booking_3] WHERE booking_id = [booking_2];

-- unfinished_erasures
INSERT INTO erasures SELECT organization_id, id, 1, '[]', 'bookings', '[]', 1, CAST(NULL AS bigint) FROM customers;

-- unerased_bookings
INSERT INTO erasures SELECT organization_id, id, 1, '[]', 'bookings', '[]', 1, 1 FROM customers;

-- customers_without_erasure
UPDATE customers SET anonymized_at = 1;

-- payment_states, payment_statuses
UPDATE bookings SET payment_status = 'refunded' WHERE booking_number = 2;
UPDATE bookings SET payment_status = 'pending' WHERE booking_number = 2;
UPDATE bookings SET payment_status = 'failed' WHERE booking_number = 1;
UPDATE bookings SET invoice_due = true WHERE booking_number = 2;
UPDATE bookings SET on_site_fee_minor = 1 WHERE booking_number = 5;
UPDATE bookings SET payment_status = 'maybe' WHERE booking_number = 3;

-- payment_states, bodies, payments_of_bookings
UPDATE bookings SET payment_method = 'external_paid', payment_source = 'on_site' WHERE booking_number = 2;
UPDATE bookings SET payment_method = 'external_paid', payment_source = 'external', payment_status = 'unpaid' WHERE
    booking_number = 2;
UPDATE bookings SET payment_method = 'free' WHERE booking_number = 3;
UPDATE bookings SET payment_method = 'barter' WHERE booking_number = 3;

-- payment_states, payment_statuses, recorded_payments, refunds_of_bookings
UPDATE bookings SET payment_status = 'paid', recorded_minor = 0 WHERE payment_method = 'pay_on_site';
UPDATE bookings SET payment_status = 'paid', invoice_due = false WHERE payment_method = 'invoice';

-- payment_states, payment_statuses
UPDATE bookings SET payment_status = 'unpaid' WHERE booking_number = 4;

-- shared_intents, intents_without_payment
UPDATE payments SET payment_intent = 'pi_of_all' WHERE payment_intent IS NOT NULL;

-- intents_without_payment, sealed_values
UPDATE payment_intents SET intent_id = 'pi_of_nobody';
UPDATE payment_intents SET intent_id = NULL;
UPDATE payment_intents SET status = 'requested';
UPDATE payment_intents SET status = 'canceled';
UPDATE payment_intents SET booking_id = [booking_4], intent_id = 'pi_of_nobody';
UPDATE payment_intents SET booking_id = [missing_id], intent_id = 'pi_of_nobody';

-- intents_without_payment, payment_statuses, timeline_without_payment
UPDATE payments SET status = 'pending' WHERE booking_id = [booking_5];

-- intents_of_two_bookings, shared_intents
UPDATE payments SET payment_intent = 'pi_' || [booking_5] WHERE booking_id = [booking_6];

-- overdue_checks
UPDATE payment_intents SET check_at = 1;

-- timeline_without_payment
UPDATE timeline SET kind = 'refund_requested' WHERE kind = 'payment_received' AND booking_id = [booking_5];
UPDATE timeline SET kind = 'payment_received' WHERE kind = 'booking_created' AND booking_id = [booking_2];

-- timeline_without_payment, refunded_amounts, events_of_refunds
DELETE FROM refunds WHERE status = 'succeeded';

-- lost_refunds, timeline_without_payment
DELETE FROM refunds WHERE status = 'requested';

-- timestamps_ahead
UPDATE holds SET expires_at = [in_2100];
UPDATE bookings SET expires_at = [in_2100] WHERE status = 'pending';
UPDATE payment_intents SET check_at = [in_2100];
UPDATE webhook_cursors SET next_send_at = [in_2100];
UPDATE departures SET announce_at = [in_2100];
UPDATE deliveries SET next_attempt_at = [in_2100] WHERE status = 'queued';
UPDATE deliveries SET lease_until = [in_2100], lease_token = 'held' WHERE status = 'queued';
UPDATE refunds SET next_attempt_at = [in_2100] WHERE status = 'requested';
UPDATE refunds SET lease_until = [in_2100] WHERE status = 'requested';
UPDATE effects SET due_at = [in_2100] WHERE status = 'queued';
UPDATE effects SET lease_until = [in_2100] WHERE status = 'queued';

-- timestamps_ahead, sealed_values
UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL, next_attempt_at = [end_of_time] - 1;
UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL, lease_until = [in_2100], next_attempt_at =
    [end_of_time];

-- timestamps_ahead
INSERT INTO erasures SELECT organization_id, id, [in_2100], '[]', 'bookings', '[]', [in_2100], CAST(NULL AS bigint)
    FROM customers;

-- timestamps_ahead, current_secrets
UPDATE webhook_secrets SET expires_at = [in_2100];

-- sealed_values
UPDATE webhook_secrets SET secret_sealed = '';
UPDATE gift_cards SET code_sealed = '';
UPDATE idempotency SET body_sealed = '';
UPDATE stripe_accounts SET credentials_sealed = '';
UPDATE payment_intents SET client_secret_sealed = '';
UPDATE webhook_secrets SET secret_sealed = 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA';
UPDATE gift_cards SET code_sealed = 'sealed';
UPDATE idempotency SET body_sealed = 'AAAA';
UPDATE stripe_accounts SET credentials_sealed = 'AAAA';
UPDATE payment_intents SET client_secret_sealed = 'AAAA';
UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL, message = 'AAAA', next_attempt_at = [end_of_time];
UPDATE mails SET status = 'queued', sent_at = NULL, completed_at = NULL, message = '', next_attempt_at = [end_of_time];

"""Checks of timestamps that are too far in the future: rows that wait for one of them would wait for ever."""
# ruff: noqa: S608 - the texts of SQL are made of nothing but constants

from booking_core.clock import END_OF_TIME
from booking_core.doctor.checks import Check

_LEASED = "\n           UNION ALL\n".join(
    f"""           SELECT x.organization_id, {subject}, 'in {table}: leased until ' || x.lease_until FROM {table} x
            WHERE [x] AND x.lease_until > :lease_until"""
    for table, subject in (("deliveries", "x.id"), ("refunds", "x.id"), ("mails", "x.id"), ("effects", "x.subject_id"))
)

CHECKS = (
    # One pass over the holds, and one over the index of each queue: pending bookings, deliveries, refunds, effects and
    # mails that are not done; leases are looked for in one pass over each of four tables, deliveries by their index.
    Check(
        "no timestamp is further in the future than its limit",
        f"""SELECT h.organization_id, h.id, 'in holds: holds its seats until ' || h.expires_at FROM holds h
            WHERE [h] AND h.ended_at IS NULL AND h.expires_at > :hold_until
           UNION ALL
           SELECT b.organization_id, b.id, 'in bookings: may be paid until ' || b.expires_at
             FROM bookings b JOIN organizations o ON o.id = b.organization_id
            WHERE [b] AND b.status = 'pending'
              AND b.expires_at > :pending_until + coalesce(CAST(o.pending_minutes AS BIGINT) * 60000000, :pending)
           UNION ALL
           SELECT d.organization_id, d.id, 'in deliveries: next attempt at ' || d.next_attempt_at FROM deliveries d
            WHERE [d] AND d.status = 'queued' AND d.next_attempt_at > :delivery_until
           UNION ALL
           SELECT r.organization_id, r.id, 'in refunds: next attempt at ' || r.next_attempt_at FROM refunds r
            WHERE [r] AND r.status IN ('requested', 'sending') AND r.next_attempt_at > :refund_until
           UNION ALL
           SELECT x.organization_id, x.subject_id, x.key || ' is due at ' || x.due_at FROM effects x
            WHERE [x] AND x.status = 'queued' AND x.due_at > :effect_until
           UNION ALL
           SELECT m.organization_id, m.id, 'in mails: next attempt at ' || m.next_attempt_at FROM mails m
            WHERE [m] AND m.status = 'queued' AND m.next_attempt_at > :mail_until
              AND m.next_attempt_at <> {END_OF_TIME}  -- the mail waits for a mail server to be configured
           UNION ALL
           SELECT s.organization_id, s.endpoint_id, 'in webhook_secrets: an old secret signs until ' || s.expires_at
             FROM webhook_secrets s WHERE [s] AND s.expires_at > :secret_until
           UNION ALL
{_LEASED}""",
        remedy="a clock may have been ahead: set the timestamp to now, and a worker continues with the row",
    ),
)

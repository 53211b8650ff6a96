"""Work that waits for a person: these rows are correct, but no worker can process them further (decisions/0023).

A finding has the number of rows and the newest id; its remedy names the command that lists all of them.
"""

from booking_core.doctor.checks import Check, FindingKind

_PERSON = FindingKind.NEEDS_PERSON

CHECKS = (
    # One pass over the refunds.
    Check(
        "refunds that the gateway cannot make wait for a person",
        """SELECT r.organization_id, max('' || r.id), 'refunds that need a review: ' || count(*) || ', together '
                  || sum(r.amount_minor) || ' minor units of ' || r.currency || ', the newest is ' || max('' || r.id)
             FROM refunds r WHERE [r] AND r.status = 'needs_review' GROUP BY r.organization_id, r.currency""",
        kind=_PERSON,
        remedy="booking refunds list --org {org} --status needs_review, then booking refunds retry ID,"
        " or booking refunds settle ID --note TEXT",
    ),
    # One pass over the refunds.
    Check(
        "refunds that the gateway refused wait for a person",
        """SELECT r.organization_id, max('' || r.id), 'refunds that failed: ' || count(*) || ', together '
                  || sum(r.amount_minor) || ' minor units of ' || r.currency || ', the newest is ' || max('' || r.id)
             FROM refunds r WHERE [r] AND r.status = 'failed' GROUP BY r.organization_id, r.currency""",
        kind=_PERSON,
        remedy="booking refunds list --org {org} --status failed, then booking refunds settle ID --note TEXT",
    ),
    # One pass over the dead deliveries of enabled endpoints, in an index.
    Check(
        "dead deliveries wait for their receiver to be fixed",
        """SELECT e.organization_id, e.id, 'dead deliveries: ' || count(*) || ', the newest is '
                  || (SELECT '' || n.id FROM deliveries n
                       WHERE n.organization_id = e.organization_id AND n.endpoint_id = e.id AND n.status = 'dead'
                         AND n.completed_at IS NOT NULL AND n."trigger" <> 'test'
                       ORDER BY n.created_at DESC, n.id DESC LIMIT 1), min(d.created_at)
             FROM webhook_endpoints e
             JOIN deliveries d ON d.organization_id = e.organization_id AND d.endpoint_id = e.id
              AND d.status = 'dead' AND d.completed_at IS NOT NULL AND d."trigger" <> 'test'
            WHERE [e] AND e.deleted_at IS NULL AND e.status = 'enabled'
            GROUP BY e.organization_id, e.id""",
        kind=_PERSON,
        remedy="booking webhooks deliveries list {subject} --status dead, then booking webhooks recover {subject}"
        " --since {since} --status dead",
    ),
    # One pass over the endpoints, with a count along an index for each disabled endpoint.
    Check(
        "webhook endpoints disabled by failures wait for a person",
        """SELECT e.organization_id, e.id, 'failures in a row: ' || e.consecutive_failures
                  || ', deliveries that were not made: ' || (
                      (SELECT count(*) FROM deliveries d
                        WHERE d.organization_id = e.organization_id AND d.endpoint_id = e.id
                          AND (d.status IN ('failed', 'dead')
                               OR (d.status = 'queued' AND d.generation < e.generation)))
                    + (SELECT count(*) FROM webhook_ranges r
                         JOIN events v ON v.organization_id = r.organization_id AND v.type = r.event_type
                          AND v.sequence > r.from_sequence AND v.sequence <= coalesce(r.until_sequence, v.sequence)
                        WHERE r.organization_id = e.organization_id AND r.endpoint_id = e.id)),
                  coalesce(e.last_success_at, e.enabled_at)
             FROM webhook_endpoints e WHERE [e] AND e.deleted_at IS NULL AND e.status = 'auto_disabled'""",
        kind=_PERSON,
        remedy="fix the receiver, then booking webhooks enable {subject}, then booking webhooks recover {subject}"
        " --since {since}",
    ),
    # One pass over the index of mails that ended, and one over that of outbox rows without a mail.
    Check(
        "mails that could not be sent in the last 72 hours wait for a person",
        """SELECT m.organization_id, max('' || m.id),
                  'mails that failed: ' || count(*) || ', the newest is ' || max('' || m.id)
             FROM mails m
            WHERE [m] AND m.status = 'failed' AND m.completed_at IS NOT NULL AND m.created_at > :mail_retryable_since
            GROUP BY m.organization_id""",
        kind=_PERSON,
        remedy="booking mails list --org {org} --status failed, then booking mails retry --failed --org {org}",
    ),
    Check(
        "mails that could not be written in the last 72 hours wait for a person",
        """SELECT x.organization_id, max(x.key),
                  'mails that could not be written: ' || count(*) || ', one is ' || max(x.key)
             FROM effects x
            WHERE [x] AND x.status = 'failed' AND x.completed_at IS NOT NULL AND x.last_error IS NOT NULL
              AND x.created_at > :mail_retryable_since
            GROUP BY x.organization_id""",
        kind=_PERSON,
        remedy="booking mails list --org {org} --status unwritten, then booking mails retry --failed --org {org}",
    ),
    # One pass over the departures that are cancelled and to come, with a look-up along an index for each.
    Check(
        "bookings of a cancelled departure wait for a person",
        """SELECT d.organization_id, d.id,
                  'the departure is cancelled, and its seats that are still sold: ' || d.seats_taken
             FROM departures d
            WHERE [d] AND d.status = 'cancelled' AND d.cancelling IS NULL AND d.starts_at > :at
              AND EXISTS (SELECT 1 FROM bookings b
                           WHERE b.organization_id = d.organization_id AND b.departure_id = d.id
                             AND b.status IN ('pending', 'confirmed'))""",
        kind=_PERSON,
        remedy="booking departures cancel {subject}, or booking bookings reschedule ID --departure ID",
    ),
)

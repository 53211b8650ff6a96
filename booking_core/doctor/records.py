"""Checks of API keys, stored responses, customers, the outbox (table `effects`), mails and the timeline."""
# ruff: noqa: S608 - the texts of SQL are made of nothing but constants

from typing import Any

from booking_core.doctor.checks import Check, RowScan
from booking_core.models.base import email_key
from booking_core.models.limits import ACTIVE_API_KEYS_PER_ORGANIZATION


def validate_customer(row: list[Any]) -> str | None:
    """Compare a customer's key with the normalised e-mail address."""
    email, key = row
    return None if email_key(email) == key else "its key is not that of its e-mail address"


def _missing(table: str, condition: str) -> str:
    return f"NOT EXISTS (SELECT 1 FROM {table} y WHERE y.organization_id = x.organization_id AND {condition})"


CHECKS = (
    # One pass over the keys.
    Check(
        f"an organization has at most {ACTIVE_API_KEYS_PER_ORGANIZATION} active keys",
        f"""SELECT a.organization_id, 'api_keys', count(*) || ' active' FROM api_keys a
            WHERE [a] AND a.revoked_at IS NULL AND (a.expires_at IS NULL OR a.expires_at > :at)
            GROUP BY a.organization_id HAVING count(*) > {ACTIVE_API_KEYS_PER_ORGANIZATION}""",
    ),
    # One pass over the bookings, and one over the stored responses, grouped by timestamp. A response is sealed, so
    # that its booking is unknown; but both have the same created_at, since they are written together.
    Check(
        "every API booking has the stored response of its idempotency key",
        """SELECT b.organization_id, b.first, b.booked || ' bookings of ' || b.created_at || ', ' || coalesce(i.kept, 0)
                  || ' stored responses'
             FROM (SELECT b.organization_id, b.created_at, count(*) AS booked, min('' || b.id) AS first FROM bookings b
                    WHERE [b] AND b.source = 'api' AND b.created_at > :answers_since
                    GROUP BY b.organization_id, b.created_at) b
             LEFT JOIN (SELECT i.organization_id, i.created_at, count(*) AS kept FROM idempotency i
                         WHERE [i] AND i.status = 201 AND i.created_at > :answers_since
                         GROUP BY i.organization_id, i.created_at) i
               ON i.organization_id = b.organization_id AND i.created_at = b.created_at
            WHERE coalesce(i.kept, 0) < b.booked""",
    ),
    # One pass over the primary key.
    Check(
        "an idempotency key has one stored response",
        """SELECT i.organization_id, i.key, count(*) || ' stored responses' FROM idempotency i WHERE [i]
            GROUP BY i.organization_id, i.key HAVING count(*) > 1""",
    ),
    # One pass over a unique index, in its order.
    Check(
        "an e-mail address belongs to one customer",
        """SELECT u.organization_id, min('' || u.id), count(*) || ' customers have one e-mail address'
             FROM customers u WHERE [u] GROUP BY u.organization_id, u.email_key HAVING count(*) > 1""",
    ),
    # Every customer is read.
    RowScan(
        "a customer's key is the normalised e-mail address",
        "SELECT u.id, u.id, u.email, u.email_key FROM customers u WHERE u.organization_id = :organization_id",
        "u.id",
        validate_customer,
    ),
    # A look-up for each row of these tables, which have no foreign key.
    Check(
        "no row refers to a missing row of its organization",
        f"""SELECT x.organization_id, x.id, 'the timeline of no customer ' || x.customer_id FROM timeline x
            WHERE [x] AND {_missing("customers", "y.id = x.customer_id")}
           UNION ALL
           SELECT x.organization_id, x.id, 'the timeline of no booking ' || x.booking_id FROM timeline x
            WHERE [x] AND x.booking_id IS NOT NULL AND {_missing("bookings", "y.id = x.booking_id")}
           UNION ALL
           SELECT x.organization_id, x.id, 'a delivery to no endpoint ' || x.endpoint_id FROM deliveries x
            WHERE [x] AND {_missing("webhook_endpoints", "y.id = x.endpoint_id")}
           UNION ALL
           SELECT x.organization_id, x.id, 'an attempt of no delivery ' || x.delivery_id FROM attempts x
            WHERE [x] AND {_missing("deliveries", "y.id = x.delivery_id")}
           UNION ALL
           SELECT x.organization_id, x.id, 'a mail about no booking ' || x.booking_id FROM mails x
            WHERE [x] AND x.booking_id IS NOT NULL AND {_missing("bookings", "y.id = x.booking_id")}
           UNION ALL
           SELECT x.organization_id, x.id, 'a mail without an outbox row:  ' || x.effect_key FROM mails x
            WHERE [x] AND {_missing("effects", "y.key = x.effect_key")}
           UNION ALL
           SELECT x.organization_id, x.subject_id, x.key || ' is about no booking' FROM effects x
            WHERE [x] AND (x.kind LIKE '%booking%' OR x.kind LIKE '%cancellation%' OR x.kind LIKE '%rescheduling%'
                           OR x.kind LIKE '%refund%')
              AND {_missing("bookings", "y.id = x.subject_id")}
           UNION ALL
           SELECT x.organization_id, x.subject_id, x.key || ' is about no endpoint' FROM effects x
            WHERE [x] AND x.kind LIKE '%webhook%' AND x.created_at > :deliveries_since  -- a deleted endpoint is purged
              AND {_missing("webhook_endpoints", "y.id = x.subject_id")}
           UNION ALL
           SELECT x.organization_id, x.subject_id, x.key || ' is about no key' FROM effects x
            WHERE [x] AND x.kind LIKE '%key%' AND {_missing("api_keys", "y.id = x.subject_id")}""",
    ),
    # One pass over the outbox.
    Check(
        "an outbox row exists once, and its status agrees with its timestamps",
        """SELECT x.organization_id, '' || x.subject_id, x.key || ' is ' || x.status || ', completed '
                  || coalesce('' || x.completed_at, 'never')
             FROM effects x
            WHERE [x] AND (x.status NOT IN ('queued', 'done', 'failed')
                           OR (x.status = 'queued') <> (x.completed_at IS NULL)
                           OR x.key <> x.kind || ':' || x.subject_id
                              AND x.key NOT LIKE x.kind || ':' || x.subject_id || ':%')
           UNION ALL
           SELECT x.organization_id, min('' || x.subject_id), count(*) || ' times ' || x.key FROM effects x
            WHERE [x] GROUP BY x.organization_id, x.key HAVING count(*) > 1""",
    ),
    # A look-up of its mail for each outbox row that is done.
    Check(
        "an outbox row that is done has its mail, or the reason why there is none",
        f"""SELECT x.organization_id, x.subject_id, x.key || ' is done, and there is no mail' FROM effects x
            WHERE [x] AND x.status = 'done' AND x.last_error IS NULL
              AND {_missing("mails", "y.effect_key = x.key")}""",
    ),
    # One pass over the mails, by each of two unique indexes.
    Check(
        "a mail is written once, under one Message-ID, and its status agrees with its timestamps",
        """SELECT m.organization_id, '' || m.id, m.kind || ' is ' || m.status || ', sent at '
                  || coalesce('' || m.sent_at, 'no time') || ', completed ' || coalesce('' || m.completed_at, 'never')
             FROM mails m
            WHERE [m] AND (m.status NOT IN ('queued', 'sent', 'failed')
                           OR (m.status = 'sent') <> (m.sent_at IS NOT NULL)
                           OR (m.status = 'queued') <> (m.completed_at IS NULL))
           UNION ALL
           SELECT m.organization_id, min('' || m.id), count(*) || ' mails for ' || m.effect_key FROM mails m
            WHERE [m] GROUP BY m.organization_id, m.effect_key HAVING count(*) > 1
           UNION ALL
           SELECT m.organization_id, min('' || m.id), count(*) || ' mails with the id ' || m.message_id FROM mails m
            WHERE [m] GROUP BY m.organization_id, m.message_id HAVING count(*) > 1""",
    ),
    # A look-up of an outbox row for each booking and each rescheduling. Outbox rows are purged like deliveries. An
    # abandoned checkout has no mail, unless its payment arrived later.
    Check(
        "a booking has outbox rows for the mails to its guest, unless they were suppressed",
        """SELECT b.organization_id, b.id, 'confirmed, and no mail to the guest was queued' FROM bookings b
            WHERE [b] AND b.booking_number IS NOT NULL AND b.confirmed_at > :deliveries_since
              AND b.send_confirmation_email AND b.guest_email IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                                 AND x.key = 'booking_confirmation_mail:' || b.id)
           UNION ALL
           SELECT b.organization_id, b.id, 'cancelled, and no mail to the guest was queued' FROM bookings b
            WHERE [b] AND b.booking_number IS NOT NULL AND b.cancelled_at > :deliveries_since
              AND (b.cancel_reason <> 'abandoned' OR b.payment_status IN ('paid', 'partially_refunded', 'refunded'))
              AND b.guest_email IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                                 AND x.key = 'booking_cancellation_mail:' || b.id)
           UNION ALL
           SELECT e.organization_id, e.resource_id, 'moved by event ' || e.id || ', and no mail to the guest was queued'
             FROM events e
            WHERE [e] AND e.type = 'booking.rescheduled' AND e.created_at > :deliveries_since
              AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = e.organization_id
                                 AND x.key = 'booking_rescheduling_mail:' || e.resource_id || ':' || e.id)
           UNION ALL
           SELECT b.organization_id, b.id, 'a confirmation was suppressed, but queued' FROM bookings b
            WHERE [b] AND NOT b.send_confirmation_email
              AND EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                             AND x.key = 'booking_confirmation_mail:' || b.id)""",
    ),
    # The same, for organizations that have not changed their settings since.
    Check(
        "a booking has outbox rows for the mails to staff where these are enabled",
        """SELECT b.organization_id, b.id, 'confirmed, and no mail to staff was queued'
             FROM bookings b JOIN organizations o ON o.id = b.organization_id
            WHERE [b] AND b.booking_number IS NOT NULL AND b.confirmed_at > :deliveries_since
              AND b.notify_staff AND o.notify_staff AND o.updated_at + :skew < b.confirmed_at
              AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                                 AND x.key = 'staff_booking_mail:' || b.id)
           UNION ALL
           SELECT b.organization_id, b.id, 'cancelled, and no mail to staff was queued'
             FROM bookings b JOIN organizations o ON o.id = b.organization_id
            WHERE [b] AND b.booking_number IS NOT NULL AND b.cancelled_at > :deliveries_since
              AND b.cancel_reason <> 'abandoned'
              AND o.notify_staff AND o.updated_at + :skew < b.cancelled_at
              AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                                 AND x.key = 'staff_cancellation_mail:' || b.id)
           UNION ALL
           SELECT e.organization_id, e.resource_id, 'moved by event ' || e.id || ', and no mail to staff was queued'
             FROM events e
             JOIN bookings b ON b.organization_id = e.organization_id AND b.id = e.resource_id
             JOIN organizations o ON o.id = e.organization_id
            WHERE [e] AND e.type = 'booking.rescheduled' AND e.created_at > :deliveries_since
              AND o.notify_staff AND o.updated_at + :skew < e.created_at
              AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = e.organization_id
                                 AND x.key = 'staff_rescheduling_mail:' || e.resource_id || ':' || e.id)""",
    ),
    # One pass over each of these tables.
    Check(
        "no secret is stored in plain text",
        """SELECT a.organization_id, '' || a.id, 'the key is not hashed' FROM api_keys a
            WHERE [a] AND (a.key_hash LIKE 'svc%' OR length(a.key_hash) <> 64 OR length(a.prefix) > 12)
           UNION ALL
           SELECT s.organization_id, '' || s.id, 'the webhook secret is not sealed' FROM webhook_secrets s
            WHERE [s] AND s.secret_sealed LIKE 'whsec%'
           UNION ALL
           SELECT i.organization_id, i.key, 'the stored answer is not sealed' FROM idempotency i
            WHERE [i] AND i.body_sealed LIKE '{%'
           UNION ALL
           SELECT m.organization_id, '' || m.id, 'the mail is not sealed' FROM mails m
            WHERE [m] AND m.message LIKE '%/manage/%'""",
    ),
    # Partial indexes hold the queued outbox rows and the queued mails.
    Check(
        "outbox rows and mails are processed when they are due",
        """SELECT x.organization_id, x.subject_id, x.key || ' is due since ' || x.due_at FROM effects x
            WHERE [x] AND x.status = 'queued'
              AND (x.lease_until < :overdue OR (x.lease_until IS NULL AND x.due_at < :overdue))
           UNION ALL
           SELECT m.organization_id, m.id, m.kind || ' is due since ' || coalesce('' || m.next_attempt_at, 'no time')
             FROM mails m
            WHERE [m] AND m.status = 'queued'
              AND (m.lease_until < :overdue OR (m.lease_until IS NULL
                   AND (m.next_attempt_at < :overdue OR m.next_attempt_at IS NULL)))""",
        remedy="check that a worker is running, and BOOKING_SMTP_URL or BOOKING_MAIL_DIR set",
        needs_worker=True,
    ),
    # One row, which counts only if a worker updated it within the last hour: an older one may itself be wrong.
    Check(
        "the database's clock agrees with the retention clock",
        """SELECT '', 'clock', 'the database''s clock is ' || (abs(:at - r.at) / 3600000000) || ' hours '
                  || CASE WHEN :at > r.at THEN 'ahead of' ELSE 'behind' END || ' the retention clock'
             FROM retention_clock r
            WHERE abs(:at - r.at) > 86400000000 AND :at - r.moved_at < 3600000000""",
        remedy="correct the clock. After a pause of the service, wait: the retention clock catches up eight"
        " hours in one, and until then nothing more is purged",
        needs_worker=True,
    ),
)

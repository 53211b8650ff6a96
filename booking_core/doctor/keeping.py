"""Keys, stored answers, customers, and what is owed: effects, mails, the timeline."""
# ruff: noqa: S608 - the texts of SQL are made of nothing but constants

from typing import Any

from booking_core.doctor.checks import Check, Walk
from booking_core.models.base import email_key
from booking_core.models.limits import ACTIVE_API_KEYS_PER_ORGANIZATION


def judge_customer(row: list[Any]) -> str | None:
    """What is wrong with a customer's identity: the e-mail, normalised."""
    email, key = row
    return None if email_key(email) == key else "its key is not that of its e-mail address"


def _is_missing(table: str, condition: str) -> str:
    return f"NOT EXISTS (SELECT 1 FROM {table} y WHERE y.organization_id = x.organization_id AND {condition})"


CHECKS = (
    # One pass over the keys.
    Check(
        f"at most {ACTIVE_API_KEYS_PER_ORGANIZATION} keys of an organization are active",
        f"""SELECT a.organization_id, 'api_keys', count(*) || ' active' FROM api_keys a
            WHERE [a] AND a.revoked_at IS NULL AND (a.expires_at IS NULL OR a.expires_at > :at)
            GROUP BY a.organization_id HAVING count(*) > {ACTIVE_API_KEYS_PER_ORGANIZATION}""",
    ),
    # One pass over the bookings, and one over the answers, grouped by instant. An answer is sealed, so that which
    # booking it tells of is not seen; but the two are dated alike, for they are written together.
    Check(
        "every API booking has the stored answer of its key",
        """SELECT b.organization_id, b.first, b.booked || ' bookings of ' || b.created_at || ', ' || coalesce(i.kept, 0)
                  || ' stored answers'
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
        "a key was answered once",
        """SELECT i.organization_id, i.key, count(*) || ' stored answers' FROM idempotency i WHERE [i]
            GROUP BY i.organization_id, i.key HAVING count(*) > 1""",
    ),
    # One pass over a unique index, in its order.
    Check(
        "an e-mail address is one customer's",
        """SELECT u.organization_id, min('' || u.id), count(*) || ' customers have one e-mail address'
             FROM customers u WHERE [u] GROUP BY u.organization_id, u.email_key HAVING count(*) > 1""",
    ),
    # Every customer is read.
    Walk(
        "a customer is known by the e-mail, normalised",
        "SELECT u.id, u.id, u.email, u.email_key FROM customers u WHERE u.organization_id = :organization_id",
        "u.id",
        judge_customer,
    ),
    # A look-up for each row of these tables: what no foreign key holds together.
    Check(
        "no row refers to what its organization does not have",
        f"""SELECT x.organization_id, x.id, 'the timeline of no customer ' || x.customer_id FROM timeline x
            WHERE [x] AND {_is_missing("customers", "y.id = x.customer_id")}
           UNION ALL
           SELECT x.organization_id, x.id, 'the timeline of no booking ' || x.booking_id FROM timeline x
            WHERE [x] AND x.booking_id IS NOT NULL AND {_is_missing("bookings", "y.id = x.booking_id")}
           UNION ALL
           SELECT x.organization_id, x.id, 'a delivery to no endpoint ' || x.endpoint_id FROM deliveries x
            WHERE [x] AND {_is_missing("webhook_endpoints", "y.id = x.endpoint_id")}
           UNION ALL
           SELECT x.organization_id, x.id, 'an attempt of no delivery ' || x.delivery_id FROM attempts x
            WHERE [x] AND {_is_missing("deliveries", "y.id = x.delivery_id")}
           UNION ALL
           SELECT x.organization_id, x.id, 'a mail about no booking ' || x.booking_id FROM mails x
            WHERE [x] AND x.booking_id IS NOT NULL AND {_is_missing("bookings", "y.id = x.booking_id")}
           UNION ALL
           SELECT x.organization_id, x.id, 'a mail that nothing owes: ' || x.effect_key FROM mails x
            WHERE [x] AND {_is_missing("effects", "y.key = x.effect_key")}
           UNION ALL
           SELECT x.organization_id, x.subject_id, x.key || ' is about no booking' FROM effects x
            WHERE [x] AND (x.kind LIKE '%booking%' OR x.kind LIKE '%cancellation%' OR x.kind LIKE '%rescheduling%'
                           OR x.kind LIKE '%refund%')
              AND {_is_missing("bookings", "y.id = x.subject_id")}
           UNION ALL
           SELECT x.organization_id, x.subject_id, x.key || ' is about no endpoint' FROM effects x
            WHERE [x] AND x.kind LIKE '%webhook%' AND x.created_at > :deliveries_since  -- a deleted one is purged
              AND {_is_missing("webhook_endpoints", "y.id = x.subject_id")}
           UNION ALL
           SELECT x.organization_id, x.subject_id, x.key || ' is about no key' FROM effects x
            WHERE [x] AND x.kind LIKE '%key%' AND {_is_missing("api_keys", "y.id = x.subject_id")}""",
    ),
    # One pass over the effects.
    Check(
        "an effect is owed once, and its status agrees with its instants",
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
    # A look-up of its mail for each effect that is done with one.
    Check(
        "an effect that is done has its mail, or says why there is none",
        f"""SELECT x.organization_id, x.subject_id, x.key || ' is done, and there is no mail' FROM effects x
            WHERE [x] AND x.status = 'done' AND x.last_error IS NULL
              AND {_is_missing("mails", "y.effect_key = x.key")}""",
    ),
    # One pass over the mails, by each of two unique indexes.
    Check(
        "a mail is written once, under one Message-ID, and its status agrees with its instants",
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
    # A look-up of an effect for each booking, and of one for each move. What was owed is forgotten as the log of
    # deliveries is. Who walked away from a checkout is not written to, unless the payment came all the same.
    Check(
        "a guest is owed the mails of a booking, unless they were suppressed",
        """SELECT b.organization_id, b.id, 'confirmed, and no mail was owed for it' FROM bookings b
            WHERE [b] AND b.booking_number IS NOT NULL AND b.confirmed_at > :deliveries_since
              AND b.send_confirmation_email AND b.guest_email IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                                 AND x.key = 'booking_confirmation_mail:' || b.id)
           UNION ALL
           SELECT b.organization_id, b.id, 'cancelled, and no mail was owed for it' FROM bookings b
            WHERE [b] AND b.booking_number IS NOT NULL AND b.cancelled_at > :deliveries_since
              AND (b.cancel_reason <> 'abandoned' OR b.payment_status IN ('paid', 'partially_refunded', 'refunded'))
              AND b.guest_email IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                                 AND x.key = 'booking_cancellation_mail:' || b.id)
           UNION ALL
           SELECT e.organization_id, e.resource_id, 'moved by event ' || e.id || ', and no mail was owed for it'
             FROM events e
            WHERE [e] AND e.type = 'booking.rescheduled' AND e.created_at > :deliveries_since
              AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = e.organization_id
                                 AND x.key = 'booking_rescheduling_mail:' || e.resource_id || ':' || e.id)
           UNION ALL
           SELECT b.organization_id, b.id, 'a confirmation was suppressed, and owed' FROM bookings b
            WHERE [b] AND NOT b.send_confirmation_email
              AND EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                             AND x.key = 'booking_confirmation_mail:' || b.id)""",
    ),
    # The same, of organizations that have not changed their settings since.
    Check(
        "staff is owed the mails of a booking where they are switched on",
        """SELECT b.organization_id, b.id, 'confirmed, and no mail to staff was owed for it'
             FROM bookings b JOIN organizations o ON o.id = b.organization_id
            WHERE [b] AND b.booking_number IS NOT NULL AND b.confirmed_at > :deliveries_since
              AND b.notify_staff AND o.notify_staff AND o.updated_at + :skew < b.confirmed_at
              AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                                 AND x.key = 'staff_booking_mail:' || b.id)
           UNION ALL
           SELECT b.organization_id, b.id, 'cancelled, and no mail to staff was owed for it'
             FROM bookings b JOIN organizations o ON o.id = b.organization_id
            WHERE [b] AND b.booking_number IS NOT NULL AND b.cancelled_at > :deliveries_since
              AND b.cancel_reason <> 'abandoned'
              AND o.notify_staff AND o.updated_at + :skew < b.cancelled_at
              AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.organization_id = b.organization_id
                                 AND x.key = 'staff_cancellation_mail:' || b.id)
           UNION ALL
           SELECT e.organization_id, e.resource_id, 'moved by event ' || e.id || ', and no mail to staff was owed'
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
        "no secret lies open",
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
    # An index holds the effects alone that are queued, and another one the mails.
    Check(
        "an effect and a mail are taken up when they are due",
        """SELECT x.organization_id, x.subject_id, x.key || ' is due since ' || x.due_at FROM effects x
            WHERE [x] AND x.status = 'queued'
              AND (x.lease_until < :overdue OR (x.lease_until IS NULL AND x.due_at < :overdue))
           UNION ALL
           SELECT m.organization_id, m.id, m.kind || ' is due since ' || coalesce('' || m.next_attempt_at, 'no time')
             FROM mails m
            WHERE [m] AND m.status = 'queued'
              AND (m.lease_until < :overdue OR (m.lease_until IS NULL
                   AND (m.next_attempt_at < :overdue OR m.next_attempt_at IS NULL)))""",
        remedy="is a worker running, and BOOKING_SMTP_URL or BOOKING_MAIL_DIR set?",
        waits=True,
    ),
    # One row, which a worker that purges has touched within the hour; else nobody knows which of the two is right.
    Check(
        "the clock agrees with what the workers have measured",
        """SELECT '', 'clock', 'the database''s clock is ' || (abs(:at - r.at) / 3600000000) || ' hours '
                  || CASE WHEN :at > r.at THEN 'ahead of' ELSE 'behind' END || ' the retention clock'
             FROM retention_clock r
            WHERE abs(:at - r.at) > 86400000000 AND :at - r.moved_at < 3600000000""",
        remedy="set the clock right; after a pause of the service wait: eight hours are caught up with in one, and"
        " until then what is past its retention is kept",
        waits=True,
    ),
)

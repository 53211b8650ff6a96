"""Work that waits for a person: these rows are correct, but no worker can process them further (decisions/0034).

A finding has the number of rows and the newest id; its remedy names the command that lists all of them.
"""

from booking_core.db import sql_files
from booking_core.upkeep.doctor.checks import Check, FindingKind

SQL = sql_files.load(__name__)

_PERSON = FindingKind.NEEDS_PERSON

CHECKS = (
    Check(
        "refunds that the gateway cannot make wait for a person",
        SQL.text("refunds_to_review"),
        kind=_PERSON,
        remedy="booking refunds list --org {org} --status needs_review, then booking refunds retry ID,"
        " or booking refunds settle ID --note TEXT",
    ),
    Check(
        "refunds that the gateway refused wait for a person",
        SQL.text("failed_refunds"),
        kind=_PERSON,
        remedy="booking refunds list --org {org} --status failed, then booking refunds settle ID --note TEXT",
    ),
    Check(
        "payments that do not fit their booking wait for a person",
        SQL.text("payments_to_review"),
        kind=_PERSON,
        remedy="booking stripe payments --org {org} --state needs_review, then refund it at Stripe,"
        " or booking storefront pay BOOKING --payment-intent PI, then booking stripe resolve BOOKING --note TEXT",
    ),
    Check(
        "disputes of payments wait for a person",
        SQL.text("open_disputes"),
        kind=_PERSON,
        remedy="booking stripe payments --org {org} --state disputed, then answer the dispute at Stripe",
    ),
    Check(
        "dead deliveries wait for their receiver to be fixed",
        SQL.text("dead_deliveries"),
        kind=_PERSON,
        remedy="booking webhooks deliveries list {subject} --status dead, then booking webhooks recover {subject}"
        " --since {since} --status dead",
    ),
    Check(
        "webhook endpoints disabled by failures wait for a person",
        SQL.text("disabled_endpoints"),
        kind=_PERSON,
        remedy="fix the receiver, then booking webhooks enable {subject}, then booking webhooks recover {subject}"
        " --since {since}",
    ),
    Check(
        "mails that could not be sent in the last 72 hours wait for a person",
        SQL.text("failed_mails"),
        kind=_PERSON,
        remedy="booking mails list --org {org} --status failed, then booking mails retry --failed --org {org}",
    ),
    Check(
        "mails that could not be written in the last 72 hours wait for a person",
        SQL.text("unwritten_mails"),
        kind=_PERSON,
        remedy="booking mails list --org {org} --status unwritten, then booking mails retry --failed --org {org}",
    ),
    Check(
        "rows that a job of the worker cannot process wait for a person",
        SQL.text("parked_rows"),
        kind=_PERSON,
        remedy="repair the row, the worker's log says what is wrong with it; the worker tries it again within an hour",
    ),
    Check(
        "bookings of a cancelled departure wait for a person",
        SQL.text("cancelled_departures"),
        kind=_PERSON,
        remedy="booking departures cancel {subject}, or booking bookings reschedule ID --departure ID",
    ),
)

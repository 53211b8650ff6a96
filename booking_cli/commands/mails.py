"""`booking mails`: list mails to guests and staff, and retry failed ones, in the database."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.options import DEFAULT_LIMIT, Limit, OrgFilter, argument, choice, option
from booking_cli.framework.tables import Columns
from booking_cli.operator import storage
from booking_cli.operator.storage import organization_filter

if TYPE_CHECKING:
    from booking_core.base.context import Organization
    from booking_core.base.errors import Conflict
    from booking_core.db.engine import Database
    from booking_core.notifications import Mail

    RetryResult: TypeAlias = tuple[Mail, Organization] | Conflict

app = command_group("List and retry mails to guests and staff; they are kept for 30 days (operator).")

COLUMNS = Columns(
    "id status recipient kind last_error organization attempt_count created_at sent_at next_attempt_at".split(),
    empty="No mail found.",
    truncated={"recipient": 20, "last_error": 40},
)
STATUSES = ("queued", "sent", "failed", "unwritten")
BATCH_SIZE = 200
"""The size of a transaction: small, since on SQLite, which has one writer, bookings wait for it."""
SKIPPED = {
    "mail_too_old": "due more than 72 hours ago; send it anyway with --anyway",
    "departure_started": "the departure has begun",
}
"""Why --failed skips a mail, by the reason in the error."""


@command(app, "list", shape="mail")
def list_(
    cli: Cli,
    org: OrgFilter = None,
    status: Annotated[str | None, choice("--status", choices=STATUSES, help="Filter by status.")] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> None:
    """List mails, newest first.

    \b
    queued      waits to be written or sent; without a next attempt it waits
                for BOOKING_SMTP_URL
    sent        accepted by the mail server
    failed      refused by the mail server, or not accepted in time
    unwritten   the text could not be written

    A mail without a text has the key of its outbox entry as its id.

    Examples:
        booking mails list --org fjord-tours
        booking mails list --status failed
    """
    from booking_core import notifications

    find = partial(notifications.find, status=notifications.MailStatus(status) if status else None)
    storage.write_list(cli, find, notifications.present, org, limit, COLUMNS)


@command(app, "show", shape="mail")
def show(cli: Cli, mail_id: Annotated[str, argument("ID", "The mail's id, or the key of its outbox entry.")]) -> None:
    """Show a mail. The text is not shown, since it holds the guest's secret link.

    The key of the outbox entry also finds a mail that was not written; its status tells why.

    Examples:
        booking mails show 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json
        booking mails show booking_confirmation_mail:0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07     (also before it is written)
    """  # noqa: E501
    with storage.open_database(cli) as database:
        from booking_core import notifications

        cli.render.one(notifications.present(*database.read(lambda tx: notifications.get(tx, mail_id))))


@command(app, "retry", shape="mail", changes=True)
def retry(
    cli: Cli,
    mail_ids: Annotated[
        list[str] | None, argument("[ID...]", "The mails to retry: all of them, or none if one is refused.")
    ] = None,
    failed: Annotated[bool, option("--failed", "Retry all failed and unwritten mails that are not outdated.")] = False,
    org: OrgFilter = None,
    anyway: Annotated[bool, option("--anyway", "Include mails that were due more than 72 hours ago.")] = False,
) -> None:
    """Queue failed mails again.

    A worker writes each mail again from the current booking and address, with the same Message-ID and new attempts.
    Confirmations and notices of a new departure are refused after the departure has begun.

    Examples:
        booking mails retry 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
        booking mails retry --failed --org fjord-tours
        booking mails retry --failed --anyway     (after an outage of days)
    """
    if failed == bool(mail_ids) or (org and not failed):
        raise CliError("Pass the ids of mails, or --failed with or without --org.", hint="booking mails retry --help")
    with storage.open_database(cli) as database:
        if mail_ids:
            _retry_ids(cli, database, mail_ids, anyway=anyway)
        else:
            _retry_failed(cli, database, org, anyway=anyway)


def _retry_ids(cli: Cli, database: "Database", mail_ids: list[str], *, anyway: bool) -> None:
    from booking_core import notifications

    queued = database.write(lambda tx: notifications.retry(tx, mail_ids, anyway=anyway))
    cli.render.many([notifications.present(*mail) for mail in queued], COLUMNS)


def _retry_failed(cli: Cli, database: "Database", org: str | None, *, anyway: bool) -> None:
    from booking_core import notifications
    from booking_core.base.errors import Conflict

    failed = database.read(lambda tx: notifications.find_failed(tx, organization_filter(tx, org)))
    results: list[RetryResult] = []
    for start in range(0, len(failed), BATCH_SIZE):
        results += _retry_each(database, failed[start : start + BATCH_SIZE], anyway=anyway)
    queued = [notifications.present(*result) for result in results if not isinstance(result, Conflict)]
    skipped = [detail for result in results if isinstance(result, Conflict) for detail in result.details]
    extra = {"left": [detail.to_json() for detail in skipped]}
    cli.render.many(queued, replace(COLUMNS, empty="No mail was queued again."), extra=extra)
    for reason, count in Counter(detail.reason for detail in skipped).items():
        cli.render.note(f"{count} skipped: {SKIPPED.get(reason, reason)}")


def _retry_each(database: "Database", mails: "list[tuple[Mail, Organization]]", *, anyway: bool) -> "list[RetryResult]":
    from booking_core import notifications

    keys = [(mail.organization_id, mail.effect_key) for mail, _ in mails]
    return database.write(lambda tx: notifications.retry_each(tx, keys, anyway=anyway))

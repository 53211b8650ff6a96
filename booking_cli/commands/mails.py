"""`booking mails`: what became of the mails to guests and staff, and those that failed once more."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from booking_cli.client.pagination import LIMIT, Limit
from booking_cli.framework import context
from booking_cli.framework.arguments import one_of
from booking_cli.framework.command import command, group
from booking_cli.framework.context import Cli, CliError
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.context import Organization
    from booking_core.db.engine import Database, Tx
    from booking_core.errors import Conflict
    from booking_core.notifications import Mail

    Outcome: TypeAlias = tuple[Mail, Organization] | Conflict

app = group("Mails to guests and staff, for 30 days after their end. These commands open the database.")

COLUMNS = (
    "id",
    "status",
    "recipient",
    "kind",
    "last_error",
    "organization",
    "attempt_count",
    "created_at",
    "sent_at",
    "next_attempt_at",
)
"""The first ones are the most important: a narrow terminal shows only those that fit."""
CLIPPED = {"recipient": 20, "last_error": 40}
STATUSES = ("queued", "sent", "failed", "unwritten")
AT_ONCE = 200
"""So few in one transaction that on SQLite, which has one writer, a booking waits for a moment only."""
LEFT = {
    "mail_too_old": "owed more than 72 hours ago, which is no news any more; --anyway writes it all the same",
    "departure_started": "about a departure that has begun",
}
"""What is said of mails that --failed passes over, by the reason."""
_ID = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"

Org = Annotated[str | None, typer.Option("--org", metavar="SLUG", help="Only this organization's.", show_default=False)]


@command(app, "list", "booking mails list --org fjord-tours", "booking mails list --status failed", shape="mail")
def list_(
    ctx: typer.Context,
    org: Org = None,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", metavar="|".join(STATUSES), parser=one_of(*STATUSES), help="Only those.", show_default=False
        ),
    ] = None,
    limit: Limit = LIMIT,
) -> None:
    """Lists mails, the newest first.

    \b
    queued      to be sent, or to be written first; without a next attempt it waits for a mail server
    sent        the mail server took it
    failed      the mail server refused it, or it was tried for too long
    unwritten   it could not even be written

    What is not written yet has the key of what owes it for an id.
    """
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import notifications
        from booking_core.notifications import MailStatus

        wanted = MailStatus(status) if status else None
        found = database.read(lambda tx: notifications.find(tx, _organization(tx, org), status=wanted, limit=limit + 1))
        shown = [notifications.present(*each) for each in found[:limit]]
    has_more = len(found) > limit
    cli.render.many(shown, COLUMNS, clipped=CLIPPED, empty="No mail.", beside={"has_more": has_more})
    if has_more:
        cli.render.note("There are more: --limit N shows as many.")


@command(
    app,
    "show",
    f"booking mails show {_ID} -o json",
    f"booking mails show booking_confirmation_mail:{_ID}     (whatever became of it)",
    shape="mail",
)
def show(
    ctx: typer.Context,
    mail_id: Annotated[str, typer.Argument(metavar="ID", help="The mail's id, or the key of what owes it.")],
) -> None:
    """Shows a mail, but never its text, which holds the guest's secret link.

    By the key also one that was not to be written: its status says why.
    """
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import notifications

        cli.render.one(notifications.present(*database.read(lambda tx: notifications.get(tx, mail_id))))


@command(
    app,
    "retry",
    f"booking mails retry {_ID}",
    "booking mails retry --failed --org fjord-tours",
    "booking mails retry --failed --anyway     (the mail server was away for days)",
    shape="mail",
    changes=True,
)
def retry(
    ctx: typer.Context,
    mail_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="Which ones: all of them are queued, or none.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Every one that failed or could not be written, and is still news.")
    ] = False,
    org: Org = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Also what was owed more than 72 hours ago.")] = False,
) -> None:
    """Queues failed mails again, due now, with attempts counted anew.

    A worker writes each anew, from the booking and the addresses as they are then, and under the Message-ID that it
    had. A confirmation, or word of a move, is refused once the departure has begun.
    """
    cli = context.of(ctx)
    if failed == bool(mail_ids) or (org and not failed):
        raise CliError(
            "Name mails by their ids, or --failed, with --org or without.", hint="booking mails retry --help"
        )
    with storage.database(cli) as database:
        if mail_ids:
            _retry_named(cli, database, mail_ids, anyway=anyway)
        else:
            _retry_failed(cli, database, org, anyway=anyway)


def _retry_named(cli: Cli, database: "Database", mail_ids: list[str], *, anyway: bool) -> None:
    from booking_core import notifications

    again = database.write(lambda tx: notifications.retry(tx, mail_ids, anyway=anyway))
    cli.render.many([notifications.present(*each) for each in again], COLUMNS, clipped=CLIPPED)


def _retry_failed(cli: Cli, database: "Database", org: str | None, *, anyway: bool) -> None:
    from booking_core import notifications
    from booking_core.errors import Conflict

    found = database.read(lambda tx: notifications.find_failed(tx, _organization(tx, org)))
    outcomes: list[Outcome] = []
    for start in range(0, len(found), AT_ONCE):
        outcomes += _retry_each(database, found[start : start + AT_ONCE], anyway=anyway)
    again = [notifications.present(*each) for each in outcomes if not isinstance(each, Conflict)]
    left = [detail for each in outcomes if isinstance(each, Conflict) for detail in each.details]
    cli.render.many(
        again,
        COLUMNS,
        clipped=CLIPPED,
        empty="No mail was queued again.",
        beside={"left": [each.to_json() for each in left]},
    )
    for reason, count in Counter(each.reason for each in left).items():
        cli.render.note(f"{count} left as {'it is' if count == 1 else 'they are'}: {LEFT.get(reason, reason)}")


def _retry_each(database: "Database", mails: "list[tuple[Mail, Organization]]", *, anyway: bool) -> "list[Outcome]":
    from booking_core import notifications

    keys = [(mail.organization_id, mail.effect_key) for mail, _ in mails]
    return database.write(lambda tx: notifications.retry_each(tx, keys, anyway=anyway))


def _organization(tx: "Tx", slug: str | None) -> "Organization | None":
    from booking_core import organizations

    return organizations.get(tx, slug=slug) if slug else None

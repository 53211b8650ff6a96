"""`booking doctor`: what must always be true, checked, and what waits for a person."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from booking_cli.framework import context
from booking_cli.framework.command import command, single
from booking_cli.framework.context import Cli
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.db.engine import Database
    from booking_core.doctor import Finding, Terms
    from booking_core.settings import Settings

app = single()

COLUMNS = ("kind", "invariant", "organization", "subject", "message", "remedy")
OVERDUE_S = 600
"""What is due for longer than this waits for a worker that does not run, or cannot do it."""


@command(app, "doctor", "booking doctor", "booking doctor --org fjord-tours -o json")
def doctor(
    ctx: typer.Context,
    org: Annotated[
        str | None, typer.Option("--org", metavar="SLUG", help="Only this organization.", show_default=False)
    ] = None,
) -> int:
    """Recomputes seats, numbers, events and balances, looks for what nobody takes up, and lists what is off.

    Exit code 1 when anything is broken; 13 when nothing is, but something waits for a person: refunds, dead
    deliveries, endpoints that were switched off, mails that failed.

    A secret key that does not open what the database holds is refused with exit code 2.

    Reads only, and may run beside a service.
    """
    cli = context.of(ctx)
    with storage.database(cli) as database, cli.render.progress("checking") as advance:
        from booking_core import doctor as checks
        from booking_core import organizations

        settings = storage.settings()
        terms = _terms(settings)
        _check_secret_keys(cli, settings, database)
        only = database.read(lambda tx: organizations.get(tx, slug=org)).id if org else None
        found = database.read(lambda tx: checks.examine(tx, only, terms, advance=advance))
    found += _about(settings)
    if found and cli.render.format == "table" and not cli.render.fields:
        from booking_cli.operator import findings

        findings.show(cli.render, found)
        cli.render.note(findings.summary(found))
    else:
        cli.render.many([asdict(each) for each in found], COLUMNS, empty="All is well.")
    return _exit_code(found)


def _exit_code(found: Sequence["Finding"]) -> ExitCode:
    if any(each.kind == "broken" for each in found):
        return ExitCode.FAILED
    return ExitCode.NEEDS_PERSON if found else ExitCode.OK


def _about(settings: "Settings") -> list["Finding"]:
    """Return what the settings leave undone: it waits for whoever runs the installation."""
    from booking_core.doctor import Finding, FindingKind

    return [
        Finding(
            "the settings leave nothing undone",
            None,
            "settings",
            warning,
            "set what is missing for serve and worker, then booking help environment",
            FindingKind.NEEDS_PERSON,
        )
        for warning in settings.warnings()
    ]


def _check_secret_keys(cli: Cli, settings: "Settings", database: "Database") -> None:
    """Refuse secret keys that do not open what the database holds. None are made here: the doctor writes nothing."""
    if settings.has_secret_key or settings.is_sqlite:
        storage.check_secret_keys(settings, database, cli.render.warn)
    else:
        cli.render.note("BOOKING_SECRET_KEY is not set: whether it opens what the database holds was not checked")


def _terms(settings: "Settings") -> "Terms":
    from booking_core.doctor import Terms, openers

    return Terms(
        event_retention_days=settings.event_retention_days,
        delivery_retention_days=settings.delivery_retention_days,
        idempotency_retention_days=settings.idempotency_retention_days,
        webhook_disable_after_s=settings.webhook_disable_after_s,
        overdue_s=OVERDUE_S,
        include_waiting=True,
        # None is made here: the doctor writes nothing.
        openers=openers(settings.secret_keys()) if settings.has_secret_key else None,
        pending_minutes=settings.pending_minutes,
        webhook_waits_s=settings.webhook_waits_s,
        webhook_deadline_s=settings.webhook_deadline_s,
    )

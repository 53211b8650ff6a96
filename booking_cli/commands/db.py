"""`booking db`: the schema of the database."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.framework import context
from booking_cli.framework.command import command, group
from booking_cli.framework.context import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.files import is_there
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.settings import Settings

app = group("Create, upgrade and check the database that BOOKING_DATABASE_URL names.")

PURGED = ("deliveries", "deleted_endpoints", "mails", "effects", "holds", "stored_answers", "events")
"""What retention deletes, by the names of its counts."""


@command(app, "upgrade", "booking db upgrade", shape="revision", changes=True)
def upgrade(ctx: typer.Context) -> None:
    """Brings the database to this release's schema.

    An SQLite file that does not exist is created. Killed half way, the database is as it was before.
    """
    settings = storage.settings()
    cli = context.of(ctx)
    storage.tell_database(cli, settings)
    for warning in storage.tightened(settings):
        cli.render.warn(warning)
    before = _revision(settings)
    bring_to_head(settings)
    cli.render.one({"previous": before, "revision": _revision(settings)})


@command(app, "current", "booking db current -o json")
def current(ctx: typer.Context) -> None:
    """Shows the revision of the database, and the one that this release needs."""
    cli, settings = context.of(ctx), storage.settings()
    storage.tell_database(cli, settings)
    cli.render.one(_state(settings))


@command(app, "check", "booking db check || booking db upgrade")
def check(ctx: typer.Context) -> int:
    """Compares the database's tables with this release's; exit code 1 when they differ."""
    settings = storage.settings()
    storage.tell_database(context.of(ctx), settings)
    state = _state(settings)
    state["differences"] = _differences(settings) if state["revision"] else []
    context.of(ctx).render.one(state)
    return ExitCode.OK if state["is_head"] and not state["differences"] else ExitCode.FAILED


@command(app, "purge", "booking db purge --dry-run", "booking db purge -o json", shape="purged", changes=True)
def purge(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be deleted.")] = False,
) -> None:
    """Deletes what is past its retention, once, and counts it.

    A worker does so all the time: this is for an installation without one, and for settings that were made shorter.
    Deliveries with their log, deleted endpoints, mails and holds go after BOOKING_DELIVERY_RETENTION_DAYS, events after
    BOOKING_EVENT_RETENTION_DAYS, answers stored for idempotency keys after BOOKING_IDEMPOTENCY_RETENTION_DAYS. What is
    still to be done is never deleted. Batches are short, so that nobody waits.
    """
    import asyncio

    cli, settings = context.of(ctx), storage.settings()
    with storage.database(cli) as database, storage.installed():
        from booking_server.worker.jobs.retention import REHEARSED, Purging

        counts = asyncio.run(Purging(settings, database).run_all(is_rehearsal=dry_run))
    shown = {**dict.fromkeys(PURGED, 0), **counts}
    cli.render.one({**shown, "total": sum(counts.values()), "dry_run": dry_run})
    if dry_run:
        cli.render.note("Nothing was deleted (--dry-run).")
        if REHEARSED in counts.values():
            cli.render.note(f"{REHEARSED} is where counting ends: there may be more.")


def bring_to_head(settings: "Settings") -> None:
    """Upgrades the database, and creates it when it is an SQLite file that does not exist.

    Raises:
        CliError: it cannot be reached or written, or a newer release has been here.
    """
    with storage.installed(), storage.explained():
        from alembic.util import CommandError

        from booking_core.db import migrate

        try:
            migrate.upgrade(settings.database_url)
        except CommandError as error:
            raise CliError(f"The database cannot be upgraded: {error}", code="not_upgraded") from error


def require_head(settings: "Settings") -> None:
    """Refuses a database that is not at this release's schema.

    Raises:
        CliError: it is not, or it cannot be reached.
    """
    state = _state(settings)
    if not state["is_head"]:
        raise CliError(
            f"The database is at revision {state['revision'] or 'none'}, and this release needs {state['head']}.",
            code="not_upgraded",
            hint="booking db upgrade",
        )


def _state(settings: "Settings") -> dict[str, Any]:
    with storage.installed():
        from booking_core.db import migrate
    revision = _revision(settings)
    return {"revision": revision, "head": migrate.head(), "is_head": revision == migrate.head()}


def _revision(settings: "Settings") -> str | None:
    """The database's revision; none when there is no database yet, which asking does not create."""
    if _is_absent(settings.sqlite_path):
        return None
    with storage.installed(), storage.explained():
        from booking_core.db import migrate

        return migrate.current(settings.database_url)


def _differences(settings: "Settings") -> list[str]:
    with storage.explained():
        from booking_core.db import migrate

        return migrate.differences(settings.database_url)


def _is_absent(path: Path | None) -> bool:
    return path is not None and not is_there(path)

"""`booking db`: create, upgrade, check and purge the database."""

from typing import TYPE_CHECKING, Any

from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.options import DryRun
from booking_cli.operator import cells, storage

if TYPE_CHECKING:
    from booking_core.base.settings import Settings

app = command_group("Create, upgrade, check and purge the database (operator).")

PURGED = ("deliveries", "deleted_endpoints", "mails", "effects", "holds", "stored_answers", "events")
"""The kinds of rows that retention deletes."""


@command(app, "upgrade", shape="revision", changes=True)
def upgrade(cli: Cli) -> None:
    """Upgrade the database to this release's schema.

    An SQLite file that does not exist is created. On PostgreSQL it can run beside the service, and an interrupted
    upgrade goes on where it stopped. With BOOKING_CELLS each cell is upgraded, one after the other.

    Examples:
        booking db upgrade
    """
    settings = storage.load_settings()
    storage.note_database(cli, settings)
    for warning in storage.restrict_file_modes(settings):
        cli.render.warn(warning)
    if settings.cells and not settings.cell:
        rows = _upgrade_cells(cli, settings)
        cli.render.many(rows, tuple(rows[0]))
    else:
        cli.render.one(_upgrade(cli, settings))


def _upgrade(cli: Cli, settings: "Settings") -> dict[str, Any]:
    before = storage.revision(settings)
    storage.upgrade(settings)
    result = {"previous": before, "revision": storage.revision(settings)}
    if result["previous"] != result["revision"]:
        with storage.open_audited(cli, settings) as database:
            storage.record_change(database)
    return result


def _upgrade_cells(cli: Cli, settings: "Settings") -> list[dict[str, Any]]:
    """Upgrade the cells, one after the other. A failed upgrade does not stop the others.

    Raises:
        CliError: a cell was not upgraded.
    """
    rows: list[dict[str, Any]] = []
    failed: CliError | None = None
    for cell in cells.every(settings):
        try:
            if not cell.is_first:
                cells.require_created(cli, cell)
            rows.append({"cell": cell.name} | _upgrade(cli, cell.settings))
        except CliError as error:
            cli.render.warn(f"cell {cell.name}: {error}")
            message = f"cell {cell.name}: {error}"
            failed = failed or CliError(message, error.exit_code, code=error.code, hint=error.hint)
    if failed:
        raise failed
    return rows


@command(app, "current")
def current(cli: Cli) -> None:
    """Show the revision of the database and of this release.

    Examples:
        booking db current -o json
    """
    settings = storage.load_settings()
    storage.note_database(cli, settings)
    cli.render.one(storage.schema_state(settings))


@command(app, "check")
def check(cli: Cli) -> int:
    """Compare the tables of the database with this release. Exit code 1 if they differ.

    Examples:
        booking db check || booking db upgrade
    """
    settings = storage.load_settings()
    storage.note_database(cli, settings)
    state = storage.schema_state(settings)
    state["differences"] = storage.differences(settings) if state["revision"] else []
    cli.render.one(state)
    return ExitCode.OK if state["is_head"] and not state["differences"] else ExitCode.FAILED


@command(app, "purge", shape="purged", changes=True)
def purge(cli: Cli, dry_run: DryRun = False) -> None:
    """Delete data that is older than its retention, and show the number of deleted rows.

    A worker does this all the time; run it without a worker, or after a retention was shortened. Deliveries with their
    log, deleted endpoints, mails and holds are kept for BOOKING_DELIVERY_RETENTION_DAYS, events for
    BOOKING_EVENT_RETENTION_DAYS, stored responses of idempotency keys for BOOKING_IDEMPOTENCY_RETENTION_DAYS. Work
    that is not done is never deleted. Rows are deleted in short transactions.

    Examples:
        booking db purge --dry-run
        booking db purge -o json
    """
    import asyncio

    settings = storage.load_settings()
    with storage.open_database(cli) as database:
        from booking_server.worker.jobs.retention import DRY_RUN_MAX, RetentionJob

        counts = asyncio.run(RetentionJob(settings, database).run_all(dry_run=dry_run))
    cli.render.one({**dict.fromkeys(PURGED, 0), **counts, "total": sum(counts.values()), "dry_run": dry_run})
    if dry_run:
        cli.render.note("Nothing was deleted (--dry-run).")
        if DRY_RUN_MAX in counts.values():
            cli.render.note(f"Counting stops at {DRY_RUN_MAX}: there may be more.")

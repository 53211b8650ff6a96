"""`booking doctor`: check the integrity of the database."""

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.formatting import text_of
from booking_cli.framework.options import OrgFilter
from booking_cli.framework.output import Renderer
from booking_cli.framework.tables import Columns
from booking_cli.operator import cells, secret_keys, storage

if TYPE_CHECKING:
    from booking_core.base.settings import Settings
    from booking_core.db.engine import Database
    from booking_core.upkeep.cells import Cell
    from booking_core.upkeep.doctor import CheckOptions, Finding


app = command_app()

COLUMNS = Columns(("kind", "invariant", "organization", "subject", "message", "remedy"), empty="No problems found.")
OVERDUE_S = 600
"""The age from which a due job is a finding: the worker does not run, or cannot do it."""


@command(app, "doctor")
def doctor(cli: Cli, org: OrgFilter = None) -> int:
    """Check the integrity of the database: seats, numbers, events, balances, and work that waits for a person.

    Exit code 1 if data is broken; 13 if nothing is broken, but refunds, dead deliveries, disabled endpoints or failed
    mails wait for a person. Exit code 2 if the secret key does not open the values in the database.

    The command only reads, and can run beside the service.

    Examples:
        booking doctor
        booking doctor --org fjord-tours -o json
    """
    findings = examine(cli, org)
    if findings and cli.render.is_default_table:
        write(cli, findings)
    else:
        cli.render.many([asdict(finding) for finding in findings], COLUMNS)
    return exit_code(findings)


def examine(cli: Cli, org: str | None = None) -> list["Finding"]:
    """Return the findings in the database of the settings, of one organization or of all.

    Raises:
        CliError: the secret keys do not open the sealed values of the database.
    """
    from booking_core.base.errors import NotFound

    settings = storage.load_settings()
    if settings.cells and not settings.cell:
        by_cell = [_examine_cell(cli, cell, org) for cell in cells.every(settings)]
        if org and not any(findings is not None for findings in by_cell):
            raise NotFound.of("organization", org)
        return [finding for findings in by_cell for finding in findings or ()] + _settings_findings(settings)
    with storage.open_database(cli) as database:
        return _examine(cli, settings, database, org) + _settings_findings(settings)


def _examine_cell(cli: Cli, cell: "Cell", org: str | None) -> "list[Finding] | None":
    """Return the findings of a cell; a cell that cannot be examined is a finding.

    None: it has no such organization."""
    from booking_core import organizations
    from booking_core.upkeep.doctor import Finding, FindingKind

    try:
        with cells.open_database(cli, cell) as database:
            if org and not any(organization.slug == org for organization in database.read(organizations.find)):
                return None
            cli.render.note(f"cell: {cell.name}, {storage.location(cell.settings)}")
            return _examine(cli, cell.settings, database, org)
    except CliError as error:
        if error.code == "wrong_secret_key":
            raise
        message, remedy = str(error), error.hint or "booking cells list"
        subject = f"cell {cell.name}"
        return [Finding("every cell can be examined", None, subject, message, remedy, FindingKind.BROKEN)]


def _examine(cli: Cli, settings: "Settings", database: "Database", org: str | None) -> list["Finding"]:
    with cli.render.progress("checking") as advance:
        from booking_core import organizations
        from booking_core.upkeep import doctor as checks

        _check_secret_keys(cli, settings, database)
        only = database.read(lambda tx: organizations.get(tx, slug=org)).id if org else None
        return database.read(lambda tx: checks.examine(tx, only, _check_options(settings), advance=advance))


def write(cli: Cli, findings: Sequence["Finding"]) -> None:
    """Write the findings as text, and their number as a note."""
    write_findings(cli.render, findings)
    cli.render.note(summary(findings))


def exit_code(findings: Sequence["Finding"]) -> ExitCode:
    """Return the exit code of `booking doctor` for these findings."""
    if any(finding.kind == "broken" for finding in findings):
        return ExitCode.FAILED
    return ExitCode.NEEDS_PERSON if findings else ExitCode.OK


def _settings_findings(settings: "Settings") -> list["Finding"]:
    """Return a finding for each warning about the settings."""
    from booking_core.upkeep.doctor import Finding, FindingKind

    return [
        Finding(
            "the settings leave nothing undone",
            None,
            "settings",
            warning,
            "set the missing settings for serve and worker: booking help environment",
            FindingKind.NEEDS_PERSON,
        )
        for warning in settings.warnings()
    ]


def _check_secret_keys(cli: Cli, settings: "Settings", database: "Database") -> None:
    """Check the secret keys against the database, without making one, since the command only reads."""
    if settings.has_secret_key or settings.is_sqlite:
        secret_keys.verify(settings, database, cli.render.warn)
    else:
        cli.render.note("BOOKING_SECRET_KEY is not set: sealed values were not checked")


def _check_options(settings: "Settings") -> "CheckOptions":
    from booking_core.upkeep.doctor import CheckOptions, openers

    return CheckOptions(
        event_retention_days=settings.event_retention_days,
        delivery_retention_days=settings.delivery_retention_days,
        idempotency_retention_days=settings.idempotency_retention_days,
        webhook_disable_after_s=settings.webhook_disable_after_s,
        overdue_s=OVERDUE_S,
        include_needs_person=True,
        # No key is made here, since the command only reads.
        openers=openers(settings.secret_keys()) if settings.has_secret_key else None,
        pending_minutes=settings.pending_minutes,
        webhook_retry_delays_s=settings.webhook_waits_s,
        webhook_deadline_s=settings.webhook_deadline_s,
    )


TITLES = {"broken": "Broken", "needs_person": "Waiting for a person"}
_WIDTH_MAX = 120
SHOWN_MAX = 10
"""The number of findings shown for each invariant. The other output formats list all."""
_STEP = re.compile(", (then|or) ")
"""The separator between the commands of a remedy."""


def write_findings(render: Renderer, all_findings: Sequence["Finding"]) -> None:
    """Write the findings as text, broken data first."""
    width = min(shutil.get_terminal_size().columns, _WIDTH_MAX)
    by_kind = groupby(sorted(all_findings, key=lambda finding: finding.kind), key=lambda finding: finding.kind)
    for number, (kind, section) in enumerate(by_kind):
        findings = list(section)
        if number:
            render.text("")
        render.heading(f"{TITLES[kind]} ({len(findings)})")
        for line in _section(findings, width):
            render.text(line)


def summary(findings: Sequence["Finding"]) -> str:
    """Return the number of findings of each kind as a sentence."""
    broken = sum(finding.kind == "broken" for finding in findings)
    waiting = len(findings) - broken
    parts = []
    if broken:
        parts.append(f"{broken} {'finding is' if broken == 1 else 'findings are'} about broken data (exit code 1)")
    if waiting:
        exit_code = "" if broken else " (exit code 13)"
        parts.append(f"{waiting} {'waits' if waiting == 1 else 'wait'} for a person{exit_code}")
    return f"{'; '.join(parts)}."


def _section(findings: Sequence["Finding"], width: int) -> Iterator[str]:
    for invariant, group in groupby(findings, key=lambda finding: finding.invariant):
        members = list(group)
        yield ""
        yield from _wrapped(_sentence(invariant), width, "  ")
        yield from _group(members[:SHOWN_MAX], width)
        if len(members) > SHOWN_MAX:
            yield f"    and {len(members) - SHOWN_MAX} more: -o json lists all of them"


def _group(findings: Sequence["Finding"], width: int) -> Iterator[str]:
    """Yield the findings of one invariant. A remedy shared by several is written once."""
    for remedy, group in groupby(findings, key=lambda finding: finding.remedy):
        for finding in group:
            yield "    " + "  ".join(filter(None, (text_of(finding.organization), text_of(finding.subject))))
            yield from _wrapped(text_of(finding.message), width, "      ")
        if remedy:
            yield from _remedy(text_of(remedy), width)


def _remedy(remedy: str, width: int) -> Iterator[str]:
    """Yield the remedy. A command is on a separate, unbroken line, to be copied."""
    first, *others = _STEP.split(remedy)
    for word, step in (("then", first), *zip(others[::2], others[1::2], strict=True)):
        mark = "    >  " if word == "then" else "    or "
        if step.startswith("booking "):
            yield f"{mark}{step}"
        else:
            yield from _wrapped(_sentence(step), width, mark, " " * len(mark))


def _wrapped(text: str, width: int, first: str, following: str = "") -> list[str]:
    """Wrap text into lines, without breaking ids."""
    return wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=following or first,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."

"""`booking catalog`: catalogue files, in and out."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.framework import context, interrupts
from booking_cli.framework.command import command, group
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import catalog_cancellations, storage

if TYPE_CHECKING:
    from booking_core.catalog import Note, Plan, Summary, Tally
    from booking_core.context import Installation, Organization
    from booking_core.db.engine import Database, Tx

app = group("Catalogue files: experiences, departures, customers, gift cards.")

KINDS = ("experiences", "departures", "customers", "gift_cards")
Org = Annotated[str, typer.Option("--org", metavar="SLUG", help="The organization.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="JSON or TOML; - is stdin.")]
OtherCurrency = Annotated[
    bool, typer.Option("--other-currency", help="Take amounts that are not in the organization's currency.")
]
OtherTimezone = Annotated[
    bool,
    typer.Option(
        "--other-timezone",
        help="Take a file of another time zone; times without an offset are still the organization's.",
    ),
]


@command(
    app,
    "import",
    "booking catalog import --org fjord-tours examples/fjord-tours.json",
    "booking catalog import --org fjord-tours --dry-run - < fjord-tours.json",
    "booking catalog import --org fjord-tours --cancel-bookings fjord-tours.json",
    shape="import",
    changes=True,
)
def import_(
    ctx: typer.Context,
    org: Org,
    file: File,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    atomic: Annotated[
        bool, typer.Option("--atomic", help="Write all of it in one transaction; bookings may wait for it.")
    ] = False,
    other_currency: OtherCurrency = False,
    other_timezone: OtherTimezone = False,
    cancel_bookings: Annotated[
        bool,
        typer.Option(
            "--cancel-bookings", help="Also cancel the bookings of departures that it cancels; guests get all back."
        ),
    ] = False,
) -> None:
    """Imports a catalogue file.

    What is there already is matched and updated, so that the same file twice changes nothing the second time. The file
    is checked first: with one bad entry nothing is written, and every problem is listed with its JSON pointer. Then it
    is written in short transactions, so that no booking waits for it. An import that is interrupted says what is
    imported; the same command again completes it.

    Customers and gift cards that a file brings are history: they make no events, webhooks or mails.

    Departures that the file cancels keep their bookings, and are listed with the command that cancels them, unless
    --cancel-bookings does that at once: guests are told, and get back all that they paid by card.
    """
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import catalog, organizations

    tally = catalog.Tally()
    with _told_when_interrupted(cli, tally, dry_run=dry_run):
        document = read_document(file)
        settings = storage.sealing_settings()
        with storage.database(cli) as database, cli.render.progress(f"importing {file.name}") as advance:
            installation = storage.unlocked(settings, database, cli.render.warn)
            organization = database.read(lambda tx: organizations.get(tx, slug=org))
            storage.tell_organization(cli, organization)
            # Before any transaction, which could be idle for too long meanwhile.
            plan = catalog.validate(
                document, organization=organization, other_currency=other_currency, other_timezone=other_timezone
            )
            wanted = _Import(database, organization, installation, plan, tally, advance)
            done = wanted.rehearse() if dry_run else wanted.at_once() if atomic else wanted.in_batches()
    booked = catalog_cancellations.settle(cli, org, done.cancelled, cancel_bookings=cancel_bookings, dry_run=dry_run)
    _show_summary(cli, org, done, booked, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Import:
    """An import that has been checked, and the ways to carry it out."""

    database: "Database"
    organization: "Organization"
    installation: "Installation"
    plan: "Plan"
    tally: "Tally"
    advance: Callable[[int, int], None]

    def rehearse(self) -> "Summary":
        return self.database.read(lambda tx: self._write(tx, dry_run=True))

    def at_once(self) -> "Summary":
        with interrupts.put_off() as check:

            def progress(done: int, total: int) -> None:
                check()  # while the transaction can still be undone
                self.advance(done, total)

            return self.database.write(lambda tx: self._write(tx, progress=progress))

    def in_batches(self) -> "Summary":
        from booking_core import catalog

        with interrupts.put_off() as check:
            return catalog.import_in_batches(
                self.database,
                self.organization,
                self.installation,
                self.plan,
                tally=self.tally,
                progress=self.advance,
                before_batch=check,
            )

    def _write(self, tx: "Tx", **options: Any) -> "Summary":
        from booking_core import catalog

        return catalog.import_plan(tx, self.organization, self.installation, self.plan, now=tx.now(), **options)


@contextmanager
def _told_when_interrupted(cli: Cli, tally: "Tally", *, dry_run: bool) -> Iterator[None]:
    """Says what was and what was not imported when the import ends before its end.

    Raises:
        CliError: it was interrupted.
    """
    try:
        yield
    except KeyboardInterrupt:
        message = f"Interrupted. {_told(tally)}"
        hint = None if dry_run else _AGAIN
        raise CliError(message, ExitCode.INTERRUPTED, code="interrupted", hint=hint) from None
    except Exception:
        if tally.has_begun:
            cli.render.note(f"{_told(tally)} {_AGAIN}.")
        raise


_AGAIN = "the same command again completes it; what is imported already stays as it is"


def _told(tally: "Tally") -> str:
    if not tally.has_begun:
        return "Nothing was imported."
    parts = [f"{tally.done[kind]} of {count} {kind.replace('_', ' ')}" for kind, count in tally.total.items() if count]
    return f"Imported: {', '.join(parts)}. The rest was not imported."


@command(app, "export", "booking catalog export --org fjord-tours > fjord-tours.json")
def export(ctx: typer.Context, org: Org) -> None:
    """Writes an organization's catalogue to stdout, as a file that imports to the same.

    It holds every gift card's code, which is money: keep it like the database.
    """
    cli = context.of(ctx)
    installation = storage.installation(storage.settings())
    with storage.database(cli) as database:
        from booking_core import catalog, organizations

        organization = database.read(lambda tx: organizations.get(tx, slug=org))
        storage.tell_organization(cli, organization)
        document = database.read(lambda tx: catalog.export(tx, organization, installation))
    cli.render.document(document)


@command(
    app,
    "validate",
    "booking catalog validate examples/fjord-tours.json",
    "booking catalog validate --org fjord-tours examples/fjord-tours.json",
)
def validate(
    ctx: typer.Context,
    file: File,
    org: Annotated[
        str | None,
        typer.Option("--org", metavar="SLUG", help="Also compare currency and time zone with this organization's."),
    ] = None,
    other_currency: OtherCurrency = False,
    other_timezone: OtherTimezone = False,
) -> None:
    """Checks a catalogue file by itself, and lists every problem with its JSON pointer.

    Without --org no database is opened. Wall time is then that of the file's `timezone`, else UTC, where no clock
    change moves a start. `import --dry-run` also compares the file with what is stored.
    """
    cli = context.of(ctx)
    document = read_document(file)
    from booking_core import catalog

    plan = catalog.validate(
        document,
        organization=_organization(cli, org) if org else None,
        other_currency=other_currency,
        other_timezone=other_timezone,
    )
    counts = {kind: len(getattr(plan, kind)) for kind in KINDS}
    cli.render.one({"valid": True, **counts, "notes": _shown_notes(plan.notes)} if cli.render.is_json else counts)


def _organization(cli: Cli, slug: str) -> "Organization":
    with storage.database(cli) as database:
        from booking_core import organizations

        return database.read(lambda tx: organizations.get(tx, slug=slug))


def read_document(path: Path) -> Any:
    """The content of a catalogue file; `-` is stdin.

    Raises:
        CliError: it cannot be read.
    """
    with storage.installed():
        from booking_core import catalog
    try:
        text = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}.", code="bad_file") from None
    return catalog.parse(text, suffix=path.suffix or ".json")


def _show_summary(cli: Cli, org: str, done: "Summary", booked: "Sequence[dict[str, Any]]", *, dry_run: bool) -> None:
    counts = {kind: getattr(done, kind)._asdict() for kind in KINDS}
    if cli.render.is_json:
        beside = {"notes": _shown_notes(done.notes), "cancelled_departures": list(booked)}
        cli.render.one({"organization": org, "dry_run": dry_run, **counts, **beside})
        return
    cli.render.many(
        [{"entries": kind, **count} for kind, count in counts.items()], ("entries", "created", "updated", "unchanged")
    )
    for note in done.notes:
        cli.render.note(f"note: {note.pointer}: {note.message}")
    catalog_cancellations.tell(cli, org, booked, dry_run=dry_run)
    if dry_run:
        cli.render.note("Nothing was written (--dry-run).")


def _shown_notes(notes: "Sequence[Note]") -> list[dict[str, str]]:
    return [{"pointer": note.pointer, "message": note.message} for note in notes]

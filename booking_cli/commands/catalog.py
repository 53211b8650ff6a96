"""`booking catalog`: import, export and validate catalogue files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.options import DryRun, Org, argument, option
from booking_cli.operator import cancellations, secret_keys, storage
from booking_cli.operator.catalog_import import CatalogImport, read_document, report_partial_import
from booking_cli.operator.staff_bookings import note_dry_run

if TYPE_CHECKING:
    from booking_core.base.context import Organization
    from booking_core.catalogue.transfer import ImportSummary, Note

app = command_group("Import, export and validate catalogue files (operator).")

KINDS = ("experiences", "departures", "customers", "gift_cards")
File = Annotated[Path, argument("FILE", "A JSON or TOML file; - is stdin.")]
OtherCurrency = Annotated[
    bool, option("--other-currency", "Allow amounts in another currency than the organization's.")
]
OtherTimezone = Annotated[
    bool,
    option(
        "--other-timezone", "Allow a file with another time zone; times without an offset are in the organization's."
    ),
]


@command(app, "import", shape="import", changes=True)
def import_(
    cli: Cli,
    org: Org,
    file: File,
    dry_run: DryRun = False,
    atomic: Annotated[
        bool, option("--atomic", "Import everything in one transaction; new bookings may have to wait.")
    ] = False,
    other_currency: OtherCurrency = False,
    other_timezone: OtherTimezone = False,
    cancel_bookings: Annotated[
        bool, option("--cancel-bookings", "Also cancel the bookings of cancelled departures, with full refunds.")
    ] = False,
) -> None:
    """Import a catalogue file.

    Existing entries are matched and updated: importing the same file again changes nothing. The file is validated
    first: with an invalid entry nothing is written, and the problems are listed as by `validate`. Then it is
    written in short transactions. An interrupted import reports its progress; run the same command again to complete
    it.

    Imported customers and gift cards create no events, webhooks or mails.

    Departures that the file cancels keep their bookings, and are listed with the command that cancels these. With
    --cancel-bookings they are cancelled at once: guests are notified, and card payments are refunded in full.

    Examples:
        booking catalog import --org fjord-tours examples/fjord-tours.json
        booking catalog import --org fjord-tours --dry-run - < fjord-tours.json
        booking catalog import --org fjord-tours --cancel-bookings fjord-tours.json
    """
    from booking_core.catalogue import transfer

    tally = transfer.ImportTally()
    with report_partial_import(cli, tally, dry_run=dry_run):
        document = read_document(file)
        settings = secret_keys.settings_with_secret_key()
        with storage.open_database(cli) as database, cli.render.progress(f"importing {file.name}") as advance:
            installation = secret_keys.verified_installation(settings, database, cli.render.warn)
            organization = storage.find_organization(cli, database, org)
            # Validated before the transaction begins, since it takes long for a large file.
            plan = transfer.validate(
                document, organization=organization, other_currency=other_currency, other_timezone=other_timezone
            )
            catalog_import = CatalogImport(database, organization, installation, plan, tally, advance)
            summary = catalog_import.run(dry_run=dry_run, atomic=atomic)
    departures = cancellations.cancel_bookings_of(
        cli, org, summary.cancelled, cancel_bookings=cancel_bookings, dry_run=dry_run
    )
    _write_summary(cli, org, summary, departures, dry_run=dry_run)


@command(app, "export")
def export(cli: Cli, org: Org) -> None:
    """Export the catalogue of an organization to stdout, in the format of `import`.

    The file contains the codes of all gift cards: protect it like the database.

    Examples:
        booking catalog export --org fjord-tours > fjord-tours.json
    """
    installation = secret_keys.load_installation(storage.load_settings())
    with storage.open_database(cli) as database:
        from booking_core.catalogue import transfer

        organization = storage.find_organization(cli, database, org)
        document = database.read(lambda tx: transfer.export(tx, organization, installation))
    cli.render.document(document)


@command(app, "validate")
def validate(
    cli: Cli,
    file: File,
    org: Annotated[
        str | None, option("--org SLUG", "Also check the currency and the time zone of this organization.")
    ] = None,
    other_currency: OtherCurrency = False,
    other_timezone: OtherTimezone = False,
) -> None:
    """Validate a catalogue file, and list every problem with its JSON pointer.

    A file has at most 64 MiB. Of many problems the first 1,000 are listed.

    Without --org no database is opened; local times are then in the file's `timezone`, or else in UTC. Use `import
    --dry-run` to compare the file with the database.

    Examples:
        booking catalog validate examples/fjord-tours.json
        booking catalog validate --org fjord-tours examples/fjord-tours.json
    """
    document = read_document(file)
    from booking_core.catalogue import transfer

    organization = _organization(cli, org) if org else None
    try:
        plan = transfer.validate(
            document, organization=organization, other_currency=other_currency, other_timezone=other_timezone
        )
    except transfer.InvalidCatalogue as error:
        raise error.with_outcome(None) from None
    counts = {kind: len(getattr(plan, kind)) for kind in KINDS}
    cli.render.one({"valid": True, **counts, "notes": _note_objects(plan.notes)} if cli.render.is_json else counts)


def _organization(cli: Cli, slug: str) -> "Organization":
    with storage.open_database(cli) as database:
        return storage.find_organization(cli, database, slug)


def _write_summary(
    cli: Cli, org: str, summary: "ImportSummary", departures: Sequence[dict[str, Any]], *, dry_run: bool
) -> None:
    counts = {kind: getattr(summary, kind)._asdict() for kind in KINDS}
    if cli.render.is_json:
        extra = {"notes": _note_objects(summary.notes), "cancelled_departures": list(departures)}
        cli.render.one({"organization": org, "dry_run": dry_run, **counts, **extra})
        return
    rows = [{"entries": kind, **count} for kind, count in counts.items()]
    cli.render.many(rows, ("entries", "created", "updated", "unchanged"))
    for note in summary.notes:
        cli.render.note(f"note: {note.pointer}: {note.message}")
    cancellations.note_departures(cli, org, departures, dry_run=dry_run)
    note_dry_run(cli, dry_run)


def _note_objects(notes: "Sequence[Note]") -> list[dict[str, str]]:
    return [{"pointer": note.pointer, "message": note.message} for note in notes]

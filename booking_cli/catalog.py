"""`booking catalog`: catalogue files, in and out."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli import context, storage
from booking_cli.command import command, group
from booking_cli.context import Cli, CliError

if TYPE_CHECKING:
    from booking_core.catalog import Note, Summary

app = group("Catalogue files: experiences, departures, customers, gift cards.")

KINDS = ("experiences", "departures", "customers", "gift_cards")
Org = Annotated[str, typer.Option("--org", metavar="SLUG", help="The organization.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="JSON or TOML; - is stdin.")]


@command(
    app,
    "import",
    "booking catalog import --org fjord-tours examples/fjord-tours.json",
    "booking catalog import --org fjord-tours --dry-run - < fjord-tours.json",
    shape="import",
    changes=True,
)
def import_(
    ctx: typer.Context,
    org: Org,
    file: File,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
) -> None:
    """Imports a catalogue file, all of it or nothing.

    What is there already is matched and updated, so that the same file twice changes nothing the second time. With one
    bad entry nothing is written, and every problem is listed with its JSON pointer.
    """
    cli = context.of(ctx)
    document = read_document(file)
    installation = storage.installation(storage.settings())
    with storage.database(cli) as database, cli.render.progress(f"importing {file.name}") as advance:
        from booking_core import catalog, organizations

        transaction = database.read if dry_run else database.write
        organization = database.read(lambda tx: organizations.get(tx, slug=org))
        storage.tell_organization(cli, organization)
        # Before the transaction, which could be idle for too long meanwhile.
        plan = catalog.validate(document, organization=organization)
        done = transaction(
            lambda tx: catalog.import_plan(
                tx,
                organization,
                installation,
                plan,
                now=tx.now(),
                dry_run=dry_run,
                progress=advance,
            )
        )
    _show_summary(cli, org, done, dry_run=dry_run)


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


@command(app, "validate", "booking catalog validate examples/fjord-tours.json")
def validate(ctx: typer.Context, file: File) -> None:
    """Checks a catalogue file by itself, without a database, and lists every problem with its JSON pointer.

    Without an organization no time zone is known; `import --dry-run` also tells which starts a clock change moves.
    """
    cli = context.of(ctx)
    document = read_document(file)
    from booking_core import catalog

    plan = catalog.validate(document)
    counts = {kind: len(getattr(plan, kind)) for kind in KINDS}
    cli.render.one({"valid": True, **counts, "notes": _shown_notes(plan.notes)} if cli.render.is_json else counts)


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


def _show_summary(cli: Cli, org: str, done: "Summary", *, dry_run: bool) -> None:
    counts = {kind: getattr(done, kind)._asdict() for kind in KINDS}
    if cli.render.is_json:
        cli.render.one({"organization": org, "dry_run": dry_run, **counts, "notes": _shown_notes(done.notes)})
        return
    cli.render.many(
        [{"entries": kind, **count} for kind, count in counts.items()], ("entries", "created", "updated", "unchanged")
    )
    for note in done.notes:
        cli.render.note(f"note: {note.pointer}: {note.message}")
    if dry_run:
        cli.render.note("Nothing was written (--dry-run).")


def _shown_notes(notes: "Sequence[Note]") -> list[dict[str, str]]:
    return [{"pointer": note.pointer, "message": note.message} for note in notes]

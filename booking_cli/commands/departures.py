"""`booking departures`: list and show departures over HTTP, and list, show and change them in the database.

`list`, `get` and `manifest` have two halves, between which `halves` chooses; all others open the database.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.client import api_client, api_departures
from booking_cli.commands import manifests
from booking_cli.commands.halves import require_org, uses_database
from booking_cli.framework import options
from booking_cli.framework.arguments import day, identifier
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.formatting import Item, bar, counted, start_text
from booking_cli.framework.options import DryRun, ExperienceFilter, OrgOfDatabase, OrgOfId, argument, choice, option
from booking_cli.framework.tables import Columns
from booking_cli.operator import cancellations, transactions
from booking_cli.operator.staff_bookings import note_dry_run
from booking_cli.operator.transactions import by_slug, of_departure, stored_id
from booking_core.models.json import JsonObject

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.db.engine import Tx

app = command_group("List and manage departures.")

_BAR_WIDTH = 6
_BOOKINGS = "booking_number customer.name totals.total payment.status refund.amount customer.email id".split()
BOOKINGS = Columns(_BOOKINGS, empty="It has no bookings.", terminal=_BOOKINGS[:-1], truncated={"customer.name": 16})
REASON_CODES = ("admin", "agent")

DepartureId = Annotated[str, argument("ID", "The departure's id; see `booking departures list`.", parser=identifier)]


@command(app, "list")
def list_(
    cli: Cli,
    org: OrgOfDatabase = None,
    first: Annotated[str, option("--date DAY", "The day, or the first day.", parser=day)] = "today",
    last: Annotated[
        str | None, option("--to DAY", "The last day, at most 92 days later; needs --org.", parser=day)
    ] = None,
    experience: ExperienceFilter = None,
) -> None:
    """List the departures of a day, earliest first. Days are in the organization's time zone.

    Over HTTP, departures have their available seats; `booking availability` lists more than a day. With --org, the
    database is read, and departures have the seats that are sold and their numbers of bookings, too.

    Examples:
        booking departures list --date tomorrow
        booking departures list --org fjord-tours --date today     (in the database)
        booking departures list --org fjord-tours --date 2026-12-24 --to 2026-12-31 -o json
    """
    require_org(cli, org)
    if org is None:
        if last is not None:
            raise CliError("--to needs --org: over HTTP, a day is listed.", hint="booking availability --from --to")
        api_departures.write_day(cli, first, experience)
        return
    from booking_core import bookings

    def query(tx: "Tx", actor: "Actor") -> list[JsonObject]:
        return bookings.find_departures(
            tx,
            actor,
            date_from=date.fromisoformat(first),
            date_to=date.fromisoformat(last or first),
            experience_id=stored_id(experience) if experience else None,
        )

    cli.render.many(transactions.read(cli, by_slug(org), query), _columns(is_one_day=last in (None, first)))


def _columns(*, is_one_day: bool) -> Columns:
    """Return the columns. On a terminal, `start` is without the date if one day is listed, and `sold` has a bar."""
    begin = len("2026-12-24 ") if is_one_day else len("2026-")
    return Columns(
        "id starts_at experience.title status seats_sold seats_total seats_available bookings.confirmed"
        " bookings.pending".split(),
        empty="No departure found.",
        terminal="id start sold experience.title status bookings.confirmed bookings.pending price".split(),
        cells={"start": lambda departure: start_text(departure)[begin:], "sold": _sold},
        truncated={"experience.title": 24},
    )


def _sold(departure: Item) -> str:
    sold, total = departure["seats_sold"], departure["seats_total"]
    return f"{bar(sold, total, _BAR_WIDTH)} {sold}/{total}"


@command(app, "get", shape="departure")
def get(cli: Cli, departure_id: DepartureId, org: OrgOfDatabase = None) -> None:
    """Show a departure with its available seats.

    In the database it is shown as by `show`.

    Examples:
        booking departures get 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21 -o json
        booking departures get 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21 --org fjord-tours     (in the database)
    """
    if uses_database(cli, org):
        show(cli, departure_id, org)
    else:
        api_client.write_resource(cli, f"departures/{departure_id}")


@command(app, "show")
def show(cli: Cli, departure_id: DepartureId, org: OrgOfId = None) -> None:
    """Show a departure with its seats and number of bookings (operator).

    Examples:
        booking departures show 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21
        booking departures show 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21 -o json
    """
    from booking_core import bookings

    organization, stored = of_departure(departure_id, org), stored_id(departure_id, "departure")
    cli.render.one(transactions.read(cli, organization, lambda tx, actor: bookings.get_departure(tx, actor, stored)))


@command(app, "manifest")
def manifest(
    cli: Cli,
    departure_id: DepartureId,
    org: OrgOfDatabase = None,
    as_csv: Annotated[bool, option("--csv", "Write CSV with a header, for a spreadsheet.")] = False,
    as_html: Annotated[bool, option("--html", "Write a page for printing.")] = False,
    use_api: options.UseApi = False,
) -> None:
    """List the guests of a departure: tiers, add-ons, notes, contact, and unpaid amounts.

    Pending bookings are marked: their seats are held until they are paid or expire. A guest who is checked in has an x,
    a no-show a dash.

    Examples:
        booking departures manifest 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21
        booking departures manifest 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21 -o tsv --fields customer.name,customer.phone,unpaid
        booking departures manifest 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21 --csv > manifest.csv
        booking departures manifest 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21 --html > manifest.html     (for printing)
        booking departures manifest 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21 --org fjord-tours     (in the database)
    """  # noqa: E501
    if as_csv + as_html + cli.render.is_json_or_fields > 1:
        raise CliError("--csv, --html and -o json or --fields exclude each other.")
    data = _manifest(cli, departure_id, org, use_api=use_api)
    if as_csv:
        cli.render.text(manifests.as_csv(data).rstrip("\r\n"))
    elif as_html:
        cli.render.text(manifests.as_html(data).rstrip("\n"))
    else:
        manifests.write(cli, data)


def _manifest(cli: Cli, departure_id: str, org: str | None, *, use_api: bool) -> JsonObject:
    if not uses_database(cli, org, use_api=use_api):
        with api_client.connect(cli) as client:
            data: JsonObject = api_client.get(client, f"departures/{departure_id}/manifest")
        return data
    from booking_core import bookings

    organization, stored = of_departure(departure_id, org), stored_id(departure_id, "departure")
    return transactions.read(cli, organization, lambda tx, actor: bookings.manifest(tx, actor, stored))


@command(app, "close", shape="staff_departure", changes=True)
def close(cli: Cli, departure_id: DepartureId, org: OrgOfId = None) -> None:
    """Close a departure for new bookings. Existing bookings stay; `reopen` undoes it.

    Examples:
        booking departures close 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21
    """
    from booking_core.catalogue import departures

    _change(cli, departure_id, org, departures.close)


@command(app, "reopen", shape="staff_departure", changes=True)
def reopen(cli: Cli, departure_id: DepartureId, org: OrgOfId = None) -> None:
    """Reopen a closed departure, until its booking close.

    A cancelled departure cannot be reopened, since its guests were notified.

    Examples:
        booking departures reopen 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21
    """
    from booking_core.catalogue import departures

    _change(cli, departure_id, org, departures.reopen)


@command(app, "seats", shape="staff_departure", changes=True)
def seats(
    cli: Cli,
    departure_id: DepartureId,
    total: Annotated[int, argument("N", "The total number of seats.", min=0)],
    org: OrgOfId = None,
    force: Annotated[bool, option("--force", "Allow fewer seats than are sold.")] = False,
) -> None:
    """Set the number of seats of a departure.

    Fewer seats than are sold need --force. Existing bookings keep their seats, and none is sold until enough bookings
    are cancelled.

    Examples:
        booking departures seats 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21 16
        booking departures seats 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21 8 --force
    """
    from booking_core.catalogue import departures

    def change(tx: "Tx", actor: "Actor", stored: str) -> bytes:
        return departures.set_seats(tx, actor, stored, total, allow_oversold=force)

    _change(cli, departure_id, org, change)


def _change(cli: Cli, departure_id: str, org: str | None, change: Callable[..., Any]) -> None:
    """Make a change in a separate transaction, and write the departure."""
    from booking_core import bookings

    organization, stored = of_departure(departure_id, org), stored_id(departure_id, "departure")
    changed = transactions.change(
        cli,
        organization,
        lambda tx, actor: change(tx, actor, stored),
        present=lambda tx, actor, _: bookings.get_departure(tx, actor, stored),
    )
    cli.render.one(changed)


@command(app, "cancel", shape="booking", changes=True)
def cancel(
    cli: Cli,
    departure_id: DepartureId,
    org: OrgOfId = None,
    reason_code: Annotated[
        str, choice("--reason-code", choices=REASON_CODES, help="The reason in the bookings' events.")
    ] = "admin",
    dry_run: DryRun = False,
) -> None:
    """Cancel a departure and all of its bookings. Card payments are refunded in full, and guests are notified.

    Bookings are cancelled in batches. If it is interrupted, run the same command again, or let a worker complete it. A
    departure that a catalogue import cancelled keeps its bookings until this command is run.

    Examples:
        booking departures cancel 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21 --dry-run
        booking departures cancel 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21 --reason-code agent --yes
    """
    organization, stored = of_departure(departure_id, org), stored_id(departure_id, "departure")
    with transactions.open_session(cli) as session:
        departure, affected = cancellations.plan(session, organization, stored)
        if not dry_run:
            cli.confirm(_question(departure, affected))
            affected = cancellations.cancel_all(cli, session, organization, stored, reason_code, expected=len(affected))
            departure, _ = cancellations.plan(session, organization, stored)
    _write_cancelled(cli, departure, affected, dry_run=dry_run)


def _question(departure: Mapping[str, Any], bookings: Sequence[JsonObject]) -> str:
    name = f"{departure['experience']['title']}, {start_text(departure)}"
    refunds = cancellations.amounts_text(cancellations.totals(bookings))
    count = counted(len(bookings), "booking")
    return f"Cancel the departure ({name}) and its {count}, and refund {refunds}? This cannot be undone."


def _write_cancelled(cli: Cli, departure: JsonObject, affected: Sequence[JsonObject], *, dry_run: bool) -> None:
    """Write the bookings with their refunds; in the json modes the envelope also has the departure."""
    refunds = cancellations.totals(affected)
    bookings = sorted(affected, key=lambda booking: booking["booking_number"] or 0)
    extra = {"departure": departure, "refunds": refunds, "dry_run": dry_run}
    cli.render.many(bookings, BOOKINGS, extra=extra)
    cli.render.note(_summary(departure, len(affected), cancellations.amounts_text(refunds), dry_run=dry_run))
    cancelled_before = departure["bookings"]["cancelled"] - (0 if dry_run else len(affected))
    if cancelled_before:
        cli.render.note(f"{counted(cancelled_before, 'booking')} had been cancelled before.")
    note_dry_run(cli, dry_run)


def _summary(departure: JsonObject, count: int, refunds: str, *, dry_run: bool) -> str:
    state, verb = "is cancelled", "is" if count == 1 else "are"
    if dry_run:
        state = "is cancelled already" if departure["status"] == "cancelled" else "would be cancelled"
        verb = "would be"
    return f"The departure {state}; {counted(count, 'booking')} {verb} cancelled; refunds: {refunds}."

"""`booking holds`: keep seats of a departure for a while, over HTTP or in the database."""

from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.client import api_client
from booking_cli.commands.halves import uses_database
from booking_cli.framework import options
from booking_cli.framework.arguments import counts, duration_s, identifier
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.options import Departure, argument, option
from booking_cli.operator import transactions
from booking_core.models.json import JsonObject
from booking_core.models.limits import HOLD_S_MAX

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.db.engine import Tx

app = command_group(
    "Hold seats of a departure. With an API key, commands use the API; with --org, or if only a database is configured,"
    " `create` and `delete` use the database."
)


HoldId = Annotated[str, argument("HOLD", "The hold's id.", parser=identifier)]
Guests = Annotated[list[str] | None, option("--guest TIER=COUNT", "Number of guests of a price tier; repeatable.")]
Length = Annotated[str, option("--for 10m", "The duration from now on; the API allows 30 minutes in all.")]


@command(app, "create", shape="hold", changes=True)
def create(
    cli: Cli,
    departure: Departure,
    seats: Annotated[int | None, option("--seats N", "The number of seats.", min=1)] = None,
    guest: Guests = None,
    length: Length = "10m",
    org: options.OrgOfDatabase = None,
    key: options.IdempotencyKey = None,
) -> None:
    """Hold seats of a departure. `booking bookings create --hold` takes them over.

    In the database, a hold lasts a day at most, and `booking storefront checkout --hold` takes it over.

    Examples:
        booking holds create --departure 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --seats 2
        booking holds create --departure ID --guest adult=2 --guest child=1 --for 20m
        booking holds create --org fjord-tours --departure ID --seats 2 --for 24h     (in the database)
    """
    if (seats is None) == (not guest):
        problem = "--seats and --guest exclude each other." if guest else "Either --seats or --guest is needed."
        raise CliError(problem, hint="pass --guest adult=2 to see the price, too")
    party = {"guests": counts(guest, "tier_id")} if guest else {"seats": seats}
    if uses_database(cli, org):
        create_in_database(cli, departure, org, party, length)
        return
    body = {"departure_id": departure, "expires_in_seconds": _short(length)} | party
    api_client.write_posted(cli, "holds", body=body, key_option=key)


def create_in_database(cli: Cli, departure: str, org: str | None, party: JsonObject, length: str) -> None:
    """Hold the seats of a party, or a number of seats, and write the hold."""
    from booking_core.bookings import storefront
    from booking_core.models.holds import HoldCreate

    for_s = duration_s(length)

    def hold(tx: "Tx", actor: "Actor") -> JsonObject:
        request = {"departure_id": transactions.stored_id(departure, "departure")} | party
        return storefront.hold(tx, actor, transactions.parse_request(HoldCreate, request), for_s=for_s)

    cli.render.one(transactions.change(cli, transactions.of_departure(departure, org), hold))


def _short(length: str) -> int:
    """Return the seconds of a hold of the API."""
    seconds = duration_s(length)
    if not 1 <= seconds <= HOLD_S_MAX:
        raise CliError(f"--for is from 1s to {HOLD_S_MAX // 60}m over HTTP.")
    return seconds


@command(app, "get", shape="hold")
def get(cli: Cli, hold_id: HoldId) -> None:
    """Show a hold and whether it still keeps its seats.

    Examples:
        booking holds get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    api_client.write_resource(cli, f"holds/{hold_id}")


@command(app, "extend", shape="hold", changes=True)
def extend(cli: Cli, hold_id: HoldId, length: Length = "10m", key: options.IdempotencyKey = None) -> None:
    """Let a hold end later, half an hour after its beginning at most.

    Examples:
        booking holds extend 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --for 15m
    """
    body = {"expires_in_seconds": _short(length)}
    api_client.write_posted(cli, f"holds/{hold_id}/extend", body=body, key_option=key)


@command(app, "delete", shape="hold", changes=True)
def delete(cli: Cli, hold_id: HoldId, org: options.OrgOfDatabase = None) -> None:
    """Release the seats of a hold, and show it. An ended hold is unchanged.

    Examples:
        booking holds delete 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
        booking holds delete 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --org fjord-tours     (in the database)
    """
    if uses_database(cli, org):
        release_in_database(cli, hold_id, org)
        return
    with api_client.connect(cli) as client:
        api_client.request(client, "DELETE", f"holds/{hold_id}")
        cli.render.one(api_client.get(client, f"holds/{hold_id}"))


def release_in_database(cli: Cli, hold_id: str, org: str | None) -> None:
    """Release the seats of a hold and write it."""
    from booking_core.bookings import storefront

    def release(tx: "Tx", actor: "Actor") -> Any:
        return storefront.release(tx, actor, hold_id.lower())

    organization = transactions.by_slug(org) if org else lambda tx: storefront.organization_of_hold(tx, hold_id)
    cli.render.one(transactions.change(cli, organization, release))

"""`booking holds`: keep seats of a departure for some minutes, over HTTP."""

from typing import Annotated, Any

from booking_cli.client import api_client
from booking_cli.framework import options
from booking_cli.framework.arguments import counts, duration_us, identifier
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.options import Departure, argument, option

app = command_group("Hold seats of a departure for some minutes.")


HoldId = Annotated[str, argument("HOLD", "The hold's id.", parser=identifier)]
Guests = Annotated[list[str] | None, option("--guest TIER=COUNT", "Number of guests of a price tier; repeatable.")]
Length = Annotated[str, option("--for 10m", "The duration from now on, at most 30 minutes in all.")]


@command(app, "create", shape="hold", changes=True)
def create(
    cli: Cli,
    departure: Departure,
    seats: Annotated[int | None, option("--seats N", "The number of seats.", min=1)] = None,
    guest: Guests = None,
    length: Length = "10m",
    key: options.IdempotencyKey = None,
) -> None:
    """Hold seats of a departure. `booking bookings create --hold` takes them over.

    Examples:
        booking holds create --departure 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --seats 2
        booking holds create --departure ID --guest adult=2 --guest child=1 --for 20m
    """
    if (seats is None) == (not guest):
        raise CliError("Either --seats or --guest is needed.", hint="pass --guest adult=2 to see the price, too")
    body: dict[str, Any] = {"departure_id": departure, "expires_in_seconds": duration_us(length) // 1_000_000}
    body |= {"guests": counts(guest, "tier_id")} if guest else {"seats": seats}
    cli.render.one(api_client.post(cli, "holds", body=body, key_option=key).body)


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
    body = {"expires_in_seconds": duration_us(length) // 1_000_000}
    cli.render.one(api_client.post(cli, f"holds/{hold_id}/extend", body=body, key_option=key).body)


@command(app, "delete", shape="deleted", changes=True)
def delete(cli: Cli, hold_id: HoldId) -> None:
    """Release the seats of a hold. An ended hold is unchanged.

    Examples:
        booking holds delete 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    with api_client.connect(cli) as client:
        api_client.request(client, "DELETE", f"holds/{hold_id}")
    cli.render.one({"id": hold_id, "deleted": True})

"""`booking holds`: keep seats of a departure for some minutes, over HTTP."""

from typing import Annotated, Any

from booking_cli.client import api_client
from booking_cli.framework import options
from booking_cli.framework.arguments import duration_us, identifier
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.options import Departure, argument, option

app = command_group("Hold seats of a departure for some minutes.")


HoldId = Annotated[str, argument("HOLD", "The hold's id.", parser=identifier)]


@command(app, "create", shape="hold", changes=True)
def create(
    cli: Cli,
    departure: Departure,
    seats: Annotated[int, option("--seats N", "The number of seats.", min=1)],
    length: Annotated[str, option("--for 10m", "The duration, at most 30 minutes.")] = "10m",
    key: options.IdempotencyKey = None,
) -> None:
    """Hold seats of a departure. `booking bookings create --hold` takes them over.

    Examples:
        booking holds create --departure 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --seats 2
        booking holds create --departure ID --seats 2 --for 20m
    """
    body: dict[str, Any] = {
        "departure_id": departure,
        "seats": seats,
        "expires_in_seconds": duration_us(length) // 1_000_000,
    }
    cli.render.one(api_client.post(cli, "holds", body=body, key_option=key).body)


@command(app, "get", shape="hold")
def get(cli: Cli, hold_id: HoldId) -> None:
    """Show a hold and whether it still keeps its seats.

    Examples:
        booking holds get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    api_client.write_resource(cli, f"holds/{hold_id}")


@command(app, "delete", shape="deleted", changes=True)
def delete(cli: Cli, hold_id: HoldId) -> None:
    """Release the seats of a hold. An ended hold is unchanged.

    Examples:
        booking holds delete 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    with api_client.connect(cli) as client:
        api_client.request(client, "DELETE", f"holds/{hold_id}")
    cli.render.one({"id": hold_id, "deleted": True})

"""`booking holds`: keep seats of a departure for some minutes, over HTTP."""

from typing import Annotated, Any

import typer

from booking_cli.client import api_client
from booking_cli.framework import options
from booking_cli.framework.arguments import duration_us, identifier
from booking_cli.framework.bookings import Departure
from booking_cli.framework.command import command, command_group
from booking_cli.framework.options import argument, option

app = command_group("Hold seats of a departure for some minutes.")

_ID = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"

HoldId = Annotated[str, argument("HOLD", "The hold's id.", parser=identifier)]


@command(
    app,
    "create",
    f"booking holds create --departure {_ID} --seats 2",
    "booking holds create --departure ID --seats 2 --for 20m",
    shape="hold",
    changes=True,
)
def create(
    ctx: typer.Context,
    departure: Departure,
    seats: Annotated[int, option("--seats N", "The number of seats.", min=1)],
    length: Annotated[str, option("--for 10m", "The duration, at most 30 minutes.")] = "10m",
    key: options.IdempotencyKey = None,
) -> None:
    """Hold seats of a departure. `booking bookings create --hold` takes them over."""
    body: dict[str, Any] = {
        "departure_id": departure,
        "seats": seats,
        "expires_in_seconds": duration_us(length) // 1_000_000,
    }
    ctx.obj.render.one(api_client.post(ctx.obj, "holds", body=body, key_option=key).body)


@command(app, "get", f"booking holds get {_ID}", shape="hold")
def get(ctx: typer.Context, hold_id: HoldId) -> None:
    """Show a hold and whether it still keeps its seats."""
    api_client.write_resource(ctx.obj, "holds", hold_id)


@command(app, "delete", f"booking holds delete {_ID}", shape="deleted", changes=True)
def delete(ctx: typer.Context, hold_id: HoldId) -> None:
    """Release the seats of a hold. One that is over already stays as it is."""
    with api_client.connect(ctx.obj) as client:
        api_client.request(client, "DELETE", api_client.path("holds", hold_id))
    ctx.obj.render.one({"id": hold_id, "deleted": True})

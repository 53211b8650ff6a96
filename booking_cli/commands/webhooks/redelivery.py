"""`booking webhooks redeliver`: have an endpoint sent any event again, over HTTP."""

from typing import Annotated

from booking_cli.client import api_client
from booking_cli.commands.webhooks.deliveries import EndpointId
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.options import argument

app = command_app()

_ID, _EVENT = "9c3b1d70-52f4-4a58-8d4c-64f0f3a7e1b2", "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"


@command(app, "redeliver", shape="delivery", changes=True)
def redeliver(
    cli: Cli,
    endpoint_id: EndpointId,
    event_id: Annotated[str, argument("EVENT_ID", "ID of the event.", show_default=False)],
) -> None:
    """Queue any event for an endpoint again.

    Also an event that was delivered before, or that the endpoint does not subscribe to. `booking events list` shows the
    events of 90 days. To queue what failed, use `booking webhooks recover`.

    Examples:
        booking webhooks redeliver 9c3b1d70-52f4-4a58-8d4c-64f0f3a7e1b2 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    with api_client.connect(cli) as client:
        path = f"webhooks/{endpoint_id}/redeliver"
        cli.render.one(api_client.request(client, "POST", path, body={"event_id": event_id}).body)

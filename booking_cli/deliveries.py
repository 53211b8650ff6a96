"""`booking webhooks deliveries`: the log of what was sent to an endpoint."""

import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from booking_cli import context, lists, remote
from booking_cli.arguments import identifier, one_of
from booking_cli.command import command, group
from booking_cli.context import Cli
from booking_cli.lists import LIMIT, After, All, Limit, Order

app = group("What was sent to an endpoint, for 30 days.")

COLUMNS = (
    "id",
    "status",
    "event_type",
    "attempt_count",
    "last_response_status",
    "last_error",
    "next_attempt_at",
    "created_at",
)
STATUSES = ("queued", "succeeded", "failed", "dead")
ATTEMPT_COLUMNS = ("number", "started_at", "response_status", "error", "duration_ms", "id", "response_excerpt")
WATCH_S = 2.0
_ID = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"
_DELIVERY = "0190f3c4-02f1-7d5e-8a3b-5c1e9f7a2d44"

EndpointId = Annotated[
    str, typer.Argument(metavar="ID", parser=identifier, help="The endpoint's id; `booking webhooks list` shows it.")
]
DeliveryId = Annotated[
    str,
    typer.Argument(
        metavar="DELIVERY",
        parser=identifier,
        help="The delivery's id, or that of an attempt, as Svc-Delivery-Id has it.",
    ),
]


@command(
    app,
    "list",
    f"booking webhooks deliveries list {_ID} --status dead",
    f"booking webhooks deliveries list {_ID} --event-type booking.created --watch",
)
def list_(
    ctx: typer.Context,
    endpoint_id: EndpointId,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", metavar="|".join(STATUSES), parser=one_of(*STATUSES), help="Only those.", show_default=False
        ),
    ] = None,
    event_type: Annotated[
        str | None, typer.Option("--event-type", metavar="TYPE", help="Only deliveries of this type.")
    ] = None,
    event_id: Annotated[str | None, typer.Option("--event-id", metavar="ID", help="Only that of this event.")] = None,
    limit: Limit = LIMIT,
    everything: All = False,
    order: Order = "desc",
    starting_after: After = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show what becomes of them, until Ctrl-C.")] = False,
) -> None:
    """Lists an endpoint's deliveries, the newest first."""
    cli = context.of(ctx)
    path = remote.path("webhooks", endpoint_id, "deliveries")
    params = {"status": status, "event_type": event_type, "event_id": event_id, "order": order}
    if watch:
        with remote.client(cli) as client:
            asked = {name: value for name, value in params.items() if value is not None}
            _watch(cli, lambda: lists.merged(lists.pages(client, path, asked, limit))["data"])
    lists.show(
        cli,
        path,
        COLUMNS,
        params=params,
        limit=limit,
        everything=everything,
        starting_after=starting_after,
        empty="No delivery.",
    )


@command(app, "show", f"booking webhooks deliveries show {_ID} {_DELIVERY} -o json")
def show(ctx: typer.Context, endpoint_id: EndpointId, delivery_id: DeliveryId) -> None:
    """Shows a delivery with its attempts."""
    cli = context.of(ctx)
    with remote.client(cli) as client:
        delivery = remote.ask(client, "GET", remote.path("webhooks", endpoint_id, "deliveries", delivery_id)).body
    if cli.render.format != "table" or cli.render.fields:
        cli.render.one(delivery)
        return
    attempts = delivery.pop("attempts")
    cli.render.one(delivery)
    cli.render.text("")
    cli.render.many(attempts, ATTEMPT_COLUMNS, empty="No attempt yet.")


@command(app, "retry", f"booking webhooks deliveries retry {_ID} {_DELIVERY}")
def retry(ctx: typer.Context, endpoint_id: EndpointId, delivery_id: DeliveryId) -> None:
    """Queues one more attempt of a dead delivery.

    For many at once there is `booking webhooks recover`.
    """
    cli = context.of(ctx)
    with remote.client(cli) as client:
        path = remote.path("webhooks", endpoint_id, "deliveries", delivery_id, "retry")
        cli.render.one(remote.ask(client, "POST", path).body)


# Watching --------------------------------------------------------------------------------------------------------


def _watch(cli: Cli, look: Callable[[], list[dict[str, Any]]]) -> NoReturn:
    """Looks again and again: a table that changes on a terminal, elsewhere a record for each change."""
    if cli.render.format == "table" and sys.stdout.isatty():
        with cli.render.watched(COLUMNS) as show:
            while True:
                show(look())
                time.sleep(WATCH_S)
    seen: dict[str, tuple[str, int]] = {}
    while True:
        for delivery in reversed(look()):
            state = delivery["status"], delivery["attempt_count"]
            if seen.get(delivery["id"]) != state:
                seen[delivery["id"]] = state
                _record(cli, delivery)
        cli.render.flush()
        time.sleep(WATCH_S)


def _record(cli: Cli, delivery: dict[str, Any]) -> None:
    if cli.render.is_json:
        cli.render.line(delivery)
    else:
        cli.render.many([delivery], COLUMNS)

"""`booking webhooks deliveries`: the log of what was sent to an endpoint."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from booking_cli.client import api_client, pagination
from booking_cli.client.pagination import LIMIT, After, All, Limit, Order
from booking_cli.framework import context, event_types
from booking_cli.framework.arguments import event_type, identifier, one_of
from booking_cli.framework.command import command, group
from booking_cli.framework.context import Cli, CliError

if TYPE_CHECKING:
    from booking_sdk import BookingClient

app = group("What was sent to an endpoint, for 30 days.")

COLUMNS = (
    "id",
    "status",
    "last_response_status",
    "last_error",
    "event_type",
    "attempt_count",
    "created_at",
    "next_attempt_at",
)
CLIPPED = {"event_type": 22}
STATUSES = ("queued", "succeeded", "failed", "dead")
ATTEMPT_COLUMNS = ("number", "started_at", "response_status", "error", "duration_ms", "response_excerpt", "id")
ATTEMPT_CLIPPED = {"response_excerpt": 40}
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
    shape="delivery",
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
        str | None,
        typer.Option("--event-type", metavar="TYPE", parser=event_type, help="Only this type, or booking.*."),
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
    path = api_client.path("webhooks", endpoint_id, "deliveries")
    params = {"status": status, "event_id": event_id, "order": order}
    types = event_types.expanded([event_type] if event_type else [])
    if len(types) == 1:
        params["event_type"] = types[0]
    wanted = None if everything else limit
    if watch:
        with api_client.client(cli) as client:
            asked = {name: value for name, value in params.items() if value is not None}
            _watch(cli, lambda: _newest(client, path, asked, types, limit)[0])
    if len(types) > 1:
        _show_kinds(cli, path, params, types, wanted, starting_after)
        return
    pagination.show(
        cli,
        path,
        COLUMNS,
        params=params,
        limit=limit,
        everything=everything,
        starting_after=starting_after,
        clipped=CLIPPED,
        empty="There is no delivery.",
    )


def _show_kinds(
    cli: Cli, path: str, params: Mapping[str, Any], types: Sequence[str], wanted: int | None, after: str | None
) -> None:
    """Show the deliveries of several types as one list; the service filters by one."""
    if after:
        raise CliError("--starting-after goes with one type.", hint="name one type, or pass --limit or --all")
    asked = {name: value for name, value in params.items() if value is not None}
    with api_client.client(cli) as client:
        found, has_more = _newest(client, path, asked, types, wanted)
    cli.render.many(found, COLUMNS, clipped=CLIPPED, empty="There is no delivery.", beside={"has_more": has_more})
    if has_more and cli.render.format == "table":
        cli.render.note("There are more: --limit N shows as many, --all shows all.")


def _newest(
    client: "BookingClient", path: str, params: Mapping[str, Any], types: Sequence[str], wanted: int | None
) -> tuple[list[dict[str, Any]], bool]:
    """Return the first deliveries of those types in the order that is asked for, and whether there are more."""
    queries = [{**params, "event_type": each} for each in types] if len(types) > 1 else [dict(params)]
    pages = [pagination.merged(pagination.pages(client, path, query, wanted)) for query in queries]
    found = [delivery for page in pages for delivery in page["data"]]
    found.sort(key=_age, reverse=params.get("order") != "asc")
    has_more = any(page["has_more"] for page in pages) or (wanted is not None and len(found) > wanted)
    return found[:wanted], has_more


def _age(delivery: Mapping[str, Any]) -> tuple[datetime, str]:
    return datetime.fromisoformat(delivery["created_at"]), delivery["id"]


@command(app, "show", f"booking webhooks deliveries show {_ID} {_DELIVERY} -o json", shape="delivery")
def show(ctx: typer.Context, endpoint_id: EndpointId, delivery_id: DeliveryId) -> None:
    """Shows a delivery with its attempts."""
    cli = context.of(ctx)
    with api_client.client(cli) as client:
        delivery = api_client.ask(
            client, "GET", api_client.path("webhooks", endpoint_id, "deliveries", delivery_id)
        ).body
    if cli.render.format != "table" or cli.render.fields:
        cli.render.one(delivery)
        return
    attempts = delivery.pop("attempts")
    cli.render.one(delivery)
    cli.render.text("")
    cli.render.many(attempts, ATTEMPT_COLUMNS, clipped=ATTEMPT_CLIPPED, empty="No attempt yet.")


@command(app, "retry", f"booking webhooks deliveries retry {_ID} {_DELIVERY}", shape="delivery", changes=True)
def retry(ctx: typer.Context, endpoint_id: EndpointId, delivery_id: DeliveryId) -> None:
    """Queues one more attempt of a dead delivery.

    For many at once there is `booking webhooks recover`.
    """
    cli = context.of(ctx)
    with api_client.client(cli) as client:
        path = api_client.path("webhooks", endpoint_id, "deliveries", delivery_id, "retry")
        cli.render.one(api_client.ask(client, "POST", path).body)


# Watching --------------------------------------------------------------------------------------------------------


def _watch(cli: Cli, look: Callable[[], list[dict[str, Any]]]) -> NoReturn:
    """Looks again and again: a table that changes on a terminal, elsewhere a record for each change."""
    if cli.render.format == "table" and sys.stdout.isatty():
        with cli.render.watched(COLUMNS, CLIPPED) as show:
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

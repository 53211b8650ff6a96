"""`booking webhooks deliveries`: list, show and retry deliveries over HTTP."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from booking_cli.client import api_client
from booking_cli.commands.webhooks.explanation import explain
from booking_cli.framework import event_types
from booking_cli.framework.arguments import event_type as parse_event_type
from booking_cli.framework.arguments import identifier
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.options import FIRST_PAGE, Paging, argument, choice, option
from booking_cli.framework.output import merge
from booking_cli.framework.stream import Stream
from booking_cli.framework.tables import Columns

if TYPE_CHECKING:
    from booking_sdk import BookingClient

app = command_group("List, show and retry deliveries; they are kept for 30 days.")

COLUMNS = Columns(
    "id status last_response_status last_error event_type attempt_count created_at next_attempt_at".split(),
    empty="No delivery found.",
    truncated={"event_type": 22},
)
WATCH_COLUMNS = dict(zip(COLUMNS.paths, (36, 9, 4, 16, 22, 8, 16, 16), strict=True))
"""Columns with the width of their longest value, since later changes are not known when the first line is written."""
STATUSES = ("queued", "succeeded", "failed", "dead")
ATTEMPT_COLUMNS = Columns(
    ("number", "started_at", "response_status", "error", "duration_ms", "response_excerpt", "id"),
    empty="No attempt yet.",
    truncated={"response_excerpt": 40},
)
WATCH_S = 2.0

EndpointId = Annotated[str, argument("ID", "The endpoint's id; see `booking webhooks list`.", parser=identifier)]
DeliveryId = Annotated[
    str, argument("DELIVERY", "The id of a delivery or of an attempt (Svc-Delivery-Id).", parser=identifier)
]

Status = Annotated[str | None, choice("--status", choices=STATUSES, help="Filter by status.")]
EventType = Annotated[
    str | None, option("--event-type TYPE", "Filter by event type, or booking.*.", parser=parse_event_type)
]
EventId = Annotated[str | None, option("--event-id ID", "Filter by event.")]
RecoveryId = Annotated[
    str | None, option("--recovery-id ID", "Filter by recovery, the id in the output of `recover`.", parser=identifier)
]
Watch = Annotated[bool, option("--watch", "Show changes as they happen, until Ctrl-C.")]


@command(app, "list", shape="delivery")
def list_(
    cli: Cli,
    endpoint_id: EndpointId,
    status: Status = None,
    event_type: EventType = None,
    event_id: EventId = None,
    recovery_id: RecoveryId = None,
    paging: Paging = FIRST_PAGE,
    watch: Watch = False,
) -> None:
    """List the deliveries of an endpoint, newest first.

    Examples:
        booking webhooks deliveries list 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --status dead
        booking webhooks deliveries list 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --event-type booking.created --watch
    """
    path = f"webhooks/{endpoint_id}/deliveries"
    params = {"status": status, "event_id": event_id, "recovery_id": recovery_id, "order": paging.order}
    types = event_types.expanded([event_type] if event_type else [])
    if len(types) == 1:
        params["event_type"] = types[0]
    if watch:
        with api_client.connect(cli) as client:
            _watch(cli, lambda: _fetch(client, path, params, types, paging.limit)[0])
    if len(types) > 1:
        _write_several_types(cli, paging, path, params, types)
        return
    api_client.write_list(cli, paging, path, COLUMNS, **params)


def _write_several_types(cli: Cli, paging: Paging, path: str, params: Mapping[str, Any], types: Sequence[str]) -> None:
    """Write the deliveries of several event types as one list, since the service filters by one type only."""
    if paging.starting_after:
        raise CliError("--starting-after needs a single event type.", hint="pass one type, or use --limit or --all")
    with api_client.connect(cli) as client:
        deliveries, has_more = _fetch(client, path, params, types, paging.most)
    cli.render.many(deliveries, COLUMNS, extra={"has_more": has_more})
    if has_more and cli.render.format == "table":
        cli.render.note("There are more: use --limit N or --all.")


def _fetch(
    client: "BookingClient", path: str, params: Mapping[str, Any], types: Sequence[str], limit: int | None
) -> tuple[list[dict[str, Any]], bool]:
    """Return the first deliveries of the types in the chosen order, and whether there are more."""
    queries = [{**params, "event_type": event_type} for event_type in types] if len(types) > 1 else [params]
    pages = [merge(api_client.iter_pages(client, path, query, limit)) for query in queries]
    deliveries = [delivery for page in pages for delivery in page["data"]]
    deliveries.sort(key=_creation, reverse=params.get("order") != "asc")
    has_more = any(page["has_more"] for page in pages) or (limit is not None and len(deliveries) > limit)
    return deliveries[:limit], has_more


def _creation(delivery: Mapping[str, Any]) -> tuple[datetime, str]:
    return datetime.fromisoformat(delivery["created_at"]), delivery["id"]


@command(app, "show", shape="delivery")
def show(cli: Cli, endpoint_id: EndpointId, delivery_id: DeliveryId) -> None:
    """Show a delivery with its attempts, and a sentence with its result, or the reason why it waits.

    Examples:
        booking webhooks deliveries show 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 0190f3c4-02f1-7d5e-8a3b-5c1e9f7a2d44 -o json
    """  # noqa: E501
    with api_client.connect(cli) as client:
        delivery = api_client.get(client, f"webhooks/{endpoint_id}/deliveries/{delivery_id}")
        explanation = explain(client, delivery) if cli.render.is_default_table else None
    if explanation is None:
        cli.render.one(delivery)
        return
    cli.render.heading(explanation)
    attempts = delivery.pop("attempts")
    cli.render.one(delivery)
    cli.render.text("")
    cli.render.many(attempts, ATTEMPT_COLUMNS)


@command(app, "retry", shape="delivery", changes=True)
def retry(cli: Cli, endpoint_id: EndpointId, delivery_id: DeliveryId) -> None:
    """Queue another attempt of a dead delivery.

    To queue many deliveries, use `booking webhooks recover`; to send a queued one now, `booking webhooks redeliver`.

    Examples:
        booking webhooks deliveries retry 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 0190f3c4-02f1-7d5e-8a3b-5c1e9f7a2d44
    """
    api_client.write_resource(cli, f"webhooks/{endpoint_id}/deliveries/{delivery_id}/retry", "POST")


def _watch(cli: Cli, fetch: Callable[[], list[dict[str, Any]]]) -> NoReturn:
    """Poll the deliveries until Ctrl-C, and write a line for each change."""
    stream = Stream(cli, WATCH_COLUMNS)
    states: dict[str, tuple[str, int]] = {}
    while True:
        for delivery in reversed(fetch()):
            state = delivery["status"], delivery["attempt_count"]
            if states.get(delivery["id"]) != state:
                states[delivery["id"]] = state
                stream.show(delivery)
        time.sleep(WATCH_S)

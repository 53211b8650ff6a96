"""`booking events`: list the event feed, and follow it."""

import itertools
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any

from booking_cli.client import api_client
from booking_cli.framework import event_types
from booking_cli.framework.arguments import aware_datetime, identifier, timestamp
from booking_cli.framework.arguments import event_type as parsed_type
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.options import FIRST_PAGE, Paging, argument, choice, option
from booking_cli.framework.output import merge
from booking_cli.framework.stream import Stream
from booking_cli.framework.tables import Columns

app = command_group("List and follow events.")

COLUMNS = Columns(("id", "type", "created_at", "resource_id", "sequence"), empty="No event found.")
STREAM_COLUMNS = {"created_at": 16, "type": 22, "resource_id": 36, "sequence": 8, "id": 36}
"""Columns with the width of their longest value, since later events are not known when the first line is written."""
RESOURCES = ("booking", "customer", "gift_card", "webhook")
TAIL = 10
_POLL_S = 1.0
_SKEW = timedelta(minutes=1)
"""An event is dated when its request begins and numbered when it ends. An event with a higher number may have a date
that is this much earlier."""

Types = Annotated[
    list[str] | None,
    option("--type TYPE", "Filter by type, or by a prefix such as booking.*; repeatable.", parser=parsed_type),
]

ResourceType = Annotated[str | None, choice("--resource-type", choices=RESOURCES, help="Filter by kind of resource.")]
ResourceId = Annotated[str | None, option("--resource-id ID", "Filter by resource.")]
Since = Annotated[str | None, option("--since T", "Events since: 2h (ago) or ISO 8601.", parser=timestamp)]
Until = Annotated[str | None, option("--until T", "Events before: 2h (ago) or ISO 8601.", parser=timestamp)]


@command(app, "list", shape="event")
def list_(
    cli: Cli,
    types: Types = None,
    resource_type: ResourceType = None,
    resource_id: ResourceId = None,
    since: Since = None,
    until: Until = None,
    paging: Paging = FIRST_PAGE,
) -> None:
    """List events, newest first. They are kept for 90 days.

    Examples:
        booking events list --type booking.cancelled
        booking events list --resource-id 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --order asc
        booking events list --since 24h --all -o jsonl
    """
    params = {"type": event_types.query(types), "resource_type": resource_type, "resource_id": resource_id}
    api_client.write_list(cli, paging, "events", COLUMNS, **params, created_since=since, created_until=until)


@command(app, "get", shape="event")
def get(
    cli: Cli,
    event_id: Annotated[
        str, argument("ID", "The event's id, such as the Svc-Event-Id of a delivery.", parser=identifier)
    ],
) -> None:
    """Show an event, with the resource at that time.

    Examples:
        booking events get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json
    """
    api_client.write_resource(cli, f"events/{event_id}")


@command(app, "tail", shape="event")
def tail(
    cli: Cli,
    follow: Annotated[bool, option("--follow, -f", "Wait for new events, until Ctrl-C.")] = False,
    types: Types = None,
    since: Since = None,
    lines: Annotated[int, option("--limit, -n N", "Number of past events.", min=0)] = TAIL,
) -> None:
    """Show the last events, newest last, and with --follow also new ones.

    --follow retries while the service is unreachable, and misses no event. Its -o json is one object per line.

    Examples:
        booking events tail
        booking events tail --follow --type 'booking.*'
        booking events tail --follow --since 1h -o jsonl | jq .type
    """
    params = {"type": event_types.query(types), "created_since": since}
    with api_client.connect(cli) as client:
        # At least one is requested, since --follow begins after the newest event.
        last = _last(client, params, None if since else max(lines, 1))
        newest = last[-1] if last else None
        past = last if since else last[len(last) - min(lines, len(last)) :]
        if not follow:
            cli.render.many(past, Columns(tuple(STREAM_COLUMNS), empty=COLUMNS.empty))
            return
        cli.render.note("Waiting for events; Ctrl-C to stop.")
        stream = Stream(cli, STREAM_COLUMNS)
        with _report_outages(cli):
            for event in itertools.chain(past, _follow(client, event_types.feed_filter(types), newest, since)):
                stream.show(event)


def _last(client: Any, params: dict[str, Any], count: int | None) -> list[dict[str, Any]]:
    """Return the newest events, oldest first; a count of None means all."""
    pages = api_client.iter_pages(client, "events", params, count)
    events: list[dict[str, Any]] = merge(pages)["data"]
    return events[::-1]


def _follow(
    client: Any, types: Collection[str], newest: dict[str, Any] | None, since: str | None
) -> Iterator[dict[str, Any]]:
    """Yield every event after the newest one; every event if there is none yet."""
    after, at = 0, None
    if newest is not None:
        after, at = newest["sequence"], datetime.fromisoformat(newest["created_at"]) - _SKEW
    elif since:
        # The SDK needs an offset. A timestamp without one is in the organization's time zone.
        at = aware_datetime(since, client.me().organization.timezone)
    for event in client.events.follow(types=types, since=at, poll=_POLL_S):
        if event.sequence > after:
            yield event.to_json()


@contextmanager
def _report_outages(cli: Cli) -> Iterator[None]:
    """Note the outages of the service that the SDK logs while it retries."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: cli.render.note(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("booking_sdk")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)

"""`booking events`: what happened, as it was told to webhooks, and as it happens."""

import itertools
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from booking_cli.client import api_client, pagination
from booking_cli.client.pagination import LIMIT, After, All, Limit, Order
from booking_cli.framework import context, event_types
from booking_cli.framework.arguments import event_type as parsed_type
from booking_cli.framework.arguments import identifier, instant, one_of
from booking_cli.framework.command import command, group
from booking_cli.framework.since import aware
from booking_cli.framework.stream import Stream

app = group("What happened: the event feed, and the same events as they come.")

COLUMNS = ("id", "type", "created_at", "resource_id", "sequence")
STREAM_COLUMNS = {"created_at": 16, "type": 22, "resource_id": 36, "sequence": 8, "id": 36}
"""With their widths, the longest there are: what comes later is not known when the first line is written."""
RESOURCES = ("booking", "customer", "gift_card", "webhook")
TAIL = 10
_POLL_S = 1.0
_SKEW = timedelta(minutes=1)
"""Events are dated when their request began and numbered when it ended: one that is numbered later may be dated this
much earlier."""

Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type", metavar="TYPE", parser=parsed_type, help="Only this type, or all of a kind: booking.*; repeatable."
    ),
]


@command(
    app,
    "list",
    "booking events list --type booking.cancelled",
    "booking events list --resource-id 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --order asc",
    "booking events list --since 24h --all -o jsonl",
    shape="event",
)
def list_(
    ctx: typer.Context,
    types: Types = None,
    resource_type: Annotated[
        str | None,
        typer.Option(
            "--resource-type",
            metavar="|".join(RESOURCES),
            parser=one_of(*RESOURCES),
            help="Only events about this kind of thing.",
        ),
    ] = None,
    resource_id: Annotated[
        str | None, typer.Option("--resource-id", metavar="ID", help="Only what happened to this one.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="T", parser=instant, help="2h: so long ago; or ISO 8601.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="T", parser=instant, help="Before that; not included.")
    ] = None,
    limit: Limit = LIMIT,
    everything: All = False,
    order: Order = "desc",
    starting_after: After = None,
) -> None:
    """Lists events, the newest first. They are kept for 90 days."""
    pagination.show(
        context.of(ctx),
        api_client.path("events"),
        COLUMNS,
        params={
            "type": event_types.query(types),
            "resource_type": resource_type,
            "resource_id": resource_id,
            "created_since": since,
            "created_until": until,
            "order": order,
        },
        limit=limit,
        everything=everything,
        starting_after=starting_after,
        empty="Nothing happened yet.",
    )


@command(app, "get", "booking events get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json", shape="event")
def get(
    ctx: typer.Context,
    event_id: Annotated[
        str, typer.Argument(metavar="ID", parser=identifier, help="The id; Svc-Event-Id of a delivery is one.")
    ],
) -> None:
    """Shows an event with the resource as it was then."""
    cli = context.of(ctx)
    with api_client.client(cli) as client:
        found = api_client.ask(client, "GET", api_client.path("events", event_id))
    cli.render.one(found.body)


@command(
    app,
    "tail",
    "booking events tail",
    "booking events tail --follow --type 'booking.*'",
    "booking events tail --follow --since 1h -o jsonl | jq .type",
    shape="event",
)
def tail(
    ctx: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Then wait for more, until Ctrl-C.")] = False,
    types: Types = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="T", parser=instant, help="All since then; 2h: so long ago, or ISO 8601."),
    ] = None,
    lines: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=0, help=f"How many to begin with; {TAIL} unless said.")
    ] = TAIL,
) -> None:
    """Shows the last events, the newest at the end; with --follow also those to come.

    A service that is away is waited for, and no event is missed. With --follow, -o json is an object a line.
    """
    cli = context.of(ctx)
    asked = {"type": event_types.query(types), "created_since": since}
    with api_client.client(cli) as client:
        # Also when none is to be shown, one is looked at: it tells where the feed ends now.
        last = _last(client, asked, None if since else max(lines, 1))
        begin = last[-1] if last else None
        shown = last if since else last[len(last) - min(lines, len(last)) :]
        if not follow:
            cli.render.many(shown, tuple(STREAM_COLUMNS), empty="Nothing happened yet.")
            return
        with Stream(cli, STREAM_COLUMNS, "waiting for events; Ctrl-C ends") as stream, _patient(stream):
            for event in itertools.chain(shown, _following(client, event_types.asked(types), begin, since)):
                stream.show(event)


def _last(client: Any, asked: dict[str, Any], count: int | None) -> list[dict[str, Any]]:
    """The newest events, in their order; none: all."""
    newest: list[dict[str, Any]] = pagination.merged(pagination.pages(client, api_client.path("events"), asked, count))[
        "data"
    ]
    return newest[::-1]


def _following(
    client: Any, types: Collection[str], begin: dict[str, Any] | None, since: str | None
) -> Iterator[dict[str, Any]]:
    """Every event behind that one, as it comes; when there was none yet, every one."""
    after, at = 0, None
    if begin is not None:
        after, at = begin["sequence"], datetime.fromisoformat(begin["created_at"]) - _SKEW
    elif since:
        # The SDK takes no instant without an offset; the service read it as the organization's time.
        at = aware(since, client.me().organization.timezone)
    for event in client.events.follow(types=types, since=at, poll=_POLL_S):
        if event.sequence > after:
            yield event.to_json()


@contextmanager
def _patient(stream: Stream) -> Iterator[None]:
    """Tells when the service is away, which the SDK notes in its log, and waits for."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: stream.note(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("booking_sdk")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)

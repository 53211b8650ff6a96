"""The commands of `booking webhooks` about endpoints: over HTTP, from `create` to `recover`."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.client import api_client, pagination
from booking_cli.commands.webhooks.deliveries import EndpointId
from booking_cli.framework import context, event_types, secret_files
from booking_cli.framework.arguments import event_type, instant, one_of
from booking_cli.framework.command import command, several
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.durations import length_us
from booking_cli.framework.secret_files import Keeper
from booking_cli.framework.since import aware

if TYPE_CHECKING:
    from booking_sdk import BookingClient

app = several()

COLUMNS = (
    "id",
    "status",
    "consecutive_failures",
    "url",
    "last_failure_at",
    "last_success_at",
    "event_types",
    "description",
)
CLIPPED = {"url": 32}
"""The first ones are the most important: a narrow terminal shows only those that fit."""
LOST = ("dead", "failed")
_PATH = "/api/v1/webhooks"
_SECOND_US = 1_000_000
_ID = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"

NewSecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file", metavar="FILE", help="Write the secret to this new file (0600), instead of showing it."
    ),
]
Description = Annotated[str | None, typer.Option("--description", metavar="TEXT", help="What it is for.")]


# Endpoints -------------------------------------------------------------------------------------------------------


@command(
    app,
    "create",
    "booking webhooks create --url https://hooks.example.com/booking --event booking.created",
    "booking webhooks create --url https://hooks.example.com/booking --event booking.created \\",
    "    --event booking.cancelled --description 'The calendar' --secret-file hook.secret",
    "booking webhooks create --url https://hooks.example.com/booking --event 'booking.*'",
    shape="new_endpoint",
    changes=True,
)
def create(
    ctx: typer.Context,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Where events are sent; https, and public.")],
    event: Annotated[
        list[str],
        typer.Option(
            "--event", metavar="TYPE", parser=event_type, help="A type, or all of a kind: booking.*; repeatable."
        ),
    ],
    description: Description = None,
    secret_file: NewSecretFile = None,
) -> None:
    """Creates an endpoint; its secret is shown this once.

    The secret signs every delivery. The key needs webhooks:manage, and the read scope of every type.
    """
    cli = context.of(ctx)
    wanted = {"url": url, "event_types": event_types.expanded(event), "description": description}
    secret_files.would_be_shown(cli, secret_file, "secret")
    with api_client.client(cli) as client, secret_files.kept(secret_file) as keeper:
        created = api_client.ask(client, "POST", _PATH, body=wanted).body
        _hand_over(cli, created, keeper)


@command(app, "list", "booking webhooks list", "booking webhooks list --fields id,status,url", shape="endpoint")
def list_(ctx: typer.Context) -> None:
    """Lists every endpoint, the newest first."""
    cli = context.of(ctx)
    with api_client.client(cli) as client:
        found = api_client.ask(client, "GET", _PATH).body["data"]
    cli.render.many(
        found,
        COLUMNS,
        clipped=CLIPPED,
        empty="There is no endpoint yet: booking webhooks create --url URL --event TYPE",
    )


@command(app, "show", f"booking webhooks show {_ID}", shape="endpoint")
def show(ctx: typer.Context, endpoint_id: EndpointId) -> None:
    """Shows an endpoint, without its secret."""
    cli = context.of(ctx)
    with api_client.client(cli) as client:
        cli.render.one(api_client.ask(client, "GET", api_client.path("webhooks", endpoint_id)).body)


@command(
    app,
    "update",
    f"booking webhooks update {_ID} --event booking.created --event booking.confirmed",
    f"booking webhooks update {_ID} --disable",
    shape="endpoint",
    changes=True,
)
def update(
    ctx: typer.Context,
    endpoint_id: EndpointId,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="Where events are sent from now on.")] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--event", metavar="TYPE", parser=event_type, help="Replaces all former types; booking.*; repeatable."
        ),
    ] = None,
    description: Description = None,
    disable: Annotated[
        bool, typer.Option("--disable", help="Send nothing more, until `enable`; what is queued is given up.")
    ] = False,
) -> None:
    """Changes what is given, and leaves the rest.

    An empty description removes it.
    """
    cli = context.of(ctx)
    changes: dict[str, Any] = {"url": url, "event_types": event_types.expanded(event) or None}
    changes |= {"status": "disabled"} if disable else {}
    changes = {name: value for name, value in changes.items() if value is not None}
    if description is not None:
        changes["description"] = description or None
    if not changes:
        raise CliError("There is nothing to change.", hint="booking webhooks update --help")
    with api_client.client(cli) as client:
        cli.render.one(api_client.ask(client, "PATCH", api_client.path("webhooks", endpoint_id), body=changes).body)


@command(app, "delete", f"booking webhooks delete {_ID} --yes", shape="deleted", changes=True)
def delete(ctx: typer.Context, endpoint_id: EndpointId) -> None:
    """Deletes an endpoint for good, with its log.

    Its secrets are forgotten, and what is queued is not sent.
    """
    cli = context.of(ctx)
    with api_client.client(cli) as client:
        path = api_client.path("webhooks", endpoint_id)
        endpoint = api_client.ask(client, "GET", path).body
        cli.confirm(f"Delete the endpoint {endpoint['url']}? It cannot be undone.")
        api_client.ask(client, "DELETE", path)
    cli.render.one({"id": endpoint["id"], "deleted": True})


@command(app, "enable", f"booking webhooks enable {_ID}", shape="endpoint", changes=True)
def enable(ctx: typer.Context, endpoint_id: EndpointId) -> None:
    """Sends to a disabled endpoint again.

    Whoever disabled it: failures are counted anew. What it missed is not sent by itself: `recover` does that.
    """
    cli = context.of(ctx)
    with api_client.client(cli) as client:
        path, change = api_client.path("webhooks", endpoint_id), {"status": "enabled"}
        cli.render.one(api_client.ask(client, "PATCH", path, body=change).body)
    cli.render.note(f"What it missed: booking webhooks recover {endpoint_id} --since 2h --dry-run")


@command(
    app,
    "rotate-secret",
    f"booking webhooks rotate-secret {_ID}",
    f"booking webhooks rotate-secret {_ID} --overlap 0 --secret-file new.secret",
    shape="new_endpoint",
    changes=True,
)
def rotate_secret(
    ctx: typer.Context,
    endpoint_id: EndpointId,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="24h", help="How long the old one signs too; 0 after a leak.")
    ] = "24h",
    secret_file: NewSecretFile = None,
) -> None:
    """Makes a new secret, and shows it this once.

    Until the overlap ends, deliveries are signed with both.
    """
    cli = context.of(ctx)
    overlap_seconds = length_us(overlap) // _SECOND_US
    secret_files.would_be_shown(cli, secret_file, "secret")
    with api_client.client(cli) as client, secret_files.kept(secret_file) as keeper:
        path, wanted = api_client.path("webhooks", endpoint_id, "rotate-secret"), {"overlap_seconds": overlap_seconds}
        rotated = api_client.ask(client, "POST", path, body=wanted).body
        _hand_over(cli, rotated, keeper)


@command(app, "test", f"booking webhooks test {_ID}", shape="delivery", changes=True)
def test(ctx: typer.Context, endpoint_id: EndpointId) -> None:
    """Queues a ping for an endpoint, whatever it listens to."""
    cli = context.of(ctx)
    with api_client.client(cli) as client:
        queued = api_client.ask(client, "POST", api_client.path("webhooks", endpoint_id, "test")).body
        cli.render.one(queued)
    cli.render.note(f"What came of it: booking webhooks deliveries show {endpoint_id} {queued['id']}")


def _hand_over(cli: Cli, shown: dict[str, Any], keeper: Keeper) -> None:
    keeper.hand_over(
        cli,
        shown,
        "secret",
        lost=f"The endpoint {shown['id']} has a new secret, which could not be handed over",
        hint=f"booking webhooks rotate-secret {shown['id']}",
        note="Keep the secret now: it is not shown again.",
    )


# What went wrong -------------------------------------------------------------------------------------------------


@command(
    app,
    "recover",
    f"booking webhooks recover {_ID} --since 2h --dry-run",
    f"booking webhooks recover {_ID} --since 2026-11-20T09:00:00 --until 2026-11-20T17:00:00 --status dead",
    shape="recovered",
    changes=True,
)
def recover(
    ctx: typer.Context,
    endpoint_id: EndpointId,
    since: Annotated[
        str, typer.Option("--since", metavar="2h", parser=instant, help="Deliveries since so long ago, or a timestamp.")
    ],
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="1h", parser=instant, help="And before so long ago, or a timestamp."),
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status", metavar="|".join(LOST), parser=one_of(*LOST), help="Only those; repeatable. Else both."
        ),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option("--event", metavar="TYPE", parser=event_type, help="Only this type, or booking.*; repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell how many it would be, and change nothing.")] = False,
) -> None:
    """Queues again what an endpoint did not get.

    Tells how many deliveries that is. Tests are left alone. The endpoint must be enabled. Each delivery has six
    attempts again.
    """
    cli = context.of(ctx)
    statuses, types = sorted(set(status or LOST)), event_types.expanded(event)
    with api_client.client(cli) as client:
        if dry_run:
            cli.render.one(_would_recover(client, endpoint_id, since, until, statuses, types))
            return
        wanted = {"since": since, "until": until, "statuses": statuses, "event_types": types or None}
        recovered = api_client.ask(
            client, "POST", api_client.path("webhooks", endpoint_id, "recover"), body=wanted
        ).body
        cli.render.one(recovered)
    if recovered["matched"]:
        cli.render.note(f"Watch them: booking webhooks deliveries list {endpoint_id} --watch")


def _would_recover(
    client: "BookingClient", endpoint_id: str, since: str, until: str | None, statuses: list[str], types: list[str]
) -> dict[str, Any]:
    """Counts in the log what `recover` would queue, each status by itself, the newest first."""
    timezone = client.me().organization.timezone
    begin, end = aware(since, timezone), None if until is None else aware(until, timezone)
    path, counts = api_client.path("webhooks", endpoint_id, "deliveries"), dict.fromkeys(statuses, 0)
    for status in statuses:
        for delivery in _log(client, path, status):
            created_at = datetime.fromisoformat(delivery["created_at"])
            if created_at < begin:
                break
            is_wanted = delivery["trigger"] != "test" and (not types or delivery["event_type"] in types)
            counts[status] += is_wanted and (end is None or created_at < end)
    return {"matched": sum(counts.values()), **counts, "dry_run": True}


def _log(client: "BookingClient", path: str, status: str) -> Iterator[dict[str, Any]]:
    for page in pagination.pages(client, path, {"status": status}, None):
        yield from page["data"]

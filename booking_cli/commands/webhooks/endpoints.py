"""`booking webhooks create` to `recover`: manage endpoints over HTTP."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.client import api_client
from booking_cli.commands.webhooks.deliveries import EndpointId
from booking_cli.framework import event_types
from booking_cli.framework.arguments import duration_s, event_type, one_of, timestamp
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.formatting import Item
from booking_cli.framework.options import DryRun, argument, option
from booking_cli.framework.secret_files import SecretOutput, require_secret_in_output, secret_output
from booking_cli.framework.tables import Columns
from booking_core.models import limits

if TYPE_CHECKING:
    from booking_sdk import BookingClient


app = command_app()

LOST = ("dead", "failed")

NewSecretFile = Annotated[Path | None, option("--secret-file FILE", "Write the secret to this new file (mode 0600).")]
HeadersFile = Annotated[
    Path | None,
    option(
        "--headers-file FILE",
        "Headers of deliveries, one a line: Name: value. - reads stdin.",
        exists=True,
        dir_okay=False,
        allow_dash=True,
    ),
]
MaxPerSecond = Annotated[
    int | None,
    option(
        "--max-per-second N",
        f"The most requests in a second, up to {limits.WEBHOOK_PER_SECOND_MAX}; 0: no limit.",
        min=0,
        max=limits.WEBHOOK_PER_SECOND_MAX,
    ),
]
Description = Annotated[str | None, option("--description TEXT", "A description.")]


def _headers(path: Path) -> dict[str, str]:
    """Return the headers of a file. They are not options, since other users of the machine see those."""
    text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()]
    if any(":" not in line for line in lines):
        raise CliError("A line of the headers has no colon.", hint="Authorization: Bearer …")
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


@command(app, "create", shape="new_endpoint", changes=True)
def create(
    cli: Cli,
    url: Annotated[str, option("--url URL", "The public https URL that events are sent to.")],
    event: Annotated[
        list[str], option("--event TYPE", "An event type, or a prefix: booking.*; repeatable.", parser=event_type)
    ],
    description: Description = None,
    headers_file: HeadersFile = None,
    max_per_second: MaxPerSecond = None,
    secret_file: NewSecretFile = None,
) -> None:
    """Create an endpoint. Its secret is shown only once.

    Deliveries are signed with the secret. The API key needs webhooks:manage and the read scope of every event type.

    Examples:
        booking webhooks create --url https://hooks.example.com/booking --event booking.created
        booking webhooks create --url https://hooks.example.com/booking --event booking.created \\
            --event booking.cancelled --description 'The calendar' --secret-file hook.secret
        booking webhooks create --url https://hooks.example.com/booking --event 'booking.*'
    """
    body: dict[str, Any] = {"url": url, "event_types": event_types.expanded(event), "description": description}
    body |= {"headers": _headers(headers_file)} if headers_file else {}
    body |= {"max_per_second": max_per_second} if max_per_second else {}
    require_secret_in_output(cli, secret_file, "secret")
    with api_client.connect(cli) as client, secret_output(secret_file) as output:
        created = api_client.request(client, "POST", "webhooks", body=body).body
        _write_with_secret(cli, created, output)


@command(app, "list", shape="endpoint")
def list_(cli: Cli) -> None:
    """List endpoints, newest first.

    In the table, `failing` is an enabled endpoint whose last six attempts failed, with the hours without a success.
    After 72 hours it is disabled, or when the operator has set it.

    Examples:
        booking webhooks list
        booking webhooks list --fields id,status,url
    """
    with api_client.connect(cli) as client:
        endpoints = api_client.get(client, "webhooks")["data"]
    cli.render.many(endpoints, COLUMNS)


def _health(endpoint: Item) -> str:
    """Return the status of an endpoint; of a failing one with the hours without a success."""
    since = endpoint.get("failing_since")
    if since is None:
        return str(endpoint["status"])
    return f"failing for {(datetime.now(UTC) - datetime.fromisoformat(since)) // timedelta(hours=1)} h"


COLUMNS = Columns(
    "id status consecutive_failures url last_failure_at last_success_at event_types description".split(),
    empty="There is no endpoint yet: booking webhooks create --url URL --event TYPE",
    cells={"status": _health},
    truncated={"url": 32},
)


@command(app, "show", shape="endpoint")
def show(cli: Cli, endpoint_id: EndpointId) -> None:
    """Show an endpoint, without its secret.

    Examples:
        booking webhooks show 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    api_client.write_resource(cli, f"webhooks/{endpoint_id}")


@command(app, "update", shape="endpoint", changes=True)
def update(
    cli: Cli,
    endpoint_id: EndpointId,
    url: Annotated[str | None, option("--url URL", "The new URL.")] = None,
    event: Annotated[
        list[str] | None, option("--event TYPE", "Replace the event types; booking.*; repeatable.", parser=event_type)
    ] = None,
    description: Description = None,
    headers_file: HeadersFile = None,
    max_per_second: MaxPerSecond = None,
    disable: Annotated[bool, option("--disable", "Disable the endpoint; queued deliveries fail.")] = False,
) -> None:
    """Update an endpoint.

    Options that are left out stay unchanged. An empty description removes it, and an empty file all headers.

    Examples:
        booking webhooks update 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --event booking.created --event booking.confirmed
        booking webhooks update 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --disable
    """
    changes: dict[str, Any] = {"url": url, "event_types": event_types.expanded(event) or None}
    changes |= {"status": "disabled"} if disable else {}
    changes |= {"headers": _headers(headers_file)} if headers_file else {}
    changes = {name: value for name, value in changes.items() if value is not None}
    if description is not None:
        changes["description"] = description or None
    if max_per_second is not None:
        changes["max_per_second"] = max_per_second or None
    if not changes:
        raise CliError("There is nothing to change.", hint="booking webhooks update --help")
    api_client.write_resource(cli, f"webhooks/{endpoint_id}", "PATCH", body=changes)


@command(app, "delete", shape="deleted", changes=True)
def delete(cli: Cli, endpoint_id: EndpointId) -> None:
    """Delete an endpoint and its delivery log permanently.

    Queued deliveries are not sent.

    Examples:
        booking webhooks delete 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --yes
    """
    with api_client.connect(cli) as client:
        path = f"webhooks/{endpoint_id}"
        endpoint = api_client.request(client, "GET", path).body
        cli.confirm(f"Delete the endpoint {endpoint['url']}? This cannot be undone.")
        api_client.request(client, "DELETE", path)
    cli.render.one({"id": endpoint["id"], "deleted": True})


@command(app, "enable", shape="endpoint", changes=True)
def enable(cli: Cli, endpoint_id: EndpointId) -> None:
    """Enable a disabled endpoint.

    Its failures are counted from zero. Missed deliveries are not sent automatically; use `recover`.

    Examples:
        booking webhooks enable 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    api_client.write_resource(cli, f"webhooks/{endpoint_id}", "PATCH", body={"status": "enabled"})
    cli.render.note(f"To send missed deliveries: booking webhooks recover {endpoint_id} --since 2h --dry-run")


@command(app, "rotate-secret", shape="new_endpoint", changes=True)
def rotate_secret(
    cli: Cli,
    endpoint_id: EndpointId,
    overlap: Annotated[str, option("--overlap 24h", "How long the old secret remains valid; 0 after a leak.")] = "24h",
    secret_file: NewSecretFile = None,
) -> None:
    """Create a new secret for an endpoint. It is shown only once.

    Deliveries are signed with both secrets until the overlap ends. At most two former secrets sign at a time.

    Examples:
        booking webhooks rotate-secret 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
        booking webhooks rotate-secret 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --overlap 0 --secret-file new.secret
    """
    overlap_seconds = duration_s(overlap)
    require_secret_in_output(cli, secret_file, "secret")
    with api_client.connect(cli) as client, secret_output(secret_file) as output:
        path, body = f"webhooks/{endpoint_id}/rotate-secret", {"overlap_seconds": overlap_seconds}
        rotated = api_client.request(client, "POST", path, body=body).body
        _write_with_secret(cli, rotated, output)


@command(app, "test", shape="delivery", changes=True)
def test(cli: Cli, endpoint_id: EndpointId) -> None:
    """Send a ping event to an endpoint.

    Examples:
        booking webhooks test 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    queued = api_client.write_resource(cli, f"webhooks/{endpoint_id}/test", "POST")
    cli.render.note(f"To see the result: booking webhooks deliveries show {endpoint_id} {queued['id']}")


def _write_with_secret(cli: Cli, endpoint: dict[str, Any], output: SecretOutput) -> None:
    output.write_with_secret(
        cli,
        endpoint,
        "secret",
        lost=f"The endpoint {endpoint['id']} has a new secret, but it could not be written",
        hint=f"booking webhooks rotate-secret {endpoint['id']}",
        note="Save the secret now: it is not shown again.",
    )


@command(app, "recover", shape="recovered", changes=True)
def recover(
    cli: Cli,
    endpoint_id: EndpointId,
    since: Annotated[str, option("--since 2h", "Deliveries since: 2h (ago) or ISO 8601.", parser=timestamp)],
    until: Annotated[
        str | None, option("--until 1h", "Deliveries before: 1h (ago) or ISO 8601.", parser=timestamp)
    ] = None,
    status: Annotated[
        list[str] | None,
        option(
            "--status", "Filter by status; repeatable; default: both.", parser=one_of(*LOST), metavar="|".join(LOST)
        ),
    ] = None,
    event: Annotated[
        list[str] | None, option("--event TYPE", "Filter by event type, or booking.*; repeatable.", parser=event_type)
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Queue failed and dead deliveries of an endpoint again.

    Each delivery gets six new attempts. Tests are not sent again. The endpoint must be enabled.

    Examples:
        booking webhooks recover 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --since 2h --dry-run
        booking webhooks recover 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --since 2026-11-20T09:00:00 --until 2026-11-20T17:00:00 --status dead
    """  # noqa: E501
    statuses, types = sorted(set(status or LOST)), event_types.expanded(event)
    path, body = f"webhooks/{endpoint_id}/recover", {"since": since, "until": until, "event_types": types or None}
    if dry_run:
        with api_client.connect(cli) as client:
            cli.render.one(_count_lost(client, path, body, statuses))
        return
    recovered = api_client.write_resource(cli, path, "POST", body=body | {"statuses": statuses})
    if recovered["matched"]:
        recovery = f"--recovery-id {recovered['id']}"
        cli.render.note(f"To watch them: booking webhooks deliveries list {endpoint_id} {recovery} --watch")


def _count_lost(client: "BookingClient", path: str, body: dict[str, Any], statuses: list[str]) -> dict[str, Any]:
    """Return the number of deliveries of each status that `recover` would queue."""
    dry = body | {"dry_run": True}
    answers = {
        status: api_client.request(client, "POST", path, body=dry | {"statuses": [status]}).body for status in statuses
    }
    counts = {status: answer["matched"] for status, answer in answers.items()}
    more = {"has_more": True} if any(answer.get("has_more") for answer in answers.values()) else {}
    return {"matched": sum(counts.values()), **counts, **more, "dry_run": True}


@command(app, "redeliver", shape="delivery", changes=True)
def redeliver(
    cli: Cli,
    endpoint_id: EndpointId,
    event_id: Annotated[str, argument("EVENT_ID", "ID of the event.", show_default=False)],
) -> None:
    """Queue any event for an endpoint again.

    Also an event that was delivered before, that waits for its next attempt, or that the endpoint does not subscribe
    to. `booking events list` shows the events of 90 days. To queue what failed, use `booking webhooks recover`.

    Examples:
        booking webhooks redeliver 9c3b1d70-52f4-4a58-8d4c-64f0f3a7e1b2 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    api_client.write_resource(cli, f"webhooks/{endpoint_id}/redeliver", "POST", body={"event_id": event_id})

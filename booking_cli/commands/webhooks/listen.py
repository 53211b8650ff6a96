"""`booking webhooks listen`: forward events to an application on this machine.

The event feed is read over HTTP, and each event is posted like a delivery of the service, with a new signature. The
position in the feed is saved after each event: a new listener continues where the last one stopped. Events keep their
order; while the application or the service is down, they wait.
"""

import contextlib
import hashlib
import json
import time
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from booking_cli.client import api_client, profiles, webhook_secrets
from booking_cli.client.event_feed import Feed, Position, newest
from booking_cli.client.webhook_secrets import SecretFile, Secrets
from booking_cli.commands.webhooks import listen_view, receiver
from booking_cli.commands.webhooks.listen_view import Records
from booking_cli.commands.webhooks.receiver import Forwarder, ReceiverTarget
from booking_cli.framework import event_types
from booking_cli.framework.arguments import aware_datetime, event_type, timestamp
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError, bad_file
from booking_cli.framework.formatting import counted
from booking_cli.framework.locks import lock_file
from booking_cli.framework.options import option
from booking_core.base import private_files

if TYPE_CHECKING:
    from booking_sdk import BookingClient


app = command_app()

ATTEMPTS = 3
POLL_S = 1.0
REFUSED_SHOWN_MAX = 20

ForwardTo = Annotated[str | None, option("--forward-to URL", "The receiver; 8000 means http://localhost:8000/.")]
EventTypes = Annotated[
    list[str] | None,
    option(
        "--event TYPE", "Forward this event type, or booking.*; repeatable; default: all but ping.", parser=event_type
    ),
]
Since = Annotated[str | None, option("--since 10m", "Begin at: 10m (ago) or ISO 8601.", parser=timestamp)]
NoResume = Annotated[bool, option("--no-resume", "Do not continue where the last run stopped.")]
Attempts = Annotated[int, option("--attempts N", "Attempts for an event that the receiver refuses.", min=1)]
ShowBody = Annotated[bool, option("--show-body", "Show the receiver's responses.")]
PrintSecret = Annotated[bool, option("--print-secret", "Print the signing secret and exit.")]


class Checkpoint:
    """The saved position of a listener. The file is replaced atomically."""

    def __init__(self, folder: Path, *, profile: str, organization_id: str, target: str) -> None:
        self._owner = {"profile": profile, "organization_id": organization_id, "target": target}
        name = hashlib.sha256(json.dumps(self._owner, sort_keys=True).encode()).hexdigest()[:20]
        self.path = folder / f"{name}.json"

    def lock(self) -> AbstractContextManager[None]:
        """Hold a lock against a second listener; the lock ends with the process.

        Two listeners would overwrite each other's position.

        Raises:
            CliError: another listener has the lock.
        """
        refusal = CliError(
            f"Another listener forwards to {self._owner['target']} already.",
            code="already_listening",
            hint="stop it, or forward to another path",
        )
        with contextlib.suppress(OSError):  # a missing folder is reported when the file is opened
            private_files.make_folder(self.path.parent)
        return lock_file(self.path.with_suffix(".lock"), refusal)

    def load(self) -> Position | None:
        """Return the saved position, or None.

        Raises:
            CliError: the file cannot be read.
        """
        try:
            saved = json.loads(self.path.read_text(encoding="utf-8"))["position"]
            return Position(**(saved | {"types": tuple(saved["types"])}))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            hint = "begin with new events: --no-resume"
            raise bad_file(self.path, "holds no valid position", hint=hint) from error

    def save(self, position: Position) -> None:
        """Save the position.

        Raises:
            CliError: it cannot be written. A restart would forward all events again.
        """
        profiles.write_private(self.path, json.dumps(self._owner | {"position": asdict(position)}) + "\n")


@command(app, "listen")
def listen(
    cli: Cli,
    forward_to: ForwardTo = None,
    event: EventTypes = None,
    since: Since = None,
    no_resume: NoResume = False,
    attempts: Attempts = ATTEMPTS,
    secret_file: SecretFile = None,
    header: receiver.ExtraHeaders = None,
    show_body: ShowBody = False,
    print_secret: PrintSecret = False,
) -> None:
    """Forward events to an application on this machine.

    Every event of the organization is sent as the delivery that an endpoint would get, until Ctrl-C. The command
    continues where the last one for this receiver stopped; the first one begins with new events. While the receiver is
    down (no connection, 502, 503, 504) all events wait. An event that the receiver refuses is retried and then skipped;
    skipped events are listed at the end.

    The API key must be able to read the events. No endpoint is needed.

    Examples:
        booking webhooks listen --forward-to http://localhost:8000/webhooks
        booking webhooks listen --forward-to 8000 --event booking.created --event booking.cancelled
        booking webhooks listen --forward-to localhost:8000/webhooks --since 10m
        booking webhooks listen --forward-to 8000 --show-body --header 'X-Tenant: fjord'
        booking webhooks listen --print-secret
        booking webhooks listen --forward-to 8000 -o jsonl | jq .status
    """
    secrets = webhook_secrets.load(cli, secret_file)
    if print_secret:
        webhook_secrets.write(cli, secrets)
        return
    if forward_to is None:
        raise CliError("--forward-to URL is needed.", hint="booking webhooks listen --help")
    target, types = receiver.parse_target(forward_to), event_types.feed_filter(event)
    forwarder = Forwarder(target, secrets, attempts, headers=receiver.extra_headers(header or []))
    with api_client.connect(cli) as client:
        organization = client.me().organization
        checkpoint = Checkpoint(
            profiles.folder() / "listen",
            profile=profiles.profile_name(cli),
            organization_id=organization.id,
            target=target.url,
        )
        since_at = None if since is None else aware_datetime(since, organization.timezone)
        with checkpoint.lock():
            saved = None if no_resume else checkpoint.load()
            position = _first_position(client, saved, since_at, types)
            checkpoint.save(position)
            _write_introduction(cli, organization.slug, target, secrets, position, is_resumed=saved is not None)
            _run(cli, client, position, forwarder, checkpoint, show_body=show_body)


def _first_position(
    client: "BookingClient", saved: Position | None, since: datetime | None, types: tuple[str, ...]
) -> Position:
    """Return the earlier of the saved position and --since; without either the end of the feed."""
    if since is None:
        return newest(client, types) if saved is None else saved.for_types(types)
    if saved and saved.created_at and datetime.fromisoformat(saved.created_at) < since:
        return saved.for_types(types)
    return Position(since=since.isoformat(), types=types)


def _run(
    cli: Cli,
    client: "BookingClient",
    position: Position,
    forwarder: Forwarder,
    checkpoint: Checkpoint,
    *,
    show_body: bool,
) -> None:
    view = listen_view.create_view(cli, show_body=show_body)
    feed = Feed(client, position, poll_s=POLL_S, sleep=time.sleep, on_outage=view.outage)
    try:
        _forward(feed, forwarder, checkpoint, view)
    finally:
        _write_summary(cli, forwarder)


def _forward(feed: Feed, forwarder: Forwarder, checkpoint: Checkpoint, view: Records) -> None:
    for event in feed:
        if event.type == "ping" and not feed.position.types:
            continue  # a ping tests one endpoint, and cannot be subscribed to
        for attempt in forwarder.forward(event):
            if attempt.is_last:
                # Saved before it is shown, since stdout may be closed while the event was received.
                checkpoint.save(feed.position)
            view.attempt(attempt)


def _write_introduction(
    cli: Cli, slug: str, target: ReceiverTarget, secrets: Secrets, position: Position, *, is_resumed: bool
) -> None:
    render = cli.render
    render.note(f"Forwarding events of {slug} to {target.url}")
    render.note(f"Signed with the secret in {secrets.origin}")
    if is_resumed and position.sequence:
        render.note(f"Continuing after event {position.sequence}, where the last run stopped.")
    elif position.sequence or position.since is None:
        render.note("Beginning with new events.")
    else:
        render.note(f"Beginning at {position.since}.")
    render.note("Press Ctrl-C to stop.")


def _write_summary(cli: Cli, forwarder: Forwarder) -> None:
    cli.render.note(f"{counted(forwarder.accepted, 'event')} forwarded.")
    if forwarder.given_up:
        cli.render.warn(f"Refused by the receiver: {len(forwarder.given_up)}. Use --since to send them again.")
        for event_id in forwarder.given_up[:REFUSED_SHOWN_MAX]:
            cli.render.warn(f"  booking events get {event_id}")

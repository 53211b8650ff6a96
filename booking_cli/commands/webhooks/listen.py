"""`booking webhooks listen`: the events of the organization, forwarded to an application on this machine.

No tunnel and no account: the feed is read, each event becomes the delivery that the service would send, and is posted
with a signature of its own. What was forwarded is noted after each event, so that a listener that died goes on where
it was; an application that is down is waited for, and so is the service. Nothing is missed, and the order is kept.
"""

import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from booking_cli.client import api_client, profiles, webhook_secrets
from booking_cli.client.event_feed import Feed, FeedEvent, Position, newest
from booking_cli.client.webhook_secrets import SecretFile, Secrets
from booking_cli.commands.webhooks import listen_view, receiver
from booking_cli.commands.webhooks.checkpoints import Checkpoint
from booking_cli.commands.webhooks.listen_view import View
from booking_cli.commands.webhooks.receiver import Answer, Target
from booking_cli.framework import context, event_types
from booking_cli.framework.arguments import event_type, instant
from booking_cli.framework.command import command, single
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.since import aware

if TYPE_CHECKING:
    from booking_sdk import BookingClient

app = single()

PAUSE_S = 1.0
PAUSE_MAX_S = 10.0
"""A developer who has just restarted the application is not kept waiting for minutes."""
ATTEMPTS = 3
POLL_S = 1.0
GIVEN_UP_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Forwarded:
    """One attempt and what came of it."""

    at: datetime
    event: FeedEvent
    delivery_id: str
    attempt: int
    answer: Answer
    outcome: str
    """`accepted`, `waiting` for a receiver that is down, `retrying` one that refused, or `given_up`."""
    pause_s: float = 0.0
    """Until the next attempt."""

    @property
    def is_last(self) -> bool:
        return self.outcome in ("accepted", "given_up")


class Forwarder:
    """Sends each event until it is received, or refused often enough."""

    def __init__(
        self,
        where: Target,
        secrets: Secrets,
        attempts: int,
        sleep: Callable[[float], None] = time.sleep,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._where = where
        self._secrets = secrets
        self._attempts = attempts
        self._headers = dict(headers or {})
        self._sleep = sleep
        self.accepted = 0
        self.given_up: list[str] = []
        """The events that the receiver would not take, by id."""

    def forward(self, event: FeedEvent) -> Iterator[Forwarded]:
        """Every attempt as it is made; the last one settles the event. A receiver that is down is waited for, however
        long; one that answers and refuses has as many attempts as it was given."""
        refusals = 0
        for number in itertools.count(1):
            at, delivery_id = datetime.now().astimezone(), str(uuid.uuid4())
            answer = self._post(event, delivery_id)
            refusals += not (answer.is_accepted or answer.is_away)
            outcome = self._outcome(answer, refusals)
            settled = outcome in ("accepted", "given_up")
            pause_s = 0.0 if settled else min(PAUSE_MAX_S, PAUSE_S * 2.0 ** min(number - 1, 10))
            if settled:
                self._count(event, outcome)
            yield Forwarded(at, event, delivery_id, number, answer, outcome, pause_s)
            if settled:
                return
            self._sleep(pause_s)

    def _post(self, event: FeedEvent, delivery_id: str) -> Answer:
        from webhook_verify.testing import signed_request

        # Signed afresh for each attempt: a receiver turns away a signature that is minutes old.
        headers, body = signed_request(event.body, self._secrets.values, delivery_id=delivery_id)
        return receiver.post(self._where, {**headers, **self._headers}, body)

    def _outcome(self, answer: Answer, refusals: int) -> str:
        if answer.is_accepted:
            return "accepted"
        if answer.is_away:
            return "waiting"
        return "given_up" if refusals >= self._attempts else "retrying"

    def _count(self, event: FeedEvent, outcome: str) -> None:
        if outcome == "accepted":
            self.accepted += 1
        else:
            self.given_up.append(event.id)


# The command -----------------------------------------------------------------------------------------------------


@command(
    app,
    "listen",
    "booking webhooks listen --forward-to http://localhost:8000/webhooks",
    "booking webhooks listen --forward-to 8000 --event booking.created --event booking.cancelled",
    "booking webhooks listen --forward-to localhost:8000/webhooks --since 10m",
    "booking webhooks listen --forward-to 8000 --show-body --header 'X-Tenant: fjord'",
    "booking webhooks listen --print-secret",
    "booking webhooks listen --forward-to 8000 -o jsonl | jq .status",
)
def listen(
    ctx: typer.Context,
    forward_to: Annotated[
        str | None,
        typer.Option("--forward-to", metavar="URL", help="The receiver; 8000 is short for http://localhost:8000/."),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--event",
            metavar="TYPE",
            parser=event_type,
            help="Only this type, or booking.*; repeatable. Default: all but ping.",
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="10m", parser=instant, help="Begin so long ago, or at a timestamp.")
    ] = None,
    no_resume: Annotated[bool, typer.Option("--no-resume", help="Do not go on where the last one stopped.")] = False,
    attempts: Annotated[
        int, typer.Option("--attempts", metavar="N", min=1, help="How often a receiver may refuse one event.")
    ] = ATTEMPTS,
    secret_file: SecretFile = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME:VALUE", help="Send this header too; repeatable."),
    ] = None,
    show_body: Annotated[bool, typer.Option("--show-body", help="Show what the receiver answers each time.")] = False,
    print_secret: Annotated[
        bool, typer.Option("--print-secret", help="Print the secret that deliveries are signed with, and exit.")
    ] = False,
) -> None:
    """Forward events to an application on this machine.

    Every event of the organization becomes the delivery that an endpoint would get, until Ctrl-C. It goes on where
    the last one for this receiver stopped; the first begins with what happens from now on. While the receiver is
    down (no connection, 502, 503, 504) everything waits for it. An event that it refuses is tried again and then
    left behind, and the end names it.

    Needs a key that may read the events, and no endpoint.
    """
    cli = context.of(ctx)
    secrets = webhook_secrets.chosen(cli, secret_file)
    if print_secret:
        webhook_secrets.show(cli, secrets)
        return
    if forward_to is None:
        raise CliError("--forward-to URL is needed.", hint="booking webhooks listen --help")
    where, types = receiver.target(forward_to), event_types.asked(event)
    headers = receiver.headers(header or [])
    with api_client.client(cli) as client:
        organization = client.me().organization
        checkpoint = Checkpoint(
            profiles.folder() / "listen",
            profile=profiles.profile_name(cli),
            organization_id=organization.id,
            target=where.url,
        )
        since_at = None if since is None else aware(since, organization.timezone)
        with checkpoint.held():
            kept = None if no_resume else checkpoint.load()
            position = _beginning(client, kept, since_at, types)
            checkpoint.save(position)
            _introduce(cli, organization.slug, where, secrets, position, resumed=kept is not None)
            _run(
                cli,
                client,
                position,
                Forwarder(where, secrets, attempts, headers=headers),
                checkpoint,
                show_body=show_body,
            )


def _beginning(
    client: "BookingClient", kept: Position | None, since: datetime | None, types: tuple[str, ...]
) -> Position:
    """The earlier of the place that was kept and the time asked for; without either, now."""
    if since is None:
        return newest(client, types) if kept is None else kept.for_types(types)
    if kept and kept.created_at and datetime.fromisoformat(kept.created_at) < since:
        return kept.for_types(types)
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
    view = listen_view.made_for(cli, show_body=show_body)
    try:
        view.idle(0, 0)
        _forward(
            Feed(client, position, poll_s=POLL_S, sleep=time.sleep, trouble=view.trouble), forwarder, checkpoint, view
        )
    finally:
        view.end()
        _sum_up(cli, forwarder)


def _forward(feed: Feed, forwarder: Forwarder, checkpoint: Checkpoint, view: View) -> None:
    for event in feed:
        if event.type == "ping" and not feed.position.types:
            continue  # it tests another endpoint, and nobody can subscribe to it
        for attempt in forwarder.forward(event):
            if attempt.is_last:
                # Before it is told: whoever reads may be gone, and what was received is received.
                checkpoint.save(feed.position)
            view.forwarded(attempt)
        view.idle(forwarder.accepted, len(forwarder.given_up))


def _introduce(cli: Cli, slug: str, where: Target, secrets: Secrets, position: Position, *, resumed: bool) -> None:
    render = cli.render
    render.note(f"Events of {slug} are forwarded to {where.url}")
    render.note(f"Signed with the secret in {secrets.origin}")
    if resumed and position.sequence:
        render.note(f"Going on behind event {position.sequence}, where the last one stopped.")
    elif position.sequence or position.since is None:
        render.note("Beginning with what happens from now on.")
    else:
        render.note(f"Beginning with {position.since}.")
    render.note("Ctrl-C ends it.")


def _sum_up(cli: Cli, forwarder: Forwarder) -> None:
    done = forwarder.accepted
    cli.render.note(f"{done} event{'' if done == 1 else 's'} forwarded.")
    if forwarder.given_up:
        cli.render.warn(f"Not accepted: {len(forwarder.given_up)}, which are not sent again unless with --since.")
        for event_id in forwarder.given_up[:GIVEN_UP_SHOWN]:
            cli.render.warn(f"  booking events get {event_id}")

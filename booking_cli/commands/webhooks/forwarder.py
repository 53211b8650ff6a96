"""Forward an event to a receiver until it is accepted or refused often enough."""

import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from booking_cli.client.event_feed import FeedEvent
from booking_cli.client.webhook_secrets import Secrets
from booking_cli.commands.webhooks import receiver
from booking_cli.commands.webhooks.receiver import Result, Target

PAUSE_S = 1.0
PAUSE_MAX_S = 10.0
"""The longest pause, short enough for a developer who has just restarted the application."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt and its result."""

    at: datetime
    event: FeedEvent
    delivery_id: str
    number: int
    result: Result
    outcome: str
    """`accepted`, `waiting` (the receiver is down), `retrying` (it refused the event) or `given_up`."""
    pause_s: float = 0.0
    """The pause before the next attempt."""

    @property
    def is_last(self) -> bool:
        return self.outcome in ("accepted", "given_up")


class Forwarder:
    """Sends each event until it is accepted, or refused often enough."""

    def __init__(
        self,
        target: Target,
        secrets: Secrets,
        attempts: int,
        sleep: Callable[[float], None] = time.sleep,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._target = target
        self._secrets = secrets
        self._attempts = attempts
        self._headers = dict(headers or {})
        self._sleep = sleep
        self.accepted = 0
        self.given_up: list[str] = []
        """The ids of the events that the receiver refused."""

    def forward(self, event: FeedEvent) -> Iterator[Attempt]:
        """Send the event, and yield every attempt. The last one accepts it or gives it up.

        A receiver that is down gets any number of attempts, one that refuses the event a limited number.
        """
        refusals = 0
        for number in itertools.count(1):
            at, delivery_id = datetime.now().astimezone(), str(uuid.uuid4())
            result = self._post(event, delivery_id)
            refusals += not (result.is_accepted or result.is_unreachable)
            outcome = self._outcome(result, refusals)
            is_last = outcome in ("accepted", "given_up")
            pause_s = 0.0 if is_last else min(PAUSE_MAX_S, PAUSE_S * 2.0 ** min(number - 1, 10))
            if is_last:
                self._count(event, outcome)
            yield Attempt(at, event, delivery_id, number, result, outcome, pause_s)
            if is_last:
                return
            self._sleep(pause_s)

    def _post(self, event: FeedEvent, delivery_id: str) -> Result:
        from webhook_verify.testing import signed_request

        # Each attempt gets a new signature, since a receiver refuses one that is minutes old.
        headers, body = signed_request(event.body, self._secrets.values, delivery_id=delivery_id)
        return receiver.post(self._target, {**headers, **self._headers}, body)

    def _outcome(self, result: Result, refusals: int) -> str:
        if result.is_accepted:
            return "accepted"
        if result.is_unreachable:
            return "waiting"
        return "given_up" if refusals >= self._attempts else "retrying"

    def _count(self, event: FeedEvent, outcome: str) -> None:
        if outcome == "accepted":
            self.accepted += 1
        else:
            self.given_up.append(event.id)

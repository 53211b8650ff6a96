"""Read the event feed as deliveries: every event from a position on, in order, with the body of its deliveries.

The SDK's `events.follow` returns models, but a receiver verifies bytes. An item of the feed is the stored body with two
fields added, so the body is the item without them, as compact JSON.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode

if TYPE_CHECKING:
    from booking_sdk import BookingClient

PATH = "/api/v1/events"
_ONLY_IN_THE_FEED = ("resource_type", "resource_id")
_PAGE = "100"
_SKEW = timedelta(minutes=1)
"""An event is dated when its request begins and numbered when its transaction ends, so dates do not quite follow the
sequence. No transaction of the service takes this long."""
PAUSE_S = 0.5
PAUSE_MAX_S = 8.0


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """An event, and the body of its deliveries."""

    id: str
    type: str
    sequence: int
    created_at: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the feed after an event, and how to request the next ones.

    A cursor is valid only for the types and the time it was made for. Without one, the sequence tells which events are
    done, and the date where to begin.
    """

    sequence: int = 0
    created_at: str | None = None
    """The date of the event at that sequence."""
    since: str | None = None
    types: tuple[str, ...] = ()
    cursor: str | None = None

    def for_types(self, types: tuple[str, ...]) -> "Position":
        """Return this position in a feed of other types."""
        return self if types == self.types else replace(self.dated(), types=types)

    def dated(self) -> "Position":
        """Return this position without a cursor."""
        if self.created_at is None:
            return replace(self, cursor=None)
        since = datetime.fromisoformat(self.created_at) - _SKEW
        return replace(self, since=since.isoformat(), cursor=None)


def parse_event(item: dict[str, Any]) -> FeedEvent:
    """Return an item of the feed with the body of its deliveries."""
    envelope = {name: value for name, value in item.items() if name not in _ONLY_IN_THE_FEED}
    body = json.dumps(envelope, separators=(",", ":"), ensure_ascii=False).encode()
    return FeedEvent(item["id"], item["type"], item["sequence"], item["created_at"], body)


def newest(client: "BookingClient", types: tuple[str, ...]) -> Position:
    """Return the position after the newest event."""
    page = _page(client, {"limit": "1"})
    if not page["data"]:
        return Position(types=types)
    last = page["data"][0]
    return Position(last["sequence"], last["created_at"], types=types).dated()


class Feed:
    """Iterates over every event after a position, and waits for new ones. Outages of the service are retried."""

    def __init__(
        self,
        client: "BookingClient",
        position: Position,
        *,
        poll_s: float,
        sleep: Callable[[float], None],
        on_outage: Callable[[str | None], None],
    ) -> None:
        """
        Args:
            on_outage: called with the reason when the service cannot be reached, and with None when it can again.
        """
        self._client = client
        self._poll_s = poll_s
        self._sleep = sleep
        self._on_outage = on_outage
        self.position = position
        """The position after the last event that was yielded."""

    def __iter__(self) -> Iterator[FeedEvent]:
        while True:
            page = self._next_page()
            items, resume = page["data"], page["resume_cursor"]
            for event in map(parse_event, items):
                # A page may be read again from its start.
                if event.sequence > self.position.sequence:
                    self.position = replace(self.position, sequence=event.sequence, created_at=event.created_at)
                    yield event
            self.position = replace(self.position, cursor=resume)
            if not page["has_more"]:
                self._sleep(self._poll_s)

    def _next_page(self) -> dict[str, Any]:
        from booking_sdk import APIError, BadRequestError

        failures = 0
        while True:
            try:
                page = _page(self._client, self._query())
            except BadRequestError:
                # An old cursor may be signed with a secret key that the service no longer has.
                if self.position.cursor is None:
                    raise
                self.position = self.position.dated()
            except APIError as error:
                if not error.retryable:
                    raise
                self._on_outage(str(error))
                self._sleep(getattr(error, "retry_after", None) or min(PAUSE_MAX_S, PAUSE_S * 2.0 ** min(failures, 10)))
                failures += 1
            else:
                if failures:
                    self._on_outage(None)
                return page

    def _query(self) -> dict[str, str]:
        position = self.position
        query = {"order": "asc", "limit": _PAGE, "type": ",".join(position.types)}
        query |= {"created_since": position.since or "", "starting_after": position.cursor or ""}
        return {name: value for name, value in query.items() if value}


def _page(client: "BookingClient", query: dict[str, str]) -> dict[str, Any]:
    raw = client.request("GET", PATH, params=query, cast_to=bytes, options={"max_retries": 0})
    try:
        page = json.loads(raw)
        if isinstance(page["data"], list) and {"has_more", "resume_cursor"} <= page.keys():
            return dict(page)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise CliError("The base URL is not the URL of the API.", ExitCode.SERVER, code="bad_answer", hint="booking whoami")

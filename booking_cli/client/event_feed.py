"""The event feed as deliveries: every event from a point on, in order, with the very body that its deliveries carry.

The SDK's `events.follow` gives models. A receiver verifies bytes, and bytes are what is wanted here: an item of the
feed is the stored body with two fields behind it, so the body is the item without them, written as compactly as the
service writes.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from booking_cli.framework.context import CliError
from booking_cli.framework.exit_codes import ExitCode

if TYPE_CHECKING:
    from booking_sdk import BookingClient

PATH = "/api/v1/events"
_ONLY_IN_THE_FEED = ("resource_type", "resource_id")
_PAGE = "100"
_SKEW = timedelta(minutes=1)
"""Events are dated when a request begins and numbered when its transaction ends, so dates run a little against the
sequence; no transaction of the service lasts as long as this."""
PAUSE_S = 0.5
PAUSE_MAX_S = 8.0


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """One event, and the body of its deliveries."""

    id: str
    type: str
    sequence: int
    created_at: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Position:
    """Behind which event a follower stands, and how to ask for what comes next.

    A cursor belongs to the types and the time it was given out for. Where it cannot be used, the sequence tells what
    was dealt with, and the date from where to look.
    """

    sequence: int = 0
    created_at: str | None = None
    """Of the event at that sequence."""
    since: str | None = None
    types: tuple[str, ...] = ()
    cursor: str | None = None

    def for_types(self, types: tuple[str, ...]) -> "Position":
        """The same place in a feed of those types."""
        return self if types == self.types else replace(self.dated(), types=types)

    def dated(self) -> "Position":
        """The same place without a cursor."""
        if self.created_at is None:
            return replace(self, cursor=None)
        since = datetime.fromisoformat(self.created_at) - _SKEW
        return replace(self, since=since.isoformat(), cursor=None)


def read(item: dict[str, Any]) -> FeedEvent:
    """An item of the feed as what is delivered of it."""
    envelope = {name: value for name, value in item.items() if name not in _ONLY_IN_THE_FEED}
    body = json.dumps(envelope, separators=(",", ":"), ensure_ascii=False).encode()
    return FeedEvent(item["id"], item["type"], item["sequence"], item["created_at"], body)


def newest(client: "BookingClient", types: tuple[str, ...]) -> Position:
    """Behind everything that has happened."""
    page = _page(client, {"limit": "1"})
    if not page["data"]:
        return Position(types=types)
    last = page["data"][0]
    return Position(last["sequence"], last["created_at"], types=types).dated()


class Feed:
    """Every event behind a position, and then each as it comes. The service may be away in between."""

    def __init__(
        self,
        client: "BookingClient",
        position: Position,
        *,
        poll_s: float,
        sleep: Callable[[float], None],
        trouble: Callable[[str | None], None],
    ) -> None:
        """
        Args:
            trouble: told why the service cannot be asked, and None when it can again.
        """
        self._client = client
        self._poll_s = poll_s
        self._sleep = sleep
        self._trouble = trouble
        self.position = position
        """Behind the event that was given out last."""

    def __iter__(self) -> Iterator[FeedEvent]:
        while True:
            page = self._next_page()
            items, resume = page["data"], page["resume_cursor"] or self.position.cursor
            for event in map(read, items):
                # A page that was left half way is read again from its start.
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
                # A cursor that was kept for long may be signed with a key that the service has since put away.
                if self.position.cursor is None:
                    raise
                self.position = self.position.dated()
            except APIError as error:
                if not error.retryable:
                    raise
                self._trouble(str(error))
                self._sleep(getattr(error, "retry_after", None) or min(PAUSE_MAX_S, PAUSE_S * 2.0 ** min(failures, 10)))
                failures += 1
            else:
                if failures:
                    self._trouble(None)
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
    except (ValueError, TypeError, KeyError):
        pass
    raise CliError(
        "What answers at the base URL is not the API.", ExitCode.SERVER, code="bad_answer", hint="booking whoami"
    )

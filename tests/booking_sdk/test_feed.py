"""The follower of the event feed: polling, retries, checkpoints and lost events."""

import asyncio
import logging
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import respx
from sdk_support.routed import DROPPED, KEY, URL, Answer, Clients, Wire, WireOf, answered, as_json

from booking_sdk import (
    APIConnectionError,
    ApiKeyExpiredError,
    AsyncBookingClient,
    BadRequestError,
    BookingClient,
    Event,
    EventsLost,
    InsufficientScopeError,
    RateLimitError,
)
from booking_sdk._feed_reader import FeedPosition
from booking_sdk.testing import ManualClock, make_event


def event(sequence: int) -> dict[str, Any]:
    return make_event("booking.created").model_copy(update={"sequence": sequence}).to_json()


FEED = f"{URL}/api/v1/events"


def listed(*events: Any, resume: str = "c", more: bool = False) -> Answer:
    """Return a page of these events."""
    cursors = {"next_cursor": resume if more else None, "resume_cursor": resume}
    return as_json({"data": list(events), "has_more": more, **cursors})


def page(*sequences: int, resume: str, more: bool = False) -> Answer:
    """Return a page of new bookings with these sequence numbers."""
    return listed(*map(event, sequences), resume=resume, more=more)


OnWire = Callable[..., tuple[Wire, Any]]


@pytest.fixture
def on_wire(wire: WireOf, connect: Clients) -> OnWire:
    """Provide a function that follows a feed of these responses."""

    def follow(answers: list[Any], *, max_retries: int = 2, now: datetime | None = None, **over: Any) -> Any:
        connect.clock = ManualClock(now)
        return wire(answers), connect(max_retries=max_retries).events.follow(**over)

    return follow


def cursors(wire: Wire) -> list[str | None]:
    return [request.url.params.get("starting_after") for request in wire.requests]


def sequences(feed: Any, count: int) -> list[int]:
    sequences: list[int] = []
    for one in feed:
        sequences.append(one.sequence)
        if len(sequences) == count:
            break
    return sequences


def test_a_feed_continues_after_its_last_event_and_waits_without_events(on_wire: OnWire) -> None:
    nothing = page(resume="c3")
    answers = [page(1, 2, resume="c2", more=True), page(3, resume="c3"), nothing, nothing, page(4, resume="c4")]
    wire, feed = on_wire(answers, poll=5)
    assert sequences(feed, 4) == [1, 2, 3, 4]
    assert cursors(wire) == [None, "c2", "c3", "c3", "c3"]
    assert wire.clock.sleeps == [5, 5, 5]
    assert {request.url.params["order"] for request in wire.requests} == {"asc"}


def test_a_feed_without_events_continues_at_the_cursor_of_its_empty_page(on_wire: OnWire) -> None:
    wire, feed = on_wire([page(resume="c0"), page(1, resume="c1"), page(2, resume="c2")], poll=1)
    assert sequences(feed, 2) == [1, 2]
    assert cursors(wire) == [None, "c0", "c1"]


def test_a_feed_without_a_poll_ends_where_the_events_end(on_wire: OnWire) -> None:
    answers = [page(1, resume="c1", more=True), page(resume="c1", more=True), page(2, resume="c2")]
    wire, feed = on_wire(answers, poll=None)
    assert [one.sequence for one in feed] == [1, 2]
    assert wire.clock.sleeps == []


def test_filters_and_options_stay(on_wire: OnWire) -> None:
    filters = {"types": ["customer.*", "booking.created"], "since": datetime(2026, 6, 1, tzinfo=UTC)}
    answers = [page(1, resume="c1", more=True), page(resume="c1")]
    wire, feed = on_wire(answers, poll=None, options={"headers": {"X-Trace": "7"}}, **filters)
    list(feed)
    for request in wire.requests:
        assert request.url.params["type"] == "booking.created,customer.*"
        assert request.url.params["created_since"] == "2026-06-01T00:00:00+00:00"
        assert request.url.params["limit"] == "100"
        assert request.headers["x-trace"] == "7"


# Checkpoints


def test_on_checkpoint_is_called_after_the_event_was_handled(on_wire: OnWire) -> None:
    checkpoints: list[FeedPosition] = []
    note = lambda text: checkpoints.append(FeedPosition.parse(text))  # noqa: E731
    _, feed = on_wire([page(1, 2, resume="c2"), page(3, resume="c3")], poll=1, on_checkpoint=note)
    counts = []
    for one in feed:
        counts.append((one.sequence, len(checkpoints)))
        if one.sequence == 3:
            break
    assert counts == [(1, 0), (2, 1), (3, 2)]
    assert [(one.cursor, one.sequence) for one in checkpoints] == [(None, 1), ("c2", 2)]
    assert replace(FeedPosition.parse(feed.checkpoint), read_at=0) == FeedPosition("c3", 3, None)


def test_page_left_in_the_middle_is_read_again_without_the_yielded_events(on_wire: OnWire) -> None:
    _, first = on_wire([page(1, 2, 3, resume="c3")], poll=1)
    assert sequences(first, 2) == [1, 2]
    wire, feed = on_wire([page(1, 2, 3, resume="c3"), page(4, resume="c4")], poll=1, after=first.checkpoint)
    assert sequences(feed, 2) == [3, 4]
    assert cursors(wire) == [None, "c3"]


def test_a_page_that_was_known_already_moves_the_feed_on(on_wire: OnWire) -> None:
    answers = [page(1, 2, resume="c2", more=True), page(3, resume="c3")]
    wire, feed = on_wire(answers, poll=1, after=str(FeedPosition(None, 2)))
    assert sequences(feed, 1) == [3]
    assert cursors(wire) == [None, "c2"]


INVALID_CHECKPOINTS = ["", "at_", "at_!!!", "at_e30", "at_WzFd", 7]
JUNE, SEPTEMBER = "2026-06-01T00:00:00+00:00", "2026-09-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("after", "since", "cursor", "created_since"),
    [
        (str(FeedPosition("c7", 8, JUNE)), SEPTEMBER, "c7", JUNE),  # the checkpoint's instant wins
        ("c8", None, "c8", None),  # a cursor of the feed is a checkpoint too
        ("c8", SEPTEMBER, "c8", SEPTEMBER),  # and needs the instant that its feed began from
    ],
    ids=["checkpoint", "cursor", "cursor and instant"],
)
def test_a_feed_starts_from_a_checkpoint_or_a_cursor(
    after: str, since: str | None, cursor: str, created_since: str | None, on_wire: OnWire
) -> None:
    instant = datetime.fromisoformat(since) if since else None
    wire, feed = on_wire([page(9, resume="c9")], poll=1, after=after, since=instant)
    assert sequences(feed, 1) == [9]
    assert cursors(wire) == [cursor]
    assert wire.requests[0].url.params.get("created_since") == created_since
    assert replace(FeedPosition.parse(feed.checkpoint), read_at=0) == FeedPosition("c9", 9, created_since)


@pytest.mark.parametrize("wrong", [*({"after": text} for text in INVALID_CHECKPOINTS), {"poll": -1}])
def test_invalid_checkpoint_or_negative_poll_is_rejected_at_once(wrong: dict[str, Any], wire: WireOf) -> None:
    service = wire([])
    with pytest.raises(ValueError):
        service.client().events.follow(**wrong)
    assert service.requests == []


def test_a_checkpoint_survives_being_written_down() -> None:
    for position in (FeedPosition(), FeedPosition("c", 7), FeedPosition("c.~/=", 7, "2026-06-01T00:00:00+00:00")):
        assert FeedPosition.parse(str(position)) == position
        assert str(position).isascii()


# Unavailable service


def test_a_service_that_is_away_is_waited_for(on_wire: OnWire, caplog: pytest.LogCaptureFixture) -> None:
    away: list[Answer] = [DROPPED, answered(502, None), answered(503, "service_unavailable"), DROPPED]
    away.append(answered(408, None))  # as a proxy responds on a connection that was idle for a long time
    wire, feed = on_wire([page(1, resume="c1"), *away, page(2, resume="c2")], max_retries=0, poll=1)
    with caplog.at_level(logging.WARNING, "booking_sdk"):
        assert sequences(feed, 2) == [1, 2]
    assert wire.clock.sleeps == [1, 0.5, 1, 2, 4, 8]
    assert len(caplog.records) == 1


@pytest.mark.exhaustive(but="sync")
def test_backoff_of_a_feed_is_at_most_a_minute(on_wire: OnWire) -> None:
    wire, feed = on_wire([*[DROPPED] * 1200, page(1, resume="c1")], max_retries=0)
    assert sequences(feed, 1) == [1]
    assert max(wire.clock.sleeps) == 30  # random numbers are always 0.5


@pytest.mark.parametrize(("retry_after", "slept"), [("90", 90), ("9" * 40, 3600)])
def test_feed_waits_for_retry_after_and_at_most_an_hour(on_wire: OnWire, retry_after: str, slept: int) -> None:
    wire, feed = on_wire([answered(429, "rate_limited", retry_after=retry_after), page(1, resume="c1")])
    assert sequences(feed, 1) == [1]
    assert wire.clock.sleeps == [slept]


def test_error_is_raised_when_patience_has_run_out(on_wire: OnWire) -> None:
    wire, feed = on_wire([DROPPED], max_retries=0, patience=10)
    with pytest.raises(APIConnectionError):
        sequences(feed, 1)
    assert sum(wire.clock.sleeps) <= 10 < sum(wire.clock.sleeps) + 8
    _, feed = on_wire([answered(429, "rate_limited", retry_after="90")], patience=60)
    with pytest.raises(RateLimitError):
        sequences(feed, 1)


def test_patience_restarts_after_each_response(on_wire: OnWire) -> None:
    trouble = [DROPPED, DROPPED, page(resume="c0")]
    _, feed = on_wire([*trouble * 5, page(1, resume="c1")], max_retries=0, patience=3, poll=1)
    assert sequences(feed, 1) == [1]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "validation_failed", BadRequestError),
        (401, "api_key_expired", ApiKeyExpiredError),
        (403, "insufficient_scope", InsufficientScopeError),
    ],
)
def test_a_feed_raises_errors_that_are_not_retryable_and_can_be_resumed(
    status: int, code: str, kind: type[Exception], on_wire: OnWire
) -> None:
    wire, feed = on_wire([page(1, resume="c1"), answered(status, code), page(2, resume="c2")], poll=0)
    assert sequences(feed, 1) == [1]
    with pytest.raises(kind):
        sequences(feed, 1)
    assert sequences(feed, 1) == [2]
    assert cursors(wire) == [None, "c1", "c1"]


def test_events_are_of_the_class_of_their_type(on_wire: OnWire) -> None:
    (first,) = on_wire([page(1, resume="c1")], poll=None)[1]
    assert isinstance(first, Event)
    assert type(first).__name__ == "BookingCreated"


# Events that cannot be read


def test_an_unreadable_event_arrives_unparsed_and_holds_up_nothing(
    on_wire: OnWire, caplog: pytest.LogCaptureFixture
) -> None:
    broken = {**event(2), "data": {"object": {"name": "hush"}}, "of_tomorrow": 7}
    no_number = {**event(9), "sequence": "many", "created_at": "soon"}
    _, feed = on_wire([listed(event(1), broken, no_number, None, event(3), resume="c3")], poll=None)
    events = list(feed)
    assert [type(one).__name__ for one in events] == ["BookingCreated", *["UnknownEvent"] * 3, "BookingCreated"]
    assert events[1].data == {"object": {"name": "hush"}}
    assert (events[1].type, events[1].sequence, events[1].of_tomorrow) == ("booking.created", 2, 7)
    assert (events[2].id, events[2].sequence) == (no_number["id"], 0)
    assert events[3].data == {"value": None}
    assert all(one.created_at.tzinfo for one in events)
    assert FeedPosition.parse(feed.checkpoint).sequence == 3
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    assert "data.object.id is required" in caplog.text
    assert "hush" not in caplog.text


# Events that were deleted unread

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def aged(sequence: int, days: float) -> dict[str, Any]:
    return {**event(sequence), "created_at": (NOON - timedelta(days=days)).isoformat()}


def away(days: float, sequence: int = 10) -> str:
    """Return the checkpoint of a follower that reached the end of the feed some time ago."""
    return str(FeedPosition("c0", sequence, None, (NOON - timedelta(days=days)).timestamp()))


def test_unread_deleted_events_are_an_error_and_the_feed_continues(on_wire: OnWire) -> None:
    answers = [listed(aged(40, 89)), listed(aged(30, 90))] * 2
    wire, feed = on_wire(answers, now=NOON, after=away(120), types=["booking.*"], poll=None)
    with pytest.raises(EventsLost) as caught:
        sequences(feed, 1)
    assert (caught.value.after, caught.value.before) == (10, 30)
    assert str(caught.value) == "up to 19 events were deleted before they were read: those between 10 and 30"
    assert FeedPosition.parse(caught.value.checkpoint).sequence == 29
    assert pickle.loads(pickle.dumps(caught.value)).checkpoint == caught.value.checkpoint
    probe = wire.requests[1].url.params
    assert dict(probe) == {"order": "asc", "limit": "1"}
    assert sequences(feed, 1) == [40]


def test_on_lost_is_called_for_lost_events(on_wire: OnWire) -> None:
    lost: list[EventsLost] = []
    answers = [listed(resume="c0"), listed(aged(40, 89), aged(41, 1)), listed(aged(30, 90)), listed(aged(45, 0))]
    wire, feed = on_wire(answers, now=NOON, after=away(120), poll=1, on_lost=lost.append)
    assert sequences(feed, 3) == [40, 41, 45]
    assert [(one.after, one.before) for one in lost] == [(10, 30)]
    assert len(wire.requests) == 4


@pytest.mark.parametrize(
    ("checkpoint", "oldest"),
    [
        (away(120), [aged(10, 90)]),  # the last one is kept
        (away(120), [aged(4, 91)]),  # and so are some before it
        (away(120), [aged(11, 90)]),  # the next one is kept, and another's
        (away(60), [aged(30, 90)]),  # no event in the month before it was read to the end
        (away(120), []),
    ],
    ids=["last one kept", "some before it kept", "next one kept", "read a month ago", "no event"],
)
def test_a_gap_in_the_numbers_is_no_loss(checkpoint: str, oldest: list[Any], on_wire: OnWire) -> None:
    answers = [listed(aged(40, 1)), listed(*oldest)]
    wire, feed = on_wire(answers, now=NOON, after=checkpoint, types=["booking.*"], poll=None)
    assert [one.sequence for one in feed] == [40]
    assert len(wire.requests) == 2


@pytest.mark.parametrize(
    ("after", "first"),
    [(away(120), 11), (away(0.5), 40), (None, 40), ("cursor_of_a_page", 40)],
    ids=["no gap", "away for hours", "from the oldest", "from a cursor"],
)
def test_where_nothing_can_be_lost_nothing_is_asked(after: str | None, first: int, on_wire: OnWire) -> None:
    wire, feed = on_wire([listed(aged(first, 1), aged(first + 9, 0))], now=NOON, after=after, poll=None)
    assert len(list(feed)) == 2
    assert len(wire.requests) == 1


def test_follower_that_polls_for_months_loses_nothing(on_wire: OnWire) -> None:
    months = [listed(resume="c") for _ in range(100)]
    wire, feed = on_wire([listed(aged(10, 0)), *months, listed(aged(90, 0))], now=NOON, poll=86_400)
    assert sequences(feed, 2) == [10, 90]
    assert len(wire.requests) == 102


# Stopped from outside


@pytest.mark.respx(assert_all_called=False)  # closed before or after its request
def test_a_feed_is_closed_from_another_thread(respx_mock: respx.MockRouter) -> None:
    respx_mock.get(FEED).mock(listed())
    with BookingClient(KEY, base_url=URL) as client, ThreadPoolExecutor(1) as pool:
        feed = client.events.follow(poll=3600)
        following = pool.submit(list, feed)
        feed.close()
        assert following.result(10) == []
        assert list(feed) == []


def test_a_feed_is_closed_by_a_signal_handler(respx_mock: respx.MockRouter) -> None:
    def answer(_: httpx.Request) -> Answer:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        return listed()

    respx_mock.get(FEED).mock(side_effect=answer)
    with BookingClient(KEY, base_url=URL) as client:
        feed = client.events.follow(poll=3600)
        before = signal.signal(signal.SIGALRM, lambda *_: feed.close())
        try:
            assert list(feed) == []
        finally:
            signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("waits_for", ["the next poll", "an answer"])
@pytest.mark.parametrize("closed_by", ["task", "thread"])
def test_a_feed_is_closed_from_another_task_or_thread(waits_for: str, closed_by: str) -> None:
    async def run() -> None:
        waiting = asyncio.Event()

        # Not with respx: the response must be pending when the feed is closed, and respx counts calls at their end.
        class Service(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> Answer:
                waiting.set()
                if waits_for == "an answer":
                    await asyncio.sleep(3600)
                return listed()

        async with httpx.AsyncClient(transport=Service()) as http_client:
            client = AsyncBookingClient("svc_x", base_url="https://a.test", http_client=http_client)
            feed = client.events.follow(poll=3600)

            async def all_of_it() -> list[Any]:
                return [one async for one in feed]

            following = asyncio.ensure_future(all_of_it())
            await waiting.wait()
            await asyncio.sleep(0.01)
            feed.close() if closed_by == "task" else await asyncio.to_thread(feed.close)
            assert await asyncio.wait_for(following, 10) == []

    asyncio.run(run())


def test_a_feed_that_is_closed_gives_no_more_and_keeps_its_checkpoint(on_wire: OnWire) -> None:
    _, feed = on_wire([page(1, 2, 3, resume="c3")], poll=1)
    assert sequences(feed, 2) == [1, 2]
    feed.close()
    assert sequences(feed, 1) == []
    assert FeedPosition.parse(feed.checkpoint).sequence == 2

"""Pagination: all pages keep the options of the first, and invalid cursors raise."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import respx
from sdk_support.routed import DROPPED, URL, Clients, repeated

from booking_sdk import APIConnectionError, PaginationError, ResponseValidationError, meta
from booking_sdk.testing import FakeBookingAPI, make_customer


def pages(*sizes: int, cursors: list[str | None] | None = None) -> list[Any]:
    """Return pages of these sizes; all but the last have a next page."""
    cursors = cursors or [f"c{number}" for number in range(1, len(sizes))]
    answers = []
    for number, size in enumerate(sizes):
        more = number < len(sizes) - 1
        data = [make_customer(name=f"{number}.{index}").to_json() for index in range(size)]
        envelope = {"data": data, "has_more": more, "next_cursor": cursors[number] if more else None, "note": "new"}
        answers.append(httpx.Response(200, json=envelope, headers={"x-request-id": f"req_{number}"}))
    return answers


class Answered:
    """The routes to the lists, which respx answers with pages in order, and clients that request them."""

    def __init__(self, router: respx.MockRouter, connect: Clients, answers: list[Any]) -> None:
        path = {"url__regex": rf"{URL}/api/v1/(customers|bookings|availability|events)"}
        self.client = connect
        self.route = router.get(**path).mock(side_effect=repeated(answers) if answers else None)

    @property
    def requests(self) -> list[httpx.Request]:
        return [call.request for call in self.route.calls]


Answering = Callable[[list[Any]], Answered]

pytestmark = pytest.mark.respx(assert_all_called=False)
"""Some tests show that no request is sent."""


@pytest.fixture
def answering(respx_mock: respx.MockRouter, connect: Clients) -> Answering:
    """Answer with these pages."""
    return lambda answers: Answered(respx_mock, connect, answers)


def queries(wire: Answered) -> list[dict[str, str]]:
    return [dict(request.url.params) for request in wire.requests]


def walked(client: Any, **over: Any) -> list[str]:
    return [one.name for one in client.customers.iterate(**over)]


def test_paginator_yields_every_item_in_order(answering: Answering) -> None:
    wire = answering(pages(2, 2, 1))
    assert walked(wire.client(), page_size=2) == ["0.0", "0.1", "1.0", "1.1", "2.0"]
    assert queries(wire) == [
        {"order": "desc", "limit": "2"},
        {"order": "desc", "starting_after": "c1", "limit": "2"},
        {"order": "desc", "starting_after": "c2", "limit": "2"},
    ]


def test_an_empty_page_with_more_behind_it_is_not_the_end(answering: Answering) -> None:
    wire = answering(pages(0, 1, 0, 0, 2, 0))
    assert walked(wire.client()) == ["1.0", "4.0", "4.1"]
    assert len(wire.requests) == 6


@pytest.mark.parametrize(
    "cursors",
    [["c1", "c1"], ["c1", "c2", "c1"], [None], [""], ["start"]],
    ids=["again", "round", "none", "empty", "self"],
)
def test_a_cursor_that_leads_nowhere_is_an_error(cursors: list[str | None], answering: Answering) -> None:
    wire = answering(pages(*[1] * (len(cursors) + 1), cursors=cursors))
    with pytest.raises(PaginationError):
        walked(wire.client(), starting_after="start")
    assert len(wire.requests) == len(cursors)


def test_pages_are_requested_lazily(answering: Answering) -> None:
    wire = answering(pages(2, 2))
    walk = wire.client().customers.iterate()
    assert wire.requests == []
    assert [one.name for one in walk.take(2)] == ["0.0", "0.1"]
    assert len(wire.requests) == 1
    assert walk.first().name == "1.0"
    assert walk.first().name == "1.1"
    assert walk.first() is None
    assert walk.take(3) == []
    assert len(wire.requests) == 2


def test_no_more_is_asked_for_than_is_wanted(answering: Answering) -> None:
    wire = answering(pages(2, 2, 2))
    assert walked(wire.client(), page_size=2, max_items=3) == ["0.0", "0.1", "1.0"]
    assert [query["limit"] for query in queries(wire)] == ["2", "1"]
    wire = answering([])
    assert walked(wire.client(), max_items=0) == []


def test_pages_can_be_had_whole(answering: Answering) -> None:
    wire = answering(pages(2, 0, 1))
    walk = wire.client().customers.iterate(page_size=2)
    found = list(walk.pages())
    assert [len(page) for page in found] == [2, 0, 1]
    assert [meta(getattr(page, "target", page)).request_id for page in found] == ["req_0", "req_1", "req_2"]
    wire = answering(pages(2, 2, 2))
    assert [len(page) for page in wire.client().customers.iterate(page_size=2, max_items=3).pages()] == [2, 2]


def test_cursor_of_a_paginator_stands_before_the_current_page(answering: Answering) -> None:
    walk = answering(pages(2, 2)).client().customers.iterate(starting_after="c0")
    assert walk.cursor == "c0"
    walk.take(2)
    assert walk.cursor == "c0"
    walk.take(1)
    assert walk.cursor == "c1"
    walk.take(9)
    assert walk.cursor == "c1"


def test_paginator_continues_after_an_error(answering: Answering) -> None:
    first, second = pages(1, 1)
    walk = answering([first, *[DROPPED] * 3, second]).client().customers.iterate()
    assert walk.first().name == "0.0"
    with pytest.raises(APIConnectionError):
        walk.first()
    assert walk.first().name == "1.0"


@pytest.mark.parametrize("over", [{"page_size": 0}, {"page_size": 101}, {"max_items": -1}])
def test_invalid_page_size_or_max_items_is_rejected_at_once(over: dict[str, int], answering: Answering) -> None:
    with pytest.raises(ValueError):
        answering([]).client().customers.iterate(**over)


def test_a_page_is_its_own_items_and_knows_the_next(answering: Answering) -> None:
    wire = answering(pages(2, 1))
    page = wire.client().customers.list(limit=2, options={"headers": {"X-Trace": "7"}})
    assert [one.name for one in page] == ["0.0", "0.1"] == [one.name for one in page.data]
    assert (len(page), page.has_more, page.next_cursor) == (2, True, "c1")
    assert page.to_json()["note"] == "new"
    assert repr(page).endswith("Page of 2, has_more=True>")
    following = page.next_page()
    assert [one.name for one in following] == ["1.0"]
    assert following.next_page() is None
    assert [request.headers["x-trace"] for request in wire.requests] == ["7", "7"]


@pytest.mark.parametrize("cursor", [None, "c1"])
def test_page_whose_cursor_leads_to_itself_raises(cursor: str | None, answering: Answering) -> None:
    page = answering(pages(1, 1, cursors=[cursor])).client().customers.list(starting_after="c1")
    with pytest.raises(PaginationError):
        page.next_page()


def test_an_item_that_cannot_be_read_is_named(answering: Answering) -> None:
    broken = {"data": [make_customer().to_json(), {"id": "x"}], "has_more": False, "next_cursor": None}
    with pytest.raises(ResponseValidationError) as caught:
        answering([httpx.Response(200, json=broken)]).client().customers.list()
    assert caught.value.field_path == "data.1.name"


def test_a_query_cannot_be_given_where_the_api_wants_days(answering: Answering) -> None:
    client = answering([]).client()
    moment = datetime(2026, 6, 1, tzinfo=UTC)
    for call in (
        lambda: client.bookings.list(departure_from=moment),
        lambda: client.availability.list(date_from=moment),
        lambda: client.availability.iterate(date_from="2026-06-01"),
        lambda: client.bookings.list(updated_since=moment.replace(tzinfo=None)),
        lambda: client.events.list(created_since=moment.date()),
        lambda: client.events.list(types="booking.created"),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError):
        client.availability.iterate(date_from=moment.date(), date_to=moment.date().replace(year=2025))


def test_the_whole_request_stays_the_same_but_for_the_cursor(answering: Answering) -> None:
    wire = answering(pages(1, 1, 1))
    client = wire.client(default_headers={"X-Team": "till"})
    options = {"headers": {"X-Trace": "7"}, "timeout": 3, "query": {"new_filter": "on"}}
    list(client.customers.iterate(order="asc", page_size=7, options=options))
    assert len(wire.requests) == 3
    first = wire.requests[0]
    for number, request in enumerate(wire.requests):
        expected = {"order": "asc", "limit": "7", "new_filter": "on"}
        assert dict(request.url.params) == expected | ({"starting_after": f"c{number}"} if number else {})
        assert request.headers == first.headers
        assert request.extensions["timeout"] == first.extensions["timeout"]
        assert request.url.path == first.url.path
    assert (first.headers["x-trace"], first.headers["x-team"]) == ("7", "till")
    assert first.extensions["timeout"]["read"] == 3


def test_a_page_is_indexed_like_a_list() -> None:
    api = FakeBookingAPI()
    made = [api.add_customer(f"{number}@example.com") for number in range(3)]
    page = api.client().customers.list(order="asc")
    assert (page[0], page[-1], page[1:], len(page)) == (made[0], made[2], made[1:], 3)
    with pytest.raises(IndexError):
        page[3]

"""Pagination: all pages keep the options of the first, and invalid cursors raise."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sdk_support.routed import DROPPED, Wire, WireOf

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


def queries(service: Wire) -> list[dict[str, str]]:
    return [dict(request.url.params) for request in service.requests]


def walked(client: Any, **over: Any) -> list[str]:
    return [one.name for one in client.customers.iterate(**over)]


def test_paginator_yields_every_item_in_order(wire: WireOf) -> None:
    service = wire(pages(2, 2, 1))
    assert walked(service.client(), page_size=2) == ["0.0", "0.1", "1.0", "1.1", "2.0"]
    assert queries(service) == [
        {"order": "desc", "limit": "2"},
        {"order": "desc", "starting_after": "c1", "limit": "2"},
        {"order": "desc", "starting_after": "c2", "limit": "2"},
    ]


def test_an_empty_page_with_more_behind_it_is_not_the_end(wire: WireOf) -> None:
    service = wire(pages(0, 1, 0, 0, 2, 0))
    assert walked(service.client()) == ["1.0", "4.0", "4.1"]
    assert len(service.requests) == 6


@pytest.mark.parametrize(
    "cursors",
    [["c1", "c1"], ["c1", "c2", "c1"], [None], [""], ["start"]],
    ids=["again", "round", "none", "empty", "self"],
)
def test_a_cursor_that_leads_nowhere_is_an_error(cursors: list[str | None], wire: WireOf) -> None:
    service = wire(pages(*[1] * (len(cursors) + 1), cursors=cursors))
    with pytest.raises(PaginationError):
        walked(service.client(), starting_after="start")
    assert len(service.requests) == len(cursors)


def test_pages_are_requested_lazily(wire: WireOf) -> None:
    service = wire(pages(2, 2))
    walk = service.client().customers.iterate()
    assert service.requests == []
    assert [one.name for one in walk.take(2)] == ["0.0", "0.1"]
    assert len(service.requests) == 1
    assert walk.first().name == "1.0"
    assert walk.first().name == "1.1"
    assert walk.first() is None
    assert walk.take(3) == []
    assert len(service.requests) == 2


def test_no_more_is_asked_for_than_is_wanted(wire: WireOf) -> None:
    service = wire(pages(2, 2, 2))
    assert walked(service.client(), page_size=2, max_items=3) == ["0.0", "0.1", "1.0"]
    assert [query["limit"] for query in queries(service)] == ["2", "1"]
    service = wire([])
    assert walked(service.client(), max_items=0) == []


def test_pages_can_be_had_whole(wire: WireOf) -> None:
    service = wire(pages(2, 0, 1))
    walk = service.client().customers.iterate(page_size=2)
    walked = list(walk.pages())
    assert [len(page) for page in walked] == [2, 0, 1]
    assert [meta(getattr(page, "target", page)).request_id for page in walked] == ["req_0", "req_1", "req_2"]
    service = wire(pages(2, 2, 2))
    assert [len(page) for page in service.client().customers.iterate(page_size=2, max_items=3).pages()] == [2, 2]


def test_cursor_of_a_paginator_stands_before_the_current_page(wire: WireOf) -> None:
    walk = wire(pages(2, 2)).client().customers.iterate(starting_after="c0")
    assert walk.cursor == "c0"
    walk.take(2)
    assert walk.cursor == "c0"
    walk.take(1)
    assert walk.cursor == "c1"
    walk.take(9)
    assert walk.cursor == "c1"


def test_paginator_continues_after_an_error(wire: WireOf) -> None:
    first, second = pages(1, 1)
    walk = wire([first, *[DROPPED] * 3, second]).client().customers.iterate()
    assert walk.first().name == "0.0"
    with pytest.raises(APIConnectionError):
        walk.first()
    assert walk.first().name == "1.0"


@pytest.mark.parametrize("over", [{"page_size": 0}, {"page_size": 101}, {"max_items": -1}])
def test_invalid_page_size_or_max_items_is_rejected_at_once(over: dict[str, int], wire: WireOf) -> None:
    with pytest.raises(ValueError):
        wire([]).client().customers.iterate(**over)


def test_a_page_is_its_own_items_and_knows_the_next(wire: WireOf) -> None:
    service = wire(pages(2, 1))
    page = service.client().customers.list(limit=2, options={"headers": {"X-Trace": "7"}})
    assert [one.name for one in page] == ["0.0", "0.1"] == [one.name for one in page.data]
    assert (len(page), page.has_more, page.next_cursor) == (2, True, "c1")
    assert page.to_json()["note"] == "new"
    following = page.next_page()
    assert [one.name for one in following] == ["1.0"]
    assert following.next_page() is None
    assert [request.headers["x-trace"] for request in service.requests] == ["7", "7"]


@pytest.mark.parametrize("cursor", [None, "c1"])
def test_page_whose_cursor_leads_to_itself_raises(cursor: str | None, wire: WireOf) -> None:
    page = wire(pages(1, 1, cursors=[cursor])).client().customers.list(starting_after="c1")
    with pytest.raises(PaginationError):
        page.next_page()


def test_an_item_that_cannot_be_read_is_named(wire: WireOf) -> None:
    broken = {"data": [make_customer().to_json(), {"id": "x"}], "has_more": False, "next_cursor": None}
    with pytest.raises(ResponseValidationError) as caught:
        wire([httpx.Response(200, json=broken)]).client().customers.list()
    assert caught.value.field_path == "data.1.name"


def test_a_query_cannot_be_given_where_the_api_wants_days(wire: WireOf) -> None:
    client = wire([]).client()
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


def test_the_whole_request_stays_the_same_but_for_the_cursor(wire: WireOf) -> None:
    service = wire(pages(1, 1, 1))
    client = service.client(default_headers={"X-Team": "till"})
    options = {"headers": {"X-Trace": "7"}, "timeout": 3, "query": {"new_filter": "on"}}
    list(client.customers.iterate(order="asc", page_size=7, options=options))
    assert len(service.requests) == 3
    first = service.requests[0]
    for number, request in enumerate(service.requests):
        expected = {"order": "asc", "limit": "7", "new_filter": "on"}
        assert dict(request.url.params) == expected | ({"starting_after": f"c{number}"} if number else {})
        assert request.headers == first.headers
        assert request.extensions["timeout"] == first.extensions["timeout"]
        assert request.url.path == first.url.path
    assert (first.headers["x-trace"], first.headers["x-team"]) == ("7", "till")
    assert first.extensions["timeout"]["read"] == 3


def test_a_page_is_indexed_like_a_list() -> None:
    api = FakeBookingAPI()
    customers = [api.add_customer(f"{number}@example.com") for number in range(3)]
    page = api.client().customers.list(order="asc")
    assert (page[0], page[-1], page[1:], len(page)) == (customers[0], customers[2], customers[1:], 3)
    with pytest.raises(IndexError):
        page[3]

"""Uses that an integrator would try without reading the guide."""

import asyncio
import pickle
from datetime import date, timedelta
from typing import Any, get_args
from unittest import mock

import httpx
import pytest
from sdk_support.routed import DROPPED, KEY, Answer, WireOf, answered, as_json, play

from booking_core.models import bookings, departures, events, gift_cards, webhooks
from booking_sdk import (
    APIStatusError,
    AsyncBookingClient,
    BookingClient,
    ConfigurationError,
    ConflictError,
    Hooks,
    Money,
    NotFoundError,
    ResponseValidationError,
    meta,
)
from booking_sdk.response import Response
from booking_sdk.testing import (
    FakeBookingAPI,
    make_booking,
    make_customer,
    make_departure,
    make_event,
    make_experience,
    make_gift_card,
)

ADULT: Any = [{"tier_id": "adult", "count": 1}]
ORDER: Any = {"customer": {"name": "Ada", "email": "ada@example.com"}, "payment": "invoice"}
NOK = [Money(amount_minor=amount, currency="NOK") for amount in (100, 250, 50)]


# Values


def test_money_is_summed_and_currencies_stay_apart() -> None:
    assert sum(NOK) == Money(amount_minor=400, currency="NOK")
    assert sum(NOK, Money(amount_minor=1, currency="NOK")).amount_minor == 401
    with pytest.raises(ValueError, match="NOK with EUR"):
        sum([*NOK, Money(amount_minor=1, currency="EUR")])
    for wrong in (5, 0.0, "0", None):
        with pytest.raises(TypeError):
            wrong + NOK[0]


@pytest.mark.parametrize(
    "make", [make_booking, make_customer, make_departure, make_experience, make_gift_card, make_event]
)
def test_a_model_can_be_in_a_set(make: Any) -> None:
    one = make()
    same, changed = type(one).model_validate(one.to_json()), one.model_copy(update={"created_at": None})
    assert hash(one) == hash(same)
    assert {one, same} == {one}
    assert len({one, changed}) == 2
    booking = make_booking()
    assert len({booking.totals, booking.payment, booking.guests[0], make_booking().totals}) == 3


def test_pages_go_through_a_queue(wire: WireOf, flavour: str, runner: asyncio.Runner) -> None:
    customers = [make_customer().to_json()]
    body = {"data": customers, "has_more": True, "next_cursor": "c1", "resume_cursor": "c1", "note": "new"}
    client = wire([as_json(body, x_request_id="req_1"), as_json({**body, "data": []})]).client()
    for page in (client.customers.list(), client.events.list()):
        page = getattr(page, "target", page)
        again = pickle.loads(pickle.dumps(page))
        assert (again.data, again.has_more, again.next_cursor) == (page.data, True, "c1")
        assert again.to_json() == page.to_json()
        assert meta(again).request_id == meta(page).request_id
        with pytest.raises(ConfigurationError, match=r"list\(starting_after=page.next_cursor\)"):
            runner.run(again.next_page()) if flavour == "async" else again.next_page()


def test_the_names_that_an_editor_completes_are_those_of_the_enums() -> None:
    defined: dict[str, Any] = {}
    for module in (bookings, departures, events, gift_cards, webhooks):
        defined |= vars(module)
    enums = {name: kind for name, kind in defined.items() if isinstance(kind, type) and f"{name}Name" in defined}
    assert len(enums) >= 16
    for name, enum in enums.items():
        assert sorted(get_args(defined[f"{name}Name"])) == sorted(enum), name


# Mistakes


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (BookingClient, "Client", httpx.AsyncClient()),
        (AsyncBookingClient, "AsyncClient", httpx.Client()),
        *(
            (kind, "", wrong)
            for kind in (BookingClient, AsyncBookingClient)
            for wrong in (httpx.AsyncClient, httpx.Client, object(), httpx, "https://a.test", 7)
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else getattr(value, "__name__", type(value).__name__),
)
def test_a_wrong_kind_of_http_client_is_refused_at_once(kind: Any, right: str, wrong: Any) -> None:
    pattern = rf"{right} for {kind.__name__}, .*not {type(wrong).__name__}" if right else ""
    with pytest.raises(TypeError, match=rf"http_client must be an httpx\.{pattern}"):
        kind(KEY, base_url="https://a.test", http_client=wrong)


def test_hooks_are_not_awaited_and_say_so() -> None:
    async def hook(*_: object) -> None: ...

    for name in ("on_send", "on_response", "on_retry"):
        with pytest.raises(TypeError, match=f"{name} must be a plain function"):
            Hooks(**{name: hook})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_booking(bookng_number=7), "Booking has no field bookng_number; did you mean booking_number?"),
        (lambda: make_booking(customer={"nmae": "Ada"}), "Guest has no field customer.nmae"),
        (lambda: make_booking(guests=[{"tier": "a"}]), "GuestLine has no field guests.tier; did you mean"),
        (lambda: make_customer(colour="red"), "Customer has no field colour"),
        (lambda: make_departure(seats=3), "Departure has no field seats"),
        (lambda: make_experience(titel="x"), "Experience has no field titel; did you mean title?"),
        (lambda: make_gift_card(balance_minor=3), "GiftCard has no field balance_minor; did you mean balance?"),
        (lambda: make_event("booking.cancelled", raeson=1), "CancellationData has no field raeson; did you mean"),
        (lambda: make_event("booking.created", sequence=7), "BookingData has no field sequence"),
    ],
    ids=[
        "booking", "guest", "guest line", "customer", "departure", "experience", "gift card", "cancelled event",
        "created event",
    ],
)  # fmt: skip
def test_a_field_that_is_not_there_is_refused_where_things_are_made(make: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert str(caught.value).startswith(message)


# Windows


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_bookings_of_a_wide_window_are_requested_in_several(order: str, wire: WireOf) -> None:
    ends = [("a", "c1"), ("b", None), ("c", None), ("d", None)]
    service = wire(
        [
            as_json({"data": [make_booking(id=one).to_json()], "has_more": bool(more), "next_cursor": more})
            for one, more in ends
        ]
    )
    first, last = date(2026, 1, 1), date(2026, 1, 1) + timedelta(days=250)
    client = service.client()
    walk = client.bookings.iterate(departure_from=first, departure_to=last, order=order, status="confirmed")
    assert [one.id for one in walk] == ["a", "b", "c", "d"]
    queries = [dict(request.url.params) for request in service.requests]
    split = [("2026-01-01", "2026-04-03"), ("2026-04-04", "2026-07-05"), ("2026-07-06", "2026-09-08")]
    split = split if order == "asc" else split[::-1]
    assert [(query["departure_from"], query["departure_to"]) for query in queries] == [split[0], *split]
    assert {query["status"] for query in queries} == {"confirmed"}
    assert [query.get("starting_after") for query in queries] == [None, "c1", None, None]


def test_paginator_over_windows_resumes_at_its_cursor() -> None:
    api = FakeBookingAPI()
    today = api.clock.now.date()
    client = api.client()
    for days in (1, 2, 100, 101, 102, 200):
        departure = api.add_departure(starts_at=api.clock.now + timedelta(days=days))
        client.bookings.create(departure_id=departure.id, guests=ADULT, **ORDER, note=str(days))
    window = {"departure_from": today, "departure_to": today + timedelta(days=250), "order": "asc", "page_size": 1}
    everything = [one.note for one in client.bookings.iterate(**window)]
    assert everything == ["1", "2", "100", "101", "102", "200"]
    for count in range(1, 6):
        walk = client.bookings.iterate(**window)
        notes = [one.note for one in walk.take(count)]
        rest = [one.note for one in client.bookings.iterate(**window, starting_after=walk.cursor)]
        assert [*notes[:-1], *rest] == everything
    with pytest.raises(ValueError, match="starting_after"):
        client.bookings.iterate(**window, starting_after="c1")
    with pytest.raises(ValueError, match="departure_to is before"):
        client.bookings.iterate(departure_from=today, departure_to=today - timedelta(days=1))


# Errors


def me(client: BookingClient) -> Any:
    return client.request("GET", "/api/v1/me", cast_to=dict)


def book(client: BookingClient) -> Any:
    return client.request("POST", "/api/v1/bookings", json={}, cast_to=dict, idempotency_key="order-0001")


def test_no_error_obeys_a_terminal() -> None:
    hostile = "a\x1b[2Jb\u202ec\x07"
    body = {"error": f"No.\r\n {hostile}", "code": f"x{hostile}"}
    error = play(me, [httpx.Response(400, headers=[(b"x-request-id", b"req\x1b[1m")], json=body)]).error
    assert str(error) == (r"400 xa\x1b[2Jb\u202ec\x07: No. a\x1b[2Jb\u202ec\x07 (request req\x1b[1m)")


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://www.example.com/booking/?key=hush#hush", "https://www.example.com/booking/"),
        ("https://ada:hush@example.com/x", "https://example.com/x"),
        ("/login", "/login"),
        ("//a.example.com", "//a.example.com"),
    ],
)
def test_a_redirect_names_where_it_leads(location: str, target: str) -> None:
    error = play(me, [answered(308, None, location=location)]).error
    assert isinstance(error, APIStatusError)
    assert error.location == target
    assert f"a redirect to {target}, which is not followed; is the base URL right?" in str(error)
    assert "hush" not in str(error)


def test_a_redirect_that_is_named_does_not_obey_a_terminal() -> None:
    # Without httpx, which rejects a response with an invalid Location; another client's transport may accept it.
    error = APIStatusError(Response(308, [(b"Location", b"https://a.example.com/\x1b[2J")], b"<html>"))
    assert error.location == r"https://a.example.com/\x1b[2J"
    assert rf"a redirect to {error.location}, which is not followed" in str(error)


# Answers that are not the service's

FOREIGN = [b"", b"<html>", b'{"code": "NoSuchRoute"}', b'{"code": 404}', b'{"message": "no"}', b'{"code": "conflict_"}']


@pytest.mark.parametrize("body", FOREIGN)
@pytest.mark.parametrize("status", [404, 409, 422])
def test_rejection_by_a_proxy_leaves_maybe_executed_unchanged(status: int, body: bytes) -> None:
    def unsure(*answers: Answer) -> bool:
        return play(book, answers).failure.maybe_executed

    error = play(book, [DROPPED, httpx.Response(status, content=body)]).error
    assert isinstance(error, APIStatusError)
    assert error.maybe_executed
    assert error.idempotency_key == "order-0001"
    assert not unsure(httpx.Response(status, content=body))
    settled = {404: "not_found", 409: "conflict", 422: "validation_failed"}[status]
    assert not unsure(DROPPED, answered(status, settled))
    misplaced = {404: "conflict", 409: "validation_failed", 422: "not_found"}[status]
    assert unsure(DROPPED, answered(status, misplaced))


@pytest.mark.parametrize("body", FOREIGN)
def test_a_proxys_404_is_no_deletion(body: bytes) -> None:
    error = play(lambda client: client.webhooks.delete("1"), [DROPPED, httpx.Response(404, content=body)]).error
    assert isinstance(error, NotFoundError)
    assert error.maybe_executed


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b"{}"])
def test_a_success_with_a_body_is_no_deletion(body: bytes, wire: WireOf) -> None:
    client = wire([httpx.Response(200, content=body), httpx.Response(204)]).client()
    with pytest.raises(ResponseValidationError) as caught:
        client.webhooks.delete("w1")
    assert caught.value.maybe_executed
    assert client.webhooks.delete("w1") is None


# Hooks


def test_a_hook_that_raises_loses_no_result(wire: WireOf, caplog: pytest.LogCaptureFixture) -> None:
    fail = mock.Mock(side_effect=LookupError("the metrics are unavailable"))
    booking = make_booking()
    service = wire([answered(503, "service_unavailable"), as_json(booking.to_json(), 201), answered(409, "conflict")])
    client = service.client(hooks=Hooks(on_send=fail, on_response=fail, on_retry=fail), retry=fail)
    assert client.bookings.cancel("b1") == booking
    assert len(service.requests) == 2
    assert fail.call_count == 2 + 2 + 1 + 1
    assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [True] * 6
    with pytest.raises(ConflictError):
        service.client(hooks=Hooks(on_response=fail)).bookings.cancel("b1")

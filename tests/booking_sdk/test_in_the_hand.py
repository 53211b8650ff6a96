"""The SDK's texts at a prompt, in a log and in an error: representations, suggestions, addresses, words."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sdk_support.routed import DROPPED, KEY, URL, play

from booking_sdk import BookingClient, BookingError, UnprocessableEntityError
from booking_sdk._transport_failures import route
from booking_sdk.testing import FakeBookingAPI, make_booking, make_customer, make_event, make_gift_card


@pytest.fixture
def client() -> Iterator[BookingClient]:
    with BookingClient(KEY, base_url=URL) as client:
        yield client


# Representations


def test_a_booking_is_one_short_line() -> None:
    booking = make_booking(id="b1", booking_number=7)
    line = (
        "Booking(id='b1', booking_number=7, status='confirmed', experience.title='Fjord kayak',"
        " departure.starts_at=2026-06-03T09:30:00+00:00, totals.total=1780.00 NOK)"
    )
    assert (repr(booking), str(booking)) == (line, line)


def test_other_models_are_short_too() -> None:
    for model in (make_customer(), make_gift_card(), make_event("booking.cancelled"), make_event("departure.updated")):
        assert repr(model).startswith(f"{type(model).__name__}(id='{model.id}', ")
        assert len(repr(model)) < 260


def test_clients_resources_pages_and_iterators_have_names(client: BookingClient) -> None:
    api = FakeBookingAPI()
    api.add_customer("ada@example.com")
    assert repr(client) == f"<BookingClient of {URL}>"
    assert repr(client.bookings) == f"<Bookings of <BookingClient of {URL}>>"
    assert repr(client.bookings.iterate()) == "<Paginator of Booking, cursor=None>"
    assert repr(client.events.iterate()) == "<Paginator of Event, cursor=None>"
    assert repr(client.events.follow()).startswith("<Feed at ")
    assert repr(api.client().customers.list()) == "<Page of 1, has_more=False>"
    assert KEY not in repr(client) + str(client.bookings)


# Suggestions


@pytest.mark.parametrize(
    ("owner", "wrong", "right"),
    [
        (lambda _: make_booking(), "bookng_number", "booking_number"),
        (lambda _: make_booking().totals.total, "amount", "amount_minor"),
        (lambda client: client, "booking", "bookings"),
        (lambda client: client.bookings, "unheard_of", None),
        (lambda client: client.bookings, "iterat", "iterate"),
        (lambda client: client.bookings.iterate(), "page", "pages"),
    ],
    ids=["model", "money", "client", "no suggestion", "resource", "pages"],
)
def test_an_attribute_that_does_not_exist_suggests_the_one_that_does(
    client: BookingClient, owner: Any, wrong: str, right: str | None
) -> None:
    owner = owner(client)
    with pytest.raises(AttributeError) as caught:
        getattr(owner, wrong)
    hint = f"; did you mean {right!r}?" if right else ""
    assert str(caught.value) == f"{type(owner).__name__!r} object has no attribute {wrong!r}{hint}"
    assert getattr(owner, wrong, None) is None


def test_a_field_of_tomorrow_is_still_an_attribute() -> None:
    booking = type(make_booking()).model_validate({**make_booking().to_json(), "of_tomorrow": 1})
    assert booking.of_tomorrow == 1


# Connection errors


def test_a_connection_error_names_host_port_and_proxy() -> None:
    with (
        BookingClient(KEY, base_url="http://127.0.0.1:9", max_retries=0) as client,
        pytest.raises(BookingError) as near,
    ):
        client.me()
    assert str(near.value).startswith("GET /api/v1/me at 127.0.0.1:9 without a proxy: could not connect (")
    assert "at api.test:443 without a proxy: " in str(play(lambda client: client.me(), [DROPPED] * 3).error)


def test_the_proxy_of_the_environment_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://user:HUSH@proxy.test:3128")
    monkeypatch.setenv("no_proxy", "near.test")
    assert route("https://api.test/x", is_callers=False) == " through the proxy proxy.test:3128"
    for url in ("http://api.test/x", "https://near.test/x"):
        assert route(url, is_callers=False) == " without a proxy"
    assert route("https://api.test/x", is_callers=True) == " by your http_client"


# Problems


def test_problems_are_told_in_words_and_counted() -> None:
    api = FakeBookingAPI()
    order: dict[str, Any] = {"guests": [], "customer": {"name": "", "email": "x"}, "payment": "invoice"}
    with pytest.raises(BookingError) as caught:
        api.client().bookings.create(departure_id=api.add_departure().id, **order)
    assert "400 validation_failed: guests: must have at least 1 item (and 2 more problems, in details) (" in str(
        caught.value
    )
    two = {"error": "a: is wrong", "code": "validation_failed"}
    details = [{"field": name, "reason": "r", "message": "is wrong"} for name in "ab"]
    error = play(lambda client: client.me(), [httpx.Response(422, json={**two, "details": details})]).error
    assert isinstance(error, UnprocessableEntityError)
    assert str(error) == "422 validation_failed: a: is wrong (and 1 more problem, in details)"


# The log


@pytest.fixture
def logger() -> logging.Logger:
    """Provide the SDK's logger in a program that configures no logging. Every test leaves it as it was."""
    logger = logging.getLogger("booking_sdk")
    logger.handlers.clear()
    return logger


def test_a_variable_turns_the_log_on(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOOKING_LOG", "debug")
    api = FakeBookingAPI()
    key = api.key()
    client = api.client(api_key=key)
    client.customers.list(email="ada@example.com")
    log = capsys.readouterr().err
    assert "booking_sdk DEBUG GET /api/v1/customers: attempt 1\n" in log
    assert "booking_sdk DEBUG GET /api/v1/customers: 200 after " in log
    assert key not in log
    assert "ada@example.com" not in log
    assert len(logger.handlers) == 1


def test_without_the_variable_nothing_is_configured(logger: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOKING_LOG", "off")
    FakeBookingAPI().client().me()
    assert logger.handlers == []

"""Events from webhooks and from the feed are parsed alike, for every known and unknown type."""

import json
import logging
import pickle
import traceback
from typing import Any

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from pydantic import TypeAdapter
from sdk_support.routed import Clients, WireOf, as_json

from booking_core.models.events import EventType
from booking_sdk import (
    AnyEvent,
    BookingCancelled,
    BookingEvent,
    ConfigurationError,
    Event,
    GiftCardRedeemed,
    PayloadError,
    Ping,
    UnknownEvent,
    WebhookVerificationError,
    event_parsing,
    models,
    parse_event_unverified,
    unwrap,
)
from booking_sdk.testing import make_booking, make_event
from webhook_verify import Verifier, generate_secret
from webhook_verify.fastapi import webhook
from webhook_verify.testing import signed_request, stale, tampered

SECRET = generate_secret()


def delivered(event: Event) -> dict[str, Any]:
    """Return the body of a delivery: the event without the fields of the feed."""
    fields = event.to_json()
    for name in ("resource_type", "resource_id"):
        fields.pop(name, None)
    return fields


@pytest.mark.parametrize("event_type", list(EventType))
def test_every_type_has_a_class_and_passes_through_a_webhook(event_type: EventType) -> None:
    event = make_event(event_type)
    assert type(event) is models.EVENT_CLASSES[event_type]
    assert type(event) is not UnknownEvent
    headers, body = signed_request(delivered(event), SECRET)
    received = unwrap(body, headers, SECRET)
    assert received == event
    assert received.resource_type == event_type.resource_type


def test_events_are_distinguished_by_class() -> None:
    match make_event("booking.cancelled", reason="customer", about=make_booking(note="Hello")):
        case BookingCancelled() as event:
            assert event.data.reason == "customer"
            assert event.data.object.note == "Hello"
        case _:
            pytest.fail("not a BookingCancelled")
    assert isinstance(make_event("booking.rescheduled"), BookingEvent)


def test_event_data_beside_the_object_is_typed() -> None:
    redeemed = make_event("gift_card.redeemed")
    assert isinstance(redeemed, GiftCardRedeemed)
    assert str(redeemed.data.redeemed_amount) == "500.00 NOK"
    ping = make_event("ping")
    assert isinstance(ping, Ping)
    assert ping.data.object.message == "This is a test."
    assert (ping.resource_type, ping.resource_id) == ("webhook", None)


def test_a_type_of_tomorrow_keeps_its_data() -> None:
    event = make_event("booking.praised", about={"id": "b1", "amount": 5}, reason="storm")
    assert type(event) is UnknownEvent
    assert event.type == "booking.praised"
    assert event.data == {"object": {"id": "b1", "amount": 5}, "reason": "storm"}
    assert (event.resource_type, event.resource_id) == ("booking", "b1")
    assert make_event("spaceship.landed", about={"id": "s1"}).resource_type == "spaceship"


def test_fields_and_values_of_tomorrow_are_kept() -> None:
    fields = make_event("booking.cancelled").to_json()
    fields["data"]["reason"] = "storm"
    fields["data"]["refund"] = {"amount_minor": 1}
    fields["data"]["object"]["status"] = "waitlisted"
    fields["region"] = "eu"
    event = parse_event_unverified(json.dumps(fields))
    assert isinstance(event, BookingCancelled)
    assert event.data.reason == "storm"
    assert event.data.object.status == "waitlisted"
    assert event.to_json() == fields


@pytest.mark.parametrize(
    "payload", [b"{}", "[]", "null", "7", b"{", {"type": "booking.created"}, {"type": ["x"]}, b"\xff"]
)
def test_parsing_a_non_event_raises_value_error(payload: Any) -> None:
    with pytest.raises(ValueError):
        parse_event_unverified(payload)


@pytest.mark.parametrize("attack", [tampered, stale])
def test_unverified_delivery_is_not_parsed(attack: Any) -> None:
    headers, body = attack(delivered(make_event()), SECRET)
    with pytest.raises(WebhookVerificationError):
        unwrap(body, headers, SECRET)


def test_an_authentic_body_that_cannot_be_read_is_a_payload_error() -> None:
    for body in (b"not json", b'{"type": "booking.created", "data": {"object": "hush-hush"}}', b"[]"):
        headers, body = signed_request(body, SECRET)
        with pytest.raises(PayloadError) as caught:
            unwrap(body, headers, SECRET)
        assert pickle.loads(pickle.dumps(caught.value)).reason == "invalid_json"
        assert "hush-hush" not in "".join(traceback.format_exception(caught.value))


def test_a_delivery_that_waited_is_judged_by_when_it_came() -> None:
    headers, body = signed_request(delivered(make_event()), SECRET, timestamp=1_000_000)
    assert unwrap(body, headers, SECRET, now=1_000_100)
    assert unwrap(body, headers, [generate_secret(), SECRET], now=1_000_900, tolerance=1000)
    assert unwrap(body, headers, Verifier(SECRET, tolerance=float("inf")))


def test_a_client_unwraps_with_its_own_secrets(connect: Clients) -> None:
    event = make_event()
    headers, body = signed_request(delivered(event), SECRET)
    client = connect(webhook_secret=[generate_secret(), SECRET])
    assert client.webhooks.unwrap(body, headers) == event
    assert client.webhooks.unwrap(body, headers, secret=SECRET) == event
    with pytest.raises(WebhookVerificationError):
        client.webhooks.unwrap(body, headers, secret=generate_secret())
    with pytest.raises(ConfigurationError, match="webhook_secret is missing"):
        client.with_options(webhook_secret=None).webhooks.unwrap(body, headers)


def test_events_of_another_version_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    event_parsing._other_versions.clear()
    fields = {**make_event().to_json(), "api_version": "2031-01-01"}
    with caplog.at_level(logging.WARNING, "booking_sdk"):
        parse_event_unverified(fields)
        parse_event_unverified(fields)
        parse_event_unverified(make_event().to_json())
    assert [record.message for record in caplog.records] == [
        "events have API version 2031-01-01; this SDK was made for 2026-09-09"
    ]


# Event as a model

CANCELLED = make_event("booking.cancelled", reason="customer")


def test_a_model_of_events_reads_each_as_the_class_of_its_type() -> None:
    fields, text = CANCELLED.to_json(), json.dumps(CANCELLED.to_json())
    for event in (
        Event.model_validate(fields),
        Event.model_validate_json(text),
        TypeAdapter(Event).validate_json(text),
        TypeAdapter(AnyEvent).validate_json(text),
        TypeAdapter(list[Event]).validate_python([fields])[0],
        TypeAdapter(dict[str, Event]).validate_python({"a": CANCELLED})["a"],
        BookingEvent.model_validate(fields),
        BookingCancelled.model_validate(fields),
    ):
        assert type(event) is BookingCancelled
        assert event == CANCELLED
        assert event.type is EventType.BOOKING_CANCELLED


def test_a_model_of_events_is_open_to_types_of_tomorrow() -> None:
    later = {**CANCELLED.to_json(), "type": "booking.praised"}
    assert type(Event.model_validate(later)) is UnknownEvent
    assert type(BookingEvent.model_validate(later)) is BookingEvent
    assert Event.model_validate(later).type == "booking.praised"
    assert type(Event.model_validate(Event.model_validate(later))) is UnknownEvent


@pytest.mark.parametrize(
    ("over", "field"),
    [({"type": None}, "type"), ({"data": {}}, "data.object"), ({"sequence": "x"}, "sequence"), ({"id": 7}, "id")],
)
def test_error_for_an_event_names_the_field_without_the_type(over: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=rf"at {field}$"):
        parse_event_unverified({**CANCELLED.to_json(), **over})


def test_a_raw_request_returns_the_event_class_of_the_type(wire: WireOf) -> None:
    client = wire([as_json(CANCELLED.to_json()), as_json([CANCELLED.to_json()])]).client()
    assert type(client.request("GET", "/api/v1/events/1", cast_to=Event)) is BookingCancelled
    assert [type(one) for one in client.request("GET", "/x", cast_to=list[Event])] == [BookingCancelled]


# FastAPI ignores this warning when it builds a validator, but our models build theirs later.
@pytest.mark.filterwarnings("ignore:The 'alias' attribute")
def test_fastapi_bodies_and_verified_webhooks_have_their_event_class() -> None:
    app = FastAPI()

    @app.post("/queue")
    def queue(event: Event) -> str:
        return type(event).__name__

    async def hook(event: Any = Depends(webhook(Verifier(SECRET), model=Event))) -> str:  # noqa: B008
        return type(event).__name__

    app.post("/hook")(hook)
    with TestClient(app) as client:
        assert client.post("/queue", json=CANCELLED.to_json()).json() == "BookingCancelled"
        assert client.post("/queue", json={**CANCELLED.to_json(), "type": "a.b"}).json() == "UnknownEvent"
        headers, body = signed_request(delivered(CANCELLED), SECRET)
        assert client.post("/hook", content=body, headers=headers).json() == "BookingCancelled"
        schema = client.get("/openapi.json").json()["paths"]["/queue"]["post"]["requestBody"]
    assert "BookingCancelled" in json.dumps(schema)
    assert "UnknownEvent" in json.dumps(schema)

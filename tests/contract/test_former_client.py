"""A client that was generated from an earlier API document works against this service.

Its requests are what its models write, and each answer is parsed as strictly as it parses: every required field, every
type and format, whatever was added since. Unknown fields and unknown names of open enums are what the document allows.
"""

import json
from typing import TypeVar

import pytest
from pydantic import BaseModel
from support import former_models as former
from support.api import Api, fresh_key
from support.hooks import Hooks

from booking_core.clock import to_datetime
from booking_core.db import tables
from booking_core.models.events import EventType
from booking_core.models.limits import API_VERSION

ModelT = TypeVar("ModelT", bound=BaseModel)
URL = "https://hooks.example.com/in"
TYPED = {
    model.model_fields["type"].annotation.__args__[0]: model  # type: ignore[union-attr]
    for name, model in vars(former).items()
    if name.endswith("Event") and name != "Event"
}
"""The model of each event that the former document knew."""


class FormerClient:
    """The client's side: models in, models out."""

    def __init__(self, api: Api) -> None:
        self._call = api.call

    def __call__(
        self,
        model: type[ModelT],
        method: str,
        path: str,
        body: BaseModel | None = None,
        *,
        answered: int = 200,
        key: str | None = None,
        **params: str,
    ) -> ModelT:
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        content = None if body is None else body.model_dump_json(exclude_none=True)
        answer = self._call(method, path, content=content, headers=headers, params=params or None)
        assert answer.status_code == answered, answer.text
        return model.model_validate_json(answer.content, strict=True)


@pytest.fixture
def client(api: Api, monkeypatch: pytest.MonkeyPatch) -> FormerClient:
    service = api.client.app.state.service  # type: ignore[attr-defined]
    monkeypatch.setattr(service, "is_public_address", lambda _: True)
    return FormerClient(api)


def order(departure: str, count: int = 2) -> former.BookingCreate:
    return former.BookingCreate.model_validate(
        {
            "experience_date_id": departure,
            "guests": [{"tier_id": "adult", "count": count}],
            "customer": {"name": "Ada Lovelace", "email": "ada@example.com", "phone": "+47 900 00 000"},
            "payment": "pay_on_site",
            "note": "A window seat",
        }
    )


def test_the_version_of_the_shapes_is_the_clients(client: FormerClient) -> None:
    document = client(former.OpenApi, "GET", "/openapi.json")
    assert document.info["version"] == API_VERSION
    assert client(former.Me, "GET", "/me").organization.slug


def test_it_reads_the_catalogue_and_sells(api: Api, client: FormerClient) -> None:
    experience = api.world.experience()
    departure = api.world.departure(experience)
    listed = client(former.ExperiencePage, "GET", "/experiences", limit="100")
    assert client(former.Experience, "GET", f"/experiences/{experience}") in listed.data
    today = to_datetime(api.world.clock()).date().isoformat()
    window = {"experience_id": experience, "from": today}
    (offered,) = client(former.DeparturePage, "GET", "/availability", **window).data
    assert str(offered.id) == departure
    key = fresh_key()
    booking = client(former.Booking, "POST", "/bookings", order(departure), answered=201, key=key)
    again = client(former.Booking, "POST", "/bookings", order(departure), answered=201, key=key)
    assert (booking, booking.status) == (again, former.BookingStatus.confirmed)
    read = client(former.Booking, "GET", f"/bookings/{booking.id}")
    assert (read.totals, read.guests, read.customer) == (booking.totals, booking.guests, booking.customer)
    assert booking.id in {each.id for each in client(former.BookingPage, "GET", "/bookings", status="confirmed").data}
    cancelled = client(
        former.Booking, "POST", f"/bookings/{booking.id}/cancel", former.BookingCancel(), key=fresh_key()
    )
    assert cancelled.status == former.BookingStatus.cancelled


def test_it_understands_refusals(api: Api, client: FormerClient) -> None:
    departure = api.world.departure(api.world.experience(), seats=1)
    sold_out = client(former.ErrorBody, "POST", "/bookings", order(departure), answered=409, key=fresh_key())
    assert (sold_out.code, sold_out.seats_available) == (former.ErrorCode.insufficient_capacity, 1)
    without_key = client(former.ErrorBody, "POST", "/bookings", order(departure), answered=400)
    assert without_key.code == former.ErrorCode.idempotency_key_required
    nowhere = client(former.ErrorBody, "GET", "/bookings/0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55", answered=404)
    assert nowhere.code == former.ErrorCode.not_found


def test_it_keeps_customers_and_gift_cards(api: Api, client: FormerClient) -> None:
    request = former.CustomerCreate.model_validate({"name": "Grace", "email": "grace@example.com"})
    customer = client(former.Customer, "POST", "/customers", request, answered=201, key=fresh_key())
    assert client(former.Customer, "GET", f"/customers/{customer.id}") == customer
    assert client(former.CustomerPage, "GET", "/customers", email="grace@example.com").data == [customer]
    api.world.insert(
        tables.gift_cards,
        **api.world.code_columns("GIFT-9Q4T-7K2M"),
        currency="NOK",
        initial_minor=50_000,
        balance_minor=50_000,
        created_at=api.world.clock(),
        updated_at=api.world.clock(),
    )
    (card,) = client(former.GiftCardPage, "GET", "/gift-cards").data
    assert client(former.GiftCard, "GET", f"/gift-cards/{card.id}").balance.amount_minor == 50_000


def test_it_receives_what_it_knows_and_passes_over_what_is_new(api: Api, client: FormerClient) -> None:
    """The endpoint has all types, as one that another program of the organization has set up."""
    every = [str(kind) for kind in EventType if kind != EventType.PING]
    endpoint = api.call("POST", "/webhooks", json={"url": URL, "event_types": every}).json()
    booking = api.book(api.world.departure(api.world.experience())).json()["id"]
    api.post(f"/bookings/{booking}/check-in", {})
    moved = api.world.departure(api.world.experience())
    api.post(f"/bookings/{booking}/reschedule", {"departure_id": moved})
    api.cancel(booking)
    page = client(former.EventPage, "GET", "/events", limit="100")
    for event in page.data:
        assert client(former.Event, "GET", f"/events/{event.id}") == event
    claimed = [each for each in Hooks(api.world).claim(free=1000) if each.endpoint_id == endpoint["id"]]
    seen = {str(json.loads(each.body)["type"]) for each in claimed} | {str(event.type) for event in page.data}
    assert {"booking.created", "booking.updated", "booking.rescheduled", "booking.cancelled"} <= seen
    for each in claimed:
        kind = json.loads(each.body)["type"]
        TYPED.get(kind, former.Event).model_validate_json(each.body, strict=True)


def test_it_manages_endpoints(client: FormerClient) -> None:
    request = former.WebhookEndpointCreate.model_validate({"url": URL, "event_types": ["booking.created"]})
    made = client(former.WebhookEndpointWithSecret, "POST", "/webhooks", request, answered=201)
    path = f"/webhooks/{made.id}"
    change = former.WebhookEndpointChange.model_validate({"description": "The calendar"})
    changed = client(former.WebhookEndpoint, "PATCH", path, change)
    assert client(former.WebhookEndpoint, "GET", path) == changed
    assert changed in client(former.WebhookEndpointPage, "GET", "/webhooks").data
    delivery = client(former.Delivery, "POST", f"{path}/test", answered=202)
    assert client(former.DeliveryPage, "GET", f"{path}/deliveries").data == [delivery]
    assert client(former.Delivery, "GET", f"{path}/deliveries/{delivery.id}") == delivery
    rotated = client(former.WebhookEndpointWithSecret, "POST", f"{path}/rotate-secret", former.SecretRotate())
    assert rotated.secret != made.secret
    since = former.DeliveryRecover.model_validate({"since": "2026-01-01T00:00:00Z"})
    assert client(former.Recovered, "POST", f"{path}/recover", since, answered=202).matched == 0

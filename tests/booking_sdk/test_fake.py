"""The double of the service: it behaves as the service, and its own methods work."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from booking_sdk import (
    APIConnectionError,
    ApiKeyInvalidError,
    ApiKeyRevokedError,
    APITimeoutError,
    BookedDeparture,
    Booking,
    BookingCancelled,
    BookingClient,
    BookingEvent,
    BookingRescheduled,
    Departure,
    IdempotencyInProgressError,
    InsufficientCapacityError,
    Money,
    NotFoundError,
    ServerError,
    UnknownEvent,
    meta,
)
from booking_sdk.testing import FakeBookingAPI, ManualClock, on_clock


def book(client: Any, departure: Departure, **over: Any) -> Booking:
    arguments: dict[str, Any] = {
        "departure_id": departure.id,
        "guests": [{"tier_id": "adult", "count": 1}],
        "customer": {"name": "Ada", "email": "ada@example.com"},
        "payment": "invoice",
    }
    booking: Booking = client.bookings.create(**{**arguments, **over})
    return booking


@pytest.fixture
def api() -> FakeBookingAPI:
    return FakeBookingAPI(now=datetime(2026, 6, 1, 9, 30, tzinfo=UTC))


@pytest.fixture
def departure(api: FakeBookingAPI) -> Departure:
    return api.add_departure(seats=4)


def test_an_answer_that_is_lost_books_once(api: FakeBookingAPI, departure: Departure) -> None:
    api.drop_connection_after_commit()
    booking = book(api.client(), departure)
    assert meta(booking).retries == 1
    assert meta(booking).idempotent_replayed
    assert [one.id for one in api.bookings] == [booking.id]
    first, second = [request for request in api.requests if request.method == "POST"]
    assert first.idempotency_key == second.idempotency_key
    assert first.json == second.json
    assert first.json["payment"] == "invoice"
    assert "FakeRequest POST /api/v1/bookings" in repr(first)


@pytest.mark.parametrize("as_timeout", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_a_lost_request_or_answer_is_settled_by_its_key(
    api: FakeBookingAPI, departure: Departure, as_timeout: bool, before: bool
) -> None:
    drop = api.drop_connection_before_commit if before else api.drop_connection_after_commit
    drop(times=3, as_timeout=as_timeout)
    with pytest.raises(APITimeoutError if as_timeout else APIConnectionError) as caught:
        book(api.client(), departure)
    assert caught.value.maybe_executed
    assert len(api.bookings) == (0 if before else 1)
    assert book(api.client(), departure, idempotency_key=caught.value.idempotency_key).id == api.bookings[0].id
    assert len(api.bookings) == 1


def test_refused_connection_books_nothing_and_maybe_executed_is_false(
    api: FakeBookingAPI, departure: Departure
) -> None:
    api.refuse_connections(times=3)
    with pytest.raises(APIConnectionError) as caught:
        book(api.client(), departure)
    assert not caught.value.maybe_executed
    api.refuse_connections()
    assert meta(book(api.client(), departure)).retries == 1


def test_failures_are_for_who_they_are_meant(api: FakeBookingAPI, departure: Departure) -> None:
    client = api.client(max_retries=0)
    api.fail_next(503, path="/api/v1/customers", times=2)
    api.fail_next(409, code="idempotency_in_progress", method="POST")
    assert client.me()
    with pytest.raises(IdempotencyInProgressError):
        book(client, departure)
    for _ in range(2):
        with pytest.raises(ServerError):
            client.customers.list()
    assert list(client.customers.list()) == []
    assert api.bookings == []


def test_a_busy_fake_is_waited_for_without_waiting(api: FakeBookingAPI) -> None:
    api.fail_next(429, retry_after=30, times=2)
    before = api.clock.now
    assert meta(api.client().me()).retries == 2
    assert api.clock.sleeps == [30, 30]
    assert api.clock.now - before == timedelta(minutes=1)


def test_staff_and_guests_do_things_too(api: FakeBookingAPI, departure: Departure) -> None:
    client = api.client()
    booking = book(client, departure)
    other = api.add_departure(departure.experience_id)
    moved = api.reschedule_booking(booking.id, other.id)
    assert moved.departure.id == other.id
    api.cancel_booking(booking.id, reason="customer")
    rescheduled, cancelled = api.events[-2:]
    assert isinstance(rescheduled, BookingRescheduled)
    assert rescheduled.data.previous_departure.id == departure.id
    assert rescheduled.data.changes is not None
    assert BookedDeparture.model_validate(rescheduled.data.changes["departure"]) == booking.departure
    assert isinstance(cancelled, BookingCancelled)
    assert cancelled.data.reason == "customer"
    assert [event.sequence for event in client.events.follow(poll=None)] == [1, 2, 3, 4, 5]


def test_an_event_of_tomorrow_can_be_emitted(api: FakeBookingAPI) -> None:
    api.emit("booking.praised", {"id": "b1"}, amount=5)
    (event,) = api.client().events.follow(poll=None)
    assert isinstance(event, UnknownEvent)
    assert event.data == {"object": {"id": "b1"}, "amount": 5}


def test_events_keep_the_state_at_their_time(api: FakeBookingAPI, departure: Departure) -> None:
    booking = book(api.client(), departure)
    api.cancel_booking(booking.id)
    statuses = [event.data.object.status for event in api.events if isinstance(event, BookingEvent)]
    assert statuses == ["confirmed", "confirmed", "cancelled"]


def test_it_is_filled_in_the_words_of_the_test(api: FakeBookingAPI) -> None:
    experience = api.add_experience(title="Night kayak", hours_before_booking_closes=3, price_tiers=[], price_from=None)
    starts_at = datetime(2026, 6, 2, 20, tzinfo=UTC)
    departure = api.add_departure(experience, starts_at=starts_at, seats=2)
    assert departure.starts_at == starts_at
    assert departure.ends_at == starts_at + timedelta(minutes=150)
    assert departure.booking_closes_at == starts_at - timedelta(hours=3)
    assert departure.price is None
    assert api.add_customer("ada@example.com").id == api.customers[0].id
    assert api.add_gift_card(balance_minor=0).status == "expired"
    assert [str(event.type) for event in api.events] == ["customer.created", "gift_card.issued"]


def test_its_departures_show_what_it_charges(api: FakeBookingAPI) -> None:
    def nok(amount_minor: int) -> dict[str, Any]:
        return {"amount_minor": amount_minor, "currency": "NOK"}

    child = {"id": "child", "name": "Child", "price": nok(45000), "seats_per_unit": 1}
    adult = {"id": "adult", "name": "Adult", "price": nok(89000), "seats_per_unit": 1}
    tiered = api.add_experience(price_tiers=[adult, child])
    plain = api.add_experience(price_tiers=[], price_from=nok(70000))
    assert (str(tiered.price_from), str(plain.price_from)) == ("450.00 NOK", "700.00 NOK")
    assert [(tier.id, tier.name) for tier in plain.price_tiers] == [("standard", "standard")]
    cases = [
        (api.add_departure(tiered), "child", 45000),
        (api.add_departure(tiered, prices={"adult": 30000}), "adult", 30000),
        (api.add_departure(plain), "standard", 70000),
        (api.add_departure(plain, price_minor=99000), "standard", 99000),
    ]
    for departure, tier, amount in cases:
        booking = book(api.client(), departure, guests=[{"tier_id": tier, "count": 1}])
        assert departure.price is not None
        assert departure.price.amount_minor == booking.totals.total.amount_minor == amount
    with pytest.raises(ValueError, match="prices"):
        api.add_departure(tiered, price_minor=1)
    with pytest.raises(ValueError, match="senior"):
        api.add_departure(tiered, prices={"senior": 1})


def test_its_transport_serves_a_client_of_the_tests_own(api: FakeBookingAPI, departure: Departure) -> None:
    http_client = httpx.Client(transport=api.transport, headers={"X-Mine": "1"})
    client = BookingClient(api.key(), base_url=api.base_url, http_client=http_client)
    book(client, departure)
    assert api.requests[-1].headers["x-mine"] == "1"
    assert http_client.get(f"{api.base_url}/api/v1/me").status_code == 401


def test_it_serves_many_threads(api: FakeBookingAPI) -> None:
    departure, client = api.add_departure(seats=50), api.client()
    with ThreadPoolExecutor(8) as pool:
        booked = list(pool.map(lambda _: book(client, departure).booking_number, range(50)))
    assert sorted(number or 0 for number in booked) == list(range(1, 51))
    with pytest.raises(InsufficientCapacityError):
        book(client, departure)


def test_a_currency_holds_throughout() -> None:
    api = FakeBookingAPI(currency="EUR", timezone="America/Santiago")
    booking = book(api.client(), api.add_departure())
    assert str(booking.totals.total) == "890.00 EUR"
    assert booking.created_at.utcoffset() == timedelta(hours=-3)
    assert api.client().me().organization.default_currency == "EUR"


def test_two_fakes_know_nothing_of_each_other(api: FakeBookingAPI, departure: Departure) -> None:
    other = FakeBookingAPI()
    with pytest.raises(NotFoundError):
        book(other.client(), departure)
    with pytest.raises(ApiKeyInvalidError):
        other.client(api_key=api.key()).me()


def test_it_is_the_service(api: FakeBookingAPI) -> None:
    http_client = httpx.Client(transport=api.transport, base_url=api.base_url)
    assert http_client.get("/healthz").json()["status"] == "ok"
    document = http_client.get("/api/v1/openapi.json").json()
    assert document["info"]["title"] == "Booking Service"
    answer = http_client.get("/api/v1/me", headers={"Authorization": f"Bearer {api.key(['bookings:read'])}"})
    assert answer.json()["key"]["scopes"] == ["bookings:read"]
    assert answer.headers["x-request-id"] == answer.headers["X-Request-ID"] != ""


def test_clients_share_keys_and_a_key_is_revoked(api: FakeBookingAPI) -> None:
    key = api.key()
    api.revoke(key)
    with pytest.raises(ApiKeyRevokedError):
        api.client(api_key=key).me()
    assert {api.client().me().key.id for _ in range(30)} == {api.client().me().key.id}
    assert api.client(["bookings:read"]).me().key.id != api.client().me().key.id


def test_its_worker_keeps_up_with_the_clock(api: FakeBookingAPI, departure: Departure) -> None:
    client = api.client()
    endpoint = client.webhooks.create(
        url="https://hooks.example.com/in", event_types=["booking.created", "departure.updated"]
    )
    booking = book(client, departure)
    (queued,) = client.webhooks.deliveries(endpoint.id, event_type="booking.created")
    assert queued.status == "queued"
    assert "departure.updated" in [event.type for event in api.events]
    client.sandbox.advance(60)
    assert client.sandbox.wait_until_ready().now == api.clock.now
    assert client.webhooks.delivery(endpoint.id, queued.id).status == "succeeded"
    (mail,) = client.sandbox.mails()
    assert (mail.kind, mail.booking_id) == ("booking_confirmation_mail", booking.id)


def test_a_departure_is_cancelled_with_its_bookings(api: FakeBookingAPI, departure: Departure) -> None:
    book(api.client(), departure)
    api.close_departure(departure.id)
    assert api.client().departures.get(departure.id).status == "closed"
    api.close_departure(departure.id, status="cancelled")
    assert [booking.status for booking in api.bookings] == ["cancelled"]


def test_add_ons_are_switched_off(api: FakeBookingAPI) -> None:
    drysuit = {"id": "drysuit", "label": "Dry suit", "price": {"amount_minor": 15000, "currency": "NOK"}}
    experience = api.add_experience(add_ons=[drysuit])
    assert [add_on.id for add_on in experience.add_ons] == ["drysuit"]
    api.switch_add_ons(False)
    assert api.client().experiences.get(experience.id).add_ons == []


def test_a_balance_is_changed(api: FakeBookingAPI) -> None:
    card = api.add_gift_card(expires_at="2027-06-01T00:00:00Z")
    entry = api.add_gift_card_transaction(card.id, -12_000, kind="adjust")
    assert (entry.type, entry.amount.amount_minor) == ("adjust", -12_000)
    assert api.client().gift_cards.get(card.id).balance.amount_minor == 38_000


def test_departures_of_an_experience_have_starts_of_their_own(api: FakeBookingAPI) -> None:
    first = api.add_departure()
    second = api.add_departure(first.experience_id)
    assert second.starts_at - first.starts_at == timedelta(minutes=1)
    with pytest.raises(ValueError, match="at this time"):
        api.add_departure(first.experience_id, starts_at=first.starts_at)


def test_what_the_service_does_not_take_is_named(api: FakeBookingAPI) -> None:
    with pytest.raises(ValueError, match="/experiences/0/duration_minutes"):
        api.add_experience(duration_minutes=-1)
    with pytest.raises(TypeError, match="Money"):
        api.add(Money)


def test_nothing_of_a_double_is_left() -> None:
    api = FakeBookingAPI()
    api.add_departure()
    gc.collect()
    threads = threading.active_count()
    del api
    gc.collect()
    assert threading.active_count() < threads


def test_a_clock_can_be_put_under_any_client() -> None:
    clock = ManualClock(datetime(2026, 6, 1, tzinfo=UTC))
    transport = httpx.MockTransport(lambda _: httpx.Response(503, headers={"Retry-After": "20"}))
    client = BookingClient("svc_x", base_url="https://a.test", http_client=httpx.Client(transport=transport))
    with pytest.raises(ServerError):
        on_clock(client, clock).me()
    assert clock.sleeps == [20, 20]
    assert clock.now == datetime(2026, 6, 1, 0, 0, 40, tzinfo=UTC)
    clock.advance(20)
    assert clock.monotonic() == 60


# Checkouts -------------------------------------------------------------------------------------------------------


def check_out(api: FakeBookingAPI, departure_id: str, **over: Any) -> Any:
    guest = {"name": "Ada Lovelace", "email": "ada@example.com"}
    lines = [{"tier_id": "adult", "count": 2}]
    return api.client().checkouts.create(departure_id=departure_id, guests=lines, customer=guest, **over)


def test_checkout_is_pending_until_it_is_paid(api: FakeBookingAPI, departure: Departure) -> None:
    checkout = check_out(api, departure.id)
    assert (checkout.booking.status, checkout.booking.payment.status) == ("pending", "pending")
    assert checkout.payment.client_secret.startswith(checkout.payment.intent_id)
    assert api.client().departures.get(departure.id).seats_available == 2
    assert api.pay_checkout(checkout.id).status == "confirmed"
    read = api.client().checkouts.get(checkout.id)
    assert (read.booking.payment.status, read.payment.client_secret) == ("paid", None)
    assert [event.type for event in api.events][-2:] == ["booking.created", "booking.confirmed"]


def test_checkout_that_is_not_paid_gives_its_seats_back(api: FakeBookingAPI, departure: Departure) -> None:
    checkout = check_out(api, departure.id)
    api.advance(31 * 60)
    assert api.client().departures.get(departure.id).seats_available == 4
    assert api.client().bookings.get(checkout.id).status == "cancelled"
    assert api.pay_checkout(checkout.id).status == "cancelled"

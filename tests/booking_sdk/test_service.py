"""The SDK against the service itself, in process.

Every method sends requests that the service accepts, and reads its responses. The rules of the service are the subject
of `tests/contract`.
"""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from sdk_support.stages import Stage
from starlette.testclient import TestClient
from support.world.world import World

from booking_sdk import (
    ApiKeyInvalidError,
    APIStatusError,
    BadRequestError,
    Booking,
    ConflictError,
    IdempotencyKeyRequiredError,
    InsufficientCapacityError,
    NotFoundError,
    Recovered,
    UnprocessableEntityError,
    meta,
)

pytestmark = pytest.mark.one_database
NOWHERE = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"
ADULT = {"tier_id": "adult", "count": 1}
FAMILY = {"tier_id": "family", "count": 1}
SENIOR = {"tier_id": "senior", "count": 1}
ADA = {"name": "Ada Lovelace", "email": "ada@example.com", "phone": "+47 900 00 000"}


def booking_of(departure: str, *, count: int = 2, **over: Any) -> dict[str, Any]:
    """Return the arguments that book a number of adults."""
    lines = [{"tier_id": "adult", "count": count}]
    return {"departure_id": departure, "guests": lines, "customer": ADA, "payment": "pay_on_site", **over}


def book(client: Any, departure: str, **over: Any) -> Booking:
    booking: Booking = client.bookings.create(**booking_of(departure, **over))
    return booking


def post(client: Any, path: str, body: object, **options: Any) -> object:
    return client.request("POST", f"/api/v1/{path}", json=body, cast_to=dict, **options)


def rotate_three_times(client: Any) -> None:
    endpoint = client.webhooks.create(url="https://hooks.example.com/in", event_types=["booking.created"])
    rotated = [client.webhooks.rotate_secret(endpoint.id, overlap_seconds=60) for _ in range(2)]
    assert len(rotated[-1].former_secrets) == 2
    client.webhooks.rotate_secret(endpoint.id, overlap_seconds=60)


def ids(items: Iterable[Any]) -> list[str]:
    return [one.id for one in items]


def types_of(events: Iterable[Any]) -> list[str]:
    return [str(event.type) for event in events]


@pytest.fixture
def stage(session_app: TestClient, world: World, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> Stage:
    # The check of a public address would query DNS, which tests must not do.
    service = session_app.app.state.service  # type: ignore[attr-defined]
    monkeypatch.setattr(service, "is_public_address", lambda url: True)
    # The async client on one database, and the sync client, which is generated from it, on the other.
    return Stage(session_app, world, runner if world.database.is_sqlite else None)


# Keys and errors


REFUSALS: dict[str, tuple[Any, int, Any]] = {
    "unknown key": (ApiKeyInvalidError, 401, lambda client, _: client.with_options(api_key="svc_" + "x" * 40).me()),
    "invalid metadata": (BadRequestError, 400, lambda client, at: book(client, at, metadata={"no blanks": ""})),
    "body is a list": (
        BadRequestError,
        400,
        lambda client, _: post(client, "bookings", [1], idempotency_key="x" * 8),
    ),
    "no idempotency key": (
        IdempotencyKeyRequiredError,
        400,
        lambda client, at: post(client, "bookings", booking_of(at)),
    ),
    "unknown departure": (NotFoundError, 404, lambda client, _: client.departures.get(NOWHERE)),
    "unknown path": (NotFoundError, 404, lambda client, _: client.request("GET", "/api/v1/spaceships", cast_to=dict)),
    "wrong method": (APIStatusError, 405, lambda client, _: post(client, "me", {})),
    "too many seats": (InsufficientCapacityError, 409, lambda client, at: book(client, at, count=13)),
    "third rotation": (ConflictError, 409, lambda client, _: rotate_three_times(client)),
    "unknown tier": (UnprocessableEntityError, 422, lambda client, at: book(client, at, guests=[SENIOR])),
}
"""The class and the status of each refusal, and a call with a client and a departure that gets it."""


@pytest.mark.parametrize(("kind", "status", "call"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_of_the_service_is_an_error_of_its_class(stage: Stage, kind: Any, status: int, call: Any) -> None:
    with pytest.raises(kind) as caught:
        call(stage.client(), stage.departure())
    error = caught.value
    assert (type(error), error.status_code, error.maybe_executed) == (kind, status, False)
    assert error.request_id == error.body["request_id"]
    assert error.headers.get("allow") == ("GET" if status == 405 else None)
    assert getattr(error, "seats_available", 12) == 12


# The catalogue and its departures


def test_a_wide_window_is_refused_in_one_request_and_split_into_several(stage: Stage) -> None:
    client, experience = stage.client(), stage.experience()
    starts = [stage.departure(experience, in_days=days) for days in (1, 92, 93, 94, 185, 186, 187, 250)]
    first, last = stage.now.date(), stage.now.date() + timedelta(days=250)
    for refused in (
        lambda: client.availability.list(date_from=first, date_to=last),
        lambda: client.bookings.list(departure_from=first, departure_to=last),
    ):
        with pytest.raises(UnprocessableEntityError):
            refused()
    assert ids(client.availability.iterate(date_from=first, date_to=last)) == starts
    assert ids(client.availability.iterate(date_from=first, date_to=last, max_items=3)) == starts[:3]


def test_a_condition_of_the_caller_is_answered_as_it_came(stage: Stage) -> None:
    client, experience = stage.client(), stage.experience()
    first = client.with_raw_response(client.experiences.get, experience)
    sent: Any = {"headers": {"If-None-Match": f'"other", W/{first.headers["etag"]}'}}
    second = client.with_raw_response(client.experiences.get, experience, options=sent)
    assert (second.status_code, second.body, second.headers["etag"]) == (304, b"", first.headers["etag"])


# Every method: the service takes its request. `test_operations` compares the request and the result.


def test_the_catalogue_is_read(stage: Stage) -> None:
    client, experience_id = stage.client(), stage.experience(published=False)
    departure_id, day = stage.departure(experience_id), stage.now.date() + timedelta(days=2)
    experience, departure = client.experiences.get(experience_id), client.departures.get(departure_id)
    since = {"published": False, "updated_since": stage.now}
    assert list(client.experiences.list(**since)) == list(client.experiences.iterate(**since)) == [experience]
    of = {"experience_id": experience_id}
    assert list(client.departures.list(day=day, **of)) == [departure]
    assert list(client.availability.list(date_from=day, date_to=day, **of)) == [departure]
    assert list(client.availability.iterate(date_from=day, date_to=day, **of)) == [departure]
    assert client.departures.manifest(departure_id).departure.id == departure_id
    assert client.me().key.has("bookings:read")
    assert not stage.client(["bookings:read"]).me().key.has("bookings:write")


def test_a_booking_is_quoted_held_created_and_found(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure()
    party: Any = {"guests": [ADULT, FAMILY], "add_ons": [{"id": "drysuit", "count": 2}]}
    quote = client.bookings.quote(departure_id=departure, **party)
    hold = client.holds.create(departure_id=departure, guests=[ADULT, FAMILY], expires_in_seconds=60)
    assert client.holds.extend(hold.id, expires_in_seconds=120).expires_at > hold.expires_at
    over: Any = {"note": "By the door", "external_reference": "A-1", "metadata": {"channel": "acme"}, "locale": "de-AT"}
    sent = {**party, **over, "hold_id": hold.id, "external_reference_unique": True, "notify_staff": False}
    booking = book(client, departure, **sent, send_confirmation_email=False)
    assert {name: getattr(booking, name) for name in over} == over
    assert (booking.totals, meta(booking).created) == (quote.totals, True)
    assert client.bookings.get(booking.id) == booking
    assert client.holds.get(hold.id).booking_id == booking.id
    assert client.holds.delete(client.holds.create(departure_id=departure, seats=1).id) is None
    (owner,) = client.customers.list(email=booking.customer.email)
    filters: dict[str, Any] = {
        "status": "confirmed",
        "experience_id": booking.experience.id,
        "departure_id": departure,
        "departure_from": booking.departure.starts_at.date(),
        "departure_to": booking.departure.starts_at.date(),
        "updated_since": stage.now,
        "customer_id": owner.id,
        "email": owner.email,
        "booking_number": 1,
        "external_reference": "A-1",
    }
    assert list(client.bookings.list(**filters)) == list(client.bookings.iterate(**filters)) == [booking]


def test_a_booking_is_changed_and_cancelled(stage: Stage) -> None:
    client, before, after = stage.client(), stage.departure(), stage.departure()
    booking = book(client, before)
    moved = client.bookings.preview_reschedule(booking.id, departure_id=after)
    assert client.bookings.get(booking.id) == booking
    assert client.bookings.reschedule(booking.id, departure_id=after) == moved
    party: Any = {"guests": [FAMILY], "add_ons": [{"id": "drysuit", "count": 1}]}
    changed = client.bookings.preview_party(booking.id, **party)
    assert client.bookings.get(booking.id) == moved.booking
    assert client.bookings.change_party(booking.id, **party) == changed
    guest: Any = {"name": "Ada King", "email": "king@example.com", "phone": "1", "note": "Late"}
    renamed = client.bookings.change_guest(booking.id, **guest)
    assert renamed.customer.to_json() | {"note": renamed.note} == guest
    assert client.bookings.check_in(booking.id).checked_in_at == stage.now
    assert client.bookings.check_in(booking.id, undo=True).checked_in_at is None
    assert client.bookings.no_show(booking.id).no_show_at == stage.now
    assert client.bookings.no_show(booking.id, undo=True).no_show_at is None
    cancelled = client.bookings.cancel(booking.id, reason="The guest is ill", refund="none")
    assert cancelled == client.bookings.get(booking.id)
    assert cancelled.status == "cancelled"


def test_customers_cards_and_events_are_read(stage: Stage) -> None:
    client, card_id = stage.client(), stage.gift_card("GIFT-9Q4T-7K2M")
    ada = client.customers.create(**ADA, email_subscription=True)
    assert list(client.customers.iterate()) == [client.customers.get(ada.id)] == [ada]
    cards: Any = {"status": "active", "updated_since": stage.now - timedelta(days=1)}
    assert ids(client.gift_cards.list(**cards)) == ids(client.gift_cards.iterate(**cards)) == [card_id]
    assert client.gift_cards.get(card_id).code is None
    assert client.gift_cards.get(card_id, include_code=True).code == "GIFT-9Q4T-7K2M"
    assert ids(client.gift_cards.transactions(card_id)) == ids(client.gift_cards.iterate_transactions(card_id))
    about: Any = {"resource_type": "customer", "resource_id": ada.id, "types": ["customer.*"]}
    about |= {"created_since": stage.now, "created_until": stage.now + timedelta(seconds=1)}
    (event,) = client.events.list(**about)
    assert list(client.events.iterate(**about)) == [client.events.get(event.id)] == [event]
    assert (event.type, event.data.object) == ("customer.created", ada)


# Events


def test_a_checkpoint_stands_anywhere_in_a_page_and_at_its_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("booking_sdk._feed_reader.PAGE_LIMIT_MAX", 10)
    client, departure = stage.client(), stage.departure(seats=200)
    empty = client.events.follow(poll=None)
    assert list(empty) == []
    for _ in range(6):
        book(client, departure, count=1)
    sequences, checkpoint = [], empty.checkpoint
    for _ in range(13):
        feed = client.events.follow(poll=None, after=checkpoint)
        sequences.append(next(iter(feed)).sequence)
        checkpoint = feed.checkpoint
    assert sequences == list(range(1, 14))
    end = client.events.follow(poll=None, after=checkpoint)
    assert list(end) == []
    book(client, departure, count=1)
    assert [event.sequence for event in client.events.follow(poll=None, after=end.checkpoint)] == [14, 15]


def test_a_feed_begins_at_an_instant_and_keeps_to_its_types(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure()
    booking = book(client, departure)
    stage.advance(3600)
    feed = client.events.follow(poll=None, since=stage.now)
    client.bookings.cancel(booking.id)
    assert types_of(feed) == ["booking.cancelled"]
    stage.advance(3600)
    book(client, departure, customer={"name": "Zoe", "email": "zoe@example.com"})
    again = client.events.follow(poll=None, since=stage.now, after=feed.checkpoint)
    assert types_of(again) == ["customer.created", "booking.created", "booking.confirmed"]
    bookings = client.events.follow(poll=None, since=stage.now, types=["booking.*"])
    assert types_of(bookings) == ["booking.created", "booking.confirmed"]
    with pytest.raises(BadRequestError):
        list(client.events.follow(poll=None, types=["customer.*"], after=bookings.checkpoint))


def test_endpoints_and_deliveries_are_managed(stage: Stage) -> None:
    client = stage.client()
    endpoint = client.webhooks.create(
        url="https://hooks.example.com/in", event_types=["booking.created"], description="Till", max_per_second=5
    )
    assert endpoint.secret.startswith("whsec_")
    book(client, stage.departure())
    (delivery,) = client.webhooks.deliveries(endpoint.id, status="queued")
    assert client.webhooks.delivery(endpoint.id, delivery.id) == delivery
    ping = client.webhooks.test(endpoint.id)
    assert list(client.webhooks.iterate_deliveries(endpoint.id, event_id=ping.event_id, event_type="ping")) == [ping]
    assert client.webhooks.redeliver(endpoint.id, delivery.event_id).id == delivery.id
    with pytest.raises(ConflictError):
        client.webhooks.retry(endpoint.id, delivery.id)
    rotated = client.webhooks.rotate_secret(endpoint.id, overlap_seconds=60)
    assert rotated.previous_secret_expires_at == stage.now + timedelta(seconds=60)
    changed = client.webhooks.update(endpoint.id, status="disabled", description=None, max_per_second=None)
    assert (changed.status, changed.description, changed.max_per_second) == ("disabled", None, None)
    assert list(client.webhooks.list()) == [client.webhooks.get(endpoint.id)] == [changed]
    client.webhooks.delete(endpoint.id)
    assert list(client.webhooks.list()) == []


def test_undelivered_deliveries_are_recovered(stage: Stage) -> None:
    client = stage.client()
    endpoint = client.webhooks.create(url="https://hooks.example.com/in", event_types=["booking.created"])
    client.webhooks.update(endpoint.id, status="disabled")
    book(client, stage.departure())
    client.webhooks.update(endpoint.id, status="enabled")
    hour = timedelta(hours=1)
    since: Any = {"since": stage.now - hour, "until": stage.now + hour, "statuses": ["failed"]}
    assert client.webhooks.recover(endpoint.id, **since, dry_run=True) == Recovered(id=None, matched=1)
    recovered = client.webhooks.recover(endpoint.id, **since, event_types=["booking.created"])
    assert len(client.webhooks.deliveries(endpoint.id, recovery_id=recovered.id)) == recovered.matched == 1


# Beyond the methods


def test_a_response_is_available_as_it_came(stage: Stage) -> None:
    client = stage.client()
    booking = book(client, stage.departure())
    answer = client.with_raw_response(client.bookings.get, booking.id)
    assert answer.status_code == 200
    assert answer.headers["X-Request-Id"] == answer.meta.request_id
    assert booking.id.encode() in answer.body
    assert answer.parse() == booking
    page = client.with_raw_response(client.bookings.list, limit=1).parse()
    assert list(page) == [booking]
    assert page.next_page() is None
    assert meta(client.me(options={"headers": {"X-Request-Id": "till-7"}})).request_id == "till-7"


def test_a_sandbox_is_advanced_and_its_checkouts_are_paid(stage: Stage) -> None:
    stage.become_sandbox()
    client, start = stage.client(), stage.now
    assert client.sandbox.advance(3600).now == start + timedelta(hours=1)
    assert client.sandbox.advance_to(start + timedelta(hours=3)).offset_seconds == 3 * 3600
    assert client.sandbox.wait_until_ready() == client.sandbox.clock()
    assert list(client.sandbox.mails()) == list(client.sandbox.iterate_mails()) == []
    checkout = client.checkouts.create(departure_id=stage.departure(), guests=[ADULT], customer=ADA)
    declined = client.sandbox.pay_checkout(checkout.id, "pm_card_chargeDeclined")
    assert (declined.status, declined.checkout.booking.status) == ("declined", "pending")
    assert client.sandbox.pay_checkout(checkout.id).checkout.to_json() == client.checkouts.get(checkout.id).to_json()

"""The SDK against the service itself, in process, on both databases.

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
from support.world import World

from booking_sdk import (
    ApiKeyInvalidError,
    ApiKeyRevokedError,
    APIStatusError,
    BadRequestError,
    Booking,
    BookingCancelled,
    BookingCreated,
    ConflictError,
    IdempotencyKeyRequiredError,
    IdempotencyKeyReusedError,
    InsufficientCapacityError,
    InsufficientScopeError,
    NotFoundError,
    Ping,
    Recovered,
    UnprocessableEntityError,
    WebhookEnabled,
    WebhookSecretRotated,
    meta,
)

NOWHERE = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"
ADULT = {"tier_id": "adult", "count": 1}
FAMILY = {"tier_id": "family", "count": 1}
SENIOR = {"tier_id": "senior", "count": 1}
ADA = {"name": "Ada Lovelace", "email": "ada@example.com", "phone": "+47 900 00 000"}


def asked(departure: str, *, count: int = 2, **over: Any) -> dict[str, Any]:
    """Return the arguments that book a number of adults."""
    lines = [{"tier_id": "adult", "count": count}]
    return {"departure_id": departure, "guests": lines, "customer": ADA, "payment": "pay_on_site", **over}


def book(client: Any, departure: str, **over: Any) -> Booking:
    booking: Booking = client.bookings.create(**asked(departure, **over))
    return booking


def post(client: Any, path: str, body: object, **options: Any) -> object:
    return client.request("POST", f"/api/v1/{path}", json=body, cast_to=dict, **options)


def subscribed(client: Any) -> Any:
    """Create an endpoint for new bookings."""
    return client.webhooks.create(url="https://hooks.example.com/in", event_types=["booking.created"])


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


def test_me_returns_the_organization_and_the_scopes(stage: Stage) -> None:
    me = stage.client(["bookings:read"]).me()
    assert (me.organization.timezone, me.organization.default_currency) == ("Europe/Oslo", "NOK")
    assert me.key.has("bookings:read")
    assert not me.key.has("bookings:write")
    assert me.key.created_at.utcoffset() is not None


def test_a_revoked_key_is_refused(stage: Stage) -> None:
    key = stage.world.key()
    client = stage.client(key=key)
    client.me()
    stage.revoke(key)
    with pytest.raises(ApiKeyRevokedError):
        client.me()


@pytest.mark.parametrize(
    ("kind", "status", "call"),
    [
        (ApiKeyInvalidError, 401, lambda client, _: client.with_options(api_key="svc_" + "x" * 40).me()),
        (BadRequestError, 400, lambda client, departure: book(client, departure, metadata={"no blanks": ""})),
        (BadRequestError, 400, lambda client, _: post(client, "bookings", [1], idempotency_key="order-0004")),
        (IdempotencyKeyRequiredError, 400, lambda client, departure: post(client, "bookings", asked(departure))),
        (NotFoundError, 404, lambda client, _: client.departures.get(NOWHERE)),
        (NotFoundError, 404, lambda client, _: client.request("GET", "/api/v1/spaceships", cast_to=dict)),
        (APIStatusError, 405, lambda client, _: post(client, "me", {})),
        (InsufficientCapacityError, 409, lambda client, departure: book(client, departure, count=13)),
        (UnprocessableEntityError, 422, lambda client, departure: book(client, departure, guests=[SENIOR])),
    ],
    ids=[
        "unknown key",
        "invalid metadata",
        "body is a list",
        "no idempotency key",
        "unknown departure",
        "unknown path",
        "wrong method",
        "too many seats",
        "unknown tier",
    ],
)
def test_a_refusal_of_the_service_is_an_error_of_its_class(stage: Stage, kind: Any, status: int, call: Any) -> None:
    with pytest.raises(kind) as caught:
        call(stage.client(), stage.departure())
    error = caught.value
    assert (type(error), error.status_code, error.maybe_executed) == (kind, status, False)
    assert error.request_id == error.body["request_id"]
    assert error.headers.get("allow") == ("GET" if status == 405 else None)
    assert getattr(error, "seats_available", 12) == 12


def test_a_refusal_names_the_missing_scope_or_the_field(stage: Stage) -> None:
    departure = stage.departure()
    with pytest.raises(InsufficientScopeError) as forbidden:
        book(stage.client(["bookings:read"]), departure)
    assert forbidden.value.required_scope == "bookings:write"
    with pytest.raises(BadRequestError) as invalid:
        book(stage.client(), departure, count=0)
    assert (invalid.value.code, invalid.value.details[0].field) == ("validation_failed", "guests.0.count")


# The catalogue and its departures


def test_experiences_are_listed_filtered_and_read(stage: Stage) -> None:
    client = stage.client()
    shown, hidden = stage.experience(), stage.experience(published=False)
    stage.advance(3600)
    later, since = stage.experience(published=False), stage.now - timedelta(seconds=1)
    assert set(ids(client.experiences.list())) == {shown, hidden, later}
    assert ids(client.experiences.list(published=True)) == [shown]
    assert ids(client.experiences.iterate(published=False)) == [later, hidden]
    assert ids(client.experiences.list(updated_since=since)) == [later]
    experience = client.experiences.get(shown)
    assert [tier.id for tier in experience.price_tiers] == ["adult", "family"]
    assert str(experience.price_tiers[0].price) == str(experience.price_from) == "890.00 NOK"
    (drysuit,) = experience.add_ons
    assert (drysuit.id, drysuit.name, str(drysuit.price)) == ("drysuit", "Dry suit", "150.00 NOK")


def test_departures_are_listed_by_window_and_by_day(stage: Stage) -> None:
    client, experience = stage.client(), stage.experience()
    late, early = stage.departure(experience, in_days=5), stage.departure(experience, seats=3)
    page = client.availability.list(date_from=stage.now.date())
    assert [(one.id, one.seats_available, one.status) for one in page] == [(early, 3, "open"), (late, 12, "open")]
    assert not page.has_more
    assert page.data[0].starts_at == stage.now + timedelta(days=2)
    day, shown = page.data[0].starts_at.date(), client.departures.get(early)
    assert client.availability.list(date_from=day, date_to=day).data == [shown]
    assert client.departures.list(day=day).data == [shown]
    for method, window in ((client.departures.list, {"day": day}), (client.availability.list, {"date_from": day})):
        assert method(**window, experience_id=experience).data[0] == shown
        assert not method(**window, experience_id=NOWHERE).data
    assert (shown.starts_at_local, shown.timezone) == (shown.starts_at.replace(tzinfo=None), "Europe/Oslo")
    prices = {tier.id: str(tier.price) for tier in shown.price_tiers}
    assert prices == {"adult": "890.00 NOK", "family": "2500.00 NOK"}


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


# Bookings and their changes


def test_a_booking_has_everything_that_was_sent_and_its_price(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure()
    own: Any = {"note": "By the door", "external_reference": "A-1", "metadata": {"channel": "acme"}, "locale": "de-AT"}
    booking = book(client, departure, guests=[ADULT, FAMILY], add_ons=[{"id": "drysuit", "count": 2}], **own)
    assert (booking.booking_number, booking.status, booking.source) == (1, "confirmed", "api")
    assert booking.totals.total.amount_minor == 89000 + 250000 + 2 * 15000
    payment = booking.payment
    assert (payment.method, payment.source, payment.status) == ("pay_on_site", "on_site", "unpaid")
    assert (booking.customer.email, booking.departure.id) == ("ada@example.com", departure)
    assert {name: getattr(booking, name) for name in own} == own
    assert (meta(booking).created, meta(booking).idempotent_replayed) == (True, False)
    terms = booking.cancellation
    assert terms is not None
    assert (terms.allowed, terms.refundable_amount.amount_minor, terms.late_percent) == (True, 0, 0)
    assert booking.departure.starts_at - terms.until == timedelta(hours=24)
    assert booking.manage_url
    assert client.bookings.get(booking.id) == booking
    assert list(client.bookings.list()) == [booking]


def test_a_unique_reference_is_refused_for_a_second_booking(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure()
    book(client, departure, external_reference="A-1", external_reference_unique=True)
    with pytest.raises(ConflictError) as caught:
        book(client, departure, external_reference="A-1", external_reference_unique=True)
    (detail,) = caught.value.details
    assert (detail.reason, detail.field) == ("external_reference_taken", "external_reference")
    assert book(client, departure, external_reference="A-1").metadata == {}


def test_an_idempotency_key_makes_one_booking(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure()
    first = book(client, departure, idempotency_key="order-0001")
    again = book(client, departure, idempotency_key="order-0001")
    assert again == first
    assert (meta(again).idempotent_replayed, meta(again).status_code) == (True, 201)
    assert meta(again).request_id != meta(first).request_id
    with pytest.raises(IdempotencyKeyReusedError) as caught:
        book(client, departure, count=3, idempotency_key="order-0001")
    assert (caught.value.idempotency_key, caught.value.maybe_executed) == ("order-0001", False)
    assert len(client.bookings.list()) == 1


def test_a_key_fits_either_name_of_the_departure(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure()
    order = asked(departure, idempotency_key="order-0001")
    first = client.bookings.create(**order)
    again = client.bookings.create(experience_date_id=order.pop("departure_id"), **order)
    assert (again, meta(again).idempotent_replayed) == (first, True)
    assert client.bookings.quote(experience_date_id=departure, guests=[ADULT]).allowed
    assert client.holds.create(experience_date_id=departure, seats=2).departure_id == departure


def test_a_replay_after_a_cancellation_is_the_first_answer(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure()
    first = book(client, departure, idempotency_key="order-0001")
    client.bookings.cancel(first.id)
    again = book(client, departure, idempotency_key="order-0001")
    assert (again.status, meta(again).idempotent_replayed) == ("confirmed", True)
    assert client.bookings.get(again.id).status == "cancelled"


def test_bookings_are_filtered(stage: Stage) -> None:
    client = stage.client()
    near = book(client, stage.departure(in_days=2))
    stage.advance(60)
    far = book(client, stage.departure(in_days=40), external_reference="A-1")
    client.bookings.cancel(far.id)
    owner = client.customers.list(email=str(near.customer.email).upper()).data[0]
    by: list[tuple[dict[str, Any], list[Booking]]] = [
        ({"departure_id": near.departure.id}, [near]),
        ({"customer_id": owner.id}, [near, far]),
        ({"customer_id": NOWHERE}, []),
        ({"email": owner.email.upper()}, [near, far]),
        ({"email": "nobody@example.com"}, []),
        ({"booking_number": far.booking_number}, [far]),
        ({"booking_number": far.booking_number, "departure_id": near.departure.id}, []),
        ({"external_reference": "A-1"}, [far]),
        ({"external_reference": "A-2"}, []),
        ({"status": "cancelled"}, [far]),
        ({"experience_id": far.experience.id}, [far]),
        ({"departure_from": far.departure.starts_at.date()}, [far]),
        ({"departure_to": near.departure.starts_at.date()}, [near]),
        ({"updated_since": stage.now}, [far]),
    ]
    for filters, found in by:
        for method in (client.bookings.list, client.bookings.iterate):
            assert ids(method(**filters, order="asc")) == ids(found), filters


def test_pages_cover_the_whole_list_once(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure(seats=50)
    made = [book(client, departure, count=1).id for _ in range(7)]
    page, seen = client.bookings.list(limit=3, order="asc"), []
    while page is not None:
        seen.append(ids(page))
        page = page.next_page()
    assert seen == [made[:3], made[3:6], made[6:]]
    assert ids(client.bookings.iterate(page_size=2)) == made[::-1]
    assert ids(client.bookings.iterate(page_size=2, max_items=5, order="asc")) == made[:5]
    walk = client.bookings.iterate(order="asc", page_size=2)
    assert ids(walk.take(4)) == made[:4]
    assert ids(client.bookings.iterate(order="asc", page_size=2, starting_after=walk.cursor)) == made[2:]


def test_a_booking_is_cancelled(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure()
    booking = book(client, departure, count=5)
    stage.advance(60)
    cancelled = client.bookings.cancel(booking.id, reason="The guest is ill")
    assert (cancelled.status, cancelled.updated_at) == ("cancelled", booking.created_at + timedelta(seconds=60))
    assert not cancelled.cancellation.allowed
    assert client.bookings.cancel(booking.id) == client.bookings.get(booking.id) == cancelled
    assert client.departures.get(departure).seats_available == 12


def test_a_check_in_or_a_no_show_is_recorded_and_undone(stage: Stage) -> None:
    client = stage.client()
    booking = book(client, stage.departure())
    stage.advance(60)
    present = client.bookings.check_in(booking.id)
    assert (present.checked_in_at, present.updated_at, present.no_show_at) == (stage.now, stage.now, None)
    absent = client.bookings.no_show(booking.id)
    assert (absent.checked_in_at, absent.no_show_at) == (None, stage.now)
    assert client.bookings.check_in(booking.id, undo=True).no_show_at == stage.now
    assert client.bookings.no_show(booking.id, undo=True).no_show_at is None


def test_a_booking_moves_as_its_preview_says(stage: Stage) -> None:
    client, before, after = stage.client(), stage.departure(), stage.departure()
    booking = book(client, before)
    preview = client.bookings.preview_reschedule(booking.id, departure_id=after)
    assert client.bookings.get(booking.id).departure.id == before
    change = client.bookings.reschedule(booking.id, departure_id=after)
    assert change == preview
    assert (change.allowed, change.refusals, change.seats) == (True, [], 2)
    assert (change.booking.departure.id, change.booking.totals) == (after, booking.totals)
    money, full = change.money, "1780.00 NOK"
    assert (money.settlement, str(money.list_price), str(money.balance_due)) == ("price_kept", full, full)


def test_a_party_changes_as_its_preview_says(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure()
    booking = book(client, departure, add_ons=[{"id": "drysuit", "count": 1}])
    party: Any = {"guests": [{**ADULT, "count": 3}, FAMILY]}
    preview = client.bookings.preview_party(booking.id, **party)
    assert client.bookings.get(booking.id).guests == booking.guests
    change = client.bookings.change_party(booking.id, **party)
    assert change == preview
    total = 3 * 89000 + 250000 + 15000
    assert (change.seats, change.booking.totals.total.amount_minor) == (3 + 4, total)
    assert (change.money.settlement, change.money.balance_due.amount_minor) == ("balance_due", total)
    assert change.money.price_difference.amount_minor == 89000 + 250000
    assert change.booking.add_ons == booking.add_ons


def test_a_manifest_lists_the_guests_and_the_unpaid_amounts(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure()
    zoe = {"name": "Zoe", "email": "zoe@example.com"}
    paid = book(client, departure, customer=zoe, payment="external_paid", note="By the door")
    unpaid = book(client, departure, add_ons=[{"id": "drysuit", "count": 1}])
    client.bookings.cancel(book(client, departure).id)
    client.bookings.check_in(paid.id)
    manifest = client.departures.manifest(departure)
    assert [(each.id, each.customer.name, each.unpaid.amount_minor) for each in manifest.data] == [
        (unpaid.id, "Ada Lovelace", 2 * 89000 + 15000),
        (paid.id, "Zoe", 0),
    ]
    assert (manifest.data[1].note, manifest.data[1].manage_url) == ("By the door", None)
    totals, shown = manifest.totals, manifest.departure
    assert (totals.bookings, totals.checked_in, totals.no_shows) == (2, 1, 0)
    assert (totals.guests, totals.add_ons) == ({"Adult": 4}, {"Dry suit": 1})
    assert [str(each) for each in totals.unpaid] == ["1930.00 NOK"]
    assert (shown.id, shown.seats_sold, shown.seats_available) == (departure, 4, 8)
    assert (shown.bookings.pending, shown.bookings.confirmed, shown.bookings.cancelled) == (0, 2, 1)
    assert shown.experience.title == paid.experience.title


# Holds and quotes


def test_held_seats_are_booked_once_released_or_expire(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure(seats=5)
    hold = client.holds.create(departure_id=departure, seats=4)
    assert (hold.status, hold.seats, hold.departure_id, hold.booking_id) == ("live", 4, departure, None)
    assert hold.expires_at - hold.created_at == timedelta(minutes=10)
    with pytest.raises(InsufficientCapacityError) as full:
        book(client, departure)
    assert full.value.seats_available == 1
    booking = book(client, departure, hold_id=hold.id)
    used = client.holds.get(hold.id)
    assert (used.status, used.booking_id) == ("booked", booking.id)
    other = client.holds.create(departure_id=departure, seats=1, expires_in_seconds=60)
    assert other.expires_at - other.created_at == timedelta(minutes=1)
    client.holds.delete(other.id)
    assert client.holds.get(other.id).status == "released"


def test_a_quote_has_the_price_and_each_reason_of_a_refusal(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure(seats=5)
    lines = [ADULT, FAMILY]
    quote = client.bookings.quote(departure_id=departure, guests=lines)
    assert (quote.allowed, quote.refusals, quote.seats, quote.seats_available) == (True, [], 5, 5)
    assert quote.totals is not None
    assert quote.totals.total.amount_minor == 89000 + 250000
    hold = client.holds.create(departure_id=departure, seats=5)
    assert client.bookings.quote(departure_id=departure, guests=lines, hold_id=hold.id).allowed
    refused = client.bookings.quote(departure_id=departure, guests=[*lines, SENIOR], hold_id=NOWHERE)
    assert [(each.code, each.reason, each.field) for each in refused.refusals] == [
        ("not_found", "unknown_hold", "hold_id"),
        ("validation_failed", "unknown_tier", "guests.2.tier_id"),
        ("insufficient_capacity", None, None),
    ]
    assert (refused.allowed, refused.totals, refused.refusals[-1].seats_available) == (False, None, 0)


# Customers and gift cards


def test_a_customer_is_created_once_and_reused(stage: Stage) -> None:
    client = stage.client()
    new = client.customers.create(email="Åse@example.com", name="Åse", phone="+47 1", email_subscription=True)
    assert (meta(new).created, new.email_subscription) == (True, True)
    same = client.customers.create(email="åse@EXAMPLE.com", name="Somebody")
    assert (meta(same).created, same) == (False, new)
    assert client.customers.get(new.id) == new
    assert ids(client.customers.list(email="ÅSE@example.com")) == [new.id]
    made = [new.id, *(client.customers.create(email=f"{n}@example.com", name="N").id for n in range(2))]
    assert ids(client.customers.iterate(order="asc", page_size=1)) == made
    assert client.customers.iterate().first().id == made[-1]


def test_the_code_of_a_gift_card_is_shown_only_on_request(stage: Stage) -> None:
    client, card_id = stage.client(), stage.gift_card("GIFT-9Q4T-7K2M")
    (listed,) = client.gift_cards.list(status="active")
    assert (listed.id, listed.code_last4, listed.code) == (card_id, "7K2M", None)
    assert listed.balance.amount_minor == 50_000
    assert client.gift_cards.get(card_id).code is None
    assert client.gift_cards.get(card_id, include_code=True).code == "GIFT-9Q4T-7K2M"
    assert list(client.gift_cards.iterate(status="expired")) == []


# Events


def test_the_feed_has_the_events_in_order(stage: Stage) -> None:
    client = stage.client()
    booking = book(client, stage.departure())
    client.bookings.cancel(booking.id)
    events = list(client.events.iterate(order="asc"))
    assert types_of(events) == ["customer.created", "booking.created", "booking.confirmed", "booking.cancelled"]
    assert [event.sequence for event in events] == [1, 2, 3, 4]
    created, cancelled = events[1], events[3]
    assert isinstance(created, BookingCreated)
    assert created.data.object == booking.model_copy(update={"manage_url": None})
    assert (created.resource_type, created.resource_id) == ("booking", booking.id)
    assert isinstance(cancelled, BookingCancelled)
    assert cancelled.data.reason == "api"
    assert client.events.get(created.id) == created
    assert types_of(client.events.list(limit=2)) == ["booking.cancelled", "booking.confirmed"]


def test_the_feed_is_filtered(stage: Stage) -> None:
    client, departure = stage.client(), stage.departure()
    first, _ = book(client, departure), book(client, departure)
    stage.advance(3600)
    client.bookings.cancel(first.id)
    since = stage.now - timedelta(minutes=1)
    by: list[tuple[dict[str, Any], list[int]]] = [
        ({"types": ["customer.*"]}, [1]),
        ({"types": ["booking.created", "customer.created"]}, [1, 2, 4]),
        ({"resource_id": first.id}, [2, 3, 6]),
        ({"resource_type": "booking"}, [2, 3, 4, 5, 6]),
        ({"created_since": since}, [6]),
        ({"created_until": since}, [1, 2, 3, 4, 5]),
    ]
    for filters, found in by:
        for method in (client.events.list, client.events.iterate):
            assert [event.sequence for event in method(**filters, order="asc")] == found, filters


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


# Webhooks


def test_an_endpoint_is_created_changed_and_deleted(stage: Stage) -> None:
    client = stage.client()
    made = client.webhooks.create(
        url="https://hooks.example.com/in", event_types=["booking.created"], description="Till"
    )
    assert made.secret.startswith("whsec_")
    assert (made.status, made.event_types, made.description) == ("enabled", ["booking.created"], "Till")
    (listed,) = client.webhooks.list()
    assert listed.id == made.id
    assert not hasattr(listed, "secret")
    changed = client.webhooks.update(made.id, status="disabled", description=None, event_types=["customer.created"])
    assert (changed.status, changed.disabled_reason, changed.description) == ("disabled", "manual", None)
    assert client.webhooks.get(made.id) == changed
    rotated = client.webhooks.rotate_secret(made.id, overlap_seconds=60)
    assert rotated.secret != made.secret
    assert rotated.previous_secret_expires_at == stage.now + timedelta(seconds=60)
    client.webhooks.delete(made.id)
    assert list(client.webhooks.list()) == []


def test_deliveries_are_read_tested_and_sent_again(stage: Stage) -> None:
    client = stage.client()
    endpoint = subscribed(client)
    book(client, stage.departure())
    (delivery,) = client.webhooks.deliveries(endpoint.id)
    assert (delivery.event_type, delivery.status, delivery.trigger) == ("booking.created", "queued", "event")
    assert client.webhooks.delivery(endpoint.id, delivery.id).event_id == delivery.event_id
    ping = client.webhooks.test(endpoint.id)
    assert (ping.event_type, ping.trigger) == ("ping", "test")
    assert ids(client.webhooks.iterate_deliveries(endpoint.id, event_type="ping")) == [ping.id]
    with pytest.raises(ConflictError):
        client.webhooks.retry(endpoint.id, delivery.id)
    assert client.webhooks.redeliver(endpoint.id, delivery.event_id).id == delivery.id
    (confirmed,) = client.events.list(types=["booking.confirmed"])
    again = client.webhooks.redeliver(endpoint.id, confirmed.id)
    assert (again.event_id, again.status, again.trigger) == (confirmed.id, "queued", "redeliver")


def test_undelivered_deliveries_are_recovered(stage: Stage) -> None:
    client = stage.client()
    endpoint = subscribed(client)
    client.webhooks.update(endpoint.id, status="disabled")
    book(client, stage.departure())
    client.webhooks.update(endpoint.id, status="enabled")
    (missed,) = client.webhooks.deliveries(endpoint.id, status="failed")
    assert missed.failure_reason == "endpoint_disabled"
    for hours, matched in ((1, 0), (-1, 1)):
        since = stage.now + timedelta(hours=hours)
        assert client.webhooks.recover(endpoint.id, since=since, dry_run=True) == Recovered(id=None, matched=matched)
        recovered = client.webhooks.recover(endpoint.id, since=since)
        assert recovered.matched == matched
    (queued,) = client.webhooks.deliveries(endpoint.id, status="queued", recovery_id=recovered.id)
    assert (queued.id, queued.trigger) == (missed.id, "recover")


def test_changes_of_an_endpoint_appear_in_the_feed(stage: Stage) -> None:
    client = stage.client()
    endpoint = subscribed(client)
    client.webhooks.rotate_secret(endpoint.id)
    client.webhooks.update(endpoint.id, status="disabled")
    client.webhooks.update(endpoint.id, status="enabled")
    client.webhooks.test(endpoint.id)
    rotated, enabled, ping = client.events.follow(poll=None)
    assert isinstance(rotated, WebhookSecretRotated)
    assert isinstance(enabled, WebhookEnabled)
    assert enabled.data.object.id == endpoint.id == enabled.resource_id
    assert isinstance(ping, Ping)
    assert ping.data.object.endpoint_id == endpoint.id
    assert (ping.resource_type, ping.resource_id) == ("webhook", None)


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


def test_any_request_can_be_made(stage: Stage) -> None:
    client = stage.client()
    assert client.request("GET", "/api/v1/me", cast_to=dict)["organization"]["timezone"] == "Europe/Oslo"
    assert client.request("GET", "/api/v1/customers", params={"limit": 1}, cast_to=bytes).startswith(b"{")


# The sandbox


def test_a_sandbox_moves_its_clock_ahead(stage: Stage) -> None:
    stage.become_sandbox()
    client, start = stage.client(), stage.now
    before = client.sandbox.clock()
    assert (before.now, before.offset_seconds, before.status) == (start, 0, "ready")
    assert client.sandbox.advance(3600).now == start + timedelta(hours=1)
    moved = client.sandbox.advance_to(start + timedelta(hours=3))
    assert (moved.now, moved.offset_seconds) == (start + timedelta(hours=3), 3 * 3600)
    assert client.sandbox.wait_until_ready() == client.sandbox.clock()


def test_a_checkout_of_a_sandbox_is_paid_by_a_test_card(stage: Stage) -> None:
    stage.become_sandbox()
    client = stage.client()
    checkout = client.checkouts.create(departure_id=stage.departure(), guests=[ADULT], customer=ADA)
    assert checkout.payment.client_secret.startswith(f"{checkout.payment.intent_id}_secret_")
    declined = client.sandbox.pay_checkout(checkout.id, "pm_card_chargeDeclined")
    assert (declined.status, declined.error) == ("declined", "card_declined")
    assert declined.checkout.booking.status == "pending"
    paid = client.sandbox.pay_checkout(checkout.id)
    assert (paid.status, paid.error, paid.checkout.booking.status) == ("succeeded", None, "confirmed")
    assert paid.checkout.to_json() == client.checkouts.get(checkout.id).to_json()

"""The SDK against the service itself, in process, on both databases."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

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
    UnprocessableEntityError,
    WebhookEnabled,
    WebhookSecretRotated,
    meta,
)

NOWHERE = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"


def asked(departure: str, *, count: int = 2, **over: Any) -> dict[str, Any]:
    """Return the arguments that book a number of adults."""
    return {
        "departure_id": departure,
        "guests": [{"tier_id": "adult", "count": count}],
        "customer": {"name": "Ada Lovelace", "email": "ada@example.com", "phone": "+47 900 00 000"},
        "payment": "pay_on_site",
        **over,
    }


def book(client: Any, departure: str, **over: Any) -> Booking:
    booking: Booking = client.bookings.create(**asked(departure, **over))
    return booking


def seats(client: Any, stage: Stage, departure: str) -> int:
    page = client.availability.list(date_from=stage.now.date())
    (found,) = [one for one in page if one.id == departure]
    return int(found.seats_available)


def types_of(events: Any) -> list[str]:
    return [str(event.type) for event in events]


class TestTheService:
    @pytest.fixture
    def stage(
        self,
        session_app: TestClient,
        world: World,
        flavour: str,
        runner: asyncio.Runner,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Stage:
        # The check of a public address would query DNS, which tests must not do.
        service = session_app.app.state.service  # type: ignore[attr-defined]
        monkeypatch.setattr(service, "is_public_address", lambda url: True)
        return Stage(session_app, world, runner if flavour == "async" else None)

    # Keys

    def test_me_returns_the_organization_and_the_scopes(self, stage: Stage) -> None:
        me = stage.client(["bookings:read"]).me()
        assert (me.organization.timezone, me.organization.default_currency) == ("Europe/Oslo", "NOK")
        assert me.key.has("bookings:read")
        assert not me.key.has("bookings:write")
        assert me.key.created_at.utcoffset() is not None

    def test_an_unknown_or_revoked_key_is_refused(self, stage: Stage) -> None:
        with pytest.raises(ApiKeyInvalidError) as caught:
            stage.client_with("svc_" + "x" * 40).me()
        assert (caught.value.status_code, caught.value.code) == (401, "api_key_invalid")
        assert caught.value.request_id
        assert caught.value.body["request_id"] == caught.value.request_id
        key = stage.key()
        stage.client_with(key).me()
        stage.revoke(key)
        with pytest.raises(ApiKeyRevokedError):
            stage.client_with(key).me()

    def test_a_missing_scope_is_named(self, stage: Stage) -> None:
        with pytest.raises(InsufficientScopeError) as caught:
            book(stage.client(["bookings:read"]), NOWHERE)
        assert caught.value.required_scope == "bookings:write"
        assert not caught.value.maybe_executed

    # The catalogue and its departures

    def test_experiences_are_listed_filtered_and_got(self, stage: Stage) -> None:
        client = stage.client()
        shown, hidden = stage.experience(), stage.experience(published=False)
        assert {one.id for one in client.experiences.list()} == {shown, hidden}
        assert [one.id for one in client.experiences.list(published=True)] == [shown]
        assert [one.id for one in client.experiences.iterate(published=False)] == [hidden]
        experience = client.experiences.get(shown)
        assert [tier.id for tier in experience.price_tiers] == ["adult", "family"]
        assert str(experience.price_tiers[0].price) == "890.00 NOK"
        assert str(experience.price_from) == "890.00 NOK"
        assert [(one.id, one.name, str(one.price)) for one in experience.add_ons] == [
            ("drysuit", "Dry suit", "150.00 NOK")
        ]

    def test_updated_since_finds_later_changes(self, stage: Stage) -> None:
        client = stage.client()
        stage.experience()
        stage.advance(3600)
        later = stage.experience()
        since = stage.now - timedelta(seconds=1)
        assert [one.id for one in client.experiences.list(updated_since=since)] == [later]

    def test_departures_are_listed_by_start_with_their_seats(self, stage: Stage) -> None:
        client, experience = stage.client(), stage.experience()
        late, early = stage.departure(experience, in_days=5), stage.departure(experience, seats=3)
        page = client.availability.list(date_from=stage.now.date())
        assert [(one.id, one.seats_available, one.status) for one in page] == [(early, 3, "open"), (late, 12, "open")]
        assert not page.has_more
        assert page.data[0].starts_at == stage.now + timedelta(days=2)
        assert list(client.availability.list(date_from=stage.now.date(), experience_id=NOWHERE)) == []

    def test_a_wide_window_is_refused_in_one_question_and_split_into_several(self, stage: Stage) -> None:
        client, experience = stage.client(), stage.experience()
        starts = [stage.departure(experience, in_days=days) for days in (1, 92, 93, 94, 185, 186, 187, 250)]
        first, last = stage.now.date(), stage.now.date() + timedelta(days=250)
        with pytest.raises(UnprocessableEntityError):
            client.availability.list(date_from=first, date_to=last)
        assert [one.id for one in client.availability.iterate(date_from=first, date_to=last)] == starts
        assert [one.id for one in client.availability.iterate(date_from=first, date_to=last, max_items=3)] == starts[:3]

    def test_a_condition_of_the_caller_is_answered_as_it_came(self, stage: Stage) -> None:
        client, experience = stage.client(), stage.experience()
        first = client.with_raw_response(client.experiences.get, experience)
        sent: Any = {"headers": {"If-None-Match": f'"other", W/{first.headers["etag"]}'}}
        second = client.with_raw_response(client.experiences.get, experience, options=sent)
        assert (second.status_code, second.body, second.headers["etag"]) == (304, b"", first.headers["etag"])

    # The day

    def test_guests_are_checked_in_or_do_not_come(self, stage: Stage) -> None:
        client = stage.client()
        booking = book(client, stage.departure())
        assert (booking.checked_in_at, booking.no_show_at) == (None, None)
        stage.advance(60)
        here = client.bookings.check_in(booking.id)
        assert (here.checked_in_at, here.updated_at, here.no_show_at) == (stage.now, stage.now, None)
        stage.advance(60)
        assert client.bookings.check_in(booking.id).checked_in_at == here.checked_in_at
        gone = client.bookings.no_show(booking.id)
        assert (gone.checked_in_at, gone.no_show_at) == (None, stage.now)
        assert client.bookings.check_in(booking.id, undo=True).no_show_at == stage.now
        assert client.bookings.no_show(booking.id, undo=True).no_show_at is None
        client.bookings.cancel(booking.id)
        with pytest.raises(ConflictError) as caught:
            client.bookings.check_in(booking.id)
        assert caught.value.details[0].reason == "booking_cancelled"
        with pytest.raises(NotFoundError):
            client.bookings.no_show(NOWHERE)

    def test_a_booking_moves_as_its_preview_says(self, stage: Stage) -> None:
        client, here, there = stage.client(), stage.departure(), stage.departure()
        booking = book(client, here)
        client.bookings.check_in(booking.id)
        stage.advance(60)
        preview = client.bookings.preview_reschedule(booking.id, departure_id=there)
        assert client.bookings.get(booking.id).departure.id == here
        change = client.bookings.reschedule(booking.id, departure_id=there)
        assert change == preview
        assert (change.allowed, change.refusals, change.seats) == (True, [], 2)
        assert (change.booking.departure.id, change.booking.checked_in_at) == (there, None)
        assert (change.booking.updated_at, change.booking.totals) == (stage.now, booking.totals)
        money, full = change.money, "1780.00 NOK"
        assert (money.settlement, str(money.list_price), str(money.balance_due)) == ("price_kept", full, full)
        assert client.bookings.reschedule(booking.id, departure_id=there).booking == change.booking
        assert (seats(client, stage, here), seats(client, stage, there)) == (12, 10)
        assert types_of(client.events.iterate()).count("booking.rescheduled") == 1

    def test_a_party_changes_as_its_preview_says(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure()
        booking = book(client, departure, add_ons=[{"id": "drysuit", "count": 1}])
        stage.advance(60)
        more: Any = [{"tier_id": "adult", "count": 3}, {"tier_id": "family", "count": 1}]
        preview = client.bookings.preview_party(booking.id, guests=more)
        assert client.bookings.get(booking.id).guests == booking.guests
        change = client.bookings.change_party(booking.id, guests=more)
        assert change == preview
        total = 3 * 89000 + 250000 + 15000
        assert (change.seats, change.booking.totals.total.amount_minor) == (3 + 4, total)
        assert (change.money.settlement, change.money.balance_due.amount_minor) == ("balance_due", total)
        assert change.money.price_difference.amount_minor == 89000 + 250000
        assert (change.booking.add_ons, change.booking.updated_at) == (booking.add_ons, stage.now)
        assert seats(client, stage, departure) == 12 - 7

    def test_a_manifest_says_who_comes_and_what_is_left_to_pay(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure()
        guest = {"name": "Zoe", "email": "zoe@example.com"}
        late = book(client, departure, customer=guest, payment="external_paid", note="By the door")
        early = book(client, departure, add_ons=[{"id": "drysuit", "count": 1}])
        client.bookings.cancel(book(client, departure).id)
        client.bookings.check_in(late.id)
        manifest = client.departures.manifest(departure)
        assert [each.id for each in manifest.data] == [early.id, late.id]
        assert [each.unpaid.amount_minor for each in manifest.data] == [2 * 89000 + 15000, 0]
        assert [each.customer.name for each in manifest.data] == ["Ada Lovelace", "Zoe"]
        assert (manifest.data[1].note, manifest.data[1].manage_url) == ("By the door", None)
        totals = manifest.totals
        assert (totals.bookings, totals.checked_in, totals.no_shows) == (2, 1, 0)
        assert (totals.guests, totals.add_ons) == ({"Adult": 4}, {"Dry suit": 1})
        assert [str(each) for each in totals.unpaid] == ["1930.00 NOK"]
        shown = manifest.departure
        assert (shown.id, shown.seats_sold, shown.seats_available) == (departure, 4, 8)
        assert (shown.bookings.pending, shown.bookings.confirmed, shown.bookings.cancelled) == (0, 2, 1)
        assert shown.experience.title == late.experience.title
        with pytest.raises(InsufficientScopeError):
            stage.client(["availability:read"]).departures.manifest(departure)
        with pytest.raises(NotFoundError):
            client.departures.manifest(NOWHERE)

    # Creating

    def test_a_booking_is_confirmed_numbered_and_priced(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure()
        lines = [{"tier_id": "adult", "count": 1}, {"tier_id": "family", "count": 1}]
        booking = book(client, departure, guests=lines, add_ons=[{"id": "drysuit", "count": 2}], note="By the door")
        assert (booking.booking_number, booking.status, booking.source) == (1, "confirmed", "api")
        assert booking.totals.total.amount_minor == 89000 + 250000 + 2 * 15000
        payment = booking.payment
        assert (payment.method, payment.source, payment.status) == ("pay_on_site", "on_site", "unpaid")
        assert (booking.customer.email, booking.note) == ("ada@example.com", "By the door")
        assert booking.departure.id == departure
        assert seats(client, stage, departure) == 12 - 5
        assert meta(booking).created
        assert not meta(booking).idempotent_replayed
        assert client.bookings.get(booking.id) == booking
        assert list(client.bookings.list()) == [booking]

    def test_a_booking_that_is_read_has_the_terms_of_its_cancellation(self, stage: Stage) -> None:
        client = stage.client()
        booking = book(client, stage.departure())
        terms = booking.cancellation
        assert terms is not None
        assert terms == client.bookings.get(booking.id).cancellation
        assert (terms.allowed, terms.refundable_amount.amount_minor, terms.late_percent) == (True, 0, 0)
        assert booking.departure.starts_at - terms.until == timedelta(hours=24)
        cancelled = client.bookings.cancel(booking.id)
        assert cancelled.cancellation is not None
        assert not cancelled.cancellation.allowed
        assert cancelled == client.bookings.get(booking.id)

    def test_a_booking_is_found_by_departure_customer_number_and_address(self, stage: Stage) -> None:
        client, first, second = stage.client(), stage.departure(), stage.departure()
        bookings = [book(client, departure) for departure in (first, second)]
        owner = client.customers.list(email=(bookings[0].customer.email or "").upper()).data[0]
        by: list[tuple[dict[str, Any], list[int]]] = [
            ({"departure_id": first}, [0]),
            ({"customer_id": owner.id}, [0, 1]),
            ({"customer_id": first}, []),
            ({"email": owner.email.upper()}, [0, 1]),
            ({"email": "nobody@example.com"}, []),
            ({"booking_number": bookings[1].booking_number}, [1]),
            ({"booking_number": bookings[1].booking_number, "departure_id": first}, []),
        ]
        for filters, found in by:
            ids = [each.id for each in client.bookings.iterate(**filters, order="asc")]
            assert ids == [bookings[number].id for number in found], filters

    def test_a_booking_keeps_a_reference_and_metadata_and_is_found_by_it(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure()
        notes = {"channel": "acme", "remarks": "by the door"}
        booking = book(client, departure, external_reference="A-1", external_reference_unique=True, metadata=notes)
        other = book(client, departure)
        assert (booking.external_reference, booking.metadata) == ("A-1", notes)
        assert (other.external_reference, other.metadata) == (None, {})
        for reference, found in (("A-1", [booking.id]), ("A-2", [])):
            assert [each.id for each in client.bookings.iterate(external_reference=reference)] == found
        with pytest.raises(ConflictError) as caught:
            book(client, departure, external_reference="A-1", external_reference_unique=True)
        (detail,) = caught.value.details
        assert (detail.reason, detail.field) == ("external_reference_taken", "external_reference")
        assert book(client, departure, external_reference="A-1").external_reference == "A-1"
        with pytest.raises(BadRequestError):
            book(client, departure, metadata={"no blanks": ""})

    def test_a_booking_has_the_language_that_was_given_with_it(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure()
        for locale in ("de-AT", None):
            booking = book(client, departure, locale=locale)
            assert (booking.locale, client.bookings.get(booking.id).locale) == (locale, locale)

    def test_held_seats_are_booked_once_released_or_expire(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure(seats=5)
        hold = client.holds.create(departure_id=departure, seats=4)
        assert (hold.status, hold.seats, hold.departure_id, hold.booking_id) == ("live", 4, departure, None)
        assert hold.expires_at - hold.created_at == timedelta(minutes=10)
        assert seats(client, stage, departure) == 1
        with pytest.raises(InsufficientCapacityError) as full:
            book(client, departure)
        assert full.value.seats_available == 1
        booking = book(client, departure, hold_id=hold.id)
        used = client.holds.get(hold.id)
        assert (used.status, used.booking_id) == ("booked", booking.id)
        assert seats(client, stage, departure) == 3
        other = client.holds.create(departure_id=departure, seats=1, expires_in_seconds=60)
        client.holds.delete(other.id)
        client.holds.delete(other.id)
        assert client.holds.get(other.id).status == "released"
        with pytest.raises(NotFoundError):
            client.holds.get(NOWHERE)

    def test_a_quote_has_the_price_and_each_reason_of_a_refusal(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure(seats=5)
        lines = [{"tier_id": "adult", "count": 1}, {"tier_id": "family", "count": 1}]
        quote = client.bookings.quote(departure_id=departure, guests=lines)
        assert (quote.allowed, quote.refusals, quote.seats, quote.seats_available) == (True, [], 5, 5)
        assert quote.totals is not None
        assert quote.totals.total.amount_minor == 89000 + 250000
        hold = client.holds.create(departure_id=departure, seats=5)
        assert client.bookings.quote(departure_id=departure, guests=lines, hold_id=hold.id).allowed
        wrong = [*lines, {"tier_id": "senior", "count": 1}]
        refused = client.bookings.quote(departure_id=departure, guests=wrong, hold_id=NOWHERE)
        assert [(each.code, each.reason, each.field) for each in refused.refusals] == [
            ("not_found", "unknown_hold", "hold_id"),
            ("validation_failed", "unknown_tier", "guests.2.tier_id"),
            ("insufficient_capacity", None, None),
        ]
        assert (refused.allowed, refused.totals, refused.refusals[-1].seats_available) == (False, None, 0)

    def test_departures_of_a_day_are_those_of_availability(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure()
        day = (stage.now + timedelta(days=2)).date()
        found = client.departures.list(day=day)
        assert [each.id for each in found] == [departure]
        assert found.data == client.availability.list(date_from=day, date_to=day).data
        shown = client.departures.get(departure)
        assert found.data == client.departures.list(day=day, experience_id=shown.experience_id).data == [shown]
        assert (shown.starts_at_local, shown.timezone) == (shown.starts_at.replace(tzinfo=None), "Europe/Oslo")
        prices = {tier.id: str(tier.price) for tier in shown.price_tiers}
        assert prices == {"adult": "890.00 NOK", "family": "2500.00 NOK"}
        assert not client.departures.list(day=day, experience_id=NOWHERE).data
        with pytest.raises(NotFoundError):
            client.departures.get(NOWHERE)

    def test_the_guests_link_is_only_for_writers_and_ends_with_the_departure(self, stage: Stage) -> None:
        client, reader = stage.client(), stage.client(["bookings:read"])
        booking = book(client, stage.departure())
        assert booking.manage_url
        assert booking.manage_url not in repr(booking)
        assert client.bookings.get(booking.id).manage_url == booking.manage_url
        for days, late in ((0, reader), (10, client)):
            stage.advance(days * 86_400)
            assert late.bookings.get(booking.id).manage_url is None
            assert [one.manage_url for one in late.bookings.list()] == [None]
        assert client.bookings.cancel(booking.id).manage_url is None

    def test_a_key_is_for_one_booking(self, stage: Stage) -> None:
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
        assert seats(client, stage, departure) == 10

    @pytest.mark.parametrize(
        ("over", "field"),
        [
            ({"guests": [{"tier_id": "adult", "count": 0}]}, "guests.0.count"),
            ({"guests": []}, "guests"),
            ({"note": "x" * 2001}, "note"),
            ({"customer": {"name": "Ada", "email": "nobody"}}, "customer.email"),
            ({"payment": "card"}, "payment"),
            ({"departure_id": "tomorrow"}, "departure_id"),
        ],
    )
    def test_a_request_of_the_wrong_shape_names_the_field(self, stage: Stage, over: dict[str, Any], field: str) -> None:
        with pytest.raises(BadRequestError) as caught:
            book(stage.client(), stage.departure(), **over)
        assert caught.value.code == "validation_failed"
        assert caught.value.details[0].field == field

    def test_a_booking_without_a_key_is_refused(self, stage: Stage) -> None:
        client = stage.client()
        with pytest.raises(IdempotencyKeyRequiredError):
            client.request("POST", "/api/v1/bookings", json=asked(stage.departure()), cast_to=dict)
        with pytest.raises(BadRequestError):
            client.request("POST", "/api/v1/bookings", json=[1], idempotency_key="order-0004", cast_to=dict)

    # Cancelling

    def test_cancelling_gives_the_seats_back_once(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure()
        booking = book(client, departure, count=5)
        stage.advance(60)
        cancelled = client.bookings.cancel(booking.id, reason="The guest is ill")
        assert cancelled.status == "cancelled"
        assert cancelled.updated_at == booking.created_at + timedelta(seconds=60)
        assert seats(client, stage, departure) == 12
        assert client.bookings.cancel(booking.id) == cancelled
        assert types_of(client.events.iterate()).count("booking.cancelled") == 1

    # Lists

    def test_pages_cover_the_whole_list_once(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure(seats=50)
        made = [book(client, departure, count=1).id for _ in range(7)]
        page, seen = client.bookings.list(limit=3, order="asc"), []
        while page is not None:
            seen.append([booking.id for booking in page])
            page = page.next_page()
        assert seen == [made[:3], made[3:6], made[6:]]
        assert [one.id for one in client.bookings.iterate(page_size=2)] == made[::-1]
        assert [one.id for one in client.bookings.iterate(page_size=2, max_items=5, order="asc")] == made[:5]
        walk = client.bookings.iterate(order="asc", page_size=2)
        assert [one.id for one in walk.take(4)] == made[:4]
        rest = client.bookings.iterate(order="asc", page_size=2, starting_after=walk.cursor)
        assert [one.id for one in rest] == made[2:]

    def test_bookings_are_filtered(self, stage: Stage) -> None:
        client = stage.client()
        near, far = stage.departure(in_days=2), stage.departure(in_days=40)
        first, second = book(client, near), book(client, far)
        client.bookings.cancel(first.id)
        assert [one.id for one in client.bookings.list(status="cancelled")] == [first.id]
        assert [one.id for one in client.bookings.list(experience_id=second.experience.id)] == [second.id]
        assert [one.id for one in client.bookings.list(departure_from=far_day(second))] == [second.id]
        assert [one.id for one in client.bookings.list(departure_to=far_day(first))] == [first.id]
        with pytest.raises(UnprocessableEntityError):
            client.bookings.list(departure_from=far_day(first), departure_to=far_day(first) + timedelta(days=93))

    def test_a_cursor_opens_only_its_own_list(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure(seats=50)
        for _ in range(3):
            book(client, departure, count=1)
        cursor = client.bookings.list(limit=2).next_cursor
        changed = ("B" if cursor[0] == "A" else "A") + cursor[1:]
        for list_, keywords in (
            (client.bookings.list, {"starting_after": changed}),
            (client.bookings.list, {"starting_after": cursor, "order": "asc"}),
            (client.bookings.list, {"starting_after": cursor, "status": "confirmed"}),
            (client.customers.list, {"starting_after": cursor}),
        ):
            with pytest.raises(BadRequestError) as caught:
                list_(**keywords)
            assert caught.value.details[0].reason == "invalid_cursor"

    # Customers

    def test_a_customer_is_created_once_and_reused(self, stage: Stage) -> None:
        client = stage.client()
        new = client.customers.create(email="Åse@example.com", name="Åse", phone="+47 1", email_subscription=True)
        assert meta(new).created
        assert new.email_subscription
        same = client.customers.create(email="åse@EXAMPLE.com", name="Somebody")
        assert same == new
        assert not meta(same).created
        assert client.customers.get(new.id) == new
        assert [one.id for one in client.customers.list(email="ÅSE@example.com")] == [new.id]
        assert types_of(client.events.iterate()) == ["customer.created"]
        made = [new.id, *(client.customers.create(email=f"{n}@example.com", name="N").id for n in range(2))]
        assert [one.id for one in client.customers.iterate(order="asc", page_size=1)] == made
        assert client.customers.iterate().first().id == made[-1]

    # Gift cards

    def test_a_gift_cards_code_is_shown_only_when_asked_for_and_never_printed(self, stage: Stage) -> None:
        client, card_id = stage.client(), stage.gift_card("GIFT-9Q4T-7K2M")
        (listed,) = client.gift_cards.list(status="active")
        assert (listed.id, listed.code_last4, listed.code) == (card_id, "7K2M", None)
        assert listed.balance.amount_minor == 50_000
        assert client.gift_cards.get(card_id).code is None
        card = client.gift_cards.get(card_id, include_code=True)
        assert card.code == "GIFT-9Q4T-7K2M"
        assert "9Q4T" not in repr(card)
        assert list(client.gift_cards.iterate(status="expired")) == []

    # Events

    def test_the_feed_tells_what_happened_in_order(self, stage: Stage) -> None:
        client = stage.client()
        booking = book(client, stage.departure())
        client.bookings.cancel(booking.id)
        events = list(client.events.iterate(order="asc"))
        assert types_of(events) == ["customer.created", "booking.created", "booking.confirmed", "booking.cancelled"]
        assert [event.sequence for event in events] == [1, 2, 3, 4]
        created, cancelled = events[1], events[3]
        assert isinstance(created, BookingCreated)
        assert created.data.object == booking.model_copy(update={"manage_url": None, "cancellation": None})
        assert (created.resource_type, created.resource_id) == ("booking", booking.id)
        assert isinstance(cancelled, BookingCancelled)
        assert cancelled.data.reason == "api"
        assert client.events.get(created.id) == created
        assert types_of(client.events.list(limit=2)) == ["booking.cancelled", "booking.confirmed"]

    def test_the_feed_is_filtered(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure()
        first, _ = book(client, departure), book(client, departure)
        assert types_of(client.events.list(types=["customer.*"])) == ["customer.created"]
        assert len(client.events.list(types=["booking.created", "customer.created"])) == 3
        assert {event.data.object.id for event in client.events.list(resource_id=first.id)} == {first.id}
        assert len(client.events.list(resource_type="booking")) == 4
        stage.advance(3600)
        client.bookings.cancel(first.id)
        since = stage.now - timedelta(minutes=1)
        assert types_of(client.events.list(created_since=since)) == ["booking.cancelled"]
        assert len(client.events.list(created_until=since)) == 5

    def test_the_feed_is_followed_to_its_end_and_later_beyond(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure(seats=200)
        feed = client.events.follow(poll=None)
        assert list(feed) == []
        book(client, departure)
        happened = ["customer.created", "booking.created", "booking.confirmed"]
        assert types_of(client.events.follow(poll=None, after=feed.checkpoint)) == happened
        feed = client.events.follow(poll=None)
        next(iter(feed))
        book(client, departure)
        after = client.events.follow(poll=None, after=feed.checkpoint)
        assert [event.sequence for event in after] == [2, 3, 4, 5]
        assert list(client.events.follow(poll=None, after=after.checkpoint)) == []

    def test_a_checkpoint_stands_anywhere_in_a_page(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("booking_sdk._feed_reader.PAGE_LIMIT_MAX", 10)
        client, departure = stage.client(), stage.departure(seats=200)
        for _ in range(12):
            book(client, departure, count=1)
        sequences, checkpoint = [], None
        for _ in range(25):
            feed = client.events.follow(poll=None, after=checkpoint)
            sequences.append(next(iter(feed)).sequence)
            checkpoint = feed.checkpoint
        assert sequences == list(range(1, 26))
        assert list(client.events.follow(poll=None, after=checkpoint)) == []

    def test_a_feed_can_begin_at_an_instant_and_keep_to_it(self, stage: Stage) -> None:
        client, departure = stage.client(), stage.departure()
        booking = book(client, departure)
        stage.advance(3600)
        feed = client.events.follow(poll=None, since=stage.now)
        client.bookings.cancel(booking.id)
        assert types_of(feed) == ["booking.cancelled"]
        stage.advance(3600)
        book(client, departure)
        again = client.events.follow(poll=None, since=stage.now, after=feed.checkpoint)
        assert types_of(again) == ["booking.created", "booking.confirmed"]

    def test_a_checkpoint_belongs_to_its_types(self, stage: Stage) -> None:
        client = stage.client()
        book(client, stage.departure())
        feed = client.events.follow(poll=None, types=["booking.*"])
        assert types_of(feed) == ["booking.created", "booking.confirmed"]
        with pytest.raises(BadRequestError):
            list(client.events.follow(poll=None, types=["customer.*"], after=feed.checkpoint))

    # Webhooks

    def test_an_endpoint_lives_and_dies(self, stage: Stage) -> None:
        client = stage.client()
        made = client.webhooks.create(
            url="https://hooks.example.com/in", event_types=["booking.created"], description="Till"
        )
        assert made.secret.startswith("whsec_")
        assert made.secret not in repr(made)
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
        with pytest.raises(NotFoundError):
            client.webhooks.get(made.id)

    def test_an_event_is_queued_for_who_listens(self, stage: Stage) -> None:
        client = stage.client()
        endpoint = client.webhooks.create(url="https://hooks.example.com/in", event_types=["booking.created"])
        book(client, stage.departure())
        (delivery,) = client.webhooks.deliveries(endpoint.id)
        assert (delivery.event_type, delivery.status, delivery.trigger) == ("booking.created", "queued", "event")
        assert client.webhooks.delivery(endpoint.id, delivery.id).event_id == delivery.event_id
        ping = client.webhooks.test(endpoint.id)
        assert (ping.event_type, ping.trigger) == ("ping", "test")
        found = client.webhooks.iterate_deliveries(endpoint.id, event_type="ping")
        assert [one.id for one in found] == [ping.id]
        with pytest.raises(ConflictError):
            client.webhooks.retry(endpoint.id, delivery.id)

    def test_undelivered_deliveries_are_recovered(self, stage: Stage) -> None:
        client = stage.client()
        endpoint = client.webhooks.create(url="https://hooks.example.com/in", event_types=["booking.created"])
        client.webhooks.update(endpoint.id, status="disabled")
        book(client, stage.departure())
        client.webhooks.update(endpoint.id, status="enabled")
        (missed,) = client.webhooks.deliveries(endpoint.id, status="failed")
        assert missed.failure_reason == "endpoint_disabled"
        assert client.webhooks.recover(endpoint.id, since=stage.now + timedelta(hours=1)).matched == 0
        assert client.webhooks.recover(endpoint.id, since=stage.now - timedelta(hours=1)).matched == 1
        (queued,) = client.webhooks.deliveries(endpoint.id, status="queued")
        assert (queued.id, queued.trigger) == (missed.id, "recover")
        client.webhooks.update(endpoint.id, status="disabled")
        with pytest.raises(ConflictError) as caught:
            client.webhooks.recover(endpoint.id, since=stage.now)
        assert caught.value.details[0].reason == "endpoint_not_enabled"

    def test_any_event_is_delivered_again(self, stage: Stage) -> None:
        client = stage.client()
        endpoint = client.webhooks.create(url="https://hooks.example.com/in", event_types=["booking.created"])
        book(client, stage.departure())
        (queued,) = client.webhooks.deliveries(endpoint.id)
        assert client.webhooks.redeliver(endpoint.id, queued.event_id).id == queued.id
        (confirmed,) = client.events.list(types=["booking.confirmed"])
        unasked = client.webhooks.redeliver(endpoint.id, confirmed.id)
        assert (unasked.event_id, unasked.status, unasked.trigger) == (confirmed.id, "queued", "redeliver")
        with pytest.raises(UnprocessableEntityError) as caught:
            client.webhooks.redeliver(endpoint.id, NOWHERE)
        assert caught.value.details[0].reason == "unknown_event"

    def test_changes_of_an_endpoint_appear_in_the_feed(self, stage: Stage) -> None:
        client = stage.client()
        endpoint = client.webhooks.create(url="https://hooks.example.com/in", event_types=["booking.created"])
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

    def test_an_answer_can_be_had_as_it_came(self, stage: Stage) -> None:
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

    def test_any_request_can_be_made(self, stage: Stage) -> None:
        client = stage.client()
        body = client.request("GET", "/api/v1/me", cast_to=dict)
        assert body["organization"]["timezone"] == "Europe/Oslo"
        assert client.request("GET", "/api/v1/customers", params={"limit": 1}, cast_to=bytes).startswith(b"{")
        with pytest.raises(NotFoundError):
            client.request("GET", "/api/v1/spaceships", cast_to=dict)
        with pytest.raises(APIStatusError) as caught:
            client.request("POST", "/api/v1/me", json={}, cast_to=dict)
        assert (caught.value.status_code, caught.value.headers["allow"]) == (405, "GET")
        assert type(caught.value) is APIStatusError

    # The sandbox

    def test_a_sandbox_moves_its_clock_ahead(self, stage: Stage) -> None:
        stage.become_sandbox()
        client = stage.client()
        before = client.sandbox.clock()
        assert (before.now, before.offset_seconds, before.status) == (stage.now, 0, "ready")
        start = stage.now
        assert client.sandbox.advance(3600).now == start + timedelta(hours=1)
        moved = client.sandbox.advance_to(start + timedelta(hours=3))
        assert (moved.now, moved.offset_seconds) == (start + timedelta(hours=3), 3 * 3600)
        assert client.sandbox.wait_until_ready() == client.sandbox.clock()

    def test_a_checkout_of_a_sandbox_is_paid_by_a_test_card(self, stage: Stage) -> None:
        stage.become_sandbox()
        client, departure = stage.client(), stage.departure(seats=5)
        guest = {"name": "Ada Lovelace", "email": "ada@example.com"}
        one = [{"tier_id": "adult", "count": 1}]
        make = lambda: client.checkouts.create(departure_id=departure, guests=one, customer=guest)  # noqa: E731
        checkout = make()
        assert checkout.payment.client_secret.startswith(f"{checkout.payment.intent_id}_secret_")
        declined = client.sandbox.pay_checkout(checkout.id, "pm_card_chargeDeclined")
        assert (declined.status, declined.error) == ("declined", "card_declined")
        assert declined.checkout.booking.status == "pending"
        paid = client.sandbox.pay_checkout(checkout.id)
        assert (paid.status, paid.error, paid.checkout.booking.status) == ("succeeded", None, "confirmed")
        read = client.checkouts.get(checkout.id)
        assert paid.checkout.to_json() == read.to_json()
        with pytest.raises(ConflictError) as caught:
            client.sandbox.pay_checkout(checkout.id)
        assert caught.value.details[0].reason == "paid_already"
        for unknown in (str(uuid4()), book(client, departure).id):
            with pytest.raises(NotFoundError):
                client.sandbox.pay_checkout(unknown)


def far_day(booking: Booking) -> Any:
    return booking.departure.starts_at.date()

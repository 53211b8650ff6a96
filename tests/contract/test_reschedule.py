"""Moves of bookings over HTTP with their preview, and the terms of a cancellation."""

from typing import Any

import pytest
from support.api.api import Api, body_of
from support.api.refusals import nothing_changes, refused
from support.world.operations import Operations
from support.world.world import DAY, NOON

from booking_core import bookings
from booking_core.base.clock import HOUR
from booking_core.db import tables
from booking_core.models.bookings import BookingChange, PaymentMode


@pytest.fixture
def experience(api: Api) -> str:
    return api.world.experience()


@pytest.fixture
def saturday(api: Api, experience: str) -> str:
    return api.world.departure(experience, seats=5)


@pytest.fixture
def sunday(api: Api, experience: str) -> str:
    return api.world.departure(experience, seats=5, starts_at=NOON + 3 * DAY)


def path_of(booking_id: str, end: str = "reschedule") -> str:
    return f"/bookings/{booking_id}/{end}"


def moved(api: Api, booking_id: str, departure_id: str) -> dict[str, Any]:
    return dict(body_of(api.post(path_of(booking_id), {"departure_id": departure_id})))


def previewed(api: Api, booking_id: str, departure_id: str) -> dict[str, Any]:
    with nothing_changes(api.world):
        body = {"departure_id": departure_id}
        return dict(body_of(api.call("POST", path_of(booking_id, "reschedule/preview"), json=body)))


def reasons(change: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(refusal["code"], refusal["reason"]) for refusal in change["refusals"]]


def test_a_move_is_as_its_preview_said(api: Api, ops: Operations, saturday: str, sunday: str) -> None:
    before = api.book(saturday, count=3).json()
    api.world.clock.advance(HOUR)
    preview = previewed(api, before["id"], sunday)
    change = moved(api, before["id"], sunday)
    assert change == preview
    assert BookingChange.model_validate(change).to_json() == change
    booking = change.pop("booking")
    assert change == {
        "allowed": True,
        "refusals": [],
        "seats": 3,
        "money": {
            "settlement": "price_kept",
            "price_difference": {"amount_minor": 0, "currency": "NOK"},
            "list_price": {"amount_minor": 267000, "currency": "NOK"},
            "refund": {"amount_minor": 0, "currency": "NOK"},
            "gift_card_refund": {"amount_minor": 0, "currency": "NOK"},
            "kept": {"amount_minor": 0, "currency": "NOK"},
            "balance_due": {"amount_minor": 267000, "currency": "NOK"},
        },
    }
    assert booking == api.get(f"/bookings/{before['id']}").json()
    unchanged = set(before) - {"departure", "updated_at", "cancellation"}
    assert {name: booking[name] for name in unchanged} == {name: before[name] for name in unchanged}
    assert (ops.seats_taken(saturday), ops.seats_taken(sunday)) == (0, 3)
    assert api.event_types().count("booking.rescheduled") == 1
    assert "booking_rescheduling_mail" in ops.outbox_kinds(before["id"])
    assert api.world.examine() == []


def test_a_move_to_where_the_booking_is_changes_nothing(api: Api, saturday: str) -> None:
    booking = api.book(saturday, count=5).json()
    assert previewed(api, booking["id"], saturday)["booking"] == booking
    before = api.world.rows(tables.events)
    assert moved(api, booking["id"], saturday)["booking"] == booking
    assert api.world.rows(tables.events) == before


def test_a_preview_has_each_reason_and_a_move_answers_the_first(api: Api, ops: Operations, saturday: str) -> None:
    booking_id = api.book(saturday, count=2).json()["id"]
    other = api.world.departure(api.world.experience(slug="other", currency="EUR"), seats=1)
    ops.close(other)
    change = previewed(api, booking_id, other)
    assert (change["allowed"], change["money"], change["booking"]["departure"]["id"]) == (False, None, saturday)
    expected = [("conflict", "departure_closed"), ("validation_failed", "currency_mismatch")]
    assert reasons(change) == [*expected, ("insufficient_capacity", None)]
    assert change["refusals"][2]["seats_available"] == 1
    with nothing_changes(api.world, leaving_out={"idempotency"}):
        body = refused(api.post(path_of(booking_id), {"departure_id": other}), 409, "conflict")
    assert (body["details"][0]["reason"], body["error"]) == ("departure_closed", change["refusals"][0]["message"])


def test_every_refusal_has_its_code(api: Api, ops: Operations, experience: str, saturday: str) -> None:
    cancelled, live = api.book(saturday).json()["id"], api.book(saturday, count=2).json()["id"]
    full = api.world.departure(experience, seats=1, starts_at=NOON + 4 * DAY)
    over = api.world.departure(experience, starts_at=NOON - HOUR)
    called_off = api.world.departure(experience, starts_at=NOON + 5 * DAY)
    api.cancel(cancelled)
    ops.cancel_departure(called_off)
    cases = {
        (cancelled, full): ("conflict", "booking_cancelled"),
        (live, over): ("conflict", "departure_started"),
        (live, called_off): ("conflict", "departure_cancelled"),
        (live, full): ("insufficient_capacity", None),
    }
    for (booking_id, departure_id), (code, reason) in cases.items():
        body = refused(api.post(path_of(booking_id), {"departure_id": departure_id}), 409, code)
        assert reason == (body["details"][0]["reason"] if "details" in body else None)
        assert reasons(previewed(api, booking_id, departure_id)) == [(code, reason)]
    assert api.world.examine() == []


def test_a_held_seat_is_not_free_for_a_move(api: Api, ops: Operations, saturday: str, sunday: str) -> None:
    booking_id = api.book(saturday, count=3).json()["id"]
    ops.hold(sunday, 3)
    assert previewed(api, booking_id, sunday)["refusals"][0]["seats_available"] == 2
    body = refused(api.post(path_of(booking_id), {"departure_id": sunday}), 409, "insufficient_capacity")
    assert body["seats_available"] == 2


def test_the_list_price_is_that_of_the_new_departure(api: Api, saturday: str) -> None:
    booking_id = api.book(saturday, count=2).json()["id"]
    dearer = api.world.departure(api.world.experience(slug="walk", price_tiers="[]", price_from_minor=500000))
    change = moved(api, booking_id, dearer)
    assert change["money"]["list_price"] is None  # it sells no tier `adult`
    assert change["booking"]["experience"]["slug"] == "walk"


@pytest.mark.parametrize("end", ["reschedule", "reschedule/preview"])
def test_a_move_needs_a_departure(api: Api, saturday: str, end: str) -> None:
    booking_id = api.book(saturday).json()["id"]
    for body in ({}, {"departure_id": "nowhere"}, {"departure_id": None}):
        refused(api.post(path_of(booking_id, end), body), 400, "validation_failed")


def test_moves_and_previews_take_as_many_statements_as_they_need(
    api: Api, saturday: str, sunday: str, statements: list[str]
) -> None:
    booking_id = api.book(saturday).json()["id"]
    body = {"departure_id": sunday}
    statements.clear()
    assert api.call("POST", path_of(booking_id, "reschedule/preview"), json=body).status_code == 200
    assert len(statements) == 4  # the key; the booking's details, the booking, the departure
    statements.clear()
    assert api.post(path_of(booking_id), body).status_code == 200
    assert len(statements) == (13 if api.world.database.is_sqlite else 9)


# Terms of a cancellation ---------------------------------------------------------------------------------------------


START = NOON + 2 * DAY
UNTIL = START - 24 * HOUR


def terms(api: Api, booking_id: str) -> dict[str, Any]:
    cancellation: dict[str, Any] = api.get(f"/bookings/{booking_id}").json()["cancellation"]
    listed = api.get("/bookings").json()["data"]
    assert [booking["cancellation"] for booking in listed if booking["id"] == booking_id] == [cancellation]
    return cancellation


def paid_by_card(ops: Operations, departure: str) -> str:
    booking_id: str = ops.check_out(departure, 2)["id"]
    ops.pay(booking_id)
    return booking_id


def paid_by_hand(ops: Operations, departure: str) -> str:
    booking_id: str = ops.book(departure, 2, payment=PaymentMode.PAY_ON_SITE)["id"]
    ops.act(lambda tx, actor: bookings.record_payment(tx, actor, booking_id, amount_minor=100_000))
    return booking_id


def paid_by_gift_card(ops: Operations, departure: str) -> str:
    _, code = ops.issue(60_000)
    booking_id: str = ops.check_out(departure, 1, gift_card_code=code)["id"]
    ops.pay(booking_id)
    return booking_id


def unpaid(ops: Operations, departure: str) -> str:
    return str(ops.check_out(departure, 1)["id"])


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("make", "paid_minor", "gift_minor"),
    [(paid_by_card, 178_000, 0), (paid_by_hand, 100_000, 0), (paid_by_gift_card, 29_000, 60_000), (unpaid, 0, 0)],
)
@pytest.mark.parametrize(("at", "percent"), [(UNTIL, 100), (UNTIL + 1, 30)], ids=["in time", "late"])
def test_a_cancellation_returns_what_the_booking_said_before(
    api: Api, make: Any, paid_minor: int, gift_minor: int, at: int, percent: int
) -> None:
    ops = Operations(api.world)
    api.world.change(tables.organizations, api.world.org, refund_late_percent=30)
    booking_id = make(ops, api.world.departure(api.world.experience(), starts_at=START))
    api.world.clock.advance(at - api.world.clock())
    cancellation = terms(api, booking_id)
    assert cancellation == {
        "allowed": True,
        "refundable_amount": {"amount_minor": paid_minor * percent // 100, "currency": "NOK"},
        "gift_card_amount": {"amount_minor": gift_minor, "currency": "NOK"},
        "until": "2026-11-22T13:00:00+01:00",
        "late_percent": 30,
        "guest_until": "2026-11-23T13:00:00+01:00",
    }
    cancelled = api.cancel(booking_id).json()["cancellation"]
    refunds = sum(row["amount_minor"] for row in api.world.rows(tables.refunds))
    restored = sum(row["amount_minor"] for row in api.world.rows(tables.gift_card_entries) if row["kind"] == "restore")
    assert (refunds, restored) == (cancellation["refundable_amount"]["amount_minor"], gift_minor)
    after = terms(api, booking_id)
    assert after == cancelled
    assert (after["allowed"], after["refundable_amount"]["amount_minor"], after["gift_card_amount"]) == (
        False,
        0,
        {"amount_minor": 0, "currency": "NOK"},
    )


@pytest.mark.one_database
def test_a_replay_and_an_event_keep_the_terms_of_their_instant(api: Api) -> None:
    departure = api.world.departure(api.world.experience())
    created = api.book(departure, key="created-once").json()
    assert api.get(f"/bookings/{created['id']}").json() == created
    api.cancel(created["id"])
    assert api.book(departure, key="created-once").json() == created
    published = api.get("/events", resource_type="booking", order="asc").json()["data"]
    assert [event["data"]["object"]["cancellation"]["allowed"] for event in published] == [True, True, False]


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("hours", "until"),
    [(36, "2026-11-22T01:00:00+01:00"), (0, "2026-11-23T13:00:00+01:00"), (None, None)],
)
def test_each_response_and_event_says_until_when_guests_cancel(api: Api, hours: int | None, until: str | None) -> None:
    api.world.change(tables.organizations, api.world.org, guest_cancel_until_hours=hours)
    departure = api.world.departure(api.world.experience(), starts_at=START)
    booking_id = api.book(departure).json()["id"]
    assert terms(api, booking_id)["guest_until"] == until
    published = api.get("/events", resource_type="booking").json()["data"]
    assert [event["data"]["object"]["cancellation"]["guest_until"] for event in published] == [until, until]
    cancelled = api.cancel(booking_id).json()
    assert cancelled["cancellation"]["guest_until"] is None


@pytest.mark.one_database
def test_the_guest_s_deadline_follows_a_move(api: Api) -> None:
    api.world.change(tables.organizations, api.world.org, guest_cancel_until_hours=24)
    experience = api.world.experience()
    first, later = (api.world.departure(experience, starts_at=START + days * DAY) for days in (0, 7))
    booking_id = api.book(first).json()["id"]
    moved = api.post(f"/bookings/{booking_id}/reschedule", {"departure_id": later}).json()
    assert moved["booking"]["cancellation"]["guest_until"] == "2026-11-29T13:00:00+01:00"
    (event,) = api.get("/events", type="booking.rescheduled").json()["data"]
    assert event["data"]["object"]["cancellation"] == moved["booking"]["cancellation"]

"""The terms of a cancellation on a booking that is read, and that a cancellation keeps to them."""

from typing import Any

import pytest
from support.api.api import Api
from support.world.operations import Operations
from support.world.world import DAY, NOON

from booking_core import bookings
from booking_core.base.clock import HOUR
from booking_core.db import tables
from booking_core.models.bookings import PaymentMode

pytestmark = pytest.mark.one_database
START = NOON + 2 * DAY
UNTIL = START - 24 * HOUR


def terms(api: Api, booking_id: str) -> dict[str, Any]:
    shown: dict[str, Any] = api.get(f"/bookings/{booking_id}").json()["cancellation"]
    assert [each["cancellation"] for each in api.get("/bookings").json()["data"] if each["id"] == booking_id] == [shown]
    return shown


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
    shown = terms(api, booking_id)
    assert shown == {
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
    assert (refunds, restored) == (shown["refundable_amount"]["amount_minor"], gift_minor)
    after = terms(api, booking_id)
    assert after == cancelled
    assert (after["allowed"], after["refundable_amount"]["amount_minor"], after["gift_card_amount"]) == (
        False,
        0,
        {"amount_minor": 0, "currency": "NOK"},
    )


def test_a_replay_and_an_event_keep_the_terms_of_their_instant(api: Api) -> None:
    departure = api.world.departure(api.world.experience())
    created = api.book(departure, key="created-once").json()
    assert api.get(f"/bookings/{created['id']}").json() == created
    api.cancel(created["id"])
    assert api.book(departure, key="created-once").json() == created
    published = api.get("/events", resource_type="booking", order="asc").json()["data"]
    assert [each["data"]["object"]["cancellation"]["allowed"] for each in published] == [True, True, False]


@pytest.mark.parametrize(
    ("hours", "until"),
    [(36, "2026-11-22T01:00:00+01:00"), (0, "2026-11-23T13:00:00+01:00"), (None, None)],
)
def test_every_response_and_event_says_until_when_the_guest_cancels(
    api: Api, hours: int | None, until: str | None
) -> None:
    api.world.change(tables.organizations, api.world.org, guest_cancel_until_hours=hours)
    departure = api.world.departure(api.world.experience(), starts_at=START)
    booking_id = api.book(departure).json()["id"]
    assert terms(api, booking_id)["guest_until"] == until
    published = api.get("/events", resource_type="booking").json()["data"]
    assert [event["data"]["object"]["cancellation"]["guest_until"] for event in published] == [until, until]
    cancelled = api.cancel(booking_id).json()
    assert cancelled["cancellation"]["guest_until"] is None


def test_the_guest_s_deadline_follows_a_move(api: Api) -> None:
    api.world.change(tables.organizations, api.world.org, guest_cancel_until_hours=24)
    experience = api.world.experience()
    first, later = (api.world.departure(experience, starts_at=START + days * DAY) for days in (0, 7))
    booking_id = api.book(first).json()["id"]
    moved = api.post(f"/bookings/{booking_id}/reschedule", {"departure_id": later}).json()
    assert moved["booking"]["cancellation"]["guest_until"] == "2026-11-29T13:00:00+01:00"
    (event,) = api.get("/events", type="booking.rescheduled").json()["data"]
    assert event["data"]["object"]["cancellation"] == moved["booking"]["cancellation"]


@pytest.mark.parametrize("hours", [None, 8784])
def test_the_api_cancels_and_moves_after_the_guest_s_deadline(api: Api, hours: int | None) -> None:
    api.world.change(tables.organizations, api.world.org, guest_cancel_until_hours=hours, guest_move_until_hours=hours)
    experience = api.world.experience()
    first, later = (api.world.departure(experience, starts_at=START + days * DAY) for days in (0, 7))
    booking_id = api.book(first).json()["id"]
    assert terms(api, booking_id)["allowed"] is True
    assert api.post(f"/bookings/{booking_id}/reschedule", {"departure_id": later}).status_code == 200
    assert api.cancel(booking_id).status_code == 200

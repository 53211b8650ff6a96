"""A checkout waits for its card, is paid once, or loses its seats when nobody pays in time."""

from collections.abc import Callable
from typing import Any

import pytest
from support.api.refusals import nothing_changes
from support.world.operations import Operations, as_published
from support.world.world import World

from booking_core.base.clock import MINUTE
from booking_core.db import tables
from booking_core.models.bookings import AddOnInput, CancelReason

PENDING = 30 * MINUTE


# Checked out -----------------------------------------------------------------------------------------------------


def test_a_checkout_is_a_pending_booking_that_waits_for_its_card(ops: Operations, world: World, departure: str) -> None:
    booking = ops.check_out(departure, 2, suits=1, discount_minor=9000, note="By the window, please")
    assert (booking["status"], booking["source"], booking["booking_number"]) == ("pending", "online", 1)
    assert booking["payment"] == {"method": "card", "source": "stripe", "status": "pending"}
    totals = {name: money["amount_minor"] for name, money in booking["totals"].items()}
    assert totals == {"subtotal": 2 * 89000 + 15000, "discount": 9000, "gift_card": 0, "total": 184000}
    assert booking["note"] == "By the window, please"
    assert booking["manage_url"] is None
    row = ops.booking(booking["id"])
    assert (row["expires_at"], row["confirmed_at"]) == (world.clock() + PENDING, None)
    (payment,) = world.rows(tables.payments)
    assert (payment["booking_id"], payment["status"], payment["amount_minor"]) == (booking["id"], "pending", 184000)
    assert ops.seats_taken(departure) == 2
    assert ops.event_types() == ["customer.created", "booking.created"]
    assert ops.events()[-1]["data"] == {"object": as_published(booking)}
    assert ops.outbox_kinds() == []
    assert ops.noted(booking["id"]) == ["booking_created"]


def test_a_known_guest_stays_the_customer_that_is_known(ops: Operations, world: World, departure: str) -> None:
    first, again = ops.check_out(departure), ops.check_out(departure, email="ADA@example.com")
    assert ops.event_types() == ["customer.created", "booking.created", "booking.created"]
    assert len(world.rows(tables.customers)) == 1
    assert ops.booking(first["id"])["customer_id"] == ops.booking(again["id"])["customer_id"]
    assert again["customer"]["email"] == "ADA@example.com"


def test_the_organization_says_how_long_a_checkout_may_take(new_world: Callable[..., World]) -> None:
    world = new_world(pending_minutes=5)
    ops, departure = Operations(world), world.departure(world.experience())
    booking = ops.check_out(departure)
    assert ops.booking(booking["id"])["expires_at"] == world.clock() + 5 * MINUTE


@pytest.mark.parametrize(
    ("over", "refusal"),
    [
        ({"guests": []}, ("validation_failed", "too_short")),
        ({"discount_minor": -1}, ("validation_failed", "out_of_range")),
        ({"discount_minor": 89001}, ("validation_failed", "discount_too_large")),
        ({"gift_card_code": "NOSUCHCARD"}, ("validation_failed", "gift_card_unknown")),
        ({"count": 6, "add_ons": [AddOnInput(id="yacht", count=1)]}, ("validation_failed", "unknown_add_on")),
        ({"count": 6}, ("insufficient_capacity", None)),
        ({"departure_id": "00000000-0000-4000-8000-000000000000"}, ("not_found", None)),
    ],
    ids=str,
)
def test_a_refused_checkout_changes_nothing(
    ops: Operations, world: World, departure: str, over: dict[str, Any], refusal: tuple[str, str | None]
) -> None:
    hold_id = ops.hold(departure, 1)
    request = {"departure_id": departure, "count": 1, "hold_id": hold_id} | over
    if request["departure_id"] != departure:
        del request["hold_id"]
    with nothing_changes(world):
        assert ops.refusal(ops.check_out, **request) == refusal


# With a gift card ------------------------------------------------------------------------------------------------


def test_a_gift_card_pays_what_it_can_and_the_card_the_rest(ops: Operations, world: World, departure: str) -> None:
    card_id, code = ops.issue(50000)
    booking = ops.check_out(departure, gift_card_code=code.lower())
    assert booking["status"] == "pending"
    assert booking["totals"]["gift_card"]["amount_minor"] == 50000
    assert booking["totals"]["total"]["amount_minor"] == 39000
    assert booking["payment"]["method"] == "card"
    assert world.row(tables.gift_cards, card_id)["balance_minor"] == 0
    assert ops.event_types() == ["gift_card.issued", "customer.created", "booking.created", "gift_card.redeemed"]
    redeemed = ops.events()[-1]["data"]
    assert redeemed["redeemed_amount"] == {"amount_minor": 50000, "currency": "NOK"}
    assert redeemed["booking_id"] == booking["id"]
    assert ops.noted(booking["id"]) == ["booking_created", "gift_card_redeemed"]


def test_a_gift_card_that_pays_all_confirms_at_once(ops: Operations, world: World, departure: str) -> None:
    card_id, code = ops.issue(100000)
    booking = ops.check_out(departure, gift_card_code=code)
    assert booking["status"] == "confirmed"
    assert booking["payment"] == {"method": "gift_card", "source": "external", "status": "paid"}
    assert booking["totals"]["total"]["amount_minor"] == 0
    assert world.row(tables.gift_cards, card_id)["balance_minor"] == 11000
    assert ops.event_types()[1:] == ["customer.created", "booking.created", "gift_card.redeemed", "booking.confirmed"]
    assert world.rows(tables.payments) == []
    assert ops.outbox_kinds() == ["booking_confirmation_mail", "staff_booking_mail"]
    assert ops.booking(booking["id"])["expires_at"] is None


def test_a_checkout_of_nothing_to_pay_is_free_and_confirmed(ops: Operations, world: World, departure: str) -> None:
    card_id, code = ops.issue(100000)
    booking = ops.check_out(departure, discount_minor=89000, gift_card_code=code)
    assert booking["payment"] == {"method": "free", "source": "external", "status": "paid"}
    assert booking["status"] == "confirmed"
    assert world.row(tables.gift_cards, card_id)["balance_minor"] == 100000


# Paid ------------------------------------------------------------------------------------------------------------


def test_a_paid_booking_is_confirmed_and_published_once(ops: Operations, world: World, departure: str) -> None:
    booking = ops.check_out(departure)
    world.clock.advance(MINUTE)
    paid = ops.pay(booking["id"], "pi_42")
    assert (paid["status"], paid["payment"]["status"]) == ("confirmed", "paid")
    assert paid["updated_at"] > booking["updated_at"]
    assert ops.event_types(booking["id"]) == ["booking.created", "booking.confirmed"]
    assert ops.events()[-1]["data"] == {"object": as_published(paid)}
    (payment,) = world.rows(tables.payments)
    assert (payment["status"], payment["payment_intent"]) == ("paid", "pi_42")
    assert ops.outbox_kinds(booking["id"]) == ["booking_confirmation_mail", "staff_booking_mail"]
    assert ops.noted(booking["id"]) == ["booking_confirmed", "booking_created", "payment_received"]
    row = ops.booking(booking["id"])
    assert (row["confirmed_at"], row["expires_at"]) == (world.clock(), None)
    world.clock.advance(MINUTE)
    with nothing_changes(world):
        assert ops.pay(booking["id"], "pi_42") == paid
        assert ops.pay(booking["id"], None) == paid


def test_a_guest_who_was_charged_twice_is_not_overlooked(ops: Operations, world: World, departure: str) -> None:
    confirmed, cancelled, late = (ops.check_out(departure)["id"] for _ in range(3))
    for booking_id in (confirmed, cancelled):
        ops.pay(booking_id)
    ops.cancel(cancelled)
    world.clock.advance(PENDING + MINUTE)
    ops.abandon_due()
    ops.pay(late)
    with nothing_changes(world):
        for booking_id in (confirmed, cancelled, late):
            assert ops.refusal(ops.pay, booking_id, "pi_2") == ("conflict", "paid_already")


def test_a_payment_intent_pays_for_one_booking_of_the_organization(
    ops: Operations, world: World, departure: str, new_world: Callable[..., World]
) -> None:
    paid, pending, unnamed, abandoned = (ops.check_out(departure)["id"] for _ in range(4))
    ops.pay(paid, "pi_1")
    ops.pay(unnamed, None)
    ops.cancel(abandoned)
    with nothing_changes(world):
        for booking_id in (pending, unnamed, abandoned):
            assert ops.refusal(ops.pay, booking_id, "pi_1") == ("conflict", "paid_already")
    assert ops.pay(pending, "pi_2")["status"] == "confirmed"
    stranger = Operations(new_world())
    booking = stranger.check_out(stranger.world.departure(stranger.world.experience()))
    assert stranger.pay(booking["id"], "pi_1")["status"] == "confirmed"


def test_a_payment_that_came_without_a_name_can_be_given_one(ops: Operations, world: World, departure: str) -> None:
    booking = ops.check_out(departure)
    paid = ops.pay(booking["id"], None)
    assert ops.pay(booking["id"], "pi_1") == paid
    (payment,) = world.rows(tables.payments)
    assert (payment["payment_intent"], payment["status"]) == ("pi_1", "paid")
    assert ops.refusal(ops.pay, booking["id"], "pi_2") == ("conflict", "paid_already")


def test_an_expired_booking_keeps_its_seats_until_the_sweep(ops: Operations, world: World, departure: str) -> None:
    booking = ops.check_out(departure, 5)
    world.clock.advance(PENDING + MINUTE)
    assert ops.refusal(ops.check_out, departure) == ("insufficient_capacity", None)
    assert ops.pay(booking["id"])["status"] == "confirmed"
    ops.abandon_due()
    assert ops.booking(booking["id"])["status"] == "confirmed"


def test_a_payment_after_the_booking_was_abandoned_is_given_back(ops: Operations, world: World, departure: str) -> None:
    booking = ops.check_out(departure, 5)
    world.clock.advance(PENDING)
    ops.abandon_due()
    ops.book(departure, 5, email="grace@example.com")
    published = ops.events()
    late = ops.pay(booking["id"], "pi_late")
    assert (late["status"], late["payment"]["status"]) == ("cancelled", "paid")
    *before, paid = ops.events()
    assert before == published
    failed = {"method": "card", "source": "stripe", "status": "failed"}
    assert (paid["type"], paid["data"]["changes"]) == ("booking.updated", {"payment": failed})
    assert paid["data"]["object"] == as_published(late)
    (refund,) = world.rows(tables.refunds)
    assert (refund["status"], refund["amount_minor"]) == ("requested", booking["totals"]["total"]["amount_minor"])
    assert [row["key"] for row in world.rows(tables.effects) if row["subject_id"] == booking["id"]] == [
        f"booking_cancellation_mail:{booking['id']}"
    ]
    with nothing_changes(world):
        assert ops.pay(booking["id"], "pi_late") == late


def test_a_payment_after_staff_cancelled_is_given_back_without_a_second_mail(
    ops: Operations, world: World, departure: str
) -> None:
    booking = ops.check_out(departure)
    ops.cancel(booking["id"], CancelReason.ADMIN)
    mails = world.rows(tables.effects)
    assert ops.pay(booking["id"])["status"] == "cancelled"
    assert len(world.rows(tables.refunds)) == 1
    assert world.rows(tables.effects) == mails


def test_only_what_waits_for_a_card_is_paid_by_card(ops: Operations, world: World, departure: str) -> None:
    booking = ops.book(departure)
    with nothing_changes(world):
        assert ops.refusal(ops.pay, booking["id"]) == ("conflict", "not_paid_by_card")
        assert ops.refusal(ops.pay, "00000000-0000-4000-8000-000000000000")[0] == "not_found"


def test_a_booking_that_staff_confirmed_can_still_be_paid(ops: Operations, world: World, departure: str) -> None:
    booking = ops.check_out(departure)
    ops.confirm(booking["id"])
    world.clock.advance(PENDING)
    ops.abandon_due()
    paid = ops.pay(booking["id"])
    assert (paid["status"], paid["payment"]["status"]) == ("confirmed", "paid")
    assert ops.event_types(booking["id"]) == ["booking.created", "booking.confirmed", "booking.updated"]
    confirmed, updated = (event["data"] for event in ops.events()[-2:])
    assert updated["changes"] == {name: confirmed["object"][name] for name in ("payment", "cancellation")}
    assert ops.outbox_kinds(booking["id"]) == ["booking_confirmation_mail", "staff_booking_mail"]


# Abandoned -------------------------------------------------------------------------------------------------------


def test_an_unpaid_booking_is_abandoned_at_its_expiry_and_not_before(
    ops: Operations, world: World, departure: str
) -> None:
    card_id, code = ops.issue(50000)
    booking = ops.check_out(departure, 2, gift_card_code=code)
    world.clock.advance(PENDING - 1)
    ops.abandon_due()
    assert ops.booking(booking["id"])["status"] == "pending"
    world.clock.advance(1)
    ops.abandon_due()
    row = ops.booking(booking["id"])
    assert (row["status"], row["cancel_reason"], row["payment_status"]) == ("cancelled", "abandoned", "failed")
    assert world.rows(tables.payments)[0]["status"] == "failed"
    assert ops.seats_taken(departure) == 0
    assert ops.event_types(booking["id"]) == ["booking.created", "booking.cancelled"]
    (data,) = (event["data"] for event in ops.events() if event["type"] == "booking.cancelled")
    assert data["reason"] == CancelReason.ABANDONED
    assert data["object"]["payment"]["status"] == "failed"
    assert world.row(tables.gift_cards, card_id)["balance_minor"] == 50000
    noted = ["booking_cancelled", "booking_created", "gift_card_redeemed", "gift_card_restored"]
    assert ops.noted(booking["id"]) == noted
    assert ops.outbox_kinds() == []


def test_abandoning_works_in_bounded_batches(ops: Operations, world: World) -> None:
    departure = world.departure(world.experience(), seats=50)
    for _ in range(7):
        ops.check_out(departure)
    world.clock.advance(PENDING)
    assert ops.abandon_due(limit=3) >= 7
    assert ops.seats_taken(departure) == 0
    assert [row["status"] for row in world.rows(tables.bookings)] == ["cancelled"] * 7
    assert ops.event_types().count("booking.cancelled") == 7

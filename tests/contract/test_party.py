"""Changes of the party of a booking over HTTP, and their preview."""

from typing import Any

import pytest
from support.api.api import Api, body_of
from support.api.refusals import field_of, nothing_changes, reason_of, refused
from support.world.operations import Operations, as_published
from support.world.world import DAY, World

from booking_core import bookings, payments
from booking_core.base.clock import HOUR
from booking_core.db import tables
from booking_core.models.bookings import BookingChange, PaymentMode
from booking_core.payments import RefundOutcome, RefundResult

SEATS = 6  # of the fixture `departure`
ADULT, SUIT = 89000, 15000
Booking = dict[str, Any]


def path_of(booking_id: str, end: str = "party") -> str:
    return f"/bookings/{booking_id}/{end}"


def party(count: int, **over: Any) -> dict[str, Any]:
    return {"guests": [{"tier_id": "adult", "count": count}], **over}


def previewed(api: Api, booking_id: str, body: dict[str, Any]) -> dict[str, Any]:
    with nothing_changes(api.world):
        return dict(body_of(api.call("POST", path_of(booking_id, "party/preview"), json=body)))


def changed(api: Api, booking_id: str, body: dict[str, Any]) -> dict[str, Any]:
    """Change the party after a preview, which must say the same, and let the doctor look."""
    preview = previewed(api, booking_id, body)
    change: dict[str, Any] = body_of(api.post(path_of(booking_id), body))
    assert change == preview
    assert change["booking"] == api.get(f"/bookings/{booking_id}").json()
    assert api.world.examine() == []
    return change


def money(change: dict[str, Any]) -> dict[str, Any]:
    """Return the settlement, and the amounts that are not zero."""
    amounts = {
        name: amount["amount_minor"] for name, amount in change["money"].items() if name != "settlement" and amount
    }
    del amounts["list_price"]
    return {"settlement": change["money"]["settlement"]} | {name: amount for name, amount in amounts.items() if amount}


def refunds(world: World) -> list[tuple[int, int, str]]:
    rows = sorted(world.rows(tables.refunds), key=lambda row: row["number"])
    return [(row["number"], row["amount_minor"], row["status"]) for row in rows]


def paid_by_card(ops: Operations, departure: str, count: int, **over: Any) -> Booking:
    booking = ops.check_out(departure, count, **over)
    return ops.pay(booking["id"])


def test_more_guests_take_seats_and_pay_on_site(api: Api, ops: Operations, departure: str) -> None:
    booking = api.book(departure, count=2, add_ons=[{"id": "drysuit", "count": 1}]).json()
    api.world.clock.advance(HOUR)
    change = changed(api, booking["id"], party(3))
    assert BookingChange.model_validate(change).to_json() == change
    expected = {"price_difference": ADULT, "balance_due": 3 * ADULT + SUIT}
    assert money(change) == {"settlement": "balance_due", **expected}
    assert (change["seats"], ops.seats_taken(departure)) == (3, 3)
    assert change["booking"]["guests"][0]["count"] == 3
    assert change["booking"]["add_ons"] == booking["add_ons"]
    event = ops.events()[-1]
    assert (event["type"], event["data"]["object"]) == ("booking.updated", as_published(change["booking"]))
    assert event["data"]["changes"] == {"guests": booking["guests"], "totals": booking["totals"]}
    assert "booking_party_changed" in ops.noted(booking["id"])
    assert "booking_change_mail" in ops.outbox_kinds(booking["id"])


def test_fewer_guests_give_seats_back_and_have_less_to_pay(api: Api, ops: Operations, departure: str) -> None:
    booking = api.book(departure, count=4, payment="invoice").json()
    assert money(changed(api, booking["id"], party(1))) == {
        "settlement": "less_due",
        "price_difference": -3 * ADULT,
        "balance_due": ADULT,
    }
    assert ops.seats_taken(departure) == 1
    assert refunds(api.world) == []


def test_the_same_party_changes_nothing(api: Api, departure: str) -> None:
    booking = api.book(departure, guests=[{"tier_id": "adult", "count": 1}, {"tier_id": "adult", "count": 1}]).json()
    with nothing_changes(api.world, leaving_out={"idempotency"}):
        change = api.post(path_of(booking["id"]), party(2)).json()
    assert (change["booking"], change["money"]["settlement"]) == (booking, "price_kept")


def test_guests_who_stay_keep_their_price_and_others_pay_today_s(api: Api, departure: str) -> None:
    booking = api.book(departure, count=2).json()
    api.world.change(tables.departures, departure, prices='{"adult": 100000}')
    more = changed(api, booking["id"], party(3))
    assert [(line["count"], line["unit_price"]["amount_minor"]) for line in more["booking"]["guests"]] == [
        (2, 89000),
        (1, 100000),
    ]
    assert more["money"]["list_price"]["amount_minor"] == 300000
    fewer = changed(api, booking["id"], party(1))
    assert fewer["booking"]["totals"]["total"]["amount_minor"] == 89000


def test_a_card_gets_back_what_was_paid_for_guests_who_leave(api: Api, ops: Operations, departure: str) -> None:
    booking = paid_by_card(ops, departure, 4)
    change = changed(api, booking["id"], party(3))
    assert money(change) == {"settlement": "refunded", "price_difference": -ADULT, "refund": ADULT}
    assert change["booking"]["payment"] == {"method": "card", "source": "stripe", "status": "paid"}
    changed(api, booking["id"], party(1))
    assert refunds(api.world) == [(1, ADULT, "requested"), (2, 2 * ADULT, "requested")]
    settle(api.world)
    assert api.get(f"/bookings/{booking['id']}").json()["payment"]["status"] == "paid"
    terms = api.get(f"/bookings/{booking['id']}").json()["cancellation"]
    assert terms["refundable_amount"]["amount_minor"] == ADULT
    assert api.world.examine() == []
    api.cancel(booking["id"])
    settle(api.world)
    assert refunds(api.world) == [(0, ADULT, "succeeded"), (1, ADULT, "succeeded"), (2, 2 * ADULT, "succeeded")]
    assert api.get(f"/bookings/{booking['id']}").json()["payment"]["status"] == "refunded"
    assert api.world.examine() == []


def test_a_recorded_refund_adds_to_the_refund_of_a_smaller_party(api: Api, ops: Operations, departure: str) -> None:
    booking = paid_by_card(ops, departure, 3)
    changed(api, booking["id"], party(2))
    settle(api.world)
    api.cancel(booking["id"], refund="none")
    goodwill = {"amount_minor": 500, "note": "Goodwill"}
    api.world.database.write(lambda tx: bookings.record_refund(tx, ops.actor, booking["id"], **goodwill))
    events = api.get("/events", type="booking.refunded", order="asc").json()["data"]
    assert [event["data"]["total_refunded"]["amount_minor"] for event in events] == [ADULT, ADULT + 500]
    assert api.world.examine() == []


def settle(world: World) -> None:
    """Let a gateway return every refund that is due."""

    def send(tx: Any) -> None:
        due = [row["id"] for row in world.rows(tables.refunds) if row["status"] == "requested"]
        claimed = payments.claim(tx, world.org, due, lease_s=45).results
        results = [RefundResult(refund, RefundOutcome.REFUNDED, f"re_{refund.id}") for refund in claimed]
        bookings.settle_refunds(tx, results)

    world.database.write(send)


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("refund", "expected"),
    [
        ("auto", {"settlement": "refunded", "refund": ADULT // 2, "kept": ADULT // 2}),
        ("none", {"settlement": "kept", "kept": ADULT}),
    ],
)
def test_the_terms_of_a_cancellation_decide_what_is_kept(
    api: Api, ops: Operations, departure: str, refund: str, expected: dict[str, Any]
) -> None:
    api.world.change(tables.organizations, api.world.org, refund_late_percent=50, refund_full_until_hours=10_000)
    booking = paid_by_card(ops, departure, 2)
    change = changed(api, booking["id"], party(1, refund=refund))
    assert money(change) == {"price_difference": -ADULT, **expected}


@pytest.mark.one_database
def test_a_gift_card_gets_back_only_what_money_did_not_pay(api: Api, ops: Operations, departure: str) -> None:
    card, code = ops.issue(2 * ADULT)
    booking = paid_by_card(ops, departure, 4, gift_card_code=code)
    first = changed(api, booking["id"], party(3))
    assert money(first) == {"settlement": "refunded", "price_difference": -ADULT, "refund": ADULT}
    second = changed(api, booking["id"], party(1))
    back = {"refund": ADULT, "gift_card_refund": ADULT}
    assert money(second) == {"settlement": "refunded", "price_difference": -2 * ADULT, **back}
    assert second["booking"]["payment"]["method"] == "card"
    assert second["booking"]["totals"]["total"]["amount_minor"] == 0
    assert api.world.row(tables.gift_cards, card)["balance_minor"] == ADULT
    api.cancel(booking["id"])
    assert api.world.row(tables.gift_cards, card)["balance_minor"] == 2 * ADULT
    assert api.world.examine() == []


@pytest.mark.one_database
def test_a_booking_that_a_gift_card_paid_owes_the_rest_on_site(api: Api, ops: Operations, departure: str) -> None:
    _, code = ops.issue(2 * ADULT)
    booking = ops.book(departure, 2, gift_card_code=code)
    more = changed(api, booking["id"], party(3))
    assert money(more) == {"settlement": "balance_due", "price_difference": ADULT, "balance_due": ADULT}
    assert more["booking"]["payment"] == {"method": "pay_on_site", "source": "on_site", "status": "unpaid"}
    fewer = changed(api, booking["id"], party(1))
    assert fewer["booking"]["payment"] == {"method": "gift_card", "source": "external", "status": "paid"}
    assert fewer["money"]["gift_card_refund"]["amount_minor"] == ADULT


def test_what_staff_recorded_is_refunded_by_hand(api: Api, ops: Operations, departure: str) -> None:
    booking = ops.book(departure, 3, payment=PaymentMode.PAY_ON_SITE)
    ops.act(lambda tx, actor: bookings.record_payment(tx, actor, booking["id"], amount_minor=3 * ADULT))
    fewer = changed(api, booking["id"], party(2))
    assert money(fewer) == {"settlement": "refunded", "price_difference": -ADULT, "refund": ADULT}
    assert refunds(api.world) == [(1, ADULT, "needs_review")]
    more = changed(api, booking["id"], party(3))
    assert money(more) == {"settlement": "balance_due", "price_difference": ADULT, "balance_due": ADULT}
    assert more["booking"]["payment"]["status"] == "unpaid"
    paid = ops.act(lambda tx, actor: bookings.record_payment(tx, actor, booking["id"], amount_minor=ADULT))
    assert paid["payment"]["status"] == "paid"
    (refund,) = api.world.rows(tables.refunds)
    ops.act(lambda tx, actor: bookings.settle_refund(tx, actor, refund["id"], note="cash"))
    assert api.world.examine() == []


@pytest.mark.one_database
def test_a_part_that_staff_recorded_is_all_that_a_smaller_party_owes(api: Api, ops: Operations, departure: str) -> None:
    booking = ops.book(departure, 3, payment=PaymentMode.PAY_ON_SITE)
    ops.act(lambda tx, actor: bookings.record_payment(tx, actor, booking["id"], amount_minor=2 * ADULT))
    fewer = changed(api, booking["id"], party(2))
    assert money(fewer) == {"settlement": "less_due", "price_difference": -ADULT}
    assert fewer["booking"]["payment"]["status"] == "paid"


@pytest.mark.one_database
def test_what_was_paid_elsewhere_is_settled_there(api: Api, departure: str) -> None:
    booking = api.book(departure, count=1, payment="external_paid").json()
    assert money(changed(api, booking["id"], party(2))) == {"settlement": "elsewhere", "price_difference": ADULT}
    assert money(changed(api, booking["id"], party(1))) == {"settlement": "elsewhere", "price_difference": -ADULT}


@pytest.mark.one_database
def test_a_discount_stays_up_to_the_price(api: Api, ops: Operations, departure: str) -> None:
    booking = ops.book(departure, 3, discount_minor=ADULT + 1000, payment=PaymentMode.PAY_ON_SITE)
    change = changed(api, booking["id"], party(1))
    totals = {name: amount["amount_minor"] for name, amount in change["booking"]["totals"].items()}
    assert totals == {"subtotal": ADULT, "discount": ADULT, "gift_card": 0, "total": 0}
    assert change["booking"]["payment"]["method"] == "free"
    assert money(change) == {"settlement": "less_due", "price_difference": 1000 - 2 * ADULT}


def test_add_ons_follow_only_when_they_are_named(api: Api, departure: str) -> None:
    booking = api.book(departure, count=2, add_ons=[{"id": "drysuit", "count": 2}]).json()
    change = changed(api, booking["id"], party(2, add_ons=[{"id": "drysuit", "count": 1}]))
    assert money(change)["price_difference"] == -SUIT
    assert changed(api, booking["id"], party(2, add_ons=[]))["booking"]["add_ons"] == []
    unknown = api.post(path_of(booking["id"]), party(2, add_ons=[{"id": "nope", "count": 1}]))
    assert field_of(refused(unknown, 422, "validation_failed")) == "add_ons.0.id"
    assert reason_of(unknown) == "unknown_add_on"


def reasons(api: Api, booking_id: str, body: dict[str, Any]) -> list[str]:
    """Return the reasons of the preview; the first is the reason of the change."""
    preview = previewed(api, booking_id, body)
    assert (preview["allowed"], preview["money"]) == (False, None)
    names = [refusal["reason"] or refusal["code"] for refusal in preview["refusals"]]
    with nothing_changes(api.world, leaving_out={"idempotency"}):
        answer = api.post(path_of(booking_id), body)
    error = answer.json()
    assert answer.status_code == (422 if error["code"] == "validation_failed" else 409)
    assert names[0] == (error["details"][0]["reason"] if "details" in error else error["code"])
    return names


@pytest.mark.one_database
def test_every_refusal_has_its_reason(api: Api, ops: Operations, departure: str) -> None:
    live, cancelled, checked_in = (api.book(departure).json()["id"] for _ in range(3))
    api.cancel(cancelled)
    assert reasons(api, cancelled, party(2)) == ["booking_cancelled"]
    api.post(path_of(checked_in, "check-in"), {})
    assert reasons(api, checked_in, party(9)) == ["booking_checked_in", "insufficient_capacity"]
    api.post(path_of(checked_in, "no-show"), {})
    assert reasons(api, checked_in, party(1, add_ons=[{"id": "drysuit", "count": 1}])) == ["booking_no_show"]
    assert reasons(api, live, {"guests": [{"tier_id": "dog", "count": 1}]}) == ["unknown_tier"]
    pending = ops.check_out(departure)["id"]
    assert reasons(api, pending, party(2)) == ["booking_pending", "payment_pending", "paid_by_card"]
    ops.confirm(pending)
    assert reasons(api, pending, party(2)) == ["payment_pending", "paid_by_card"]
    ops.pay(pending)
    assert reasons(api, pending, party(2)) == ["paid_by_card"]
    ops.hold(departure, 2)
    preview = previewed(api, live, party(3))
    (refusal,) = preview["refusals"]
    assert (refusal["code"], refusal["seats_available"]) == ("insufficient_capacity", 1)
    ops.close(departure)
    assert reasons(api, live, party(9)) == ["departure_closed", "insufficient_capacity"]
    api.world.clock.advance(3 * DAY)
    assert reasons(api, live, party(2)) == ["departure_started", "departure_closed"]


def test_a_closed_departure_lets_guests_leave(api: Api, ops: Operations, departure: str) -> None:
    booking = api.book(departure, count=2).json()
    ops.close(departure)
    assert changed(api, booking["id"], party(1))["seats"] == 1


@pytest.mark.one_database
def test_bodies_are_checked(api: Api, departure: str) -> None:
    booking_id = api.book(departure).json()["id"]
    for end in ("party", "party/preview"):
        for body in ({}, {"guests": []}, party(0), party(1, refund="full")):
            refused(api.post(path_of(booking_id, end), body), 400, "validation_failed")


def test_a_change_takes_as_many_statements_as_it_needs(api: Api, departure: str, statements: list[str]) -> None:
    booking_id = api.book(departure, count=2).json()["id"]
    statements.clear()
    assert api.call("POST", path_of(booking_id, "party/preview"), json=party(1)).status_code == 200
    assert len(statements) == 5  # the key; the booking's details, the booking, the departure, the payment
    statements.clear()
    assert api.post(path_of(booking_id), party(1)).status_code == 200
    assert len(statements) == (14 if api.world.database.is_sqlite else 10)

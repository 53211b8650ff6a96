"""What staff and agents book, confirm and cancel."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from support.api.refusals import nothing_changes
from support.world.creating import create, created
from support.world.operations import Operations, as_published
from support.world.world import DAY, HOUR, World

from booking_core import bookings
from booking_core.base.clock import MINUTE
from booking_core.base.errors import NotFound
from booking_core.db import tables
from booking_core.models.bookings import Booking, BookingSource, CancelReason, PaymentMode

UNKNOWN = "00000000-0000-4000-8000-000000000000"


# Booked ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [BookingSource.ADMIN, BookingSource.AGENCY, BookingSource.AI])
def test_a_booking_by_staff_leaves_what_one_of_the_api_leaves(
    ops: Operations, world: World, departure: str, source: BookingSource
) -> None:
    by_staff = ops.book(
        departure, 2, suits=1, source=source, payment=PaymentMode.PAY_ON_SITE, email="staff@example.com"
    )
    body = {"count": 2, "add_ons": [{"id": "drysuit", "count": 1}], "customer": {"name": "Ada", "email": "a@b.example"}}
    (answer,) = created(world.database, [create(world, departure, "beside-staff", **body)])
    other = orjson.loads(answer.body)
    assert by_staff["source"] == source
    assert Booking.model_validate(by_staff)
    for field in ("status", "totals", "payment", "guests", "add_ons", "experience", "departure", "note"):
        assert by_staff[field] == other[field]
    assert (by_staff["booking_number"], other["booking_number"]) == (1, 2)
    rows = [ops.booking(booking["id"]) for booking in (by_staff, other)]
    different = {name for name in rows[0] if rows[0][name] != rows[1][name]}
    assert different <= {"id", "booking_number", "source", "customer_id", "guest_name", "guest_email", "guest_phone"}
    for booking in (by_staff, other):
        assert ops.event_types(booking["id"]) == ["booking.created", "booking.confirmed"]
        assert ops.outbox_kinds(booking["id"]) == ["booking_confirmation_mail", "staff_booking_mail"]
        assert ops.noted(booking["id"]) == ["booking_created"]


def test_the_fee_is_of_what_is_paid_on_site(new_world: Callable[..., World]) -> None:
    world = new_world(on_site_fee_percent=10.0)
    ops = Operations(world)
    _, code = ops.issue(40000)
    departure = world.departure(world.experience())
    booking = ops.book(departure, payment=PaymentMode.PAY_ON_SITE, gift_card_code=code, discount_minor=9000)
    assert booking["totals"]["total"]["amount_minor"] == 40000
    assert ops.booking(booking["id"])["on_site_fee_minor"] == 4000


def test_flags_suppress_mails(ops: Operations, new_world: Callable[..., World], departure: str) -> None:
    quiet = ops.book(departure, send_confirmation_email=False, notify_staff=False)
    assert ops.outbox_kinds(quiet["id"]) == []
    confirmed = ops.confirm(ops.check_out(departure, send_confirmation_email=False, notify_staff=False)["id"])
    assert ops.outbox_kinds(confirmed["id"]) == []
    deaf = Operations(new_world(notify_staff=False))
    booking = deaf.book(deaf.world.departure(deaf.world.experience()))
    assert deaf.outbox_kinds(booking["id"]) == ["booking_confirmation_mail"]


# Confirmed -------------------------------------------------------------------------------------------------------


def test_staff_confirms_a_pending_booking_once(ops: Operations, world: World, departure: str) -> None:
    booking = ops.check_out(departure)
    world.clock.advance(MINUTE)
    confirmed = ops.confirm(booking["id"])
    assert (confirmed["status"], confirmed["payment"]["status"]) == ("confirmed", "pending")
    assert ops.event_types(booking["id"]) == ["booking.created", "booking.confirmed"]
    assert ops.events()[-1]["data"]["object"] == as_published(confirmed)
    assert ops.outbox_kinds(booking["id"]) == ["booking_confirmation_mail", "staff_booking_mail"]
    assert ops.noted(booking["id"]) == ["booking_confirmed", "booking_created"]
    world.clock.advance(DAY)
    with nothing_changes(world):
        assert ops.confirm(booking["id"]) == confirmed
        ops.abandon_due()


def test_a_cancelled_booking_is_not_confirmed(ops: Operations, world: World, departure: str) -> None:
    booking = ops.check_out(departure)
    ops.cancel(booking["id"])
    with nothing_changes(world):
        assert ops.refusal(ops.confirm, booking["id"]) == ("conflict", "booking_cancelled")
        assert ops.refusal(ops.confirm, UNKNOWN)[0] == "not_found"


def test_another_organization_s_booking_does_not_exist(
    ops: Operations, departure: str, new_world: Callable[..., World]
) -> None:
    booking, stranger = ops.check_out(departure), Operations(new_world())
    with nothing_changes(ops.world):
        for verb in (stranger.confirm, stranger.pay, stranger.cancel):
            assert stranger.refusal(verb, booking["id"])[0] == "not_found"
        assert stranger.refusal(stranger.reschedule, booking["id"], departure)[0] == "not_found"
        assert stranger.refusal(stranger.cancel_departure, departure)[0] == "not_found"
        assert stranger.refusal(stranger.book, departure)[0] == "not_found"


def test_the_organization_of_a_booking_is_found_by_id(ops: Operations, world: World, departure: str) -> None:
    booking = ops.book(departure)
    assert world.database.read(lambda tx: bookings.organization_of(tx, booking["id"].upper())).id == world.org
    for unknown in (UNKNOWN, "no-id"):
        with pytest.raises(NotFound), world.database.reading() as tx:
            bookings.organization_of(tx, unknown)


# Cancelled -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [reason for reason in CancelReason if reason is not CancelReason.ABANDONED])
def test_a_cancellation_tells_its_reason_and_gives_the_seats_back(
    ops: Operations, world: World, departure: str, reason: CancelReason
) -> None:
    booking = ops.book(departure, 3)
    cancelled = ops.cancel(booking["id"], reason, note="The guest is ill.")
    assert cancelled["status"] == "cancelled"
    row = ops.booking(booking["id"])
    assert (row["cancel_reason"], row["cancel_note"]) == (reason, "The guest is ill.")
    assert ops.events()[-1]["data"] == {"object": as_published(cancelled), "reason": reason}
    assert ops.seats_taken(departure) == 0
    assert ops.noted(booking["id"]) == ["booking_cancelled", "booking_created"]


def test_only_what_was_never_confirmed_is_abandoned(ops: Operations, world: World, departure: str) -> None:
    confirmed, pending = ops.book(departure), ops.check_out(departure)
    with nothing_changes(world):
        assert ops.refusal(ops.cancel, confirmed["id"], CancelReason.ABANDONED) == ("conflict", "booking_confirmed")
    ops.cancel(pending["id"], CancelReason.ABANDONED)
    assert ops.booking(pending["id"])["cancel_reason"] == "abandoned"


@pytest.mark.parametrize(
    ("verb", "kinds"),
    [
        ("cancel", ["booking_cancellation_mail", "staff_cancellation_mail"]),
        ("reschedule", ["booking_rescheduling_mail", "staff_rescheduling_mail"]),
    ],
)
@pytest.mark.parametrize("notify_staff", [True, False])
def test_a_change_is_mailed_although_the_creation_was_not(
    new_world: Callable[..., World], verb: str, kinds: list[str], notify_staff: bool
) -> None:
    world = new_world(notify_staff=notify_staff)
    ops, first, second = Operations(world), *(world.departure(world.experience()) for _ in range(2))
    booking = ops.book(first, notify_staff=False, send_confirmation_email=False)
    getattr(ops, verb)(booking["id"], *([second] if verb == "reschedule" else []))
    assert ops.outbox_kinds(booking["id"]) == kinds[: 1 + notify_staff]


# Its money -------------------------------------------------------------------------------------------------------


def paid(ops: Operations, departure: str, **over: Any) -> str:
    booking = ops.check_out(departure, **over)
    ops.pay(booking["id"])
    return str(booking["id"])


def test_a_cancellation_returns_the_parts_of_card_and_gift_card(ops: Operations, world: World, departure: str) -> None:
    card_id, code = ops.issue(50000)
    booking_id = paid(ops, departure, gift_card_code=code)
    cancelled = ops.cancel(booking_id)
    assert cancelled["payment"] == {"method": "card", "source": "stripe", "status": "paid"}
    (refund,) = world.rows(tables.refunds)
    assert (refund["booking_id"], refund["amount_minor"], refund["status"]) == (booking_id, 39000, "requested")
    assert ops.noted(booking_id).count("refund_requested") == 1
    assert world.row(tables.gift_cards, card_id)["balance_minor"] == 50000
    assert sorted(row["amount_minor"] for row in world.rows(tables.gift_card_entries)) == [-50000, 50000, 50000]
    world.clock.advance(HOUR)
    with nothing_changes(world):
        assert ops.cancel(booking_id, CancelReason.CUSTOMER) == cancelled

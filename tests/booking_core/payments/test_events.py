"""Each return of money is published once, by the gateway or by staff; a failed attempt is not published."""

from typing import Any

import orjson
import pytest
from support.world.money import TOTAL, Till

from booking_core import bookings
from booking_core.models.bookings import PaymentStatus
from booking_core.payments import RefundOutcome


def refunded(till: Till) -> list[dict[str, Any]]:
    return [each["data"] for each in till.events() if each["type"] == "booking.refunded"]


def nok(amount_minor: int) -> dict[str, Any]:
    return {"amount_minor": amount_minor, "currency": "NOK"}


def test_a_refund_of_the_gateway_is_published_when_it_succeeded_and_once(till: Till) -> None:
    booking_id = till.with_refund()
    claimed = till.one()
    assert refunded(till) == []
    assert [till.answer(claimed, RefundOutcome.REFUNDED) for _ in range(2)] == [1, 0]
    (data,) = refunded(till)
    shown = orjson.loads(till.write(lambda tx: orjson.dumps(bookings.get(tx, till.actor, booking_id))))
    assert data["object"] == {name: shown[name] for name in data["object"]}
    assert data["object"]["payment"]["status"] == "refunded"
    assert data["changes"] == {"payment": shown["payment"] | {"status": "paid"}}
    assert (data["refunded_amount"], data["total_refunded"]) == (nok(TOTAL), nok(TOTAL))


@pytest.mark.parametrize(
    ("amount_minor", "published"),
    [(0, []), (1_000, [(nok(1_000), nok(1_000), PaymentStatus.PARTIALLY_REFUNDED)])],
)
def test_a_refund_that_staff_closes_is_published_with_what_was_returned(
    till: Till, amount_minor: int, published: list[Any]
) -> None:
    refund_id = till.refund(till.with_refund())["id"]
    till.write(lambda tx: bookings.settle_refund(tx, till.actor, refund_id, note="Cash", amount_minor=amount_minor))
    found = [
        (each["refunded_amount"], each["total_refunded"], each["object"]["payment"]["status"])
        for each in refunded(till)
    ]
    assert found == published


def test_a_refund_that_staff_records_is_published(till: Till) -> None:
    booking_id = till.paid()
    till.write(lambda tx: bookings.record_refund(tx, till.actor, booking_id, amount_minor=500, note="Goodwill"))
    assert [each["total_refunded"] for each in refunded(till)] == [nok(500)]

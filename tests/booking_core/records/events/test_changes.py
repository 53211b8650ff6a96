"""Update events carry the former values of the fields that differ, and lose the guest's with an erasure."""

import orjson
import pytest
from support.world.operations import Operations
from support.world.world import DAY

from booking_core import bookings
from booking_core.customers.erasures.rules import event_body
from booking_core.models.bookings import PaymentMode
from booking_core.records.events.publish import former_values


@pytest.fixture
def booking_id(ops: Operations) -> str:
    departure = ops.world.departure(ops.world.experience(), seats=5)
    return str(ops.book(departure, payment=PaymentMode.INVOICE)["id"])


def last_event(ops: Operations) -> tuple[str, dict[str, object]]:
    event = ops.events()[-1]
    return event["type"], event["data"]


def test_former_values_are_whole_fields_without_the_instant_of_the_change() -> None:
    before = {"id": "b", "departure": {"id": "d", "starts_at": "t"}, "note": None, "updated_at": "x", "manage_url": "u"}
    after = before | {"departure": {"id": "e", "starts_at": "t"}, "updated_at": "y", "manage_url": None, "added": 1}
    assert former_values(before, after) == {"departure": {"id": "d", "starts_at": "t"}, "added": None}
    assert former_values(after, after) == {}


def test_a_move_has_the_whole_former_departure(ops: Operations, booking_id: str) -> None:
    world, before = ops.world, ops.booking(booking_id)
    (shown,) = (each["data"]["object"] for each in ops.events() if each["type"] == "booking.created")
    other = world.departure(before["experience_id"], starts_at=world.clock() + 3 * DAY)
    ops.reschedule(booking_id, other)
    kind, data = last_event(ops)
    changes = {field: shown[field] for field in ("departure", "cancellation")}
    assert (kind, data["changes"]) == ("booking.rescheduled", changes)


def test_a_check_in_and_its_undoing_are_published_once_each(ops: Operations, booking_id: str) -> None:
    for undo in (False, False, True, True):
        ops.act(lambda tx, actor, undo=undo: bookings.check_in(tx, actor, booking_id, undo=undo))
    updates = [each["data"] for each in ops.events() if each["type"] == "booking.updated"]
    here = updates[0]["object"]["checked_in_at"]
    assert [each["changes"] for each in updates] == [{"checked_in_at": None}, {"checked_in_at": here}]
    assert updates[1]["object"]["checked_in_at"] is None
    assert ops.world.examine() == []


def test_a_recorded_payment_is_published_when_the_booking_is_shown_differently(
    ops: Operations, booking_id: str
) -> None:
    def pay(amount_minor: int) -> None:
        ops.act(lambda tx, actor: bookings.record_payment(tx, actor, booking_id, amount_minor=amount_minor))

    created = ops.events()[-1]["data"]["object"]
    pay(1_000)
    kind, data = last_event(ops)
    assert (kind, data["changes"]) == ("booking.updated", {"cancellation": created["cancellation"]})
    part = ops.events()[-1]["data"]["object"]
    pay(88_000)
    kind, data = last_event(ops)
    unpaid = {"method": "invoice", "source": "external", "status": "unpaid"}
    assert (kind, data["changes"]) == (
        "booking.updated",
        {"payment": unpaid, "cancellation": part["cancellation"]},
    )
    assert data["object"]["payment"]["status"] == "paid"
    assert ops.world.examine() == []


def test_a_customer_has_the_former_contact_details(ops: Operations, booking_id: str) -> None:
    customer_id = ops.booking(booking_id)["customer_id"]
    ops.update_customer(customer_id, name="Ada King", phone="")
    assert last_event(ops)[1]["changes"] == {"name": "Ada Lovelace", "phone": "+47 900 00 000"}


def test_an_erasure_empties_former_values_and_keeps_the_names_of_the_fields() -> None:
    data = {"object": {"name": "Ada", "id": "c"}, "changes": {"name": "Augusta", "tags": []}}
    erased = event_body(orjson.dumps({"data": data}).decode(), {"name": "Anonymized"})
    assert erased is not None
    assert orjson.loads(erased)["data"] == {
        "object": {"name": "Anonymized", "id": "c"},
        "changes": {"name": None, "tags": []},
    }
    assert event_body(erased, {"name": "Anonymized"}) is None

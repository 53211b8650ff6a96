"""A customer's contact details change, and an event reports a difference."""

from collections.abc import Callable
from typing import Any

import pytest
from support.api.refusals import nothing_changes
from support.world.operations import Operations
from support.world.world import World

from booking_core.base.clock import MINUTE
from booking_core.db import tables

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def ada(ops: Operations) -> str:
    """Ada, who has a booking."""
    booking = ops.book(ops.world.departure(ops.world.experience()))
    return str(ops.booking(booking["id"])["customer_id"])


def test_only_given_fields_of_the_customer_change_and_none_of_the_bookings(
    ops: Operations, world: World, ada: str
) -> None:
    world.clock.advance(MINUTE)
    shown = ops.update_customer(ada, name="  Ada King ", email="countess@example.com")
    row = world.row(tables.customers, ada)
    assert (shown["name"], shown["email"], shown["phone"]) == ("Ada King", "countess@example.com", "+47 900 00 000")
    assert (row["name"], row["email_key"], row["updated_at"]) == ("Ada King", "countess@example.com", world.clock())
    changes = {"name": "Ada Lovelace", "email": "ada@example.com"}
    assert ops.events()[-1]["data"] == {"object": shown, "changes": changes}
    assert ops.event_types(ada) == ["customer.created", "customer.updated"]
    assert ops.noted(None) == ["customer_updated"]
    (booking,) = world.rows(tables.bookings)
    assert (booking["guest_name"], booking["guest_email"]) == ("Ada Lovelace", "ada@example.com")
    assert ops.update_customer(ada, phone="")["phone"] is None
    assert world.examine() == []


def test_equal_values_are_no_change(ops: Operations, world: World, ada: str) -> None:
    with nothing_changes(world):
        ops.update_customer(ada)
        ops.update_customer(ada, name="Ada Lovelace", email="ada@example.com", phone="+47 900 00 000")


def test_another_case_of_the_address_is_a_change_of_the_same_customer(ops: Operations, world: World, ada: str) -> None:
    assert ops.update_customer(ada, email="ADA@example.com")["email"] == "ADA@example.com"
    assert world.row(tables.customers, ada)["email_key"] == "ada@example.com"
    assert ops.event_types(ada) == ["customer.created", "customer.updated"]


def test_an_address_that_another_customer_has_is_refused(ops: Operations, world: World, ada: str) -> None:
    ops.book(world.departure(world.experience()), email="grace@example.com")
    with nothing_changes(world):
        refusal = ops.refusal(ops.update_customer, ada, email="GRACE@example.com")
    assert refusal == ("conflict", "email_taken")


@pytest.mark.parametrize(
    "changes",
    [{"name": "  "}, {"name": "x" * 201}, {"name": "a\nb"}, {"email": "nobody"}, {"email": ""}, {"phone": "1" * 201}],
)
def test_a_change_is_validated_like_a_create(ops: Operations, world: World, ada: str, changes: dict[str, Any]) -> None:
    with nothing_changes(world):
        assert ops.refusal(ops.update_customer, ada, **changes)[0] == "validation_failed"


def test_an_unknown_customer_or_one_of_another_organization_is_not_found(
    ops: Operations, ada: str, new_world: Callable[..., World]
) -> None:
    stranger = Operations(new_world())
    with nothing_changes(ops.world):
        assert stranger.refusal(stranger.update_customer, ada, name="Mallory")[0] == "not_found"
        assert ops.refusal(ops.update_customer, UNKNOWN, name="Nobody")[0] == "not_found"

"""Idempotency keys: generated once per call, derived from parts, and validated before a request."""

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sdk_support.routed import answered, play

from booking_sdk import idempotency_key
from booking_sdk.idempotency import checked_key, new_key
from booking_sdk.request import post_with_key

PARTS = st.text(min_size=1) | st.integers() | st.uuids() | st.dates()


@given(st.lists(PARTS, min_size=1, max_size=5))
def test_a_derived_key_is_one_that_the_api_takes(parts: list[Any]) -> None:
    assert checked_key(idempotency_key(*parts)) == idempotency_key(*parts)


@given(st.lists(st.text(min_size=1), min_size=1), st.lists(st.text(min_size=1), min_size=1))
def test_different_parts_give_different_keys(one: list[str], other: list[str]) -> None:
    assert (idempotency_key(*one) == idempotency_key(*other)) == (one == other)


def test_parts_divided_differently_give_different_keys() -> None:
    assert idempotency_key("ab", "c") != idempotency_key("a", "bc") != idempotency_key("abc")
    assert idempotency_key("order", 17) == idempotency_key("order", "17")
    assert idempotency_key("order", 17) != idempotency_key("order", 17, namespace="eu")


def test_a_key_is_the_same_in_every_process() -> None:
    assert idempotency_key("order", 17, namespace="shop") == "shop-23537ffec1f34f37aa6f29b11d508b9949321cc5"


class Shop(Enum):
    NORTH = "north"


@pytest.mark.parametrize(
    "part",
    [uuid.UUID(int=7), Decimal("1.50"), date(2026, 6, 1), datetime(2026, 6, 1, tzinfo=UTC), Shop.NORTH, True],
    ids=repr,
)
def test_types_that_can_be_parts_of_a_key(part: object) -> None:
    assert len(idempotency_key(part)) == 40


@pytest.mark.parametrize(
    "part",
    [None, 1.5, object(), ["a"], b"a", {"a": 1}, datetime(2026, 6, 1)],
    ids=["None", "float", "object", "list", "bytes", "dict", "no zone"],
)
def test_types_that_cannot_be_parts_of_a_key(part: object) -> None:
    with pytest.raises(TypeError):
        idempotency_key("order", part)


@pytest.mark.parametrize(
    ("parts", "namespace"),
    [((), ""), (("order", ""), ""), *((("order",), wrong) for wrong in ("with space", "ø", "a/b", "x" * 101))],
    ids=["no part", "empty part", "blank", "not ASCII", "slash", "too long"],
)
def test_a_part_is_not_empty_and_a_namespace_is_plain(parts: tuple[str, ...], namespace: str) -> None:
    with pytest.raises(ValueError):
        idempotency_key(*parts, namespace=namespace)


KEYS = ["", "x" * 7, "x" * 201, "ends with space ", "line\nbreak", "nøkkel-nøkkel", uuid.UUID(int=7)]


@pytest.mark.parametrize("key", KEYS, ids=["empty", "short", "long", "blank", "line break", "not ASCII", "UUID"])
def test_a_key_that_the_api_would_refuse_is_never_sent(key: Any) -> None:
    with pytest.raises(ValueError if isinstance(key, str) else TypeError):
        post_with_key("bookings", body={}, key=key)


def test_a_key_has_200_characters_at_most_and_its_namespace_100() -> None:
    assert [checked_key("x" * length) for length in (8, 200)] == ["x" * 8, "x" * 200]
    assert idempotency_key("order", namespace="x" * 100).startswith("x" * 100)


def test_each_call_without_a_key_gets_a_new_one() -> None:
    keys = {new_key() for _ in range(1000)} | play(
        lambda client: client.bookings.cancel("1"), [answered(404, "not_found")]
    ).keys
    assert len(keys) == 1001
    assert all(checked_key(str(key)) == key for key in keys)

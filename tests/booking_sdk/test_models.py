"""Models: they equal the shared models, accept unknown fields, and hide secrets in reprs."""

import copy
import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from booking_core.models import bookings as wire
from booking_sdk import Booking, BookingStatus, DepartureStatus, Money
from booking_sdk.resources.bookings import AddOnParam, GuestLineParam, GuestParam
from booking_sdk.testing import make_booking, make_customer, make_departure, make_event, make_experience, make_gift_card

SEA = make_experience(latitude=60.4, tags=["sea"])
MODELS = [make_booking(), make_customer(), make_departure(), SEA, make_gift_card(), make_event()]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_model_is_frozen_and_survives_copies_pickles_unknown_fields(model: Any) -> None:
    with pytest.raises(ValidationError):
        model.id = "other"
    assert copy.deepcopy(model) == model == pickle.loads(pickle.dumps(model))
    fields = {**model.to_json(), "tomorrow": {"a": [1]}}
    again = type(model).model_validate_json(json.dumps(fields))
    assert again.to_json() == fields
    assert type(model).model_validate(model.to_json()) == model
    assert again.tomorrow == {"a": [1]}


def test_a_value_of_tomorrow_passes_as_text() -> None:
    assert make_booking(status="waitlisted").status == "waitlisted"
    assert not isinstance(make_booking(status="waitlisted").status, BookingStatus)
    assert make_booking().status is BookingStatus.CONFIRMED
    assert make_departure(status="weathered").status not in set(DepartureStatus)


def test_missing_fields_wrong_types_and_naive_instants_do_not_pass() -> None:
    booking = make_booking(created_at="2026-06-01T09:30:00+02:00")
    assert booking.created_at == datetime(2026, 6, 1, 7, 30, tzinfo=UTC)
    assert booking.created_at.isoformat() == "2026-06-01T09:30:00+02:00"
    fields = booking.to_json()
    wrong = [{**fields, "booking_number": "three"}, {**fields, "created_at": "2026-06-01T09:30:00"}]
    for broken in ({name: value for name, value in fields.items() if name != "totals"}, *wrong):
        with pytest.raises(ValidationError):
            Booking.model_validate(broken)


def test_money_counts_in_minor_units_and_mixes_no_currencies() -> None:
    one, two = Money(amount_minor=89000, currency="NOK"), Money(amount_minor=100, currency="NOK")
    assert one + two == Money(amount_minor=89100, currency="NOK")
    assert (one - two).to_decimal() == Decimal("889.00")
    assert str(one * 2) == "1780.00 NOK"
    assert two < one
    assert Money(amount_minor=25000, currency="CLP").to_decimal() == 25000
    for combine in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a < b):
        with pytest.raises(ValueError):
            combine(one, Money(amount_minor=1, currency="EUR"))


@pytest.mark.parametrize(
    ("typed", "model"),
    [(GuestLineParam, wire.GuestLineInput), (AddOnParam, wire.AddOnInput), (GuestParam, wire.GuestInput)],
)
def test_a_dict_that_is_accepted_has_the_fields_of_its_model(typed: Any, model: Any) -> None:
    assert set(typed.__annotations__) == set(model.model_fields)
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    assert typed.__required_keys__ == required

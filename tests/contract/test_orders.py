"""An order of a shop: quoted, held and booked with the shop's keys, and repeated after an answer was lost."""

from typing import Any

import pytest
from support.api.api import Api, body_of, booking_body
from support.api.refusals import nothing_changes, refused

from booking_core.models.bookings import BookingQuote

SEATS = 3  # of the fixture `departure`


def placed(api: Api, departure: str, order: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Hold, quote and book an order by the keys of the shop; return the quote and the booking."""
    hold = api.post("/holds", {"departure_id": departure, "seats": 2}, key=f"{order}-hold").json()
    body = booking_body(departure, count=2, hold_id=hold["id"])
    quote = body_of(api.post("/bookings/quote", body, key=order))
    return quote, body_of(api.post("/bookings", body, key=order), 201)


def test_a_repeated_order_is_allowed_and_quoted_with_its_booking(api: Api, departure: str) -> None:
    quote, booking = placed(api, departure, "order-1017")
    assert (quote["allowed"], quote["refusals"], quote["booking_id"]) == (True, [], None)
    with nothing_changes(api.world):
        again, same = placed(api, departure, "order-1017")
    assert same == booking
    assert BookingQuote.model_validate(again).to_json() == again
    assert (again["allowed"], again["refusals"], again["booking_id"]) == (True, [], booking["id"])


def test_another_order_on_the_same_hold_is_refused(api: Api, departure: str) -> None:
    hold = api.post("/holds", {"departure_id": departure, "seats": 2}).json()
    body = booking_body(departure, count=2, hold_id=hold["id"])
    assert api.post("/bookings", body, key="order-1017").status_code == 201
    for key in ("order-1018", None):
        headers = {} if key is None else {"Idempotency-Key": key}
        quote = api.call("POST", "/bookings/quote", json=body, headers=headers).json()
        assert (quote["allowed"], quote["booking_id"]) == (False, None)
        assert quote["refusals"][0]["reason"] == "hold_booked"


def test_a_key_of_something_else_names_no_booking(api: Api, departure: str) -> None:
    api.post("/holds", {"departure_id": departure, "seats": 1}, key="of-a-hold")
    api.post("/customers", {"name": "Ada", "email": "ada@example.com"}, key="of-a-customer")
    api.book("00000000-0000-4000-8000-000000000000", key="of-a-refusal")
    for key in ("of-a-hold", "of-a-customer", "of-a-refusal"):
        assert api.post("/bookings/quote", booking_body(departure), key=key).json()["booking_id"] is None


def test_the_key_of_a_quote_is_checked(api: Api, departure: str) -> None:
    refused(api.post("/bookings/quote", booking_body(departure), key="short"), 400, "validation_failed")


PATHS = {
    "/bookings": {"guests": [{"tier_id": "adult", "count": 1}], "payment": "invoice"}
    | {"customer": {"name": "Ada", "email": "ada@example.com"}},
    "/bookings/quote": {"guests": [{"tier_id": "adult", "count": 1}]},
    "/holds": {"seats": 1},
}


@pytest.mark.parametrize("path", PATHS)
def test_a_departure_is_named_by_either_name_and_not_by_both(api: Api, departure: str, path: str) -> None:
    for name in ("departure_id", "experience_date_id"):
        assert api.post(path, PATHS[path] | {name: departure}).is_success
        wrong = refused(api.post(path, PATHS[path] | {name: "tomorrow"}), 400, "validation_failed")
        assert wrong["details"][0]["field"] == name
    both = {"departure_id": departure, "experience_date_id": departure}
    refusal = refused(api.post(path, PATHS[path] | both), 400, "validation_failed")
    assert refusal["details"][0]["field"] == "departure_id"
    documented = "experience_date_id" if path == "/bookings" else "departure_id"
    missing = refused(api.post(path, PATHS[path]), 400, "validation_failed")
    assert missing["details"][0]["field"] == documented


def test_the_other_name_makes_another_request_of_the_same_key(api: Api, departure: str) -> None:
    body = PATHS["/bookings"]
    assert api.post("/bookings", body | {"departure_id": departure}, key="one-key-17").status_code == 201
    again = api.post("/bookings", body | {"experience_date_id": departure}, key="one-key-17")
    refused(again, 422, "idempotency_key_reused")

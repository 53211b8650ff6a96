"""The catalogue file: read from bytes, and every mistake in it found at once."""

import copy
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from booking_core.base.errors import Malformed
from booking_core.catalogue import catalog
from booking_core.catalogue.catalog import InvalidCatalogue

TOUR: dict[str, Any] = {
    "slug": "kayak",
    "title": "Kayak",
    "duration_minutes": 150,
    "price_from": {"amount_minor": 89000, "currency": "NOK"},
}
ID = "431036b1-9c9b-4475-96fc-d94e7485ab11"
OTHER_ID = "9566f6c9-2fe2-43f7-9df7-3a5b4feee5d1"


def problems(document: object) -> dict[str, str]:
    """Return the message at each pointer; every pointer occurs once in these tests."""
    with pytest.raises(InvalidCatalogue) as refused:
        catalog.validate(document)
    found = dict(refused.value.problems)
    assert len(found) == len(refused.value.problems)
    return found


def tour(**keys: Any) -> dict[str, Any]:
    return {"experiences": [TOUR | keys]}


@pytest.mark.parametrize("name", ["fjord-tours.json", "isla-tours.json"])
def test_the_example_catalogues_have_no_problem(example_dir: Path, name: str) -> None:
    catalog.validate(catalog.parse((example_dir / name).read_bytes()))


def test_an_empty_catalogue_is_one() -> None:
    plan = catalog.validate({})
    assert (plan.experiences, plan.departures, plan.customers, plan.gift_cards, plan.notes) == ((), (), (), (), ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{\n  "experiences": [,]\n}', "is not JSON: Expecting value at line 2, column 19"),
        (b"", "is not JSON: Expecting value at line 1, column 1"),
        (b'{"a": NaN}', "cannot be read: NaN is not JSON"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"a": "\xff"}', "is not UTF-8: byte 7 cannot be read"),
        (b'{"\\ud800": 1}', "cannot be read: a key is not valid Unicode"),
    ],
)
def test_what_cannot_be_read_is_one_problem_of_the_file(text: bytes, said: str) -> None:
    with pytest.raises(InvalidCatalogue) as refused:
        catalog.parse(text)
    assert refused.value.problems == (("", said),)


def test_a_number_of_five_thousand_digits_is_a_problem_and_no_crash() -> None:
    with pytest.raises(InvalidCatalogue):
        catalog.parse(b'{"experiences": ' + b"9" * 5000 + b"}")


def test_a_byte_order_mark_is_read_over() -> None:
    assert catalog.parse(b"\xef\xbb\xbf{}") == {}


def test_a_key_written_twice_is_a_problem() -> None:
    document = catalog.parse(b'{"experiences": [{"slug": "a", "title": "A", "title": "B"}]}')
    assert problems(document) == {"/experiences/0/title": "is written twice"}


def test_toml_says_the_same_as_json() -> None:
    text = b"""
        [[experiences]]
        slug = "kayak"
        title = "Kayak"
        duration_minutes = 150
        [[experiences.departures]]
        starts_at = 2026-12-24T10:00:00
        seats_total = 12
        [[experiences.schedules]]
        weekdays = ["sat"]
        times = [11:00:00, "14:30"]
        from = 2026-12-01
        to = 2026-12-31
        seats_total = 8
    """
    document = catalog.parse(text, suffix=".toml")
    experience = document["experiences"][0]
    assert experience["departures"][0]["starts_at"] == "2026-12-24T10:00:00"
    assert experience["schedules"][0] == {
        "weekdays": ["sat"],
        "times": ["11:00", "14:30"],
        "from": "2026-12-01",
        "to": "2026-12-31",
        "seats_total": 8,
    }
    assert len(catalog.validate(document).departures) == 1 + 4 * 2


def test_broken_toml_names_line_and_column() -> None:
    with pytest.raises(InvalidCatalogue) as refused:
        catalog.parse(b"a = 1\nb = = 2", suffix=".TOML")
    assert "line 2, column 5" in refused.value.problems[0].message


@pytest.mark.parametrize("document", [None, [], "x", 7])
def test_what_is_no_object_is_one_problem(document: object) -> None:
    assert problems(document) == {"": "must be an object"}


def test_a_refusal_carries_each_problem_as_a_detail() -> None:
    with pytest.raises(Malformed) as refused:
        catalog.validate(tour(slug="Not A Slug"))
    assert [(each.field, each.reason) for each in refused.value.details] == [("/experiences/0/slug", "invalid")]
    assert str(refused.value) == "The catalogue has a problem; nothing was imported."


def test_a_key_that_is_unknown_is_pointed_out_with_what_was_meant() -> None:
    found = problems(tour(seat_total=12, nonsense=1, **{"a/b~c": 1}))
    assert found == {
        "/experiences/0/seat_total": "is not a known key; did you mean seats_total?",
        "/experiences/0/nonsense": "is not a known key",
        "/experiences/0/a~1b~0c": "is not a known key",
    }


@pytest.mark.parametrize(
    "text", ["2026-12-24T10:00", "2026-12-24 10:00:00", "2026-12-24T10:00:00Z", "2026-12-24T10:00:00+05:45"]
)
def test_a_start_may_be_written_in_any_usual_way(text: str) -> None:
    assert len(catalog.validate(tour(departures=[{"starts_at": text, "seats_total": 1}])).departures) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-12-24", "must have a time of day, such as 2026-12-24T10:00:00"),
        ("24.12.2026 10:00", "must be an ISO 8601 timestamp"),
        ("2026-02-30T10:00:00", "is not a moment of the calendar"),
        ("9999-12-31T23:59:59", "must lie between the years 1970 and 9997"),
        ("0001-01-01T00:00:00", "must lie between the years 1970 and 9997"),
        (1700000000, "must be an ISO 8601 timestamp"),
    ],
)
def test_a_start_that_is_none_is_reported(text: object, said: str) -> None:
    found = problems(tour(departures=[{"starts_at": text, "seats_total": 1}]))
    assert found == {"/experiences/0/departures/0/starts_at": said}


def test_lists_of_a_schedule_name_each_once() -> None:
    schedule = {"weekdays": ["sat", "sat"], "times": ["10:00", "10:00"], "from": "2026-12-01", "to": "2026-12-31"}
    assert problems(tour(schedules=[schedule | {"seats_total": 1}])) == {
        "/experiences/0/schedules/0/weekdays": "names the same one twice",
        "/experiences/0/schedules/0/times": "names the same one twice",
    }


BAD: dict[str, Any] = {
    "experience": [],
    "experiences": [
        {
            "id": "not-a-uuid",
            "slug": "Fjord Kayak",
            "title": "   ",
            "is_published": "yes",
            "duration_minutes": 0,
            "latitude": 91,
            "longitude": "5.32",
            "image_url": "ftp://example.com/a.jpg",
            "languages": ["english"],
            "tags": ["fine", "li\nne"],
            "price_from": {"amount_minor": -1, "currency": "NOK"},
            "price_tiers": [
                {"id": "adult", "name": "Adult", "price": {"amount_minor": 1, "currency": "NOK"}},
                {"id": "adult", "name": "Again", "price": {"amount_minor": 1, "currency": "EUR"}},
                {"id": "half", "name": "", "price": {"amount_minor": 1.5, "currency": "kr"}, "seats_per_unit": 0},
            ],
            "add_ons": [
                {"id": "suit", "label": "Suit", "price": {"amount_minor": 1, "currency": "NOK"}},
                {"id": "suit", "label": "Suit", "price": None},
            ],
            "min_participants": 0,
            "hours_before_booking_closes": -1,
            "meeting_point": 1,
            "what_to_bring": ["A towel", "li\nne"],
            "terms": "x" * 2001,
            "departures": [
                {"id": ID, "starts_at": "2026-12-24T10:00:00", "seats_total": 12},
                {"id": ID.upper(), "starts_at": "2026-12-24T10:00:00Z", "seats_total": -1, "status": "sold_out"},
                {"starts_at": "2026-12-25T10:00:00", "ends_at": "2026-12-25T09:00:00", "seats_total": 12},
                {"starts_at": "soon", "seats_total": True},
            ],
            "schedules": [
                {"weekdays": ["sat"], "times": ["10:00"], "from": "2027-01-31", "to": "2027-01-01", "seats_total": 1},
                {"weekdays": ["so"], "times": ["24:00"], "from": "01.01.2027", "to": "2027-02-30", "seats_total": 1},
                {"weekdays": ["sat"], "times": ["10:00"], "from": "2027-01-01", "to": "2207-01-01", "seats_total": 1},
                {"weekdays": ["fri"], "times": ["10:00"], "from": "2027-02-01", "to": "2027-02-28", "seats_total": 1},
                {"weekdays": ["fri"], "times": ["10:00"], "from": "2027-02-15", "to": "2027-03-31", "seats_total": 2},
                {"weekdays": [], "times": [], "from": "2027-01-01", "to": "2027-01-01"},
            ],
        },
        {"slug": "twice", "title": "First"},
        {
            "slug": "twice",
            "departures": [{"starts_at": "2026-12-24T10:00:00", "seats_total": 1}],
            "schedules": [
                {"weekdays": ["sat"], "times": ["10:00"], "from": "2027-01-01", "to": "2027-01-02", "seats_total": 1}
            ],
        },
        "not an object",
    ],
    "customers": [
        {"email": "Renée@Example.com", "name": "Renée"},
        {"email": "rene\u0301e@example.com", "name": "The same"},
        {"id": ID, "email": "a@b", "name": "x" * 201, "phone": 123},
        {"name": "Nobody"},
    ],
    "gift_cards": [
        {"code": "GIFT-0001", "initial_amount": {"amount_minor": 50000, "currency": "NOK"}},
        {"code": " gift-0001 ", "initial_amount": {"amount_minor": 50000, "currency": "XXX"}},
        {
            "code": "GIFT-0002",
            "initial_amount": {"amount_minor": 100, "currency": "NOK"},
            "balance": {"amount_minor": 200, "currency": "EUR"},
            "valid_from": "2027-01-02T00:00:00",
            "expires_at": "2027-01-01T00:00:00",
            "purchaser": {"name": "A", "email": "not an address"},
        },
        {"code": "abc", "initial_amount": 50000},
    ],
}

FOUND: dict[str, Any] = {
    "/experience": "is not a known key; did you mean experiences?",
    "/experiences/0/id": "must be a UUID",
    "/experiences/0/slug": "must be lower-case words joined by hyphens",
    "/experiences/0/title": ANY,
    "/experiences/0/is_published": "must be true or false",
    "/experiences/0/duration_minutes": "must be greater than or equal to 1",
    "/experiences/0/latitude": "must be less than or equal to 90",
    "/experiences/0/longitude": "must be a number",
    "/experiences/0/image_url": "must begin with https:// or http://",
    "/experiences/0/languages/0": "must be a language code, such as en or pt-BR",
    "/experiences/0/tags/1": ANY,
    "/experiences/0/price_from/amount_minor": "must be greater than or equal to 0",
    "/experiences/0/price_tiers/1/id": "is the same as /experiences/0/price_tiers/0/id",
    "/experiences/0/price_tiers/1/price/currency": "is not the currency of /experiences/0/price_from/currency: "
    "an experience has one",
    "/experiences/0/price_tiers/2/name": ANY,
    "/experiences/0/price_tiers/2/price/amount_minor": "must be a whole number",
    "/experiences/0/price_tiers/2/price/currency": "must be an ISO 4217 code in capitals, such as NOK",
    "/experiences/0/price_tiers/2/seats_per_unit": "must be greater than or equal to 1",
    "/experiences/0/add_ons/1/id": "is the same as /experiences/0/add_ons/0/id",
    "/experiences/0/add_ons/1/price": "must be an object",
    "/experiences/0/min_participants": "must be greater than or equal to 1",
    "/experiences/0/hours_before_booking_closes": "must be greater than or equal to 0",
    "/experiences/0/meeting_point": "must be text",
    "/experiences/0/what_to_bring/1": ANY,
    "/experiences/0/terms": ANY,
    "/experiences/0/departures/1/id": "is the same as /experiences/0/departures/0/id",
    "/experiences/0/departures/1/starts_at": "is the same as /experiences/0/departures/0/starts_at",
    "/experiences/0/departures/1/seats_total": "must be greater than or equal to 0",
    "/experiences/0/departures/1/status": "must be 'open', 'closed' or 'cancelled'",
    "/experiences/0/departures/2/ends_at": "lies before starts_at",
    "/experiences/0/departures/3/starts_at": "must be an ISO 8601 timestamp",
    "/experiences/0/departures/3/seats_total": "must be a whole number",
    "/experiences/0/schedules/0/to": "lies before from",
    "/experiences/0/schedules/1/weekdays/0": "must be 'mon', 'tue', 'wed', 'thu', 'fri', 'sat' or 'sun'",
    "/experiences/0/schedules/1/times/0": "must be a time of day written HH:MM, from 00:00 to 23:59",
    "/experiences/0/schedules/1/from": "must be a date written YYYY-MM-DD",
    "/experiences/0/schedules/1/to": "is not a day of the calendar",
    "/experiences/0/schedules/2/to": "lies more than 5 years after from",
    "/experiences/0/schedules/4/times/0": "meets /experiences/0/schedules/3/times/0, 2 times, "
    "first at 2027-02-19T10:00:00+00:00",
    "/experiences/0/schedules/5/weekdays": "must not be empty",
    "/experiences/0/schedules/5/times": "must not be empty",
    "/experiences/0/schedules/5/seats_total": "is required",
    "/experiences/2/slug": "is the same as /experiences/1/slug",
    "/experiences/2/title": "is required",
    "/experiences/2/departures/0": "needs ends_at, or a duration_minutes of its experience",
    "/experiences/2/schedules/0": "needs a duration_minutes of its experience",
    "/experiences/3": "must be an object",
    "/customers/1/email": "is the same as /customers/0/email",
    "/customers/2/id": "is the same as /experiences/0/departures/0/id",
    "/customers/2/email": ANY,
    "/customers/2/name": ANY,
    "/customers/2/phone": "must be text",
    "/customers/3/email": "is required",
    "/gift_cards/1/code": "is the same as /gift_cards/0/code",
    "/gift_cards/1/initial_amount/currency": "must be an ISO 4217 code in capitals, such as NOK",
    "/gift_cards/2/balance/amount_minor": "is more than the initial amount",
    "/gift_cards/2/balance/currency": "is not the currency of the initial amount",
    "/gift_cards/2/expires_at": "lies before valid_from",
    "/gift_cards/2/purchaser/email": ANY,
    "/gift_cards/3/code": "must have at least 4 characters",
    "/gift_cards/3/initial_amount": "must be an object",
}


def test_a_catalogue_of_many_mistakes_has_every_one_of_them_reported_at_once() -> None:
    before = copy.deepcopy(BAD)
    assert problems(BAD) == FOUND  # ANY: words of the wire's own types
    assert len(FOUND) >= 25
    assert before == BAD

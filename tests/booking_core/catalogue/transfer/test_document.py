"""The catalogue file: read from bytes, and every mistake in it found at once."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from support.world.catalogue import departure, departures, money, tier, tour, tours

from booking_core.base.clock import zone
from booking_core.base.errors import Malformed
from booking_core.catalogue import transfer
from booking_core.catalogue.transfer import InvalidCatalogue, document


def problems(document: object) -> dict[str, str]:
    """Return the message at each pointer; every pointer occurs once in these tests."""
    with pytest.raises(InvalidCatalogue) as refused:
        transfer.validate(document)
    messages = dict(refused.value.problems)
    assert len(messages) == len(refused.value.problems)
    return messages


def test_an_empty_catalogue_is_one() -> None:
    plan = transfer.validate({})
    assert (plan.experiences, plan.departures, plan.customers, plan.gift_cards, plan.notes) == ((), (), (), (), ())


@pytest.mark.parametrize(
    ("suffix", "text", "opening"),
    [
        (".json", b'{\n  "experiences": [,]\n}', "is not JSON: Expecting value at line 2, column 19"),
        (".json", b"", "is not JSON: Expecting value at line 1, column 1"),
        (".json", b'{"a": NaN}', "cannot be read: NaN is not JSON"),
        (".json", b"[" * 100_000, "is nested too deeply"),
        (".json", b'{"a": "\xff"}', "is not UTF-8: byte 7 cannot be read"),
        (".json", b'{"\\ud800": 1}', "cannot be read: a key is not valid Unicode"),
        pytest.param(".json", b'{"a": ' + b"9" * 5000 + b"}", "cannot be read: Exceeds the limit", id="5000 digits"),
        (".TOML", b"a = 1\nb = = 2", "cannot be read: Invalid value (at line 2, column 5)"),
    ],
)
def test_what_cannot_be_read_is_one_problem_of_the_file(suffix: str, text: bytes, opening: str) -> None:
    with pytest.raises(InvalidCatalogue) as refused:
        transfer.parse(text, suffix=suffix)
    ((pointer, message),) = refused.value.problems
    assert (pointer, message.startswith(opening)) == ("", True), message


@pytest.mark.parametrize(
    ("at", "text"),
    [
        ("/experiences/0/title", b'{"experiences": [{"slug": "a", "title": "A\\ud800"}]}'),
        ("/experiences/0/excerpt", b'{"experiences": [{"slug": "a", "title": "A", "excerpt": "\\udfff"}]}'),
        ("/customers/0/name", b'{"customers": [{"email": "ada@example.com", "name": "\\udc00\\ud800"}]}'),
        (
            "/experiences/0/price_tiers/0/name",
            b'{"experiences": [{"slug": "a", "title": "A", "price_tiers": [{"id": "adult", "name": "\\ud800",'
            b' "price": {"amount_minor": 1, "currency": "NOK"}}]}]}',
        ),
    ],
)
def test_half_of_a_character_is_a_problem_of_its_text(at: str, text: bytes) -> None:
    assert problems(transfer.parse(text)) == {at: "is not valid Unicode"}


def _wrong_entries(count: int) -> dict[str, Any]:
    """Return a catalogue with so many wrong entries of each kind, each with one problem."""
    departures = [
        departure(seats_total=-1, starts_at=f"2999-12-{1 + i % 28:02}T{i // 28:02}:00:00") for i in range(count)
    ]
    customers = [{"email": f"a{i}@example.com", "name": ""} for i in range(count)]
    return {"experiences": [tour(departures=departures)], "customers": customers}


@pytest.mark.parametrize(
    ("count", "sentence"), [(500, "1000 problems;"), (501, "more than 1,000 problems; the first are listed")]
)
def test_the_first_thousand_problems_are_listed(count: int, sentence: str) -> None:
    with pytest.raises(InvalidCatalogue, match=sentence) as refused:
        transfer.validate(_wrong_entries(count))
    assert (len(refused.value.problems), len(refused.value.details)) == (1_000, 1_000)
    pointers = [problem.pointer for problem in refused.value.problems]
    assert pointers[count - 1 : count + 1] == [
        f"/experiences/0/departures/{count - 1}/seats_total",
        "/customers/0/name",
    ]
    assert sentence in str(refused.value.with_outcome("the entries before it stay imported"))


def test_entries_after_enough_problems_are_not_validated() -> None:
    plan, mistakes = document.read({"customers": [{}] * 5_000, "gift_cards": [1] * 5_000}, zone("UTC"))
    assert (plan, len(list(mistakes))) == (None, 1_002)


def test_a_byte_order_mark_is_read_over() -> None:
    assert transfer.parse('\ufeff{"gr\u00f6\u00dfe": 1}'.encode()) == {"gr\u00f6\u00dfe": 1}


def test_a_key_written_twice_is_a_problem() -> None:
    document = transfer.parse(b'{"experiences": [{"slug": "a", "title": "A", "title": "B"}]}')
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
    document = transfer.parse(text, suffix=".toml")
    ((starting,), (schedule,)) = (document["experiences"][0][key] for key in ("departures", "schedules"))
    assert starting["starts_at"] == "2026-12-24T10:00:00"
    days = {"weekdays": ["sat"], "from": "2026-12-01", "to": "2026-12-31"}
    assert schedule == days | {"times": ["11:00", "14:30"], "seats_total": 8}
    assert len(transfer.validate(document).departures) == 1 + 4 * 2


@pytest.mark.parametrize("document", [None, [], "x", 7])
def test_what_is_no_object_is_one_problem(document: object) -> None:
    assert problems(document) == {"": "must be an object"}


def test_a_refusal_carries_each_problem_as_a_detail() -> None:
    with pytest.raises(Malformed) as refused:
        transfer.validate(tours(tour(slug="Not A Slug")))
    assert [(detail.field, detail.reason) for detail in refused.value.details] == [("/experiences/0/slug", "invalid")]
    assert str(refused.value) == "The catalogue has a problem; nothing was imported."


@pytest.mark.parametrize(
    "text", ["2026-12-24T10:00", "2026-12-24 10:00:00", "2026-12-24T10:00:00Z", "2026-12-24T10:00:00+05:45"]
)
def test_a_start_may_be_written_in_any_usual_way(text: str) -> None:
    assert len(transfer.validate(departures(departure(starts_at=text))).departures) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2026-12-24", "must have a time of day, such as 2026-12-24T10:00:00"),
        ("24.12.2026 10:00", "must be an ISO 8601 timestamp"),
        ("2026-02-30T10:00:00", "is not a moment of the calendar"),
        ("9999-12-31T23:59:59", "must lie between the years 1970 and 9997"),
        ("0001-01-01T00:00:00", "must lie between the years 1970 and 9997"),
        (1700000000, "must be an ISO 8601 timestamp"),
    ],
)
def test_a_start_that_is_none_is_reported(text: object, message: str) -> None:
    messages = problems(departures(departure(starts_at=text)))
    assert messages == {"/experiences/0/departures/0/starts_at": message}


def test_all_mistakes_of_a_catalogue_are_reported_at_once() -> None:
    """`mistakes.json` has a file and its problems, `*` for the words of the API's own types."""
    case = json.loads(Path(__file__).with_name("mistakes.json").read_text(encoding="utf-8"))
    before = copy.deepcopy(case["file"])
    messages = problems(case["file"])
    assert {at: "*" if case["found"].get(at) == "*" else message for at, message in messages.items()} == case["found"]
    assert len(messages) >= 25
    assert before == case["file"]


# Translations ----------------------------------------------------------------------------------------------------


def translated(translations: Any) -> dict[str, Any]:
    suit = {"id": "suit", "label": "Dry suit", "price": money(89000)}
    return tours(tour(price_tiers=[tier("adult", 89000)], add_ons=[suit], translations=translations))


def test_a_problem_names_the_language_and_the_field() -> None:
    wrong = {
        "de": {"title": "", "terms": 1, "titel": "Kajak", "what_to_bring": ["li\nne"], "price_tiers": {"adlut": "X"}},
        "DE-at": {},
        "DE": {"title": "Kajak"},
        "fr": {"add_ons": {"suit": "Combinaison", "boat": "Bateau"}, "price_tiers": ["Adulte"]},
        "french": "Kayak",
    }
    with pytest.raises(InvalidCatalogue) as refused:
        transfer.validate(translated(wrong))
    messages = dict(refused.value.problems)
    at = "/experiences/0/translations"
    assert messages.pop(f"{at}/de/title")
    assert messages.pop(f"{at}/de/what_to_bring/0")
    assert messages == {
        f"{at}/de/terms": "must be text",
        f"{at}/de/titel": "is not a known key; did you mean title?",
        f"{at}/de/price_tiers/adlut": "is no price tier of its experience; did you mean adult?",
        f"{at}/DE-at": "must be a language code, such as en or pt-BR",
        f"{at}/DE": "is the same as /experiences/0/translations/de",
        f"{at}/fr/add_ons/boat": "is no add-on of its experience",
        f"{at}/fr/price_tiers": "must be an object",
        f"{at}/french": "must be an object",
    }


def test_a_language_that_is_written_twice_is_a_problem() -> None:
    text = json.dumps(translated({"de": {}, "pt-BR": {}})).replace('"pt-BR"', '"de"').encode()
    with pytest.raises(InvalidCatalogue) as refused:
        transfer.validate(transfer.parse(text))
    assert refused.value.problems[0] == ("/experiences/0/translations/de", "is written twice")

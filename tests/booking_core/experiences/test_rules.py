"""What is derived from an experience's row, and how it is shown."""

import pytest

from booking_core import experiences
from booking_core.clock import zone
from booking_core.experiences import rules
from booking_core.experiences.rules import ExperienceRow
from booking_core.wire.experiences import Experience

OSLO = zone("Europe/Oslo")
ROW = ExperienceRow(
    created_at=1_795_262_400_123_456,
    id="0193a6c4-0000-7000-8000-000000000001",
    slug="fjord-kayak",
    title="Fjord kayak",
    is_published=True,
    excerpt="Flat water.",
    duration_minutes=150,
    difficulty="easy",
    address="Eidfjord",
    latitude=60.4677,
    longitude=7.0,
    image_url="https://images.example.com/kayak.jpg",
    languages='["en","nb"]',
    tags='["water"]',
    currency="NOK",
    price_from_minor=49500,
    price_tiers='[{"id":"adult","name":"Adult","price":{"amount_minor":89000,"currency":"NOK"},"seats_per_unit":1}]',
    min_participants=2,
    hours_before_booking_closes=4,
    updated_at=1_795_262_400_123_456,
)
BARE = ROW._replace(
    excerpt=None,
    duration_minutes=None,
    difficulty=None,
    address=None,
    latitude=None,
    longitude=None,
    image_url=None,
    languages="[]",
    tags="[]",
    price_from_minor=None,
    price_tiers="[]",
    min_participants=None,
    hours_before_booking_closes=None,
)


@pytest.mark.parametrize("row", [ROW, BARE, BARE._replace(price_from_minor=0)])
def test_an_experience_is_shown_exactly_as_the_wire_has_it(row: ExperienceRow) -> None:
    shown = rules.present(row, OSLO)
    assert Experience.model_validate(shown).to_json() == shown
    assert list(shown) == list(Experience.model_fields)


def test_a_flag_that_sqlite_gives_as_a_number_is_shown_as_a_boolean() -> None:
    assert rules.present(ROW._replace(is_published=1), OSLO)["is_published"] is True  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (None, None),
        (1, "1 min"),
        (45, "45 min"),
        (60, "1 h"),
        (150, "2 h 30 min"),
        (1439, "23 h 59 min"),
        (1440, "1 day"),
        (1441, "1 day 1 min"),
        (4320, "3 days"),
        (4470, "3 days 2 h 30 min"),
    ],
)
def test_a_duration_is_read_as_people_say_it(minutes: int | None, text: str | None) -> None:
    assert rules.duration_text(minutes) == text


def test_an_experience_without_tiers_sells_one_standard_tier_at_its_advertised_price() -> None:
    tier = {
        "id": "standard",
        "name": "Standard",
        "price": {"amount_minor": 25000, "currency": "CLP"},
        "seats_per_unit": 1,
    }
    assert experiences.price_tiers("[]", 25000, "CLP") == [tier]
    assert experiences.price_tiers("[]", 0, "CLP")[0]["price"]["amount_minor"] == 0


def test_an_experience_without_tiers_and_without_a_price_sells_nothing_by_itself() -> None:
    assert experiences.price_tiers("[]", None, "NOK") == []


def test_configured_tiers_stand_whatever_the_advertised_price() -> None:
    assert [tier["id"] for tier in experiences.price_tiers(ROW.price_tiers, 1, "NOK")] == ["adult"]

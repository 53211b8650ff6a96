"""Experiences are listed and fetched, in their translations, by the rules of their fields."""

import json
from typing import Any

import pytest
from support.world.world import ADULT, NOON, World

from booking_core.base.clock import zone
from booking_core.catalogue import experiences
from booking_core.catalogue.experiences import rules
from booking_core.catalogue.experiences.rules import ExperienceRow
from booking_core.db.paging import PageRequest
from booking_core.models.experiences import Experience
from booking_core.models.pages import Page


def find(world: World, page: PageRequest = PageRequest(), **filters: Any) -> dict[str, Any]:  # noqa: B008
    return world.database.read(lambda tx: experiences.find(tx, world.caller(), page, **filters))


def ids(page: dict[str, Any]) -> list[str]:
    return [item["id"] for item in page["data"]]


def test_a_page_is_what_the_wire_calls_a_page(world: World) -> None:
    world.experience(is_published=False)
    world.experience(latitude=60, longitude=5.25, price_from_minor=None, price_tiers="[]")
    page = find(world)
    assert Page[Experience].model_validate(page).to_json() == page
    assert page["has_more"] is False
    assert page["next_cursor"] is None


def test_published_filters_and_its_absence_gives_both(world: World) -> None:
    published, hidden = world.experience(), world.experience(is_published=False)
    assert ids(find(world, published=True)) == [published]
    assert ids(find(world, published=False)) == [hidden]
    assert set(ids(find(world))) == {published, hidden}


def test_what_changed_at_that_very_instant_belongs_to_updated_since(world: World) -> None:
    world.experience(updated_at=NOON - 1)
    changed = world.experience(updated_at=NOON)
    assert ids(find(world, updated_since=NOON)) == [changed]
    assert ids(find(world, updated_since=NOON + 1)) == []


def test_an_experience_equals_its_list_item_and_takes_one_statement(world: World, statements: list[str]) -> None:
    experience = world.experience()
    statements.clear()
    (listed,) = find(world, published=True, updated_since=NOON)["data"]
    assert world.database.read(lambda tx: experiences.get(tx, world.caller(), experience)) == listed
    assert len(statements) == 2


# Translations --------------------------------------------------------------------------------------------------------


GERMAN = {"title": "Kajak", "price_tiers": {"adult": "Erwachsene"}, "add_ons": {"suit": "Anzug"}}
STORED = json.dumps({"de": GERMAN, "pt-BR": {"title": "Caiaque"}, "nb": {"title": "Kajakk", "terms": "Vær tidlig."}})


@pytest.mark.parametrize(
    ("tag", "served"),
    [
        ("de", "de"),
        ("de-AT", "de"),
        ("DE-ch-1996", "de"),
        ("pt-br", "pt-BR"),
        ("pt-PT", "pt-BR"),
        ("pt", "pt-BR"),
        ("d", None),
        ("dex", None),
        ("fr", None),
        ("", None),
    ],
)
def test_a_tag_is_served_by_itself_else_by_its_language(tag: str, served: str | None) -> None:
    assert rules.closest(("pt-BR", "de"), tag) == served


def test_a_text_comes_from_the_first_wanted_language_that_has_it() -> None:
    assert rules.texts_for(STORED, ("de-AT", "nb")) == {**GERMAN, "terms": "Vær tidlig."}
    assert rules.texts_for(STORED, (None, "fr")) == {}
    assert rules.texts_for(None, ("de",)) == {}


def test_a_name_comes_from_the_first_wanted_language_that_has_it() -> None:
    stored = json.dumps({"de": {"add_ons": {"a": "Anzug"}}, "fr": {"add_ons": {"a": "Combinaison", "b": "Gants"}}})
    assert rules.texts_for(stored, ("de", "fr"))["add_ons"] == {"a": "Anzug", "b": "Gants"}


def test_an_empty_text_counts_as_none() -> None:
    stored = json.dumps({"de": {"title": "", "what_to_bring": []}, "fr": {"title": "Kayak"}})
    assert rules.texts_for(stored, ("de", "fr")) == {"title": "Kayak"}


def test_each_language_has_every_field_and_no_inactive_add_on() -> None:
    translations = rules.present_translations(STORED, has_add_ons=True)
    empty = dict.fromkeys(("title", "excerpt", "meeting_point", "what_to_bring", "terms"))
    assert translations["de"] == {**empty, **GERMAN}
    assert translations["pt-BR"] == {**empty, "title": "Caiaque", "price_tiers": {}, "add_ons": {}}
    assert rules.present_translations(STORED, has_add_ons=False)["de"]["add_ons"] == {}
    assert rules.present_translations(None, has_add_ons=True) == {}


# Rules ---------------------------------------------------------------------------------------------------------------


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
    price_tiers=json.dumps([ADULT]),
    add_ons='[{"id":"drysuit","label":"Dry suit","price":{"amount_minor":15000,"currency":"NOK"}}]',
    min_participants=2,
    hours_before_booking_closes=4,
    meeting_point="The red boathouse.\n200 m past the quay.",
    what_to_bring='["Wool underwear","A change of clothes"]',
    terms="Guests must be able to swim.",
    translations='{"de":{"title":"Fjordkajak","what_to_bring":["Wolle"],"add_ons":{"drysuit":"Trockenanzug"}}}',
    updated_at=1_795_262_400_123_456,
)
LISTS = dict.fromkeys(("languages", "tags", "price_tiers"), "[]")
REQUIRED = {*LISTS, "created_at", "id", "slug", "title", "is_published", "currency", "add_ons", "updated_at"}
BARE = ROW._replace(**LISTS | dict.fromkeys(set(ROW._fields) - REQUIRED))


@pytest.mark.parametrize("row", [ROW, BARE, BARE._replace(price_from_minor=0)])
def test_an_experience_is_shown_exactly_as_the_wire_has_it(row: ExperienceRow) -> None:
    body = rules.present(row, OSLO)
    assert Experience.model_validate(body).to_json() == body
    assert list(body) == list(Experience.model_fields)


def test_add_ons_are_shown_while_they_can_be_booked() -> None:
    price = {"amount_minor": 15000, "currency": "NOK"}
    assert rules.present(ROW, OSLO)["add_ons"] == [{"id": "drysuit", "name": "Dry suit", "price": price}]
    hidden = rules.present(ROW, OSLO, has_add_ons=False)
    assert (hidden["add_ons"], hidden["translations"]["de"]["add_ons"]) == ([], {})


def test_a_client_reads_the_response_of_an_earlier_release() -> None:
    body = rules.present(ROW, OSLO)
    del body["add_ons"]
    assert Experience.model_validate(body).add_ons == []


def test_a_flag_stored_as_a_number_is_shown_as_a_boolean() -> None:
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


@pytest.mark.parametrize("amount", [25000, 0])
def test_an_experience_without_tiers_sells_one_standard_tier_at_its_advertised_price(amount: int) -> None:
    tier = {"id": "standard", "name": "standard", "price": {"amount_minor": amount, "currency": "CLP"}}
    assert experiences.price_tiers("[]", amount, "CLP") == [tier | {"seats_per_unit": 1}]


def test_an_experience_without_tiers_and_without_a_price_sells_nothing_by_itself() -> None:
    assert experiences.price_tiers("[]", None, "NOK") == []


def test_configured_tiers_stand_whatever_the_advertised_price() -> None:
    assert experiences.price_tiers(ROW.price_tiers, 1, "NOK") == [ADULT]


# Prices at a departure -------------------------------------------------------------------------------------------

TIERS = json.dumps([ADULT, ADULT | {"id": "child", "price": {"amount_minor": 45000, "currency": "NOK"}}])


@pytest.mark.parametrize(("price_from_minor", "advertised"), [(None, 45000), (99000, 99000), (0, 0)])
@pytest.mark.parametrize("published", [True, False])
def test_the_cheapest_tier_is_the_default_advertised_price(
    price_from_minor: int | None, advertised: int, published: bool
) -> None:
    row = BARE._replace(price_tiers=TIERS, price_from_minor=price_from_minor, is_published=published)
    assert rules.present(row, OSLO)["price_from"] == {"amount_minor": advertised, "currency": BARE.currency}


@pytest.mark.parametrize(
    ("price_from", "price", "prices", "charged", "advertised"),
    [
        (1, None, None, {"adult": 89000, "child": 45000}, 1),
        (1, 5, None, {"adult": 89000, "child": 45000}, 1),
        (None, None, None, {"adult": 89000, "child": 45000}, 45000),
        (0, None, None, {"adult": 89000, "child": 45000}, 45000),
        (69000, None, '{"child":0}', {"adult": 89000, "child": 0}, 89000),
        (None, None, '{"adult":40000}', {"adult": 40000, "child": 45000}, 40000),
        (None, None, '{"adult":0,"child":0}', {"adult": 0, "child": 0}, 0),
        (None, None, '{"senior":1}', {"adult": 89000, "child": 45000}, 45000),
        (69000, None, '{"senior":1}', {"adult": 89000, "child": 45000}, 69000),
    ],
)
def test_a_tier_price_of_the_departure_precedes_the_price_of_the_tier(
    price_from: int | None, price: int | None, prices: str | None, charged: dict[str, int], advertised: int
) -> None:
    offered = experiences.tiers(TIERS, price_from, price, prices)
    assert {tier: offer.price_minor for tier, offer in offered.items()} == charged
    assert experiences.advertised_minor(TIERS, price_from, price, prices) == advertised


@pytest.mark.parametrize(
    ("price_from", "price", "prices", "charged"),
    [
        (8000, None, None, 8000),
        (8000, 9000, None, 9000),
        (8000, 0, None, 0),
        (None, 9000, None, 9000),
        (None, None, None, None),
        (8000, None, '{"standard":1}', 8000),
    ],
)
def test_without_tiers_a_departure_s_single_price_goes_before_the_advertised_one(
    price_from: int | None, price: int | None, prices: str | None, charged: int | None
) -> None:
    offered = experiences.tiers("[]", price_from, price, prices)
    assert [tier.price_minor for tier in offered.values()] == ([] if charged is None else [charged])
    assert experiences.advertised_minor("[]", price_from, price, prices) == charged

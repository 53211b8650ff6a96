"""Translations in the catalogue file: they arrive and leave as they were written, and name what is wrong in them."""

import json
from typing import Any

import pytest
from support.world import HOUR, World

from booking_core.catalogue import catalog
from booking_core.catalogue.catalog import Counts, InvalidCatalogue, Summary, document
from booking_core.db import tables

PRICE = {"amount_minor": 89000, "currency": "NOK"}
GERMAN = {
    "title": "Fjordkajak",
    "excerpt": "Zwei Stunden auf dem Wasser.",
    "meeting_point": "Am Bootshaus.\nParken ist frei.",
    "what_to_bring": ["Ein Handtuch"],
    "terms": "Kinder nur mit Erwachsenen.",
    "price_tiers": {"adult": "Erwachsene"},
    "add_ons": {"suit": "Trockenanzug"},
}
BRAZILIAN = {"title": "Caiaque"}


def kayak(**keys: Any) -> dict[str, Any]:
    return {"slug": "kayak", "title": "Kayak", "duration_minutes": 60, **keys}


def full(**translations: Any) -> dict[str, Any]:
    tiers = [{"id": "adult", "name": "Adult", "price": PRICE}]
    return kayak(
        price_tiers=tiers,
        add_ons=[{"id": "suit", "label": "Dry suit", "price": PRICE}],
        translations=translations or {"de": GERMAN, "pt-BR": BRAZILIAN},
    )


def load(world: World, *experiences: Any) -> Summary:
    return world.database.write(
        lambda tx: catalog.import_document(
            tx, world.organization, world.installation, {"experiences": list(experiences)}, now=world.clock()
        )
    )


def stored(world: World) -> Any:
    (row,) = world.rows(tables.experiences)
    return row["translations"] and json.loads(row["translations"])


def problems(*experiences: Any) -> dict[str, str]:
    with pytest.raises(InvalidCatalogue) as refused:
        catalog.validate({"experiences": list(experiences)})
    return dict(refused.value.problems)


def test_translations_arrive_and_leave_as_they_were_written(world: World) -> None:
    load(world, full())
    assert stored(world) == {"de": GERMAN, "pt-BR": BRAZILIAN}
    exported = world.database.read(lambda tx: catalog.export(tx, world.organization, world.installation))
    assert exported["experiences"][0]["translations"] == {"de": GERMAN, "pt-BR": BRAZILIAN}
    assert load(world, *exported["experiences"]).experiences == Counts(0, 0, 1)
    assert world.examine() == []


def test_an_import_without_translations_keeps_them_and_null_clears_them(world: World) -> None:
    load(world, full())
    world.clock.advance(HOUR)
    assert load(world, kayak()).experiences == Counts(0, 0, 1)
    assert stored(world) == {"de": GERMAN, "pt-BR": BRAZILIAN}
    assert load(world, kayak(translations={"de": {"title": "Kajak"}})).experiences == Counts(0, 1, 0)
    assert stored(world) == {"de": {"title": "Kajak"}}
    assert load(world, kayak(translations=None)).experiences == Counts(0, 1, 0)
    assert stored(world) is None
    for empty in ({}, {"de": {}}, {"de": {"title": None, "add_ons": {}}}):
        assert load(world, kayak(translations=empty)).experiences == Counts(0, 0, 1)


def test_a_problem_names_the_language_and_the_field() -> None:
    wrong = {
        "de": {"title": "", "terms": 1, "titel": "Kajak", "what_to_bring": ["li\nne"], "price_tiers": {"adlut": "X"}},
        "DE-at": {},
        "DE": {"title": "Kajak"},
        "fr": {"add_ons": {"suit": "Combinaison", "boat": "Bateau"}, "price_tiers": ["Adulte"]},
        "french": "Kayak",
    }
    found = problems(full(**wrong))
    at = "/experiences/0/translations"
    assert found.pop(f"{at}/de/title")
    assert found.pop(f"{at}/de/what_to_bring/0")
    assert found == {
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
    text = json.dumps({"experiences": [full()]}).replace('"pt-BR"', '"de"').encode()
    with pytest.raises(InvalidCatalogue) as refused:
        catalog.validate(document.parse(text))
    assert refused.value.problems[0] == ("/experiences/0/translations/de", "is written twice")


def test_an_experience_without_tiers_has_a_name_for_the_standard_one(world: World) -> None:
    load(world, kayak(price_from=PRICE, price_tiers=[], translations={"de": {"price_tiers": {"standard": "Person"}}}))
    assert stored(world) == {"de": {"price_tiers": {"standard": "Person"}}}


def test_a_file_of_translations_alone_is_compared_with_the_stored_tiers_and_add_ons(world: World) -> None:
    load(world, full(de=BRAZILIAN))
    assert load(world, kayak(translations={"de": GERMAN})).experiences == Counts(0, 1, 0)
    with pytest.raises(InvalidCatalogue) as refused:
        load(world, kayak(translations={"de": {"price_tiers": {"child": "Kind"}}}))
    assert dict(refused.value.problems) == {
        "/experiences/0/translations/de/price_tiers/child": "is no price tier of its experience"
    }
    assert stored(world) == {"de": GERMAN}


def test_names_of_a_tier_that_is_removed_stay_and_are_reported(world: World) -> None:
    load(world, full())
    done = load(world, kayak(price_tiers=[{"id": "child", "name": "Child", "price": PRICE}]))
    assert [(note.pointer, note.message) for note in done.notes] == [
        ("/experiences/0/translations/de/price_tiers/adult", "is no price tier of its experience, and is ignored")
    ]
    assert stored(world)["de"] == GERMAN

"""Translated texts of an experience: which language serves a guest, and which text is shown."""

import json

import pytest

from booking_core.catalogue.experiences import rules

GERMAN = {"title": "Kajak", "price_tiers": {"adult": "Erwachsene"}, "add_ons": {"suit": "Anzug"}}
STORED = json.dumps({"de": GERMAN, "pt-BR": {"title": "Caiaque"}, "nb": {"title": "Kajakk", "terms": "Vær tidlig."}})


@pytest.mark.parametrize(
    ("wanted", "found"),
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
def test_a_tag_is_served_by_itself_else_by_its_language(wanted: str, found: str | None) -> None:
    assert rules.closest(("pt-BR", "de"), wanted) == found


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
    shown = rules.present_translations(STORED, has_add_ons=True)
    empty = dict.fromkeys(("title", "excerpt", "meeting_point", "what_to_bring", "terms"))
    assert shown["de"] == {**empty, **GERMAN}
    assert shown["pt-BR"] == {**empty, "title": "Caiaque", "price_tiers": {}, "add_ons": {}}
    assert rules.present_translations(STORED, has_add_ons=False)["de"]["add_ons"] == {}
    assert rules.present_translations(None, has_add_ons=True) == {}

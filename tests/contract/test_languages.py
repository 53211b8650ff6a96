"""The guest's language of a booking: shown as it was given, and in the events of the booking."""

import pytest
from support.api.api import Api
from support.world.operations import Operations

from booking_core.db import tables

pytestmark = pytest.mark.one_database


@pytest.mark.parametrize("locale", ["de-at", "de", "fr-CH", "zh-Hant-TW", "nb", "xx-XX"])
def test_a_booking_and_its_events_have_the_language_as_sent(api: Api, departure: str, locale: str) -> None:
    api.world.change(tables.organizations, api.world.org, language="fr")
    booking = api.book(departure, locale=locale).json()
    assert booking["locale"] == locale
    assert list(booking)[-2:] == ["cancellation", "manage_url"]
    assert api.get(f"/bookings/{booking['id']}").json()["locale"] == locale
    assert [booking["locale"] for booking in api.get("/bookings").json()["data"]] == [locale]
    api.cancel(booking["id"])
    events = api.get("/events", type="booking.*").json()["data"]
    assert [event["data"]["object"]["locale"] for event in events] == [locale] * 3
    assert api.world.examine() == []


def test_a_booking_without_a_language_shows_null_whatever_the_organizations_is(api: Api, departure: str) -> None:
    api.world.change(tables.organizations, api.world.org, language="fr")
    assert api.book(departure).json()["locale"] is None
    assert api.book(departure, locale=None).json()["locale"] is None


def test_the_language_of_a_checkout_is_that_of_its_booking(api: Api, departure: str) -> None:
    booking = Operations(api.world).check_out(departure, locale="es")["id"]
    assert api.get(f"/bookings/{booking}").json()["locale"] == "es"

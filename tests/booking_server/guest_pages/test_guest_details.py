"""The guest's page in other languages, with the organization's identity, and what can be done on it: moving, the
receipt, the calendar entry, and the page of a gift card."""

import base64
import json
import re
from typing import Any
from urllib.parse import urlsplit

import httpx
import icalendar
import pytest
from support.api.api import Api
from support.browser.guest_pages import Guest, text_of
from support.browser.pseudo_locale import letters_left, use_pseudo_locale, visible
from support.world.world import DAY, NOON, FixedClock

from booking_core.base.errors import NotFound
from booking_core.base.guest_links import GIFT_CARD_PURPOSE, Opened, gift_card_link
from booking_core.db import tables
from booking_core.notifications import service as views
from booking_core.notifications import summary
from booking_core.payments import gift_cards
from booking_core.payments.gift_cards import GiftCardIssue
from booking_server.guest_pages import pages as guest_pages

pytestmark = pytest.mark.one_database


@pytest.fixture
def guest(api: Api) -> Guest:
    """Return a guest whose organization lets guests move until a day before the start."""
    world = api.world
    world.change(tables.organizations, world.org, guest_move_until_hours=24, brand_color="#facc15")
    experience = world.experience(
        address="Simadalsvegen 9",
        latitude=60.466,
        longitude=7.0712,
        image_url="https://pictures.example:8443/kayak.jpg?w=1",
        meeting_point="At the boathouse.",
        what_to_bring=json.dumps(["A towel"]),
        terms="Children with an adult.",
    )
    return Guest(api, departure_id=world.departure(experience, starts_at=world.clock() + 5 * DAY))


def other_departure(guest: Guest, *, days: int = 6, **over: Any) -> str:
    world = guest.api.world
    return world.departure(guest.row["experience_id"], starts_at=world.clock() + days * DAY, **over)


def move(guest: Guest, departure_id: str, query: str = "") -> httpx.Response:
    return guest.call("POST", f"{guest.path}/move{query}", data={"departure": departure_id})


# Languages and identity ------------------------------------------------------------------------------------------


def test_the_page_has_the_language_of_the_booking_or_a_chosen_link(guest: Guest) -> None:
    guest.api.world.change(tables.bookings, guest.booking["id"], locale="fr-CH")
    page = guest.open()
    assert '<html lang="fr"' in page.text
    assert "jeudi, 26 novembre 2026" in text_of(page)
    german = guest.open("?lang=de")
    assert '<html lang="de"' in german.text
    assert "Bestätigt" in text_of(german)
    assert f'href="{guest.path}/cancel?lang=de"' in german.text
    assert f'action="{guest.path}/cancel?lang=de"' in guest.open("/cancel?lang=de").text
    redirect = guest.call("POST", f"{guest.path}/cancel?lang=de", data={"offer": "0"})
    assert redirect.headers["location"] == f"{guest.path}?lang=de"
    assert '<html lang="fr"' in guest.open("?lang=xx").text


def test_the_texts_of_the_experience_are_in_the_language_of_the_page(guest: Guest, statements: list[str]) -> None:
    world = guest.api.world
    guest.open()
    count = len(statements)
    german = {
        "title": "Fjordkajak",
        "meeting_point": "Am Bootshaus.",
        "what_to_bring": ["Ein Handtuch"],
        "terms": "Nur mit Erwachsenen.",
        "price_tiers": {"adult": "Erwachsene"},
    }
    texts = {"de": german, "fr": {"title": "Kayak dans le fjord"}}
    world.change(tables.experiences, guest.row["experience_id"], translations=json.dumps(texts))
    world.change(tables.bookings, guest.booking["id"], locale="fr")
    statements.clear()
    page_text = text_of(guest.open("?lang=de"))
    assert len(statements) == count
    for text in ("Fjordkajak", "Am Bootshaus.", "Ein Handtuch", "Nur mit Erwachsenen.", "Erwachsene"):
        assert text in page_text
    for page in ("/cancel", "/move", "/receipt", "/calendar.ics"):
        assert "Fjordkajak" in guest.open(f"{page}?lang=de").text, page
    french = text_of(guest.open())
    assert "Kayak dans le fjord" in french
    assert "At the boathouse." in french
    world.change(tables.organizations, world.org, language="de")
    assert "Am Bootshaus." in text_of(guest.open())


def test_the_page_of_a_broken_link_has_the_language_of_the_browser(guest: Guest) -> None:
    accepted = {"accept-language": "sv-SE, it-IT;q=0.8, de;q=0.5"}
    page = guest.call("GET", "/manage/x", headers=accepted)
    assert (page.status_code, "Questo link non funziona" in text_of(page)) == (404, True)
    assert "Ce lien ne fonctionne pas" in text_of(guest.call("GET", "/manage/x?lang=fr", headers=accepted))


def test_the_identity_is_on_the_page_and_its_pictures_alone_are_allowed(guest: Guest) -> None:
    world = guest.api.world
    identity = {
        "logo_url": "https://fjord.example/logo.png",
        "website": "https://fjord.example/",
        "contact_phone": "+47 55",
    }
    world.change(tables.organizations, world.org, **identity)
    page = guest.open()
    policy = page.headers["content-security-policy"]
    assert "img-src https://fjord.example https://pictures.example:8443;" in policy
    assert "--on-color:#000000" in page.text  # on yellow
    assert 'href="tel:+4755"' in page.text
    assert 'src="https://pictures.example:8443/kayak.jpg?w=1"' in page.text
    assert "script" not in policy


@pytest.mark.parametrize(
    "url",
    [
        "http://pictures.example/a.jpg",
        "https://a;script-src *.example/a",
        "https://a b/",
        "https://[::1/",
        "https:///a",
    ],
)
def test_a_picture_that_cannot_be_loaded_safely_is_left_out(guest: Guest, url: str) -> None:
    guest.api.world.change(tables.experiences, guest.row["experience_id"], image_url=url)
    page = guest.open()
    assert "<img" not in page.text
    assert "img-src" not in page.headers["content-security-policy"]


def test_a_picture_of_the_service_itself_is_loaded_as_the_page_is(guest: Guest) -> None:
    origin = guest.api.world.installation.public_url
    for url, is_shown in ((f"{origin}/demo/pictures/kayak.svg", True), (f"{origin}.example/kayak.svg", False)):
        guest.api.world.change(tables.experiences, guest.row["experience_id"], image_url=url)
        page = guest.open()
        assert (f'src="{url}"' in page.text) is is_shown
        assert (f" img-src {origin};" in page.headers["content-security-policy"]) is is_shown


def test_the_page_and_each_confirmation_show_the_terms(guest: Guest) -> None:
    page_text = text_of(guest.open())
    for text in ("At the boathouse.", "A towel", "Show on a map", "Children with an adult."):
        assert text in page_text
    assert "Children with an adult." in text_of(guest.open("/cancel"))
    other_departure(guest)
    assert "Children with an adult." in text_of(guest.open("/move"))


def test_the_code_is_shown_while_it_can_be_used(guest: Guest, clock: FixedClock) -> None:
    assert "<svg" in guest.open().text
    assert "style=" not in guest.open().text
    guest.confirm()
    assert "<svg" not in guest.open().text


# Moving ----------------------------------------------------------------------------------------------------------


def test_a_guest_moves_to_another_departure(guest: Guest) -> None:
    other = other_departure(guest)
    form = guest.open("/move")
    assert re.findall(r'name="departure" value="([^"]+)"', form.text) == [other]
    assert "Friday 27 November 2026" in text_of(form)
    redirect = move(guest, other, "?lang=de")
    assert (redirect.status_code, redirect.headers["location"]) == (303, f"{guest.path}?lang=de&moved=1")
    assert guest.row["departure_id"] == other
    page_text = text_of(guest.open("?moved=1"))
    assert "Your booking has a new time" in page_text
    assert "Friday 27 November 2026" in page_text
    assert guest.api.event_types()[-1] == "booking.rescheduled"
    assert guest.api.world.examine() == []


def test_only_departures_that_take_the_booking_are_offered(guest: Guest) -> None:
    world = guest.api.world
    fits = other_departure(guest, days=7)
    other_departure(guest, days=8, seats=0)
    other_departure(guest, days=9, status="closed")
    other_departure(guest, days=10, prices=json.dumps({"adult": 99000}))
    other_departure(guest, days=120)
    world.departure(world.experience(), starts_at=world.clock() + 7 * DAY)
    assert re.findall(r'name="departure" value="([^"]+)"', guest.open("/move").text) == [fits]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"seats_total": 0, "seats_ceiling": 0}, "does not have enough seats left"),
        ({"status": "closed"}, "can no longer be booked"),
        ({"status": "cancelled"}, "That departure is cancelled."),
        ({"prices": json.dumps({"adult": 99000})}, "has another price"),
    ],
)
def test_a_refusal_is_shown_with_a_reason_and_changes_nothing(guest: Guest, change: dict[str, Any], text: str) -> None:
    other, before = other_departure(guest), guest.row
    guest.api.world.change(tables.departures, other, **change)
    response = move(guest, other)
    assert response.status_code == 409
    assert text in text_of(response)
    assert guest.row == before


@pytest.mark.parametrize("departure", ["", "x", "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"])
def test_a_departure_that_does_not_exist_is_not_chosen(guest: Guest, departure: str) -> None:
    response = move(guest, departure)
    assert (response.status_code, "Please choose one of the departures." in text_of(response)) == (404, True)


def test_a_departure_of_another_experience_is_refused(guest: Guest) -> None:
    world = guest.api.world
    assert move(guest, world.departure(world.experience(), starts_at=world.clock() + 7 * DAY)).status_code == 404


# Receipt and calendar --------------------------------------------------------------------------------------------


def test_the_receipt_shows_what_was_paid(guest: Guest) -> None:
    page_text = text_of(guest.open("/receipt"))
    for text in (
        "Receipt",
        "Fjord Tours",
        "Booked on 21 November 2026",
        "Ada Lovelace",
        "Total 890.00 NOK",
        "To be paid on arrival",
    ):
        assert text in page_text


def test_the_calendar_entry_follows_the_booking_to_its_cancellation(guest: Guest) -> None:
    assert f'href="{guest.path}/calendar.ics"' in guest.open().text
    response = guest.open("/calendar.ics")
    assert response.headers["content-type"] == "text/calendar; charset=utf-8"
    assert response.headers["content-disposition"] == 'attachment; filename="booking.ics"'
    assert response.headers["referrer-policy"] == "no-referrer"
    (event,) = icalendar.Calendar.from_ical(response.content).walk("VEVENT")
    assert event["UID"].startswith(guest.booking["id"])
    assert event["STATUS"] == "CONFIRMED"
    assert "/manage/" not in response.text
    guest.confirm()
    (event,) = icalendar.Calendar.from_ical(guest.open("/calendar.ics").content).walk("VEVENT")
    assert event["STATUS"] == "CANCELLED"


@pytest.mark.parametrize("page", ["/receipt", "/calendar.ics", ""])
def test_nothing_is_posted_to_a_page_that_only_shows(guest: Guest, page: str) -> None:
    assert guest.call("POST", guest.path + page).status_code == 405


# Gift cards ------------------------------------------------------------------------------------------------------


def gift_card(api: Api, **over: Any) -> tuple[str, str]:
    """Issue a gift card and return the path of its page, and its code."""
    world, request = api.world, {"amount_minor": 50000, "recipient_email": "grace@example.com"} | over

    def work(tx: Any) -> str:
        return gift_cards.issue(tx, world.caller(), GiftCardIssue(**request))[1]

    code = world.database.write(work)
    (card,) = world.rows(tables.gift_cards)
    return urlsplit(gift_card_link(world.installation, world.org, card["id"])).path, code


def test_the_page_of_a_gift_card_shows_its_code_and_balance(api: Api) -> None:
    path, code = gift_card(api, recipient_name="Grace <b>")
    page = api.client.get(path)
    assert page.status_code == 200
    assert page.headers["cache-control"] == "no-store"
    for text in (code, "500.00 NOK", "Grace <b>", "Keep the code to yourself"):
        assert text in text_of(page)
    assert "<svg" in page.text
    assert "Guthaben" in text_of(api.client.get(f"{path}?lang=de"))
    (card,) = api.world.rows(tables.gift_cards)
    api.world.change(tables.gift_cards, card["id"], balance_minor=12300)
    api.world.change(tables.gift_cards, card["id"], valid_from=NOON, expires_at=NOON + 1)
    page_text = text_of(api.client.get(path))
    assert code in page_text
    assert "Balance 123.00 NOK" in page_text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"deactivated_at": 1}, "is not active"),
        ({"expires_at": NOON}, "has expired"),
        ({"valid_from": NOON + 1}, "is not valid yet"),
    ],
)
def test_an_unusable_gift_card_has_a_notice_and_no_code(api: Api, change: dict[str, Any], text: str) -> None:
    path, code = gift_card(api)
    (card,) = api.world.rows(tables.gift_cards)
    api.world.change(tables.gift_cards, card["id"], **change)
    page_text = text_of(api.client.get(path))
    assert text in page_text
    assert code not in page_text


def test_the_links_of_bookings_and_gift_cards_do_not_open_each_other(guest: Guest) -> None:
    path, _ = gift_card(guest.api)
    card, booking = path.rpartition("/")[2], guest.path.rpartition("/")[2]
    for wrong in (f"/manage/{card}", f"/gift-card/{booking}", f"/gift-card/{card[:-1]}", "/gift-card/", f"{path}/x"):
        assert guest.call("GET", wrong).status_code == 404
    assert guest.call("POST", path).status_code == 405


def forged(token: str) -> list[str]:
    """Return tokens of the same card with a signature that differs in one bit, or that anyone can write."""
    content = base64.urlsafe_b64decode(token)
    ids, signature = content[:32], content[32:]
    altered = [signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :] for at in range(16)]
    return [base64.urlsafe_b64encode(ids + other).decode() for other in (*altered, bytes(16), b"\xff" * 16, ids[:16])]


def test_a_forged_link_of_a_gift_card_opens_nothing(api: Api, statements: list[str]) -> None:
    path, code = gift_card(api)
    statements.clear()
    for token in forged(path.rpartition("/")[2]):
        page = api.client.get(f"/gift-card/{token}")
        assert (token, page.status_code, code in page.text) == (token, 404, False)
    assert statements == [], "a guess must not reach the database"


def test_the_signature_is_compared_again_beside_the_card(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows a code that can be spent, so no single fault may open it."""
    path, _ = gift_card(api)
    forgery = forged(path.rpartition("/")[2])[0]
    content = base64.urlsafe_b64decode(forgery)
    (card,) = api.world.rows(tables.gift_cards)
    opened = Opened(api.world.org, card["id"], 0, GIFT_CARD_PURPOSE, content[:32], content[32:])
    monkeypatch.setattr(views, "open_token", lambda *_: opened)
    with pytest.raises(NotFound):
        api.world.database.read(lambda tx: views.open_gift_card_link(tx, api.world.installation, forgery))


# No text bypasses the catalogues ---------------------------------------------------------------------------------


def test_no_text_of_the_pages_bypasses_the_catalogues(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page, in the states of the booking and of the card, is rendered by translations that mark what passed."""
    use_pseudo_locale(monkeypatch, views, summary, guest_pages)
    world, (card, _) = guest.api.world, gift_card(guest.api, recipient_name="Ada Lovelace")
    identity = {"website": "https://fjord.example", "contact_phone": "+47 55", "refund_late_percent": 30}
    world.change(tables.organizations, world.org, **identity)
    other = other_departure(guest)
    guest.pay_by_card()
    pages = [guest.open(after) for after in ("", "/cancel", "/move", "/receipt")]
    world.change(tables.departures, other, seats_total=1, seats_taken=1)
    pages += [move(guest, other), move(guest, ""), guest.open("/move")]
    world.change(tables.departures, other, seats_total=12, seats_taken=0)
    moved = move(guest, other)
    assert moved.status_code == 303
    pages += [guest.open("?moved=1"), guest.confirm("-1"), guest.confirm("89000"), guest.open(), guest.open("/receipt")]
    pages += [guest.call("GET", card), guest.call("GET", "/manage/x"), guest.call("PUT", guest.path)]
    for page in pages:
        assert letters_left(visible(page.text)) == [], page.url

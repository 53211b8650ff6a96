"""Mails to guests in their language, with the organization's identity, and no text that bypasses the catalogues."""

import json
from collections.abc import Mapping
from html import unescape
from typing import Any

import pytest
from support.browser.pseudo_locale import letters_left, use_pseudo_locale, visible
from support.world.mails import Mails
from support.world.operations import Operations, guest
from support.world.world import DAY, HOUR

from booking_core.base import languages
from booking_core.db import tables
from booking_core.notifications import rendering, summary
from booking_core.payments import gift_cards
from booking_core.records.outbox import OutboxKind

pytestmark = pytest.mark.one_database

CONFIRMATION = OutboxKind.BOOKING_CONFIRMATION_MAIL
CANCELLATION = OutboxKind.BOOKING_CANCELLATION_MAIL
RESCHEDULING = OutboxKind.BOOKING_RESCHEDULING_MAIL
GIFT_CARD = OutboxKind.GIFT_CARD_MAIL

IDENTITY = {
    "brand_color": "#0f766e",
    "website": "https://fjord.example",
    "contact_email": "hei@fjord.example",
    "contact_phone": "+47 55 12 34 56",
    "reply_to_email": "svar@fjord.example",
}


@pytest.fixture
def rich(mails: Mails) -> Mails:
    """Return the mails of an organization that has set everything that guests see."""
    mails.world.change(tables.organizations, mails.world.org, **IDENTITY, refund_late_percent=30)
    return mails


def write_confirmation(mails: Mails, translations: Mapping[str, object] | None = None, **over: Any) -> str:
    """Write the mails of a booking of an experience with every text, and return its id."""
    world = mails.world
    experience = world.experience(
        address="Simadalsvegen 9",
        latitude=60.466,
        longitude=7.0712,
        meeting_point="At the boathouse.\nParking is free.",
        what_to_bring=json.dumps(["A towel", "Water"]),
        terms="Children with an adult.",
        translations=json.dumps(translations) if translations else None,
    )
    ops = Operations(world)
    booking = str(ops.check_out(world.departure(experience, starts_at=world.clock() + 5 * DAY), **over)["id"])
    ops.pay(booking, f"pi_{booking}")
    mails.write()
    return booking


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("locale", "language", "subject", "text"),
    [
        ("de-CH", "fr", "Buchung bestätigt: Fjord kayak, 26. November 2026", "Wir freuen uns auf Sie."),
        (None, "fr", "Réservation confirmée : Fjord kayak, 26 novembre 2026", "Nous nous réjouissons"),
        ("es", None, "Reserva confirmada: Fjord kayak, 26 de noviembre de 2026", "Será un placer recibirle."),
        ("it-IT", None, "Prenotazione confermata: Fjord kayak, 26 novembre 2026", "Saremo lieti di accoglierLa."),
        ("nb-NO", None, "Bestilling bekreftet: Fjord kayak, 26. november 2026", "Vi gleder oss til å se deg."),
        ("sv", None, "Booking confirmed: Fjord kayak, 26 November 2026", "We look forward to seeing you."),
    ],
)
def test_a_mail_falls_back_from_booking_to_organization_to_english(
    mails: Mails, locale: str | None, language: str | None, subject: str, text: str
) -> None:
    mails.world.change(tables.organizations, mails.world.org, language=language)
    write_confirmation(mails, locale=locale)
    read = mails.read(CONFIRMATION)
    assert words(read["Subject"]) == subject
    assert read["Content-Language"] == languages.choose(locale, language).partition("-")[0]
    assert text in words(mails.text(CONFIRMATION))
    assert text in words(unescape(mails.html(CONFIRMATION)))
    assert "New booking" in mails.read(OutboxKind.STAFF_BOOKING_MAIL)["Subject"]


def test_a_mail_identifies_the_organization_and_replies_go_to_it(rich: Mails) -> None:
    world = rich.world
    world.change(tables.organizations, world.org, logo_url="https://fjord.example/logo.png")
    write_confirmation(rich)
    for text in (rich.text(CONFIRMATION), rich.html(CONFIRMATION)):
        for detail in ("hei@fjord.example", "+47 55 12 34 56", "https://fjord.example"):
            assert detail in text
    html = rich.html(CONFIRMATION)
    assert '<img src="https://fjord.example/logo.png" alt="Fjord Tours"' in html
    assert "background-color:#0f766e" in html
    assert [address.addr_spec for address in rich.read(CONFIRMATION)["Reply-To"].addresses] == ["svar@fjord.example"]


def test_both_parts_of_a_mail_have_place_equipment_and_terms(rich: Mails) -> None:
    write_confirmation(rich)
    for text in (rich.text(CONFIRMATION), unescape(rich.html(CONFIRMATION))):
        for phrase in ("At the boathouse.", "Parking is free.", "A towel", "Children with an adult."):
            assert phrase in text
        assert "https://www.google.com/maps/search/?api=1&query=60.466000%2C7.071200" in text
        assert "You can cancel free of charge until Wednesday 25 November 2026, 13:00." in words(text)
        assert "After that, 30% of what you paid is returned." in words(text)


def test_both_parts_of_a_mail_say_until_when_the_page_takes_changes(rich: Mails) -> None:
    world = rich.world
    world.change(tables.organizations, world.org, guest_cancel_until_hours=48, guest_move_until_hours=72)
    write_confirmation(rich)
    for text in (rich.text(CONFIRMATION), visible(rich.html(CONFIRMATION))):
        assert (
            "You can cancel online until Tuesday 24 November 2026, 13:00. After that, please ask us."
            " You can move the booking online until Monday 23 November 2026, 13:00."
        ) in words(text)


def test_a_mail_without_a_link_says_nothing_about_the_page(rich: Mails) -> None:
    booking_id = write_confirmation(rich)
    Operations(rich.world).cancel(booking_id)
    rich.write()
    assert "online" not in rich.text(CANCELLATION) + rich.html(CANCELLATION)


def test_the_code_of_the_booking_is_a_picture_of_the_mail_itself(rich: Mails) -> None:
    write_confirmation(rich)
    pictures = [part for part in rich.read(CONFIRMATION).walk() if part.get_content_type() == "image/png"]
    (picture,) = pictures
    assert f'src="cid:{picture["Content-ID"].strip("<>")}"' in rich.html(CONFIRMATION)
    assert picture.get_content().startswith(b"\x89PNG")


TEXTS = {
    "de": {
        "title": "Fjordkajak",
        "meeting_point": "Am Bootshaus.",
        "what_to_bring": ["Ein Handtuch"],
        "terms": "Kinder nur mit Erwachsenen.",
        "price_tiers": {"adult": "Erwachsene"},
        "add_ons": {"drysuit": "Trockenanzug"},
    },
    "nb": {"title": "Fjordkajakk"},
}


def test_the_texts_of_the_experience_have_the_language_of_the_booking(rich: Mails) -> None:
    write_confirmation(rich, translations=TEXTS, locale="de-AT", suits=1)
    assert "Fjordkajak, 26. November 2026" in words(rich.read(CONFIRMATION)["Subject"])
    for text in (rich.text(CONFIRMATION), unescape(rich.html(CONFIRMATION))):
        for phrase in ("Am Bootshaus.", "Ein Handtuch", "Kinder nur mit Erwachsenen.", "Erwachsene", "Trockenanzug"):
            assert phrase in text
        for phrase in ("Fjord kayak", "boathouse", "towel", "Children", "Adult", "Dry suit"):
            assert phrase not in text
    (event,) = rich.calendar_entries(CONFIRMATION)
    assert event["SUMMARY"] == "Fjordkajak"
    assert "Am Bootshaus." in event["DESCRIPTION"]


def test_staff_reads_the_texts_of_the_experience_as_they_were_written(rich: Mails) -> None:
    rich.world.change(tables.organizations, rich.world.org, language="de")
    write_confirmation(rich, translations=TEXTS, locale="de")
    staff = OutboxKind.STAFF_BOOKING_MAIL
    assert "Fjord kayak" in rich.read(staff)["Subject"]
    assert "Adult" in rich.text(staff)
    assert "Erwachsene" not in rich.text(staff) + rich.html(staff)


@pytest.mark.parametrize(
    ("locale", "language", "title", "point"),
    [
        ("fr", "de", "Fjordkajak", "Am Bootshaus."),
        ("nb-NO", "de", "Fjordkajakk", "Am Bootshaus."),
        (None, "de", "Fjordkajak", "Am Bootshaus."),
        ("nb", None, "Fjordkajakk", "At the boathouse."),
        ("fr", None, "Fjord kayak", "At the boathouse."),
    ],
)
def test_an_untranslated_text_is_in_the_organizations_language_or_the_original(
    mails: Mails, locale: str | None, language: str | None, title: str, point: str
) -> None:
    mails.world.change(tables.organizations, mails.world.org, language=language)
    write_confirmation(mails, translations=TEXTS, locale=locale)
    assert f"{title}, " in words(mails.read(CONFIRMATION)["Subject"])
    assert point in mails.text(CONFIRMATION)


# Gift cards ------------------------------------------------------------------------------------------------------


def issue(mails: Mails, **over: Any) -> str:
    """Issue a gift card, and return its code."""
    card = {"recipient_email": "grace@example.com", "purchaser_name": "Ada"} | over
    return Operations(mails.world).issue(50000, **card)[1]


def test_a_gift_card_is_mailed_to_its_recipient_with_the_code_once(rich: Mails) -> None:
    code = issue(rich, locale="de", expires_at=rich.world.clock() + 300 * DAY)
    rich.write()
    rich.write()
    (row,) = rich.world.rows(tables.mails)
    assert (row["kind"], row["recipient"], row["booking_id"]) == (GIFT_CARD, "grace@example.com", None)
    assert code not in json.dumps(rich.world.rows(tables.mails) + rich.world.rows(tables.effects))
    text = rich.text(GIFT_CARD)
    assert f"Code:       {code}\n" in text
    assert "Ada schenkt Ihnen einen Gutschein von Fjord Tours." in words(text)
    assert "/gift-card/" in text
    assert "?lang=de" in text
    assert code in rich.html(GIFT_CARD)
    assert [address.display_name for address in rich.read(GIFT_CARD)["From"].addresses] == ["Fjord Tours"]


@pytest.mark.parametrize("over", [{"send_email": False}, {"recipient_email": None}])
def test_no_gift_card_is_mailed_that_is_not_to_be(mails: Mails, over: dict[str, Any]) -> None:
    issue(mails, **over)
    assert mails.write() == 0
    assert mails.world.rows(tables.effects) == []


def test_a_gift_card_that_was_deactivated_meanwhile_is_not_mailed(mails: Mails) -> None:
    issue(mails)
    (card,) = mails.world.rows(tables.gift_cards)
    mails.world.database.write(lambda tx: gift_cards.deactivate(tx, mails.world.caller(), card["id"]))
    mails.write()
    assert mails.world.rows(tables.mails) == []
    assert mails.effects()[GIFT_CARD]["last_error"] == "suppressed"


# No text bypasses the catalogues ---------------------------------------------------------------------------------


def test_no_text_to_guests_bypasses_the_catalogues(rich: Mails, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of mail, in each state of the booking, is rendered by translations that mark what passed through."""
    use_pseudo_locale(monkeypatch, rendering, summary)
    booking, world = write_confirmation(rich, suits=1, customer=guest(name="Ada Lovelace")), rich.world
    later = world.departure(world.row(tables.bookings, booking)["experience_id"], starts_at=world.clock() + 6 * DAY)
    world.clock.advance(HOUR)
    Operations(world).reschedule(booking, later)
    issue(rich, recipient_name="Ada Lovelace", valid_from=world.clock() + DAY, expires_at=world.clock() + 2 * DAY)
    rich.write()
    Operations(world).cancel(booking)
    rich.write()
    for kind in (CONFIRMATION, RESCHEDULING, CANCELLATION, GIFT_CARD):
        assert letters_left(str(rich.read(kind)["Subject"])) == [], kind
        assert letters_left(rich.text(kind)) == [], kind
        assert letters_left(visible(rich.html(kind))) == [], kind
    (event,) = rich.calendar_entries(CONFIRMATION)
    assert letters_left(str(event["DESCRIPTION"])) == []


def test_a_plain_text_wraps_only_at_breakable_blanks() -> None:
    text = "mot " * 11 + "Cette adresse vous est réservée\N{NO-BREAK SPACE}: toute personne\r\nBcc: eve qui la possède"
    lines = rendering.wrapped(f"{text} 1\N{NARROW NO-BREAK SPACE}780").split("\n")
    assert max(map(len, lines)) <= 76
    assert not [line for line in lines if line.startswith((":", "Bcc"))]
    assert "1\N{NARROW NO-BREAK SPACE}780" in lines[-1]

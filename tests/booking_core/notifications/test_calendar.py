"""The calendar entry, read back by a library."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import icalendar
import pytest
from support.world.world import NOON

from booking_core.base.context import Organization
from booking_core.base.languages import language
from booking_core.notifications import calendar
from booking_core.notifications.summary import MailBooking

SECOND = 1_000_000


def booking(**over: object) -> MailBooking:
    row: dict[str, object] = dict.fromkeys(MailBooking._fields)
    row |= {
        "id": "7a1c9e54-3b0d-4f6a-9d3e-1c5b8a2f4e60",
        "booking_number": 1042,
        "status": "confirmed",
        "title": "Fjord kayak",
        "address": "Simadalsvegen 9, 5783 Eidfjord",
        "duration_minutes": 150,
        "starts_at": NOON,
        "created_at": NOON - 10 * SECOND,
        "updated_at": NOON - 10 * SECOND,
    }
    return MailBooking(**(row | over))  # type: ignore[arg-type]


def raw(organization: Organization, **over: object) -> bytes:
    return calendar.entry(booking(**over), organization, organizer="office@book.example", at=NOON + 5 * SECOND)


def event(organization: Organization, **over: object) -> icalendar.Event:
    parsed = icalendar.Calendar.from_ical(raw(organization, **over))
    assert parsed["METHOD"] == "PUBLISH"
    assert parsed["VERSION"] == "2.0"
    (entry,) = parsed.walk("VEVENT")
    assert entry.errors == []
    assert isinstance(entry, icalendar.Event)
    return entry


@pytest.fixture
def organization() -> Organization:
    values = dict.fromkeys(Organization.__slots__)
    return Organization(**(values | {"name": "Fjord Tours", "timezone": "Europe/Oslo"}))  # type: ignore[arg-type]


def test_it_says_what_when_and_where(organization: Organization) -> None:
    entry = event(organization)
    assert entry["UID"] == "7a1c9e54-3b0d-4f6a-9d3e-1c5b8a2f4e60@book.example"
    assert entry.start == datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert entry.end - entry.start == timedelta(minutes=150)
    assert entry["DTSTAMP"].dt == datetime(2026, 11, 21, 12, 0, 5, tzinfo=UTC)
    assert entry["SUMMARY"] == "Fjord kayak"
    assert entry["LOCATION"] == "Simadalsvegen 9, 5783 Eidfjord"
    assert entry["DESCRIPTION"] == "Booking 1042 with Fjord Tours"
    assert entry["STATUS"] == "CONFIRMED"
    assert entry["SEQUENCE"] == 0
    assert entry["ORGANIZER"] == "mailto:office@book.example"


def test_what_is_its_own_end_has_none(organization: Organization) -> None:
    assert "DTEND" not in event(organization, duration_minutes=None)
    assert event(organization, own_ends_at=NOON + 3600 * SECOND).duration == timedelta(hours=1)


@pytest.mark.parametrize(("status", "ics_status"), [("pending", "TENTATIVE"), ("cancelled", "CANCELLED")])
def test_it_has_the_status_of_the_booking(organization: Organization, status: str, ics_status: str) -> None:
    assert event(organization, status=status)["STATUS"] == ics_status


def test_every_change_takes_the_place_of_what_was_before(organization: Organization) -> None:
    created = NOON - 10 * SECOND
    lives = [
        event(organization),
        event(organization, updated_at=created + 1),
        event(organization, updated_at=created + 5 * SECOND),
        event(organization, updated_at=created + 5 * SECOND, status="cancelled"),
        event(organization, updated_at=created + 9 * SECOND, status="cancelled"),
    ]
    assert len({entry["UID"] for entry in lives}) == 1
    sequences = [entry["SEQUENCE"] for entry in lives]
    assert sequences == sorted(set(sequences))


def test_cancelling_in_the_very_instant_of_booking_counts_too(organization: Organization) -> None:
    assert event(organization, status="cancelled")["SEQUENCE"] > 0


@pytest.mark.parametrize(
    "title",
    [
        "Fjord\r\nEND:VEVENT\r\nBEGIN:VEVENT\r\nSUMMARY:Evil",
        "Tea; coffee, cake \\ \\n and more",
        "Kajakk på Bømlafjorden 👩‍🚀 " * 12,
        "x" * 300,
        "שלום עולם",
        "Fjord\u2028kayak",
    ],
)
def test_a_title_is_only_a_title(organization: Organization, title: str) -> None:
    entry = event(organization, title=title, address=title)
    assert entry["SUMMARY"] == entry["LOCATION"] == " ".join(title.split())


def test_a_name_with_quotes_does_not_end_its_parameter(organization: Organization) -> None:
    entry = event(replace(organization, name='A "B": C; D\r\nE'))
    assert entry["ORGANIZER"].params["CN"] == "A 'B': C; D E"


def test_it_does_not_hold_the_secret_link(organization: Organization) -> None:
    assert b"/manage/" not in raw(organization, manage_key_id="key", manage_expires_at=NOON * 2)


def test_it_has_the_place_the_website_and_a_reminder(organization: Organization) -> None:
    entry = event(replace(organization, website="https://fjord.example"), latitude=60.4662, longitude=-7.07)
    assert entry["GEO"].to_ical() == "60.4662;-7.07"
    assert entry["URL"] == "https://fjord.example"
    (alarm,) = entry.walk("VALARM")
    assert (alarm["ACTION"], alarm["TRIGGER"].dt) == ("DISPLAY", timedelta(days=-1))
    assert alarm["DESCRIPTION"] == "Fjord kayak"


def test_a_cancelled_booking_reminds_of_nothing_and_blocks_no_time(organization: Organization) -> None:
    cancelled = event(organization, status="cancelled")
    assert cancelled.walk("VALARM") == []
    assert cancelled["TRANSP"] == "TRANSPARENT"
    assert event(organization)["TRANSP"] == "OPAQUE"


def test_its_words_are_in_the_guest_s_language_and_keep_their_lines(organization: Organization) -> None:
    row = booking(meeting_point="Am Bootshaus.\r\nParken; frei", what_to_bring='["Handtuch", "Wasser, 1 l"]')
    entry = calendar.entry(row, organization, organizer="office@book.example", at=NOON, wording=language("de"))
    (vevent,) = icalendar.Calendar.from_ical(entry).walk("VEVENT")
    assert vevent["DESCRIPTION"].split("\n") == [
        "Buchung 1042 bei Fjord Tours",
        "Am Bootshaus.",
        "Parken; frei",
        "Bitte mitbringen: Handtuch, Wasser, 1 l",
    ]


@pytest.mark.parametrize(
    "start", ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-03-29T03:30:00+02:00"]
)
def test_its_instants_are_right_around_a_clock_change(organization: Organization, start: str) -> None:
    at = organization.zone.parse(start)
    entry = event(organization, starts_at=at)
    assert entry.start == datetime.fromisoformat(start)
    assert entry.end - entry.start == timedelta(minutes=150)

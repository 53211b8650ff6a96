"""How money, times and typed text are put, and that an organization's colours stay readable."""

import random

import pytest

from booking_core.base.clock import zone
from booking_core.base.languages import ENGLISH
from booking_core.models.money import formatted
from booking_core.notifications import formatting
from booking_core.notifications.formatting import BLACK, NIGHT, PAPER, WHITE, contrast, readable, text_on

OSLO = zone("Europe/Oslo")
HOUR = 3_600_000_000


def instant(text: str) -> int:
    return OSLO.parse(text)


@pytest.mark.parametrize(
    ("amount_minor", "currency", "text"),
    [
        (178000, "NOK", "1,780.00 NOK"),
        (5, "EUR", "0.05 EUR"),
        (-3000, "NOK", "-30.00 NOK"),
        (1780, "JPY", "1,780 JPY"),
        (25000, "CLP", "25,000 CLP"),
        (12345, "KWD", "12.345 KWD"),
        (7, "KWD", "0.007 KWD"),
        (9223372036854775807, "NOK", "92,233,720,368,547,758.07 NOK"),
    ],
)
def test_money_has_as_many_decimals_as_its_currency(amount_minor: int, currency: str, text: str) -> None:
    assert formatted(amount_minor, currency) == text


def test_times_are_those_of_the_zone_and_name_it() -> None:
    at = instant("2026-12-24T10:00:00")
    assert ENGLISH.moment(OSLO, at) == "Thursday 24 December 2026, 10:00"
    assert ENGLISH.day(OSLO, at) == "24 December 2026"
    assert formatting.zone_name(OSLO, at) == "Europe/Oslo, UTC+01:00"
    assert formatting.zone_name(zone("UTC"), at) == "UTC, UTC"


def test_a_span_names_the_second_day_only_when_there_is_one() -> None:
    at = instant("2026-12-24T22:00:00")
    assert ENGLISH.span(OSLO, at, at + HOUR) == "Thursday 24 December 2026, 22:00–23:00"
    assert ENGLISH.span(OSLO, at, at + 3 * HOUR) == "Thursday 24 December 2026, 22:00 – Friday 25 December 2026, 01:00"
    assert ENGLISH.span(OSLO, at, at) == "Thursday 24 December 2026, 22:00"


def test_the_two_hours_that_a_clock_change_makes_of_one_are_distinguished() -> None:
    first = instant("2026-10-25T02:30:00")
    assert ENGLISH.moment(OSLO, first) == ENGLISH.moment(OSLO, first + HOUR)
    assert formatting.zone_name(OSLO, first) != formatting.zone_name(OSLO, first + HOUR)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("Ada\u2028Bcc: x@y.z", "Ada Bcc: x@y.z"),
        ("Ada\r\nBcc: x@y.z", "Ada Bcc: x@y.z"),
        ("Ada\x0b\x0c\x85\u2029Lovelace", "Ada Lovelace"),
        ("\x00Ada\x1b[31m", "Ada [31m"),
        ("Ada\ud800", "Ada"),
        ("  Ada \t Lovelace  ", "Ada Lovelace"),
        ("invoice\u202egpj.exe", "invoicegpj.exe"),
        ("שלום עולם", "שלום עולם"),
        ('👩‍🚀 O\'Hara "Q"', '👩‍🚀 O\'Hara "Q"'),
    ],
)
def test_typed_text_stays_on_its_line(typed: str, text: str) -> None:
    assert formatting.one_line(typed) == text


def test_lines_of_a_note_are_kept_apart() -> None:
    assert formatting.lines(" one\r\ntwo\u2028three\n\nfour ") == ["one", "two", "three", "", "four"]


def test_what_is_too_long_is_cut() -> None:
    assert formatting.shortened("abcdef", 6) == "abcdef"
    assert formatting.shortened("abc defg", 5) == "abc…"


# Colours -------------------------------------------------------------------------------------------------------------

COLORS = ["#000000", "#ffffff", "#ffff00", "#808080", "#ff0000", "#0f766e", "#7f7f00", "#00ff00", "#1d4ed8"]


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast(WHITE, BLACK) == pytest.approx(21)
    assert contrast("#777777", WHITE) == pytest.approx(4.48, abs=0.01)
    assert contrast(WHITE, "#777777") == contrast("#777777", WHITE)


def test_text_is_readable_on_and_in_every_colour() -> None:
    chosen = random.Random(7)
    for color in [*COLORS, *(f"#{chosen.randrange(2**24):06x}" for _ in range(300))]:
        assert contrast(text_on(color), color) >= 4.5
        for background in (PAPER, NIGHT):
            assert contrast(readable(color, background), background) >= 4.5


def test_a_colour_that_can_be_read_is_kept() -> None:
    assert readable("#0f766e", PAPER) == "#0f766e"
    assert text_on("#0f766e") == WHITE
    assert text_on("#facc15") == BLACK

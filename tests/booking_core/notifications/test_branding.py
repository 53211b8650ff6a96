"""The colours of an organization stay readable, whatever colour it chose."""

import random

import pytest

from booking_core.notifications.branding import BLACK, NIGHT, PAPER, WHITE, contrast, readable, text_on

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

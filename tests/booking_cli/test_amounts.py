"""Amounts as they are typed: minor units, or with a decimal point the currency's own."""

from collections.abc import Callable
from typing import Any

import pytest

from booking_cli.amounts import parse_amount
from booking_cli.context import CliError

Booking = Callable[..., Any]


@pytest.mark.parametrize(
    ("text", "currency", "minor"),
    [
        ("50000", "NOK", 50_000),
        ("500.00", "NOK", 50_000),
        ("500.5", "NOK", 50_050),
        ("0.01", "NOK", 1),
        ("500", "CLP", 500),
        ("1.234", "KWD", 1_234),
        ("1234", "KWD", 1_234),
        ("0", "NOK", 0),
    ],
)
def test_an_amount_without_a_point_is_minor_units(text: str, currency: str, minor: int) -> None:
    assert parse_amount(text, currency) == minor


@pytest.mark.parametrize(
    ("text", "currency"),
    [
        ("500.001", "NOK"),
        ("500.0", "CLP"),
        ("1.2345", "KWD"),
        ("5,00", "NOK"),
        ("-5", "NOK"),
        ("", "NOK"),
        ("five", "NOK"),
        ("1e3", "NOK"),
        (".5", "NOK"),
        ("5.", "NOK"),
        ("٥", "NOK"),
        ("9" * 30, "NOK"),
    ],
)
def test_what_is_no_amount_of_that_currency_is_refused(text: str, currency: str) -> None:
    with pytest.raises(CliError) as refused:
        parse_amount(text, currency)
    assert refused.value.code == "bad_amount"


def test_a_gift_card_is_issued_for_what_was_typed_and_says_so(fjord_on_both: Booking) -> None:
    issue = ("gift-cards", "issue", "--org", "fjord-tours", "--amount")
    for text in ("500.00", "50000"):
        made = fjord_on_both(*issue, text)
        assert "balance\t500.00 NOK\n" in made.out
        assert "Issued a gift card of 500.00 NOK." in made.err.splitlines()
    assert "balance\t500 CLP\n" in fjord_on_both(*issue, "500", "--currency", "CLP").out
    refused = fjord_on_both(*issue, "500.001", "-o", "json")
    assert (refused.code, refused.error["code"]) == (2, "bad_amount")
    assert fjord_on_both(*issue, "0", "-o", "json").code == 8

"""An amount is read as it is meant: minor units without a point, the major unit with one, and nothing else."""

import pytest
import typer
from support.serving.commands import Booking

from booking_cli.framework import amounts
from booking_cli.framework.arguments import amount_text, parse_amount
from booking_cli.framework.context import Cli, Question

READ = {
    ("NOK", 50_000): ("50000", "500.00", " 500.00 ", "500.00 NOK", "500.00nok"),
    ("NOK", 50_050): ("500.5",),
    ("NOK", 1): ("0.01",),
    ("NOK", 0): ("0",),
    ("CLP", 25_000): ("25000", "25000.00", "25000 CLP"),
    ("KWD", 12_345): ("12.345", "12345"),
    ("KWD", 12_500): ("12.5",),
}
"""Texts of an amount by its currency and its minor units."""


@pytest.mark.parametrize(
    ("text", "currency", "minor"), [(text, *amount) for amount, texts in READ.items() for text in texts]
)
def test_an_amount_is_read_in_the_units_of_its_currency(text: str, currency: str, minor: int) -> None:
    assert amount_text(text) == text.strip()
    assert parse_amount(text, currency) == minor


@pytest.mark.parametrize(
    ("text", "currency", "message"),
    [
        *((text, "NOK", "write 500.00") for text in ("500,00", "1,000.00")),
        ("-5", "NOK", "50000 is 500.00 NOK"),
        *((text, "NOK", "not an amount") for text in ("5.", ".5", "", "1e3", "٥٠٠")),
        ("500.001", "NOK", "more precise than NOK, which has 2 decimals"),
        ("25000.50", "CLP", "more precise than CLP, which has no decimals"),
        ("25.000.000", "CLP", "in whole CLP"),
        ("500.00 EUR", "NOK", "this amount is in NOK"),
        ("999999999999999999.99", "NOK", "larger than an amount can be"),
    ],
)
def test_what_could_be_meant_in_two_ways_is_refused(text: str, currency: str, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        parse_amount(text, currency)


@pytest.mark.parametrize(
    ("open_minor", "currency", "unclear", "clear"),
    [
        (29_000, "NOK", ("290", "290 NOK", "289", "1"), ("291", "29000", "290.00", "2.90", "0")),
        (290_000, "KWD", ("290", "2899"), ("2900", "0.290")),
        (25_000, "CLP", (), ("1",)),
    ],
)
def test_an_amount_that_looks_like_major_units_needs_an_answer(
    open_minor: int, currency: str, unclear: tuple[str, ...], clear: tuple[str, ...]
) -> None:
    cli, sure = Cli(), Cli()
    sure.options.yes = True
    for text in unclear:
        with pytest.raises(Question):
            amounts.require_intended(cli, text, parse_amount(text, currency), open_minor, currency)
        amounts.require_intended(sure, text, parse_amount(text, currency), open_minor, currency)
    for text in clear:
        amounts.require_intended(cli, text, parse_amount(text, currency), open_minor, currency)


def test_a_question_has_both_readings_and_how_to_write_the_other_one() -> None:
    with pytest.raises(Question) as question:
        amounts.require_intended(Cli(), "1290", 1_290, 1_290_000, "KWD")
    assert str(question.value) == (
        "1290 has no decimal point, so it is 1.290 KWD; 1,290.000 KWD is written 1290.000."
        " Record 1.290 KWD of 1,290.000 KWD?"
    )


def test_a_gift_card_is_issued_for_what_was_typed_and_says_so(fjord_on_both: Booking) -> None:
    issue = ("gift-cards", "issue", "--org", "fjord-tours", "--amount")
    for text in ("500.00", "50000"):
        result = fjord_on_both(*issue, text)
        assert "balance\t500.00 NOK\n" in result.out
        assert "Issued a gift card of 500.00 NOK." in result.err.splitlines()
    assert fjord_on_both(*issue, "5", "-q").err == "Issued a gift card of 0.05 NOK.\n"
    assert "balance\t500 CLP\n" in fjord_on_both(*issue, "500", "--currency", "CLP").out
    assert fjord_on_both(*issue, "500.001", "-o", "json").refusal == (2, "usage")
    assert fjord_on_both(*issue, "0", "-o", "json").code == 8

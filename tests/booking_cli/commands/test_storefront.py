"""`booking storefront` does what a guest's checkout does, and shows what REST would."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.db.statements import Statement
from booking_core.models.bookings import Booking as WireBooking

DEPARTURE = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"
UNKNOWN = "00000000-0000-4000-8000-000000000000"
NOK = "NOK"


def money(amount_minor: int) -> dict[str, Any]:
    return {"amount_minor": amount_minor, "currency": NOK}


CATALOGUE = {
    "experiences": [
        {
            "slug": "fjord-kayak",
            "title": "Fjord kayak",
            "is_published": True,
            "duration_minutes": 150,
            "price_tiers": [{"id": "adult", "name": "Adult", "price": money(89000), "seats_per_unit": 1}],
            "add_ons": [{"id": "drysuit", "label": "Dry suit", "price": money(15000)}],
            "departures": [{"id": DEPARTURE, "starts_at": "2099-06-01T10:00:00", "seats_total": 4}],
        }
    ],
    "gift_cards": [{"code": "GIFT-ABCD-1234", "initial_amount": money(100000)}],
}
GUEST = ("--name", "Ada Lovelace", "--email", "ada@example.com")


@pytest.fixture
def shop(fjord_on_both: Any, tmp_path: Path) -> Any:
    """Return a function that runs `booking storefront` in an organization with departures."""
    file = tmp_path / "catalogue.json"
    file.write_text(json.dumps(CATALOGUE))
    assert fjord_on_both("catalog", "import", "--org", "fjord-tours", str(file)).code == 0

    def run(*argv: str) -> Any:
        return fjord_on_both("storefront", *argv, "-o", "json")

    return run


AT = ("--org", "fjord-tours", "--departure", DEPARTURE)


def checkout(shop: Any, *argv: str, adults: int = 1) -> Any:
    return shop("checkout", *AT, "--guest", f"adult={adults}", *GUEST, *argv)


def test_hold_check_out_and_pay(shop: Any) -> None:
    held = shop("hold", *AT, "--seats", "3", "--for", "15m")
    assert held.code == 0, held.err
    assert (held.json["departure_id"], held.json["seats"]) == (DEPARTURE, 3)
    assert held.json["expires_at"].endswith(("+01:00", "+02:00"))
    assert checkout(shop, adults=2).code == 7
    pending = checkout(
        shop, "--hold", held.json["id"].upper(), "--add-on", "drysuit=1", "--note", "Late", "--discount", "4000",
        "--phone", "+47 900", adults=3,
    )  # fmt: skip
    assert pending.code == 0, pending.err
    booking = pending.json
    assert WireBooking.model_validate_json(pending.out)
    assert (booking["status"], booking["source"], booking["manage_url"]) == ("pending", "online", None)
    assert booking["payment"] == {"method": "card", "source": "stripe", "status": "pending"}
    assert booking["totals"]["total"] == money(3 * 89000 + 15000 - 4000)
    assert (booking["note"], booking["customer"]["phone"]) == ("Late", "+47 900")
    paid = shop("pay", booking["id"], "--payment-intent", "pi_1")
    assert (paid.code, paid.json["status"], paid.json["payment"]["status"]) == (0, "confirmed", "paid")
    assert shop("pay", booking["id"]).json == paid.json


def test_a_checkout_keeps_a_reference_and_metadata(shop: Any) -> None:
    kept = ("--external-reference", "A-1", "--unique", "--metadata", "channel=acme")
    booking = checkout(shop, *kept).json
    assert (booking["external_reference"], booking["metadata"]) == ("A-1", {"channel": "acme"})
    assert checkout(shop, *kept).code == 7
    assert checkout(shop, "--unique").code == 8


def test_the_payment_intent_is_kept_for_refunds(shop: Any, fresh_database_url: str) -> None:
    booking = checkout(shop).json
    shop("pay", booking["id"], "--payment-intent", "pi_42")
    database = Database(fresh_database_url)
    query = Statement(select(tables.payments.c.payment_intent, tables.payments.c.status))
    assert database.read(lambda tx: tx.all(query)) == [("pi_42", "paid")]
    database.close()


def test_a_gift_card_that_pays_all_confirms_at_once(shop: Any) -> None:
    booking = checkout(shop, "--gift-card", "gift-abcd-1234").json
    assert (booking["status"], booking["payment"]["method"]) == ("confirmed", "gift_card")


def test_a_released_hold_gives_its_seats_back(shop: Any) -> None:
    held = shop("hold", *AT, "--seats", "4").json
    assert checkout(shop).code == 7
    released = shop("release", held["id"])
    assert (released.code, released.json) == (0, held)
    assert checkout(shop).code == 0
    refused = checkout(shop, "--hold", held["id"])
    assert (refused.code, refused.error["details"][0]["reason"]) == (7, "hold_ended")


REFUSED = (
    (("release", UNKNOWN), 6),
    (("release", "no-id"), 6),
    (("pay", UNKNOWN), 6),
    (("pay", "no-id"), 6),
    (("hold", "--org", "nobody", "--departure", DEPARTURE, "--seats", "1"), 6),
    (("hold", "--org", "fjord-tours", "--departure", UNKNOWN, "--seats", "1"), 6),
    (("hold", "--org", "fjord-tours", "--departure", "no-id", "--seats", "1"), 6),
    (("hold", *AT, "--seats", "5"), 7),
    (("hold", *AT, "--seats", "1", "--for", "2d"), 8),
    (("hold", *AT, "--seats", "1", "--for", "soon"), 2),
    (("hold", *AT, "--seats", "0"), 2),
    (("checkout", *AT, "--guest", "adult", *GUEST), 2),
    (("checkout", *AT, "--guest", "nobody=1", *GUEST), 8),
    (("checkout", *AT, "--guest", "adult=1", "--add-on", "yacht=1", *GUEST), 8),
    (("checkout", *AT, "--guest", "adult=1", "--name", "Ada", "--email", "nowhere"), 8),
    (("checkout", *AT, "--guest", "adult=1", "--gift-card", "NOSUCHCARD", *GUEST), 8),
    (("checkout", *AT, "--guest", "adult=1", "--discount", "-5", *GUEST), 2),
    (("checkout", *AT, "--guest", "adult=1", "--discount", "99999999", *GUEST), 8),
    (("checkout", *AT, "--guest", "adult=1", "--hold", "no-id", *GUEST), 6),
)
"""Commands, and the exit code of each."""


def test_what_cannot_be_done_says_so_by_its_exit_code(shop: Any) -> None:
    for argv, code in REFUSED:
        result = shop(*argv)
        assert (argv, result.code, result.error["exit_code"], result.out) == (argv, code, code, "")


def test_a_field_that_is_wrong_is_named(shop: Any) -> None:
    result = shop("checkout", *AT, "--guest", "adult=1", "--name", " ", "--email", "nowhere")
    assert [detail["field"] for detail in result.error["details"]] == ["customer.name", "customer.email"]


@pytest.mark.parametrize("verb", ["hold", "release", "checkout", "pay"])
def test_each_command_has_help_with_an_example(booking: Any, verb: str) -> None:
    result = booking("storefront", verb, "--help")
    assert result.code == 0
    assert f"booking storefront {verb} " in result.out
    assert "Examples" in result.out

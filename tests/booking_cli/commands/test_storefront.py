"""`booking storefront` acts as a guest's checkout does, and shows the same as the API."""

from pathlib import Path
from typing import Any

import pytest
from support.serving.commands import Booking
from support.world.kayaks import DEPARTURE, import_kayaks, nok

from booking_core.models.bookings import Booking as WireBooking

GUEST = ("--name", "Ada Lovelace", "--email", "ada@example.com")


@pytest.fixture
def shop(fjord_on_both: Booking, tmp_path: Path) -> Any:
    """Return a function that runs `booking storefront` in an organization with departures."""
    import_kayaks(fjord_on_both, tmp_path, seats=4)

    return lambda *argv: fjord_on_both("storefront", *argv, "-o", "json")


AT = ("--org", "fjord-tours", "--departure", DEPARTURE)


def checkout(shop: Any, *argv: str, adults: int = 1) -> Any:
    return shop("checkout", *AT, "--guest", f"adult={adults}", *GUEST, *argv)


def test_hold_check_out_and_pay(shop: Any) -> None:
    hold = shop("hold", *AT, "--seats", "3", "--for", "15m")
    assert hold.code == 0, hold.err
    assert (hold.json["departure_id"], hold.json["seats"]) == (DEPARTURE, 3)
    assert hold.json["expires_at"].endswith(("+01:00", "+02:00"))
    assert checkout(shop, adults=2).code == 7
    pending = checkout(
        shop, "--hold", hold.json["id"].upper(), "--add-on", "drysuit=1", "--note", "Late", "--discount", "4000",
        "--phone", "+47 900", adults=3,
    )  # fmt: skip
    assert pending.code == 0, pending.err
    booking = pending.json
    assert WireBooking.model_validate_json(pending.out)
    assert (booking["status"], booking["source"], booking["manage_url"]) == ("pending", "online", None)
    assert booking["payment"] == {"method": "card", "source": "stripe", "status": "pending"}
    assert booking["totals"]["total"] == nok(3 * 89000 + 15000 - 4000)
    assert (booking["note"], booking["customer"]["phone"]) == ("Late", "+47 900")
    paid = shop("pay", booking["id"], "--payment-intent", "pi_1")
    assert (paid.code, paid.json["status"], paid.json["payment"]["status"]) == (0, "confirmed", "paid")
    assert shop("pay", booking["id"]).json == paid.json
    assert shop("pay", str(booking["booking_number"]), "--org", "fjord-tours").json == paid.json


def test_a_checkout_takes_a_reference_metadata_and_a_gift_card(shop: Any) -> None:
    reference = ("--external-reference", "A-1", "--unique", "--metadata", "channel=acme")
    booking = checkout(shop, *reference, "--gift-card", "gift-abcd-1234").json
    assert (booking["external_reference"], booking["metadata"]) == ("A-1", {"channel": "acme"})
    assert (booking["status"], booking["payment"]["method"]) == ("confirmed", "gift_card")
    assert checkout(shop, *reference).code == 7
    assert checkout(shop, "--unique").code == 8


def test_a_released_hold_gives_its_seats_back(shop: Any) -> None:
    hold = shop("hold", *AT, "--seats", "4").json
    assert checkout(shop).code == 7
    released = shop("release", hold["id"])
    assert (released.code, released.json) == (0, hold | {"status": "released"})
    assert checkout(shop).code == 0
    refused = checkout(shop, "--hold", hold["id"])
    assert (refused.code, refused.error["details"][0]["reason"]) == (7, "hold_ended")


REFUSED = (
    (("hold", *AT, "--seats", "5"), 7),
    (("hold", *AT, "--seats", "1", "--for", "2d"), 8),
    (("hold", *AT, "--seats", "1", "--for", "soon"), 2),
    (("hold", *AT, "--seats", "0"), 2),
    (("checkout", *AT, "--guest", "adult", *GUEST), 2),
    (("checkout", *AT, "--guest", "adult=1", "--name", "Ada", "--email", "nowhere"), 8),
    (("checkout", *AT, "--guest", "adult=1", "--discount", "-5", *GUEST), 2),
)
"""Commands, and the exit code of each."""


def test_what_cannot_be_done_says_so_by_its_exit_code(shop: Any) -> None:
    for argv, code in REFUSED:
        result = shop(*argv)
        assert (argv, result.code, result.error["exit_code"], result.out) == (argv, code, code, "")
    result = shop("checkout", *AT, "--guest", "adult=1", "--name", " ", "--email", "nowhere")
    assert [detail["field"] for detail in result.error["details"]] == ["customer.name", "customer.email"]

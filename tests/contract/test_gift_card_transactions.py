"""The transactions of a gift card: the ledger of its balance, page by page."""

import uuid
from typing import Any

from support.api.api import Api
from support.api.refusals import invalid_field, refused
from support.world.operations import Operations


def nok(amount_minor: int) -> dict[str, Any]:
    return {"amount_minor": amount_minor, "currency": "NOK"}


def spend(ops: Operations, card: tuple[str, str], departure: str) -> str:
    ops.world.clock.advance(1_000_000)
    booking: dict[str, Any] = ops.check_out(departure, 1, gift_card_code=card[1])
    return str(booking["id"])


def test_the_ledger_explains_the_balance(api: Api, ops: Operations) -> None:
    card, departure = ops.issue(100_000), api.world.departure(api.world.experience())
    first, second = spend(ops, card, departure), spend(ops, card, departure)
    ops.cancel(first)
    lines = api.get(f"/gift-cards/{card[0]}/transactions", order="asc").json()["data"]
    ledger = [(line["type"], line["amount"]["amount_minor"], line["balance"], line["booking_id"]) for line in lines]
    assert ledger == [
        ("issue", 100_000, nok(100_000), None),
        ("redeem", -89_000, nok(11_000), first),
        ("redeem", -11_000, nok(0), second),
        ("restore", 89_000, nok(89_000), first),
    ]
    assert sum(amount for _, amount, _, _ in ledger) == 89_000
    assert api.get(f"/gift-cards/{card[0]}").json()["balance"] == nok(89_000)
    assert lines[0].keys() == {"id", "type", "amount", "balance", "booking_id", "created_at"}


def test_pages_hold_every_transaction_once_and_cursors_belong_to_one_card(
    api: Api, ops: Operations, other_api: Api
) -> None:
    departure = api.world.departure(api.world.experience())
    card, other = ops.issue(300_000), ops.issue(300_000)
    booked = [spend(ops, card, departure) for _ in range(3)]
    spend(ops, other, departure)
    path = f"/gift-cards/{card[0]}/transactions"
    pages = list(api.pages(path, limit=1, order="asc"))
    assert [transaction["booking_id"] for page in pages for transaction in page["data"]] == [None, *booked]
    cursor = pages[0]["next_cursor"]
    elsewhere = api.get(f"/gift-cards/{other[0]}/transactions", order="asc", starting_after=cursor)
    assert invalid_field(elsewhere) == "starting_after"
    refused(other_api.get(path), 404, "not_found")
    refused(api.get(f"/gift-cards/{uuid.uuid4()}/transactions"), 404, "not_found")


def test_a_page_takes_the_key_and_one_statement(api: Api, ops: Operations, statements: list[str]) -> None:
    card, departure = ops.issue(300_000), api.world.departure(api.world.experience())
    spend(ops, card, departure)
    api.get("/me")
    statements.clear()
    assert api.get(f"/gift-cards/{card[0]}/transactions").status_code == 200
    assert len(statements) == 2

"""A booking takes an amount from a card, and the amount is returned once."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.serving.threads import together
from support.world.money import Till
from support.world.world import DAY, NOON, SECRET, World

from booking_core.base.context import Installation
from booking_core.base.errors import Unavailable, Unprocessable
from booking_core.base.tokens import SecretKeys, new_id
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.payments import gift_cards
from booking_core.payments.gift_cards import rules


@pytest.fixture
def till(world: World) -> Till:
    return Till(world)


def balance(card: dict[str, Any]) -> int:
    return int(card["balance"]["amount_minor"])


@pytest.mark.parametrize(
    ("wanted_minor", "taken_minor", "status"),
    [(12_500, 12_500, "active"), (49_999, 49_999, "active"), (50_000, 50_000, "expired"), (89_000, 50_000, "expired")],
)
def test_a_booking_redeems_up_to_the_balance_and_publishes_the_card(
    till: Till, wanted_minor: int, taken_minor: int, status: str
) -> None:
    card, code = till.issue(50_000)
    booking_id = new_id()
    redeemed = till.redeem(code, wanted_minor, booking_id=booking_id)
    assert (redeemed.gift_card_id, redeemed.amount_minor) == (card["id"], taken_minor)
    gift_card = till.card(card["id"])
    assert (balance(gift_card), gift_card["status"]) == (50_000 - taken_minor, status)
    assert till.ledger(card["id"]) == [("redeem", booking_id, -taken_minor)]
    event = till.events()[-1]
    assert event["type"] == "gift_card.redeemed"
    assert event["data"] == {
        "object": gift_card,
        "redeemed_amount": {"amount_minor": taken_minor, "currency": "NOK"},
        "booking_id": booking_id,
    }
    assert code not in str(event)


def test_the_guests_timeline_notes_both_ways(till: Till) -> None:
    card, code = till.issue()
    booking_id = new_id()
    till.redeem(code, 500, booking_id=booking_id)
    till.world.clock.advance(DAY)
    till.restore(booking_id)
    data = {"gift_card_id": card["id"], "amount_minor": 500, "currency": "NOK"}
    restored = ("gift_card_restored", data | {"balance_minor": card["balance"]["amount_minor"]})
    assert till.timeline() == [("gift_card_redeemed", data), restored]


# Refusals --------------------------------------------------------------------------------------------------------


def reason(till: Till, code: str, **over: Any) -> str | None:
    """Why the card pays nothing."""
    with pytest.raises(Unprocessable) as refused:
        till.redeem(code, **over)
    (detail,) = refused.value.details
    assert detail.field == "gift_card"
    return detail.reason


def test_a_card_that_pays_nothing_says_why(till: Till) -> None:
    off, off_code = till.issue()
    till.deactivate(off["id"])
    spent_code = till.issue(500)[1]
    till.redeem(spent_code, 500)
    reasons = {
        "gift_card_unknown": reason(till, "NO-SUCH-CODE"),
        "gift_card_inactive": reason(till, off_code),
        "gift_card_empty": reason(till, spent_code),
        "gift_card_expired": reason(till, till.issue(expires_at=NOON)[1]),
        "gift_card_currency": reason(till, till.issue(currency="EUR")[1]),
    }
    assert reasons == {word: word for word in reasons}
    assert reason(till, till.issue(valid_from=NOON + 1)[1]) == "gift_card_expired"
    assert [row["kind"] for row in till.world.rows(tables.gift_card_entries)].count("redeem") == 1


def test_the_instant_of_expiry_is_too_late(till: Till) -> None:
    _, code = till.issue(expires_at=NOON + DAY)
    till.world.clock.advance(DAY - 1)
    assert till.redeem(code).amount_minor == 1_000
    till.world.clock.advance(1)
    assert reason(till, code) == "gift_card_expired"


def test_another_organizations_code_is_unknown(till: Till, new_world: Callable[..., World]) -> None:
    assert reason(till, Till(new_world()).issue()[1]) == "gift_card_unknown"


def test_a_code_is_read_as_guests_write_it(till: Till) -> None:
    _, code = till.issue()
    assert till.redeem(f"  {code.lower()}\n").amount_minor == 1_000


def test_a_code_pays_after_the_secret_key_was_rotated(till: Till) -> None:
    card, code = till.issue()
    till.world.installation = Installation(SecretKeys("a newer key", SECRET))
    assert till.redeem(code).gift_card_id == card["id"]
    till.world.installation = Installation(SecretKeys("a newer key"))
    assert reason(till, code) == "gift_card_unknown"


# Giving back -----------------------------------------------------------------------------------------------------


def test_a_booking_gives_back_once(till: Till) -> None:
    card, code = till.issue(50_000)
    booking_id = new_id()
    till.redeem(code, 20_000, booking_id=booking_id)
    assert [till.restore(booking_id) for _ in range(3)] == [20_000, 0, 0]
    assert balance(till.card(card["id"])) == 50_000
    assert till.ledger(card["id"]) == [("redeem", booking_id, -20_000), ("restore", booking_id, 20_000)]
    *_, event = till.events()
    types = [event["type"] for event in till.events()]
    assert types == ["gift_card.issued", "gift_card.redeemed", "gift_card.restored"]
    assert event["data"] == {
        "object": till.card(card["id"]),
        "restored_amount": {"amount_minor": 20_000, "currency": "NOK"},
        "booking_id": booking_id,
    }


def test_a_booking_without_a_card_gives_nothing_back(till: Till) -> None:
    assert till.restore(till.booking()) == 0


def test_money_goes_back_to_a_card_that_is_switched_off_or_expired(till: Till) -> None:
    card, code = till.issue(50_000, expires_at=NOON + DAY)
    first, second = new_id(), new_id()
    till.redeem(code, 20_000, booking_id=first)
    till.redeem(code, 30_000, booking_id=second)
    till.deactivate(card["id"])
    assert till.restore(first) == 20_000
    till.world.clock.advance(2 * DAY)
    assert till.restore(second) == 30_000
    assert balance(till.reactivate(card["id"])) == 50_000
    assert till.card(card["id"])["status"] == "expired"


def test_the_ledger_takes_a_booking_once(till: Till) -> None:
    card, code = till.issue(50_000)
    booking_id = new_id()
    till.redeem(code, 500, booking_id=booking_id)

    def again(tx: Tx) -> None:
        request = {"booking_id": booking_id, "currency": "NOK", "wanted_minor": 500}
        gift_cards.redeem(tx, till.actor, code=code, **request)

    # No request leads here: the schema is the last to refuse.
    with pytest.raises((Unavailable, sqlite3.IntegrityError)):
        till.write(again)
    assert balance(till.card(card["id"])) == 49_500


@pytest.mark.parametrize("later", [-DAY, 0], ids=["the clock steps back", "the clock stands still"])
def test_each_entry_of_a_ledger_is_later_than_the_one_before(till: Till, later: int) -> None:
    card, code = till.issue()
    till.world.clock.advance(later)
    for _ in range(3):
        till.redeem(code, 1_000)
    entries = [row["created_at"] for row in till.world.rows(tables.gift_card_entries)]
    assert sorted(entries) == [NOON, NOON + 1, NOON + 2, NOON + 3]
    assert till.world.row(tables.gift_cards, card["id"])["updated_at"] == NOON + 3


# Many at once ----------------------------------------------------------------------------------------------------


def test_a_card_that_is_spent_by_many_at_once_is_spent_once(till: Till) -> None:
    card, code = till.issue(10_500)

    def spend() -> int | str | None:
        try:
            return till.redeem(code, 1_000).amount_minor
        except Unprocessable as refused:
            return refused.details[0].reason

    assert Counter(together(*[spend] * 16)) == {1_000: 10, 500: 1, "gift_card_empty": 5}
    assert balance(till.card(card["id"])) == 0
    assert sum(amount for _, _, amount in till.ledger(card["id"])) == -10_500


@settings(deadline=None)
@given(balance_minor=st.integers(1, 2**63 - 1), wanted_minor=st.integers(1, 2**63 - 1))
def test_the_redeemed_amount_is_at_most_the_balance_and_the_wanted_amount(
    balance_minor: int, wanted_minor: int
) -> None:
    row = rules.GiftCardRow(0, "", None, "active", balance_minor, balance_minor, "NOK", None, *[None] * 4)
    amount_minor = rules.taken(rules.LockedCard(row, None, None, 0), currency="NOK", wanted_minor=wanted_minor)
    assert 0 < amount_minor == min(balance_minor, wanted_minor)

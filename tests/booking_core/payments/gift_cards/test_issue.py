"""A gift card is issued once, with a code that is handed out once; staff switches it off and on."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from support.world.money import Till
from support.world.world import DAY, NOON, SECRET, World

from booking_core.base import gift_codes
from booking_core.base.clock import zone
from booking_core.base.context import Installation
from booking_core.base.errors import Conflict, Malformed, NotFound
from booking_core.base.tokens import SecretKeys, new_id
from booking_core.db import tables
from booking_core.models.gift_cards import GiftCard

OSLO = zone("Europe/Oslo")
READABLE = re.compile(r"([2-9A-HJKMNP-Z]{4}-){3}[2-9A-HJKMNP-Z]{4}")


@pytest.fixture
def till(world: World) -> Till:
    return Till(world)


def test_get_returns_the_issued_card(till: Till) -> None:
    purchaser = {"purchaser_name": "Kari", "purchaser_email": "kari@example.com"}
    recipient = {"recipient_name": "Ola", "recipient_email": "ola@example.com"}
    card, code = till.issue(50_000, expires_at=NOON + 365 * DAY, **purchaser, **recipient)
    assert card == till.card(card["id"])
    assert GiftCard.model_validate(card).to_json() == card
    assert card["initial_amount"] == card["balance"] == {"amount_minor": 50_000, "currency": "NOK"}
    assert card["purchaser"] == {"name": "Kari", "email": "kari@example.com"}
    assert card["recipient"] == {"name": "Ola", "email": "ola@example.com"}
    assert (card["status"], card["code_last4"]) == ("active", code[-4:])
    assert card["expires_at"] == "2027-11-21T13:00:00+01:00"


def test_the_event_holds_the_card_and_never_its_code(till: Till) -> None:
    card, code = till.issue()
    (event,) = till.events()
    assert event["type"] == "gift_card.issued"
    assert event["data"] == {"object": card}
    assert code not in str(till.world.rows(tables.events))
    assert "code" not in card


def test_a_code_of_ours_is_readable_and_never_the_same(till: Till) -> None:
    codes = {gift_codes.new_code() for _ in range(2_000)}
    assert len(codes) == 2_000
    assert all(READABLE.fullmatch(code) for code in codes)
    assert set("".join(codes)) == set("-23456789ABCDEFGHJKMNPQRSTUVWXYZ")
    assert READABLE.fullmatch(till.issue()[1])


def test_a_given_code_is_kept_in_capitals_and_sealed(till: Till) -> None:
    card, code = till.issue(code="  summer-2026 ")
    assert code == "SUMMER-2026"
    row = till.world.row(tables.gift_cards, card["id"])
    assert code not in str(row)
    keys, org = till.world.installation.secret_keys, till.world.org
    assert gift_codes.open_code(keys, org, card["id"], row["code_sealed"]) == code


def test_a_code_is_given_once_in_an_organization(till: Till, new_world: Callable[..., World]) -> None:
    till.issue(code="SUMMER-2026")
    with pytest.raises(Conflict) as refused:
        till.issue(code="summer-2026")
    assert (refused.value.reason, refused.value.details[0].field) == ("gift_card_code_taken", "code")
    assert Till(new_world()).issue(code="SUMMER-2026")[1] == "SUMMER-2026"
    assert len(till.events()) == 1


def test_a_code_from_before_a_rotation_is_still_taken(till: Till) -> None:
    till.issue(code="SUMMER-2026")
    till.world.installation = Installation(SecretKeys("a newer key", SECRET))
    with pytest.raises(Conflict):
        till.issue(code="SUMMER-2026")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"amount_minor": 0}, "amount_minor"),
        ({"amount_minor": -1}, "amount_minor"),
        ({"amount_minor": 2**63}, "amount_minor"),
        ({"currency": "nok"}, "currency"),
        ({"code": "SHORT67"}, "code"),
        ({"code": "  SHORT  "}, "code"),
        ({"code": "A" * 201}, "code"),
        ({"code": "GIFT\x00ABCD"}, "code"),
        ({"valid_from": NOON, "expires_at": NOON}, "expires_at"),
        ({"valid_from": -1}, "valid_from"),
        ({"expires_at": OSLO.parse("9999-12-31T23:59:59")}, "expires_at"),
        ({"expires_at": OSLO.parse("9999-12-31T23:59:59-12:00")}, "expires_at"),
        ({"expires_at": OSLO.parse("0001-01-01")}, "expires_at"),
        ({"purchaser_name": "Kari\nBcc: all"}, "purchaser_name"),
        ({"purchaser_email": "kari"}, "purchaser_email"),
        ({"recipient_name": "O" * 201}, "recipient_name"),
        ({"recipient_email": "ola@example.com,all@example.com"}, "recipient_email"),
    ],
)
def test_an_invalid_field_is_refused_by_its_name(till: Till, wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(Malformed) as refused:
        till.issue(**{"amount_minor": 50_000} | wrong)
    assert [detail.field for detail in refused.value.details] == [field]
    assert till.world.rows(tables.gift_cards) == []


@pytest.mark.parametrize("code", ["SHORTEST", "A" * 200])
def test_a_code_has_8_to_200_characters(till: Till, code: str) -> None:
    assert till.issue(code=code)[1] == code


@pytest.mark.parametrize("amount_minor", [1, 2**63 - 1])
def test_the_least_and_the_largest_amounts_are_issued(till: Till, amount_minor: int) -> None:
    assert till.issue(amount_minor)[0]["balance"]["amount_minor"] == amount_minor


def test_every_wrong_field_is_named_at_once(till: Till) -> None:
    with pytest.raises(Malformed) as refused:
        till.issue(0, currency="EURO", code="X")
    assert [detail.field for detail in refused.value.details] == ["amount_minor", "currency", "code"]


def test_a_card_may_be_in_another_currency_and_valid_later(till: Till) -> None:
    card, _ = till.issue(currency="EUR", valid_from=NOON + DAY)
    assert (card["currency"], card["status"]) == ("EUR", "expired")
    till.world.clock.advance(DAY)
    assert till.card(card["id"])["status"] == "active"


# Off and on ------------------------------------------------------------------------------------------------------


def test_a_repeated_deactivation_or_reactivation_changes_nothing(till: Till) -> None:
    card, _ = till.issue()
    off = card | {"status": "inactive"}
    till.world.clock.advance(DAY)
    assert till.deactivate(card["id"]) == till.card(card["id"]) == off
    before = till.world.row(tables.gift_cards, card["id"])
    assert before["updated_at"] == NOON + DAY
    till.world.clock.advance(DAY)
    assert till.deactivate(card["id"]) == off
    assert till.world.row(tables.gift_cards, card["id"]) == before
    for _ in range(2):
        assert till.reactivate(card["id"]) == till.card(card["id"]) == card
    assert len(till.events()) == 1


def test_a_card_that_expired_meanwhile_stays_expired_when_it_is_switched_on(till: Till) -> None:
    card, _ = till.issue(expires_at=NOON + DAY)
    till.deactivate(card["id"])
    till.world.clock.advance(DAY)
    assert till.reactivate(card["id"])["status"] == "expired"


def test_another_organizations_card_cannot_be_switched(till: Till, new_world: Callable[..., World]) -> None:
    other_card, _ = Till(new_world()).issue()
    switches: list[Callable[[str], Any]] = [till.deactivate, till.reactivate]
    for switch in switches:
        for gift_card_id in (other_card["id"], new_id()):
            with pytest.raises(NotFound):
                switch(gift_card_id)

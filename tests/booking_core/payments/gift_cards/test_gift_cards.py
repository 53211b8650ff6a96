"""Gift cards are shown with their present status, and without their code unless it is requested."""

from dataclasses import replace
from typing import Any

from support.world import rows
from support.world.operations import paged_rows
from support.world.world import DAY, NOON, SECRET, World

from booking_core.base import gift_codes, tokens
from booking_core.base.context import Installation
from booking_core.base.tokens import SecretKeys
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.db.paging import PageRequest
from booking_core.models.gift_cards import GiftCard, GiftCardStatus
from booking_core.payments import gift_cards

CODE = "GIFT-ABCD-1234"
KEYS = SecretKeys(SECRET)


def card(world: World, *, code: str | None = None, **changed: Any) -> str:
    row = rows.gift_card(world.org, "", world.clock()) | world.code_columns(code or tokens.new_id())
    del row["organization_id"]
    bought_by = {"purchaser_name": "Kari", "purchaser_email": "kari@example.com"}
    return world.insert(tables.gift_cards, **row | bought_by | changed)


def get(world: World, gift_card_id: str, *, include_code: bool = False) -> dict[str, Any]:
    return world.database.read(lambda tx: gift_cards.get(tx, world.caller(), gift_card_id, include_code=include_code))


def find(world: World, page: PageRequest = PageRequest(), **filters: Any) -> dict[str, Any]:  # noqa: B008
    return world.database.read(lambda tx: gift_cards.find(tx, world.caller(), page, **filters))


def ids(page: dict[str, Any]) -> list[str]:
    return [item["id"] for item in page["data"]]


def test_a_gift_card_has_the_shape_of_the_model(world: World) -> None:
    gift_card = get(world, card(world, code=CODE, balance_minor=12_500, expires_at=NOON + 300 * DAY))
    assert GiftCard.model_validate(gift_card).model_dump(mode="json", exclude_unset=True) == gift_card
    assert [*gift_card, "code"] == list(GiftCard.model_fields)
    assert gift_card == {
        "id": gift_card["id"],
        "code_last4": "1234",
        "status": "active",
        "initial_amount": {"amount_minor": 50_000, "currency": "NOK"},
        "balance": {"amount_minor": 12_500, "currency": "NOK"},
        "currency": "NOK",
        "expires_at": "2027-09-17T14:00:00+02:00",
        "purchaser": {"name": "Kari", "email": "kari@example.com"},
        "recipient": {"name": None, "email": None},
        "created_at": "2026-11-21T13:00:00+01:00",
    }


# Status ----------------------------------------------------------------------------------------------------------

STATUSES: list[tuple[dict[str, Any], GiftCardStatus]] = [
    ({}, GiftCardStatus.ACTIVE),
    ({"balance_minor": 1}, GiftCardStatus.ACTIVE),
    ({"expires_at": NOON + 1}, GiftCardStatus.ACTIVE),
    ({"expires_at": NOON}, GiftCardStatus.EXPIRED),
    ({"expires_at": NOON - DAY}, GiftCardStatus.EXPIRED),
    ({"valid_from": NOON}, GiftCardStatus.ACTIVE),
    ({"valid_from": NOON + 1}, GiftCardStatus.EXPIRED),
    ({"valid_from": NOON - DAY, "expires_at": NOON + DAY}, GiftCardStatus.ACTIVE),
    ({"balance_minor": 0}, GiftCardStatus.EXPIRED),
    ({"deactivated_at": NOON - DAY}, GiftCardStatus.INACTIVE),
    ({"deactivated_at": NOON, "expires_at": NOON - DAY, "balance_minor": 0}, GiftCardStatus.INACTIVE),
]


def test_the_field_and_the_filter_use_the_current_status(world: World) -> None:
    statuses = {card(world, **changed): status for changed, status in STATUSES}
    assert {one: get(world, one)["status"] for one in statuses} == statuses
    for status in GiftCardStatus:
        page = find(world, status=status)
        assert {item["status"] for item in page["data"]} == {status.value}
        assert set(ids(page)) == {one for one, its in statuses.items() if its is status}


def test_the_instant_of_the_caller_decides_about_the_status(world: World, shared_database_url: str) -> None:
    ending, later = card(world, expires_at=NOON + DAY), card(world, expires_at=NOON + 3 * DAY)
    caller, database = replace(world.caller(), at=NOON + 2 * DAY), Database(shared_database_url)
    page = database.read(lambda tx: gift_cards.find(tx, caller, PageRequest(), status=GiftCardStatus.ACTIVE))
    assert ids(page) == [later]
    assert database.read(lambda tx: gift_cards.get(tx, caller, ending))["status"] == "expired"
    database.close()


# Codes -----------------------------------------------------------------------------------------------------------


def test_a_code_with_a_dropped_secret_key_is_null(world: World) -> None:
    one = tokens.new_id()
    card(world, id=one, code_sealed=gift_codes.seal_code(SecretKeys("another key"), world.org, one, CODE))
    assert get(world, one, include_code=True)["code"] is None
    assert "code" not in get(world, one)


def test_a_code_outlives_the_rotation_of_secret_keys(world: World) -> None:
    one = card(world, code=CODE)
    world.installation = Installation(SecretKeys("a newer key", SECRET))
    assert get(world, one, include_code=True)["code"] == CODE
    stored = gift_codes.hash_code(KEYS, world.org, CODE)
    hashes = gift_codes.code_hashes(world.installation.secret_keys, world.org, " gift-abcd-1234")
    assert hashes == [gift_codes.hash_code(world.installation.secret_keys, world.org, CODE), stored]


def test_one_code_has_another_hash_in_another_organization(world: World) -> None:
    code_hash = gift_codes.hash_code(KEYS, world.org, CODE)
    assert code_hash == gift_codes.hash_code(KEYS, world.org, " gift-abcd-1234\n")
    assert code_hash != gift_codes.hash_code(KEYS, tokens.new_id(), CODE)
    assert CODE not in gift_codes.seal_code(KEYS, world.org, tokens.new_id(), CODE)


def test_the_last_four_of_a_short_code_are_all_of_it() -> None:
    assert gift_codes.last4(" gift-abcd ") == "ABCD"
    assert gift_codes.last4("ab") == "AB"


# Lists -----------------------------------------------------------------------------------------------------------


def test_a_filtered_list_is_paged_to_its_end(world: World) -> None:
    cards = {card(world, balance_minor=i % 2) for i in range(9)}
    active = paged_rows(lambda page: find(world, page, status=GiftCardStatus.ACTIVE), 2)
    walked = [item["id"] for item in active]
    assert len(walked) == len(set(walked)) == 4
    assert set(walked) < cards


def test_updated_since_includes_its_timestamp(world: World) -> None:
    card(world, updated_at=NOON - 1)
    changed = card(world, updated_at=NOON)
    assert ids(find(world, updated_since=NOON)) == [changed]

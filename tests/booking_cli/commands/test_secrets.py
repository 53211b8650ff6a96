"""`booking secrets` counts the sealed values of each key and reseals them; no program runs with a wrong key."""

from pathlib import Path
from typing import Any

import pytest
from support.databases.databases import run
from support.serving.commands import Booking, Environment, OnTerminal
from support.world.world import NEWER_SECRET, SECRET

from booking_cli.operator import service, storage
from booking_core.base.tokens import SecretKeys
from booking_server.app import create_app

OLD, NEW = SecretKeys(SECRET).first_id, SecretKeys(NEWER_SECRET).first_id
BOTH = f"{NEWER_SECRET},{SECRET}"
ISSUE = ("gift-cards", "issue", "--org", "fjord-tours", "--amount", "50000")


@pytest.fixture
def cards(fjord_on_both: Booking) -> list[str]:
    """Return the codes of three gift cards that are sealed with the old key."""
    return [fjord_on_both(*ISSUE, "--json").json["code"] for _ in range(3)]


def test_nothing_is_sealed_in_an_empty_database(fjord_on_both: Booking) -> None:
    status = fjord_on_both("secrets", "status", "--json").json
    assert status["data"] == []
    assert status["keys"] == [{"key_id": OLD, "place": 1, "values": 0, "can_be_dropped": False}]


def test_a_rotation_from_the_first_look_to_the_dropped_key(
    cards: list[str], booking: Booking, environment: Environment
) -> None:
    """For example: booking secrets status, booking secrets reseal."""
    environment("BOOKING_SECRET_KEY", BOTH)
    environment("BOOKING_MAIL_DIR", "mails")
    before = booking("secrets", "status", "--json").json
    row = {"kind": "gift_card_code", "values": 3, "state": "to_reseal", "key_id": OLD, "place": 2}
    assert before["data"] == [row]
    assert before["keys"][1] == {"key_id": OLD, "place": 2, "values": 3, "can_be_dropped": False}
    assert "needed for 3 values: booking secrets reseal" in booking("secrets", "status").err
    result = booking("secrets", "reseal", "--json")
    assert (result.code, _of_cards(result)) == (0, {"kind": "gift_card_code", "resealed": 3, "lost": 0})
    after = booking("secrets", "status", "--json").json
    assert after["data"] == [row | {"state": "current", "key_id": NEW, "place": 1}]
    assert after["keys"][1] == {"key_id": OLD, "place": 2, "values": 0, "can_be_dropped": True}
    assert "is not used: it can be removed" in booking("secrets", "status").err
    environment("BOOKING_SECRET_KEY", NEWER_SECRET)
    assert booking("doctor").code == 0
    exported = booking("catalog", "export", "--org", "fjord-tours").json
    assert sorted(card["code"] for card in exported["gift_cards"]) == sorted(cards)


def test_another_key_is_refused_by_whatever_would_use_it(
    cards: list[str], booking: Booking, environment: Environment
) -> None:
    environment("BOOKING_SECRET_KEY", NEWER_SECRET)
    for command in (("doctor",), ("serve", "--port", "0"), ("worker",), ISSUE):
        refused = booking(*command, "--json")
        assert refused.refusal == (2, "wrong_secret_key")
        assert refused.error["message"].endswith(f": gift card codes (sealed with key {OLD}).")
        assert "BOOKING_SECRET_KEY=NEW,OLD" in refused.error["hint"]
    assert len(cards) == 3


def test_a_damaged_value_is_logged_once_when_the_service_starts(
    cards: list[str], fresh_database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = "(SELECT id FROM gift_cards ORDER BY id LIMIT 1)"
    run(fresh_database_url, f"UPDATE gift_cards SET code_sealed = 'AAAA' WHERE id = {first}")
    settings = storage.load_settings()
    service.prepare(settings)
    create_app(settings)
    log = capsys.readouterr().err
    assert log.count("Sealed values are damaged: gift card codes.") == 1
    assert "booking doctor names each damaged value" in log
    assert len(cards) == 3


def test_a_lost_key_can_be_gone_on_without(cards: list[str], booking: Booking, environment: Environment) -> None:
    environment("BOOKING_SECRET_KEY", NEWER_SECRET)
    environment("BOOKING_SECRET_KEY_CHECK", "warn")
    looked = booking("doctor")
    assert looked.code == 1
    assert f"gift card codes (sealed with key {OLD})" in looked.err
    result = booking("secrets", "status")
    assert f"Key {OLD} is not in BOOKING_SECRET_KEY, and 3 values need it." in result.err
    resealed = booking("secrets", "reseal", "--json")
    assert (resealed.code, _of_cards(resealed)["lost"]) == (12, len(cards))


def test_a_check_that_is_neither_refused_nor_warned_of_is_no_setting(
    booking: Booking, environment: Environment
) -> None:
    environment("BOOKING_SECRET_KEY_CHECK", "perhaps")
    refused = booking("doctor", "--json")
    assert (refused.code, refused.error["message"]) == (2, "BOOKING_SECRET_KEY_CHECK must be refuse or warn")


@pytest.mark.parametrize("key", ["changeme", "changeme" * 8, "a" * 64])
def test_the_refusal_of_a_weak_key_says_how_to_make_one(booking: Booking, environment: Environment, key: str) -> None:
    environment("BOOKING_SECRET_KEY", key)
    refused = booking("serve", "--json")
    assert refused.refusal == (2, "bad_setting")
    assert "openssl rand -base64 32" in refused.error["message"]
    assert key not in refused.err


@pytest.fixture
def key_file(upgraded: None) -> Path:
    """Return the file of the secret key beside an empty database, where it is before a command has made it."""
    return Path("booking.db.secret")


def test_a_missing_key_file_is_noticed_before_another_key_is_made(booking: Booking, key_file: Path) -> None:
    create = ("--slug", "fjord", "--name", "Fjord", "--timezone", "Europe/Oslo", "--currency", "NOK")
    assert booking("orgs", "create", *create).code == 0
    assert booking("gift-cards", "issue", "--org", "fjord", "--amount", "50000").code == 0
    key_file.rename("elsewhere")
    for command in ("serve", "worker", "doctor"):
        refused = booking(command, "--json")
        assert refused.refusal == (2, "wrong_secret_key")
        assert str(key_file) in refused.error["message"]
        assert not key_file.exists()


def test_a_key_file_takes_a_list_as_the_setting_does(booking: Booking, key_file: Path) -> None:
    key_file.write_text(f"{BOTH}\n")
    assert [key["key_id"] for key in booking("secrets", "status", "--json").json["keys"]] == [NEW, OLD]
    key_file.write_text("changeme\n")
    refused = booking("secrets", "status", "--json")
    assert (refused.code, "openssl rand" in refused.error["message"]) == (2, True)


def test_new_links_are_made(cards: list[str], booking: Booking) -> None:
    summary = booking("secrets", "reseal", "--new-links", "--yes", "--json").json
    assert summary["data"][-1] == {"kind": "guest_link", "resealed": 0, "lost": 0}
    assert cards


def test_the_table_fits_a_terminal(cards: list[str], terminal: OnTerminal, environment: Environment) -> None:
    environment("BOOKING_SECRET_KEY", BOTH)
    for columns in (80, 120):
        environment("COLUMNS", str(columns))
        code, screen = terminal("secrets", "status", "--color", "never", "-q")
        lines = screen.splitlines()
        assert (code, lines[0].split()) == (0, ["kind", "values", "state", "key_id", "place"])
        assert lines[1].split() == ["gift_card_code", str(len(cards)), "to_reseal", OLD, "2"]
        assert max(map(len, lines)) <= columns
    code, screen = terminal("secrets", "reseal")
    assert code == 0
    assert "resealing" in screen


def _of_cards(resealed: Any) -> Any:
    """Return the changes of the codes of gift cards."""
    (cards,) = [entry for entry in resealed.json["data"] if entry["kind"] == "gift_card_code"]
    return cards

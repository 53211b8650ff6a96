"""`booking orgs` and `booking keys`: organizations and settings; keys, created and shown once, rotated, revoked."""

import re
from typing import Any

import pytest
from support.serving.commands import Booking, OnTerminal, RecordedTerminal, Result
from support.world.kayaks import ORG

from booking_core.models.scopes import READ_SCOPES, Scope
from booking_core.organizations.rules import SETTINGS


def create(booking: Booking, *argv: str, **changes: str) -> Result:
    isla = {"slug": "isla-tours", "name": "Isla Tours", "timezone": "America/Santiago", "currency": "CLP"}
    options = [word for name, value in (isla | changes).items() for word in (f"--{name}", value)]
    return booking("orgs", "create", *options, *argv)


def test_an_organization_is_created_shown_and_listed(fjord_on_both: Booking) -> None:
    organization = create(fjord_on_both, "-o", "json").json
    identity = {"id": organization["id"], "slug": "isla-tours", "name": "Isla Tours"}
    assert organization == identity | {"timezone": "America/Santiago", "default_currency": "CLP"}
    assert fjord_on_both("orgs", "show", "isla-tours", "-o", "json").json.items() >= organization.items()
    listed = fjord_on_both("orgs", "list", "-o", "json").json
    assert [entry["slug"] for entry in listed["data"]] == ["fjord-tours", "isla-tours"]
    assert listed["data"][1] == organization
    assert (listed["has_more"], listed["next_cursor"]) == (False, None)


def test_a_slug_that_is_taken_exits_7(fjord_on_both: Booking) -> None:
    refused = create(fjord_on_both, "-o", "json", slug="fjord-tours")
    assert (*refused.refusal, refused.error["hint"]) == (7, "conflict", "booking orgs list")
    assert (refused.error["details"][0]["reason"], refused.out) == ("slug_taken", "")


def test_every_bad_field_is_reported_at_once(stored: Booking) -> None:
    refused = create(stored, "-o", "json", timezone="Mars", currency="XXX")
    assert (refused.code, [detail["field"] for detail in refused.error["details"]]) == (8, ["timezone", "currency"])
    assert len(create(stored, "-q", timezone="Mars", currency="XXX").err.splitlines()) == 1


def test_settings_are_set_and_shown(fjord_on_both: Booking) -> None:
    changes = ("add_ons_app=off", "pending_minutes=45", "staff_email=staff@fjord.example", "name=Fjord & Fjell = 1")
    changed = fjord_on_both("orgs", "set", "fjord-tours", *changes, "-o", "json").json
    assert (changed["add_ons_app"], changed["pending_minutes"]) == (False, 45)
    assert changed["name"] == "Fjord & Fjell = 1"
    assert fjord_on_both("orgs", "show", "fjord-tours", "-o", "json").json == changed
    assert fjord_on_both("orgs", "set", "fjord-tours", "pending_minutes=", "--json").json["pending_minutes"] is None


def test_a_change_without_an_equals_sign_exits_2(fjord: Booking) -> None:
    assert fjord("orgs", "set", "fjord-tours", "name").code == 2


def test_the_help_of_set_names_every_setting(booking: Booking) -> None:
    page = booking("orgs", "set", "--help").out
    assert all(key in page for key in SETTINGS)


def test_the_address_for_notices_to_staff_is_set_shown_and_removed(fjord_on_both: Booking) -> None:
    def notify(*words: str) -> object:
        return fjord_on_both("orgs", "notify-email", "fjord-tours", *words, "-o", "json").json

    setting = {"slug": "fjord-tours", "staff_email": "office@fjord.example"}
    assert notify("office@fjord.example") == setting | {"notify_staff": True}
    assert notify("--off") == notify() == setting | {"notify_staff": False}
    assert notify("quay@fjord.example") == setting | {"staff_email": "quay@fjord.example", "notify_staff": True}


def test_a_bad_address_for_staff_changes_nothing(fjord_on_both: Booking) -> None:
    before = fjord_on_both("orgs", "show", "fjord-tours", "-o", "json").json
    refused = fjord_on_both("orgs", "notify-email", "fjord-tours", "nobody", "-o", "json")
    assert (refused.code, refused.error["details"][0]["field"]) == (8, "staff_email")
    assert fjord_on_both("orgs", "notify-email", "fjord-tours", "a@b.example", "--off").code == 2
    assert fjord_on_both("orgs", "show", "fjord-tours", "-o", "json").json == before


# Keys ----------------------------------------------------------------------------------------------------------------


CREATE = ("keys", "create", *ORG, "--name", "Website")


def create_key(booking: Booking, *argv: str) -> dict[str, Any]:
    result = booking(*CREATE, *argv, "-o", "json")
    assert result.code == 0, result.err
    return result.json


def find(booking: Booking) -> list[dict[str, Any]]:
    return booking("keys", "list", *ORG, "--json").json["data"]


def test_a_key_is_shown_once_and_never_again(fjord_on_both: Booking) -> None:
    key = create_key(fjord_on_both)
    secret = key.pop("key")
    assert secret.startswith(key["prefix"])
    assert key["status"] == "active"
    result = fjord_on_both("keys", "show", key["id"], "-o", "json")
    assert result.json == key
    assert secret not in result.out + fjord_on_both("keys", "list", "--org", "fjord-tours", "-o", "json").out


def test_a_new_key_has_every_read_scope_unless_others_are_given(fjord: Booking) -> None:
    assert set(create_key(fjord)["scopes"]) == READ_SCOPES
    assert create_key(fjord, "--scope", "bookings:write")["scopes"] == ["bookings:write"]
    both = create_key(fjord, "--all-read", "--scope", "bookings:write", "--scope", "webhooks:manage")["scopes"]
    assert set(both) == READ_SCOPES | {Scope.BOOKINGS_WRITE, Scope.WEBHOOKS_MANAGE}


def test_a_length_of_life_or_an_end_is_given(fjord_on_both: Booking) -> None:
    assert create_key(fjord_on_both)["expires_at"] is None
    assert create_key(fjord_on_both, "--expires-in", "90d")["expires_at"] is not None
    assert create_key(fjord_on_both, "--expires-at", "2999-07-01T12:00:00")["expires_at"] == "2999-07-01T12:00:00+02:00"
    assert (
        create_key(fjord_on_both, "--expires-at", "2999-07-01T12:00:00Z")["expires_at"] == "2999-07-01T14:00:00+02:00"
    )


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("--scope", "everything"), 8),
        *((("--expires-in", length), 2) for length in ("90", "-1d", "999999999w")),
        *((("--expires-at", end), 2) for end in ("tomorrow", "2999-02-30T00:00:00")),
        (("--expires-at", "2020-01-01T00:00:00"), 8),
        (("--expires-in", "0"), 8),
        (("--expires-in", "1d", "--expires-at", "2999-01-01T00:00:00"), 2),
    ],
)
def test_a_scope_or_an_end_that_makes_no_sense_makes_no_key(fjord: Booking, argv: tuple[str, ...], code: int) -> None:
    refused = fjord(*CREATE, *argv, "-o", "json")
    assert refused.code == refused.error["exit_code"] == code
    assert find(fjord) == []


def test_the_plain_key_is_easily_taken_by_a_script(fjord: Booking) -> None:
    assert re.fullmatch(r"svc_[0-9A-Za-z]{40}\n", fjord(*CREATE, "--fields", "key").out)


def test_a_revoked_key_stays_revoked(fjord_on_both: Booking) -> None:
    key = create_key(fjord_on_both)
    revoked = fjord_on_both("keys", "revoke", key["id"], "--yes", "-o", "json").json
    assert (revoked["status"], revoked["revoked_at"] is not None) == ("revoked", True)
    assert fjord_on_both("keys", "revoke", key["id"], "-o", "json").json == revoked


def test_a_rotated_key_has_a_successor_and_an_end(fjord_on_both: Booking) -> None:
    key = create_key(fjord_on_both, "--scope", "bookings:write")
    successor = fjord_on_both("keys", "rotate", key["id"], "--overlap", "24h", "-o", "json").json
    assert successor["key"].startswith("svc_")
    assert (successor["name"], successor["scopes"]) == ("Website", ["bookings:write"])
    old, new = find(fjord_on_both)
    assert (old["id"], new["id"]) == (key["id"], successor["id"])
    assert old["expires_at"] == successor["previous_key_expires_at"] is not None
    assert old["status"] == new["status"] == "active"


def test_a_rotation_says_when_the_old_key_ends(fjord: Booking) -> None:
    key = create_key(fjord)
    notes = fjord("keys", "rotate", key["prefix"]).err
    end = fjord("keys", "show", key["id"], "-o", "json").json["expires_at"]
    assert f"The old key {key['prefix']}… is valid until {end[:16].replace('T', ' ')}." in notes
    assert "is no longer valid since" in fjord("keys", "rotate", key["prefix"], "--overlap", "0").err


def test_the_prefix_names_a_key_in_every_command(fjord_on_both: Booking) -> None:
    key = create_key(fjord_on_both)
    details = fjord_on_both("keys", "show", key["prefix"], "-o", "json").json
    assert details["id"] == key["id"]
    for argv in (("update", "--name", "Shop"), ("expire", "--at", "2999-01-01"), ("rotate",), ("revoke", "--yes")):
        result = fjord_on_both("keys", argv[0], key["prefix"], *argv[1:], "-o", "json")
        assert result.code == 0, result.err
    assert fjord_on_both("keys", "show", key["id"], "-o", "json").json["status"] == "revoked"
    entries = fjord_on_both("audit", "list", *ORG, "-o", "json").json["data"]
    changes = [entry for entry in entries if entry["action"] in ("keys.update", "keys.expire", "keys.revoke")]
    assert [entry["objects"]["key"] for entry in changes] == [[key["id"]]] * 3
    assert fjord_on_both("keys", "show", "svc_00000000", "-o", "json").refusal == (6, "not_found")


def test_an_update_of_name_or_scopes_of_a_key_is_audited(fjord_on_both: Booking) -> None:
    key = create_key(fjord_on_both)
    renamed = fjord_on_both("keys", "update", key["id"], "--name", "Shop", "-o", "json").json
    assert (renamed["name"], renamed["scopes"]) == ("Shop", key["scopes"])
    changed = fjord_on_both("keys", "update", key["id"], "--all-read", "--scope", "bookings:write", "-o", "json").json
    assert set(changed["scopes"]) == READ_SCOPES | {Scope.BOOKINGS_WRITE}
    assert (changed["name"], find(fjord_on_both)) == ("Shop", [changed])
    entry = fjord_on_both("audit", "list", *ORG, "-o", "json").json["data"][0]
    assert (entry["action"], entry["objects"]["scopes"]) == ("keys.update", changed["scopes"])
    refused = fjord_on_both("keys", "update", key["id"], "-o", "json")
    assert (refused.code, refused.error["hint"]) == (2, "pass --name, --scope or --all-read")
    assert fjord_on_both("keys", "update", key["id"], "--scope", "everything").code == 8


def test_the_table_of_keys_has_prefixes_and_scopes(fjord: Booking, recorded_terminal: RecordedTerminal) -> None:
    read, write = create_key(fjord), create_key(fjord, "--scope", "bookings:write", "--scope", "checkouts:write")
    for columns in (80, 100):
        screen = recorded_terminal(columns)
        fjord("keys", "list", *ORG)
        header, *lines = screen.getvalue().splitlines()
        assert header.split()[:5] == ["prefix", "name", "status", "expires_at", "scopes"]
        assert [line.split()[0] for line in lines] == [read["prefix"], write["prefix"]]
        assert "all read" in lines[0]
        assert "bookings:write, c" in lines[1]


def test_without_a_database_the_hint_says_where_keys_are(booking: Booking) -> None:
    refused = booking("keys", "list", *ORG, "-o", "json")
    assert refused.refusal == (2, "no_database")
    assert refused.error["hint"].startswith("API keys live where the service runs")


def test_an_end_is_set_later(fjord_on_both: Booking) -> None:
    key = create_key(fjord_on_both)
    expiring = fjord_on_both("keys", "expire", key["id"], "--at", "2999-01-01T00:00:00", "-o", "json").json
    assert expiring["expires_at"] == "2999-01-01T00:00:00+01:00"
    assert fjord_on_both("keys", "expire", key["id"], "--at", "2020-01-01", "-o", "json").json["status"] == "expired"
    assert fjord_on_both("keys", "expire", key["id"], "--at", "2999-01-01", "-o", "json").code == 7
    assert fjord_on_both("keys", "rotate", key["id"], "-o", "json").code == 7


def test_the_first_line_is_the_new_key_and_empty_fields_are_omitted(fjord: Booking, terminal: OnTerminal) -> None:
    _, screen = terminal(*CREATE, "-q", "--color", "never")
    key, blank, *fields = screen.splitlines()
    assert re.fullmatch(r"svc_[0-9A-Za-z]{40}", key)
    assert blank == ""
    assert [line.split()[0] for line in fields] == ["id", "name", "prefix", "scopes", "created_at", "status"]

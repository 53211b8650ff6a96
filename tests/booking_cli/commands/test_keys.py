"""`booking keys`: created and shown once, rotated, expired, revoked."""

import re
from typing import Any

import pytest
from support.commands import Booking, OnTerminal
from support.kayaks import ORG

from booking_core.models.scopes import READ_SCOPES, Scope

CREATE = ("keys", "create", *ORG, "--name", "Website")


def create(booking: Booking, *argv: str) -> dict[str, Any]:
    made = booking(*CREATE, *argv, "-o", "json")
    assert made.code == 0, made.err
    return made.json


def find(booking: Booking) -> list[dict[str, Any]]:
    return booking("keys", "list", *ORG, "--json").json["data"]


def test_a_key_is_shown_once_and_never_again(fjord_on_both: Booking) -> None:
    made = create(fjord_on_both)
    secret = made.pop("key")
    assert secret.startswith(made["prefix"])
    assert made["status"] == "active"
    shown = fjord_on_both("keys", "show", made["id"], "-o", "json")
    assert shown.json == made
    assert secret not in shown.out + fjord_on_both("keys", "list", "--org", "fjord-tours", "-o", "json").out


def test_a_new_key_has_every_read_scope_unless_others_are_given(fjord: Booking) -> None:
    assert set(create(fjord)["scopes"]) == READ_SCOPES
    assert create(fjord, "--scope", "bookings:write")["scopes"] == ["bookings:write"]
    both = create(fjord, "--all-read", "--scope", "bookings:write", "--scope", "webhooks:manage")["scopes"]
    assert set(both) == READ_SCOPES | {Scope.BOOKINGS_WRITE, Scope.WEBHOOKS_MANAGE}


def test_an_unknown_scope_exits_8_and_makes_no_key(fjord: Booking) -> None:
    refused = fjord(*CREATE, "--scope", "everything", "--json")
    assert (refused.code, refused.error["details"][0]["field"]) == (8, "scopes")
    assert find(fjord) == []


def test_a_length_of_life_or_an_end_is_given(fjord_on_both: Booking) -> None:
    assert create(fjord_on_both)["expires_at"] is None
    assert create(fjord_on_both, "--expires-in", "90d")["expires_at"] is not None
    assert create(fjord_on_both, "--expires-at", "2999-07-01T12:00:00")["expires_at"] == "2999-07-01T12:00:00+02:00"
    assert create(fjord_on_both, "--expires-at", "2999-07-01T12:00:00Z")["expires_at"] == "2999-07-01T14:00:00+02:00"


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        *((("--expires-in", length), 2) for length in ("90", "-1d", "999999999w")),
        *((("--expires-at", end), 2) for end in ("tomorrow", "2999-02-30T00:00:00")),
        (("--expires-at", "2020-01-01T00:00:00"), 8),
        (("--expires-in", "0"), 8),
        (("--expires-in", "1d", "--expires-at", "2999-01-01T00:00:00"), 2),
    ],
)
def test_an_end_that_makes_no_sense_is_refused(fjord: Booking, argv: tuple[str, ...], code: int) -> None:
    refused = fjord(*CREATE, *argv, "-o", "json")
    assert refused.code == refused.error["exit_code"] == code
    assert find(fjord) == []


def test_the_plain_key_is_easily_taken_by_a_script(fjord: Booking) -> None:
    assert re.fullmatch(r"svc_[0-9A-Za-z]{40}\n", fjord(*CREATE, "--fields", "key").out)


def test_the_twenty_first_active_key_exits_7(fjord_on_both: Booking) -> None:
    for _ in range(20):
        create(fjord_on_both)
    refused = fjord_on_both(*CREATE, "-o", "json")
    assert (refused.code, refused.error["details"][0]["reason"]) == (7, "key_limit_reached")
    assert fjord_on_both("keys", "rotate", find(fjord_on_both)[0]["id"]).code == 7
    assert fjord_on_both("keys", "rotate", find(fjord_on_both)[0]["id"], "--overlap", "0").code == 0


def test_a_revoked_key_stays_revoked(fjord_on_both: Booking) -> None:
    key = create(fjord_on_both)
    revoked = fjord_on_both("keys", "revoke", key["id"], "--yes", "-o", "json").json
    assert (revoked["status"], revoked["revoked_at"] is not None) == ("revoked", True)
    assert fjord_on_both("keys", "revoke", key["id"], "-o", "json").json == revoked


def test_a_rotated_key_has_a_successor_and_an_end(fjord_on_both: Booking) -> None:
    key = create(fjord_on_both, "--scope", "bookings:write")
    successor = fjord_on_both("keys", "rotate", key["id"], "--overlap", "24h", "-o", "json").json
    assert successor["key"].startswith("svc_")
    assert (successor["name"], successor["scopes"]) == ("Website", ["bookings:write"])
    old, new = find(fjord_on_both)
    assert (old["id"], new["id"]) == (key["id"], successor["id"])
    assert old["expires_at"] is not None
    assert old["status"] == new["status"] == "active"


def test_an_end_is_set_later(fjord_on_both: Booking) -> None:
    key = create(fjord_on_both)
    expiring = fjord_on_both("keys", "expire", key["id"], "--at", "2999-01-01T00:00:00", "-o", "json").json
    assert expiring["expires_at"] == "2999-01-01T00:00:00+01:00"
    assert fjord_on_both("keys", "expire", key["id"], "--at", "2020-01-01", "-o", "json").json["status"] == "expired"
    assert fjord_on_both("keys", "expire", key["id"], "--at", "2999-01-01", "-o", "json").code == 7
    assert fjord_on_both("keys", "rotate", key["id"], "-o", "json").code == 7


def test_a_new_key_is_the_first_line_alone_and_empty_fields_are_left_out(fjord: Booking, terminal: OnTerminal) -> None:
    _, screen = terminal(*CREATE, "-q", "--color", "never")
    key, blank, *fields = screen.splitlines()
    assert re.fullmatch(r"svc_[0-9A-Za-z]{40}", key)
    assert blank == ""
    assert [line.split()[0] for line in fields] == ["id", "name", "prefix", "scopes", "created_at", "status"]
